/* Arithmetic with overflow checks. Each returns true and sets *out, or returns false on overflow. */
#ifndef BASE_CHECKED_H
#define BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool checked_mul(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool checked_add(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

static inline bool checked_mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool checked_add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* `alignment` is a power of two. */
static inline bool checked_align_u64(uint64_t value, uint64_t alignment, uint64_t *out)
{
    if (!checked_add_u64(value, alignment - 1, out))
        return false;
    *out &= ~(alignment - 1);
    return true;
}

#endif
