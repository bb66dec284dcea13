/*
 * Matmuls of a batch. Matrices in one buffer are one dispatch: its workgroups find their matrix in a table.
 * Gate and up are one dispatch if both can be bound together.
 */
#include "backend/vulkan/vulkan_coop.h"
#include "backend/vulkan/vulkan_executor.h"

enum { TILE_ROWS = 64, TILE_THREADS = 256, DIRECT_THREADS = 32 };

/* The slices of one dispatch. */
struct bundle {
    const struct group *group;
    const struct op *glu;
    uint32_t index; /* index of the group */
    uint32_t first_matrix;
    uint32_t buffer;
    uint64_t types;
};

/* How a dispatch is divided into workgroups. */
struct tiling {
    enum vulkan_shader shader;
    struct pipeline_constants constants;
    uint32_t rows, tokens; /* of one workgroup */
};

static uint32_t parts(uint32_t whole, uint32_t part)
{
    return (whole + part - 1) / part;
}

static struct tiling tiling_by(
    const struct vulkan_physical *physical, const struct bundle *bundle, const struct coop_tile *tile)
{
    const uint32_t has_glu = bundle->glu != NULL;
    return (struct tiling){
        .shader = SHADER_MATMUL_COOP,
        .constants = {.threads = vulkan_coop_threads(physical, tile),
            .types = bundle->types,
            .extra = tile->tokens | has_glu << 4 | tile->rows << 8 | tile->beside << 12 | tile->below << 16 |
                     tile->step << 20,
            .columns = physical->coop_tokens,
            .state_types = physical->coop_rows,
            .head_dim = physical->coop_depth},
        .rows = 16 * tile->rows * tile->below / (has_glu ? 2 : 1),
        .tokens = 16 * tile->tokens * tile->beside,
    };
}

/* A large tile unpacks half as many weights as a small one; small tiles wait less for each other. Large tiles
 * measured faster where there are many of them and each has many blocks. */
static struct tiling coop_tiling(
    const struct compiling *compiling, const struct bundle *bundle, uint32_t tokens)
{
    enum { ENOUGH_TILES = 128, ENOUGH_BLOCKS = 1 << 14 };
    const struct vulkan_physical *physical = compiling->executor->device.physical;
    const struct vulkan_plan *plan = compiling->plan;
    const struct tiling large = tiling_by(physical, bundle, &coop_large_tile),
                        small = tiling_by(physical, bundle, &coop_small_tile);
    const uint32_t blocks = parts(plan->matrices[bundle->first_matrix].columns, 32);
    uint32_t rows = 0;
    for (uint32_t i = bundle->first_matrix; i < plan->matrix_count; i++)
        rows += plan->matrices[i].rows;
    const uint64_t tiles =
        (uint64_t)parts(rows / (bundle->glu ? 2 : 1), large.rows) * parts(tokens, large.tokens);
    return tokens > small.tokens && tiles >= ENOUGH_TILES && tiles * blocks >= ENOUGH_BLOCKS &&
                   vulkan_coop_fits(physical, &coop_large_tile)
               ? large
               : small;
}

static struct tiling tiling_of(
    const struct compiling *compiling, const struct bundle *bundle, uint32_t tokens)
{
    const struct vulkan_physical *physical = compiling->executor->device.physical;
    const uint32_t tokens_each = tokens >= 64 ? 4 : 2, has_glu = bundle->glu != NULL;
    if (vulkan_uses_halves(compiling) && bundle->group->rounding != ROUNDING_F32)
        return coop_tiling(compiling, bundle, tokens);
    const bool is_direct = physical->features.processor;
    return (struct tiling){
        .shader = is_direct ? SHADER_MATMUL_DIRECT : SHADER_MATMUL,
        .constants = {.threads = is_direct ? DIRECT_THREADS : TILE_THREADS,
            .types = bundle->types,
            .extra = tokens_each | has_glu << 4},
        .rows = is_direct ? DIRECT_THREADS * DIRECT_ROWS : TILE_ROWS,
        .tokens = is_direct ? DIRECT_TOKENS : 16 * tokens_each,
    };
}

