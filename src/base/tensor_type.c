#include "base/tensor_type.h"

#include <stddef.h>

static const struct tensor_type_info types[] = {
    [TYPE_F32] = {"F32", 1, 4},
    [TYPE_F16] = {"F16", 1, 2},
    [TYPE_Q4_0] = {"Q4_0", 32, 18},
    [TYPE_Q4_1] = {"Q4_1", 32, 20},
    [TYPE_Q5_0] = {"Q5_0", 32, 22},
    [TYPE_Q5_1] = {"Q5_1", 32, 24},
    [TYPE_Q8_0] = {"Q8_0", 32, 34},
    [TYPE_Q8_1] = {"Q8_1", 32, 36},
    [TYPE_Q2_K] = {"Q2_K", 256, 84},
    [TYPE_Q3_K] = {"Q3_K", 256, 110},
    [TYPE_Q4_K] = {"Q4_K", 256, 144},
    [TYPE_Q5_K] = {"Q5_K", 256, 176},
    [TYPE_Q6_K] = {"Q6_K", 256, 210},
    [TYPE_Q8_K] = {"Q8_K", 256, 292},
    [TYPE_IQ4_NL] = {"IQ4_NL", 32, 18},
    [TYPE_IQ4_XS] = {"IQ4_XS", 256, 136},
    [TYPE_I8] = {"I8", 1, 1},
    [TYPE_I16] = {"I16", 1, 2},
    [TYPE_I32] = {"I32", 1, 4},
    [TYPE_I64] = {"I64", 1, 8},
    [TYPE_F64] = {"F64", 1, 8},
    [TYPE_BF16] = {"BF16", 1, 2},
    [TYPE_MXFP4] = {"MXFP4", 32, 17},
};

const struct tensor_type_info *tensor_type_info(uint32_t type)
{
    if (type >= sizeof types / sizeof *types || !types[type].name)
        return NULL;
    return &types[type];
}
