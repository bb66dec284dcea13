/*
 * The search behind every quantiser: which scale (and offset) lets the nearest codes come closest to the
 * values, in the sense of least squares.
 *
 * For fixed codes the best scale has a closed form; for a fixed scale the best codes are the nearest ones.
 * So: try a range of first guesses, let the closed form judge each, then alternate the two steps from the
 * best of them.
 *
 * Everything here is inlined into the format that uses it, so that its rounding function and its sizes are
 * constants to the compiler. Sums run in LANES fixed columns: that is what vector units want, and it makes
 * the result the same on all of them.
 */
#ifndef QUANT_FIT_H
#define QUANT_FIT_H

#include "quant/half.h"

#include <stdbool.h>
#include <stddef.h>

#define FIT_INLINE static inline __attribute__((always_inline))

enum { LANES = 8 };

/* The code nearest to a value that is given in units of the scale. Must accept any number and NaN. */
typedef float nearest_function(float);

/* The limits are integers below 2^22; halves go to the even neighbour; NaN goes to the lower limit. */
FIT_INLINE float round_within(float value, float lowest, float highest)
{
    float limited = value > lowest ? value : lowest;
    limited = limited < highest ? limited : highest;
    return (limited + 0x1.8p23f) - 0x1.8p23f; /* beside 1.5 * 2^23 floats are integers */
}

