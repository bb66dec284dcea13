/*
 * The search of every quantiser: the scale (and offset) whose nearest codes have the least squared error. For
 * fixed codes the best scale has a closed form; for a fixed scale the best codes are the nearest ones. So:
 * try a range of first guesses, evaluate each by the closed form, then alternate the two steps from the best
 * one. Everything here is inlined into the format that uses it, so that rounding function and sizes are
 * constants to the compiler. Counts are multiples of LANES.
 */
#ifndef QUANT_FIT_H
#define QUANT_FIT_H

#include "quant/blocks.h"
#include "quant/half.h"
#include "quant/lanes.h"

#include <stdbool.h>
#include <stddef.h>

/* Number of alternations of codes and scale after the best guess. */
enum { REFINEMENTS = 2 };

/* Rounds values, in units of the scale, to the nearest codes. Must accept any number and NaN. */
typedef lanes nearest_function(lanes);

/* The limits are integers below 2^22; halves go to the even neighbour; NaN goes to the lower limit. */
INLINE lanes round_within(lanes value, float lowest, float highest)
{
    const float integers_only = 0x1.8p23f; /* floats of this size are integers, so that adding it rounds */
    value = lanes_min(lanes_max(value, lanes_all(lowest)), lanes_all(highest));
    return (value + integers_only) - integers_only;
}

INLINE float round_one_within(float value, float lowest, float highest)
{
    return round_within(lanes_all(value), lowest, highest)[0];
}

INLINE float reciprocal(float value)
{
    return value != 0 ? 1 / value : 0;
}

INLINE float largest_magnitude(const float *values, size_t count)
{
    lanes largest = lanes_all(0);
    for (size_t i = 0; i < count; i += LANES)
        largest = lanes_max(lanes_magnitude(lanes_load(values + i)), largest);
    return lanes_largest(largest);
}

/* ---- Normalisation ---- */

/*
 * Copies values, divided by a power of two so that the largest magnitude is in [1, 2) and no later sum
 * overflows or underflows; returns that power, which costs no precision. NaN becomes 0. Magnitudes above 2^64
 * exceed every format with an f16 scale and are clamped; magnitudes below 2^-64 are below every format and
 * are left unchanged.
 */
INLINE float normalise(const float *values, size_t count, float *out)
{
    const lanes limit = lanes_all(0x1p64f);
    for (size_t i = 0; i < count; i += LANES) {
        lanes value = lanes_numbers(lanes_load(values + i));
        lanes_store(lanes_min(lanes_max(value, -limit), limit), out + i);
    }
    float peak = largest_magnitude(out, count);
    if (peak < 0x1p-64f)
        return 1;
    float unit = f32_from_bits(f32_bits(peak) & 0x7f800000), inverse = 1 / unit;
    for (size_t i = 0; i < count; i += LANES)
        lanes_store(lanes_load(out + i) * inverse, out + i);
    return unit;
}

/* The nearest f16 that is finite. */
INLINE uint16_t f16_saturated(float value)
{
    const float largest = 65504;
    value = value < largest ? value : largest;
    return f16_from_f32(value > -largest ? value : -largest);
}

/* An f16, and its decoded value in units of the normalised block. */
struct half_scale {
    uint16_t bits;
    float value;
};

INLINE struct half_scale half_scale_nearest(float value, float unit)
{
    uint16_t bits = f16_saturated(value * unit);
    return (struct half_scale){bits, f16_to_f32(bits) / unit};
}

/* The same, rounded away from zero: codes fitted to the largest value still reach it where f16 is coarse. */
INLINE struct half_scale half_scale_outward(float value, float unit)
{
    struct half_scale scale = half_scale_nearest(value, unit);
    bool short_of = value > 0 ? scale.value < value : scale.value > value;
    if (short_of && (scale.bits & 0x7fff) < 0x7bff) {
        scale.bits = (uint16_t)((scale.bits | (value < 0 ? 0x8000 : 0)) + 1);
        scale.value = f16_to_f32(scale.bits) / unit;
    }
    return scale;
}

/* ---- value = scale * code ---- */

/* Sums over values x and their codes q, for the closed forms. */
struct fit_sums {
    float xq, qq, q;
};

INLINE struct fit_sums sum_codes(
    const float *values, size_t count, float inverse_scale, float offset, nearest_function *nearest)
{
    lanes xq = lanes_all(0), qq = xq, q = xq;
    for (size_t i = 0; i < count; i += LANES) {
        lanes value = lanes_load(values + i), code = nearest((value - offset) * inverse_scale);
        xq += value * code;
        qq += code * code;
        q += code;
    }
    return (struct fit_sums){lanes_sum(xq), lanes_sum(qq), lanes_sum(q)};
}

