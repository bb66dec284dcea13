/* Groups of attention: of a single token, whose positions are split over workgroups, or of a batch. */
#include "backend/common/fusion.h"
#include "backend/vulkan/vulkan_executor.h"

#include <assert.h>
#include <string.h>

enum {
    ATTEND_THREADS = 128,
    LARGE_THREADS = 512,
    MERGE_THREADS = 64,
    MOST_HEADS = 4,
    MOST_HEAD_DIM = 512,
    LEAST_POSITIONS = 64,
    MULTIPROCESSORS = 128, /* of a large device */
    BYTES_AHEAD = 160      /* of weights, on their way to an invocation */
};

/* What attend_one.comp has room for, in floats. */
enum { MOST_PARTS = 4096, MOST_ROWS = 2048 };

/* Rope, rope and append before a single token's attention, which it does itself. */
static void take_in_ropes(
    const struct executor *executor, const struct op *attend, struct attend_arguments *arguments)
{
    const struct op *ropes = attend - 3;
    const struct rope *rope = &executor->program->ropes[ropes[0].rope.rope];
    arguments->rope_q = executor->rope_offsets[ropes[0].rope.rope];
    arguments->rope_k = executor->rope_offsets[ropes[1].rope.rope];
    arguments->dimensions = rope->dimensions;
    arguments->halves = rope->halves;
}

/*
 * As many splits as there are multiprocessors to keep busy (how many, Vulkan does not tell), or more. Of
 * workgroups that make queries no more than those: each split makes them again, and one that has to wait for
 * a place begins with that late. A processor has no use for many.
 */
static uint32_t splits_shift_for(const struct executor *executor, uint32_t groups, bool projects)
{
    uint32_t shift = 1;
    while (!executor->device.physical->features.processor && shift < SPLITS_SHIFT &&
           (projects ? groups << (shift + 1) <= MULTIPROCESSORS : groups << shift < MULTIPROCESSORS))
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
    vulkan_bind(dispatch, BIND_KEYS, &executor->kv_pages[op->attend.key_state], writes);
    vulkan_bind(dispatch, BIND_VALUES, &executor->kv_pages[op->attend.value_state], writes);
    vulkan_bind(dispatch, BIND_ROPES, &executor->ropes, false);
    vulkan_bind(dispatch, BIND_PARTIALS, &executor->partials, true);
}

/* How the rows that attention makes itself are cut into pieces, and those dealt out: blocks of a piece, as a
 * power of two, and pieces that an invocation asks for at once. */
struct deal {
    uint32_t piece_shift, ahead;
};

/* Two blocks are fewer sums that meet than one; more where there is no room for so many. */
static struct deal deal_for(uint32_t threads, uint32_t rows, uint32_t blocks, uint32_t block_bytes)
{
    uint32_t shift = 1;
    while (rows * ((blocks + (1U << shift) - 1) >> shift) > MOST_PARTS)
        shift++;
    const uint32_t pieces = rows * ((blocks + (1U << shift) - 1) >> shift),
                   dealt = (pieces + threads - 1) / threads, most = BYTES_AHEAD / block_bytes >> shift;
    return (struct deal){shift, dealt < most ? dealt : most ? most : 1};
}

/* What the pipeline has to know where attention makes queries, key and value itself. */
static void specialise_projection(const struct executor *executor, const struct group *group,
    struct crew crew, struct pipeline_constants *constants)
{
    const struct op *matmuls = &executor->program->ops[group->first_op + 1];
    uint32_t block_bytes = 1;
    for (uint32_t i = 0; i < group->matmuls; i++) {
        const struct program_buffer *weight = &executor->program->buffers[matmuls[i].inputs[0]];
        const struct tensor_type_info *type = tensor_type_info(weight->type);
        const uint32_t bytes = type->block_bytes * 32 / type->block_elements;
        block_bytes = bytes > block_bytes ? bytes : block_bytes;
        constants->types |= UINT64_C(1) << weight->type;
        constants->columns = (uint32_t)weight->columns;
    }
    const struct deal deal =
        deal_for(crew.threads, (crew.heads + 2) * constants->head_dim, constants->columns / 32, block_bytes);
    constants->extra |= deal.piece_shift << ATTEND_PIECE | deal.ahead << ATTEND_AHEAD;
}

