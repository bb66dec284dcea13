#include "random_weights.h"

#include "base/memory.h"
#include "quant/quant.h"

#include <string.h>

enum { PIECES = 1024 };

uint64_t random_next(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

float random_gauss(uint64_t *state)
{
    /* Eight numbers of 16 bits: their sum has a standard deviation of 65536 * sqrt(8 / 12). */
    uint64_t a = random_next(state), b = random_next(state);
    int64_t sum = -4 * 65535;
    for (int shift = 0; shift < 64; shift += 16)
        sum += (int64_t)((a >> shift) & 0xffff) + (int64_t)((b >> shift) & 0xffff);
    return (float)sum * (1.2247449f / 65536.0f);
}

static enum salvo_status make_pool(struct random_pool *pool, uint64_t seed)
{
    enum salvo_status status = SALVO_OK;
    const size_t count = (size_t)PIECES * RANDOM_PIECE;
    float *values = NULL;
    uint64_t state = seed;
    TRY(quant_check(pool->type));
    TRY(NEW(&values, count));
    TRY(NEW(&pool->blocks, PIECES * pool->piece_bytes));
    for (size_t i = 0; i < count; i++)
        values[i] = pool->spread * random_gauss(&state);
    quantize(pool->type, values, count, pool->blocks);

cleanup:
    memory_free(values);
    return status;
}

enum salvo_status random_pool_get(
    struct random_pools *pools, enum tensor_type type, float spread, const struct random_pool **out)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    *out = NULL;
    for (size_t i = 0; i < pools->count; i++) {
        if (pools->pools[i].type == type && pools->pools[i].spread == spread) {
            *out = &pools->pools[i];
            return SALVO_OK;
        }
    }
    struct random_pool pool = {type, spread, RANDOM_PIECE / info->block_elements * info->block_bytes, NULL};
    enum salvo_status status = RESIZE(&pools->pools, pools->count + 1);
    if (status == SALVO_OK)
        status = make_pool(&pool, pools->seed + pools->count);
    if (status == SALVO_OK) {
        pools->pools[pools->count++] = pool;
        *out = &pools->pools[pools->count - 1];
    }
    return status;
}

void random_pools_free(struct random_pools *pools)
{
    for (size_t i = 0; i < pools->count; i++)
        memory_free(pools->pools[i].blocks);
    memory_free(pools->pools);
    *pools = (struct random_pools){0};
}

void random_fill(const struct random_pool *pool, uint64_t *state, uint8_t *out, size_t size)
{
    for (size_t done = 0; done < size; done += pool->piece_bytes) {
        size_t piece = random_next(state) % PIECES;
        size_t bytes = size - done < pool->piece_bytes ? size - done : pool->piece_bytes;
        memcpy(out + done, pool->blocks + piece * pool->piece_bytes, bytes);
    }
}
