/*
 * Random weights of any type, quickly: a pool of quantised values is made once per type and spread, and a
 * tensor is put together from pieces of it in random order. The same seed and name give the same bytes.
 */
#ifndef TOOLS_RANDOM_WEIGHTS_H
#define TOOLS_RANDOM_WEIGHTS_H

#include "base/status.h"
#include "base/tensor_type.h"

/* splitmix64: any state will do. */
uint64_t random_next(uint64_t *state);

/* Around 0 with a standard deviation of 1; made of sums, so that it is the same on every machine. */
float random_gauss(uint64_t *state);

enum { RANDOM_PIECE = 256 }; /* elements */

struct random_pool {
    enum tensor_type type;
    float spread;
    size_t piece_bytes;
    uint8_t *blocks; /* [pieces][piece_bytes] */
};

struct random_pools {
    struct random_pool *pools; /* [count] */
    size_t count;
    uint64_t seed;
};

/* The pool is made when it is asked for first; it lives until the next call or the free. */
enum salvo_status random_pool_get(
    struct random_pools *pools, enum tensor_type type, float spread, const struct random_pool **out);
void random_pools_free(struct random_pools *pools);

/* `size` bytes of whole blocks. */
void random_fill(const struct random_pool *pool, uint64_t *state, uint8_t *out, size_t size);

#endif