static enum salvo_status add_single(struct compiling *compiling, uint32_t index, struct crew crew,
    const struct op *op, struct attend_arguments arguments)
{
    enum salvo_status status = SALVO_OK;
    struct executor *executor = compiling->executor;
    const struct group *group = &compiling->plan->lowered.groups[index];
    const bool projects = group->kind == GROUP_PROJECT_ATTEND,
               takes_ropes = vulkan_takes_ropes(executor, group);
    const uint32_t groups = op->attend.heads / crew.heads;
    struct {
        struct attend_arguments attend;
        union {
            struct attend_token token;
            struct project_token project;
        };
    } all = {.attend = arguments};
    static_assert(sizeof all <= MAX_ARGUMENT_BYTES, "every device takes as many bytes");
    struct pipeline_constants constants = {
        .threads = crew.threads,
        .extra = crew.heads | crew.lanes_shift << 4 | crew.reach_shift << 8 | crew.at_once << 12,
        .state_types = 1U << executor->options.kv_type,
        .head_dim = op->attend.head_dim,
    };
    struct dispatch *dispatch;
    uint32_t pipeline;
    if (projects)
        specialise_projection(executor, group, crew, &constants);
    TRY(vulkan_pipeline(
        &executor->pipelines, projects ? SHADER_PROJECT_ATTEND : SHADER_ATTEND_ONE, constants, &pipeline));
    TRY(vulkan_add_dispatch(compiling, index, pipeline, &all,
        sizeof all.attend + (projects ? sizeof all.project : sizeof all.token), &dispatch));
    bind_state(compiling, op, takes_ropes, dispatch);
    memcpy(dispatch->groups, (uint32_t[]){groups, 1U << arguments.splits_shift, 1}, sizeof dispatch->groups);
    if (projects) {
        all.project = vulkan_project_token(compiling, group, dispatch);
    } else {
        all.token = (struct attend_token){.q = vulkan_arena_at(compiling, op->inputs[0]),
            .k = takes_ropes ? vulkan_arena_at(compiling, op[-1].inputs[0]) : ROW_NOTHING,
            .v = takes_ropes ? vulkan_arena_at(compiling, op[-1].inputs[1]) : ROW_NOTHING,
            .rotated = takes_ropes};
    }
    memcpy(dispatch->arguments, &all, dispatch->argument_bytes);
cleanup:
    return status;
}

static enum salvo_status compile_single(
    struct compiling *compiling, uint32_t index, const struct op *op, struct attend_arguments arguments)
{
    enum salvo_status status = SALVO_OK;
    struct executor *executor = compiling->executor;
    const struct group *group = &compiling->plan->lowered.groups[index];
    /* A workgroup that makes queries has one head, or it would make them for longer. */
    const bool projects = group->kind == GROUP_PROJECT_ATTEND;
    const uint32_t most_heads = projects ? 1 : arguments.group_heads;
    const struct crew crew = crew_for(executor, most_heads, op->attend.head_dim);
    struct dispatch *dispatch;
    uint32_t pipeline;
    if (vulkan_takes_ropes(executor, group))
        take_in_ropes(executor, op, &arguments);
    arguments.splits_shift = splits_shift_for(executor, op->attend.heads / crew.heads, projects);
    arguments.least = crew.threads > ATTEND_THREADS ? 2 * LEAST_POSITIONS : LEAST_POSITIONS;
    arguments.pages_at = executor->options.batch * ROW_WORDS + executor->options.outputs;
    arguments.pages = executor->state.pages_per_slot;
    arguments.counts_at = executor->split_counts_at;
    TRY(add_single(compiling, index, crew, op, arguments));
    if (executor->device.physical->features.subgroup)
        return SALVO_OK; /* the last to end has merged */
    const struct pipeline_constants merge = {.threads = MERGE_THREADS, .head_dim = op->attend.head_dim};
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
        .state_types = 1U << executor->options.kv_type,
        .head_dim = op->attend.head_dim,
    };
    const struct {
        struct attend_arguments attend;
        struct attend_token token;
    } all = {arguments, {.q = vulkan_arena_at(compiling, op->inputs[0])}};
    struct dispatch *dispatch;
    uint32_t pipeline;
    TRY(vulkan_pipeline(&executor->pipelines, SHADER_ATTEND, constants, &pipeline));
    TRY(vulkan_add_dispatch(compiling, index, pipeline, &all, sizeof all, &dispatch));
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
    const struct op *op = group_op(executor->program, group);
    if (!vulkan_takes_ropes(executor, group) && group->inner)
        TRY(vulkan_compile_rows(compiling, index, group->first_op, group->inner, NO_BUFFER));
    if (op->attend.head_dim > MOST_HEAD_DIM)
        TRY(fail(SALVO_ERROR_UNSUPPORTED, "heads of %u elements: the Vulkan kernels take at most %d",
            op->attend.head_dim, MOST_HEAD_DIM));
    const struct attend_arguments arguments = {
        .to = vulkan_arena_at(compiling, op->out),
        .kv_heads = op->attend.kv_heads,
        .group_heads = op->attend.heads / op->attend.kv_heads,
        .window = op->attend.window,
        .scale = op->attend.scale,
        .cap = op->attend.cap,
        .head_words = vulkan_head_words(executor, op->attend.key_state),
    };
    TRY(compiling->plan->lowered.capacity[ROWS_TOKENS] == 1 ? compile_single(compiling, index, op, arguments)
                                                            : compile_batch(compiling, index, op, arguments));
cleanup:
    return status;
}
