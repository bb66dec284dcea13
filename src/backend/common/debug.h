/*
 * The debug path, for `salvo verify`: a step whose groups run one by one on scratch buffers that do not share
 * memory, so that the host can read and overwrite each of them between two groups.
 */
#ifndef COMMON_DEBUG_H
#define COMMON_DEBUG_H

#include "backend/backend.h"
#include "backend/common/lowering.h"

struct debug_step {
    const struct backend *backend;
    struct executor *executor;
    const struct plan *plan;
    size_t *offsets; /* [buffers]: in `memory` */
    uint8_t *memory; /* of all scratch buffers; NULL: the step has not begun */
};

/* Groups 0 .. plan->group_count - 1 then run in order, by the backend's debug.run. */
enum salvo_status debug_step_begin(struct debug_step *debug, const struct backend *backend,
    struct executor *executor, const struct program *program, const struct step *step);
void debug_step_end(struct debug_step *debug);

/* The rows of a scratch buffer; NULL when it stays inside a kernel. */
float *debug_step_buffer(const struct debug_step *debug, buffer_id buffer);

#endif
