/* Reads one row of a tile without vectors, for packing_read_row and the scalar kernels. */
#ifndef CPU_TILE_ROW_H
#define CPU_TILE_ROW_H

#include "backend/cpu/tile_format.h"

/* 32 elements of one row: w = scale * code + offset. With groups of 16 each half has its own scale and
 * offset, otherwise both are the same. */
struct row_group {
    int8_t codes[32];
    float scales[2], offsets[2];
};

/* Reads group number `group` of 32 elements of row `row`. */
void tile_row_group(
    struct tile_format format, const uint8_t *tile, size_t group, unsigned row, struct row_group *out);

#endif
