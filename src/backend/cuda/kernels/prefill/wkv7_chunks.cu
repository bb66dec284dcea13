/*
 * The recurrence of RWKV-7 in chunks of WKV7_TOKENS tokens, for heads of 64.
 *
 *   salvo_wkv7_prepare(machine, wkv7)   a block for each head and chunk
 *   salvo_wkv7_chunks(machine, wkv7)    a block for WKV7_CHUNK_VALUES values of a head, and every nth run
 *
 * Runs of one token, which decode, are done by the first kernel alone.
 *
 * A token takes the state S [values][keys] of a head to S diag(w) - (S kk) (kk a)^T + v k^T, and gives S r.
 * With P_t the product of all w of the chunk up to token t and S the state before it, token t removes
 *
 *     u_t = S (-kk_t P_t-1) + sum over s < t of u_s (b_s . -kk_t P_t-1 / P_s) + v_s (k_s . -kk_t P_t-1 / P_s)
 *
 * where b = kk a: a triangular system that has nothing to do with S and v but for its right side. Solved for
 * both, it gives u = W S^T + Z v, and alike the chunk's results R S^T + Q v. So all chunks are prepared at
 * once, and what is left to do one after the other is a handful of products of small matrices.
 *
 * Dividing by P_s loses nothing as long as P does not come near zero: decays are above 0.545, which to the
 * power of 16 is 6e-5. A chunk with smaller ones, or with no numbers, goes token by token.
 */
#include "backend/cuda/cuda_batch.h"
#include "backend/cuda/kernels/common/tensor_cores.cuh"

enum {
    DIM = WKV7_CHUNK_DIM,
    TOKENS = WKV7_TOKENS,
    VALUES = WKV7_CHUNK_VALUES,
    KEY_LANES = DIM / 4, /* that share a value: each has four keys */
    CHUNK_THREADS = VALUES * KEY_LANES,
    SQUARE_STRIDE = TOKENS + 4, /* avoids bank conflicts of lanes that read a row each */
    ROW_STRIDE = DIM + 4,
    PREPARE_COLUMNS = DIM + TOKENS,
};

/* The part of a head's chunk that does not depend on its state. */
struct wkv7_chunk {
    float w[TOKENS][DIM], r[TOKENS][DIM]; /* W, R */
    float b[TOKENS][DIM], k[TOKENS][DIM]; /* the contributions of u and v to the state after the chunk */
    float z[TOKENS][SQUARE_STRIDE], q[TOKENS][SQUARE_STRIDE];
    float decay[DIM];              /* of the whole chunk */
    uint32_t is_steep, padding[3]; /* it goes token by token */
};
static_assert(sizeof(wkv7_chunk) == WKV7_CHUNK_BYTES, "as the host counts it");

#define LEAST_DECAY 1e-6f

/* ---- All chunks at once ---- */

struct prepare_memory {
    float left[2 * TOKENS][ROW_STRIDE];  /* -kk P_t-1, r P_t */
    float right[2 * TOKENS][ROW_STRIDE]; /* b / P, k / P */
    float products[2 * TOKENS][2 * TOKENS + 4];
};

/* The tokens of a chunk; the chunks of all runs are numbered consecutively. */
struct chunk_place {
    uint32_t run;        /* its number */
    uint32_t row, count; /* its first token; its number of tokens, up to TOKENS */
    uint32_t run_count;  /* tokens of the run */
};

/* 32 runs, one of each lane. */
struct lane_runs {
    uint32_t count, through; /* tokens of the lane's run; chunks of the runs up to it */

    KERNEL_INLINE lane_runs(const cuda_run *runs, uint32_t base, uint32_t end, uint32_t lane)
        : count(base + lane < end ? __ldcg(&runs[base + lane].count) : 0),
          through((count + TOKENS - 1) / TOKENS)
    {
#pragma unroll
        for (int distance = 1; distance < 32; distance *= 2) {
            const uint32_t other = __shfl_up_sync(~0u, through, distance);
            through += lane >= (uint32_t)distance ? other : 0;
        }
    }
};

