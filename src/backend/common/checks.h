/* What every backend asks before it touches anything: whether options make sense, and whether a step can be
 * run. */
#ifndef COMMON_CHECKS_H
#define COMMON_CHECKS_H

#include "backend/backend.h"

/* Puts a number in place of `outputs` 0, and at least one row of logits for each slot. */
enum salvo_status backend_complete_options(struct backend_options *options);

/* `pages` is how many the KV pool has. The error names the run and the numbers that clash. */
enum salvo_status backend_check_step(
    const struct backend_options *options, uint32_t pages, uint32_t vocabulary, const struct step *step);

#endif
