/* Groups of attention: of a single token, whose positions are split over workgroups, or of a batch. */
#include "backend/vulkan/vulkan_executor.h"

#include <string.h>

enum {
    ATTEND_THREADS = 128,
    LARGE_THREADS = 512,
    MERGE_THREADS = 64,
    MOST_HEADS = 4,
    MOST_HEAD_DIM = 512,
    LEAST_POSITIONS = 64
};

/* What attend_one.comp has room for, in floats. */
enum { MOST_PARTS = 4096, MOST_ROWS = 2048 };

/* Rope, rope and append before a single token's attention, which it does itself. */
static void take_in_ropes(
    const struct compiling *compiling, const struct group *group, struct attend_arguments *arguments)
{
    const struct executor *executor = compiling->executor;
    const struct op *ops = &executor->program->ops[group->first_op];
    const struct rope *rope = &executor->program->ropes[ops[0].rope.rope];
    arguments->rotated = 1;
    arguments->k = vulkan_arena_at(compiling, ops[2].inputs[0]);
    arguments->v = vulkan_arena_at(compiling, ops[2].inputs[1]);
    arguments->rope_q = executor->rope_offsets[ops[0].rope.rope];
    arguments->rope_k = executor->rope_offsets[ops[1].rope.rope];
    arguments->dimensions = rope->dimensions;
    arguments->halves = rope->halves;
}

static bool ropes_fit(const struct executor *executor, const struct group *group)
{
    const struct op *ops = &executor->program->ops[group->first_op];
    const struct rope *ropes = executor->program->ropes;
    if (group->inner != 3 || executor->options.kv_type == TYPE_Q8_0)
        return false;
    const struct rope *q = &ropes[ops[0].rope.rope], *k = &ropes[ops[1].rope.rope];
    return q->dimensions == k->dimensions && q->halves == k->halves;
}

/* As many splits as there are multiprocessors to keep busy. A processor has no use for many. */
static uint32_t splits_shift_for(const struct executor *executor, uint32_t groups)
{
    uint32_t shift = 1;
    while (!executor->device.physical->features.processor && shift < SPLITS_SHIFT && groups << shift < 128)
        shift++;
    return shift;
}

/* Invocations that share a position: no more than the head has units of eight elements, or four. */
static uint32_t lanes_shift_for(const struct executor *executor, uint32_t head_dim)
{
    const uint32_t units = head_dim / (executor->options.kv_type == TYPE_F32 ? 4 : 8);
    uint32_t shift = 0;
    while (2U << shift <= units && shift < 5)
        shift++;
    return shift;
}

/* How a single token's workgroup is made up. */
struct crew {
    uint32_t threads, heads; /* heads: of one kv head, together */
    uint32_t lanes_shift, reach_shift, at_once;
};

/*
 * Where shuffles bring many invocations together, workgroups are large: all positions of a short context are
 * then on their way at once. As many heads together as memory has room for.
 */
static struct crew crew_for(const struct executor *executor, uint32_t group_heads, uint32_t head_dim)
{
    const struct vulkan_physical *physical = executor->device.physical;
    const bool is_large = physical->features.subgroup && physical->subgroup_size >= 32 &&
                          physical->limits.maxComputeWorkGroupInvocations >= LARGE_THREADS;
    struct crew crew = {.threads = ATTEND_THREADS,
        .heads = MOST_HEADS,
        .lanes_shift = lanes_shift_for(executor, head_dim),
        .at_once = is_large ? 1 : 2};
    crew.reach_shift = crew.lanes_shift;
    while (physical->features.subgroup && 1U << crew.reach_shift < physical->subgroup_size &&
           1U << crew.reach_shift < ATTEND_THREADS)
        crew.reach_shift++;
    while (crew.heads > 1 && (group_heads % crew.heads || (crew.heads + 2) * head_dim > MOST_ROWS ||
                                 (crew.threads >> crew.reach_shift) * crew.heads * head_dim > MOST_PARTS))
        crew.heads--;
    while (is_large && crew.threads < LARGE_THREADS &&
           (crew.threads * 2 >> crew.reach_shift) * crew.heads * head_dim <= MOST_PARTS)
        crew.threads *= 2;
    return crew;
}

static void bind_state(
    struct compiling *compiling, const struct op *op, bool writes, struct dispatch *dispatch)
{
    struct executor *executor = compiling->executor;
    vulkan_bind(dispatch, BIND_KEYS, &executor->states[op->attend.key_state].buffer, writes);
    vulkan_bind(dispatch, BIND_VALUES, &executor->states[op->attend.value_state].buffer, writes);
    vulkan_bind(dispatch, BIND_ROPES, &executor->ropes, false);
    vulkan_bind(dispatch, BIND_PARTIALS, &executor->partials, true);
}