/* False when there are fewer chunks. */
KERNEL_INLINE bool find_chunk(const cuda_machine *machine, uint32_t index, chunk_place &out)
{
    const uint32_t end = __ldcg(&((const cuda_step *)machine->step)->run_count), lane = threadIdx.x % 32;
    const cuda_run *runs = (const cuda_run *)(machine->step + machine->runs_at);
    for (uint32_t base = 0; base < end; base += 32) {
        const lane_runs all(runs, base, end, lane);
        const uint32_t found = __ballot_sync(~0u, index < all.through);
        if (found) {
            const int at = __ffs((int)found) - 1;
            out.run = base + (uint32_t)at;
            out.run_count = __shfl_sync(~0u, all.count, at);
            const uint32_t through = __shfl_sync(~0u, all.through, at),
                           first = (index + (out.run_count + TOKENS - 1) / TOKENS - through) * TOKENS;
            out.row = __ldcg(&runs[out.run].first_row) + first;
            out.count = min(out.run_count - first, (uint32_t)TOKENS);
            return true;
        }
        index -= __shfl_sync(~0u, all.through, 31);
    }
    return false;
}

/* The states of a head before and after a step. */
struct state_place {
    const float *before;
    float *after;

    KERNEL_INLINE state_place(
        const cuda_machine *machine, const cuda_wkv7_many &wkv7, uint32_t slot, uint32_t head)
    {
        const uint64_t elements = machine->recurrent_elements;
        const uint32_t version = __ldcg(&((const cuda_slot *)machine->slot_states)[slot].version);
        float *states = (float *)machine->recurrent + (uint64_t)slot * 2 * elements + wkv7.state +
                        (uint64_t)head * DIM * DIM;
        before = states + version * elements;
        after = states + (1 - version) * elements;
    }
};

/* A head of a run of one token, by two halves of DIM threads: a value each, and half of its keys. */
KERNEL_INLINE void single_token(const cuda_machine *machine, const cuda_wkv7_many &wkv7, chunk_place place,
    uint32_t head, prepare_memory &memory)
{
    enum { KEYS = DIM / 2, R = 0, W, K, KK, A };
    const cuda_run *run = (const cuda_run *)(machine->step + machine->runs_at) + place.run;
    const uint32_t value = threadIdx.x % DIM, half = threadIdx.x / DIM, first = half * KEYS;
    const uint64_t at = (uint64_t)place.row * wkv7.heads * DIM + head * DIM + value;
    const state_place states(machine, wkv7, __ldcg(&run->slot), head);
    const bool is_new = __ldcg(&run->first) == 0;
    float state[KEYS];
#pragma unroll
    for (uint32_t i = 0; i < KEYS; i++)
        state[i] = is_new ? 0 : __ldcg(states.before + (first + i) * DIM + value);
    const float v = __ldcg((const float *)wkv7.in[3] + at);
    if (half == 0) {
        memory.left[R][value] = __ldcg((const float *)wkv7.in[0] + at);
        memory.left[W][value] = __ldcg((const float *)wkv7.in[1] + at);
        memory.left[K][value] = __ldcg((const float *)wkv7.in[2] + at);
    } else {
        memory.left[KK][value] = __ldcg((const float *)wkv7.in[4] + at);
        memory.left[A][value] = __ldcg((const float *)wkv7.in[5] + at);
    }
    __syncthreads();
    float sums[4] = {};
#pragma unroll
    for (uint32_t i = 0; i < KEYS; i++)
        sums[i % 4] = fmaf(state[i], memory.left[KK][first + i], sums[i % 4]);
    memory.right[half][value] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    __syncthreads();
    const float removed = -(memory.right[0][value] + memory.right[1][value]);
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        sums[i] = 0;
#pragma unroll
    for (uint32_t i = 0; i < KEYS; i++) {
        const uint32_t key = first + i;
        state[i] = fmaf(v, memory.left[K][key], state[i] * memory.left[W][key]);
        state[i] = fmaf(removed, memory.left[KK][key] * memory.left[A][key], state[i]);
        sums[i % 4] = fmaf(state[i], memory.left[R][key], sums[i % 4]);
        __stcg(states.after + key * DIM + value, state[i]);
    }
    memory.right[2 + half][value] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    __syncthreads();
    if (half == 0)
        __stcg((float *)wkv7.out + at, memory.right[2][value] + memory.right[3][value]);
}

