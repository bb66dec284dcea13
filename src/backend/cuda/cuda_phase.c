#include "backend/cuda/cuda_phase.h"

#include "base/memory.h"

#include <string.h>

/* Places begin at multiples of this many floats, so that every copy can be wide. */
enum { PLACE_FLOATS = 32 };

/* Sizes are counted in 64 bits: those of rows that do not fit must not wrap to ones that do. */
static uint64_t round_up(uint64_t value, uint32_t step)
{
    return (value + step - 1) / step * step;
}

void phase_begin(struct phase_builder *builder, enum row_kind rows)
{
    builder->table = (struct cuda_row_table){.rows = rows};
    builder->wkv7 = (struct cuda_wkv7){0};
    builder->matmul_count = builder->groups_at_once = 0;
    builder->glu = ACTIVATION_NONE;
    builder->packed_input_bytes = builder->partials = builder->head_dim = builder->places = 0;
    builder->packed_readers_end = 0;
    builder->written_count = 0;
    builder->tagged_bytes = builder->plan->tables.tagged_words;
    builder->overflows = builder->overwrites = builder->inputs_known = false;
    for (uint32_t i = 0; i < builder->program->buffer_count; i++)
        builder->place_of[i] = CUDA_NONE;
}

static uint32_t columns_of(const struct phase_builder *builder, buffer_id buffer)
{
    return (uint32_t)builder->program->buffers[buffer].columns;
}

uint32_t phase_output(struct phase_builder *builder, buffer_id buffer)
{
    if (builder->place_of[buffer] == CUDA_NONE) {
        uint32_t floats = builder->head_dim ? builder->head_dim : columns_of(builder, buffer);
        builder->place_of[buffer] = (uint32_t)builder->places;
        builder->places += round_up(floats, PLACE_FLOATS);
    }
    return builder->place_of[buffer];
}

static uint32_t load(
    struct phase_builder *builder, buffer_id buffer, uint32_t place, enum cuda_load_kind kind)
{
    if (builder->table.load_count == MOST_LOADS) {
        builder->overflows = true;
        return place;
    }
    builder->loads[builder->table.load_count++] = (struct cuda_load){
        .from = phase_address(builder, buffer),
        .kind = kind,
        .place = place,
        .columns = columns_of(builder, buffer),
    };
    return place;
}

uint32_t phase_input(struct phase_builder *builder, buffer_id buffer)
{
    if (builder->place_of[buffer] != CUDA_NONE)
        return builder->place_of[buffer];
    return load(builder, buffer, phase_output(builder, buffer), CUDA_LOAD_ROW);
}

/* Parameters that only some kinds of ops have. */
static void describe_op(const struct phase_builder *builder, const struct op *op, struct cuda_row_op *out)
{
    const struct executor *executor = builder->executor;
    switch (op->kind) {
    case OP_EMBED:
        out->value = op->embed.scale;
        out->matrix = executor->weights[op->inputs[0]].matrix_index;
        break;
    case OP_RMS_NORM:
    case OP_LAYER_NORM:
    case OP_L2_NORM:
        out->group = op->rms_norm.group;
        out->value = op->rms_norm.epsilon;
        out->weight = phase_vector(builder, op->inputs[1]);
        out->bias = op->kind == OP_LAYER_NORM ? phase_vector(builder, op->inputs[2]) : 0;
        break;
    case OP_ROPE: {
        const struct rope *rope = &builder->program->ropes[op->rope.rope];
        out->heads = op->rope.heads;
        out->head_dim = op->rope.head_dim;
        out->rope = op->rope.rope;
        out->halves = rope->halves;
        out->dimensions = rope->dimensions;
        break;
    }
    case OP_KV_APPEND:
        out->heads = op->kv_append.kv_heads;
        out->head_dim = op->kv_append.head_dim;
        out->activation = executor->options.kv_type;
        out->state = executor->kv_addresses[op->kv_append.key_state];
        out->values = executor->kv_addresses[op->kv_append.value_state];
        break;
    case OP_GLU:
        out->activation = op->glu.activation;
        break;
    case OP_SOFTCAP:
        out->value = op->softcap.cap;
        break;
    case OP_TOKEN_SHIFT:
        out->rows = phase_address(builder, op->inputs[0]);
        out->state = executor->state.recurrent_offsets[op->token_shift.state];
        out->keeps = 1;
        break;
    case OP_LERP:
        if (builder->program->buffers[op->inputs[2]].kind == BUFFER_WEIGHT)
            out->weight = phase_vector(builder, op->inputs[2]);
        break;
    case OP_RWKV_KEY:
        out->weight = phase_vector(builder, op->inputs[2]);
        break;
    case OP_RWKV_BONUS:
        out->head_dim = op->rwkv_bonus.head_dim;
        out->weight = phase_vector(builder, op->inputs[4]);
        break;
    default:
        break;
    }
}

