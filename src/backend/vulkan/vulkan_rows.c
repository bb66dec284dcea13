/* Chains of row ops: a table of ops for rows.comp. */
#include "backend/vulkan/vulkan_executor.h"

#include "base/memory.h"

/* A processor runs the invocations of a workgroup in turn between barriers, so few are faster. */
enum { ROWS_THREADS = 256, PROCESSOR_THREADS = 16 };

static enum salvo_status add_row_op(struct vulkan_plan *plan, struct row_op op)
{
    enum salvo_status status = SALVO_OK;
    TRY(GROW(&plan->row_ops, plan->row_op_count, &plan->row_op_capacity));
    plan->row_ops[plan->row_op_count++] = op;
cleanup:
    return status;
}

static uint32_t input_at(const struct compiling *compiling, const struct op *op, int index)
{
    const buffer_id input = op->inputs[index];
    if (input == NO_BUFFER)
        return NO_OPERAND;
    return compiling->executor->program->buffers[input].kind == BUFFER_WEIGHT
               ? vulkan_vector_at(compiling, input)
               : vulkan_arena_at(compiling, input);
}

static void fill_rope(const struct compiling *compiling, const struct op *op, struct row_op *out)
{
    const struct rope *rope = &compiling->executor->program->ropes[op->rope.rope];
    out->group = op->rope.head_dim;
    out->rope = compiling->executor->rope_offsets[op->rope.rope];
    out->dimensions = rope->dimensions;
    out->halves = rope->halves;
}

static struct row_op row_op_of(const struct compiling *compiling, const struct op *op)
{
    const struct program *program = compiling->executor->program;
    const buffer_id shape = op->out == NO_BUFFER ? op->inputs[0] : op->out;
    struct row_op result = {
        .kind = op->kind,
        .columns = (uint32_t)program->buffers[shape].columns,
        .to = op->out == NO_BUFFER ? 0 : vulkan_arena_at(compiling, op->out),
        .x = op->kind == OP_EMBED ? 0 : input_at(compiling, op, 0),
        .weight = NO_OPERAND,
        .bias = NO_OPERAND,
    };
    switch (op->kind) {
    case OP_EMBED:
        result.number = op->embed.scale;
        break;
    case OP_RMS_NORM:
    case OP_L2_NORM:
    case OP_LAYER_NORM:
        result.group = op->layer_norm.group;
        result.number = op->layer_norm.epsilon;
        result.weight = input_at(compiling, op, 1);
        result.bias = op->kind == OP_LAYER_NORM ? input_at(compiling, op, 2) : NO_OPERAND;
        break;
    case OP_ROPE:
        fill_rope(compiling, op, &result);
        break;
    case OP_KV_APPEND:
        result.y = input_at(compiling, op, 1);
        result.group = op->kv_append.head_dim;
        result.type = compiling->executor->options.kv_type;
        result.head_words = vulkan_head_words(compiling->executor, op->kv_append.key_state);
        break;
    case OP_GLU:
        result.y = input_at(compiling, op, 1);
        result.activation = op->glu.activation;
        break;
    case OP_MUL:
        result.y = input_at(compiling, op, 1);
        break;
    case OP_LERP:
    case OP_RWKV_KEY:
        result.y = input_at(compiling, op, 1);
        result.weight = input_at(compiling, op, 2);
        result.weight_is_scratch = program->buffers[op->inputs[2]].kind != BUFFER_WEIGHT;
        break;
    case OP_TOKEN_SHIFT:
        result.state = (uint32_t)compiling->executor->state.recurrent_offsets[op->token_shift.state];
        break;
    case OP_RWKV_BONUS:
        result.group = op->rwkv_bonus.head_dim;
        result.y = input_at(compiling, op, 1);
        result.z = input_at(compiling, op, 2);
        result.u = input_at(compiling, op, 3);
        result.weight = input_at(compiling, op, 4);
        break;
    case OP_SOFTCAP:
        result.number = op->softcap.cap;
        break;
    default:
        break;
    }
    result.groups = result.group ? result.columns / result.group : 0;
    return result;
}

/* The formats of all embedding tables. */
static uint64_t table_types(const struct program *program)
{
    uint64_t types = 0;
    for (uint32_t i = 0; i < program->op_count; i++) {
        if (program->ops[i].kind == OP_EMBED)
            types |= UINT64_C(1) << program->buffers[program->ops[i].inputs[0]].type;
    }
    return types;
}

