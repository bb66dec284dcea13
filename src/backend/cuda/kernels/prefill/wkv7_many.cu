/*
 * The recurrence of RWKV-7 over the tokens of every run.
 *
 *   salvo_wkv7_64(machine, wkv7)    head_dim up to 64
 *   salvo_wkv7_128(machine, wkv7)   up to 128
 *   salvo_wkv7_256(machine, wkv7)   up to 256
 *
 * Grid, threads and shared memory: cuda_wkv7_launch. Values of a head do not see each other, so that a block
 * has eight of them, eight lanes for each: a lane keeps its share of the keys of a value's state in registers
 * from the first token to the last. Inputs come to shared memory WKV7_TOKENS at a time, while the ones before
 * are worked on.
 */
#include "backend/cuda/cuda_batch.h"
#include "backend/cuda/kernels/common/tensor_cores.cuh"

enum { WKV7_LANES = 8, WKV7_BLOCK_VALUES = WKV7_WARPS * 32 / WKV7_LANES };

/* The inputs of one token and one head; keys beyond head_dim are zeros. */
template <int DIM> struct wkv7_token {
    float r[DIM], w[DIM], k[DIM], kk[DIM], a[DIM];
    float v[WKV7_BLOCK_VALUES];
};

struct wkv7_place {
    uint64_t first;                             /* of the head's columns in the run's first row, in floats */
    uint32_t row, head_dim, first_value, count; /* row: floats of one; count: tokens */
};

/* Loads up to WKV7_TOKENS tokens from number `first` on. */
template <int DIM>
KERNEL_INLINE void fetch_tokens(
    const cuda_wkv7_many &wkv7, const wkv7_place &place, uint32_t first, wkv7_token<DIM> *to)
{
    constexpr uint32_t chunks = DIM / 4, of_values = WKV7_BLOCK_VALUES / 4;
    for (uint32_t token = 0; token < WKV7_TOKENS && first + token < place.count; token++) {
        const uint64_t row = place.first + (uint64_t)(first + token) * place.row;
        for (uint32_t i = threadIdx.x; i < 5 * chunks + of_values; i += WKV7_WARPS * 32) {
            const uint32_t which = i / chunks, column = i % chunks * 4;
            const uint64_t source = which == 0   ? wkv7.in[0]
                                    : which == 1 ? wkv7.in[1]
                                    : which == 2 ? wkv7.in[2]
                                    : which == 3 ? wkv7.in[4]
                                    : which == 4 ? wkv7.in[5]
                                                 : wkv7.in[3];
            const bool is_value = which == 5, on = is_value || column < place.head_dim;
            const uint64_t at = row + (is_value ? place.first_value + column : on ? column : 0);
            copy_async((float *)(to + token) + i * 4, (const float *)source + at, on);
        }
    }
}

KERNEL_INLINE float sum_of_lanes(float value)
{
#pragma unroll
    for (int distance = 1; distance < WKV7_LANES; distance *= 2)
        value += __shfl_xor_sync(~0u, value, distance);
    return value;
}

/* Keys 32m + 4q .. of a vector, q the lane of its value. */
template <int DIM>
KERNEL_INLINE void load_keys(const float (&from)[DIM], uint32_t q, float (&out)[DIM / WKV7_LANES])
{
#pragma unroll
    for (int m = 0; m < DIM / 32; m++) {
        const float4 four = *(const float4 *)(from + m * 32 + q * 4);
        out[m * 4] = four.x;
        out[m * 4 + 1] = four.y;
        out[m * 4 + 2] = four.z;
        out[m * 4 + 3] = four.w;
    }
}

