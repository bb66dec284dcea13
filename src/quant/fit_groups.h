/*
 * Blocks of 256 whose groups have small integer scales, multiplied by one f16. First each group is fitted
 * alone; then the integer scales with the least error are chosen among the nearest integers of each fit and
 * their neighbours; then the f16 is fitted to the codes again, and the choice is repeated if the error became
 * smaller.
 */
#ifndef QUANT_FIT_GROUPS_H
#define QUANT_FIT_GROUPS_H

#include "quant/fit.h"

#include <float.h>

enum { MAX_GROUPS = 16 };

/* ---- value = scale * group scale * code ---- */

struct signed_groups {
    struct half_scale scale;
    int8_t scales[MAX_GROUPS];
};

/* Chooses the groups' scales for the block's scale; returns the squared error. Scales are lowest..-lowest-1.
 */
INLINE float choose_signed_groups(const float values[BLOCK_LARGE], size_t group_size,
    const float fits[MAX_GROUPS], int lowest, nearest_function *nearest, struct signed_groups *groups)
{
    float total = 0, per_scale = reciprocal(groups->scale.value);
    for (size_t group = 0; group < BLOCK_LARGE / group_size; group++) {
        const float middle = round_one_within(fits[group] * per_scale, (float)lowest, (float)(-lowest - 1));
        float best_error = FLT_MAX;
        for (int step = 0; step < 3; step++) {
            float candidate =
                round_one_within(middle + (float)(step - 1), (float)lowest, (float)(-lowest - 1));
            float error = squared_error(
                values + group * group_size, group_size, groups->scale.value * candidate, 0, nearest);
            if (error < best_error) {
                best_error = error;
                groups->scales[group] = (int8_t)candidate;
            }
        }
        total += best_error;
    }
    return total;
}

INLINE float refit_signed_scale(const float values[BLOCK_LARGE], size_t group_size, nearest_function *nearest,
    const struct signed_groups *groups)
{
    float xq = 0, qq = 0;
    for (size_t group = 0; group < BLOCK_LARGE / group_size; group++) {
        float scale = (float)groups->scales[group];
        struct fit_sums sums = sum_codes(
            values + group * group_size, group_size, reciprocal(groups->scale.value * scale), 0, nearest);
        xq += sums.xq * scale;
        qq += sums.qq * scale * scale;
    }
    return xq * reciprocal(qq);
}

INLINE struct signed_groups fit_signed_groups(const float values[BLOCK_LARGE], float unit, size_t group_size,
    int lowest, nearest_function *nearest, struct guesses guesses)
{
    float fits[MAX_GROUPS], widest = 0;
    for (size_t group = 0; group < BLOCK_LARGE / group_size; group++) {
        fits[group] = fit_scale(values + group * group_size, group_size, nearest, guesses);
        bool wider = fits[group] * fits[group] > widest * widest;
        widest = wider ? fits[group] : widest;
    }
    struct signed_groups first = {.scale = half_scale_outward(widest / (float)lowest, unit)}, second = first;
    float first_error = choose_signed_groups(values, group_size, fits, lowest, nearest, &first);
    second.scale = half_scale_nearest(refit_signed_scale(values, group_size, nearest, &first), unit);
    float second_error = choose_signed_groups(values, group_size, fits, lowest, nearest, &second);
    return second_error < first_error ? second : first;
}

INLINE void encode_signed_groups(const float values[BLOCK_LARGE], size_t group_size,
    nearest_function *nearest, int lowest_code, const struct signed_groups *groups,
    uint8_t codes[BLOCK_LARGE])
{
    for (size_t group = 0, first = 0; first < BLOCK_LARGE; group++, first += group_size) {
        float scale = groups->scale.value * (float)groups->scales[group];
        encode(values + first, group_size, scale, 0, nearest, lowest_code, codes + first);
    }
}

/* ---- value = scale * group scale * code - min * group min ---- */

struct affine_groups {
    struct half_scale scale, min;
    uint8_t scales[MAX_GROUPS], mins[MAX_GROUPS];
};

