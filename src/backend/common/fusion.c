#include "backend/common/fusion.h"

const struct op *group_op(const struct program *program, const struct group *group)
{
    return &program->ops[group->first_op + group->ops_before];
}

bool is_weight(const struct program *program, buffer_id buffer)
{
    return buffer != NO_BUFFER && program->buffers[buffer].kind == BUFFER_WEIGHT;
}

bool is_whole_norm(const struct program *program, const struct op *op)
{
    if (op->kind == OP_RMS_NORM)
        return op->rms_norm.group == program->buffers[op->out].columns && is_weight(program, op->inputs[1]);
    return op->kind == OP_LAYER_NORM && op->layer_norm.group == program->buffers[op->out].columns &&
           is_weight(program, op->inputs[1]) && is_weight(program, op->inputs[2]);
}

/* ---- Inputs of matmuls ---- */

bool group_matmul_inputs(const struct program *program, const struct group *group, struct matmul_inputs *out)
{
    const struct op *op = &program->ops[group->first_op], *end = op + group->ops_before;
    *out = (struct matmul_inputs){.x = NO_BUFFER, .normed = NO_BUFFER};
    if (op == end)
        return true;
    out->x = out->normed = op->inputs[0];
    if (op->kind == OP_SELECT_ROWS)
        out->normed = (op++)->out;
    if (op < end && is_whole_norm(program, op) && op->inputs[0] == out->normed) {
        out->norm = op;
        out->normed = (op++)->out;
    }
    if (op < end && op->kind == OP_TOKEN_SHIFT && op->inputs[0] == out->normed)
        out->shift = op++;
    out->lerps = op;
    while (op < end && out->shift && op->kind == OP_LERP && op->inputs[0] == out->normed &&
           op->inputs[1] == out->shift->out && is_weight(program, op->inputs[2]))
        op++;
    out->lerp_count = (uint32_t)(op - out->lerps);
    return op == end && (!out->shift || out->lerp_count);
}

const struct op *matmul_inputs_lerp(const struct matmul_inputs *inputs, buffer_id input)
{
    for (uint32_t i = inputs->lerp_count; i > 0; i--) { /* a later lerp overwrites an earlier one */
        if (inputs->lerps[i - 1].out == input)
            return &inputs->lerps[i - 1];
    }
    return NULL;
}

/* ---- Joining groups ---- */

/* A softcap in place on the result of the only matmul of the group before it. */
static bool can_join_softcap(
    const struct program *program, const struct group *matmul, const struct group *softcap)
{
    const struct op *op = &program->ops[softcap->first_op];
    return matmul->kind == GROUP_MATMUL && matmul->matmuls == 1 && softcap->kind == GROUP_ROWS &&
           softcap->op_count == 1 && softcap->rounded_count == 0 && op->kind == OP_SOFTCAP &&
           op[-1].out == op->out;
}

struct projection group_projection(const struct program *program, const struct group *group)
{
    const struct op *norm = &program->ops[group->first_op];
    return (struct projection){
        .norm = norm, .matmuls = norm + 1, .ropes = norm + 4, .append = norm + 6, .attend = norm + 7};
}

/* Norm and three plain matmuls of it, whose results are read by ropes, kv_append and attention alone. */
static bool can_project(const struct program *program, const struct group *group)
{
    const struct projection parts = group_projection(program, group);
    for (uint32_t i = 0; i < 3; i++) {
        const struct op *matmul = &parts.matmuls[i];
        if (matmul->inputs[1] != parts.norm->out || matmul->matmul.accumulate ||
            matmul->matmul.activation != ACTIVATION_NONE ||
            value_is_read(program, matmul->out, group->first_op + group->op_count))
            return false;
    }
    return parts.norm->kind == OP_RMS_NORM && is_whole_norm(program, parts.norm) &&
           parts.matmuls[0].out == parts.attend->inputs[0] &&
           parts.matmuls[1].out == parts.append->inputs[0] && parts.matmuls[2].out == parts.append->inputs[1];
}

/* Joins `next` to `group` if the options ask for the result. */
static bool join(const struct program *program, const struct lowering_options *options, struct group *group,
    const struct group *next)
{
    struct group joined = *group;
    joined.op_count += next->op_count;
    if (options->softcaps_in_matmuls && can_join_softcap(program, group, next)) {
        *group = joined;
        return true;
    }
    if (!options->projects_attention || options->capacity[ROWS_TOKENS] > 1 || group->kind != GROUP_MATMUL ||
        group->ops_before != 1 || group->matmuls != 3 || next->kind != GROUP_ATTEND || next->ops_before != 3)
        return false;
    joined.kind = GROUP_PROJECT_ATTEND;
    joined.ops_before = group->op_count + next->ops_before;
    if (!can_project(program, &joined) || (options->takes && !options->takes(options->executor, &joined)))
        return false;
    *group = joined;
    return true;
}

void fuse_groups(const struct program *program, const struct lowering_options *options, struct plan *plan)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->group_count; i++) {
        const struct group group = plan->groups[i];
        if (count == 0 || !join(program, options, &plan->groups[count - 1], &group))
            plan->groups[count++] = group;
        for (uint32_t j = 0; j < group.op_count; j++)
            plan->group_of_op[group.first_op + j] = count - 1;
    }
    plan->group_count = count;
}

/* ---- wkv7 ---- */

static bool find_before(
    const struct program *program, const struct group *group, const struct op *wkv7, struct wkv7_parts *out)
{
    for (const struct op *op = wkv7 - group->ops_before; op < wkv7; op++) {
        if (value_is_read(program, op->out, group->first_op + group->op_count))
            return false;
        if (op->kind == OP_LERP && op->out == wkv7->inputs[3] && !out->lerp &&
            !is_weight(program, op->inputs[2]))
            out->lerp = op;
        else if (op->kind == OP_L2_NORM && op->out == wkv7->inputs[4] &&
                 op->l2_norm.group == wkv7->wkv7.head_dim && !out->direction)
            out->direction = op;
        else if (op->kind == OP_RWKV_KEY && op->out == wkv7->inputs[2] && op->inputs[1] == wkv7->inputs[5] &&
                 !out->key)
            out->key = op;
        else
            return false;
    }
    return out->direction && out->key && out->direction->inputs[0] == out->key->inputs[0];
}

/* In this order: norm, bonus, gate. */
static bool find_after(const struct group *group, const struct op *wkv7, struct wkv7_parts *out)
{
    for (const struct op *op = wkv7 + 1; op <= wkv7 + group->ops_after; op++) {
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

bool group_wkv7_parts(const struct program *program, const struct group *group, struct wkv7_parts *out)
{
    const struct op *wkv7 = group_op(program, group);
    *out = (struct wkv7_parts){0};
    return find_before(program, group, wkv7, out) && find_after(group, wkv7, out);
}