/* By two halves of DIM threads, a key each: the first has kk and a, the other r and k. */
KERNEL_INLINE void scale_tokens(
    const cuda_wkv7_many &wkv7, chunk_place place, prepare_memory &memory, wkv7_chunk *chunk, uint32_t head)
{
    const uint32_t key = threadIdx.x % DIM, half = threadIdx.x / DIM, row = wkv7.heads * DIM;
    const uint64_t at = (uint64_t)place.row * row + head * DIM + key;
    const float *decays = (const float *)wkv7.in[1] + at, *first = (const float *)wkv7.in[half ? 0 : 4] + at,
                *second = (const float *)wkv7.in[half ? 2 : 5] + at;
    float w[TOKENS], x[TOKENS], y[TOKENS], product = 1;
#pragma unroll
    for (uint32_t t = 0; t < TOKENS; t++) {
        const bool on = t < place.count;
        w[t] = on ? __ldcg(decays + (uint64_t)t * row) : 1;
        x[t] = on ? __ldcg(first + (uint64_t)t * row) : 0;
        y[t] = on ? __ldcg(second + (uint64_t)t * row) : 0;
    }
#pragma unroll
    for (uint32_t t = 0; t < TOKENS; t++) {
        const float before = product, b = half ? y[t] : x[t] * y[t];
        product *= w[t];
        memory.left[half * TOKENS + t][key] = half ? x[t] * product : -x[t] * before;
        y[t] = __fdividef(b, product);
        memory.right[half * TOKENS + t][key] = y[t];
    }
    float(&after)[TOKENS][DIM] = half ? chunk->k : chunk->b;
#pragma unroll
    for (uint32_t t = 0; t < TOKENS; t++)
        __stcg(&after[t][key], y[t] * product);
    const bool is_steep = __syncthreads_or(!(product >= LEAST_DECAY)) != 0;
    if (half == 0)
        __stcg(&chunk->decay[key], product);
    if (threadIdx.x == 0)
        __stcg(&chunk->is_steep, (uint32_t)is_steep);
}

/* All products of a left row with a right one: a thread has two of the left and four of the right. */
KERNEL_INLINE void multiply_rows(prepare_memory &memory)
{
    const uint32_t column = threadIdx.x % 8, row = threadIdx.x / 8;
    float sums[2][4] = {};
#pragma unroll 2
    for (uint32_t key = 0; key < DIM; key += 4) {
        float4 left[2], right[4];
#pragma unroll
        for (int i = 0; i < 2; i++)
            left[i] = *(const float4 *)&memory.left[row + i * TOKENS][key];
#pragma unroll
        for (int i = 0; i < 4; i++)
            right[i] = *(const float4 *)&memory.right[column + i * 8][key];
#pragma unroll
        for (int i = 0; i < 2; i++) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                sums[i][j] = fmaf(left[i].x, right[j].x, sums[i][j]);
                sums[i][j] = fmaf(left[i].y, right[j].y, sums[i][j]);
                sums[i][j] = fmaf(left[i].z, right[j].z, sums[i][j]);
                sums[i][j] = fmaf(left[i].w, right[j].w, sums[i][j]);
            }
        }
    }
    /* The vector that a token removes depends on those before it; its result depends on itself, too. */
#pragma unroll
    for (int i = 0; i < 2; i++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const uint32_t of = (column + j * 8) % TOKENS;
            memory.products[row + i * TOKENS][column + j * 8] = of < row + i ? sums[i][j] : 0;
        }
    }
}

