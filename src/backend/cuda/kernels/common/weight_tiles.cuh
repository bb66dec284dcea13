/*
 * Weight tiles on the device: loads and unpacks a lane's 32 codes and scales. Everything also compiles for
 * the host, where tests compare it with quant/.
 */
#ifndef CUDA_WEIGHT_TILES_CUH
#define CUDA_WEIGHT_TILES_CUH

#include "backend/cuda/cuda_plan.h"
#include "backend/cuda/weight_tiles.h"
#include "base/tensor_type.h"

#include <cuda_fp16.h>

#define DEVICE __host__ __device__ __forceinline__

/* ---- Instructions that the host does not have ---- */

DEVICE uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selector)
{
#ifdef __CUDA_ARCH__
    return __byte_perm(a, b, selector);
#else
    uint64_t both = (uint64_t)b << 32 | a;
    uint32_t out = 0;
    for (int i = 0; i < 4; i++)
        out |= (uint32_t)(both >> ((selector >> (4 * i) & 7) * 8) & 255) << (8 * i);
    return out;
#endif
}

/* The sum of the products of four signed bytes, added to c. */
DEVICE int dot_bytes(uint32_t a, uint32_t b, int c)
{
#ifdef __CUDA_ARCH__
    return __dp4a((int)a, (int)b, c);
#else
    for (int i = 0; i < 4; i++)
        c += (int8_t)(a >> (8 * i)) * (int8_t)(b >> (8 * i));
    return c;
#endif
}

DEVICE float half_to_float(uint32_t bits)
{
    return __half2float(__ushort_as_half((unsigned short)bits));
}

DEVICE float bits_to_float(uint32_t bits)
{
#ifdef __CUDA_ARCH__
    return __uint_as_float(bits);
#else
    union {
        uint32_t bits;
        float value;
    } both = {bits};
    return both.value;
#endif
}

/* ---- Formats ---- */

template <int TYPE> struct tile_format;

#define TILE_FORMAT(type, p16, p8, p4, row_bytes, lane_bytes, group_, offsets_, top_, unit_) \
    template <> struct tile_format<TYPE_##type> {                                            \
        static constexpr int planes_16 = p16, planes_8 = p8, planes_4 = p4;                  \
        static constexpr int row_scale = row_bytes, lane_scale = lane_bytes;                 \
        static constexpr int group = group_; /* elements that share a scale; 0: floats */    \
        static constexpr bool offsets = offsets_;                                            \
        static constexpr uint32_t top = top_;                                                \
        static constexpr float unit = unit_;                                                 \
        static constexpr int plane_8 = p16 * 512, plane_4 = plane_8 + p8 * 256;              \
        static constexpr int row_scales = plane_4 + p4 * 128;                                \
        static constexpr int lane_scales = row_scales + row_bytes * 8;                       \
        static constexpr int bytes = lane_scales + lane_bytes * 32;                          \
    };
CUDA_TILE_FORMATS(TILE_FORMAT)
#undef TILE_FORMAT

/* Calls use.template operator()<TYPE>() for a type that is known only at run time. */
#define CUDA_WITH_TYPE(type, CALL) \
    switch (type) {                \
        CUDA_TILE_FORMATS(CALL)    \
    default:                       \
        break;                     \
    }

/* A lane's codes as the weight tile stores them. */
template <int TYPE> struct lane_codes {
    uint4 wide[tile_format<TYPE>::planes_16 ? tile_format<TYPE>::planes_16 : 1];
    uint2 eight;
    uint32_t four;
    uint32_t row_scale, lane_scale;
};

template <int TYPE> DEVICE lane_codes<TYPE> load_codes(const uint8_t *tile, int lane)
{
    using format = tile_format<TYPE>;
    lane_codes<TYPE> codes;
    for (int i = 0; i < format::planes_16; i++)
        codes.wide[i] = *(const uint4 *)(tile + i * 512 + lane * 16);
    if (format::planes_8)
        codes.eight = *(const uint2 *)(tile + format::plane_8 + lane * 8);
    if (format::planes_4)
        codes.four = *(const uint32_t *)(tile + format::plane_4 + lane * 4);
    codes.row_scale = format::row_scale == 4   ? *(const uint32_t *)(tile + format::row_scales + lane / 4 * 4)
                      : format::row_scale == 2 ? *(const uint16_t *)(tile + format::row_scales + lane / 4 * 2)
                                               : 0;
    codes.lane_scale = format::lane_scale == 4   ? *(const uint32_t *)(tile + format::lane_scales + lane * 4)
                       : format::lane_scale == 2 ? *(const uint16_t *)(tile + format::lane_scales + lane * 2)
                       : format::lane_scale == 1 ? *(const uint8_t *)(tile + format::lane_scales + lane)
                                                 : 0;
    return codes;
}

/* Maps the eight nibbles of a word to bytes through a table of 16: the lower nibbles to `lower`, the upper
 * ones to `upper`. */
DEVICE void look_up_nibbles(uint32_t word, const uint32_t (&table)[4], uint32_t &lower, uint32_t &upper)
{
    uint32_t mixed[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t nibbles = word >> (16 * i), low = nibbles & 0x7777;
        uint32_t first = permute_bytes(table[0], table[1], low),
                 last = permute_bytes(table[2], table[3], low);
        mixed[i] = permute_bytes(first, last, 0x3210 | (nibbles & 0x8888) >> 1);
    }
    lower = permute_bytes(mixed[0], mixed[1], 0x6420);
    upper = permute_bytes(mixed[0], mixed[1], 0x7531);
}

