/* Keys and values in the pages of the KV cache, as F32, F16 or Q8_0. */
#ifndef CUDA_KV_CACHE_CUH
#define CUDA_KV_CACHE_CUH

#include "backend/cuda/kernels/common/device_math.cuh"
#include "program/step.h"

/* The places of a head's positions in a KV page. */
struct kv_head {
    uint8_t *elements; /* [256][head_dim] */
    uint16_t *scales;  /* TYPE_Q8_0: [256][head_dim / 32, rounded up] */
};

KERNEL_INLINE uint32_t kv_element_bytes(uint32_t type)
{
    return type == TYPE_F32 ? 4 : type == TYPE_F16 ? 2 : 1;
}

KERNEL_INLINE kv_head find_kv_head(
    uint64_t state, uint32_t page, uint32_t heads, uint32_t head, uint32_t head_dim, uint32_t type)
{
    const uint64_t elements = (uint64_t)head_dim * PAGE_POSITIONS * kv_element_bytes(type);
    const uint64_t scales = type == TYPE_Q8_0 ? (head_dim + 31) / 32 * PAGE_POSITIONS * 2 : 0;
    uint8_t *begin = (uint8_t *)state + ((uint64_t)page * heads + head) * (elements + scales);
    return {begin, (uint16_t *)(begin + elements)};
}

KERNEL_INLINE uint16_t float_to_half_bits(float value)
{
    return __half_as_ushort(__float2half_rn(value));
}

/* One group of up to 32 elements of a head by a warp, rounded to the type of the cache. */
KERNEL_INLINE void append_group(const kv_head &place, uint32_t type, uint32_t position, uint32_t head_dim,
    uint32_t first, const float *from)
{
    const uint32_t lane = threadIdx.x % 32, i = first + lane;
    const bool on = i < head_dim;
    const float x = on ? from[i] : 0;
    const uint64_t at = (uint64_t)position % PAGE_POSITIONS * head_dim + i;
    if (type == TYPE_F32) {
        if (on)
            ((float *)place.elements)[at] = x;
    } else if (type == TYPE_F16) {
        if (on)
            ((uint16_t *)place.elements)[at] = float_to_half_bits(x);
    } else {
        uint32_t largest = __float_as_uint(x) & 0x7fffffff; /* NaN is larger than all */
        largest = __reduce_max_sync(~0u, largest);
        const uint16_t scale = float_to_half_bits(__fmul_rn(__uint_as_float(largest), 1.0f / 127));
        const float value = half_to_float(scale);
        const bool usable = value > 0 && value < __int_as_float(0x7f800000);
        const float scaled = usable ? x * (1 / value) : 0;
        if (on)
            ((int8_t *)place.elements)[at] = (int8_t)rintf(fminf(fmaxf(scaled, -127), 127));
        if (lane == 0)
            place.scales[position % PAGE_POSITIONS * ((head_dim + 31) / 32) + first / 32] = usable ? scale
                                                                                            : value == 0
                                                                                                ? 0
                                                                                                : 0x7e00;
    }
}

/* ---- Eight elements of a cached head ---- */

template <bool WIDE> struct raw_eight {
    uint4 first; /* halves, floats, or bytes in x and y */
    uint4 last;  /* floats */
    float scale; /* bytes */
};
template <> struct raw_eight<false> {
    uint4 first;
    float scale;
};

template <bool WIDE>
KERNEL_INLINE raw_eight<WIDE> load_eight(
    uint32_t type, const kv_head &head, uint32_t position, uint32_t head_dim, uint32_t first)
{
    const uint32_t at = position * head_dim + first;
    raw_eight<WIDE> raw = {};
    if constexpr (WIDE) {
        raw.first = __ldcg((const uint4 *)(head.elements + at * 4));
        raw.last = __ldcg((const uint4 *)(head.elements + at * 4) + 1);
    } else if (type == TYPE_F16) {
        raw.first = __ldcg((const uint4 *)(head.elements + at * 2));
    } else {
        const uint2 bytes = __ldcg((const uint2 *)(head.elements + at));
        raw.first.x = bytes.x, raw.first.y = bytes.y;
        raw.scale = half_to_float(__ldcg(head.scales + position * ((head_dim + 31) / 32) + first / 32));
    }
    return raw;
}

template <bool WIDE>
KERNEL_INLINE void unpack_eight(uint32_t type, const raw_eight<WIDE> &raw, float (&out)[8])
{
    const uint32_t words[4] = {raw.first.x, raw.first.y, raw.first.z, raw.first.w};
    if constexpr (WIDE) {
        const uint32_t others[4] = {raw.last.x, raw.last.y, raw.last.z, raw.last.w};
#pragma unroll
        for (int i = 0; i < 4; i++)
            out[i] = __uint_as_float(words[i]), out[i + 4] = __uint_as_float(others[i]);
    } else if (type == TYPE_F16) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float2 two = __half22float2(*(const __half2 *)&words[i]);
            out[2 * i] = two.x, out[2 * i + 1] = two.y;
        }
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            out[i] = raw.scale * (float)(int8_t)(words[i / 4] >> (8 * (i % 4)));
    }
}

#endif
