#include "backend/cuda/cuda_weight_tiles.h"

#include "backend/cuda/weight_tiles.h"
#include "quant/block_parts.h"

#include <string.h>

enum { LANES = 32, LANES_OF_ROW = 4, TYPES = 40 };

struct format {
    uint8_t planes_16, planes_8, planes_4, row_scale, lane_scale, group, offsets;
};

#define FORMAT(type, p16, p8, p4, row_scale, lane_scale, group, offsets, top, unit) \
    [TYPE_##type] = {p16, p8, p4, row_scale, lane_scale, group, offsets},
static const struct format formats[TYPES] = {CUDA_TILE_FORMATS(FORMAT)};

/* The offsets of the parts of a weight tile. */
struct tile_layout {
    size_t plane_8, plane_4, row_scales, lane_scales, bytes;
};

static struct tile_layout layout_of(struct format format)
{
    struct tile_layout layout;
    layout.plane_8 = (size_t)format.planes_16 * 16 * LANES;
    layout.plane_4 = layout.plane_8 + (size_t)format.planes_8 * 8 * LANES;
    layout.row_scales = layout.plane_4 + (size_t)format.planes_4 * 4 * LANES;
    layout.lane_scales = layout.row_scales + (size_t)format.row_scale * CUDA_TILE_ROWS;
    layout.bytes = layout.lane_scales + (size_t)format.lane_scale * LANES;
    return layout;
}

static bool is_float(enum tensor_type type)
{
    return type == TYPE_F32 || type == TYPE_F16 || type == TYPE_BF16;
}

bool cuda_weight_tiles_supported(enum tensor_type type, uint64_t k)
{
    if ((unsigned)type >= TYPES || k == 0 || k > UINT32_MAX / 2)
        return false;
    return formats[type].planes_16 + formats[type].planes_8 > 0 &&
           k % tensor_type_info(type)->block_elements == 0;
}

/* How the warps share the parts of a row: as few passes and part groups as possible, because each warp
 * prepares the input of each group, then as little padding as possible; if partial sums must be few, with as
 * few parts as this requires. */
static void choose_passes(struct cuda_matrix *matrix, struct cuda_limits limits)
{
    enum { GROUP_COST = 8 }; /* passes */
    const uint32_t wide = limits.pass_bytes / matrix->tile_bytes, warps = wide < 1            ? 1
                                                                          : wide < CUDA_WARPS ? wide
                                                                                              : CUDA_WARPS;
    uint64_t best = UINT64_MAX;
    matrix->parts_per_pass = 1;
    for (uint32_t each = 1; each <= warps; each++) {
        if (each > 1 && (uint64_t)matrix->tile_rows_per_block * each * CUDA_TILE_ROWS * sizeof(float) >
                            limits.partial_bytes)
            break;
        uint64_t groups = (matrix->parts + each - 1) / each, tile_rows_at_once = warps / each;
        uint64_t passes =
            groups * ((matrix->tile_rows_per_block + tile_rows_at_once - 1) / tile_rows_at_once);
        uint64_t cost =
            ((passes + GROUP_COST * groups) << 32) + ((groups * each - matrix->parts) << 16) + groups;
        if (cost < best) {
            best = cost;
            matrix->parts_per_pass = each;
            matrix->part_groups = (uint32_t)groups;
            matrix->tile_rows_per_pass = (uint32_t)tile_rows_at_once;
        }
    }
    matrix->parts_reciprocal = 65536 / matrix->parts_per_pass + 1;
}

struct cuda_matrix cuda_matrix_shape(
    enum tensor_type type, uint32_t rows, uint32_t columns, uint32_t tile_rows_per_block)
{
    return cuda_matrix_shape_within(type, rows, columns, tile_rows_per_block,
        (struct cuda_limits){UINT32_MAX, CUDA_PASS_BYTES, CUDA_CHUNK_BYTES});
}

struct cuda_matrix cuda_matrix_shape_within(enum tensor_type type, uint32_t rows, uint32_t columns,
    uint32_t tile_rows_per_block, struct cuda_limits limits)
{
    struct cuda_matrix matrix = {
        .type = type,
        .rows = rows,
        .columns = columns,
        .tile_rows = (rows + CUDA_TILE_ROWS - 1) / CUDA_TILE_ROWS,
        .parts = (columns + CUDA_TILE_COLUMNS - 1) / CUDA_TILE_COLUMNS,
        .tile_bytes = (uint32_t)layout_of(formats[type]).bytes,
        .tile_rows_per_block = tile_rows_per_block,
    };
    matrix.owners = (matrix.tile_rows + tile_rows_per_block - 1) / tile_rows_per_block;
    choose_passes(&matrix, limits);
    uint32_t pass_bytes = matrix.tile_rows_per_pass * matrix.parts_per_pass * matrix.tile_bytes;
    uint32_t passes = pass_bytes && pass_bytes < limits.chunk_bytes ? limits.chunk_bytes / pass_bytes : 1;
    uint32_t chunk = passes * matrix.tile_rows_per_pass;
    matrix.tile_rows_per_chunk = chunk < tile_rows_per_block ? chunk : tile_rows_per_block;
    return matrix;
}

uint64_t cuda_owner_bytes(const struct cuda_matrix *matrix)
{
    return (uint64_t)matrix->tile_rows_per_block * matrix->part_groups * matrix->parts_per_pass *
           matrix->tile_bytes;
}

uint64_t cuda_matrix_bytes(const struct cuda_matrix *matrix)
{
    return matrix->owners * cuda_owner_bytes(matrix);
}

struct cuda_stream cuda_matrix_stream(const struct cuda_matrix *matrix, uint32_t first_block)
{
    uint32_t tile_row_bytes = matrix->parts_per_pass * matrix->tile_bytes;
    return (struct cuda_stream){
        .base = matrix->base,
        .owner_bytes = cuda_owner_bytes(matrix),
        .group_bytes = matrix->tile_rows_per_block * tile_row_bytes,
        .chunk_bytes = matrix->tile_rows_per_chunk * tile_row_bytes,
        .groups = matrix->part_groups,
        .first_block = first_block,
        .owners = matrix->owners,
    };
}

/* ---- One lane of a weight tile ---- */

static void write_nibbles(const uint64_t octets[4], unsigned shift, uint8_t *to)
{
    for (size_t j = 0; j < 2; j++)
        store_octet(to + j * 8, octet_bits(octets[j], shift, 15) | octet_bits(octets[j + 2], shift, 15) << 4);
}

static void write_pairs(const uint64_t octets[4], uint8_t *to)
{
    store_octet(to, octet_bits(octets[0], 0, 3) | octet_bits(octets[1], 0, 3) << 2 |
                        octet_bits(octets[2], 0, 3) << 4 | octet_bits(octets[3], 0, 3) << 6);
}

/* Bit `shift` of element e to bit e / 4 of byte e % 4. */
static void write_bits(const uint64_t octets[4], unsigned shift, uint8_t *to)
{
    uint64_t both = 0;
    for (unsigned o = 0; o < 4; o++) {
        uint64_t bits = octet_bits(octets[o], shift, 1);
        both |= (bits & UINT32_MAX) << (2 * o) | (bits >> 32) << (2 * o + 1);
    }
    uint32_t word = (uint32_t)both;
    memcpy(to, &word, sizeof word);
}

static void write_codes(
    enum tensor_type type, struct tile_layout layout, const uint64_t octets[4], unsigned lane, uint8_t *tile)
{
    uint8_t *nibbles = tile + lane * 16, *eights = tile + layout.plane_8 + lane * 8,
            *fours = tile + layout.plane_4 + lane * 4;
    switch (type) {
    case TYPE_Q8_0:
        for (size_t plane = 0; plane < 2; plane++)
            memcpy(tile + (plane * LANES + lane) * 16, octets + plane * 2, 16);
        break;
    case TYPE_Q5_0:
    case TYPE_Q5_1:
    case TYPE_Q5_K:
        write_nibbles(octets, 0, nibbles);
        write_bits(octets, 4, fours);
        break;
    case TYPE_Q6_K:
        write_nibbles(octets, 2, nibbles);
        write_pairs(octets, eights);
        break;
    case TYPE_Q2_K:
        write_pairs(octets, eights);
        break;
    case TYPE_Q3_K:
        write_pairs(octets, eights);
        write_bits(octets, 2, fours);
        break;
    default:
        write_nibbles(octets, 0, nibbles);
    }
}

/* The scales of the lane that has group `group` of 32 elements of a block. */
static void write_scales(struct format format, struct tile_layout layout, const struct block_parts *parts,
    size_t group, unsigned lane, uint8_t *tile)
{
    uint8_t *row = tile + layout.row_scales + lane / LANES_OF_ROW * format.row_scale,
            *own = tile + layout.lane_scales + lane * format.lane_scale;
    uint8_t *scale = format.row_scale ? row : own;
    if (format.row_scale == 0 && format.lane_scale == 1) {
        own[0] = (uint8_t)parts->scale; /* an exponent */
        return;
    }
    memcpy(scale, &parts->scale, 2);
    if (format.offsets)
        memcpy(scale + 2, &parts->min, 2);
    if (format.row_scale == 0)
        return;
    if (format.group == 16) {
        own[0] = parts->group_scales[group * 2];
        own[1] = parts->group_scales[group * 2 + 1];
    } else {
        own[0] = parts->group_scales[group];
        if (format.offsets)
            own[1] = parts->group_mins[group];
    }
}

static void write_floats(const uint8_t *from, size_t bytes, size_t size, unsigned lane, uint8_t *tile)
{
    uint8_t block[128] = {0};
    memcpy(block, from, bytes);
    for (size_t at = 0; at < size; at += 16)
        memcpy(tile + (at / 16 * LANES + lane) * 16, block + at, 16);
}

/* ---- Rows into weight tiles ---- */

/* The offset of the weight tile of a local tile row and part among the tiles of its owner. */
static size_t tile_at(const struct cuda_matrix *matrix, uint32_t local, uint32_t part)
{
    uint32_t group = part / matrix->parts_per_pass, number = part % matrix->parts_per_pass;
    size_t index = ((size_t)group * matrix->tile_rows_per_block + local) * matrix->parts_per_pass + number;
    return index * matrix->tile_bytes;
}

/* Lane and weight tile of block of 32 elements number `block` of a row. */
static uint8_t *tile_of(const struct cuda_matrix *matrix, uint32_t local, size_t block, uint8_t *owner)
{
    return owner + tile_at(matrix, local, (uint32_t)(block / LANES_OF_ROW));
}

static void pack_float_row(
    const struct cuda_matrix *matrix, const uint8_t *row, uint32_t local, unsigned lane_row, uint8_t *owner)
{
    const size_t element = matrix->type == TYPE_F32 ? 4 : 2, size = 32 * element;
    const size_t bytes = matrix->columns * element;
    for (size_t block = 0; block * size < bytes; block++) {
        size_t left = bytes - block * size;
        write_floats(row + block * size, left < size ? left : size, size,
            lane_row * LANES_OF_ROW + (unsigned)(block % LANES_OF_ROW), tile_of(matrix, local, block, owner));
    }
}

INLINE void pack_row(const struct cuda_matrix *matrix, enum tensor_type type, const uint8_t *row,
    uint32_t local, unsigned lane_row, uint8_t *owner)
{
    const struct format format = formats[type];
    const struct tile_layout layout = layout_of(format);
    const struct tensor_type_info *info = tensor_type_info(type);
    const size_t groups = info->block_elements / 32;
    struct block_parts parts;
    for (size_t i = 0; i < matrix->columns / info->block_elements; i++, row += info->block_bytes) {
        if (groups == 1)
            read_small_block(type, row, &parts);
        else
            read_large_block(type, row, &parts);
        for (size_t group = 0; group < groups; group++) {
            const size_t block = i * groups + group;
            const unsigned lane = lane_row * LANES_OF_ROW + (unsigned)(block % LANES_OF_ROW);
            uint8_t *tile = tile_of(matrix, local, block, owner);
            write_codes(type, layout, parts.octets + group * 4, lane, tile);
            write_scales(format, layout, &parts, group, lane, tile);
        }
    }
}

static void pack_any_row(
    const struct cuda_matrix *matrix, const uint8_t *row, uint32_t local, unsigned lane_row, uint8_t *owner)
{
    switch (
        (enum tensor_type)matrix->type) { /* a case for each common type, so that each gets its own loop */
    case TYPE_Q4_0:
        pack_row(matrix, TYPE_Q4_0, row, local, lane_row, owner);
        break;
    case TYPE_Q4_1:
        pack_row(matrix, TYPE_Q4_1, row, local, lane_row, owner);
        break;
    case TYPE_Q8_0:
        pack_row(matrix, TYPE_Q8_0, row, local, lane_row, owner);
        break;
    case TYPE_Q4_K:
        pack_row(matrix, TYPE_Q4_K, row, local, lane_row, owner);
        break;
    case TYPE_Q6_K:
        pack_row(matrix, TYPE_Q6_K, row, local, lane_row, owner);
        break;
    default:
        if (is_float((enum tensor_type)matrix->type))
            pack_float_row(matrix, row, local, lane_row, owner);
        else
            pack_row(matrix, (enum tensor_type)matrix->type, row, local, lane_row, owner);
    }
}

void cuda_pack_owners(
    const struct cuda_matrix *matrix, const uint8_t *rows, uint32_t first, uint32_t count, uint8_t *out)
{
    const struct tensor_type_info *info = tensor_type_info(matrix->type);
    const size_t row_bytes = matrix->columns / info->block_elements * info->block_bytes;
    /* Zeros everywhere first: codes and scales of zero are zero weights in every format. */
    memset(out, 0, count * cuda_owner_bytes(matrix));
    for (uint32_t owner = 0; owner < count; owner++, out += cuda_owner_bytes(matrix)) {
        for (uint32_t local = 0; local < matrix->tile_rows_per_block; local++) {
            uint64_t row = ((uint64_t)(first + owner) * matrix->tile_rows_per_block + local) * CUDA_TILE_ROWS;
            for (unsigned i = 0; i < CUDA_TILE_ROWS && row + i < matrix->rows; i++)
                pack_any_row(matrix, rows + (row + i) * row_bytes, local, i, out);
        }
    }
}
