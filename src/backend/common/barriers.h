/* The search for barriers between the dispatches of a plan. */
#ifndef COMMON_BARRIERS_H
#define COMMON_BARRIERS_H

#include <stdbool.h>
#include <stdint.h>

/* A range of memory that a dispatch reads or writes. */
struct memory_use {
    const void *memory;    /* compared, not read */
    uint64_t offset, size; /* size: UINT64_MAX for the rest of the memory */
    bool writes;
};

/* All ranges that one dispatch reads or writes. */
struct dispatch_uses {
    const struct memory_use *uses;
    uint32_t count;
};

/* Sets waits[i], [count], if dispatch i needs a barrier before it: it and a dispatch since the last barrier
 * use the same memory, and one of the two writes it. Returns the number of barriers. */
uint32_t find_barriers(const void *plan, uint32_t count,
    struct dispatch_uses (*uses_of)(const void *plan, uint32_t dispatch), bool *waits);

#endif
