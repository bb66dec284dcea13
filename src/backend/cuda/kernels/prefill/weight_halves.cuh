/* Weights as halves, for products of halves: code times scale, rounded once. */
#ifndef CUDA_WEIGHT_HALVES_CUH
#define CUDA_WEIGHT_HALVES_CUH

#include "backend/cuda/kernels/common/weight_tiles.cuh"
#include "backend/cuda/kernels/prefill/rounding.cuh"

/* Both halves of a word times those of `scale`, plus those of `offset`, rounded once. */
KERNEL_INLINE uint32_t scale_halves(uint32_t word, uint32_t scale, uint32_t offset)
{
#ifdef CUDA_EMULATOR
    uint32_t out = 0;
    for (int i = 0; i < 32; i += 16) {
        const double sum = (double)half_to_float(word >> i & 0xffff) * half_to_float(scale >> i & 0xffff) +
                           half_to_float(offset >> i & 0xffff);
        out |= (uint32_t)__half_as_ushort(__float2half_rn((float)sum)) << i;
    }
    return out;
#else
    uint32_t out;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(word), "r"(scale), "r"(offset));
    return out;
#endif
}

KERNEL_INLINE uint32_t both_halves(float x)
{
    const float within = within_half_range(x);
    const __half2 halves = __floats2half2_rn(within, within);
    return *(const uint32_t *)&halves;
}

/* A lane's 32 elements: words 2i and 2i + 1 are those of product i. */
template <int TYPE> KERNEL_INLINE void halves_of_codes(const lane_codes<TYPE> &codes, uint32_t (&out)[16])
{
    using format = tile_format<TYPE>;
    if constexpr (format::group == 0) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            out[4 * i] = codes.wide[i].x, out[4 * i + 1] = codes.wide[i].y;
            out[4 * i + 2] = codes.wide[i].z, out[4 * i + 3] = codes.wide[i].w;
        }
    } else {
        /* A byte below 1024 as a half is the byte itself: 0x64 above an unsigned byte is 1024 more than it.
         */
        constexpr float bias = 1024 + 128;
        const uint32_t unit = both_halves(format::unit), zero = both_halves(-bias * format::unit);
        const lane_scales scales = unpack_scales<TYPE>(codes);
        uint32_t words[8];
        unpack_codes<TYPE>(codes, words);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t scale = both_halves(scales.scale[half] * (1 / format::unit)),
                           offset = format::offsets ? both_halves(scales.offset[half]) : 0x80008000;
#pragma unroll
            for (int i = half * 4; i < half * 4 + 4; i++) {
                const uint32_t bytes = words[i] ^ 0x80808080;
                out[2 * i] = scale_halves(
                    scale_halves(permute_bytes(bytes, 0x64646464, 0x4140), unit, zero), scale, offset);
                out[2 * i + 1] = scale_halves(
                    scale_halves(permute_bytes(bytes, 0x64646464, 0x4342), unit, zero), scale, offset);
            }
        }
    }
}

#endif
