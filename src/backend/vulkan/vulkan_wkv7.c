/* Groups of recurrence: of a single token with all that stands around it, or of a batch. */
#include "backend/vulkan/vulkan_executor.h"

enum { WKV7_THREADS = 256, MOST_HEAD_DIM = 256 };

/* What a single token's kernel takes in, if that is all there is around the recurrence. */
struct around {
    const struct op *lerp, *direction, *strength; /* before */
    const struct op *norm, *bonus, *gate;         /* behind */
};

static bool is_written_for_group_only(
    const struct executor *executor, const struct group *group, const struct op *op)
{
    return !value_is_read(executor->program, op->out, group->first_op + group->op_count);
}

static bool find_before(
    const struct executor *executor, const struct group *group, const struct op *wkv7, struct around *out)
{
    for (const struct op *op = wkv7 - group->inner; op < wkv7; op++) {
        const bool is_vector =
            op->inputs[2] != NO_BUFFER && executor->program->buffers[op->inputs[2]].kind == BUFFER_WEIGHT;
        if (!is_written_for_group_only(executor, group, op))
            return false;
        if (op->kind == OP_LERP && op->out == wkv7->inputs[3] && !out->lerp && !is_vector)
            out->lerp = op;
        else if (op->kind == OP_L2_NORM && op->out == wkv7->inputs[4] &&
                 op->l2_norm.group == wkv7->wkv7.head_dim && !out->direction)
            out->direction = op;
        else if (op->kind == OP_RWKV_KEY && op->out == wkv7->inputs[2] && op->inputs[1] == wkv7->inputs[5] &&
                 !out->strength)
            out->strength = op;
        else
            return false;
    }
    return out->direction && out->strength && out->direction->inputs[0] == out->strength->inputs[0];
}

static bool find_behind(const struct group *group, const struct op *wkv7, struct around *out)
{
    for (const struct op *op = wkv7 + 1; op <= wkv7 + group->outer; op++) {
        if (op->out != wkv7->out || op->inputs[0] != wkv7->out)
            return false;
        if (op->kind == OP_LAYER_NORM && op->layer_norm.group == wkv7->wkv7.head_dim && !out->norm &&
            !out->bonus && !out->gate)
            out->norm = op;
        else if (op->kind == OP_RWKV_BONUS && op->inputs[1] == wkv7->inputs[0] &&
                 op->inputs[2] == wkv7->inputs[2] && op->inputs[3] == wkv7->inputs[3] && !out->bonus &&
                 !out->gate)
            out->bonus = op;
        else if (op->kind == OP_MUL && op->inputs[1] != wkv7->out && !out->gate)
            out->gate = op;
        else
            return false;
    }
    return true;
}

static bool find_around(
    const struct executor *executor, const struct group *group, const struct op *wkv7, struct around *out)
{
    const uint32_t head_dim = wkv7->wkv7.head_dim;
    *out = (struct around){0};
    return (head_dim & (head_dim - 1)) == 0 && find_before(executor, group, wkv7, out) &&
           find_behind(group, wkv7, out);
}

static enum salvo_status compile_single(
    struct compiling *compiling, uint32_t index, const struct op *op, const struct around *around)
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
        .k = vulkan_arena_at(compiling, around->strength->inputs[0]),
        .v = vulkan_arena_at(compiling, around->lerp ? around->lerp->inputs[0] : op->inputs[3]),
        .a = vulkan_arena_at(compiling, op->inputs[5]),
        .to = vulkan_arena_at(compiling, op->out),
        .share = around->lerp ? vulkan_arena_at(compiling, around->lerp->inputs[2]) : ROW_NOTHING,
        .first_value = around->lerp ? vulkan_arena_at(compiling, around->lerp->inputs[1]) : ROW_NOTHING,
        .direction_weight = vulkan_vector_at(compiling, around->direction->inputs[1]),
        .strength_weight = vulkan_vector_at(compiling, around->strength->inputs[2]),
        .norm_weight = around->norm ? vulkan_vector_at(compiling, around->norm->inputs[1]) : ROW_NOTHING,
        .norm_bias = around->norm ? vulkan_vector_at(compiling, around->norm->inputs[2]) : ROW_NOTHING,
        .bonus_weight = around->bonus ? vulkan_vector_at(compiling, around->bonus->inputs[4]) : ROW_NOTHING,
        .gate = around->gate ? vulkan_arena_at(compiling, around->gate->inputs[1]) : ROW_NOTHING,
        .direction_epsilon = around->direction->l2_norm.epsilon,
        .norm_epsilon = around->norm ? around->norm->layer_norm.epsilon : 0,
        .state = (uint32_t)executor->state.recurrent_offsets[op->wkv7.state],
        .recurrent_elements = executor->recurrent_elements,
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
    if (group->inner)
        TRY(vulkan_compile_rows(compiling, index, group->first_op, group->inner, NO_BUFFER));
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
        .recurrent_elements = executor->recurrent_elements,
    };
    TRY(vulkan_pipeline(&executor->pipelines, SHADER_WKV7,
        (struct pipeline_constants){.threads = op->wkv7.head_dim, .extra = op->wkv7.head_dim}, &pipeline));
    TRY(vulkan_add_dispatch(compiling, index, pipeline, &arguments, sizeof arguments, &dispatch));
    vulkan_bind(dispatch, BIND_RECURRENT, &executor->recurrent, true);
    dispatch->groups[0] = op->wkv7.heads;
    dispatch->groups[1] = compiling->plan->lowered.capacity[ROWS_RUNS];
    if (group->outer)
        TRY(vulkan_compile_rows(
            compiling, index, group->first_op + group->inner + 1, group->outer, NO_BUFFER));
cleanup:
    return status;
}

enum salvo_status vulkan_compile_wkv7(struct compiling *compiling, uint32_t index)
{
    enum salvo_status status = SALVO_OK;
    struct executor *executor = compiling->executor;
    const struct group *group = &compiling->plan->lowered.groups[index];
    const struct op *op = &executor->program->ops[group->first_op + group->inner];
    struct around around;
    if (op->wkv7.head_dim > MOST_HEAD_DIM)
        TRY(fail(SALVO_ERROR_UNSUPPORTED, "heads of %u elements: the Vulkan kernels take at most %d",
            op->wkv7.head_dim, MOST_HEAD_DIM));
    if (compiling->plan->lowered.capacity[ROWS_TOKENS] == 1 && find_around(executor, group, op, &around))
        TRY(compile_single(compiling, index, op, &around));
    else
        TRY(compile_batch(compiling, index, op));
cleanup:
    return status;
}
