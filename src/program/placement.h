/* Placement of scratch: buffers whose lifetimes do not overlap share memory. */
#ifndef PROGRAM_PLACEMENT_H
#define PROGRAM_PLACEMENT_H

#include "program/program.h"

enum { PLACEMENT_ALIGNMENT = 64 };

/*
 * Gives each scratch buffer that an op uses an offset in one arena of *out_total bytes, a multiple of 64, for
 * steps of up to `capacities` rows; other buffers get SIZE_MAX. `group_of_op` [op_count] is the group of each
 * op, in ascending order: groups run one after the other, the ops of a group in any order. A value lives from
 * the group that writes it to the last group that reads it. Buffers share memory if no group needs values of
 * both; a buffer that every layer writes again is free between its uses. Without `share` no memory is shared,
 * for the debug path.
 */
enum salvo_status placement_compute(const struct program *program, const uint32_t capacities[ROW_KIND_COUNT],
    const uint32_t *group_of_op, bool share, size_t *offsets, size_t *out_total);

#endif