/* A column of W and R, or of Z and Q, by one thread. */
KERNEL_INLINE void solve_column(const prepare_memory &memory, uint32_t column, wkv7_chunk *chunk)
{
    const bool is_square = column >= DIM;
    const uint32_t own = is_square ? column - DIM : column;
    float *triangle = is_square ? &chunk->z[0][own] : &chunk->w[0][own],
          *square = is_square ? &chunk->q[0][own] : &chunk->r[0][own];
    const uint32_t stride = is_square ? (uint32_t)SQUARE_STRIDE : (uint32_t)DIM;
    float solved[TOKENS];
#pragma unroll
    for (uint32_t t = 0; t < TOKENS; t++) {
        float sum = is_square ? memory.products[t][TOKENS + own] : memory.left[t][own];
#pragma unroll
        for (uint32_t s = 0; s < t; s += 4) {
            const float4 factors = *(const float4 *)&memory.products[t][s]; /* zeros from t on */
            sum = fmaf(factors.x, solved[s], sum);
            sum = s + 1 < t ? fmaf(factors.y, solved[s + 1], sum) : sum;
            sum = s + 2 < t ? fmaf(factors.z, solved[s + 2], sum) : sum;
            sum = s + 3 < t ? fmaf(factors.w, solved[s + 3], sum) : sum;
        }
        solved[t] = sum;
        __stcg(triangle + t * stride, sum);
    }
#pragma unroll 1
    for (uint32_t t = 0; t < TOKENS; t++) {
        const float *row = memory.products[TOKENS + t];
        float sum = is_square ? row[TOKENS + own] : memory.left[TOKENS + t][own];
#pragma unroll
        for (uint32_t s = 0; s < TOKENS; s += 4) {
            const float4 factors = *(const float4 *)(row + s);
            sum = fmaf(factors.x, solved[s], sum);
            sum = fmaf(factors.y, solved[s + 1], sum);
            sum = fmaf(factors.z, solved[s + 2], sum);
            sum = fmaf(factors.w, solved[s + 3], sum);
        }
        __stcg(square + t * stride, sum);
    }
}

extern "C" __global__ void __launch_bounds__(2 * DIM)
    salvo_wkv7_prepare(const cuda_machine *machine, const __grid_constant__ cuda_wkv7_many wkv7)
{
    __shared__ __align__(16) prepare_memory memory;
    const uint32_t head = blockIdx.x, heads = wkv7.heads;
    chunk_place place;
    invite_next_launch();
    wait_for_last_launch();
    if (!find_chunk(machine, blockIdx.y, place))
        return;
    if (place.run_count == 1) {
        single_token(machine, wkv7, place, head, memory);
        return;
    }
    wkv7_chunk *chunk = (wkv7_chunk *)wkv7.chunks + (uint64_t)blockIdx.y * heads + head;
    scale_tokens(wkv7, place, memory, chunk, head);
    multiply_rows(memory);
    __syncthreads();
    if (threadIdx.x < PREPARE_COLUMNS)
        solve_column(memory, threadIdx.x, chunk);
}

/* ---- One after the other ---- */

/* The values of a chunk, and the vectors that it removes. */
struct chunk_values {
    float v[TOKENS][VALUES];
    float removed[VALUES][SQUARE_STRIDE];
};

struct chunks_memory {
    wkv7_chunk chunk[2];
    chunk_values values[2];
};
static_assert(sizeof(chunks_memory) == WKV7_CHUNKS_SHARED, "as the host counts it");

/* Starts the copy of a chunk and its values; those of tokens that are not live are zeros. */
KERNEL_INLINE void fetch_chunk(const wkv7_chunk *from, const float *values, uint32_t row, uint32_t count,
    wkv7_chunk &chunk, chunk_values &to)
{
#pragma unroll 2
    for (uint32_t i = threadIdx.x; i < sizeof(wkv7_chunk) / 16; i += CHUNK_THREADS)
        copy_async((uint8_t *)&chunk + i * 16, (const uint8_t *)from + i * 16);
    const uint32_t token = threadIdx.x / (VALUES / 4), part = threadIdx.x % (VALUES / 4) * 4;
    if (token < TOKENS)
        copy_async(
            &to.v[token][part], values + (token < count ? (uint64_t)token * row + part : 0), token < count);
}

/* Sums over KEY_LANES lanes of twice as many values: lane q gets those of number q. Each step halves the
 * values of a lane. */
template <int DISTANCE>
KERNEL_INLINE void sum_and_share(float (&first)[TOKENS], float (&second)[TOKENS], uint32_t q)
{
    static_assert(KEY_LANES == TOKENS, "a lane for each token");
    const bool upper = q & DISTANCE;
#pragma unroll
    for (int i = 0; i < DISTANCE; i++) {
        const float other = __shfl_xor_sync(~0u, upper ? first[i] : first[i + DISTANCE], DISTANCE),
                    another = __shfl_xor_sync(~0u, upper ? second[i] : second[i + DISTANCE], DISTANCE);
        first[i] = (upper ? first[i + DISTANCE] : first[i]) + other;
        second[i] = (upper ? second[i + DISTANCE] : second[i]) + another;
    }
    if constexpr (DISTANCE > 1)
        sum_and_share<DISTANCE / 2>(first, second, q);
}

