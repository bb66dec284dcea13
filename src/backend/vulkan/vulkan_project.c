/*
 * Attention of a single token that computes query, key and value itself (GROUP_PROJECT_ATTEND). A dispatch
 * has a fixed cost of some microseconds. Where a head's matrices are small, each workgroup multiplies them in
 * less time than that, although several workgroups then compute the same rows.
 */
#include "backend/common/fusion.h"
#include "backend/vulkan/vulkan_executor.h"

/* Limits: the columns that fit into shared memory, and the blocks of one head's query, key and value rows,
 * which each workgroup multiplies. Above MOST_BLOCKS a separate dispatch is as fast. */
enum { MOST_COLUMNS = 1024, MOST_BLOCKS = 6144 };

bool vulkan_fuses_ropes(const struct executor *executor, const struct group *group)
{
    if (group->ops_before < 3 || executor->options.kv_type == TYPE_Q8_0)
        return false;
    const struct op *ropes = &executor->program->ops[group->first_op + group->ops_before - 3];
    const struct rope *q = &executor->program->ropes[ropes[0].rope.rope],
                      *k = &executor->program->ropes[ropes[1].rope.rope];
    return q->dimensions == k->dimensions && q->halves == k->halves;
}

bool vulkan_supports_projection(const struct executor *executor, const struct group *group)
{
    const struct program *program = executor->program;
    const struct projection parts = group_projection(program, group);
    const struct vulkan_weight *first = &executor->weights[parts.matmuls[0].inputs[0]];
    const uint64_t columns = program->buffers[parts.matmuls[0].inputs[0]].columns;
    /* All three must be unsliced quantised matrices in one buffer: a dispatch binds one weight buffer. */
    for (uint32_t i = 0; i < 3; i++) {
        const buffer_id matrix = parts.matmuls[i].inputs[0];
        const struct vulkan_weight *weight = &executor->weights[matrix];
        if (weight->slice_count != 1 || weight->slices[0].buffer != first->slices[0].buffer ||
            tensor_type_info(program->buffers[matrix].type)->block_elements == 1)
            return false;
    }
    return vulkan_fuses_ropes(executor, group) && columns <= MOST_COLUMNS &&
           columns / 32 * 3 * parts.attend->attend.head_dim <= MOST_BLOCKS;
}

struct project_token vulkan_project_token(
    const struct compiling *compiling, const struct group *group, struct dispatch *dispatch)
{
    const struct executor *executor = compiling->executor;
    const struct projection parts = group_projection(executor->program, group);
    const struct op *norm = parts.norm, *matmuls = parts.matmuls;
    struct project_token token = {
        .x = vulkan_arena_at(compiling, norm->inputs[0]),
        .norm = vulkan_vector_at(compiling, norm->inputs[1]),
        .epsilon = norm->rms_norm.epsilon,
    };
    for (uint32_t i = 0; i < 3; i++) {
        const struct weight_slice *slice = &executor->weights[matmuls[i].inputs[0]].slices[0];
        token.types |= (uint32_t)executor->program->buffers[matmuls[i].inputs[0]].type << 8 * i;
        token.codes[i] = slice->codes;
        token.high[i] = slice->high;
        token.scales[i] = slice->scales;
        token.bias[i] = vulkan_vector_at(compiling, matmuls[i].inputs[2]);
    }
    vulkan_bind(dispatch, BIND_WEIGHTS,
        &executor->weight_buffers[executor->weights[matmuls[0].inputs[0]].slices[0].buffer], false);
    vulkan_bind(dispatch, BIND_VECTORS, &executor->vectors, false);
    return token;
}
