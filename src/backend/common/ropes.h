/* Tables of cos and sin for GPUs. A table with every position would be large, and computing the angles on the
 * device would lose precision: it has positions 0 .. 255 and all multiples of 256, computed in double, and
 * the device combines two entries. */
#ifndef COMMON_ROPES_H
#define COMMON_ROPES_H

#include "program/program.h"

/* Floats of the tables of all ropes of a program, for `context` positions. */
size_t rope_tables_size(const struct program *program, uint32_t context);

/* Fills `tables`, and `offsets` with the first float of each rope's table, [ropes]. */
void rope_tables_fill(const struct program *program, uint32_t context, uint32_t *offsets, float *tables);

#endif
