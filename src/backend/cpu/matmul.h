/* The matmul functions of each instruction set, defined in kernels.h; kernels.c makes tables of them. */
#ifndef CPU_MATMUL_H
#define CPU_MATMUL_H

#include "backend/cpu/kernels.h"

/* The quantised types, each with the prefix of an instruction set. */
#define FOR_QUANTISED_TYPES(DO, isa) \
    DO(isa, Q4_0)                    \
    DO(isa, Q4_1)                    \
    DO(isa, Q5_0)                    \
    DO(isa, Q5_1)                    \
    DO(isa, Q8_0)                    \
    DO(isa, Q2_K)                    \
    DO(isa, Q3_K)                    \
    DO(isa, Q4_K)                    \
    DO(isa, Q5_K)                    \
    DO(isa, Q6_K)                    \
    DO(isa, IQ4_NL)                  \
    DO(isa, IQ4_XS)                  \
    DO(isa, MXFP4)

#define FOR_FLOAT_TYPES(DO, isa) \
    DO(isa, F32)                 \
    DO(isa, F16)                 \
    DO(isa, BF16)

#define DECLARE_QUANTISED(isa, type)                                                      \
    void isa##_matvec_##type(                                                             \
        const uint8_t *tiles, size_t tile_count, size_t k, struct q8_tile x, float *out); \
    void isa##_unpack_##type(const uint8_t *tile, size_t k, struct unpacked_tiles out, unsigned index);

#define DECLARE_FLOAT(isa, type)                                                                             \
    void isa##_matvec_##type(const uint8_t *tiles, size_t tile_count, size_t k, const float *x, float *out); \
    void isa##_unpack_##type(const uint8_t *tile, size_t k, float *out);

#define DECLARE_MATMULS(isa)                                                                  \
    FOR_QUANTISED_TYPES(DECLARE_QUANTISED, isa)                                               \
    FOR_FLOAT_TYPES(DECLARE_FLOAT, isa)                                                       \
    void isa##_round_q8(                                                                      \
        const float *x, size_t k, unsigned terms, struct q8_tile q8, size_t width, size_t t); \
    void isa##_matmul_q8(struct unpacked_tiles tile, size_t k, unsigned group, bool offsets,  \
        struct q8_tile x, bool first, size_t stride, float *out);                             \
    void isa##_matmul_float(const float *tile, size_t k, const float *x, bool first, float *out);

/* Defines matmul_q8 by calls of multiply(tile, k, halves, offsets, terms, x, first, stride, out) with
 * constants. */
#define DEFINE_MATMUL_Q8(name, multiply)                                                            \
    void name(struct unpacked_tiles tile, size_t k, unsigned group, bool offsets, struct q8_tile x, \
        bool first, size_t stride, float *out)                                                      \
    {                                                                                               \
        switch ((x.terms - 1) * 4 + (group == 32 ? 2 : 0) + offsets) {                              \
        case 0:                                                                                     \
            multiply(tile, k, 2, false, 1, x, first, stride, out);                                  \
            break;                                                                                  \
        case 1:                                                                                     \
            multiply(tile, k, 2, true, 1, x, first, stride, out);                                   \
            break;                                                                                  \
        case 2:                                                                                     \
            multiply(tile, k, 1, false, 1, x, first, stride, out);                                  \
            break;                                                                                  \
        case 3:                                                                                     \
            multiply(tile, k, 1, true, 1, x, first, stride, out);                                   \
            break;                                                                                  \
        case 4:                                                                                     \
            multiply(tile, k, 2, false, 2, x, first, stride, out);                                  \
            break;                                                                                  \
        case 5:                                                                                     \
            multiply(tile, k, 2, true, 2, x, first, stride, out);                                   \
            break;                                                                                  \
        case 6:                                                                                     \
            multiply(tile, k, 1, false, 2, x, first, stride, out);                                  \
            break;                                                                                  \
        default:                                                                                    \
            multiply(tile, k, 1, true, 2, x, first, stride, out);                                   \
        }                                                                                           \
    }

DECLARE_MATMULS(scalar)
DECLARE_MATMULS(neon)
DECLARE_MATMULS(avx2)
DECLARE_MATMULS(avx_vnni)
DECLARE_MATMULS(avx512)

/* With SMMLA, and for F16 with FMLAL; all other functions are those of dotprod. */
#define DECLARE_MATVEC(isa, type) \
    void isa##_matvec_##type(const uint8_t *tiles, size_t tile_count, size_t k, struct q8_tile x, float *out);
FOR_QUANTISED_TYPES(DECLARE_MATVEC, neon_i8mm)
#define DECLARE_MATMUL_PACKED(isa, type) \
    void isa##_matmul_packed_##type(     \
        const uint8_t *tiles, size_t tile_count, size_t k, struct q8_tile x, unsigned tokens, float *out);
FOR_QUANTISED_TYPES(DECLARE_MATMUL_PACKED, neon_i8mm)
FOR_QUANTISED_TYPES(DECLARE_MATMUL_PACKED, avx2)
FOR_QUANTISED_TYPES(DECLARE_MATMUL_PACKED, avx_vnni)
FOR_QUANTISED_TYPES(DECLARE_MATMUL_PACKED, avx512)
void neon_i8mm_matvec_F16(const uint8_t *tiles, size_t tile_count, size_t k, const float *x, float *out);
void neon_i8mm_matmul_q8(struct unpacked_tiles tile, size_t k, unsigned group, bool offsets, struct q8_tile x,
    bool first, size_t stride, float *out);
void neon_i8mm_matmul_q15(struct unpacked_tiles tile, size_t k, unsigned group, bool offsets,
    struct q8_tile x, bool first, size_t stride, float *out);

/* With AMX; all other functions are those of avx512. */
void amx_matmul_q8(struct unpacked_tiles tile, size_t k, unsigned group, bool offsets, struct q8_tile x,
    bool first, size_t stride, float *out);
void amx_matmul_begin(unsigned group);
void amx_matmul_end(void);

#endif
