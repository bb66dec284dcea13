#include "backend/cpu/tile_row.h"

#include "quant/blocks.h"
#include "quant/half.h"

static uint16_t load_f16(const uint8_t *from)
{
    uint16_t half;
    memcpy(&half, from, sizeof half);
    return half;
}

/* 2^(exponent - 128), also if the result is subnormal. */
static float exponent_scale(uint8_t exponent)
{
    return f32_from_bits(exponent < 2 ? 0x00200000u << exponent : (uint32_t)(exponent - 1) << 23);
}

/* ---- Planes: octet o of a row, codes in the lower bits of its bytes ---- */

static uint64_t octet_of_nibbles(const uint8_t *planes, unsigned row, unsigned o)
{
    return load_octet(planes + o % 2 * PLANE + row * 8) >> (o / 2 * 4) & octet_all(15);
}

static uint64_t octet_of_pairs(const uint8_t *plane, unsigned row, unsigned o)
{
    return load_octet(plane + row * 8) >> (o * 2) & octet_all(3);
}

static uint64_t octet_of_bits(const uint8_t *half_plane, unsigned row, unsigned o)
{
    return load_octet(half_plane + row / 4 * 16 + row % 2 * 8) >> (row / 2 % 2 * 4 + o) & octet_all(1);
}

static uint64_t look_up(const int8_t values[16], uint64_t octet)
{
    uint8_t bytes[8];
    store_octet(bytes, octet);
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)values[bytes[i]];
    return load_octet(bytes);
}

static uint64_t read_octet(struct tile_format f, const uint8_t *codes, unsigned row, unsigned o)
{
    switch (f.codes) {
    case CODES_8:
        return load_octet(codes + o * PLANE + row * 8);
    case CODES_4_SIGNED:
        return octet_of_nibbles(codes, row, o) << 4;
    case CODES_4:
        return octet_of_nibbles(codes, row, o);
    case CODES_IQ4:
        return look_up(iq4_values, octet_of_nibbles(codes, row, o));
    case CODES_MXFP4:
        return look_up(mxfp4_values, octet_of_nibbles(codes, row, o));
    case CODES_5:
        return octet_of_nibbles(codes, row, o) | octet_of_bits(codes + 2 * PLANE, row, o) * f.top;
    case CODES_6_SIGNED:
        return octet_of_nibbles(codes, row, o) << 4 | octet_of_pairs(codes + 2 * PLANE, row, o) << 2;
    case CODES_2:
        return octet_of_pairs(codes, row, o);
    case CODES_3:
        return octet_of_pairs(codes, row, o) | octet_of_bits(codes + PLANE, row, o) * f.top;
    case CODES_NONE:
        break;
    }
    return 0;
}

/* ---- Scales ---- */

static void read_scales(
    struct tile_format f, const uint8_t *block, size_t group, unsigned row, struct row_group *out)
{
    float scale =
        f.unit * (f.exponent_scale ? exponent_scale(block[row]) : f16_to_f32(load_f16(block + row * 2)));
    float minimum = f.offsets ? f16_to_f32(load_f16(block + tile_minimums_at(f) + row * 2)) : 0;
    size_t groups = 256 / f.group;
    for (size_t half = 0; half < 2; half++) {
        const uint8_t *level =
            block + tile_levels_at(f) + (f.group == 16 ? group * 2 + half : group) * 8 + row;
        switch (f.levels) {
        case LEVELS_ONE:
            out->scales[half] = scale;
            out->offsets[half] = minimum;
            break;
        case LEVELS_SIGNED:
            out->scales[half] = scale * (float)(int8_t)*level;
            out->offsets[half] = 0;
            break;
        case LEVELS_BYTES:
            out->scales[half] = scale * (float)*level;
            out->offsets[half] = -minimum * (float)level[groups * 8];
            break;
        case LEVELS_NIBBLES:
            out->scales[half] = scale * (float)(*level & 15);
            out->offsets[half] = -minimum * (float)(*level >> 4);
            break;
        }
    }
}

void tile_row_group(
    struct tile_format format, const uint8_t *tile, size_t group, unsigned row, struct row_group *out)
{
    size_t groups = tile_block_elements(format) / 32;
    const uint8_t *block = tile + group / groups * tile_block_bytes(format);
    const uint8_t *codes = block + tile_codes_at(format) + group % groups * tile_code_bytes(format);
    read_scales(format, block, group % groups, row, out);
    for (unsigned o = 0; o < 4; o++)
        store_octet(out->codes + o * 8, read_octet(format, codes, row, o));
}
