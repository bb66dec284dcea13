#include "quant/quant.h"

#include "quant/formats.h"

#include <assert.h>

static const struct format *const formats[] = {
    [TYPE_F32] = &format_f32,
    [TYPE_F16] = &format_f16,
    [TYPE_Q4_0] = &format_q4_0,
    [TYPE_Q4_1] = &format_q4_1,
    [TYPE_Q5_0] = &format_q5_0,
    [TYPE_Q5_1] = &format_q5_1,
    [TYPE_Q8_0] = &format_q8_0,
    [TYPE_Q2_K] = &format_q2_k,
    [TYPE_Q3_K] = &format_q3_k,
    [TYPE_Q4_K] = &format_q4_k,
    [TYPE_Q5_K] = &format_q5_k,
    [TYPE_Q6_K] = &format_q6_k,
    [TYPE_IQ4_NL] = &format_iq4_nl,
    [TYPE_IQ4_XS] = &format_iq4_xs,
    [TYPE_BF16] = &format_bf16,
    [TYPE_MXFP4] = &format_mxfp4,
};

static const struct format *find_format(uint32_t type)
{
    return type < sizeof formats / sizeof *formats ? formats[type] : NULL;
}

enum salvo_status quant_check(uint32_t type)
{
    if (find_format(type))
        return SALVO_OK;
    const struct tensor_type_info *info = tensor_type_info(type);
    if (info)
        return fail(SALVO_ERROR_UNSUPPORTED, "tensor type %s cannot be converted", info->name);
    return fail(SALVO_ERROR_UNSUPPORTED, "tensor type %u is unknown", type);
}

static size_t whole_blocks(enum tensor_type type, size_t count)
{
    size_t block_elements = tensor_type_info(type)->block_elements;
    assert(count % block_elements == 0);
    return count / block_elements;
}

void dequantize(enum tensor_type type, const void *blocks, size_t count, float *out)
{
    assert(find_format(type));
    formats[type]->dequantize(blocks, whole_blocks(type, count), out);
}

void quantize(enum tensor_type type, const float *values, size_t count, void *blocks)
{
    assert(find_format(type));
    formats[type]->quantize(values, whole_blocks(type, count), blocks);
}