/* A sum in four chains, so that one does not wait for the other. */
template <int N> KERNEL_INLINE float dot(const float (&x)[N], const float (&y)[N])
{
    float sums[4] = {};
#pragma unroll
    for (int i = 0; i < N; i++)
        sums[i % 4] = fmaf(x[i], y[i], sums[i % 4]);
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

template <int DIM>
KERNEL_INLINE float step_token(
    const wkv7_token<DIM> &token, uint32_t q, uint32_t value, float (&state)[DIM / WKV7_LANES])
{
    constexpr int keys = DIM / WKV7_LANES;
    float r[keys], w[keys], k[keys], kk[keys], a[keys];
    load_keys(token.kk, q, kk);
    load_keys(token.w, q, w);
    load_keys(token.k, q, k);
    load_keys(token.a, q, a);
    load_keys(token.r, q, r);
    const float v = token.v[value], removed = sum_of_lanes(dot(state, kk));
#pragma unroll
    for (int i = 0; i < keys; i++)
        state[i] = fmaf(-removed, kk[i] * a[i], fmaf(v, k[i], state[i] * w[i]));
    return sum_of_lanes(dot(state, r));
}

template <int DIM> KERNEL_INLINE void wkv7_many(const cuda_machine *machine, const cuda_wkv7_many &wkv7)
{
    DYNAMIC_SHARED(shared);
    constexpr int keys = DIM / WKV7_LANES;
    wkv7_token<DIM> *tokens = (wkv7_token<DIM> *)shared; /* [2][WKV7_TOKENS] */
    const uint32_t head_dim = wkv7.head_dim, blocks = head_dim / WKV7_BLOCK_VALUES;
    const uint32_t head = blockIdx.x / blocks, q = threadIdx.x % WKV7_LANES, value = threadIdx.x / WKV7_LANES;
    invite_next_launch();
    wait_for_last_launch();
    const cuda_step *step = (const cuda_step *)machine->step;
    const cuda_run *run = (const cuda_run *)(machine->step + machine->runs_at) + blockIdx.y;
    if (blockIdx.y >= __ldcg(&step->run_count))
        return;

    wkv7_place place;
    place.row = wkv7.heads * head_dim;
    place.head_dim = head_dim;
    place.first_value = blockIdx.x % blocks * WKV7_BLOCK_VALUES;
    place.count = __ldcg(&run->count);
    place.first = (uint64_t)__ldcg(&run->first_row) * place.row + head * head_dim;
    if (place.count == 0)
        return;
    fetch_tokens(wkv7, place, 0, tokens);
    copy_commit();

    const uint32_t slot = __ldcg(&run->slot), i = place.first_value + value;
    const uint32_t version = __ldcg(&((const cuda_slot *)machine->slot_states)[slot].version);
    const uint64_t states =
        machine->recurrent + (uint64_t)slot * 2 * machine->recurrent_elements * sizeof(float);
    const uint64_t at = wkv7.state + (uint64_t)head * head_dim * head_dim + i;
    const float *before = (const float *)states + version * machine->recurrent_elements + at;
    float *after = (float *)states + (1 - version) * machine->recurrent_elements + at;
    const bool is_new = __ldcg(&run->first) == 0;
    float state[keys];
#pragma unroll
    for (int j = 0; j < keys; j++) {
        const uint32_t key = j / 4 * 32 + q * 4 + j % 4;
        state[j] = key < head_dim && !is_new ? __ldcg(before + (uint64_t)key * head_dim) : 0;
    }

    float *out = (float *)wkv7.out + place.first + i;
    uint32_t half = 0;
    for (uint32_t first = 0; first < place.count; first += WKV7_TOKENS, half ^= 1) {
        if (first + WKV7_TOKENS < place.count)
            fetch_tokens(wkv7, place, first + WKV7_TOKENS, tokens + (half ^ 1) * WKV7_TOKENS);
        copy_commit();
        copy_wait<1>();
        __syncthreads();
        const wkv7_token<DIM> *now = tokens + half * WKV7_TOKENS;
        const uint32_t count = min(place.count - first, (uint32_t)WKV7_TOKENS);
#pragma unroll 2
        for (uint32_t t = 0; t < count; t++) {
            const float y = step_token(now[t], q, value, state);
            if (q == 0)
                __stcg(out + (uint64_t)(first + t) * place.row, y);
        }
        __syncthreads();
    }
#pragma unroll
    for (int j = 0; j < keys; j++) {
        const uint32_t key = j / 4 * 32 + q * 4 + j % 4;
        if (key < head_dim)
            __stcg(after + (uint64_t)key * head_dim, state[j]);
    }
}

extern "C" __global__ void __launch_bounds__(WKV7_WARPS * 32)
    salvo_wkv7_64(const cuda_machine *machine, const __grid_constant__ cuda_wkv7_many wkv7)
{
    wkv7_many<64>(machine, wkv7);
}

extern "C" __global__ void __launch_bounds__(WKV7_WARPS * 32)
    salvo_wkv7_128(const cuda_machine *machine, const __grid_constant__ cuda_wkv7_many wkv7)
{
    wkv7_many<128>(machine, wkv7);
}

extern "C" __global__ void __launch_bounds__(WKV7_WARPS * 32)
    salvo_wkv7_256(const cuda_machine *machine, const __grid_constant__ cuda_wkv7_many wkv7)
{
    wkv7_many<256>(machine, wkv7);
}
