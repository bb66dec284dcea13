#include "engine/pooling.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* Numbers of {arch}.pooling_type. */
enum { POOLING_TYPE_NONE = 0, POOLING_TYPE_MEAN = 1, POOLING_TYPE_LAST = 3 };

static enum salvo_status read_pooling(struct salvo_model *model, uint32_t *out)
{
    char key[128];
    struct salvo_value value;
    *out = SALVO_POOLING_MEAN;
    snprintf(key, sizeof key, "%s.pooling_type", salvo_model_info(model)->architecture);
    if (!salvo_model_find(model, key, &value) || (value.u == POOLING_TYPE_NONE && value.i == 0))
        return SALVO_OK;
    const uint64_t type = value.u ? value.u : (uint64_t)value.i;
    if (type != POOLING_TYPE_MEAN && type != POOLING_TYPE_LAST)
        return fail(SALVO_ERROR_UNSUPPORTED,
            "%s: %" PRIu64 " is not supported; 1 (mean) and 3 (last) are, and can be chosen", key, type);
    *out = type == POOLING_TYPE_LAST ? SALVO_POOLING_LAST : SALVO_POOLING_MEAN;
    return SALVO_OK;
}

enum salvo_status pooling_resolve(struct salvo_model *model, struct salvo_embed_options *options)
{
    if (options->norm < SALVO_NORM_NONE)
        return fail(
            SALVO_ERROR_ARGUMENT, "a norm of %" PRId32 " is not known; -1 is the least", options->norm);
    if (options->pooling == SALVO_POOLING_MODEL)
        return read_pooling(model, &options->pooling);
    if (options->pooling != SALVO_POOLING_MEAN && options->pooling != SALVO_POOLING_LAST)
        return fail(SALVO_ERROR_ARGUMENT, "a pooling of %" PRIu32 " is not known", options->pooling);
    return SALVO_OK;
}

void pool_add(struct pool *pool, const float *rows, uint32_t count)
{
    const bool is_mean = pool->options.pooling == SALVO_POOLING_MEAN;
    for (uint32_t row = is_mean || !count ? 0 : count - 1; row < count; row++) {
        const float *values = rows + (size_t)row * pool->width;
        const bool adds = is_mean && pool->rows + row > 0;
        for (uint32_t i = 0; i < pool->width; i++)
            pool->sums[i] = (adds ? pool->sums[i] : 0) + (double)values[i];
    }
    pool->rows += count;
}

/* The largest absolute value is taken out of the sum of powers, which could overflow. */
static double norm_of(const struct pool *pool, int32_t norm)
{
    const double power = norm == SALVO_NORM_EUCLIDEAN ? 2 : norm;
    double largest = 0, sum = 0;
    for (uint32_t i = 0; i < pool->width; i++)
        largest = fmax(largest, fabs(pool->sums[i]));
    for (uint32_t i = 0; largest > 0 && i < pool->width; i++)
        sum += pow(fabs(pool->sums[i]) / largest, power);
    return largest * pow(sum, 1 / power);
}

enum salvo_status pool_finish(const struct pool *pool, float *out)
{
    const double rows = pool->options.pooling == SALVO_POOLING_MEAN ? (double)pool->rows : 1;
    const double norm = pool->options.norm == SALVO_NORM_NONE ? rows : norm_of(pool, pool->options.norm);
    for (uint32_t i = 0; i < pool->width; i++) {
        out[i] = (float)(norm > 0 ? pool->sums[i] / norm : pool->sums[i]);
        if (!isfinite(out[i]))
            return fail(SALVO_ERROR_NUMERIC, "number %" PRIu32 " of the embedding is not finite", i);
    }
    return SALVO_OK;
}
