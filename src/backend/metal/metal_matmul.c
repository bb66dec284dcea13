/* The dispatch of a matmul. */
#include "backend/metal/metal_executor.h"

enum {
    PART = 16, /* columns that a thread unpacks at once */
    LEAST_TILE_TOKENS = METAL_MATMUL_TOKENS + 1,
};

/* Threads that share a row of `columns`: the most of which few are idle in the last round. */
static uint32_t lanes_for(uint32_t columns)
{
    const uint32_t parts = (columns + PART - 1) / PART;
    uint32_t lanes = 32;
    while (lanes > 4 && 8 * ((parts + lanes - 1) / lanes * lanes) > 9 * parts)
        lanes /= 2;
    return lanes;
}

enum salvo_status metal_compile_matmul(struct compiling *compiling, const struct op *op)
{
    enum salvo_status status = SALVO_OK;
    const struct executor *executor = compiling->executor;
    const struct program_buffer *weight = &executor->program->buffers[op->inputs[0]];
    const struct metal_weight *place = &executor->weights[op->inputs[0]];
    const uint32_t columns = (uint32_t)weight->columns, lanes = lanes_for(columns),
                   tokens = compiling->plan->lowered.capacity[op->rows] > 1 ? METAL_MATMUL_TOKENS : 1,
                   rows = METAL_MATMUL_THREADS / lanes;
    struct metal_dispatch *dispatch;
    const struct matmul_arguments arguments = {
        .weights = place->offset,
        .row_bytes = weight_row_bytes(weight),
        .rows = (uint32_t)weight->rows,
        .columns = columns,
        .x = metal_arena_at(compiling, op->inputs[1]),
        .to = metal_arena_at(compiling, op->out),
        .bias = metal_vector_at(compiling, op->inputs[2]),
        .row_kind = op->rows,
        .accumulates = op->matmul.accumulate,
        .activation = op->matmul.activation,
    };
    const uint32_t constants[METAL_CONSTANTS] = {
        weight->type, lanes, tokens, op->matmul.rounding == ROUNDING_F16};
    TRY(metal_add_dispatch(compiling, "matmul", constants, METAL_MATMUL_THREADS, &dispatch));
    metal_set_arguments(dispatch, &arguments, sizeof arguments);
    metal_bind(dispatch, &executor->windows[place->window]);
    metal_bind(dispatch, compiling->arena);
    metal_bind(dispatch, &executor->vectors);
    metal_bind_step(compiling, dispatch);
    dispatch->shape.groups = (arguments.rows + rows - 1) / rows;
    dispatch->rows = op->rows;
    dispatch->shape.rows_per_group = tokens;
    if (tokens == 1)
        return SALVO_OK;
    TRY(metal_set_large(compiling, dispatch, "matmul_tiles", constants, METAL_TILE_THREADS));
    dispatch->large_rows = LEAST_TILE_TOKENS;
    dispatch->large.groups = (arguments.rows + METAL_TILE_ROWS - 1) / METAL_TILE_ROWS;
    dispatch->large.rows_per_group = METAL_TILE_TOKENS;
    dispatch->large.threadgroup_bytes =
        (METAL_TILE_ROWS + METAL_TILE_TOKENS) * METAL_TILE_COLUMNS * (uint32_t)sizeof(float);
cleanup:
    return status;
}
