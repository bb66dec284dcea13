/* Where scratch lies: buffers whose values are not needed at the same time share memory. */
#ifndef PROGRAM_PLACEMENT_H
#define PROGRAM_PLACEMENT_H

#include "program/program.h"

enum { PLACEMENT_ALIGNMENT = 64 };

/*
 * Gives each scratch buffer that an op uses its offset in one arena of *out_total bytes, a multiple of 64,
 * for steps of up to `capacities` rows; other buffers get SIZE_MAX. `group_of_op` [op_count] says which of a
 * plan's groups each op belongs to, in ascending order: groups run one after the other, the ops of one in any
 * order. A value lives from the group that writes it to the last that reads it, and a buffer's place is
 * shared only with those that hold nothing meanwhile; so a buffer that every layer uses anew is free between
 * its uses. Without `share` all lie apart, as the debug path needs them.
 */
enum salvo_status placement_compute(const struct program *program, const uint32_t capacities[ROW_KIND_COUNT],
    const uint32_t *group_of_op, bool share, size_t *offsets, size_t *out_total);

#endif
