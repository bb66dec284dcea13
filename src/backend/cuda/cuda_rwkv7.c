/*
 * Row ops of RWKV-7 in plans of many tokens that have kernels of their own (rwkv7_many.cu): which ops these
 * are, and the arguments of the kernels.
 */
#include "backend/cuda/cuda_phase.h"

#include "backend/common/fusion.h"

/* The address of a buffer if it is read from op `from` on, or else 0. */
static cuda_address address_if_read(const struct phase_builder *builder, buffer_id buffer, uint32_t from)
{
    return value_is_read(builder->program, buffer, from) ? phase_address(builder, buffer) : 0;
}

/* Where a result goes: to a packed input, and to its rows if an op reads them there. */
static void place_result(const struct phase_builder *builder, buffer_id buffer, uint32_t end,
    const struct packed_rows *packed, struct cuda_packed_input *out_packed, uint64_t *out_rows)
{
    uint32_t from = end;
    for (uint32_t i = 0; i < packed->count; i++) {
        if (packed->rows[i] != buffer ||
            phase_is_read_in_place(builder, packed->inputs[i].rounding, packed->rows[i]))
            continue;
        *out_packed = packed->inputs[i];
        from = packed->readers_end;
    }
    *out_rows = address_if_read(builder, buffer, from);
}

/* ---- Norm, token shift and lerps ---- */

static bool lerps_differ(const struct matmul_inputs *parts)
{
    for (uint32_t i = 0; i < parts->lerp_count; i++) {
        const buffer_id out = parts->lerps[i].out;
        if (out == parts->x || out == parts->normed || out == parts->shift->out)
            return false;
        for (uint32_t j = 0; j < i; j++) {
            if (parts->lerps[j].out == out)
                return false;
        }
    }
    return true;
}

static bool has_lerp_of_all(
    const struct phase_builder *builder, const struct packed_rows *packed, const struct matmul_inputs *parts)
{
    for (uint32_t i = 0; i < packed->count; i++) {
        if (!phase_is_read_in_place(builder, packed->inputs[i].rounding, packed->rows[i]) &&
            !matmul_inputs_lerp(parts, packed->rows[i]))
            return false;
    }
    return true;
}

bool cuda_find_mix(const struct phase_builder *builder, uint32_t first, uint32_t end,
    const struct packed_rows *packed, struct cuda_mix *out)
{
    const struct program *program = builder->program;
    const struct group ops = {.first_op = first, .ops_before = end - first};
    const struct op *op = &program->ops[first];
    struct matmul_inputs parts;
    if (first == end || op->rows != ROWS_TOKENS || op->kind == OP_SELECT_ROWS ||
        !group_matmul_inputs(program, &ops, &parts) || (!parts.norm && !parts.shift))
        return false;
    const uint32_t columns = (uint32_t)program->buffers[parts.x].columns;
    if (columns % 4 != 0 || columns > 4 * MIX_THREADS || parts.lerp_count > MIX_LERPS ||
        !lerps_differ(&parts) || !has_lerp_of_all(builder, packed, &parts))
        return false;
    /* Other blocks read the row that is normalised: nothing that the kernel writes may lie there. */
    if (parts.norm && parts.shift && (parts.normed == parts.x || !value_is_read(program, parts.x, end)))
        return false;
    *out = (struct cuda_mix){
        .x = phase_address(builder, parts.x), .columns = columns, .count = parts.lerp_count};
    if (parts.norm) {
        out->weight = phase_vector(builder, parts.norm->inputs[1]);
        out->bias = parts.norm->kind == OP_LAYER_NORM ? phase_vector(builder, parts.norm->inputs[2]) : 0;
        out->epsilon = parts.norm->rms_norm.epsilon;
        out->out = address_if_read(builder, parts.normed, end);
    }
    if (parts.shift) {
        out->state = builder->executor->state.recurrent_offsets[parts.shift->token_shift.state];
        out->before = address_if_read(builder, parts.shift->out, end);
        if (out->state % 4 != 0 || builder->executor->state.recurrent_elements % 4 != 0)
            return false;
    }
    for (uint32_t i = 0; i < parts.lerp_count; i++) {
        struct cuda_mix_lerp *lerp = &out->lerps[i];
        lerp->weight = phase_vector(builder, parts.lerps[i].inputs[2]);
        place_result(builder, parts.lerps[i].out, end, packed, &lerp->packed, &lerp->out);
    }
    return true;
}

/* ---- Around the recurrence ---- */

/* Whether no op reads the result of an earlier one. */
static bool are_independent(const struct program *program, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++) {
        for (uint32_t j = first; j < i; j++) {
            if (op_reads_buffer(program, i, program->ops[j].out) ||
                program->ops[i].out == program->ops[j].out)
                return false;
        }
    }
    return true;
}

