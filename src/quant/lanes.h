/*
 * Vectors of four floats, with the vector extensions of gcc and clang, which compile to NEON or SSE. Sums in
 * fixed columns give the same bits on every machine.
 */
#ifndef QUANT_LANES_H
#define QUANT_LANES_H

#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { LANES = 4 };

typedef float lanes __attribute__((vector_size(16)));
typedef int32_t lane_mask __attribute__((vector_size(16))); /* all ones where a comparison is true */

INLINE lanes lanes_load(const float *from)
{
    lanes value;
    memcpy(&value, from, sizeof value);
    return value;
}

INLINE void lanes_store(lanes value, float *to)
{
    memcpy(to, &value, sizeof value);
}

INLINE lanes lanes_all(float value)
{
    return (lanes){value, value, value, value};
}

INLINE lanes lanes_select(lane_mask mask, lanes where_set, lanes elsewhere)
{
    return (lanes)(((lane_mask)where_set & mask) | ((lane_mask)elsewhere & ~mask));
}

INLINE lanes lanes_only(lane_mask mask, lanes where_set)
{
    return (lanes)((lane_mask)where_set & mask);
}

/* If either is NaN, the result is b. */
INLINE lanes lanes_max(lanes a, lanes b)
{
    return lanes_select(a > b, a, b);
}

INLINE lanes lanes_min(lanes a, lanes b)
{
    return lanes_select(a < b, a, b);
}

INLINE lanes lanes_magnitude(lanes value)
{
    return (lanes)((lane_mask)value & 0x7fffffff);
}

/* NaN becomes 0. */
INLINE lanes lanes_numbers(lanes value)
{
    return lanes_only((lane_mask)lanes_magnitude(value) <= 0x7f800000, value);
}

INLINE float lanes_sum(lanes value)
{
    return (value[0] + value[2]) + (value[1] + value[3]);
}

INLINE float lanes_largest(lanes value)
{
    float left = value[0] > value[1] ? value[0] : value[1], right = value[2] > value[3] ? value[2] : value[3];
    return left > right ? left : right;
}

#endif
