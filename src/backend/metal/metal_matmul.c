/* The dispatch of a matmul, for a single token with the norm of its input or the gate of a feed-forward. */
#include "backend/common/fusion.h"
#include "backend/metal/metal_executor.h"

enum {
    PART = 16, /* columns that a thread unpacks at once */
    LEAST_TILE_TOKENS = METAL_MATMUL_TOKENS + 1,
};

/* Threads that share a row of `columns`: the most of which few are idle in the last round. */
uint32_t metal_lanes_for(uint32_t columns)
{
    const uint32_t parts = (columns + PART - 1) / PART;
    uint32_t lanes = 32;
    while (lanes > 4 && 8 * ((parts + lanes - 1) / lanes * lanes) > 9 * parts)
        lanes /= 2;
    return lanes;
}

/* Two, so that twice as many lanes could have one each; the most lanes have one, so that half of them could
 * have two. */
uint32_t metal_sums_for(uint32_t columns)
{
    return metal_lanes_for(columns) < 32 ? METAL_MATMUL_SUMS : 1;
}

/* ---- Fusion ---- */

/* A norm of longer rows is a dispatch of its own: each threadgroup would compute it again. */
enum { MOST_NORM_COLUMNS = 2048 };

static bool fuses_norm(const struct program *program, const struct group *group, const struct op *norm)
{
    const struct op *matmuls = group_op(program, group);
    if (!norm || norm->kind != OP_RMS_NORM || program->buffers[norm->out].columns > MOST_NORM_COLUMNS)
        return false;
    for (uint32_t i = 0; i < group->matmuls; i++) {
        if (matmuls[i].inputs[1] != norm->out)
            return false;
    }
    return true;
}

static bool fuses_gate(const struct program *program, const struct group *group)
{
    const struct op *gate = group_op(program, group), *gated = gate + 1;
    return group->glu && gate->inputs[1] == gated->inputs[1] && gate->inputs[2] == NO_BUFFER &&
           gated->inputs[2] == NO_BUFFER && gate->matmul.activation == ACTIVATION_NONE &&
           gated->matmul.activation == ACTIVATION_NONE && gate->matmul.rounding == gated->matmul.rounding &&
           program->buffers[gate->inputs[0]].type == program->buffers[gated->inputs[0]].type;
}

struct group_fusion metal_matmul_fusion(const struct compiling *compiling, const struct group *group)
{
    const struct program *program = compiling->executor->program;
    struct group_fusion fusion = {0};
    struct matmul_inputs inputs;
    if (group->kind != GROUP_MATMUL || compiling->plan->lowered.capacity[ROWS_TOKENS] > 1)
        return fusion;
    if (group_matmul_inputs(program, group, &inputs) && !inputs.shift &&
        fuses_norm(program, group, inputs.norm))
        fusion.norm = inputs.norm;
    if (fuses_gate(program, group))
        fusion.gated = group_op(program, group) + 1;
    return fusion;
}

/* ---- Dispatches ---- */

static struct matmul_arguments arguments_of(
    const struct compiling *compiling, const struct op *op, const struct group_fusion *fusion)
{
    const struct executor *executor = compiling->executor;
    const struct program_buffer *weight = &executor->program->buffers[op->inputs[0]];
    struct matmul_arguments arguments = {
        .weights = executor->weights[op->inputs[0]].offset,
        .row_bytes = weight_row_bytes(weight),
        .rows = (uint32_t)weight->rows,
        .columns = (uint32_t)weight->columns,
        .x = metal_arena_at(compiling, op->inputs[1]),
        .to = metal_arena_at(compiling, op->out),
        .bias = metal_vector_at(compiling, op->inputs[2]),
        .row_kind = op->rows,
        .accumulates = op->matmul.accumulate,
        .activation = op->matmul.activation,
    };
    if (fusion->norm) {
        arguments.x = metal_arena_at(compiling, fusion->norm->inputs[0]);
        arguments.norm = metal_vector_at(compiling, fusion->norm->inputs[1]);
        arguments.epsilon = fusion->norm->rms_norm.epsilon;
    }
    if (fusion->gated) {
        const struct op *glu = fusion->gated + 1;
        arguments.to = metal_arena_at(compiling, glu->out);
        arguments.gated = executor->weights[fusion->gated->inputs[0]].offset;
        arguments.activation = glu->glu.activation;
    }
    return arguments;
}

enum salvo_status metal_add_matmul(struct compiling *compiling, const struct op *op,
    const struct group_fusion *fusion, struct matmul_shape shape)
{
    enum salvo_status status = SALVO_OK;
    const struct executor *executor = compiling->executor;
    const buffer_id weight = op->inputs[0], gated = fusion->gated ? fusion->gated->inputs[0] : weight;
    const struct matmul_arguments arguments = arguments_of(compiling, op, fusion);
    const uint32_t lanes =
                       metal_lanes_for(arguments.columns) * metal_sums_for(arguments.columns) / shape.sums,
                   threads = 32 * shape.simdgroups, rows = threads / lanes * shape.rows,
                   tokens = compiling->plan->lowered.capacity[op->rows] > 1 ? METAL_MATMUL_TOKENS : 1;
    const uint32_t constants[METAL_CONSTANTS] = {executor->program->buffers[weight].type, lanes, tokens,
        op->matmul.rounding == ROUNDING_F16, [METAL_CONSTANT_NORMS] = fusion->norm != NULL,
        [METAL_CONSTANT_GATES] = fusion->gated != NULL, [METAL_CONSTANT_ROWS] = shape.rows,
        [METAL_CONSTANT_SIMDGROUPS] = shape.simdgroups, [METAL_CONSTANT_SUMS] = shape.sums};
    struct metal_dispatch *dispatch;
    TRY(metal_add_dispatch(compiling, "matmul", constants, threads, &dispatch));
    metal_set_arguments(dispatch, &arguments, sizeof arguments);
    metal_bind(dispatch, &executor->windows[executor->weights[weight].window]);
    metal_bind(dispatch, compiling->arena);
    metal_bind(dispatch, &executor->vectors);
    metal_bind_step(compiling, dispatch);
    metal_bind(dispatch, &executor->windows[executor->weights[gated].window]);
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
