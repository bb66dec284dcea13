/*
 * The element types of tensors: numbers in GGUF files, names, and the elements and bytes of a block. quant/
 * defines the encodings.
 */
#ifndef BASE_TENSOR_TYPE_H
#define BASE_TENSOR_TYPE_H

#include <stdint.h>

enum tensor_type {
    TYPE_F32 = 0,
    TYPE_F16 = 1,
    TYPE_Q4_0 = 2,
    TYPE_Q4_1 = 3,
    TYPE_Q5_0 = 6,
    TYPE_Q5_1 = 7,
    TYPE_Q8_0 = 8,
    TYPE_Q8_1 = 9,
    TYPE_Q2_K = 10,
    TYPE_Q3_K = 11,
    TYPE_Q4_K = 12,
    TYPE_Q5_K = 13,
    TYPE_Q6_K = 14,
    TYPE_Q8_K = 15,
    TYPE_IQ4_NL = 20,
    TYPE_IQ4_XS = 23,
    TYPE_I8 = 24,
    TYPE_I16 = 25,
    TYPE_I32 = 26,
    TYPE_I64 = 27,
    TYPE_F64 = 28,
    TYPE_BF16 = 30,
    TYPE_MXFP4 = 39,
};

struct tensor_type_info {
    const char *name;        /* "Q4_K" */
    uint32_t block_elements; /* 1 for F32, F16, BF16 and integers */
    uint32_t block_bytes;
};

/* NULL for an unknown type. */
const struct tensor_type_info *tensor_type_info(uint32_t type);

#endif
