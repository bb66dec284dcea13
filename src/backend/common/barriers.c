#include "backend/common/barriers.h"

/* Whether the beginning of a is within b; the end of a use may exceed 64 bits. */
static bool begins_within(const struct memory_use *a, const struct memory_use *b)
{
    return a->offset < b->offset || a->offset - b->offset < b->size;
}

static bool uses_conflict(const struct memory_use *a, const struct memory_use *b)
{
    return (a->writes || b->writes) && a->memory == b->memory && begins_within(a, b) && begins_within(b, a);
}

static bool dispatches_conflict(struct dispatch_uses earlier, struct dispatch_uses later)
{
    for (uint32_t i = 0; i < earlier.count; i++) {
        for (uint32_t j = 0; j < later.count; j++) {
            if (uses_conflict(&earlier.uses[i], &later.uses[j]))
                return true;
        }
    }
    return false;
}

uint32_t find_barriers(const void *plan, uint32_t count,
    struct dispatch_uses (*uses_of)(const void *plan, uint32_t dispatch), bool *waits)
{
    uint32_t barriers = 0, since = 0; /* the first dispatch after the last barrier */
    for (uint32_t i = 0; i < count; i++) {
        waits[i] = false;
        for (uint32_t j = since; j < i && !waits[i]; j++)
            waits[i] = dispatches_conflict(uses_of(plan, j), uses_of(plan, i));
        if (waits[i]) {
            since = i;
            barriers++;
        }
    }
    return barriers;
}
