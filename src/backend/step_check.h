/* Whether a step can be run at all: every backend asks before it touches anything. */
#ifndef BACKEND_STEP_CHECK_H
#define BACKEND_STEP_CHECK_H

#include "backend/backend.h"

/* `pages` is how many the KV pool has. The error names the run and the numbers that clash. */
enum salvo_status backend_check_step(
    const struct backend_options *options, uint32_t pages, uint32_t vocabulary, const struct step *step);

#endif
