/* The dispatches of row ops. */
#include "backend/metal/metal_executor.h"

static uint32_t groups_of(uint32_t elements)
{
    return (elements + METAL_ROW_THREADS - 1) / METAL_ROW_THREADS;
}

/* A float for each simdgroup; threadgroup memory is a multiple of 16 bytes. */
enum { SUM_BYTES = METAL_ROW_THREADS / 32 * 4 };

/* Binds what most row ops read: the arena, the vectors and the step. */
static void bind_rows(const struct compiling *compiling, struct metal_dispatch *dispatch)
{
    metal_bind(dispatch, compiling->arena);
    metal_bind(dispatch, &compiling->executor->vectors);
    metal_bind_step(compiling, dispatch);
}

static struct row_arguments arguments_of(const struct compiling *compiling, const struct op *op)
{
    return (struct row_arguments){
        .x = metal_arena_at(compiling, op->inputs[0]),
        .to = metal_arena_at(compiling, op->out),
        .weight = METAL_NO_OPERAND,
        .bias = METAL_NO_OPERAND,
        .columns = metal_columns(compiling, op->out),
        .row_kind = op->rows,
    };
}

static enum salvo_status compile_norm(
    struct compiling *compiling, const struct op *op, uint32_t group, float epsilon)
{
    enum salvo_status status = SALVO_OK;
    struct metal_dispatch *dispatch;
    struct row_arguments arguments = arguments_of(compiling, op);
    arguments.weight = metal_vector_at(compiling, op->inputs[1]);
    if (op->kind == OP_LAYER_NORM)
        arguments.bias = metal_vector_at(compiling, op->inputs[2]);
    arguments.group = group;
    arguments.number = epsilon;
    TRY(metal_add_dispatch(compiling, "normalise", (const uint32_t[METAL_CONSTANTS]){op->kind, 32, 1, 0},
        METAL_ROW_THREADS, &dispatch));
    metal_set_arguments(dispatch, &arguments, sizeof arguments);
    bind_rows(compiling, dispatch);
    dispatch->shape.threadgroup_bytes = SUM_BYTES;
    dispatch->shape.groups = arguments.columns / group;
    dispatch->rows = op->rows;
cleanup:
    return status;
}

static enum salvo_status compile_bonus(struct compiling *compiling, const struct op *op)
{
    enum salvo_status status = SALVO_OK;
    struct metal_dispatch *dispatch;
    struct row_arguments arguments = arguments_of(compiling, op);
    arguments.y = metal_arena_at(compiling, op->inputs[1]);
    arguments.z = metal_arena_at(compiling, op->inputs[2]);
    arguments.u = metal_arena_at(compiling, op->inputs[3]);
    arguments.weight = metal_vector_at(compiling, op->inputs[4]);
    arguments.group = op->rwkv_bonus.head_dim;
    TRY(metal_add_dispatch(compiling, "bonus", NULL, METAL_ROW_THREADS, &dispatch));
    metal_set_arguments(dispatch, &arguments, sizeof arguments);
    bind_rows(compiling, dispatch);
    dispatch->shape.threadgroup_bytes = SUM_BYTES;
    dispatch->shape.groups = arguments.columns / arguments.group;
    dispatch->rows = op->rows;
cleanup:
    return status;
}

/* Elementwise ops. */
static enum salvo_status compile_each(struct compiling *compiling, const struct op *op)
{
    enum salvo_status status = SALVO_OK;
    const struct program *program = compiling->executor->program;
    struct metal_dispatch *dispatch;
    struct row_arguments arguments = arguments_of(compiling, op);
    if (op->kind == OP_GLU || op->kind == OP_MUL || op->kind == OP_LERP || op->kind == OP_RWKV_KEY)
        arguments.y = metal_arena_at(compiling, op->inputs[1]);
    if (op->kind == OP_LERP || op->kind == OP_RWKV_KEY) {
        arguments.weight_is_scratch = program->buffers[op->inputs[2]].kind == BUFFER_SCRATCH;
        arguments.weight = arguments.weight_is_scratch ? metal_arena_at(compiling, op->inputs[2])
                                                       : metal_vector_at(compiling, op->inputs[2]);
    }
    if (op->kind == OP_GLU)
        arguments.activation = op->glu.activation;
    if (op->kind == OP_SOFTCAP)
        arguments.number = op->softcap.cap;
    TRY(metal_add_dispatch(compiling, "each_column", (const uint32_t[METAL_CONSTANTS]){op->kind, 32, 1, 0},
        METAL_ROW_THREADS, &dispatch));
    metal_set_arguments(dispatch, &arguments, sizeof arguments);
    bind_rows(compiling, dispatch);
    dispatch->shape.groups = groups_of(arguments.columns);
    dispatch->rows = op->rows;
cleanup:
    return status;
}

