/*
 * Weights in the block layouts of GGUF files (quant/blocks.h), read where the file is mapped. All formats are
 * unpacked in parts of 16 columns, which have one scale, without fast math, as matmul.metal adds their products. Blocks are
 * aligned to two bytes (MXFP4: to one).
 */

inline ushort ushort_at(device const uchar *bytes)
{
    return *(device const ushort *)bytes;
}

inline float half_at(device const uchar *bytes)
{
    return half_value(ushort_at(bytes));
}

constant float IQ4_VALUES[16] = {
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constant float MXFP4_VALUES[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* A float format; columns beyond the last are 0. */
inline void unpack_floats(device const uchar *row, uint first, uint columns, thread float *out)
{
#pragma METAL fp math_mode(safe)
    UNROLL for (uint i = 0; i < 16; i++) {
        uint column = first + i;
        if (column >= columns)
            out[i] = 0;
        else if (KIND == METAL_F32)
            out[i] = ((device const float *)row)[column];
        else if (KIND == METAL_F16)
            out[i] = half_at(row + 2 * column);
        else
            out[i] = as_type<float>((uint)ushort_at(row + 2 * column) << 16);
    }
}

/* Half `part` of a block of 32: element i and i + 16 share a byte. */
inline void unpack_nibbles(device const uchar *block, uint part, thread float *out)
{
#pragma METAL fp math_mode(safe)
    bool has_min = KIND == METAL_Q4_1 || KIND == METAL_Q5_1, has_high = KIND == METAL_Q5_0 || KIND == METAL_Q5_1;
    float scale, low = 0;
    if (KIND == METAL_MXFP4) {
        uint exponent = block[0];
        scale = as_type<float>(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23);
        block += 1;
    } else {
        scale = half_at(block);
        block += 2;
    }
    if (has_min) {
        low = half_at(block);
        block += 2;
    }
    uint high = 0;
    if (has_high) {
        high = ((uint)ushort_at(block) | (uint)ushort_at(block + 2) << 16) >> (16 * part);
        block += 4;
    }
    UNROLL for (uint i = 0; i < 16; i++) {
        uint code = block[i] >> (4 * part) & 15;
        if (has_high)
            code |= (high >> i & 1) << 4;
        if (KIND == METAL_IQ4_NL)
            out[i] = scale * IQ4_VALUES[code];
        else if (KIND == METAL_MXFP4)
            out[i] = scale * MXFP4_VALUES[code];
        else if (has_min)
            out[i] = scale * (float)code + low;
        else
            out[i] = scale * (float)((int)code - (has_high ? 16 : 8));
    }
}

inline void unpack_q8_0(device const uchar *block, uint part, thread float *out)
{
#pragma METAL fp math_mode(safe)
    float scale = half_at(block);
    UNROLL for (uint i = 0; i < 16; i++)
        out[i] = scale * (float)(char)block[2 + 16 * part + i];
}

/* Two bits of byte `element % 32` of a half of 128 elements. */
inline uint pair_at(device const uchar *pairs, uint element)
{
    return pairs[element / 128 * 32 + element % 32] >> (element % 128 / 32 * 2) & 3;
}

inline void unpack_q2_k(device const uchar *block, uint part, thread float *out)
{
#pragma METAL fp math_mode(safe)
    float scale = half_at(block + 80) * (float)(block[part] & 15), low = half_at(block + 82) * (float)(block[part] >> 4);
    UNROLL for (uint i = 0; i < 16; i++)
        out[i] = scale * (float)pair_at(block + 16, 16 * part + i) - low;
}

inline void unpack_q3_k(device const uchar *block, uint part, thread float *out)
{
#pragma METAL fp math_mode(safe)
    device const uchar *groups = block + 96;
    int group = (groups[part % 8] >> (part / 8 * 4) & 15) | (groups[8 + part % 4] >> (part / 4 * 2) & 3) << 4;
    float scale = half_at(block + 108) * (float)(group - 32);
    UNROLL for (uint i = 0; i < 16; i++) {
        uint element = 16 * part + i;
        int code = (int)(pair_at(block + 32, element) | (block[element % 32] >> (element / 32) & 1u) << 2);
        out[i] = scale * (float)(code - 4);
    }
}

/* Q4_K and Q5_K; `part` / 2 is the group of 32. */
inline void unpack_q4_k(device const uchar *block, uint part, thread float *out)
{
#pragma METAL fp math_mode(safe)
    device const uchar *groups = block + 4;
    uint group = part / 2, scale, low;
    if (group < 4) {
        scale = groups[group] & 63u;
        low = groups[group + 4] & 63u;
    } else {
        scale = (groups[group + 4] & 15u) | (groups[group - 4] >> 6) << 4;
        low = groups[group + 4] >> 4 | (groups[group] >> 6) << 4;
    }
    float step = half_at(block) * (float)scale, least = half_at(block + 2) * (float)low;
    device const uchar *high = block + 16, *nibbles = KIND == METAL_Q5_K ? block + 48 : block + 16;
    UNROLL for (uint i = 0; i < 16; i++) {
        uint element = 16 * part + i, code = nibbles[element / 64 * 32 + element % 32] >> (group % 2 * 4) & 15u;
        if (KIND == METAL_Q5_K)
            code |= (high[element % 32] >> group & 1u) << 4;
        out[i] = step * (float)code - least;
    }
}

inline void unpack_q6_k(device const uchar *block, uint part, thread float *out)
{
#pragma METAL fp math_mode(safe)
    float scale = half_at(block + 208) * (float)(char)block[192 + part];
    UNROLL for (uint i = 0; i < 16; i++) {
        uint element = 16 * part + i;
        uint low = block[element / 128 * 64 + element % 64] >> (element % 128 / 64 * 4) & 15u;
        out[i] = scale * (float)((int)(low | pair_at(block + 128, element) << 4) - 32);
    }
}

inline void unpack_iq4_xs(device const uchar *block, uint part, thread float *out)
{
#pragma METAL fp math_mode(safe)
    uint group = part / 2;
    int low = block[4 + group / 2] >> (group % 2 * 4) & 15, high = ushort_at(block + 2) >> (group * 2) & 3;
    float scale = half_at(block) * (float)((low | high << 4) - 32);
    UNROLL for (uint i = 0; i < 16; i++)
        out[i] = scale * IQ4_VALUES[block[8 + 16 * group + i] >> (part % 2 * 4) & 15];
}

/* Columns of a part: only a row of floats may end within one. */
inline uint width_of(uint part, uint columns)
{
    bool is_float = KIND == METAL_F32 || KIND == METAL_F16 || KIND == METAL_BF16;
    return is_float ? min(16u, columns - 16 * part) : 16;
}

/* Columns 16 * part ... of a row. */
inline void unpack16(device const uchar *row, uint part, uint columns, thread float *out)
{
    switch (KIND) {
    case METAL_Q4_0:
    case METAL_IQ4_NL:
        unpack_nibbles(row + part / 2 * 18, part % 2, out);
        break;
    case METAL_Q4_1:
        unpack_nibbles(row + part / 2 * 20, part % 2, out);
        break;
    case METAL_Q5_0:
        unpack_nibbles(row + part / 2 * 22, part % 2, out);
        break;
    case METAL_Q5_1:
        unpack_nibbles(row + part / 2 * 24, part % 2, out);
        break;
    case METAL_MXFP4:
        unpack_nibbles(row + part / 2 * 17, part % 2, out);
        break;
    case METAL_Q8_0:
        unpack_q8_0(row + part / 2 * 34, part % 2, out);
        break;
    case METAL_Q2_K:
        unpack_q2_k(row + part / 16 * 84, part % 16, out);
        break;
    case METAL_Q3_K:
        unpack_q3_k(row + part / 16 * 110, part % 16, out);
        break;
    case METAL_Q4_K:
        unpack_q4_k(row + part / 16 * 144, part % 16, out);
        break;
    case METAL_Q5_K:
        unpack_q4_k(row + part / 16 * 176, part % 16, out);
        break;
    case METAL_Q6_K:
        unpack_q6_k(row + part / 16 * 210, part % 16, out);
        break;
    case METAL_IQ4_XS:
        unpack_iq4_xs(row + part / 16 * 136, part % 16, out);
        break;
    default:
        unpack_floats(row, 16 * part, columns, out);
    }
}
