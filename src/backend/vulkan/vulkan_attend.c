/* Attention groups: of a single token, whose positions are split over workgroups, or of a batch. */
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
    MULTIPROCESSORS = 128, /* of a large GPU */
    BYTES_AHEAD = 160      /* weight bytes that an invocation loads before it needs them */
};

/* Shared memory of attend_one.comp, in floats. */
enum { MOST_PARTS = 4096, MOST_ROWS = 2048 };

/* Arguments for the two ropes and the append, which a single token's attention executes itself. */
static void fuse_ropes(
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
 * At least as many workgroups as the device has multiprocessors; Vulkan does not report their number.
 * Workgroups that compute queries are at most as many: each split repeats the projection, and a split that
 * waits for a free multiprocessor starts it late. On a processor, more splits gain nothing.
 */
static uint32_t splits_shift_for(const struct executor *executor, uint32_t groups, bool projects)
{
    uint32_t shift = 1;
    while (!executor->device.physical->features.processor && shift < SPLITS_SHIFT &&
           (projects ? groups << (shift + 1) <= MULTIPROCESSORS : groups << shift < MULTIPROCESSORS))
        shift++;
    return shift;
}

/* Invocations that share a position, as a power of two: at most one per unit of 8 elements (F32: 4). */
static uint32_t lanes_shift_for(const struct executor *executor, uint32_t head_dim)
{
    const uint32_t units = head_dim / (executor->options.kv_type == TYPE_F32 ? 4 : 8);
    uint32_t shift = 0;
    while (2U << shift <= units && shift < 5)
        shift++;
    return shift;
}

/* The shape of a workgroup for a single token. */
struct workgroup {
    uint32_t threads, heads; /* heads of one kv head in one workgroup */
    uint32_t lanes_shift, reach_shift, at_once;
};

/*
 * With subgroups of 32 or more, workgroups are large: all positions of a short context are then loaded at
 * once. A workgroup has as many heads as fit into shared memory.
 */
static struct workgroup workgroup_for(
    const struct executor *executor, uint32_t group_heads, uint32_t head_dim)
{
    const struct vulkan_physical *physical = executor->device.physical;
    const bool is_large = physical->features.subgroup && physical->subgroup_size >= 32 &&
                          physical->limits.maxComputeWorkGroupInvocations >= LARGE_THREADS;
    struct workgroup workgroup = {.threads = ATTEND_THREADS,
        .heads = MOST_HEADS,
        .lanes_shift = lanes_shift_for(executor, head_dim),
        .at_once = is_large ? 1 : 2};
    workgroup.reach_shift = workgroup.lanes_shift;
    while (physical->features.subgroup && 1U << workgroup.reach_shift < physical->subgroup_size &&
           1U << workgroup.reach_shift < ATTEND_THREADS)
        workgroup.reach_shift++;
    while (workgroup.heads > 1 &&
           (group_heads % workgroup.heads || (workgroup.heads + 2) * head_dim > MOST_ROWS ||
               (workgroup.threads >> workgroup.reach_shift) * workgroup.heads * head_dim > MOST_PARTS))
        workgroup.heads--;
    while (is_large && workgroup.threads < LARGE_THREADS &&
           (workgroup.threads * 2 >> workgroup.reach_shift) * workgroup.heads * head_dim <= MOST_PARTS)
        workgroup.threads *= 2;
    return workgroup;
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

/* How the rows that attention projects itself are divided among invocations: the blocks of a piece, as a
 * power of two, and the pieces that an invocation loads ahead. */
struct row_split {
    uint32_t piece_shift, ahead;
};

/* A piece of two blocks leaves half as many partial sums as one block; more blocks if the sums do not fit
 * into shared memory. */
static struct row_split row_split_for(uint32_t threads, uint32_t rows, uint32_t blocks, uint32_t block_bytes)
{
    uint32_t shift = 1;
    while (rows * ((blocks + (1U << shift) - 1) >> shift) > MOST_PARTS)
        shift++;
    const uint32_t pieces = rows * ((blocks + (1U << shift) - 1) >> shift),
                   dealt = (pieces + threads - 1) / threads, most = BYTES_AHEAD / block_bytes >> shift;
    return (struct row_split){shift, dealt < most ? dealt : most ? most : 1};
}

/* The constants of a pipeline whose attention computes query, key and value itself. */
static void specialise_projection(const struct executor *executor, const struct group *group,
    struct workgroup workgroup, struct pipeline_constants *constants)
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
    const struct row_split split = row_split_for(
        workgroup.threads, (workgroup.heads + 2) * constants->head_dim, constants->columns / 32, block_bytes);
    constants->extra |= split.piece_shift << ATTEND_PIECE | split.ahead << ATTEND_AHEAD;
}

static enum salvo_status add_single(struct compiling *compiling, uint32_t index, struct workgroup workgroup,
    const struct op *op, struct attend_arguments arguments)
{
    enum salvo_status status = SALVO_OK;
    struct executor *executor = compiling->executor;
    const struct group *group = &compiling->plan->lowered.groups[index];
    const bool projects = group->kind == GROUP_PROJECT_ATTEND,
               fuses_ropes = vulkan_fuses_ropes(executor, group);
    const uint32_t groups = op->attend.heads / workgroup.heads;
    struct {
        struct attend_arguments attend;
        union {
            struct attend_token token;
            struct project_token project;
        };
    } all = {.attend = arguments};
    static_assert(sizeof all <= MAX_ARGUMENT_BYTES, "every device takes as many bytes");
    struct pipeline_constants constants = {
        .threads = workgroup.threads,
        .extra = workgroup.heads | workgroup.lanes_shift << 4 | workgroup.reach_shift << 8 |
                 workgroup.at_once << 12,
        .state_types = 1U << executor->options.kv_type,
        .head_dim = op->attend.head_dim,
    };
    struct dispatch *dispatch;
    uint32_t pipeline;
    if (projects)
        specialise_projection(executor, group, workgroup, &constants);
    TRY(vulkan_pipeline(
        &executor->pipelines, projects ? SHADER_PROJECT_ATTEND : SHADER_ATTEND_ONE, constants, &pipeline));
    TRY(vulkan_add_dispatch(compiling, index, pipeline, &all,
        sizeof all.attend + (projects ? sizeof all.project : sizeof all.token), &dispatch));
    bind_state(compiling, op, fuses_ropes, dispatch);
    memcpy(dispatch->groups, (uint32_t[]){groups, 1U << arguments.splits_shift, 1}, sizeof dispatch->groups);
    if (projects) {
        all.project = vulkan_project_token(compiling, group, dispatch);
    } else {
        all.token = (struct attend_token){.q = vulkan_arena_at(compiling, op->inputs[0]),
            .k = fuses_ropes ? vulkan_arena_at(compiling, op[-1].inputs[0]) : NO_OPERAND,
            .v = fuses_ropes ? vulkan_arena_at(compiling, op[-1].inputs[1]) : NO_OPERAND,
            .rotated = fuses_ropes};
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
    /* A workgroup that computes queries has one head: with more heads it would compute for longer. */
    const bool projects = group->kind == GROUP_PROJECT_ATTEND;
    const uint32_t most_heads = projects ? 1 : arguments.group_heads;
    const struct workgroup workgroup = workgroup_for(executor, most_heads, op->attend.head_dim);
    struct dispatch *dispatch;
    uint32_t pipeline;
    if (vulkan_fuses_ropes(executor, group))
        fuse_ropes(executor, op, &arguments);
    arguments.splits_shift = splits_shift_for(executor, op->attend.heads / workgroup.heads, projects);
    arguments.least = workgroup.threads > ATTEND_THREADS ? 2 * LEAST_POSITIONS : LEAST_POSITIONS;
    arguments.pages_at = executor->options.batch * ROW_WORDS + executor->options.outputs;
    arguments.pages = executor->state.pages_per_slot;
    arguments.counts_at = executor->split_counts_at;
    TRY(add_single(compiling, index, workgroup, op, arguments));
    if (executor->device.physical->features.subgroup)
        return SALVO_OK; /* the workgroup that ends last has merged the splits */
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
    if (!vulkan_fuses_ropes(executor, group) && group->ops_before)
        TRY(vulkan_compile_rows(compiling, index, group->first_op, group->ops_before, NO_BUFFER));
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