/* Chooses the groups' scales and mins, 0..highest; returns the squared error. */
INLINE float choose_affine_groups(const float values[BLOCK_LARGE], size_t group_size,
    const struct line fits[MAX_GROUPS], int highest, nearest_function *nearest, struct affine_groups *groups)
{
    float total = 0, per_scale = reciprocal(groups->scale.value), per_min = reciprocal(groups->min.value);
    for (size_t group = 0; group < BLOCK_LARGE / group_size; group++) {
        const float middle_scale = round_one_within(fits[group].scale * per_scale, 0, (float)highest);
        const float middle_min = round_one_within(-fits[group].offset * per_min, 0, (float)highest);
        float best_error = FLT_MAX;
        for (int try = 0; try < 9; try++) {
            int scale_step = try / 3 - 1, min_step = try % 3 - 1;
            float scale = round_one_within(middle_scale + (float)scale_step, 0, (float)highest);
            float min = round_one_within(middle_min + (float)min_step, 0, (float)highest);
            float error = squared_error(values + group * group_size, group_size, groups->scale.value * scale,
                -groups->min.value * min, nearest);
            if (error < best_error) {
                best_error = error;
                groups->scales[group] = (uint8_t)scale;
                groups->mins[group] = (uint8_t)min;
            }
        }
        total += best_error;
    }
    return total;
}

/* The scale and offset of all codes of a block, in the closed form for two unknowns. */
INLINE struct line refit_affine_scales(const float values[BLOCK_LARGE], size_t group_size,
    nearest_function *nearest, const struct affine_groups *groups)
{
    float a = 0, b = 0, c = 0, xa = 0,
          xb = 0; /* a: codes times scales, squared; c: mins, squared; b: mixed */
    for (size_t group = 0; group < BLOCK_LARGE / group_size; group++) {
        const float *x = values + group * group_size;
        float scale = (float)groups->scales[group], min = (float)groups->mins[group];
        struct fit_sums sums = sum_codes(
            x, group_size, reciprocal(groups->scale.value * scale), -groups->min.value * min, nearest);
        a += sums.qq * scale * scale;
        b += sums.q * scale * min;
        c += (float)group_size * min * min;
        xa += sums.xq * scale;
        xb += sum_values(x, group_size) * min;
    }
    if (c == 0) /* no group has a min: only the scale is unknown */
        return (struct line){xa * reciprocal(a), 0};
    float inverse = reciprocal(a * c - b * b);
    return (struct line){(xa * c - xb * b) * inverse, (xb * a - xa * b) * inverse};
}

INLINE struct affine_groups fit_affine_groups(const float values[BLOCK_LARGE], float unit, size_t group_size,
    int highest, float top, nearest_function *nearest, struct insets insets)
{
    struct line fits[MAX_GROUPS], widest = {0, 0};
    for (size_t group = 0; group < BLOCK_LARGE / group_size; group++) {
        fits[group] = fit_line(values + group * group_size, group_size, top, nearest, insets, true);
        widest.scale = fits[group].scale > widest.scale ? fits[group].scale : widest.scale;
        widest.offset = fits[group].offset < widest.offset ? fits[group].offset : widest.offset;
    }
    struct affine_groups first = {0};
    first.scale = half_scale_outward(widest.scale / (float)highest, unit);
    first.min = half_scale_outward(-widest.offset / (float)highest, unit);
    float first_error = choose_affine_groups(values, group_size, fits, highest, nearest, &first);

    struct line refit = refit_affine_scales(values, group_size, nearest, &first);
    struct affine_groups second = first;
    second.scale = half_scale_nearest(refit.scale, unit);
    second.min = half_scale_nearest(-refit.offset, unit);
    float second_error = choose_affine_groups(values, group_size, fits, highest, nearest, &second);
    return second_error < first_error ? second : first;
}

INLINE void encode_affine_groups(const float values[BLOCK_LARGE], size_t group_size,
    nearest_function *nearest, const struct affine_groups *groups, uint8_t codes[BLOCK_LARGE])
{
    for (size_t group = 0, first = 0; first < BLOCK_LARGE; group++, first += group_size) {
        float scale = groups->scale.value * (float)groups->scales[group];
        float min = groups->min.value * (float)groups->mins[group];
        encode(values + first, group_size, scale, -min, nearest, 0, codes + first);
    }
}

#endif
