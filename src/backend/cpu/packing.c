#include "backend/cpu/packing.h"

#include "backend/cpu/tile_format.h"
#include "backend/cpu/tile_row.h"
#include "quant/block_parts.h"
#include "quant/half.h"

static size_t float_bytes(enum tensor_type type)
{
    return type == TYPE_F32 ? 4 : type == TYPE_F16 || type == TYPE_BF16 ? 2 : 0;
}

bool packing_supported(enum tensor_type type, uint64_t k)
{
    if ((unsigned)type >= TYPE_LIMIT || k == 0)
        return false;
    struct tile_format format = tile_formats[type];
    return format.codes ? k % tile_block_elements(format) == 0 : float_bytes(type) != 0;
}

size_t packing_tile_bytes(enum tensor_type type, uint64_t k)
{
    struct tile_format format = tile_formats[type];
    if (!format.codes)
        return (size_t)k * TILE_ROWS * float_bytes(type);
    return (size_t)k / tile_block_elements(format) * tile_block_bytes(format);
}

unsigned quant_group(enum tensor_type type, bool *out_offsets)
{
    struct tile_format format = tile_formats[type];
    *out_offsets = format.offsets;
    return format.group;
}

/* ---- A block in a tile ---- */

/* The functions below take the four octets of a group. */
static void write_nibbles(uint8_t *planes, unsigned row, const uint64_t o[4], unsigned shift)
{
    for (size_t j = 0; j < 2; j++)
        store_octet(
            planes + j * PLANE + row * 8, octet_bits(o[j], shift, 15) | octet_bits(o[j + 2], shift, 15) << 4);
}

static void write_pairs(uint8_t *plane, unsigned row, const uint64_t o[4])
{
    store_octet(plane + row * 8, octet_bits(o[0], 0, 3) | octet_bits(o[1], 0, 3) << 2 |
                                     octet_bits(o[2], 0, 3) << 4 | octet_bits(o[3], 0, 3) << 6);
}

/* Rows must be written in order: of two rows that share bytes, the later one is merged into the earlier. */
static void write_bits(uint8_t *half_plane, unsigned row, const uint64_t o[4], unsigned shift)
{
    uint8_t *to = half_plane + row / 4 * 16 + row % 2 * 8;
    uint64_t bits = octet_bits(o[0], shift, 1) | octet_bits(o[1], shift, 1) << 1 |
                    octet_bits(o[2], shift, 1) << 2 | octet_bits(o[3], shift, 1) << 3;
    store_octet(to, row / 2 % 2 == 0 ? bits : load_octet(to) | bits << 4);
}

static void write_codes(enum tile_codes kind, uint8_t *codes, unsigned row, const uint64_t octets[4])
{
    switch (kind) {
    case CODES_8:
        for (size_t o = 0; o < 4; o++)
            store_octet(codes + o * PLANE + row * 8, octets[o]);
        break;
    case CODES_5:
        write_nibbles(codes, row, octets, 0);
        write_bits(codes + 2 * PLANE, row, octets, 4);
        break;
    case CODES_6_SIGNED:
        write_nibbles(codes, row, octets, 2);
        write_pairs(codes + 2 * PLANE, row, octets);
        break;
    case CODES_2:
        write_pairs(codes, row, octets);
        break;
    case CODES_3:
        write_pairs(codes, row, octets);
        write_bits(codes + PLANE, row, octets, 2);
        break;
    default:
        write_nibbles(codes, row, octets, 0);
    }
}

static void write_header(
    struct tile_format format, uint8_t *block, unsigned row, const struct block_parts *parts)
{
    if (format.exponent_scale)
        block[row] = (uint8_t)parts->scale;
    else
        memcpy(block + row * 2, &parts->scale, 2);
    if (format.offsets)
        memcpy(block + tile_minimums_at(format) + row * 2, &parts->min, 2);
    if (format.levels == LEVELS_ONE)
        return;
    size_t groups = 256 / format.group;
    uint8_t *levels = block + tile_levels_at(format) + row;
    for (size_t group = 0; group < groups; group++) {
        levels[group * 8] = parts->group_scales[group];
        if (format.levels == LEVELS_BYTES)
            levels[(groups + group) * 8] = parts->group_mins[group];
    }
}

