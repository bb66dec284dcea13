/* One row of a tile read plainly: what reading rows and the scalar kernels have in common. */
#ifndef CPU_TILE_ROW_H
#define CPU_TILE_ROW_H

#include "backend/cpu/tile_format.h"

/* 32 elements of one row: w = scale * code + offset. With groups of 16 each half has its own scale and
 * offset, otherwise both are the same. */
struct row_group {
    int8_t codes[32];
    float scales[2], offsets[2];
};

/* Group-of-32 `group` of row `row`, counted from the tile's beginning. */
void tile_row_group(
    struct tile_format format, const uint8_t *tile, size_t group, unsigned row, struct row_group *out);

#endif