/* Ops that do not read a column of their inputs after they have written it. */
static bool can_overwrite(enum op_kind kind)
{
    return kind == OP_RMS_NORM || kind == OP_LAYER_NORM || kind == OP_L2_NORM || kind == OP_GLU ||
           kind == OP_MUL || kind == OP_LERP || kind == OP_RWKV_KEY || kind == OP_SOFTCAP;
}

void phase_add_op(struct phase_builder *builder, const struct op *op, bool after)
{
    uint32_t *count = after ? &builder->table.after_count : &builder->table.op_count;
    const buffer_id wide = op->out == NO_BUFFER ? op->inputs[0] : op->out;
    struct cuda_row_op row_op = {.kind = op->kind, .columns = columns_of(builder, wide), .out = CUDA_NONE};
    if (op->kind == OP_SELECT_ROWS) { /* a load does it */
        load(builder, op->inputs[0], phase_output(builder, op->out), CUDA_LOAD_SELECTED);
        return;
    }
    if (*count == MOST_OPS) {
        builder->overflows = true;
        return;
    }
    for (int i = 0; i < 5; i++) {
        const buffer_id input = op->inputs[i];
        bool is_vector = input != NO_BUFFER && builder->program->buffers[input].kind == BUFFER_SCRATCH;
        row_op.in[i] = is_vector ? phase_input(builder, input) : CUDA_NONE;
    }
    if (op->kind == OP_ADD)
        (void)phase_input(builder, op->out);
    if (builder->overwrites && can_overwrite(op->kind) && builder->place_of[op->out] == CUDA_NONE)
        builder->place_of[op->out] = row_op.in[0];
    if (op->out != NO_BUFFER)
        row_op.out = phase_output(builder, op->out);
    describe_op(builder, op, &row_op);
    (after ? builder->after : builder->ops)[(*count)++] = row_op;
}

/* Whether an op from `from` on reads a result of the phase in memory. */
static bool is_read_in_memory(const struct phase_builder *builder, buffer_id buffer, uint32_t from)
{
    const bool is_packed = buffer_is_among(buffer, builder->rounded, builder->table.round_count);
    return value_is_read(builder->program, buffer,
        is_packed && builder->packed_readers_end > from ? builder->packed_readers_end : from);
}

void phase_store_outputs(struct phase_builder *builder, uint32_t first, uint32_t end)
{
    const struct program *program = builder->program;
    for (uint32_t i = first; i < end; i++) {
        const buffer_id out = program->ops[i].out;
        bool stored = out == NO_BUFFER || program->buffers[out].kind != BUFFER_SCRATCH;
        for (uint32_t j = first; j < i; j++)
            stored = stored || program->ops[j].out == out;
        if (stored || builder->place_of[out] == CUDA_NONE || !is_read_in_memory(builder, out, end))
            continue;
        if (builder->table.store_count == MOST_STORES) {
            builder->overflows = true;
            return;
        }
        builder->stores[builder->table.store_count++] = (struct cuda_store){
            .to = phase_writes(builder, out),
            .place = builder->place_of[out],
            .columns = columns_of(builder, out),
        };
    }
}

/* Bytes of one part of a token in shared memory (matvec_input.cuh). */
static uint32_t part_size(enum rounding rounding)
{
    return rounding == ROUNDING_Q8 ? CUDA_PART_BYTES : CUDA_PART_FLOAT_BYTES;
}

static uint64_t packed_input_size(uint32_t columns, enum rounding rounding)
{
    return round_up(columns, CUDA_TILE_COLUMNS) / CUDA_TILE_COLUMNS * part_size(rounding);
}

