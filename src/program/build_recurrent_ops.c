/* The build_ functions of the ops of recurrent models. */
#include "program/op_checks.h"

void build_layer_norm(struct builder *builder, buffer_id out, buffer_id x, buffer_id weight, buffer_id bias,
    uint32_t group, float epsilon)
{
    op_add(builder, (struct op){.kind = OP_LAYER_NORM,
                        .out = out,
                        .inputs = INPUTS(x, weight, bias),
                        .layer_norm = {group, epsilon}});
}

void build_l2_norm(
    struct builder *builder, buffer_id out, buffer_id x, buffer_id weight, uint32_t group, float epsilon)
{
    op_add(builder,
        (struct op){
            .kind = OP_L2_NORM, .out = out, .inputs = INPUTS(x, weight), .l2_norm = {group, epsilon}});
}

void build_token_shift(struct builder *builder, buffer_id out, buffer_id x, buffer_id state)
{
    struct op op = {.kind = OP_TOKEN_SHIFT, .out = out, .inputs = INPUTS(x), .token_shift = {.state = state}};
    if (!op_check(builder, &op))
        return;
    op_require_state(builder, &op, 0, builder->program->buffers[x].columns);
    op_append(builder, &op);
}

void build_lerp(struct builder *builder, buffer_id out, buffer_id x, buffer_id y, buffer_id weight)
{
    op_add(builder, (struct op){.kind = OP_LERP, .out = out, .inputs = INPUTS(x, y, weight)});
}

void build_mul(struct builder *builder, buffer_id out, buffer_id x, buffer_id y)
{
    op_add(builder, (struct op){.kind = OP_MUL, .out = out, .inputs = INPUTS(x, y)});
}

void build_rwkv_key(struct builder *builder, buffer_id out, buffer_id k, buffer_id a, buffer_id weight)
{
    op_add(builder, (struct op){.kind = OP_RWKV_KEY, .out = out, .inputs = INPUTS(k, a, weight)});
}

void build_wkv7(
    struct builder *builder, buffer_id out, struct wkv7_inputs inputs, buffer_id state, uint32_t head_dim)
{
    struct op op = {.kind = OP_WKV7,
        .out = out,
        .inputs = INPUTS(inputs.r, inputs.w, inputs.k, inputs.v, inputs.kk, inputs.a),
        .wkv7 = {.state = state, .head_dim = head_dim}};
    if (!op_check(builder, &op))
        return;
    op.wkv7.heads = op_count_heads(builder, &op, out, head_dim);
    op_require_state(builder, &op, 0, (uint64_t)op.wkv7.heads * head_dim * head_dim);
    op_append(builder, &op);
}

void build_rwkv_bonus(struct builder *builder, buffer_id out, buffer_id x, buffer_id r, buffer_id k,
    buffer_id v, buffer_id weight, uint32_t head_dim)
{
    struct op op = {
        .kind = OP_RWKV_BONUS, .out = out, .inputs = INPUTS(x, r, k, v, weight), .rwkv_bonus = {head_dim}};
    if (!op_check(builder, &op))
        return;
    (void)op_count_heads(builder, &op, x, head_dim);
    op_append(builder, &op);
}
