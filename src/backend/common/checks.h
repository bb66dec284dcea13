/* Checks of arguments that every backend makes before it changes anything. The error names the numbers that
 * clash. */
#ifndef COMMON_CHECKS_H
#define COMMON_CHECKS_H

#include "backend/backend.h"

/* `pages` is the size of the KV pool. */
enum salvo_status backend_check_step(
    const struct backend_options *options, uint32_t pages, uint32_t vocabulary, const struct step *step);

/* Whether a slot has so many positions, for saving and restoring its state. */
enum salvo_status backend_check_slot(
    const struct backend_options *options, uint32_t slot, uint32_t positions);

/* Whether the results of a step are still available: the last `kept` tickets, up to `last`, have results. */
enum salvo_status backend_check_ticket(uint64_t ticket, uint64_t last, uint32_t kept);

#endif