KERNEL_INLINE float dot_four(float4 x, float4 y)
{
    return fmaf(x.x, y.x, fmaf(x.y, y.y, fmaf(x.z, y.z, x.w * y.w)));
}

KERNEL_INLINE void add_product(float factor, float4 x, float4 &sum)
{
    sum.x = fmaf(factor, x.x, sum.x);
    sum.y = fmaf(factor, x.y, sum.y);
    sum.z = fmaf(factor, x.z, sum.z);
    sum.w = fmaf(factor, x.w, sum.w);
}

/* The state of a value after a chunk; the result of token q. */
KERNEL_INLINE float step_chunk(
    const wkv7_chunk &chunk, chunk_values &values, uint32_t value, uint32_t q, float4 &state)
{
    float removals[TOKENS], results[TOKENS];
#pragma unroll
    for (uint32_t t = 0; t < TOKENS; t++) {
        removals[t] = dot_four(state, *(const float4 *)&chunk.w[t][q * 4]);
        results[t] = dot_four(state, *(const float4 *)&chunk.r[t][q * 4]);
    }
    sum_and_share<TOKENS / 2>(removals, results, q);
    float removed = removals[0], result = results[0];
    float v[TOKENS];
#pragma unroll
    for (uint32_t s = 0; s < TOKENS; s++)
        v[s] = values.v[s][value];
#pragma unroll
    for (uint32_t s = 0; s < TOKENS; s += 4) {
        const float4 four = make_float4(v[s], v[s + 1], v[s + 2], v[s + 3]);
        removed += dot_four(*(const float4 *)&chunk.z[q][s], four);
        result += dot_four(*(const float4 *)&chunk.q[q][s], four);
    }
    values.removed[value][q] = removed;
    __syncwarp();
    const float4 decay = *(const float4 *)&chunk.decay[q * 4];
    state = make_float4(state.x * decay.x, state.y * decay.y, state.z * decay.z, state.w * decay.w);
    float4 other = make_float4(0, 0, 0, 0);
#pragma unroll
    for (uint32_t t = 0; t < TOKENS; t += 4) {
        const float4 u = *(const float4 *)&values.removed[value][t];
        const float removals_of[4] = {u.x, u.y, u.z, u.w};
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            add_product(removals_of[i], *(const float4 *)&chunk.b[t + i][q * 4], state);
            add_product(v[t + i], *(const float4 *)&chunk.k[t + i][q * 4], other);
        }
    }
    state = make_float4(state.x + other.x, state.y + other.y, state.z + other.z, state.w + other.w);
    return result;
}

KERNEL_INLINE float sum_of_keys(float x)
{
#pragma unroll
    for (int distance = 1; distance < KEY_LANES; distance *= 2)
        x += __shfl_xor_sync(~0u, x, distance);
    return x;
}

/* The same token by token, with inputs from memory; `at` is of the lane's four keys of the first token. */
KERNEL_INLINE float step_tokens(const cuda_wkv7_many &wkv7, uint64_t at, uint32_t row, uint32_t count,
    const chunk_values &values, uint32_t value, uint32_t q, float4 &state)
{
    float result = 0;
#pragma unroll 1
    for (uint32_t t = 0; t < count; t++, at += row) {
        const float4 r = __ldcg((const float4 *)((const float *)wkv7.in[0] + at)),
                     w = __ldcg((const float4 *)((const float *)wkv7.in[1] + at)),
                     k = __ldcg((const float4 *)((const float *)wkv7.in[2] + at)),
                     kk = __ldcg((const float4 *)((const float *)wkv7.in[4] + at)),
                     a = __ldcg((const float4 *)((const float *)wkv7.in[5] + at));
        const float removed = -sum_of_keys(dot_four(state, kk));
        state = make_float4(state.x * w.x, state.y * w.y, state.z * w.z, state.w * w.w);
        add_product(values.v[t][value], k, state);
        add_product(removed, make_float4(kk.x * a.x, kk.y * a.y, kk.z * a.z, kk.w * a.w), state);
        const float y = sum_of_keys(dot_four(state, r));
        result = t == q ? y : result;
    }
    return result;
}

