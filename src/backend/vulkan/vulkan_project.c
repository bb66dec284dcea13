/*
 * Queries, key and value of a single token, made by its attention. A dispatch costs some microseconds before
 * it does anything; where a head's matrices are small, each of its workgroups multiplies them sooner, though
 * many of them do the same.
 */
#include "backend/vulkan/vulkan_executor.h"

/* What the shader has room for; and blocks of a query's, a key's and a value's head, which are what a
 * workgroup has to multiply: with more of them a dispatch of their own is as fast. */
enum { MOST_COLUMNS = 1024, MOST_BLOCKS = 6144 };

static bool is_block_format(enum tensor_type type)
{
    return tensor_type_info(type)->block_elements > 1;
}

/* Of blocks, whole, and to be bound with the first; nothing happens to the product but that a bias is added.
 */
static bool is_plain(const struct executor *executor, const struct op *first, const struct op *op)
{
    const struct program_buffer *buffers = executor->program->buffers;
    const struct vulkan_weight *a = &executor->weights[first->inputs[0]],
                               *b = &executor->weights[op->inputs[0]];
    return op->inputs[1] == first->inputs[1] && b->slice_count == 1 &&
           a->slices[0].buffer == b->slices[0].buffer && is_block_format(buffers[op->inputs[0]].type) &&
           op->matmul.activation == ACTIVATION_NONE && !op->matmul.accumulate;
}

static bool is_small(const struct executor *executor, const struct op *matmuls, const struct op *attend)
{
    const struct program_buffer *weight = &executor->program->buffers[matmuls[0].inputs[0]];
    return weight->columns <= MOST_COLUMNS &&
           weight->columns / 32 * 3 * attend->attend.head_dim <= MOST_BLOCKS;
}

/* A norm, three matmuls, two ropes and append, attention. */
static bool fits(const struct executor *executor, const struct group *project, const struct group *attend)
{
    const struct program *program = executor->program;
    if (project->kind != GROUP_MATMUL || attend->kind != GROUP_ATTEND || project->inner != 1 ||
        project->matmuls != 3 || !vulkan_takes_ropes(executor, attend))
        return false;
    const struct op *norm = &program->ops[project->first_op], *matmuls = norm + 1,
                    *ropes = &program->ops[attend->first_op], *append = ropes + 2, *op = ropes + 3;
    const uint32_t end = attend->first_op + attend->op_count;
    for (uint32_t i = 0; i < 3; i++) {
        if (!is_plain(executor, &matmuls[0], &matmuls[i]) || value_is_read(program, matmuls[i].out, end))
            return false;
    }
    /* The row is read on, so that what attention writes lies elsewhere. */
    return norm->kind == OP_RMS_NORM && vulkan_is_whole_norm(executor, norm) &&
           norm->out == matmuls[0].inputs[1] && is_small(executor, matmuls, op) &&
           matmuls[0].out == op->inputs[0] && matmuls[1].out == append->inputs[0] &&
           matmuls[2].out == append->inputs[1] && value_is_read(program, norm->inputs[0], end);
}

void vulkan_project_groups(const struct executor *executor, struct plan *plan)
{
    uint32_t count = 0;
    if (executor->device.physical->features.processor || plan->capacity[ROWS_TOKENS] > 1)
        return;
    for (uint32_t i = 0; i < plan->group_count; i++) {
        struct group group = plan->groups[i];
        if (i + 1 < plan->group_count && fits(executor, &group, &plan->groups[i + 1])) {
            const struct group *attend = &plan->groups[++i];
            group.kind = GROUP_ATTEND;
            group.inner = group.op_count + attend->inner;
            group.op_count += attend->op_count;
        }
        for (uint32_t j = 0; j < group.op_count; j++)
            plan->group_of_op[group.first_op + j] = count;
        plan->groups[count++] = group;
    }
    plan->group_count = count;
}

struct project_token vulkan_project_token(
    const struct compiling *compiling, const struct group *group, struct dispatch *dispatch)
{
    const struct executor *executor = compiling->executor;
    const struct op *norm = &executor->program->ops[group->first_op], *matmuls = norm + 1;
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