uint32_t phase_round(struct phase_builder *builder, buffer_id buffer, enum rounding rounding, bool fine)
{
    const uint32_t place = phase_input(builder, buffer), columns = columns_of(builder, buffer);
    for (uint32_t i = 0; i < builder->table.round_count; i++) {
        if (builder->rounds[i].place == place && builder->rounds[i].rounding == rounding &&
            builder->rounds[i].fine == fine)
            return i;
    }
    if (builder->table.round_count == MOST_ROUNDS) {
        builder->overflows = true;
        return 0;
    }
    builder->rounded[builder->table.round_count] = buffer;
    builder->rounds[builder->table.round_count] = (struct cuda_round){.place = place,
        .columns = columns,
        .rounding = (uint16_t)rounding,
        .fine = fine,
        .packed_input = (uint32_t)builder->packed_input_bytes};
    builder->packed_input_bytes += round_up(packed_input_size(columns, rounding), 128);
    return builder->table.round_count++;
}

static uint32_t take(uint32_t *at, uint32_t count, size_t size)
{
    const uint32_t begin = *at;
    *at = (uint32_t)round_up(begin + count * size, 16);
    return begin;
}

_Static_assert(sizeof(struct cuda_row_table) + MOST_LOADS * sizeof(struct cuda_load) +
                       2 * MOST_OPS * sizeof(struct cuda_row_op) + MOST_STORES * sizeof(struct cuda_store) +
                       MOST_ROUNDS * sizeof(struct cuda_round) + sizeof(struct cuda_wkv7) + 7 * 16 <=
                   CUDA_ROW_TABLE_LIMIT,
    "a row table with full parts fits");

/* Where the parts of a row table lie; its size. */
static uint32_t lay_out(struct cuda_row_table *table, bool has_wkv7)
{
    uint32_t at = (uint32_t)round_up(sizeof *table, 16);
    table->loads_at = take(&at, table->load_count, sizeof(struct cuda_load));
    table->ops_at = take(&at, table->op_count, sizeof(struct cuda_row_op));
    table->after_at = take(&at, table->after_count, sizeof(struct cuda_row_op));
    table->stores_at = take(&at, table->store_count, sizeof(struct cuda_store));
    table->rounds_at = take(&at, table->round_count, sizeof(struct cuda_round));
    table->wkv7_at = take(&at, has_wkv7, sizeof(struct cuda_wkv7));
    table->size = at;
    return at;
}

static void raise_to(uint32_t *most, uint32_t value)
{
    *most = value > *most ? value : *most;
}

static bool is_simple(const struct phase_builder *builder)
{
    struct cuda_vector vectors[MOST_ROUNDS];
    return builder->plan->plan.capacity[ROWS_TOKENS] == 1 && builder->matmul_count &&
           cuda_describe_inputs(builder, vectors);
}

/* Vectors need no place where each warp takes its own input. */
static uint64_t place_bytes(const struct phase_builder *builder)
{
    return is_simple(builder) ? 0 : round_up(builder->places * sizeof(float), 128);
}

static uint64_t packed_input_bytes(const struct phase_builder *builder)
{
    uint64_t most = 0;
    if (!is_simple(builder))
        return builder->packed_input_bytes;
    for (uint32_t i = 0; i < builder->matmul_count; i++) {
        const struct placed_matmul *matmul = &builder->matmuls[i];
        const uint32_t all = matmul->matmul.matrix.part_groups, at_once = builder->groups_at_once;
        const uint64_t size = (uint64_t)CUDA_WARPS * (at_once && at_once < all ? at_once : all) *
                              part_size((enum rounding)builder->rounds[matmul->round].rounding);
        most = size > most ? size : most;
    }
    return round_up(most, 128);
}

bool phase_fits(const struct phase_builder *builder)
{
    const struct executor *executor = builder->executor;
    const uint64_t partials = builder->partials * sizeof(float), least = cuda_partial_floor(executor),
                   all = cuda_overlay_floor(executor);
    uint64_t shared =
        place_bytes(builder) + packed_input_bytes(builder) + (partials > least ? partials : least);
    if (builder->overflows)
        return false;
    /* Rows of many tokens have a block's shared memory for themselves. */
    if (executor->fit != CUDA_FIT_ROOMY && builder->plan->plan.capacity[ROWS_TOKENS] > 1)
        return place_bytes(builder) + CUDA_ROW_TABLE_LIMIT <= (uint64_t)executor->device->shared_bytes;
    shared = shared < all ? all : shared;
    return shared <= cuda_shared_limit(executor);
}

