/*
 * wkv7 of one token, one head in a block: a thread has one value and eight or more of the keys; sums over
 * keys meet in shared memory and are added in order.
 */
#ifndef CUDA_WKV7_ONE_CUH
#define CUDA_WKV7_ONE_CUH

#include "backend/cuda/kernels/common/rows.cuh"

/* The sum over all parts of the keys, for each value: `mine` of this thread's keys. */
KERNEL_INLINE float sum_over_keys(
    float mine, uint32_t value, uint32_t part, uint32_t parts, uint32_t head_dim, float *places)
{
    if (part < parts)
        places[part * head_dim + value] = mine;
    sync_threads<CUDA_WORKERS>();
    float sum = 0;
    for (uint32_t i = 0; i < parts; i++)
        sum += places[i * head_dim + value];
    return sum;
}

/* `places` is shared memory for two times parts * head_dim floats, at most 2 * CUDA_WORKERS. */
template <int KEYS>
KERNEL_INLINE void wkv7_head(const cuda_machine &machine, const cuda_wkv7 &wkv7, const row_context &row,
    uint32_t head, float *vectors, float *places)
{
    const uint32_t head_dim = wkv7.head_dim, parts = CUDA_WORKERS / head_dim,
                   keys = (head_dim + parts - 1) / parts;
    const uint32_t value = threadIdx.x % head_dim, part = threadIdx.x / head_dim;
    const uint32_t first = min(part * keys, head_dim),
                   end = part < parts ? min(first + keys, head_dim) : first;
    const uint64_t base = (uint64_t)row.slot * 2 * machine.recurrent_elements + wkv7.state +
                          (uint64_t)head * head_dim * head_dim;
    const float *before = (const float *)machine.recurrent + base + row.version * machine.recurrent_elements;
    float *after = (float *)machine.recurrent + base + (1 - row.version) * machine.recurrent_elements;
    const float *r = vectors + wkv7.places[0], *w = vectors + wkv7.places[1], *k = vectors + wkv7.places[2],
                *v = vectors + wkv7.places[3], *kk = vectors + wkv7.places[4], *a = vectors + wkv7.places[5];
    float state[KEYS];
    float sum = 0;
#pragma unroll
    for (int i = 0; i < KEYS; i++) {
        const uint32_t j = first + i;
        state[i] = j < end && row.run_first != 0 ? __ldcg(before + (uint64_t)j * head_dim + value) : 0;
    }
    sync_threads<CUDA_WORKERS>();
#pragma unroll
    for (int i = 0; i < KEYS; i++)
        sum = first + i < end ? fmaf(state[i], kk[first + i], sum) : sum;
    const float u = sum_over_keys(sum, value, part, parts, head_dim, places), own = v[value];
    sum = 0;
#pragma unroll
    for (int i = 0; i < KEYS; i++) {
        const uint32_t j = first + i;
        if (j >= end)
            continue;
        state[i] = fmaf(own, k[j], fmaf(-u, kk[j] * a[j], state[i] * w[j]));
        sum = fmaf(state[i], r[j], sum);
        after[(uint64_t)j * head_dim + value] = state[i];
    }
    const float y = sum_over_keys(sum, value, part, parts, head_dim, places + CUDA_WORKERS);
    if (part == 0)
        vectors[wkv7.out_place + value] = y;
    sync_threads<CUDA_WORKERS>();
}

KERNEL_INLINE void wkv7_one_token(const cuda_machine &machine, const cuda_wkv7 &wkv7, const row_context &row,
    uint32_t head, float *vectors, float *places)
{
    if (wkv7.head_dim <= 64)
        wkv7_head<8>(machine, wkv7, row, head, vectors, places);
    else
        wkv7_head<CUDA_MOST_WKV7_KEYS>(machine, wkv7, row, head, vectors, places);
}

#endif
