/*
 * Matmul phases. One row: every task streams some tiles of the weights past it. More rows: a tile is unpacked
 * once and multiplied with all rows, four or eight at a time. Both add in the same order, so a row does not
 * notice.
 */
#include "backend/cpu/executor.h"

#include "backend/cpu/packing.h"

#include <math.h>
#include <string.h>

/* Unpacked at a time, so that the tile stays in the first-level cache. */
enum { K_PART = 2048 };

/* Bytes of rounded activations that are walked through for one tile: they should stay in the second-level
 * cache. */
static const size_t activation_bytes = 512 * 1024;

static uint32_t tiles_of(const struct executor *executor, const struct op *op)
{
    return (uint32_t)((executor->program->buffers[op->inputs[0]].rows + TILE_ROWS - 1) / TILE_ROWS);
}

static const struct op *matmul_of(const struct executor *executor, const struct group *group, uint32_t index)
{
    return &executor->program->ops[group->first_op + group->inner + index];
}

/* Tiles of all matmuls one after the other; a glu's two matrices have theirs in step and count once. */
static uint32_t count_tiles(const struct executor *executor, const struct group *group)
{
    uint32_t tiles = 0;
    for (uint32_t i = 0; i < (group->glu ? 1 : group->matmuls); i++)
        tiles += tiles_of(executor, matmul_of(executor, group, i));
    return tiles;
}

/* A few tasks per thread even out what the system takes away; more would only be more to take. */
static uint32_t tiles_per_task(const struct executor *executor, uint32_t tiles)
{
    uint32_t wanted = team_threads(executor->team) == 1 ? 1 : team_threads(executor->team) * 4;
    return (tiles + wanted - 1) / wanted;
}

uint32_t matmul_tasks(const struct executor *executor, const struct group *group)
{
    uint32_t tiles = count_tiles(executor, group), block = tiles_per_task(executor, tiles);
    return executor->live[group->rows] ? (tiles + block - 1) / block : 0;
}

/* Runs the ops that every thread does for itself, and rounds their result. */
void matmul_enter(struct executor *executor, const struct group *group, uint32_t thread)
{
    if (executor->plan->capacity[ROWS_TOKENS] != 1)
        return; /* the row phase before has done it */
    for (uint32_t i = 0; i < group->inner; i++)
        rows_run_op(executor, &executor->program->ops[group->first_op + i], 0, thread);
    if (group->rounding == ROUNDING_Q8) {
        buffer_id source = matmul_of(executor, group, 0)->inputs[1];
        executor->kernels->round_q8(row_of(executor, source, 0, thread),
            executor->program->buffers[source].columns, executor->scratch[thread].x, 1, 0);
    }
}

/* Bias, and adding to what is there; `rows` of the tile's 8 exist. */
static void store(const struct executor *executor, const struct op *op, uint32_t tile, const float *sums,
    uint32_t rows, float *out)
{
    const float *bias = op->inputs[2] == NO_BUFFER
                            ? NULL
                            : executor->weights[op->inputs[2]].vector + (size_t)tile * TILE_ROWS;
    for (uint32_t i = 0; i < rows; i++) {
        float value = bias ? sums[i] + bias[i] : sums[i];
        out[i] = op->matmul.accumulate ? out[i] + value : value;
    }
}

static uint32_t rows_in_tile(const struct executor *executor, const struct op *op, uint32_t tile)
{
    uint64_t left = executor->program->buffers[op->inputs[0]].rows - (uint64_t)tile * TILE_ROWS;
    return left < TILE_ROWS ? (uint32_t)left : TILE_ROWS;
}

static void multiply_one_row(struct executor *executor, const struct group *group, const struct op *op,
    uint32_t tile, uint32_t count, uint32_t thread, float *sums)
{
    const struct program_buffer *weight = &executor->program->buffers[op->inputs[0]];
    const struct weight *packed = &executor->weights[op->inputs[0]];
    const uint8_t *tiles = packed->tiles + tile * packed->tile_bytes;
    const bool single = executor->plan->capacity[ROWS_TOKENS] == 1;
    if (group->rounding == ROUNDING_Q8)
        executor->kernels->matvec_q8[weight->type](
            tiles, count, weight->columns, single ? executor->scratch[thread].x : executor->x, sums);
    else
        executor->kernels->matvec_float[weight->type](tiles, count, weight->columns,
            single ? row_of(executor, op->inputs[1], 0, thread) : executor->float_x, sums);
}

/* What the tiles of a task leave in scratch->sums becomes rows of the output. */
static void finish_tile(struct executor *executor, const struct group *group, const struct op *op,
    uint32_t tile, const float *sums, const float *up_sums, uint32_t row, uint32_t thread)
{
    const uint32_t rows = rows_in_tile(executor, op, tile);
    const size_t column = (size_t)tile * TILE_ROWS;
    if (!group->glu) {
        store(executor, op, tile, sums, rows, row_of(executor, op->out, row, thread) + column);
        return;
    }
    const struct op *glu = matmul_of(executor, group, 2);
    float gate[TILE_ROWS], up[TILE_ROWS];
    store(executor, op, tile, sums, rows, gate);
    store(executor, matmul_of(executor, group, 1), tile, up_sums, rows, up);
    (glu->glu.activation == ACTIVATION_GELU ? executor->kernels->glu_gelu : executor->kernels->glu_silu)(
        gate, up, rows, row_of(executor, glu->out, row, thread) + column);
}

