/* Groups of row ops: each task takes a few rows through all ops of its group, then rounds them for the
 * matmuls. */
#include "backend/cpu/executor.h"

#include "backend/common/weights.h"
#include "backend/cpu/packing.h"
#include "quant/half.h"
#include "quant/quant.h"

#include <math.h>
#include <string.h>

/* cos and sin of all ropes at this row's position. Angles are computed in double: float would lose precision
 * at large positions. */
static void prepare_ropes(struct executor *executor, uint32_t row)
{
    const struct program *program = executor->program;
    const uint32_t position = executor->rows[row].position;
    for (uint32_t i = 0; i < program->rope_count; i++) {
        const struct rope *rope = &program->ropes[i];
        size_t place = ((size_t)row * program->rope_count + i) * executor->rope_pairs;
        for (uint32_t j = 0; j < rope->dimensions / 2; j++) {
            double angle = position * rope->frequencies[j];
            executor->cosines[place + j] = (float)cos(angle) * rope->magnitude;
            executor->sines[place + j] = (float)sin(angle) * rope->magnitude;
        }
    }
}

static void embed(struct executor *executor, const struct op *op, uint32_t row, uint32_t thread)
{
    const struct program_buffer *table = &executor->program->buffers[op->inputs[0]];
    const struct weight *weight = &executor->weights[op->inputs[0]];
    const struct run *run = &executor->runs[executor->rows[row].run];
    const int32_t id =
        executor->tokens[slot_tokens_at(&executor->options, run->slot) + executor->rows[row].position];
    float *out = row_of(executor, op->out, row, thread);
    if (weight->tiles) {
        packing_read_row(table->type, weight->tiles, table->columns, (uint64_t)id, out);
    } else {
        dequantize(table->type, weight->rows + (size_t)id * weight_row_bytes(table), table->columns, out);
    }
    if (op->embed.scale != 1.0F) {
        for (uint64_t i = 0; i < table->columns; i++)
            out[i] *= op->embed.scale;
    }
    prepare_ropes(executor, row);
}

static void rotate(struct executor *executor, const struct op *op, uint32_t row, uint32_t thread)
{
    const struct program *program = executor->program;
    const struct rope *rope = &program->ropes[op->rope.rope];
    size_t place = ((size_t)row * program->rope_count + op->rope.rope) * executor->rope_pairs;
    float *x = row_of(executor, op->out, row, thread);
    for (uint32_t head = 0; head < op->rope.heads; head++) {
        (rope->halves ? executor->kernels->rope_halves : executor->kernels->rope_neighbours)(
            executor->cosines + place, executor->sines + place, rope->dimensions / 2,
            x + (size_t)head * op->rope.head_dim);
    }
}

static void append(struct executor *executor, const struct op *op, uint32_t row, uint32_t thread)
{
    const struct row_place info = executor->rows[row];
    const uint32_t page = executor->runs[info.run].pages[info.position / PAGE_POSITIONS];
    const float *k = row_of(executor, op->inputs[0], row, thread),
                *v = row_of(executor, op->inputs[1], row, thread);
    for (uint32_t head = 0; head < op->kv_append.kv_heads; head++) {
        struct kv_room room =
            kv_pool_room(executor, op->kv_append.key_state, op->kv_append.value_state, page, head);
        size_t column = (size_t)head * op->kv_append.head_dim;
        executor->kernels->kv_append(&room, info.position % PAGE_POSITIONS, k + column, v + column);
    }
}

static void normalise(struct executor *executor, const struct op *op, uint32_t row, uint32_t thread)
{
    const uint64_t columns = executor->program->buffers[op->out].columns;
    const float *weight = op->inputs[1] == NO_BUFFER ? NULL : executor->weights[op->inputs[1]].vector;
    const float *x = row_of(executor, op->inputs[0], row, thread);
    float *out = row_of(executor, op->out, row, thread);
    for (uint64_t i = 0; i < columns; i += op->rms_norm.group)
        executor->kernels->rms_norm(x + i, weight, op->rms_norm.group, op->rms_norm.epsilon, out + i);
}