void phase_place_inputs(struct phase_builder *builder)
{
    const bool simple = is_simple(builder);
    /* Packed inputs follow the vectors of their phase: a phase with many vectors may have few packed inputs.
     */
    for (uint32_t i = 0; i < builder->table.round_count; i++)
        builder->rounds[i].packed_input =
            simple ? 0 : builder->rounds[i].packed_input + (uint32_t)place_bytes(builder);
    builder->simple = cuda_describe_inputs(builder, builder->vectors);
}

enum salvo_status phase_add_table(struct phase_builder *builder, uint32_t *out_index)
{
    enum salvo_status status = SALVO_OK;
    struct cuda_tables *tables = &builder->plan->tables;
    struct cuda_row_table *table = &builder->table;
    TRY(memory_grow(
        &tables->row_tables, tables->row_table_count, &tables->row_table_capacity, CUDA_ROW_TABLE_LIMIT));
    *out_index = tables->row_table_count++;
    uint8_t *to = tables->row_tables + (size_t)*out_index * CUDA_ROW_TABLE_LIMIT;
    memset(to, 0, CUDA_ROW_TABLE_LIMIT);
    raise_to(&tables->row_table_bytes, lay_out(table, builder->wkv7.heads != 0));
    memcpy(to, table, sizeof *table);
    memcpy(to + table->loads_at, builder->loads, table->load_count * sizeof *builder->loads);
    memcpy(to + table->ops_at, builder->ops, table->op_count * sizeof *builder->ops);
    memcpy(to + table->after_at, builder->after, table->after_count * sizeof *builder->after);
    memcpy(to + table->stores_at, builder->stores, table->store_count * sizeof *builder->stores);
    memcpy(to + table->rounds_at, builder->rounds, table->round_count * sizeof *builder->rounds);
    if (builder->wkv7.heads)
        memcpy(to + table->wkv7_at, &builder->wkv7, sizeof builder->wkv7);
cleanup:
    return status;
}

enum salvo_status phase_end(struct phase_builder *builder)
{
    enum salvo_status status = SALVO_OK;
    struct cuda_tables *tables = &builder->plan->tables;
    TRY(GROW(&tables->stream_starts, tables->phase_count + 1, &tables->stream_start_capacity));
    tables->stream_starts[0] = 0;
    tables->stream_starts[++tables->phase_count] = tables->stream_count;
    for (uint32_t i = 0; i < builder->written_count; i++)
        builder->tagged_address[builder->written[i].buffer] = builder->written[i].tagged_words;
    tables->tagged_words = builder->tagged_bytes;
    raise_to(&tables->most_vector_bytes, (uint32_t)(place_bytes(builder) + packed_input_bytes(builder)));
    raise_to(&tables->most_partials, (uint32_t)builder->partials);
cleanup:
    return status;
}

static void add_rows(struct phase_builder *builder, uint32_t first, uint32_t end)
{
    phase_begin(builder, builder->program->ops[first].rows);
    builder->overwrites = builder->executor->fit != CUDA_FIT_ROOMY && end - first == 1;
    for (uint32_t i = first; i < end; i++)
        phase_add_op(builder, &builder->program->ops[i], false);
    phase_store_outputs(builder, first, end);
}

enum salvo_status phase_begin_rows(
    struct phase_builder *builder, uint32_t first, uint32_t end, uint32_t *out_end)
{
    add_rows(builder, first, end);
    while (!phase_fits(builder) && end > first + 1)
        add_rows(builder, first, --end);
    *out_end = end;
    if (phase_fits(builder))
        return SALVO_OK;
    char text[160];
    program_describe_op(builder->program, first, text, sizeof text);
    return fail(SALVO_ERROR_UNSUPPORTED, "the shared memory of %s, %d bytes a block, is too small for: %s",
        builder->executor->context.name, builder->executor->device->shared_bytes, text);
}