/* Word i holds the codes of elements 4i .. 4i+3 as signed bytes, times 1 / unit. Not for floats. */
template <int TYPE> DEVICE void unpack_codes(const lane_codes<TYPE> &codes, uint32_t (&out)[8])
{
    using format = tile_format<TYPE>;
    const uint32_t words[4] = {codes.wide[0].x, codes.wide[0].y, codes.wide[0].z, codes.wide[0].w};
    if (TYPE == TYPE_Q8_0) {
        const uint4 &second = codes.wide[format::planes_16 - 1];
        const uint32_t all[8] = {
            words[0], words[1], words[2], words[3], second.x, second.y, second.z, second.w};
#pragma unroll
        for (int i = 0; i < 8; i++)
            out[i] = all[i];
        return;
    }
    if (TYPE == TYPE_IQ4_NL || TYPE == TYPE_IQ4_XS || TYPE == TYPE_MXFP4) {
        const uint32_t iq4[4] = {0xbfad9881, 0xf6eaddcf, 0x26190d01, 0x71594535};
        const uint32_t mxfp4[4] = {0x03020100, 0x0c080604, 0xfdfeff00, 0xf4f8fafc};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (TYPE == TYPE_MXFP4)
                look_up_nibbles(words[i], mxfp4, out[i], out[i + 4]);
            else
                look_up_nibbles(words[i], iq4, out[i], out[i + 4]);
        }
        return;
    }
    if (TYPE == TYPE_Q2_K || TYPE == TYPE_Q3_K) {
#pragma unroll
        for (int i = 0; i < 8; i++)
            out[i] = (i % 2 ? codes.eight.y : codes.eight.x) >> (i / 2 * 2) & 0x03030303;
    } else {
        const bool from_top = TYPE == TYPE_Q4_0 || TYPE == TYPE_Q6_K;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            out[i] = from_top ? words[i] << 4 & 0xF0F0F0F0 : words[i] & 0x0F0F0F0F;
            out[i + 4] = from_top ? words[i] & 0xF0F0F0F0 : words[i] >> 4 & 0x0F0F0F0F;
        }
    }
    if (TYPE == TYPE_Q6_K) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            uint32_t pairs = i % 2 ? codes.eight.y : codes.eight.x;
            out[i] |= (i < 2 ? pairs << 2 : pairs >> (i / 2 * 2 - 2)) & 0x0C0C0C0C;
        }
    }
    if (format::planes_4) {
#pragma unroll
        for (int i = 0; i < 8; i++)
            out[i] |= (codes.four >> i & 0x01010101) * format::top;
    }
}

/* w = scale[half] * code + offset[half]; groups of 32 have two equal halves. */
struct lane_scales {
    float scale[2], offset[2];
};

template <int TYPE> DEVICE lane_scales unpack_scales(const lane_codes<TYPE> &codes)
{
    using format = tile_format<TYPE>;
    lane_scales out = {};
    const uint32_t halves = format::row_scale ? codes.row_scale : codes.lane_scale;
    const float first = TYPE == TYPE_MXFP4
                            ? bits_to_float(halves < 2 ? 0x00200000u << halves : (halves - 1) << 23)
                            : half_to_float(halves & 0xFFFF) * format::unit;
    const float second = format::offsets ? half_to_float(halves >> 16) : 0;
    const uint32_t own = codes.lane_scale;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        if (format::row_scale == 0) {
            out.scale[half] = first;
            out.offset[half] = second;
        } else if (TYPE == TYPE_Q4_K || TYPE == TYPE_Q5_K) {
            out.scale[half] = first * (float)(own & 255);
            out.offset[half] = -second * (float)(own >> 8);
        } else if (TYPE == TYPE_Q2_K) {
            out.scale[half] = first * (float)(own >> (8 * half) & 15);
            out.offset[half] = -second * (float)(own >> (8 * half + 4) & 15);
        } else {
            out.scale[half] = first * (float)(int8_t)(own >> (format::group == 16 ? 8 * half : 0));
        }
    }
    return out;
}

/* The 32 elements as floats, in pieces of 8: elements 8 * piece .. */
template <int TYPE> DEVICE void unpack_floats(const lane_codes<TYPE> &codes, int piece, float (&out)[8])
{
    if (TYPE == TYPE_F32) {
        const uint4 &a = codes.wide[piece * 2 % tile_format<TYPE>::planes_16],
                    &b = codes.wide[(piece * 2 + 1) % tile_format<TYPE>::planes_16];
        const uint32_t words[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
        for (int i = 0; i < 8; i++)
            out[i] = bits_to_float(words[i]);
    } else {
        const uint4 &a = codes.wide[piece % tile_format<TYPE>::planes_16];
        const uint32_t words[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            out[2 * i] = TYPE == TYPE_F16 ? half_to_float(words[i] & 0xFFFF) : bits_to_float(words[i] << 16);
            out[2 * i + 1] =
                TYPE == TYPE_F16 ? half_to_float(words[i] >> 16) : bits_to_float(words[i] & 0xFFFF0000);
        }
    }
}

/* The address of a weight tile. */
DEVICE uint64_t tile_address(const cuda_matrix &matrix, uint32_t tile_row, uint32_t part)
{
    uint32_t owner = tile_row / matrix.tile_rows_per_block, local = tile_row % matrix.tile_rows_per_block;
    uint32_t group = part / matrix.parts_per_pass, number = part % matrix.parts_per_pass;
    uint64_t index =
        (uint64_t)owner * matrix.tile_rows_per_block * matrix.part_groups * matrix.parts_per_pass +
        (uint64_t)(group * matrix.tile_rows_per_block + local) * matrix.parts_per_pass + number;
    return matrix.base + index * matrix.tile_bytes;
}

#endif
