/* Dot products of Armv8.2: SDOT adds four products of bytes to each of four sums. */
#include "backend/cpu/bytes_neon.h"

#define ISA(name) neon_##name

INLINE vec8 codes_dot(struct tile_format f, const bytes *codes, const int8_t *x, const int32_t *correction,
    size_t step, const unsigned octets, const unsigned terms)
{
    (void)f, (void)correction;
    int32x4_t sums[4] = {new_zeros(), new_zeros(), new_zeros(), new_zeros()};
    UNROLL
    for (unsigned term = 0; term < terms; term++) {
        for (unsigned i = 0; term > 0 && i < 4; i++)
            sums[i] = vshlq_n_s32(sums[i], TERM_BITS);
        UNROLL
        for (unsigned o = 0; o < octets; o++) {
            int8x16_t twice = vreinterpretq_s8_u64(vdupq_n_u64(load_octet(x + (o * terms + term) * step)));
            for (unsigned i = 0; i < 4; i++)
                sums[i] = vdotq_s32(sums[i], vreinterpretq_s8_u8(codes[o * 4 + i]), twice);
        }
    }
    return (vec8){vcvtq_f32_s32(vpaddq_s32(sums[0], sums[1])), vcvtq_f32_s32(vpaddq_s32(sums[2], sums[3]))};
}

#include "backend/cpu/matmul_template.h"