static enum salvo_status compile_embed(struct compiling *compiling, const struct op *op)
{
    enum salvo_status status = SALVO_OK;
    const struct executor *executor = compiling->executor;
    const struct program_buffer *table = &executor->program->buffers[op->inputs[0]];
    const struct metal_weight *weight = &executor->weights[op->inputs[0]];
    struct metal_dispatch *dispatch;
    const struct embed_arguments arguments = {
        .table = weight->offset,
        .row_bytes = (uint32_t)weight_row_bytes(table),
        .rows = (uint32_t)table->rows,
        .columns = (uint32_t)table->columns,
        .to = metal_arena_at(compiling, op->out),
        .scale = op->embed.scale,
    };
    TRY(metal_add_dispatch(compiling, "embed", (const uint32_t[METAL_CONSTANTS]){table->type, 32, 1, 0},
        METAL_ROW_THREADS, &dispatch));
    metal_set_arguments(dispatch, &arguments, sizeof arguments);
    metal_bind(dispatch, &executor->windows[weight->window]);
    metal_bind(dispatch, compiling->arena);
    metal_bind(dispatch, &executor->tokens);
    metal_bind_step(compiling, dispatch);
    dispatch->shape.groups = groups_of((arguments.columns + 15) / 16);
    dispatch->rows = op->rows;
cleanup:
    return status;
}

static enum salvo_status compile_rope(struct compiling *compiling, const struct op *op)
{
    enum salvo_status status = SALVO_OK;
    const struct executor *executor = compiling->executor;
    const struct rope *rope = &executor->program->ropes[op->rope.rope];
    struct metal_dispatch *dispatch;
    const struct rope_arguments arguments = {
        .to = metal_arena_at(compiling, op->out),
        .columns = metal_columns(compiling, op->out),
        .heads = op->rope.heads,
        .head_dim = op->rope.head_dim,
        .dimensions = rope->dimensions,
        .halves = rope->halves,
        .table = executor->rope_offsets[op->rope.rope],
    };
    TRY(metal_add_dispatch(compiling, "rotate", NULL, METAL_ROW_THREADS, &dispatch));
    metal_set_arguments(dispatch, &arguments, sizeof arguments);
    metal_bind(dispatch, compiling->arena);
    metal_bind(dispatch, &executor->ropes);
    metal_bind_step(compiling, dispatch);
    dispatch->shape.groups = groups_of(rope->dimensions / 2 * op->rope.heads);
    dispatch->rows = op->rows;
cleanup:
    return status;
}

static enum salvo_status compile_shift(struct compiling *compiling, const struct op *op)
{
    enum salvo_status status = SALVO_OK;
    const struct executor *executor = compiling->executor;
    struct metal_dispatch *dispatch;
    const struct shift_arguments arguments = {
        .x = metal_arena_at(compiling, op->inputs[0]),
        .to = metal_arena_at(compiling, op->out),
        .columns = metal_columns(compiling, op->out),
        .state = (uint32_t)executor->state.recurrent_offsets[op->token_shift.state],
        .recurrent_elements = (uint32_t)executor->state.recurrent_elements,
    };
    TRY(metal_add_dispatch(compiling, "shift", NULL, METAL_ROW_THREADS, &dispatch));
    metal_set_arguments(dispatch, &arguments, sizeof arguments);
    metal_bind(dispatch, compiling->arena);
    metal_bind(dispatch, &executor->recurrent);
    metal_bind_step(compiling, dispatch);
    dispatch->shape.groups = groups_of(arguments.columns);
    dispatch->rows = op->rows;
cleanup:
    return status;
}

enum salvo_status metal_compile_row_op(struct compiling *compiling, const struct op *op)
{
    switch (op->kind) {
    case OP_EMBED:
        return compile_embed(compiling, op);
    case OP_RMS_NORM:
        return compile_norm(compiling, op, op->rms_norm.group, op->rms_norm.epsilon);
    case OP_LAYER_NORM:
        return compile_norm(compiling, op, op->layer_norm.group, op->layer_norm.epsilon);
    case OP_L2_NORM:
        return compile_norm(compiling, op, op->l2_norm.group, op->l2_norm.epsilon);
    case OP_ROPE:
        return compile_rope(compiling, op);
    case OP_TOKEN_SHIFT:
        return compile_shift(compiling, op);
    case OP_RWKV_BONUS:
        return compile_bonus(compiling, op);
    case OP_GLU:
    case OP_ADD:
    case OP_MUL:
    case OP_LERP:
    case OP_RWKV_KEY:
    case OP_SELECT_ROWS:
    case OP_SOFTCAP:
        return compile_each(compiling, op);
    default:
        return fail(
            SALVO_ERROR_UNSUPPORTED, "the Metal backend has no kernel for %s", op_infos[op->kind].name);
    }
}