FIT_INLINE float sum_lanes(const float lanes[LANES])
{
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

FIT_INLINE float reciprocal(float value)
{
    return value != 0 ? 1 / value : 0;
}

/* ---- Bringing values into reach
 * ----------------------------------------------------------------------------- */

/*
 * Copies values so that no later sum can overflow or vanish: divided by a power of two, which is returned and
 * costs no precision, the largest lies in [1, 2). NaN becomes 0. What exceeds 2^64 is beyond every format
 * with an f16 scale and is cut there; what is below 2^-64 is below every one and is left as it is.
 */
FIT_INLINE float normalise(const float *values, size_t count, float *out)
{
    const float limit = 0x1p64f;
    float largest[LANES] = {0};
    for (size_t i = 0; i < count; i += LANES)
        for (size_t lane = 0; lane < LANES; lane++) {
            float value = values[i + lane];
            value = value == value ? value : 0;
            value = value < limit ? value : limit;
            value = value > -limit ? value : -limit;
            float magnitude = value < 0 ? -value : value;
            largest[lane] = magnitude > largest[lane] ? magnitude : largest[lane];
            out[i + lane] = value;
        }
    float peak = 0;
    for (size_t lane = 0; lane < LANES; lane++)
        peak = largest[lane] > peak ? largest[lane] : peak;
    if (peak < 0x1p-64f)
        return 1;
    float unit = f32_from_bits(f32_bits(peak) & 0x7f800000), inverse = 1 / unit;
    for (size_t i = 0; i < count; i++)
        out[i] *= inverse;
    return unit;
}

/* The nearest f16 that is finite. */
FIT_INLINE uint16_t f16_saturated(float value)
{
    const float largest = 65504;
    value = value < largest ? value : largest;
    return f16_from_f32(value > -largest ? value : -largest);
}

/* An f16, and its value in units of the normalised block: what the reader will see, and what codes must be
 * made for. */
struct half_scale {
    uint16_t bits;
    float value;
};

FIT_INLINE struct half_scale half_scale_nearest(float value, float unit)
{
    uint16_t bits = f16_saturated(value * unit);
    return (struct half_scale){bits, f16_to_f32(bits) / unit};
}

/* As above, but never nearer to zero: codes that are to reach the largest value still do, even where f16 is
 * coarse. */
FIT_INLINE struct half_scale half_scale_outward(float value, float unit)
{
    struct half_scale scale = half_scale_nearest(value, unit);
    bool short_of = value > 0 ? scale.value < value : scale.value > value;
    if (short_of && (scale.bits & 0x7fff) < 0x7bff) {
        scale.bits = (uint16_t)((scale.bits | (value < 0 ? 0x8000 : 0)) + 1);
        scale.value = f16_to_f32(scale.bits) / unit;
    }
    return scale;
}

/* ---- value = scale * code
 * ------------------------------------------------------------------------------------ */

/* What the closed forms need to know about values x and their codes q. */
struct fit_sums {
    float xq, qq, q;
};

FIT_INLINE struct fit_sums sum_codes(
    const float *values, size_t count, float inverse_scale, float offset, nearest_function *nearest)
{
    float xq[LANES] = {0}, qq[LANES] = {0}, q[LANES] = {0};
    for (size_t i = 0; i < count; i += LANES)
        for (size_t lane = 0; lane < LANES; lane++) {
            float value = values[i + lane], code = nearest((value - offset) * inverse_scale);
            xq[lane] += value * code;
            qq[lane] += code * code;
            q[lane] += code;
        }
    return (struct fit_sums){sum_lanes(xq), sum_lanes(qq), sum_lanes(q)};
}

FIT_INLINE float squared_error(
    const float *values, size_t count, float scale, float offset, nearest_function *nearest)
{
    float inverse_scale = reciprocal(scale), error[LANES] = {0};
    for (size_t i = 0; i < count; i += LANES)
        for (size_t lane = 0; lane < LANES; lane++) {
            float value = values[i + lane] - offset;
            float difference = value - scale * nearest(value * inverse_scale);
            error[lane] += difference * difference;
        }
    return sum_lanes(error);
}

FIT_INLINE float largest_magnitude(const float *values, size_t count)
{
    float largest[LANES] = {0}, result = 0;
    for (size_t i = 0; i < count; i += LANES)
        for (size_t lane = 0; lane < LANES; lane++) {
            float magnitude = values[i + lane] < 0 ? -values[i + lane] : values[i + lane];
            largest[lane] = magnitude > largest[lane] ? magnitude : largest[lane];
        }
    for (size_t lane = 0; lane < LANES; lane++)
        result = largest[lane] > result ? largest[lane] : result;
    return result;
}

/* First guesses: the largest magnitude gets the code first, first + step, ... and the same with its sign
 * turned. */
struct reach {
    float first, step;
    int count;
};

FIT_INLINE float fit_scale(const float *values, size_t count, nearest_function *nearest, struct reach reach)
{
    const int refinements = 2;
    float peak = largest_magnitude(values, count), best_gain = 0, best_scale = 0;
    float per_peak = reciprocal(peak);
    for (int try = 0; try < 2 * reach.count + refinements; try++) {
        float inverse_scale = try < 2 * reach.count ? (reach.first + reach.step * (float)(try / 2)) * per_peak
                                                    : reciprocal(best_scale);
        if (try < 2 * reach.count && try % 2)
            inverse_scale = -inverse_scale;
        struct fit_sums sums = sum_codes(values, count, inverse_scale, 0, nearest);
        float scale = sums.xq * reciprocal(sums.qq),
              gain = scale * sums.xq; /* error = sum of squares - gain */
        if (gain > best_gain) {
            best_gain = gain;
            best_scale = scale;
        }
    }
    return best_scale;
}

/* ---- value = scale * code + offset
 * --------------------------------------------------------------------------- */

struct line {
    float scale, offset;
};

/*
 * Codes are 0..top. First guesses lay the outermost codes `inset` ranges inside or outside the outermost
 * values, each end on its own. With `below_zero` the offset may not be positive.
 */
struct insets {
    float first, step;
    int count;
};

FIT_INLINE struct line fit_line(const float *values, size_t count, float top, nearest_function *nearest,
    struct insets insets, bool below_zero)
{
    const int refinements = 2, guesses = insets.count * insets.count;
    float lowest = values[0], highest = values[0], sum[LANES] = {0};
    for (size_t i = 0; i < count; i++) {
        lowest = values[i] < lowest ? values[i] : lowest;
        highest = values[i] > highest ? values[i] : highest;
        sum[i % LANES] += values[i];
    }
    if (below_zero && lowest > 0)
        lowest = 0;
    float total = sum_lanes(sum), range = highest - lowest, best_gain = 0;
    struct line best = {0, below_zero && total > 0 ? 0 : total / (float)count};
    if (range <= 0)
        return best;
    best_gain = best.offset * total;
    for (int try = 0; try < guesses + refinements; try++) {
        struct line guess = best;
        if (try < guesses) {
            float low_inset = insets.first + insets.step * (float)(try / insets.count);
            float high_inset = insets.first + insets.step * (float)(try % insets.count);
            guess.offset = lowest + low_inset * range;
            guess.scale = range * (1 - low_inset - high_inset) / top;
        }
        struct fit_sums sums = sum_codes(values, count, reciprocal(guess.scale), guess.offset, nearest);
        float determinant = (float)count * sums.qq - sums.q * sums.q;
        struct line line;
        line.scale = ((float)count * sums.xq - total * sums.q) * reciprocal(determinant);
        line.offset = (total - line.scale * sums.q) / (float)count;
        if (below_zero && line.offset > 0)
            line = (struct line){sums.xq * reciprocal(sums.qq), 0};
        float gain = line.scale * sums.xq + line.offset * total; /* error = sum of squares - gain */
        if (line.scale > 0 && gain > best_gain) {
            best_gain = gain;
            best = line;
        }
    }
    return best;
}

#endif