/* `from` is NULL beyond the last row: scales are zero; in formats without a zero scale, code 0 means zero. */
INLINE void pack_row(enum tensor_type type, const uint8_t *from, uint64_t k, unsigned row, uint8_t *tile)
{
    const struct tile_format format = tile_formats[type];
    const size_t elements = tile_block_elements(format), from_bytes = tensor_type_info(type)->block_bytes;
    struct block_parts parts = {{0}, 0, 0, {0}, {0}};
    for (uint64_t i = 0; i < k; i += elements, tile += tile_block_bytes(format)) {
        if (from) {
            if (elements == 32)
                read_small_block(type, from, &parts);
            else
                read_large_block(type, from, &parts);
            from += from_bytes;
        }
        write_header(format, tile, row, &parts);
        for (size_t group = 0; group < elements / 32; group++)
            write_codes(format.codes, tile + tile_codes_at(format) + group * tile_code_bytes(format), row,
                parts.octets + group * 4);
    }
}

/* ---- Floats: [k][8 rows] --------------------------------------------------------------------------------
 */

static void pack_floats(const uint8_t *from, uint64_t k, size_t bytes, unsigned row, uint8_t *tile)
{
    uint8_t *to = tile + row * bytes;
    if (!from) {
        for (uint64_t i = 0; i < k; i++)
            memset(to + i * TILE_ROWS * bytes, 0, bytes);
    } else if (bytes == 4) {
        for (uint64_t i = 0; i < k; i++)
            memcpy(to + i * TILE_ROWS * 4, from + i * 4, 4);
    } else {
        for (uint64_t i = 0; i < k; i++)
            memcpy(to + i * TILE_ROWS * 2, from + i * 2, 2);
    }
}

static void read_floats(enum tensor_type type, const uint8_t *tile, uint64_t k, unsigned row, float *out)
{
    for (uint64_t i = 0; i < k; i++) {
        uint16_t half;
        if (type == TYPE_F32) {
            memcpy(out + i, tile + (i * TILE_ROWS + row) * 4, 4);
        } else {
            memcpy(&half, tile + (i * TILE_ROWS + row) * 2, 2);
            out[i] = type == TYPE_F16 ? f16_to_f32(half) : bf16_to_f32(half);
        }
    }
}

/* ---- Tiles and rows ---------------------------------------------------------------------------------------
 */

void packing_pack_tile(
    enum tensor_type type, const uint8_t *matrix, uint64_t rows, uint64_t k, uint64_t first, uint8_t *tile)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    const uint64_t row_bytes = k / info->block_elements * info->block_bytes;
    for (unsigned row = 0; row < TILE_ROWS; row++) {
        const uint8_t *from = first + row < rows ? matrix + (first + row) * row_bytes : NULL;
        switch (type) { /* a case per format, so that each gets its own loop */
        case TYPE_F32:
        case TYPE_F16:
        case TYPE_BF16:
            pack_floats(from, k, float_bytes(type), row, tile);
            break;
        case TYPE_Q4_0:
            pack_row(TYPE_Q4_0, from, k, row, tile);
            break;
        case TYPE_Q4_1:
            pack_row(TYPE_Q4_1, from, k, row, tile);
            break;
        case TYPE_Q8_0:
            pack_row(TYPE_Q8_0, from, k, row, tile);
            break;
        default:
            pack_row(type, from, k, row, tile);
        }
    }
}

void packing_read_row(enum tensor_type type, const uint8_t *tiles, uint64_t k, uint64_t row, float *out)
{
    const struct tile_format format = tile_formats[type];
    const uint8_t *tile = tiles + row / TILE_ROWS * packing_tile_bytes(type, k);
    if (!format.codes) {
        read_floats(type, tile, k, row % TILE_ROWS, out);
        return;
    }
    struct row_group group;
    for (size_t g = 0; g < k / 32; g++, out += 32) {
        tile_row_group(format, tile, g, row % TILE_ROWS, &group);
        for (size_t i = 0; i < 32; i++) {
            float product = group.scales[i / 16] * (float)group.codes[i];
            out[i] = format.offsets ? product + group.offsets[i / 16] : product;
        }
    }
}
