/* Turns the ops of a plan into dispatches (metal_dispatch.c), and finds the barriers between them. */
#include "backend/metal/metal_executor.h"

#include "base/memory.h"

#include <assert.h>

#define SAME(ours, theirs) static_assert((int)(ours) == (int)(theirs), "one number on both sides")
SAME(METAL_SOURCE_LAST, SOURCE_LAST);
SAME(METAL_LOGITS_LAST, LOGITS_LAST);
SAME(METAL_ROWS_TOKENS, ROWS_TOKENS);
SAME(METAL_ROWS_RUNS, ROWS_RUNS);
SAME(METAL_ROWS_OUTPUTS, ROWS_OUTPUTS);
SAME(METAL_PAGE_POSITIONS, PAGE_POSITIONS);
SAME(METAL_STOP_IDS, MAX_STOP_IDS);
SAME(METAL_RMS_NORM, OP_RMS_NORM);
SAME(METAL_LAYER_NORM, OP_LAYER_NORM);
SAME(METAL_L2_NORM, OP_L2_NORM);
SAME(METAL_GLU, OP_GLU);
SAME(METAL_ADD, OP_ADD);
SAME(METAL_MUL, OP_MUL);
SAME(METAL_LERP, OP_LERP);
SAME(METAL_RWKV_KEY, OP_RWKV_KEY);
SAME(METAL_SELECT_ROWS, OP_SELECT_ROWS);
SAME(METAL_SOFTCAP, OP_SOFTCAP);
SAME(METAL_SILU, ACTIVATION_SILU);
SAME(METAL_GELU, ACTIVATION_GELU);
SAME(METAL_TANH, ACTIVATION_TANH);
SAME(METAL_SIGMOID, ACTIVATION_SIGMOID);
SAME(METAL_RELU_SQUARED, ACTIVATION_RELU_SQUARED);
SAME(METAL_DECAY, ACTIVATION_DECAY);
SAME(METAL_F32, TYPE_F32);
SAME(METAL_F16, TYPE_F16);
SAME(METAL_Q4_0, TYPE_Q4_0);
SAME(METAL_Q4_1, TYPE_Q4_1);
SAME(METAL_Q5_0, TYPE_Q5_0);
SAME(METAL_Q5_1, TYPE_Q5_1);
SAME(METAL_Q8_0, TYPE_Q8_0);
SAME(METAL_Q2_K, TYPE_Q2_K);
SAME(METAL_Q3_K, TYPE_Q3_K);
SAME(METAL_Q4_K, TYPE_Q4_K);
SAME(METAL_Q5_K, TYPE_Q5_K);
SAME(METAL_Q6_K, TYPE_Q6_K);
SAME(METAL_IQ4_NL, TYPE_IQ4_NL);
SAME(METAL_IQ4_XS, TYPE_IQ4_XS);
SAME(METAL_BF16, TYPE_BF16);
SAME(METAL_MXFP4, TYPE_MXFP4);

/* ---- Barriers ---- */

static struct memory_use use_of(const struct compiling *compiling, buffer_id id, bool writes)
{
    const struct executor *executor = compiling->executor;
    const struct program_buffer *buffer = &executor->program->buffers[id];
    const uint64_t row_bytes = buffer->columns * sizeof(float);
    if (buffer->kind == BUFFER_SCRATCH)
        return (struct memory_use){compiling->arena, metal_arena_at(compiling, id) * sizeof(float),
            compiling->plan->lowered.capacity[buffer->row_kind] * row_bytes, writes};
    if (buffer->kind == BUFFER_RECURRENT)
        return (struct memory_use){
            &executor->recurrent, executor->state.recurrent_offsets[id] * sizeof(float), row_bytes, writes};
    if (id == executor->program->tokens)
        return (struct memory_use){&executor->tokens, 0, UINT64_MAX, writes};
    return (struct memory_use){&executor->kv_pages[id], 0, UINT64_MAX, writes};
}

static struct memory_use use_of_step(const struct compiling *compiling, bool writes)
{
    return (struct memory_use){&compiling->executor->ring, 0, UINT64_MAX, writes};
}

static void add_uses(const struct compiling *compiling, struct metal_dispatch *dispatch, uint32_t op)
{
    const struct program *program = compiling->executor->program;
    buffer_id buffers[OP_MAX_BUFFERS];
    uint32_t count = op_reads(program, op, buffers);
    for (uint32_t i = 0; i < count; i++) {
        if (program->buffers[buffers[i]].kind != BUFFER_WEIGHT)
            metal_add_use(dispatch, use_of(compiling, buffers[i], false));
    }
    count = op_writes(program, op, buffers);
    for (uint32_t i = 0; i < count; i++)
        metal_add_use(dispatch, use_of(compiling, buffers[i], true));
    metal_add_use(dispatch, use_of_step(compiling, program->ops[op].kind == OP_SAMPLE));
}

static struct dispatch_uses uses_of(const void *plan, uint32_t dispatch)
{
    const struct metal_dispatch *used = &((const struct metal_plan *)plan)->dispatches[dispatch];
    return (struct dispatch_uses){used->uses, used->use_count};
}

/* ---- Plans ---- */

static bool is_one_of(const struct op *op, const struct op *first, uint32_t count)
{
    return first && op >= first && op < first + count;
}