/* The values of a block, over all tokens of a run whose first chunk is number `index`. */
KERNEL_INLINE void step_run(const cuda_machine *machine, const cuda_wkv7_many &wkv7, const cuda_run *run,
    uint32_t index, uint32_t count, chunks_memory &memory)
{
    constexpr uint32_t blocks = DIM / VALUES;
    const uint32_t heads = wkv7.heads, row = heads * DIM, head = blockIdx.x / blocks,
                   first_value = blockIdx.x % blocks * VALUES, value = threadIdx.x / KEY_LANES,
                   q = threadIdx.x % KEY_LANES;
    const wkv7_chunk *chunk = (const wkv7_chunk *)wkv7.chunks + (uint64_t)index * heads + head;
    const uint64_t first = (uint64_t)__ldcg(&run->first_row) * row + head * DIM;
    const float *values = (const float *)wkv7.in[3] + first + first_value;
    fetch_chunk(chunk, values, row, count, memory.chunk[0], memory.values[0]);
    copy_commit();

    const state_place states(machine, wkv7, __ldcg(&run->slot), head);
    const uint32_t place = q * 4 * DIM + first_value + value;
    const float *before = states.before + place;
    float *after = states.after + place;
    float4 state = make_float4(0, 0, 0, 0);
    if (__ldcg(&run->first) != 0)
        state = make_float4(
            __ldcg(before), __ldcg(before + DIM), __ldcg(before + 2 * DIM), __ldcg(before + 3 * DIM));

    float *out = (float *)wkv7.out + first + first_value + value + (uint64_t)q * row;
    uint32_t half = 0;
#pragma unroll 1
    for (uint32_t token = 0; token < count; token += TOKENS, half ^= 1) {
        chunk += heads;
        if (token + TOKENS < count)
            fetch_chunk(chunk, values + (uint64_t)(token + TOKENS) * row, row, count - token - TOKENS,
                memory.chunk[half ^ 1], memory.values[half ^ 1]);
        copy_commit();
        copy_wait<1>();
        __syncthreads();
        const float y = memory.chunk[half].is_steep
                            ? step_tokens(wkv7, first + (uint64_t)token * row + q * 4, row,
                                  min(count - token, (uint32_t)TOKENS), memory.values[half], value, q, state)
                            : step_chunk(memory.chunk[half], memory.values[half], value, q, state);
        if (token + q < count)
            __stcg(out + (uint64_t)token * row, y);
        __syncthreads();
    }
    __stcg(after, state.x);
    __stcg(after + DIM, state.y);
    __stcg(after + 2 * DIM, state.z);
    __stcg(after + 3 * DIM, state.w);
}

extern "C" __global__ void __launch_bounds__(CHUNK_THREADS, 1)
    salvo_wkv7_chunks(const cuda_machine *machine, const __grid_constant__ cuda_wkv7_many wkv7)
{
    DYNAMIC_SHARED(shared);
    invite_next_launch();
    wait_for_last_launch();
    const uint32_t end = __ldcg(&((const cuda_step *)machine->step)->run_count), lane = threadIdx.x % 32;
    const cuda_run *runs = (const cuda_run *)(machine->step + machine->runs_at);
    uint32_t index = 0, next_block = 0; /* chunks of earlier runs; the block of the next run */
#pragma unroll 1
    for (uint32_t base = 0; base < end; base += 32) {
        const lane_runs all(runs, base, end, lane);
        const uint32_t own_chunks = (all.count + TOKENS - 1) / TOKENS;
#pragma unroll 1
        for (uint32_t found = __ballot_sync(~0u, all.count > 1); found; found &= found - 1) {
            const int at = __ffs((int)found) - 1;
            const uint32_t before = __shfl_sync(~0u, all.through - own_chunks, at),
                           count = __shfl_sync(~0u, all.count, at);
            if (next_block == blockIdx.y)
                step_run(machine, wkv7, runs + base + at, index + before, count, *(chunks_memory *)shared);
            next_block = next_block + 1 == gridDim.y ? 0 : next_block + 1;
        }
        index += __shfl_sync(~0u, all.through, 31);
    }
}
