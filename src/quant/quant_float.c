/* F32, F16, BF16: one element is a block. */
#include "quant/formats.h"
#include "quant/half.h"

static void copy_f32(const void *from, size_t count, void *to)
{
    if (count)
        memcpy(to, from, count * sizeof(float));
}

static void dequantize_f32(const void *blocks, size_t count, float *out)
{
    copy_f32(blocks, count, out);
}

static void quantize_f32(const float *values, size_t count, void *blocks)
{
    copy_f32(values, count, blocks);
}

static void dequantize_f16(const void *blocks, size_t count, float *out)
{
    const uint16_t *halves = blocks;
    for (size_t i = 0; i < count; i++)
        out[i] = f16_to_f32(halves[i]);
}

static void quantize_f16(const float *values, size_t count, void *blocks)
{
    uint16_t *halves = blocks;
    for (size_t i = 0; i < count; i++)
        halves[i] = f16_from_f32(values[i]);
}

static void dequantize_bf16(const void *blocks, size_t count, float *out)
{
    const uint16_t *halves = blocks;
    for (size_t i = 0; i < count; i++)
        out[i] = bf16_to_f32(halves[i]);
}

static void quantize_bf16(const float *values, size_t count, void *blocks)
{
    uint16_t *halves = blocks;
    for (size_t i = 0; i < count; i++)
        halves[i] = bf16_from_f32(values[i]);
}

const struct format format_f32 = {dequantize_f32, quantize_f32};
const struct format format_f16 = {dequantize_f16, quantize_f16};
const struct format format_bf16 = {dequantize_bf16, quantize_bf16};
