/* The text of `salvo info --program` that all backends share. */
#ifndef COMMON_PRINT_H
#define COMMON_PRINT_H

#include "backend/backend.h"
#include "backend/common/lowering.h"

struct printer {
    void (*line)(void *user, const char *text);
    void *user;
};

/* One line for the plan and one for each of its groups. `commands` follows the number of groups: the commands
 * of the plan on the device (", 61 dispatches"), or "". */
void print_plan(
    struct printer printer, const struct program *program, const struct plan *plan, const char *commands);

/* The same for a plan that became dispatches. */
void print_dispatched_plan(struct printer printer, const struct program *program, const struct plan *plan,
    uint32_t dispatches, uint32_t barriers);

/* One line: device memory by use, and how much was free before. */
void print_memory(struct printer printer, const struct backend_counters *counters, uint64_t free_before);

#endif
