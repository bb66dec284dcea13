/* The dispatches of attention, the recurrence and sampling. */
#include "backend/common/fusion.h"
#include "backend/metal/metal_executor.h"

/* Limits of a head's query, key and value that attention computes itself: columns, and weights, which each
 * threadgroup multiplies. Above MOST_WEIGHTS dispatches of their own are as fast on other GPUs. */
enum { MOST_COLUMNS = 2048, MOST_WEIGHTS = 6144 * 32 };

/* As on Vulkan, a cache of int8 is appended to by a dispatch of its own. */
static bool fuses_ropes(const struct executor *executor, const struct op *ropes)
{
    const struct rope *query = &executor->program->ropes[ropes[0].rope.rope],
                      *key = &executor->program->ropes[ropes[1].rope.rope];
    return executor->options.kv_type != TYPE_Q8_0 && query->dimensions == key->dimensions &&
           query->halves == key->halves;
}

struct group_fusion metal_attend_fusion(const struct compiling *compiling, const struct group *group)
{
    const struct op *ropes = &compiling->executor->program->ops[group->first_op];
    struct group_fusion fusion = {0};
    if (compiling->plan->lowered.capacity[ROWS_TOKENS] == 1 && group->ops_before == 3 &&
        fuses_ropes(compiling->executor, ropes))
        fusion.ropes = ropes;
    return fusion;
}

bool metal_takes_projection(const struct executor *executor, const struct group *group)
{
    const struct program *program = executor->program;
    const struct projection parts = group_projection(program, group);
    const struct op *query = &parts.matmuls[0];
    const struct program_buffer *weight = &program->buffers[query->inputs[0]];
    for (uint32_t i = 1; i < 3; i++) {
        const struct op *other = &parts.matmuls[i];
        if (program->buffers[other->inputs[0]].type != weight->type ||
            other->matmul.rounding != query->matmul.rounding)
            return false;
    }
    return fuses_ropes(executor, parts.ropes) && weight->columns <= MOST_COLUMNS &&
           weight->columns * 3 * parts.attend->attend.head_dim <= MOST_WEIGHTS;
}

struct group_fusion metal_projection_fusion(const struct compiling *compiling, const struct group *group)
{
    const struct projection parts = group_projection(compiling->executor->program, group);
    return (struct group_fusion){.norm = parts.norm, .ropes = parts.ropes, .projections = parts.matmuls};
}

bool metal_splits(const struct compiling *compiling, const struct op *attend)
{
    return compiling->plan->lowered.capacity[ROWS_TOKENS] == 1 &&
           (!attend->attend.window || attend->attend.window >= METAL_SPLIT_POSITIONS);
}

static uint32_t round_up(uint32_t number, uint32_t unit)
{
    return (number + unit - 1) / unit * unit;
}

enum salvo_status metal_compile_append(struct compiling *compiling, const struct op *op)
{
    enum salvo_status status = SALVO_OK;
    const struct executor *executor = compiling->executor;
    struct metal_dispatch *dispatch;
    const struct append_arguments arguments = {
        .k = metal_arena_at(compiling, op->inputs[0]),
        .v = metal_arena_at(compiling, op->inputs[1]),
        .heads = op->kv_append.kv_heads,
        .head_dim = op->kv_append.head_dim,
        .head_bytes = metal_head_bytes(executor, op->kv_append.key_state),
    };
    TRY(metal_add_dispatch(compiling, "append",
        (const uint32_t[METAL_CONSTANTS]){[METAL_CONSTANT_CACHE] = executor->options.kv_type},
        METAL_ROW_THREADS, &dispatch));
    metal_set_arguments(dispatch, &arguments, sizeof arguments);
    metal_bind(dispatch, compiling->arena);
    metal_bind(dispatch, &executor->kv_pages[op->kv_append.key_state]);
    metal_bind(dispatch, &executor->kv_pages[op->kv_append.value_state]);
    metal_bind_step(compiling, dispatch);
    const uint32_t units = (arguments.head_dim + 31) / 32 * arguments.heads * 2;
    dispatch->shape.groups = (units + METAL_ROW_THREADS - 1) / METAL_ROW_THREADS;
    dispatch->rows = op->rows;
cleanup:
    return status;
}

/*
 * A single token whose attention sees many positions: several threadgroups take parts of each head, and a
 * second dispatch joins them. With fewer positions, one threadgroup takes a head, and the second is left out.
 */