/* Whether the op is a part of the matmul or the attention of its group. Attention that is split reads
 * projections. */
static bool is_included(
    const struct compiling *compiling, const struct op *op, const struct group_fusion *fusion)
{
    return op == fusion->norm || is_one_of(op, fusion->gated, 2) || is_one_of(op, fusion->ropes, 3) ||
           (is_one_of(op, fusion->projections, 3) && !metal_splits(compiling, fusion->ropes + 3));
}

/* A matmul that attention includes unless it is split. */
static void leave_to_attention(struct metal_dispatch *dispatch)
{
    dispatch->large = dispatch->shape;
    dispatch->large_positions = METAL_SPLIT_POSITIONS;
    dispatch->shape.groups = 0;
}

/* The buffers that a dispatch uses for the ops that it includes. */
static void add_included_uses(
    const struct compiling *compiling, const struct op *op, const struct group_fusion *fusion)
{
    struct metal_dispatch *last = &compiling->plan->dispatches[compiling->plan->dispatch_count - 1];
    if (op->kind == OP_MATMUL && fusion->norm)
        metal_add_use(last, use_of(compiling, fusion->norm->inputs[0], false));
    if (op->kind == OP_MATMUL && fusion->gated)
        metal_add_use(last, use_of(compiling, fusion->gated[1].out, true));
}

/* An op; a matmul or attention with the ops that `fusion` names, which have no dispatch of their own. */
static enum salvo_status compile_op(
    struct compiling *compiling, uint32_t index, const struct group_fusion *fusion)
{
    enum salvo_status status = SALVO_OK;
    const struct op *op = &compiling->executor->program->ops[index];
    const uint32_t first = compiling->plan->dispatch_count;
    if (is_included(compiling, op, fusion))
        return SALVO_OK;
    switch (op->kind) {
    case OP_MATMUL:
        TRY(metal_compile_matmul(compiling, op, fusion));
        if (fusion->projections)
            leave_to_attention(&compiling->plan->dispatches[first]);
        break;
    case OP_KV_APPEND:
        TRY(metal_compile_append(compiling, op));
        break;
    case OP_ATTEND:
        TRY(metal_compile_attend(compiling, op, fusion));
        break;
    case OP_WKV7:
        TRY(metal_compile_wkv7(compiling, op));
        break;
    case OP_SAMPLE:
        TRY(metal_compile_sample(compiling, op));
        break;
    default:
        TRY(metal_compile_row_op(compiling, op));
    }
    for (uint32_t i = first; i < compiling->plan->dispatch_count; i++)
        add_uses(compiling, &compiling->plan->dispatches[i], index);
    add_included_uses(compiling, op, fusion);
    if (op->kind == OP_ATTEND && fusion->ropes)
        add_uses(compiling, &compiling->plan->dispatches[first], index - 1); /* of the append */
    if (op->kind == OP_ATTEND && fusion->projections)
        metal_add_use(&compiling->plan->dispatches[first], use_of(compiling, fusion->norm->inputs[0], false));
cleanup:
    return status;
}

/* The first dispatch of a token, which takes the step. */
static enum salvo_status compile_begin(struct compiling *compiling)
{
    enum salvo_status status = SALVO_OK;
    const struct executor *executor = compiling->executor;
    const struct begin_arguments arguments = {0};
    struct metal_dispatch *dispatch;
    TRY(metal_add_dispatch(compiling, "begin", NULL, METAL_ROW_THREADS, &dispatch));
    metal_set_arguments(dispatch, &arguments, sizeof arguments);
    metal_bind_step(compiling, dispatch);
    metal_bind(dispatch, &executor->next);
    metal_bind(dispatch, &executor->tokens);
    dispatch->shape.rows_per_group = 0;
    dispatch->begins = true;
    metal_add_use(dispatch, use_of_step(compiling, true));
    metal_add_use(dispatch, use_of(compiling, executor->program->tokens, true));
cleanup:
    return status;
}

static struct group_fusion fusion_of(const struct compiling *compiling, const struct group *group)
{
    return group->kind == GROUP_PROJECT_ATTEND ? metal_projection_fusion(compiling, group)
           : group->kind == GROUP_ATTEND       ? metal_attend_fusion(compiling, group)
                                               : metal_matmul_fusion(compiling, group);
}

enum salvo_status metal_plan_compile(struct compiling *compiling)
{
    enum salvo_status status = SALVO_OK;
    struct metal_plan *plan = compiling->plan;
    TRY(NEW(&plan->first_dispatch, plan->lowered.group_count + 1));
    TRY(compile_begin(compiling));
    for (uint32_t i = 0; i < plan->lowered.group_count; i++) {
        const struct group *group = &plan->lowered.groups[i];
        const struct group_fusion fusion = fusion_of(compiling, group);
        plan->first_dispatch[i] = plan->dispatch_count;
        for (uint32_t j = 0; j < group->op_count; j++)
            TRY(compile_op(compiling, group->first_op + j, &fusion));
    }
    plan->first_dispatch[plan->lowered.group_count] = plan->dispatch_count;
    TRY(NEW(&plan->waits, plan->dispatch_count));
    plan->barriers = find_barriers(plan, plan->dispatch_count, uses_of, plan->waits);
cleanup:
    return status;
}