INLINE float squared_error(
    const float *values, size_t count, float scale, float offset, nearest_function *nearest)
{
    float inverse_scale = reciprocal(scale);
    lanes error = lanes_all(0);
    for (size_t i = 0; i < count; i += LANES) {
        lanes value = lanes_load(values + i) - offset;
        lanes difference = value - scale * nearest(value * inverse_scale);
        error += difference * difference;
    }
    return lanes_sum(error);
}

INLINE float sum_values(const float *values, size_t count)
{
    lanes sum = lanes_all(0);
    for (size_t i = 0; i < count; i += LANES)
        sum += lanes_load(values + i);
    return lanes_sum(sum);
}

/* The codes minus `lowest`, so that they start at zero. */
INLINE void encode(const float *values, size_t count, float scale, float offset, nearest_function *nearest,
    int lowest, uint8_t *codes)
{
    float inverse_scale = reciprocal(scale), nearest_codes[BLOCK_LARGE];
    for (size_t i = 0; i < count; i += LANES)
        lanes_store(nearest((lanes_load(values + i) - offset) * inverse_scale), nearest_codes + i);
    for (size_t i = 0; i < count; i++)
        codes[i] = (uint8_t)((int)nearest_codes[i] - lowest);
}

/* First guesses: the largest magnitude maps to code first, first + step, ... and the negative of each. */
struct guesses {
    float first, step;
    int count;
};

struct scale_fit {
    float scale, gain; /* squared error = sum of squares - gain */
};

INLINE void improve_scale(
    const float *values, size_t count, nearest_function *nearest, float inverse_scale, struct scale_fit *best)
{
    struct fit_sums sums = sum_codes(values, count, inverse_scale, 0, nearest);
    float scale = sums.xq * reciprocal(sums.qq), gain = scale * sums.xq;
    if (gain > best->gain)
        *best = (struct scale_fit){scale, gain};
}

INLINE float fit_scale(const float *values, size_t count, nearest_function *nearest, struct guesses guesses)
{
    struct scale_fit best = {0, 0};
    float per_peak = reciprocal(largest_magnitude(values, count));
    for (int i = 0; i < guesses.count; i++) {
        float guess = (guesses.first + guesses.step * (float)i) * per_peak;
        improve_scale(values, count, nearest, guess, &best);
        improve_scale(values, count, nearest, -guess, &best);
    }
    for (int i = 0; i < REFINEMENTS; i++)
        improve_scale(values, count, nearest, reciprocal(best.scale), &best);
    return best.scale;
}

/* ---- value = scale * code + offset ---- */

struct line {
    float scale, offset;
};

struct line_fit {
    struct line line;
    float gain; /* squared error = sum of squares - gain */
};

/* `total` is the sum of the values. With `below_zero` the offset may not be positive. */
INLINE void improve_line(const float *values, size_t count, float total, bool below_zero,
    nearest_function *nearest, struct line guess, struct line_fit *best)
{
    struct fit_sums sums = sum_codes(values, count, reciprocal(guess.scale), guess.offset, nearest);
    float determinant = (float)count * sums.qq - sums.q * sums.q;
    struct line line;
    line.scale = ((float)count * sums.xq - total * sums.q) * reciprocal(determinant);
    line.offset = (total - line.scale * sums.q) / (float)count;
    if (below_zero && line.offset > 0)
        line = (struct line){sums.xq * reciprocal(sums.qq), 0};
    float gain = line.scale * sums.xq + line.offset * total;
    if (line.scale > 0 && gain > best->gain)
        *best = (struct line_fit){line, gain};
}

/*
 * First guesses: codes 0 and `top` are inside the extreme values by first, first + step, ... of the range,
 * each end independently.
 */
struct insets {
    float first, step;
    int count;
};

INLINE struct line fit_line(const float *values, size_t count, float top, nearest_function *nearest,
    struct insets insets, bool below_zero)
{
    lanes lows = lanes_load(values), highs = lows;
    for (size_t i = LANES; i < count; i += LANES) {
        lows = lanes_min(lanes_load(values + i), lows);
        highs = lanes_max(lanes_load(values + i), highs);
    }
    float lowest = -lanes_largest(-lows), range, total = sum_values(values, count);
    if (below_zero && lowest > 0)
        lowest = 0;
    range = lanes_largest(highs) - lowest;

    float flat = below_zero && total > 0 ? 0 : total / (float)count;
    struct line_fit best = {{0, flat}, flat * total};
    if (range <= 0)
        return best.line;
    for (int low = 0; low < insets.count; low++) {
        for (int high = 0; high < insets.count; high++) {
            float low_inset = insets.first + insets.step * (float)low;
            float high_inset = insets.first + insets.step * (float)high;
            struct line guess = {range * (1 - low_inset - high_inset) / top, lowest + low_inset * range};
            improve_line(values, count, total, below_zero, nearest, guess, &best);
        }
    }
    for (int i = 0; i < REFINEMENTS; i++)
        improve_line(values, count, total, below_zero, nearest, best.line, &best);
    return best.line;
}

#endif