/* Adds a dispatch over the row ops from `first` on; the caller binds the buffers of its op. */
static enum salvo_status add_rows(
    struct compiling *compiling, uint32_t group, enum row_kind rows, uint32_t first, struct dispatch **out)
{
    enum salvo_status status = SALVO_OK;
    struct executor *executor = compiling->executor;
    const struct rows_arguments arguments = {
        .first_op = first,
        .op_count = compiling->plan->row_op_count - first,
        .row_kind = rows,
        .recurrent_elements = (uint32_t)executor->state.recurrent_elements,
    };
    const struct pipeline_constants constants = {
        .threads = executor->device.physical->features.processor ? PROCESSOR_THREADS : ROWS_THREADS,
        .types = table_types(executor->program)};
    uint32_t pipeline;
    TRY(vulkan_pipeline(&executor->pipelines, SHADER_ROWS, constants, &pipeline));
    TRY(vulkan_add_dispatch(compiling, group, pipeline, &arguments, sizeof arguments, out));
    (*out)->groups[0] = vulkan_most_rows(executor, compiling->plan->lowered.capacity[rows]);
    vulkan_bind(*out, BIND_VECTORS, &executor->vectors, false);
    vulkan_bind(*out, BIND_TABLE, &compiling->plan->row_table, false);
    vulkan_bind(*out, BIND_ROUNDED, &executor->rounded, true);
    vulkan_bind(*out, BIND_RECURRENT, &executor->recurrent, true);
    vulkan_bind(*out, BIND_TOKENS, &executor->tokens, false);
    vulkan_bind(*out, BIND_ROPES, &executor->ropes, false);
cleanup:
    return status;
}

/* A table in several slices has a dispatch for each: a dispatch skips the ids that are not in its slice. */
static enum salvo_status add_embed(struct compiling *compiling, uint32_t group, const struct op *op)
{
    enum salvo_status status = SALVO_OK;
    struct executor *executor = compiling->executor;
    const struct vulkan_weight *weight = &executor->weights[op->inputs[0]];
    for (uint32_t i = 0; i < weight->slice_count; i++) {
        const struct weight_slice *slice = &weight->slices[i];
        struct row_op row = row_op_of(compiling, op);
        struct dispatch *dispatch;
        row.type = executor->program->buffers[op->inputs[0]].type;
        row.codes = slice->codes;
        row.high = slice->high;
        row.scales = slice->scales;
        row.first_row = slice->first_row;
        row.row_count = slice->rows;
        uint32_t first = compiling->plan->row_op_count;
        TRY(add_row_op(compiling->plan, row));
        TRY(add_rows(compiling, group, op->rows, first, &dispatch));
        vulkan_bind(dispatch, BIND_WEIGHTS, &executor->weight_buffers[slice->buffer], false);
    }
cleanup:
    return status;
}

enum salvo_status vulkan_compile_rows(
    struct compiling *compiling, uint32_t group, uint32_t first_op, uint32_t op_count, buffer_id rounded)
{
    enum salvo_status status = SALVO_OK;
    struct executor *executor = compiling->executor;
    const struct program *program = executor->program;
    struct vulkan_plan *plan = compiling->plan;
    struct dispatch *dispatch;
    uint32_t first = plan->row_op_count;
    const struct op *append = NULL;
    enum row_kind rows = plan->lowered.groups[group].rows;
    for (uint32_t i = 0; i < op_count; i++) {
        const struct op *op = &program->ops[first_op + i];
        rows = op->rows;
        if (op->kind == OP_EMBED) { /* always the first op of its chain */
            if (!vulkan_fuses_embed(compiling, op))
                TRY(add_embed(compiling, group, op));
            first = plan->row_op_count;
            continue;
        }
        TRY(add_row_op(plan, row_op_of(compiling, op)));
        append = op->kind == OP_KV_APPEND ? op : append;
    }
    if (rounded != NO_BUFFER) {
        TRY(add_row_op(plan, (struct row_op){.kind = vulkan_uses_halves(compiling) ? ROW_HALVES : ROW_ROUND,
                                 .columns = (uint32_t)program->buffers[rounded].columns,
                                 .x = vulkan_arena_at(compiling, rounded)}));
    }
    if (plan->row_op_count == first)
        return SALVO_OK;
    TRY(add_rows(compiling, group, rows, first, &dispatch));
    if (append) {
        vulkan_bind(dispatch, BIND_KEYS, &executor->kv_pages[append->kv_append.key_state], true);
        vulkan_bind(dispatch, BIND_VALUES, &executor->kv_pages[append->kv_append.value_state], true);
    }
cleanup:
    return status;
}