static enum salvo_status split_attend(struct compiling *compiling, const struct attend_arguments *arguments,
    bool rotates, struct metal_dispatch *dispatch)
{
    enum salvo_status status = SALVO_OK;
    const struct executor *executor = compiling->executor;
    const struct memory_use use = {&executor->attend_parts, 0, UINT64_MAX, true};
    struct metal_dispatch *joining;
    TRY(metal_set_large(compiling, dispatch, "attend",
        (const uint32_t[METAL_CONSTANTS]){[METAL_CONSTANT_CACHE] = executor->options.kv_type,
            [METAL_CONSTANT_LANES] = 32,
            [METAL_CONSTANT_PARTS] = METAL_PARTS,
            [METAL_CONSTANT_DIM] = arguments->head_dim,
            [METAL_CONSTANT_ROTATES] = rotates},
        METAL_ATTEND_THREADS));
    dispatch->large_positions = METAL_SPLIT_POSITIONS;
    dispatch->large.groups = arguments->heads * METAL_PARTS;
    metal_add_use(dispatch, use);
    TRY(metal_add_dispatch(compiling, "join_parts", NULL, METAL_ROW_THREADS, &joining));
    metal_set_arguments(joining, arguments, sizeof *arguments);
    metal_bind(joining, compiling->arena);
    metal_bind(joining, &executor->attend_parts);
    metal_bind_step(compiling, joining);
    metal_add_use(joining, use);
    joining->large = joining->shape;
    joining->large.groups = arguments->heads;
    joining->large_positions = METAL_SPLIT_POSITIONS;
    joining->shape.groups = 0;
    joining->rows = ROWS_TOKENS;
cleanup:
    return status;
}

/* The arguments by which attention computes query, key and value itself. */
static void describe_projections(
    const struct compiling *compiling, const struct group_fusion *fusion, struct attend_arguments *arguments)
{
    const struct executor *executor = compiling->executor;
    arguments->x = metal_arena_at(compiling, fusion->norm->inputs[0]);
    arguments->columns = metal_columns(compiling, fusion->norm->inputs[0]);
    arguments->norm = metal_vector_at(compiling, fusion->norm->inputs[1]);
    arguments->epsilon = fusion->norm->rms_norm.epsilon;
    for (uint32_t i = 0; i < 3; i++) {
        const struct op *matmul = &fusion->projections[i];
        arguments->projections[i] =
            (struct projected_matrix){.weights = executor->weights[matmul->inputs[0]].offset,
                .row_bytes = weight_row_bytes(&executor->program->buffers[matmul->inputs[0]]),
                .bias = metal_vector_at(compiling, matmul->inputs[2])};
    }
}

/* Binds the matrices of query, key and value; without projections nothing reads them. */
static void bind_projections(
    const struct executor *executor, const struct group_fusion *fusion, struct metal_dispatch *dispatch)
{
    metal_bind(dispatch, &executor->vectors);
    for (uint32_t i = 0; i < 3; i++) {
        const buffer_id weight = fusion->projections ? fusion->projections[i].inputs[0] : 0;
        metal_bind(dispatch,
            fusion->projections ? &executor->windows[executor->weights[weight].window] : &executor->vectors);
    }
}

enum salvo_status metal_compile_attend(
    struct compiling *compiling, const struct op *op, const struct group_fusion *fusion)
{
    enum salvo_status status = SALVO_OK;
    const struct executor *executor = compiling->executor;
    struct metal_dispatch *dispatch;
    const struct op *ropes = fusion->ropes, *projections = fusion->projections;
    uint32_t constants[METAL_CONSTANTS] = {[METAL_CONSTANT_CACHE] = executor->options.kv_type,
        [METAL_CONSTANT_LANES] = 32,
        [METAL_CONSTANT_DIM] = op->attend.head_dim,
        [METAL_CONSTANT_ROTATES] = ropes != NULL};
    struct attend_arguments arguments = {
        .q = metal_arena_at(compiling, op->inputs[0]),
        .to = metal_arena_at(compiling, op->out),
        .heads = op->attend.heads,
        .kv_heads = op->attend.kv_heads,
        .head_dim = op->attend.head_dim,
        .window = op->attend.window,
        .head_bytes = metal_head_bytes(executor, op->attend.key_state),
        .scale = op->attend.scale,
        .cap = op->attend.cap,
    };
    if (ropes) {
        const struct rope *rope = &executor->program->ropes[ropes[0].rope.rope];
        arguments.k = metal_arena_at(compiling, ropes[2].inputs[0]);
        arguments.v = metal_arena_at(compiling, ropes[2].inputs[1]);
        arguments.dimensions = rope->dimensions;
        arguments.halves = rope->halves;
        arguments.query_table = executor->rope_offsets[ropes[0].rope.rope];
        arguments.key_table = executor->rope_offsets[ropes[1].rope.rope];
    }
    if (arguments.head_dim > METAL_ATTEND_DIM) {
        TRY(fail(SALVO_ERROR_UNSUPPORTED,
            "the Metal backend has attention of heads of up to %d elements, not %u", METAL_ATTEND_DIM,
            arguments.head_dim));
    }
    if (projections) {
        describe_projections(compiling, fusion, &arguments);
        constants[METAL_CONSTANT_KIND] = executor->program->buffers[projections->inputs[0]].type;
        constants[METAL_CONSTANT_LANES] = metal_lanes_for(arguments.columns);
        constants[METAL_CONSTANT_SUMS] = metal_sums_for(arguments.columns);
        constants[METAL_CONSTANT_ROUNDS] = projections->matmul.rounding == ROUNDING_F16;
        constants[METAL_CONSTANT_NORMS] = constants[METAL_CONSTANT_PROJECTS] = 1;
    }
    TRY(metal_add_dispatch(compiling, "attend", constants, METAL_ATTEND_THREADS, &dispatch));
    metal_set_arguments(dispatch, &arguments, sizeof arguments);
    metal_bind(dispatch, compiling->arena);
    metal_bind(dispatch, &executor->kv_pages[op->attend.key_state]);
    metal_bind(dispatch, &executor->kv_pages[op->attend.value_state]);
    metal_bind_step(compiling, dispatch);
    metal_bind(dispatch, &executor->attend_parts);
    metal_bind(dispatch, &executor->ropes);
    bind_projections(executor, fusion, dispatch);
    dispatch->shape.groups = arguments.heads;
    dispatch->rows = op->rows;
    /* For each simdgroup the largest score, the sum of weights and the weighted values; the projections. */
    const uint32_t floats =
        METAL_ATTEND_THREADS / 32 * (arguments.head_dim + 2) + (projections ? 3 * arguments.head_dim : 0);
    dispatch->shape.threadgroup_bytes = round_up(floats * (uint32_t)sizeof(float), 16);
    if (metal_splits(compiling, op))
        TRY(split_attend(compiling, &arguments, ropes != NULL, dispatch));
cleanup:
    return status;
}

