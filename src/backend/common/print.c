#include "backend/common/print.h"

#include <inttypes.h>
#include <stdio.h>

void print_plan(
    struct printer printer, const struct program *program, const struct plan *plan, const char *commands)
{
    char text[640];
    snprintf(text, sizeof text, "plan for %u tokens: %u groups%s, scratch %zu bytes",
        plan->capacity[ROWS_TOKENS], plan->group_count, commands, plan->arena_bytes);
    printer.line(printer.user, text);
    for (uint32_t i = 0; i < plan->group_count; i++) {
        lower_describe(program, plan, i, text, sizeof text);
        printer.line(printer.user, text);
    }
}

void print_dispatched_plan(struct printer printer, const struct program *program, const struct plan *plan,
    uint32_t dispatches, uint32_t barriers)
{
    char commands[64];
    snprintf(commands, sizeof commands, ", %u dispatches, %u barriers", dispatches, barriers);
    print_plan(printer, program, plan, commands);
}

void print_memory(struct printer printer, const struct backend_counters *counters, uint64_t free_before)
{
    char text[320];
    snprintf(text, sizeof text,
        "device memory: weights %" PRIu64 ", state %" PRIu64 ", scratch and tables %" PRIu64 ": %" PRIu64
        " bytes of %" PRIu64 " that were free",
        counters->weight_bytes, counters->state_bytes, counters->scratch_bytes,
        counters->weight_bytes + counters->state_bytes + counters->scratch_bytes, free_before);
    printer.line(printer.user, text);
}