static void work_on_one_row(struct executor *executor, const struct group *group, const struct op *op,
    uint32_t tile, uint32_t count, uint32_t thread)
{
    enum { AT_ONCE = 32 };
    float sums[AT_ONCE * TILE_ROWS], up_sums[AT_ONCE * TILE_ROWS];
    while (count) {
        uint32_t now = count < AT_ONCE ? count : AT_ONCE;
        multiply_one_row(executor, group, op, tile, now, thread, sums);
        if (group->glu)
            multiply_one_row(executor, group, matmul_of(executor, group, 1), tile, now, thread, up_sums);
        for (uint32_t i = 0; i < now; i++)
            finish_tile(executor, group, op, tile + i, sums + (size_t)i * TILE_ROWS,
                up_sums + (size_t)i * TILE_ROWS, 0, thread);
        tile += now;
        count -= now;
    }
}

/* One tile times rows first .. end-1 into sums [row - first][8]; K in parts. */
static void multiply_rows_q8(struct executor *executor, const struct op *op, uint32_t tile, uint32_t first,
    uint32_t end, struct weight_panel unpacked, float *sums)
{
    const struct program_buffer *weight = &executor->program->buffers[op->inputs[0]];
    const struct weight *packed = &executor->weights[op->inputs[0]];
    const size_t k = weight->columns;
    bool offsets;
    const unsigned group = quant_group(weight->type, &offsets);
    for (size_t part = 0; part < k; part += K_PART) {
        size_t now = k - part < K_PART ? k - part : K_PART;
        executor->kernels->unpack_q8[weight->type](
            packed->tiles + tile * packed->tile_bytes + packing_tile_bytes(weight->type, part), now,
            unpacked);
        for (uint32_t row = first; row < end; row += QUAD) {
            struct q8_panel x = {executor->x.values + row * k + part * QUAD,
                executor->x.scales + row * (k / 32) + part / 32 * QUAD,
                executor->x.sums + row * (k / 32) + part / 32 * QUAD,
                executor->x.half_sums + row * (k / 16) + part / 16 * QUAD};
            executor->kernels->matmul_q8(
                unpacked, now, group, offsets, x, part == 0, sums + (size_t)(row - first) * TILE_ROWS);
        }
    }
}

static void multiply_rows_float(struct executor *executor, const struct op *op, uint32_t tile, uint32_t first,
    uint32_t end, float *unpacked, float *sums)
{
    const struct program_buffer *weight = &executor->program->buffers[op->inputs[0]];
    const struct weight *packed = &executor->weights[op->inputs[0]];
    const size_t k = weight->columns;
    for (size_t part = 0; part < k; part += K_PART) {
        size_t now = k - part < K_PART ? k - part : K_PART;
        executor->kernels->unpack_float[weight->type](
            packed->tiles + tile * packed->tile_bytes + packing_tile_bytes(weight->type, part), now,
            unpacked);
        for (uint32_t row = first; row < end; row += OCTET)
            executor->kernels->matmul_float(unpacked, now, executor->float_x + row * k + part * OCTET,
                part == 0, sums + (size_t)(row - first) * TILE_ROWS);
    }
}

static void work_on_rows(struct executor *executor, const struct group *group, const struct op *op,
    uint32_t tile, uint32_t count, uint32_t thread)
{
    struct scratch *scratch = &executor->scratch[thread];
    const uint32_t live = executor->live[group->rows];
    const bool is_q8 = group->rounding == ROUNDING_Q8;
    const size_t row_bytes = executor->program->buffers[op->inputs[1]].columns * (is_q8 ? 1 : sizeof(float));
    uint32_t block = (uint32_t)(activation_bytes / row_bytes) / OCTET * OCTET;
    block = block < 2 * OCTET ? 2 * OCTET : block;
    for (uint32_t first = 0; first < live; first += block) {
        const uint32_t end = first + block < live ? first + block : live;
        for (uint32_t i = tile; i < tile + count; i++) {
            for (uint32_t j = 0; j < (group->glu ? 2 : 1); j++) {
                const struct op *matrix = group->glu ? matmul_of(executor, group, j) : op;
                if (is_q8)
                    multiply_rows_q8(executor, matrix, i, first, end, scratch->tiles[j], scratch->sums[j]);
                else
                    multiply_rows_float(
                        executor, matrix, i, first, end, scratch->float_tiles[j], scratch->sums[j]);
            }
            for (uint32_t row = first; row < end; row++)
                finish_tile(executor, group, op, i, scratch->sums[0] + (size_t)(row - first) * TILE_ROWS,
                    scratch->sums[1] + (size_t)(row - first) * TILE_ROWS, row, thread);
        }
    }
}

void matmul_work(struct executor *executor, const struct group *group, uint32_t task, uint32_t thread)
{
    const uint32_t tiles = count_tiles(executor, group), block = tiles_per_task(executor, tiles);
    const uint32_t begin = task * block, end = begin + block < tiles ? begin + block : tiles;
    uint32_t first = 0; /* tile of this matmul among all */
    for (uint32_t i = 0; i < (group->glu ? 1 : group->matmuls); i++) {
        const struct op *op = matmul_of(executor, group, i);
        const uint32_t last = first + tiles_of(executor, op);
        const uint32_t from = begin > first ? begin : first, to = end < last ? end : last;
        if (from < to && executor->live[group->rows] == 1)
            work_on_one_row(executor, group, op, from - first, to - from, thread);
        else if (from < to)
            work_on_rows(executor, group, op, from - first, to - from, thread);
        first = last;
    }
}
