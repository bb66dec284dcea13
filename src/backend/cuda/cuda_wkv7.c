/*
 * Recognises RWKV-7's ops around a wkv7 in the tables of its phase: one record then has all parameters, and
 * the device interprets nothing.
 */
#include "backend/cuda/cuda_phase.h"

/* A vector that is loaded, and that no op writes. */
static bool describe_loaded(const struct cuda_inputs *inputs, uint32_t place, uint64_t *out)
{
    *out = cuda_op_at(inputs, place) ? 0 : cuda_load_at(inputs, place);
    return *out != 0;
}

/* v, or a mixture of it with the first layer's. */
static bool describe_value(
    const struct cuda_inputs *inputs, const struct cuda_wkv7 *wkv7, struct cuda_wkv7_record *out)
{
    const struct cuda_row_op *mix = cuda_op_at(inputs, wkv7->places[3]);
    if (!mix)
        return describe_loaded(inputs, wkv7->places[3], &out->in[CUDA_WKV7_V]);
    return mix->kind == OP_LERP && !mix->weight &&
           describe_loaded(inputs, mix->in[0], &out->in[CUDA_WKV7_V]) &&
           describe_loaded(inputs, mix->in[1], &out->in[CUDA_WKV7_V_FIRST]) &&
           describe_loaded(inputs, mix->in[2], &out->in[CUDA_WKV7_V_SHARE]);
}

/* The direction and the key, both made of one k. */
static bool describe_key(
    const struct cuda_inputs *inputs, const struct cuda_wkv7 *wkv7, struct cuda_wkv7_record *out)
{
    const struct cuda_row_op *key = cuda_op_at(inputs, wkv7->places[2]),
                             *direction = cuda_op_at(inputs, wkv7->places[4]);
    if (!key || key->kind != OP_RWKV_KEY || key->in[1] != wkv7->places[5] || !direction ||
        direction->kind != OP_L2_NORM || direction->group != wkv7->head_dim || !direction->weight ||
        direction->in[0] != key->in[0])
        return false;
    out->key = key->weight;
    out->direction = direction->weight;
    out->least_square = direction->value * direction->value;
    return describe_loaded(inputs, key->in[0], &out->in[CUDA_WKV7_K]);
}

static bool describe_norm(
    const struct cuda_row_op *op, const struct cuda_wkv7 *wkv7, struct cuda_wkv7_record *out)
{
    out->norm = op->weight;
    out->norm_bias = op->bias;
    out->epsilon = op->value;
    return op->in[0] == wkv7->out_place && op->group == wkv7->head_dim && op->weight && op->bias;
}

static bool describe_bonus(
    const struct cuda_row_op *op, const struct cuda_wkv7 *wkv7, struct cuda_wkv7_record *out)
{
    out->bonus = op->weight;
    return op->kind == OP_RWKV_BONUS && op->in[0] == wkv7->out_place && op->in[1] == wkv7->places[0] &&
           op->in[2] == wkv7->places[2] && op->in[3] == wkv7->places[3] && op->head_dim == wkv7->head_dim;
}

/* A norm if there is one, the bonus, a gate if there is one: each in place. */
static bool describe_after(const struct cuda_inputs *inputs, const struct cuda_wkv7 *wkv7,
    const struct cuda_after *after, struct cuda_wkv7_record *out)
{
    const struct cuda_row_op *op = after->ops, *end = op + after->op_count;
    for (uint32_t i = 0; i < after->op_count; i++) {
        if (op[i].out != wkv7->out_place)
            return false;
    }
    if (op != end && op->kind == OP_LAYER_NORM && !describe_norm(op++, wkv7, out))
        return false;
    if (op == end || !describe_bonus(op++, wkv7, out))
        return false;
    if (op != end && op->kind == OP_MUL && op->in[0] == wkv7->out_place) {
        if (!describe_loaded(inputs, op->in[1], &out->in[CUDA_WKV7_GATE]))
            return false;
        op++;
    }
    out->out = after->store_count ? after->stores[0].to : 0;
    return op == end && after->store_count == 1 && after->stores[0].place == wkv7->out_place;
}

bool cuda_describe_wkv7(const struct cuda_inputs *inputs, const struct cuda_wkv7 *wkv7,
    const struct cuda_after *after, struct cuda_wkv7_record *out)
{
    *out = (struct cuda_wkv7_record){.state = wkv7->state};
    if (wkv7->head_dim != CUDA_WKV7_COLUMNS || !describe_value(inputs, wkv7, out) ||
        !describe_key(inputs, wkv7, out) || !describe_after(inputs, wkv7, after, out))
        return false;
    const uint32_t known = out->in[CUDA_WKV7_V_SHARE] ? 3 : 2; /* ops: each was found by what it makes */
    return inputs->op_count == known && describe_loaded(inputs, wkv7->places[0], &out->in[CUDA_WKV7_R]) &&
           describe_loaded(inputs, wkv7->places[1], &out->in[CUDA_WKV7_W]) &&
           describe_loaded(inputs, wkv7->places[5], &out->in[CUDA_WKV7_A]);
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
