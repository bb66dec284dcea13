/* Groups of wkv7: of a single token with the ops around it, or of a batch. */
#include "backend/common/fusion.h"
#include "backend/vulkan/vulkan_executor.h"

enum { WKV7_THREADS = 256, MOST_HEAD_DIM = 256 };

static enum salvo_status compile_single(
    struct compiling *compiling, uint32_t index, const struct op *op, const struct wkv7_parts *parts)
{
    enum salvo_status status = SALVO_OK;
    struct executor *executor = compiling->executor;
    const uint32_t head_dim = op->wkv7.head_dim,
                   threads = head_dim * head_dim < WKV7_THREADS ? head_dim * head_dim : WKV7_THREADS;
    const struct pipeline_constants constants = {
        .threads = threads, .extra = head_dim * head_dim / threads, .columns = head_dim};
    const struct wkv7_one_arguments arguments = {
        .r = vulkan_arena_at(compiling, op->inputs[0]),
        .w = vulkan_arena_at(compiling, op->inputs[1]),
        .k = vulkan_arena_at(compiling, parts->key->inputs[0]),
        .v = vulkan_arena_at(compiling, parts->lerp ? parts->lerp->inputs[0] : op->inputs[3]),
        .a = vulkan_arena_at(compiling, op->inputs[5]),
        .to = vulkan_arena_at(compiling, op->out),
        .value_mix = parts->lerp ? vulkan_arena_at(compiling, parts->lerp->inputs[2]) : NO_OPERAND,
        .first_value = parts->lerp ? vulkan_arena_at(compiling, parts->lerp->inputs[1]) : NO_OPERAND,
        .k_k = vulkan_vector_at(compiling, parts->direction->inputs[1]),
        .k_a = vulkan_vector_at(compiling, parts->key->inputs[2]),
        .norm_weight = parts->norm ? vulkan_vector_at(compiling, parts->norm->inputs[1]) : NO_OPERAND,
        .norm_bias = parts->norm ? vulkan_vector_at(compiling, parts->norm->inputs[2]) : NO_OPERAND,
        .r_k = parts->bonus ? vulkan_vector_at(compiling, parts->bonus->inputs[4]) : NO_OPERAND,
        .gate = parts->gate ? vulkan_arena_at(compiling, parts->gate->inputs[1]) : NO_OPERAND,
        .kk_epsilon = parts->direction->l2_norm.epsilon,
        .norm_epsilon = parts->norm ? parts->norm->layer_norm.epsilon : 0,
        .state = (uint32_t)executor->state.recurrent_offsets[op->wkv7.state],
        .recurrent_elements = (uint32_t)executor->state.recurrent_elements,
    };
    struct dispatch *dispatch;
    uint32_t pipeline;
    TRY(vulkan_pipeline(&executor->pipelines, SHADER_WKV7_ONE, constants, &pipeline));
    TRY(vulkan_add_dispatch(compiling, index, pipeline, &arguments, sizeof arguments, &dispatch));
    vulkan_bind(dispatch, BIND_VECTORS, &executor->vectors, false);
    vulkan_bind(dispatch, BIND_RECURRENT, &executor->recurrent, true);
    dispatch->groups[0] = op->wkv7.heads;
cleanup:
    return status;
}

static enum salvo_status compile_batch(struct compiling *compiling, uint32_t index, const struct op *op)
{
    enum salvo_status status = SALVO_OK;
    struct executor *executor = compiling->executor;
    const struct group *group = &compiling->plan->lowered.groups[index];
    struct dispatch *dispatch;
    uint32_t pipeline;
    if (group->ops_before)
        TRY(vulkan_compile_rows(compiling, index, group->first_op, group->ops_before, NO_BUFFER));
    const struct wkv7_arguments arguments = {
        .r = vulkan_arena_at(compiling, op->inputs[0]),
        .w = vulkan_arena_at(compiling, op->inputs[1]),
        .k = vulkan_arena_at(compiling, op->inputs[2]),
        .v = vulkan_arena_at(compiling, op->inputs[3]),
        .kk = vulkan_arena_at(compiling, op->inputs[4]),
        .a = vulkan_arena_at(compiling, op->inputs[5]),
        .to = vulkan_arena_at(compiling, op->out),
        .heads = op->wkv7.heads,
        .head_dim = op->wkv7.head_dim,
        .columns = (uint32_t)executor->program->buffers[op->out].columns,
        .state = (uint32_t)executor->state.recurrent_offsets[op->wkv7.state],
        .recurrent_elements = (uint32_t)executor->state.recurrent_elements,
    };
    TRY(vulkan_pipeline(&executor->pipelines, SHADER_WKV7,
        (struct pipeline_constants){.threads = op->wkv7.head_dim, .extra = op->wkv7.head_dim}, &pipeline));
    TRY(vulkan_add_dispatch(compiling, index, pipeline, &arguments, sizeof arguments, &dispatch));
    vulkan_bind(dispatch, BIND_RECURRENT, &executor->recurrent, true);
    dispatch->groups[0] = op->wkv7.heads;
    dispatch->groups[1] = compiling->plan->lowered.capacity[ROWS_RUNS];
    if (group->ops_after)
        TRY(vulkan_compile_rows(
            compiling, index, group->first_op + group->ops_before + 1, group->ops_after, NO_BUFFER));
cleanup:
    return status;
}

enum salvo_status vulkan_compile_wkv7(struct compiling *compiling, uint32_t index)
{
    enum salvo_status status = SALVO_OK;
    struct executor *executor = compiling->executor;
    const struct group *group = &compiling->plan->lowered.groups[index];
    const struct op *op = group_op(executor->program, group);
    const bool is_power = (op->wkv7.head_dim & (op->wkv7.head_dim - 1)) == 0;
    struct wkv7_parts parts;
    if (op->wkv7.head_dim > MOST_HEAD_DIM)
        TRY(fail(SALVO_ERROR_UNSUPPORTED, "heads of %u elements: the Vulkan kernels take at most %d",
            op->wkv7.head_dim, MOST_HEAD_DIM));
    if (compiling->plan->lowered.capacity[ROWS_TOKENS] == 1 && is_power &&
        group_wkv7_parts(executor->program, group, &parts))
        TRY(compile_single(compiling, index, op, &parts));
    else
        TRY(compile_batch(compiling, index, op));
cleanup:
    return status;
}