static enum salvo_status compile_single(struct compiling *compiling, uint32_t index, const struct op *op,
    bool fused, struct attend_arguments arguments)
{
    enum salvo_status status = SALVO_OK;
    struct executor *executor = compiling->executor;
    const struct crew crew = crew_for(executor, arguments.group_heads, op->attend.head_dim);
    const uint32_t groups = arguments.heads / crew.heads;
    const struct pipeline_constants constants = {
        .threads = crew.threads,
        .types = UINT64_C(1) << executor->options.kv_type,
        .extra = crew.heads | crew.lanes_shift << 4 | crew.reach_shift << 8 | crew.at_once << 12,
        .columns = op->attend.head_dim,
    };
    struct dispatch *dispatch;
    VkPipeline pipeline;
    if (fused)
        take_in_ropes(compiling, &compiling->plan->lowered.groups[index], &arguments);
    arguments.splits_shift = splits_shift_for(executor, groups);
    arguments.least = crew.threads > ATTEND_THREADS ? 2 * LEAST_POSITIONS : LEAST_POSITIONS;
    arguments.pages_at = executor->options.batch * ROW_WORDS + executor->options.outputs;
    arguments.pages = (executor->options.context + PAGE_POSITIONS - 1) / PAGE_POSITIONS;
    arguments.counts_at = executor->split_counts_at;
    TRY(vulkan_pipeline(&executor->pipelines, SHADER_ATTEND_ONE, constants, &pipeline));
    TRY(vulkan_add_dispatch(compiling, index, pipeline, &arguments, sizeof arguments, &dispatch));
    bind_state(compiling, op, fused, dispatch);
    memcpy(dispatch->groups, (uint32_t[]){groups, 1U << arguments.splits_shift, 1}, sizeof dispatch->groups);
    if (executor->device.physical->features.subgroup)
        return SALVO_OK; /* the last to end has merged */
    const struct pipeline_constants merge = {.threads = MERGE_THREADS, .columns = op->attend.head_dim};
    TRY(vulkan_pipeline(&executor->pipelines, SHADER_MERGE, merge, &pipeline));
    TRY(vulkan_add_dispatch(compiling, index, pipeline, &arguments, sizeof arguments, &dispatch));
    vulkan_bind(dispatch, BIND_PARTIALS, &executor->partials, false);
    dispatch->groups[0] = op->attend.heads;
cleanup:
    return status;
}

static enum salvo_status compile_batch(
    struct compiling *compiling, uint32_t index, const struct op *op, struct attend_arguments arguments)
{
    enum salvo_status status = SALVO_OK;
    struct executor *executor = compiling->executor;
    const uint32_t tokens = compiling->plan->lowered.capacity[ROWS_TOKENS];
    const struct pipeline_constants constants = {
        .threads = ATTEND_THREADS,
        .types = UINT64_C(1) << executor->options.kv_type,
        .columns = op->attend.head_dim,
    };
    struct dispatch *dispatch;
    VkPipeline pipeline;
    TRY(vulkan_pipeline(&executor->pipelines, SHADER_ATTEND, constants, &pipeline));
    TRY(vulkan_add_dispatch(compiling, index, pipeline, &arguments, sizeof arguments, &dispatch));
    bind_state(compiling, op, false, dispatch);
    memcpy(dispatch->groups, (uint32_t[]){op->attend.heads, 1, vulkan_most_rows(executor, tokens)},
        sizeof dispatch->groups);
cleanup:
    return status;
}

enum salvo_status vulkan_compile_attend(struct compiling *compiling, uint32_t index)
{
    enum salvo_status status = SALVO_OK;
    struct executor *executor = compiling->executor;
    const struct group *group = &compiling->plan->lowered.groups[index];
    const struct op *op = &executor->program->ops[group->first_op + group->inner];
    const bool fused = ropes_fit(executor, group);
    if (!fused && group->inner)
        TRY(vulkan_compile_rows(compiling, index, group->first_op, group->inner, NO_BUFFER));
    if (op->attend.head_dim > MOST_HEAD_DIM)
        TRY(fail(SALVO_ERROR_UNSUPPORTED, "heads of %u elements: the Vulkan kernels take at most %d",
            op->attend.head_dim, MOST_HEAD_DIM));
    const struct attend_arguments arguments = {
        .q = vulkan_arena_at(compiling, op->inputs[0]),
        .to = vulkan_arena_at(compiling, op->out),
        .heads = op->attend.heads,
        .kv_heads = op->attend.kv_heads,
        .group_heads = op->attend.heads / op->attend.kv_heads,
        .window = op->attend.window,
        .scale = op->attend.scale,
        .cap = op->attend.cap,
        .head_words = executor->states[op->attend.key_state].head_words,
    };
    TRY(compiling->plan->lowered.capacity[ROWS_TOKENS] == 1
            ? compile_single(compiling, index, op, fused, arguments)
            : compile_batch(compiling, index, op, arguments));
cleanup:
    return status;
}