void rows_run_op(struct executor *executor, const struct op *op, uint32_t row, uint32_t thread)
{
    const struct cpu_kernels *kernels = executor->kernels;
    const uint64_t columns = op->out == NO_BUFFER ? 0 : executor->program->buffers[op->out].columns;
    switch (op->kind) {
    case OP_EMBED:
        embed(executor, op, row, thread);
        break;
    case OP_RMS_NORM:
        normalise(executor, op, row, thread);
        break;
    case OP_ROPE:
        rotate(executor, op, row, thread);
        break;
    case OP_KV_APPEND:
        append(executor, op, row, thread);
        break;
    case OP_GLU:
        (op->glu.activation == ACTIVATION_GELU ? kernels->glu_gelu : kernels->glu_silu)(
            row_of(executor, op->inputs[0], row, thread), row_of(executor, op->inputs[1], row, thread),
            columns, row_of(executor, op->out, row, thread));
        break;
    case OP_ADD:
        kernels->add(
            row_of(executor, op->inputs[0], row, thread), columns, row_of(executor, op->out, row, thread));
        break;
    case OP_SELECT_ROWS:
        memcpy(row_of(executor, op->out, row, thread),
            row_of(executor, op->inputs[0], executor->output_rows[row], thread), columns * sizeof(float));
        break;
    case OP_SOFTCAP:
        kernels->softcap(op->softcap.cap, columns, row_of(executor, op->out, row, thread));
        break;
    case OP_LAYER_NORM:
    case OP_L2_NORM:
    case OP_MUL:
    case OP_LERP:
    case OP_RWKV_KEY:
    case OP_RWKV_BONUS:
        recurrent_run_op(executor, op, row, (struct column_range){0, columns}, thread);
        break;
    case OP_TOKEN_SHIFT:
        recurrent_shift_row(executor, op, row, thread);
        break;
    case OP_MATMUL:
    case OP_ATTEND:
    case OP_WKV7:
    case OP_SAMPLE:
    case OP_KIND_COUNT:
        break; /* have groups of their own */
    }
}

unsigned row_terms(const struct executor *executor, bool fine, enum row_kind rows, uint32_t row)
{
    if (executor->rounding != ACTIVATIONS_AS_USUAL || fine)
        return executor->rounding == ACTIVATIONS_PLAIN ? 1 : 2;
    const uint32_t token = rows == ROWS_OUTPUTS ? executor->output_rows[row] : row;
    return rows != ROWS_RUNS && executor->rows[token].position < EARLY_POSITIONS ? 2 : 1;
}

struct q8_tile tokens_tile(
    const struct executor *executor, bool fine, enum row_kind rows, uint32_t row, size_t columns, size_t k)
{
    struct q8_tile x = executor->x;
    const uint32_t width = executor->kernels->tile_tokens;
    const size_t groups = (row * columns + k * width) / 32;
    const uint32_t live = executor->live[rows], end = row + width < live ? row + width : live;
    const bool late = rows == ROWS_TOKENS && row >= executor->early_end; /* called for every tile */
    unsigned terms = fine ? row_terms(executor, fine, rows, row) : 1;
    for (uint32_t i = row; i < end && terms == 1 && !late; i++)
        terms = row_terms(executor, fine, rows, i);
    x.terms = terms;
    return q8_tile_from(x, row * columns * 2 + k * width * terms, groups, groups * 2);
}

struct q8_tile row_tile(
    const struct executor *executor, bool fine, enum row_kind rows, uint32_t row, size_t columns)
{
    struct q8_tile x = executor->x;
    const size_t groups = row * columns / 32;
    x.terms = row_terms(executor, fine, rows, row);
    return q8_tile_from(x, row * columns * 2, groups, groups * 2);
}

uint32_t tiled_rows(const struct executor *executor, uint32_t live, enum rounding rounding)
{
    if (rounding != ROUNDING_Q8)
        return live % OCTET < 4 ? live / OCTET * OCTET : live;
    if (executor->kernels->tile_tokens == WIDE_TOKENS) {
        const bool is_packed = live > 1 && live <= executor->kernels->packed_tokens;
        return live % WIDE_TOKENS >= executor->kernels->least_tokens || is_packed
                   ? live
                   : live / WIDE_TOKENS * WIDE_TOKENS;
    }
    if (executor->kernels->packed_tokens)
        return live % QUAD == 1 ? live - 1 : live;
    return live % QUAD == 3 && live > QUAD ? live : live / QUAD * QUAD;
}

