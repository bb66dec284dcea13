/*
 * The record of an RWKV-7 head: all parameters of the ops around a wkv7, so that the device interprets
 * nothing.
 */
#include "backend/cuda/cuda_phase.h"

bool cuda_describe_wkv7(
    const struct phase_builder *builder, const struct group *group, struct cuda_wkv7_record *head)
{
    const struct op *op = group_op(builder->program, group);
    struct wkv7_parts parts;
    *head = (struct cuda_wkv7_record){.state = builder->wkv7.state};
    if (op->wkv7.head_dim != CUDA_WKV7_COLUMNS || !group_wkv7_parts(builder->program, group, &parts) ||
        !parts.bonus || parts.bonus->rwkv_bonus.head_dim != op->wkv7.head_dim ||
        builder->table.store_count != 1 || builder->stores[0].place != builder->wkv7.out_place)
        return false;
    head->in[CUDA_WKV7_R] = phase_address(builder, op->inputs[0]);
    head->in[CUDA_WKV7_W] = phase_address(builder, op->inputs[1]);
    head->in[CUDA_WKV7_K] = phase_address(builder, parts.key->inputs[0]);
    head->in[CUDA_WKV7_A] = phase_address(builder, op->inputs[5]);
    head->in[CUDA_WKV7_V] = phase_address(builder, parts.lerp ? parts.lerp->inputs[0] : op->inputs[3]);
    if (parts.lerp) {
        head->in[CUDA_WKV7_V_FIRST] = phase_address(builder, parts.lerp->inputs[1]);
        head->in[CUDA_WKV7_V_SHARE] = phase_address(builder, parts.lerp->inputs[2]);
    }
    head->key = phase_vector(builder, parts.key->inputs[2]);
    head->direction = phase_vector(builder, parts.direction->inputs[1]);
    head->least_square = parts.direction->l2_norm.epsilon * parts.direction->l2_norm.epsilon;
    if (parts.norm) {
        head->norm = phase_vector(builder, parts.norm->inputs[1]);
        head->norm_bias = phase_vector(builder, parts.norm->inputs[2]);
        head->epsilon = parts.norm->layer_norm.epsilon;
    }
    head->bonus = phase_vector(builder, parts.bonus->inputs[4]);
    head->in[CUDA_WKV7_GATE] = parts.gate ? phase_address(builder, parts.gate->inputs[1]) : 0;
    head->out = builder->stores[0].to;
    return head->direction && (!parts.norm || (head->norm && head->norm_bias));
}

static void advance(uint64_t *address, uint64_t bytes)
{
    *address += *address ? bytes : 0;
}

void cuda_advance_wkv7(struct cuda_wkv7_record *record, uint32_t heads)
{
    const uint64_t columns = (uint64_t)heads * CUDA_WKV7_COLUMNS, bytes = columns * sizeof(float);
    for (int i = 0; i < CUDA_WKV7_INPUTS; i++)
        advance(&record->in[i], bytes);
    advance(&record->out, bytes);
    advance(&record->direction, bytes);
    advance(&record->key, bytes);
    advance(&record->bonus, bytes);
    advance(&record->norm, bytes);
    advance(&record->norm_bias, bytes);
    record->state += columns * CUDA_WKV7_COLUMNS;
}