static enum salvo_status finish_bundle(struct compiling *compiling, struct bundle *bundle)
{
    enum salvo_status status = SALVO_OK;
    struct executor *executor = compiling->executor;
    struct vulkan_plan *plan = compiling->plan;
    const uint32_t tokens = plan->lowered.capacity[bundle->group->rows], count = plan->matrix_count;
    const struct tiling tiling = tiling_of(compiling, bundle, tokens);
    const struct matmul_arguments arguments = {
        .first_matrix = bundle->first_matrix,
        .matrix_count = count - bundle->first_matrix,
        .row_kind = bundle->group->rows,
        .glu = bundle->glu ? bundle->glu->glu.activation : 0,
        .glu_to = bundle->glu ? vulkan_arena_at(compiling, bundle->glu->out) : 0,
    };
    struct dispatch *dispatch;
    uint32_t pipeline;
    uint32_t groups = 0;
    const uint32_t last =
        bundle->glu ? bundle->first_matrix + 1 : count; /* gate and up are processed together */
    for (uint32_t i = bundle->first_matrix; i < count; i++) {
        struct matrix *matrix = &plan->matrices[i];
        matrix->first_group = i < last ? groups : 0;
        groups += i < last ? parts(matrix->rows, tiling.rows) : 0;
    }
    TRY(vulkan_pipeline(&executor->pipelines, tiling.shader, tiling.constants, &pipeline));
    TRY(vulkan_add_dispatch(compiling, bundle->index, pipeline, &arguments, sizeof arguments, &dispatch));
    dispatch->groups[0] = groups;
    dispatch->groups[1] = parts(tokens, tiling.tokens);
    vulkan_bind(dispatch, BIND_VECTORS, &executor->vectors, false);
    vulkan_bind(dispatch, BIND_TABLE, &plan->matrix_table, false);
    vulkan_bind(dispatch, BIND_ROUNDED, &executor->rounded, false);
    vulkan_bind(dispatch, BIND_WEIGHTS, &executor->weight_buffers[bundle->buffer], false);
    bundle->first_matrix = count;
    bundle->types = 0;
cleanup:
    return status;
}

static enum salvo_status add_slice(
    struct compiling *compiling, struct bundle *bundle, const struct op *op, const struct weight_slice *slice)
{
    enum salvo_status status = SALVO_OK;
    struct vulkan_plan *plan = compiling->plan;
    if (plan->matrix_count > bundle->first_matrix && bundle->buffer != slice->buffer)
        TRY(finish_bundle(compiling, bundle));
    bundle->buffer = slice->buffer;
    const struct matrix matrix = vulkan_matrix(compiling, op, slice);
    bundle->types |= UINT64_C(1) << matrix.type;
    TRY(vulkan_add_matrix(plan, matrix));
cleanup:
    return status;
}

enum salvo_status vulkan_compile_matmul(struct compiling *compiling, uint32_t index)
{
    enum salvo_status status = SALVO_OK;
    struct executor *executor = compiling->executor;
    const struct vulkan_plan *plan = compiling->plan;
    const struct group *group = &plan->lowered.groups[index];
    const struct op *ops = &executor->program->ops[group->first_op];
    const bool fuses_gate = group->glu && vulkan_gate_fits(executor, ops);
    struct bundle bundle = {
        .group = group,
        .glu = fuses_gate ? &ops[2] : NULL,
        .index = index,
        .first_matrix = plan->matrix_count,
    };
    for (uint32_t i = 0; i < group->matmuls; i++) {
        const struct vulkan_weight *weight = &executor->weights[ops[i].inputs[0]];
        for (uint32_t j = 0; j < weight->slice_count; j++)
            TRY(add_slice(compiling, &bundle, &ops[i], &weight->slices[j]));
    }
    TRY(finish_bundle(compiling, &bundle));
    if (group->glu && !fuses_gate)
        TRY(vulkan_compile_rows(compiling, index, group->first_op + group->matmuls, 1, NO_BUFFER));
cleanup:
    return status;
}
