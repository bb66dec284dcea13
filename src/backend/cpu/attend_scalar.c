/* The reference attention: one query and one key at a time, in the order that kernels.h defines. */
#include "backend/cpu/attend.h"
#include "backend/cpu/rows.h"
#include "quant/half.h"

#include <math.h>

/* Element d of position j. All conversions are exact. */
static float key_at(const struct kv_page *page, uint32_t d, uint32_t j)
{
    size_t at = (size_t)d * PAGE_POSITIONS + j;
    switch (page->type) {
    case TYPE_F32:
        return ((const float *)page->keys)[at];
    case TYPE_F16:
        return f16_to_f32(((const uint16_t *)page->keys)[at]);
    default:
        return (float)((const int8_t *)page->keys)[at] *
               f16_to_f32(page->key_scales[(size_t)(d / GROUP) * PAGE_POSITIONS + j]);
    }
}

static float value_at(const struct kv_page *page, uint32_t d, uint32_t j)
{
    size_t at = (size_t)j * page->head_dim + d, groups = (page->head_dim + GROUP - 1) / GROUP;
    switch (page->type) {
    case TYPE_F32:
        return ((const float *)page->values)[at];
    case TYPE_F16:
        return f16_to_f32(((const uint16_t *)page->values)[at]);
    default:
        return (float)((const int8_t *)page->values)[at] *
               f16_to_f32(page->value_scales[j * groups + d / GROUP]);
    }
}

static void attend_one(const struct kv_page *page, struct attend_query *query, float cap, float *weights)
{
    uint32_t count = query->end > query->begin ? query->end - query->begin : 0;
    float maximum = -INFINITY, partial[8] = {0};
    for (uint32_t i = 0; i < count; i++) {
        float score = 0;
        for (uint32_t d = 0; d < page->head_dim; d++)
            score = fmaf(query->query[d], key_at(page, d, query->begin + i), score);
        weights[i] = score;
    }
    if (cap != 0)
        scalar_softcap(cap, count, weights);
    for (uint32_t i = 0; i < count; i++)
        maximum = weights[i] > maximum ? weights[i] : maximum;
    maximum += 0.0f; /* -0 becomes 0: the vector code may find either first */
    for (uint32_t i = 0; i < count; i++)
        weights[i] -= maximum;
    scalar_exp_f32(count, weights);
    for (uint32_t i = 0; i < count; i++)
        partial[i % 8] += weights[i];
    query->maximum = maximum;
    query->sum = ((partial[0] + partial[4]) + (partial[2] + partial[6])) +
                 ((partial[1] + partial[5]) + (partial[3] + partial[7]));
    for (uint32_t d = 0; d < page->head_dim; d++) {
        float sum = 0;
        for (uint32_t i = 0; i < count; i++)
            sum = fmaf(weights[i], value_at(page, d, query->begin + i), sum);
        query->output[d] = sum;
    }
}

void scalar_attend_page(
    const struct kv_page *page, struct attend_query *queries, size_t count, float cap, float *scores)
{
    for (size_t i = 0; i < count; i++)
        attend_one(page, &queries[i], cap, scores);
}

void scalar_attend_merge(struct attend_result from, size_t head_dim, struct attend_result *into)
{
    if (from.sum == 0)
        return;
    if (into->sum == 0) {
        into->maximum = from.maximum;
        into->sum = from.sum;
        for (size_t d = 0; d < head_dim; d++)
            into->output[d] = from.output[d];
        return;
    }
    float maximum = from.maximum > into->maximum ? from.maximum : into->maximum;
    float factors[2] = {into->maximum - maximum, from.maximum - maximum};
    scalar_exp_f32(2, factors);
    into->maximum = maximum;
    into->sum = fmaf(into->sum, factors[0], from.sum * factors[1]);
    for (size_t d = 0; d < head_dim; d++)
        into->output[d] = fmaf(into->output[d], factors[0], from.output[d] * factors[1]);
}

void scalar_attend_finish(struct attend_result result, size_t head_dim, float *out)
{
    float factor = 1 / result.sum;
    for (size_t d = 0; d < head_dim; d++)
        out[d] = result.sum == 0 ? 0 : result.output[d] * factor;
}

/* Stores elements first .. first + count - 1 of a row as q8_0; blocks are `stride` bytes apart. */
static uint16_t append_group(const float *x, uint32_t count, int8_t *bytes, size_t stride)
{
    float largest = 0;
    for (uint32_t i = 0; i < count; i++)
        largest = isnan(x[i]) || fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
    uint16_t scale = f16_from_f32(largest * (1.0f / 127));
    float value = f16_to_f32(scale), inverse = 1 / value;
    bool usable = value > 0 && value < INFINITY;
    for (uint32_t i = 0; i < count; i++) {
        float scaled = usable ? x[i] * inverse : 0;
        scaled = scaled > 127 ? 127 : scaled < -127 ? -127 : scaled;
        bytes[i * stride] = (int8_t)rintf(scaled);
    }
    return usable ? scale : value == 0 ? 0 : 0x7e00;
}

void scalar_kv_append(const struct kv_room *room, uint32_t position, const float *key, const float *value)
{
    uint32_t head_dim = room->head_dim, groups = (head_dim + GROUP - 1) / GROUP;
    if (room->type == TYPE_Q8_0) {
        int8_t *keys = room->keys, *values = room->values;
        for (uint32_t g = 0; g < groups; g++) {
            uint32_t d = g * GROUP, count = head_dim - d < GROUP ? head_dim - d : GROUP;
            room->key_scales[(size_t)g * PAGE_POSITIONS + position] =
                append_group(key + d, count, keys + (size_t)d * PAGE_POSITIONS + position, PAGE_POSITIONS);
            room->value_scales[(size_t)position * groups + g] =
                append_group(value + d, count, values + (size_t)position * head_dim + d, 1);
        }
        return;
    }
    for (uint32_t d = 0; d < head_dim; d++) {
        size_t at_key = (size_t)d * PAGE_POSITIONS + position, at_value = (size_t)position * head_dim + d;
        if (room->type == TYPE_F32) {
            ((float *)room->keys)[at_key] = key[d];
            ((float *)room->values)[at_value] = value[d];
        } else {
            ((uint16_t *)room->keys)[at_key] = f16_from_f32(key[d]);
            ((uint16_t *)room->values)[at_value] = f16_from_f32(value[d]);
        }
    }
}