enum salvo_status metal_compile_wkv7(struct compiling *compiling, const struct op *op)
{
    enum salvo_status status = SALVO_OK;
    const struct executor *executor = compiling->executor;
    const uint32_t dim = op->wkv7.head_dim;
    struct metal_dispatch *dispatch;
    const struct wkv7_arguments arguments = {
        .r = metal_arena_at(compiling, op->inputs[0]),
        .w = metal_arena_at(compiling, op->inputs[1]),
        .k = metal_arena_at(compiling, op->inputs[2]),
        .v = metal_arena_at(compiling, op->inputs[3]),
        .kk = metal_arena_at(compiling, op->inputs[4]),
        .a = metal_arena_at(compiling, op->inputs[5]),
        .to = metal_arena_at(compiling, op->out),
        .heads = op->wkv7.heads,
        .state = (uint32_t)executor->state.recurrent_offsets[op->wkv7.state],
        .recurrent_elements = (uint32_t)executor->state.recurrent_elements,
    };
    if (dim > METAL_WKV7_DIM) {
        TRY(fail(SALVO_ERROR_UNSUPPORTED,
            "the Metal backend has the recurrence of heads of up to %d elements, not %u", METAL_WKV7_DIM,
            dim));
    }
    TRY(metal_add_dispatch(compiling, "wkv7", (const uint32_t[METAL_CONSTANTS]){[METAL_CONSTANT_DIM] = dim},
        round_up(dim, 32), &dispatch));
    metal_set_arguments(dispatch, &arguments, sizeof arguments);
    metal_bind(dispatch, compiling->arena);
    metal_bind(dispatch, &executor->recurrent);
    metal_bind_step(compiling, dispatch);
    dispatch->shape.groups = arguments.heads;
    dispatch->rows = ROWS_RUNS;
    dispatch->shape.threadgroup_bytes = round_up(5 * dim * (uint32_t)sizeof(float), 16);
cleanup:
    return status;
}

enum salvo_status metal_compile_sample(struct compiling *compiling, const struct op *op)
{
    enum salvo_status status = SALVO_OK;
    const struct executor *executor = compiling->executor;
    struct metal_dispatch *dispatch;
    const struct sample_arguments arguments = {
        .logits = metal_arena_at(compiling, op->inputs[0]), .vocabulary = executor->program->vocabulary};
    TRY(metal_add_dispatch(compiling, "sample", NULL, METAL_SAMPLE_THREADS, &dispatch));
    metal_set_arguments(dispatch, &arguments, sizeof arguments);
    metal_bind(dispatch, compiling->arena);
    metal_bind(dispatch, &executor->changed);
    metal_bind(dispatch, &executor->masks);
    metal_bind(dispatch, &executor->biases);
    metal_bind(dispatch, &executor->tokens);
    metal_bind(dispatch, &executor->next);
    metal_bind_step(compiling, dispatch);
    metal_bind(dispatch, &executor->host_ids);
    dispatch->rows = op->rows;
    dispatch->shape.threadgroup_bytes = METAL_SAMPLE_THREADS * (uint32_t)sizeof(uint64_t);
cleanup:
    return status;
}