bool cuda_find_wkv7_inputs(
    const struct phase_builder *builder, uint32_t first, uint32_t end, struct cuda_wkv7_inputs *out)
{
    const struct program *program = builder->program;
    const struct op *lerp = NULL, *direction = NULL, *key = NULL;
    for (const struct op *op = &program->ops[first]; op < &program->ops[end]; op++) {
        if (op->kind == OP_LERP && !is_weight(program, op->inputs[2]) && !lerp)
            lerp = op;
        else if (op->kind == OP_L2_NORM && is_weight(program, op->inputs[1]) && !direction)
            direction = op;
        else if (op->kind == OP_RWKV_KEY && !key)
            key = op;
        else
            return false;
    }
    if (!direction || !key || direction->rows != ROWS_TOKENS || direction->inputs[0] != key->inputs[0] ||
        !cuda_has_head_rows(direction->l2_norm.group) || !are_independent(program, first, end) ||
        (lerp && program->buffers[lerp->out].columns != program->buffers[key->out].columns))
        return false;
    *out = (struct cuda_wkv7_inputs){
        .k = phase_address(builder, key->inputs[0]),
        .a = phase_address(builder, key->inputs[1]),
        .direction_weight = phase_vector(builder, direction->inputs[1]),
        .key_weight = phase_vector(builder, key->inputs[2]),
        .kk = phase_address(builder, direction->out),
        .key = phase_address(builder, key->out),
        .columns = (uint32_t)program->buffers[key->out].columns,
        .head_dim = direction->l2_norm.group,
        .epsilon = direction->l2_norm.epsilon,
    };
    if (lerp) {
        out->v = phase_address(builder, lerp->inputs[0]);
        out->first = phase_address(builder, lerp->inputs[1]);
        out->share = phase_address(builder, lerp->inputs[2]);
        out->value = phase_address(builder, lerp->out);
    }
    return true;
}

/* The ops after a recurrence, each on the result of the one before. */
struct result_ops {
    const struct op *norm, *bonus, *gate; /* the first and the last are NULL where absent */
};

static bool find_result_ops(
    const struct program *program, uint32_t first, uint32_t end, struct result_ops *out)
{
    const struct op *op = &program->ops[first], *last = &program->ops[end];
    *out = (struct result_ops){0};
    if (op < last && op->kind == OP_LAYER_NORM && is_weight(program, op->inputs[1]) &&
        is_weight(program, op->inputs[2]))
        out->norm = op++;
    if (op < last && op->kind == OP_RWKV_BONUS)
        out->bonus = op++;
    if (op < last && out->bonus && op->kind == OP_MUL)
        out->gate = op++;
    if (op != last || !out->bonus)
        return false;
    /* All on the same rows, and none of the other inputs is a result. */
    for (uint32_t i = first; i < end; i++) {
        const struct op *of = &program->ops[i];
        if (of->rows != ROWS_TOKENS || of->inputs[0] != out->bonus->out || of->out != out->bonus->out)
            return false;
        for (int j = 1; j < 4; j++) {
            if (of->inputs[j] == of->out)
                return false;
        }
    }
    return true;
}

bool cuda_find_wkv7_results(const struct phase_builder *builder, uint32_t first, uint32_t end,
    const struct packed_rows *packed, struct cuda_wkv7_results *out)
{
    const struct program *program = builder->program;
    struct result_ops ops;
    if (!find_result_ops(program, first, end, &ops))
        return false;
    const struct op *bonus = ops.bonus;
    const uint32_t head_dim = bonus->rwkv_bonus.head_dim;
    if (!cuda_has_head_rows(head_dim) || (ops.norm && ops.norm->layer_norm.group != head_dim) ||
        packed->count > 1 || (packed->count && packed->rows[0] != bonus->out))
        return false;
    *out = (struct cuda_wkv7_results){
        .token_rows = builder->executor->machine.step + builder->executor->machine.rows_at,
        .y = phase_address(builder, bonus->out),
        .r = phase_address(builder, bonus->inputs[1]),
        .key = phase_address(builder, bonus->inputs[2]),
        .value = phase_address(builder, bonus->inputs[3]),
        .gate = ops.gate ? phase_address(builder, ops.gate->inputs[1]) : 0,
        .bonus_weight = phase_vector(builder, bonus->inputs[4]),
        .columns = (uint32_t)program->buffers[bonus->out].columns,
        .head_dim = head_dim,
    };
    if (ops.norm) {
        out->weight = phase_vector(builder, ops.norm->inputs[1]);
        out->bias = phase_vector(builder, ops.norm->inputs[2]);
        out->epsilon = ops.norm->layer_norm.epsilon;
    }
    place_result(builder, bonus->out, end, packed, &out->packed, &out->out);
    return true;
}