/* Stores one row where the matmul reads it: in a tile of several tokens or, behind these, on its own. */
static void round_row(struct executor *executor, const struct group *group, uint32_t row, bool alone)
{
    const size_t k = executor->program->buffers[group->rounded_inputs[0]].columns;
    const float *x = row_of(executor, group->rounded_inputs[0], row, 0);
    const uint32_t tokens = executor->kernels->tile_tokens;
    if (group->rounding == ROUNDING_Q8) {
        const unsigned terms = row_terms(executor, group->fine, group->rows, row);
        const struct q8_tile q8 =
            alone ? row_tile(executor, group->fine, group->rows, row, k)
                  : tokens_tile(executor, group->fine, group->rows, row / tokens * tokens, k, 0);
        executor->kernels->round_q8(x, k, terms, q8, alone ? 1 : tokens, alone ? 0 : row % tokens);
    } else {
        const size_t width = alone ? 1 : OCTET;
        float *octet = executor->float_x + row / width * width * k + row % width;
        for (size_t i = 0; i < k; i++)
            octet[i * width] = group->rounding == ROUNDING_F16 ? f16_rounded(x[i]) : x[i];
    }
}

/* Rows between the last live one and the end of its tile, `end`, are zeros: computed, never stored. */
static void pad_tile(struct executor *executor, const struct group *group, uint32_t live, uint32_t end)
{
    const size_t k = executor->program->buffers[group->rounded_inputs[0]].columns;
    if (group->rounding == ROUNDING_Q8) {
        const size_t width = executor->kernels->tile_tokens;
        const struct q8_tile q8 =
            tokens_tile(executor, group->fine, group->rows, (uint32_t)(live / width * width), k, 0);
        static const float zeros[GROUP];
        for (size_t g = 0; g < k / GROUP; g++) {
            const struct q8_tile part =
                q8_tile_from(q8, g * GROUP * width * q8.terms, g * width, g * 2 * width);
            for (size_t t = live % width; t < live % width + (end - live); t++)
                executor->kernels->round_q8(zeros, GROUP, q8.terms, part, width, t);
        }
    } else {
        float *octet = executor->float_x + live / OCTET * OCTET * k;
        for (size_t i = 0; i < k; i++)
            memset(octet + i * OCTET + live % OCTET, 0, (OCTET - live % OCTET) * sizeof *octet);
    }
}

/* Adjacent rows share the cache lines of a tile, so a task takes whole tiles. */
static uint32_t rows_per_task(const struct group *group)
{
    return group->rounded_count ? OCTET : 1;
}

uint32_t rows_tasks(const struct executor *executor, const struct group *group)
{
    uint32_t block = rows_per_task(group);
    return (executor->live[group->rows] + block - 1) / block;
}

void rows_work(struct executor *executor, const struct group *group, uint32_t task, uint32_t thread)
{
    const uint32_t live = executor->live[group->rows], block = rows_per_task(group);
    const uint32_t tiled_end = tiled_rows(executor, live, group->rounding);
    uint32_t end = (task + 1) * block < live ? (task + 1) * block : live;
    for (uint32_t row = task * block; row < end; row++) {
        for (uint32_t i = 0; i < group->op_count; i++) {
            const struct op *op = &executor->program->ops[group->first_op + i];
            rows_run_op(executor, op, row, thread);
            if (op->kind == OP_TOKEN_SHIFT)
                recurrent_store_row(executor, op, row, thread);
        }
        if (group->rounded_count)
            round_row(executor, group, row, row >= tiled_end);
    }
    const bool integers = group->rounding == ROUNDING_Q8;
    const bool is_packed = integers && executor->kernels->packed_tokens && live <= QUAD;
    const uint32_t width = is_packed ? 2 : integers ? executor->kernels->tile_tokens : OCTET;
    if (group->rounded_count && end == live && tiled_end == live && live % width)
        pad_tile(executor, group, live, live + width - live % width);
}
