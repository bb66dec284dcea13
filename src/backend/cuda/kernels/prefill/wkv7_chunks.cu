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
#include "backend/cuda/kernels/prefill/two_pieces.cuh"

enum {
    DIM = WKV7_CHUNK_DIM,
    TOKENS = WKV7_TOKENS,
    VALUES = WKV7_CHUNK_VALUES,
    KEYS = 16, /* that a warp has of each value of its block */
    CHUNK_WARPS = DIM / KEYS,
    CHUNK_THREADS = CHUNK_WARPS * 32,
    STAGES = WKV7_CHUNK_STAGES,
    ROW_STRIDE = DIM + 4, /* avoids bank conflicts of lanes that read a row each */
    PREPARE_COLUMNS = DIM + TOKENS,
};

/* The part of a head's chunk that does not depend on its state. */
struct wkv7_chunk {
    float w[TOKENS][DIM], r[TOKENS][DIM]; /* W, R */
    float b[DIM][TOKENS], k[DIM][TOKENS]; /* the contributions of u and v to the state after the chunk */
    float z[TOKENS][TOKENS], q[TOKENS][TOKENS];
    float decay[DIM]; /* of the whole chunk; all negative: it goes token by token */
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

/* A head of a run of one token, by two halves of DIM threads: a value each, and half of its keys. The state,
 * which an earlier step left, is loaded before the wait for the last launch. */
KERNEL_INLINE void single_token(const cuda_machine *machine, const cuda_wkv7_many &wkv7, chunk_place place,
    uint32_t head, prepare_memory &memory)
{
    enum { HALF = DIM / 2, R = 0, W, K, KK, A };
    const cuda_run *run = (const cuda_run *)(machine->step + machine->runs_at) + place.run;
    const uint32_t value = threadIdx.x % DIM, half = threadIdx.x / DIM, first = half * HALF;
    const uint64_t at = (uint64_t)place.row * wkv7.heads * DIM + head * DIM + value;
    const state_place states(machine, wkv7, __ldcg(&run->slot), head);
    const bool is_new = __ldcg(&run->first) == 0;
    float state[HALF];
#pragma unroll
    for (uint32_t i = 0; i < HALF; i++)
        state[i] = is_new ? 0 : __ldcg(states.before + (first + i) * DIM + value);
    wait_for_last_launch();
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
    for (uint32_t i = 0; i < HALF; i++)
        sums[i % 4] = fmaf(state[i], memory.left[KK][first + i], sums[i % 4]);
    memory.right[half][value] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    __syncthreads();
    const float removed = -(memory.right[0][value] + memory.right[1][value]);
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        sums[i] = 0;
#pragma unroll
    for (uint32_t i = 0; i < HALF; i++) {
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
    float *after = half ? chunk->k[key] : chunk->b[key];
#pragma unroll
    for (uint32_t t = 0; t < TOKENS; t += 4)
        __stcg((float4 *)(after + t),
            make_float4(y[t] * product, y[t + 1] * product, y[t + 2] * product, y[t + 3] * product));
    const bool is_steep = __syncthreads_or(!(product >= LEAST_DECAY)) != 0;
    if (half == 0)
        __stcg(&chunk->decay[key], is_steep ? -1 : product);
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
    const uint32_t stride = is_square ? (uint32_t)TOKENS : (uint32_t)DIM;
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
    const bool is_live = find_chunk(machine, blockIdx.y, place);
    if (is_live && place.run_count == 1) {
        single_token(machine, wkv7, place, head, memory);
        return;
    }
    wait_for_last_launch();
    if (!is_live)
        return;
    wkv7_chunk *chunk = (wkv7_chunk *)wkv7.chunks + (uint64_t)blockIdx.y * heads + head;
    scale_tokens(wkv7, place, memory, chunk, head);
    multiply_rows(memory);
    __syncthreads();
    if (threadIdx.x < PREPARE_COLUMNS)
        solve_column(memory, threadIdx.x, chunk);
}

/* ---- One after the other ---- */

/*
 * Tensor cores multiply: rows are the values of a block, columns 16 tokens or the 16 keys of a warp, in two
 * products of eight columns. Columns and K may be in any order: column n of product i is number 4 (n / 2) +
 * 2i + n % 2, and lane 4g + c reads numbers 4c .. 4c + 3 of K. So the lane has these numbers of rows g and g
 * + 8 of all matrices, results become operands where they are, and warps exchange only sums over their keys.
 *
 * The serial part of a chunk is W S^T, the exchange of its sums, and the product of their sum with b. While a
 * warp waits for the exchange, it multiplies R, and v of the next chunk.
 */

/* 16 rows by 16 columns: the results of two products. */
struct wkv7_square {
    float of[2][4];

    /* Four columns of row g or g + 8. */
    KERNEL_INLINE float4 four(int half) const
    {
        return make_float4(of[0][half * 2], of[0][half * 2 + 1], of[1][half * 2], of[1][half * 2 + 1]);
    }

    KERNEL_INLINE void store(float4 (&to)[2][32]) const
    {
        to[0][threadIdx.x % 32] = four(0);
        to[1][threadIdx.x % 32] = four(1);
    }

    KERNEL_INLINE void add(const wkv7_square &other)
    {
#pragma unroll
        for (int i = 0; i < 8; i++)
            of[i / 4][i % 4] += other.of[i / 4][i % 4];
    }
};

/* Four numbers of K of a column, as right operand. */
struct column_pieces {
    two_pieces of[4];

    KERNEL_INLINE void cut(const float4 &column)
    {
        of[0] = cut_in_two(__float_as_uint(column.x));
        of[1] = cut_in_two(__float_as_uint(column.y));
        of[2] = cut_in_two(__float_as_uint(column.z));
        of[3] = cut_in_two(__float_as_uint(column.w));
    }
};

/* A square as left operand, whose columns are two steps of K. */
struct square_pieces {
    two_pieces of[2][4];

    KERNEL_INLINE square_pieces(const wkv7_square &square)
    {
#pragma unroll
        for (int i = 0; i < 8; i++)
            of[i / 4][i % 4] = cut_in_two(__float_as_uint(square.of[i / 4][i % 2 * 2 + i % 4 / 2]));
    }

    /* Adds the products of both steps, which may have sums of their own, so that one does not wait for the
     * other. */
    KERNEL_INLINE void multiply(const column_pieces &right, float (&first)[4], float (&second)[4]) const
    {
        multiply_f32_step(of[0], right.of[0], right.of[1], first);
        multiply_f32_step(of[1], right.of[2], right.of[3], second);
    }

    KERNEL_INLINE void multiply(
        const column_pieces (&right)[2], wkv7_square &first, wkv7_square &second) const
    {
        multiply(right[0], first.of[0], second.of[0]);
        multiply(right[1], first.of[1], second.of[1]);
    }
};

/* Columns of a chunk that a thread copies and reads; of the first four there is one for each product. */
enum { PIECE_W = 0, PIECE_R = 2, PIECE_B = 4, PIECE_K = 6, PIECE_TRIANGLE = 8, PIECES };

struct chunk_stage {
    float4 pieces[PIECES][CHUNK_THREADS];
    float decay[DIM];
    float v[2][TOKENS][VALUES / 2]; /* [half of the values], tokens as place_of_token */

    KERNEL_INLINE void cut(uint32_t piece, column_pieces (&out)[2]) const
    {
        out[0].cut(pieces[piece][threadIdx.x]);
        out[1].cut(pieces[piece + 1][threadIdx.x]);
    }
};

/* The sums of each warp over its keys: [value][token], as lanes have them. */
typedef float4 warp_sums[CHUNK_WARPS][2][32];

struct chunks_memory {
    chunk_stage stages[STAGES];
    warp_sums removed[2], results[2]; /* of a chunk and the one before it */
};
static_assert(sizeof(chunks_memory) == WKV7_CHUNKS_SHARED, "as the host counts it");

/* Lanes that read a token each find them in different banks. */
KERNEL_INLINE uint32_t place_of_token(uint32_t token)
{
    return token % 4 * 4 + token / 4;
}

/* A thread's part of a block's work. */
struct chunk_lane {
    uint32_t warp, lane, g, c;
    uint32_t column; /* of the first product; that of the second is two more */
    uint32_t key;    /* the first of four */

    KERNEL_INLINE chunk_lane()
        : warp(threadIdx.x / 32), lane(threadIdx.x % 32), g(lane / 4), c(lane % 4), column(g / 2 * 4 + g % 2),
          key(warp * KEYS + c * 4)
    {
    }
};

/* Starts the copy of a chunk and its values, zeros for tokens that are not live; none are if there is no such
 * chunk. */
KERNEL_INLINE void fetch_chunk(const chunk_lane &own, const wkv7_chunk *chunk, const float *values,
    uint32_t row, uint32_t count, chunk_stage &stage)
{
    const uint32_t thread = threadIdx.x;
    const bool on = count > 0;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t column = own.column + i * 2;
        copy_async(&stage.pieces[PIECE_W + i][thread], &chunk->w[column][own.key], on);
        copy_async(&stage.pieces[PIECE_R + i][thread], &chunk->r[column][own.key], on);
        copy_async(&stage.pieces[PIECE_B + i][thread], &chunk->b[own.warp * KEYS + column][own.c * 4], on);
        copy_async(&stage.pieces[PIECE_K + i][thread], &chunk->k[own.warp * KEYS + column][own.c * 4], on);
    }
    /* Two warps multiply v by Z, two by Q, eight columns each. */
    const float(&square)[TOKENS][TOKENS] = own.warp < 2 ? chunk->z : chunk->q;
    copy_async(&stage.pieces[PIECE_TRIANGLE][thread], &square[own.column + own.warp % 2 * 2][own.c * 4], on);
    if (thread < TOKENS * VALUES / 4) {
        const uint32_t token = thread / (VALUES / 4), part = thread % (VALUES / 4);
        copy_async(&stage.v[part / 2][place_of_token(token)][part % 2 * 4],
            values + (token < count ? (uint64_t)token * row + part * 4 : 0), token < count);
    } else if (thread < TOKENS * VALUES / 4 + DIM / 4) {
        const uint32_t key = (thread - TOKENS * VALUES / 4) * 4;
        copy_async(&stage.decay[key], &chunk->decay[key], on);
    }
}

/* The part of a chunk that does not need its state. */
struct chunk_ahead {
    column_pieces w[2];
    float4 decay;
    wkv7_square added; /* to the state, by v */
    float triangle[4]; /* the warp's columns of Z v or Q v */

    KERNEL_INLINE bool is_steep() const { return decay.x < 0; }

    KERNEL_INLINE void load(const chunk_lane &own, const chunk_stage &stage)
    {
        column_pieces k[2], square;
        wkv7_square v;
        decay = *(const float4 *)&stage.decay[own.key];
        stage.cut(PIECE_W, w);
        stage.cut(PIECE_K, k);
        square.cut(stage.pieces[PIECE_TRIANGLE][threadIdx.x]);
#pragma unroll
        for (uint32_t i = 0; i < 8; i++)
            v.of[i / 4][i % 4] = stage.v[i % 4 / 2][(i / 4 * 2 + i % 2) * 4 + own.c][own.g];
        const square_pieces left(v);
        added = {};
        left.multiply(k, added, added);
#pragma unroll
        for (int i = 0; i < 4; i++)
            triangle[i] = 0;
        left.multiply(square, triangle, triangle);
    }

    /* The triangle where it belongs, zeros elsewhere: the first warp that has columns of it is `warp`. */
    KERNEL_INLINE wkv7_square triangle_of(const chunk_lane &own, uint32_t warp) const
    {
        wkv7_square out;
#pragma unroll
        for (uint32_t i = 0; i < 8; i++)
            out.of[i / 4][i % 4] = own.warp == warp + i / 4 ? triangle[i % 4] : 0;
        return out;
    }
};

/* The vectors that a chunk removes, from the sums of all warps. */
KERNEL_INLINE wkv7_square sum_removed(const chunk_lane &own, const warp_sums &sums)
{
    wkv7_square out;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float4 a = sums[0][i][own.lane], b = sums[1][i][own.lane], c = sums[2][i][own.lane],
                     d = sums[3][i][own.lane];
        out.of[0][i * 2] = (a.x + b.x) + (c.x + d.x);
        out.of[0][i * 2 + 1] = (a.y + b.y) + (c.y + d.y);
        out.of[1][i * 2] = (a.z + b.z) + (c.z + d.z);
        out.of[1][i * 2 + 1] = (a.w + b.w) + (c.w + d.w);
    }
    return out;
}

/* Sum over the keys of a warp of row g or g + 8. */
KERNEL_INLINE float sum_of_keys(float4 x, float4 y)
{
    float sum = fmaf(x.x, y.x, fmaf(x.y, y.y, fmaf(x.z, y.z, x.w * y.w)));
    sum += __shfl_xor_sync(~0u, sum, 1);
    return sum + __shfl_xor_sync(~0u, sum, 2);
}

/* A chunk token by token, with inputs from memory; `at` is of the first token and the lane's first key. */
KERNEL_INLINE void step_tokens(const chunk_lane &own, const cuda_wkv7_many &wkv7, uint64_t at, uint32_t row,
    uint32_t count, const chunk_stage &stage, warp_sums &removed_sums, warp_sums &result_sums,
    wkv7_square &state)
{
    float(*removed)[CHUNK_WARPS][VALUES] = (float(*)[CHUNK_WARPS][VALUES])removed_sums; /* [token] */
    float(*results)[TOKENS] = (float(*)[TOKENS])result_sums[own.warp];                  /* [value] */
#pragma unroll 1
    for (uint32_t t = 0; t < count; t++, at += row) {
        const float4 r = __ldcg((const float4 *)((const float *)wkv7.in[0] + at)),
                     w = __ldcg((const float4 *)((const float *)wkv7.in[1] + at)),
                     k = __ldcg((const float4 *)((const float *)wkv7.in[2] + at)),
                     kk = __ldcg((const float4 *)((const float *)wkv7.in[4] + at)),
                     a = __ldcg((const float4 *)((const float *)wkv7.in[5] + at));
        const float decays[4] = {w.x, w.y, w.z, w.w}, keys[4] = {k.x, k.y, k.z, k.w},
                    replaced[4] = {kk.x * a.x, kk.y * a.y, kk.z * a.z, kk.w * a.w};
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float sum = sum_of_keys(state.four(half), kk);
            if (own.c == 0)
                removed[t][own.warp][half * 8 + own.g] = sum;
        }
        __syncthreads();
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t value = half * 8 + own.g;
            const float sum = (removed[t][0][value] + removed[t][1][value]) +
                              (removed[t][2][value] + removed[t][3][value]),
                        v = stage.v[half][place_of_token(t)][own.g];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float &s = state.of[i / 2][half * 2 + i % 2];
                s = fmaf(-sum, replaced[i], fmaf(v, keys[i], s * decays[i]));
            }
            const float y = sum_of_keys(state.four(half), r);
            if (own.c == 0)
                results[value][t] = y;
        }
    }
}

/* A thread stores two tokens' results of a value. */
KERNEL_INLINE void store_results(const warp_sums &sums, float *out, uint32_t row, uint32_t count)
{
    const uint32_t value = threadIdx.x / (TOKENS / 2), token = threadIdx.x % (TOKENS / 2) * 2;
    float2 of[CHUNK_WARPS];
#pragma unroll
    for (int i = 0; i < CHUNK_WARPS; i++)
        of[i] = ((const float2 *)sums[i])[threadIdx.x];
    out += (uint64_t)token * row + value;
    if (token < count)
        __stcg(out, (of[0].x + of[1].x) + (of[2].x + of[3].x));
    if (token + 1 < count)
        __stcg(out + row, (of[0].y + of[1].y) + (of[2].y + of[3].y));
}

/* The values of a block, over all tokens of a run whose first chunk is number `index`. */
KERNEL_INLINE void step_run(const cuda_machine *machine, const cuda_wkv7_many &wkv7, const cuda_run *run,
    uint32_t index, uint32_t count, chunks_memory &memory)
{
    constexpr uint32_t blocks = DIM / VALUES, stages_ahead = STAGES - 1, tokens_ahead = stages_ahead * TOKENS;
    const chunk_lane own;
    const uint32_t heads = wkv7.heads, row = heads * DIM, head = blockIdx.x / blocks,
                   first_value = blockIdx.x % blocks * VALUES;
    const wkv7_chunk *chunk = (const wkv7_chunk *)wkv7.chunks + (uint64_t)index * heads + head;
    const uint64_t first = (uint64_t)__ldcg(&run->first_row) * row + head * DIM;
    const float *values = (const float *)wkv7.in[3] + first + first_value;
#pragma unroll
    for (uint32_t i = 0; i < stages_ahead; i++) {
        fetch_chunk(own, chunk, values, row, count > i * TOKENS ? count - i * TOKENS : 0, memory.stages[i]);
        copy_commit();
        chunk += heads;
        values += (uint64_t)TOKENS * row;
    }

    const state_place states(machine, wkv7, __ldcg(&run->slot), head);
    const uint32_t place = own.key * DIM + first_value + own.g;
    const bool is_new = __ldcg(&run->first) == 0;
    wkv7_square state;
#pragma unroll
    for (uint32_t i = 0; i < 8; i++)
        state.of[i / 4][i % 4] =
            is_new ? 0 : __ldcg(states.before + place + (i / 4 * 2 + i % 2) * DIM + i % 4 / 2 * 8);
    copy_wait<stages_ahead - 1>();
    __syncthreads();
    chunk_ahead ahead;
    ahead.load(own, memory.stages[0]);

    float *out = (float *)wkv7.out + first + first_value;
    uint32_t now = 0, next = 1, free = stages_ahead, half = 0;
#pragma unroll 1
    for (uint32_t token = 0; token < count; token += TOKENS, half ^= 1) {
        const chunk_stage &stage = memory.stages[now];
        const uint32_t live = min(count - token, (uint32_t)TOKENS);
        const bool is_steep = ahead.is_steep();
        const square_pieces before(state);
        if (is_steep) {
            step_tokens(own, wkv7, first + (uint64_t)token * row + own.key, row, live, stage,
                memory.removed[half], memory.results[half], state);
        } else {
            wkv7_square sums = ahead.triangle_of(own, 0), others = {};
            before.multiply(ahead.w, sums, others);
            sums.add(others);
            sums.store(memory.removed[half][own.warp]);
        }
        copy_wait<stages_ahead - 2>(); /* the next chunk is there */
        __syncthreads();

        /* All of this also after a steep chunk, without effect, so that there is one stream of instructions.
         */
        const wkv7_square removed = sum_removed(own, memory.removed[half]);
        column_pieces r[2], b[2];
        stage.cut(PIECE_R, r);
        stage.cut(PIECE_B, b);
        const wkv7_square triangle = ahead.triangle_of(own, 2), added = ahead.added;
        const float4 decay = ahead.decay;
        fetch_chunk(own, chunk, values, row, count > token + tokens_ahead ? count - token - tokens_ahead : 0,
            memory.stages[free]);
        copy_commit();
        wkv7_square results = triangle, from_first = added, from_second = {};
        before.multiply(r, results, results);
        square_pieces(removed).multiply(b, from_first, from_second);
        ahead.load(own, memory.stages[next]);
        if (!is_steep) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const float factor = i / 4 ? (i % 2 ? decay.w : decay.z) : i % 2 ? decay.y : decay.x;
                float &s = state.of[i / 4][i % 4];
                s = fmaf(s, factor, from_first.of[i / 4][i % 4]) + from_second.of[i / 4][i % 4];
            }
            results.store(memory.results[half][own.warp]);
        }
        if (token > 0)
            store_results(memory.results[half ^ 1], out + (uint64_t)(token - TOKENS) * row, row, TOKENS);
        chunk += heads;
        values += (uint64_t)TOKENS * row;
        free = now;
        now = next;
        next = next + 1 == STAGES ? 0 : next + 1;
    }
    copy_wait<0>(); /* the next run writes to the same places */
    __syncthreads();
    const uint32_t last = (count - 1) / TOKENS * TOKENS;
    store_results(memory.results[half ^ 1], out + (uint64_t)last * row, row, count - last);
#pragma unroll
    for (uint32_t i = 0; i < 8; i++)
        __stcg(states.after + place + (i / 4 * 2 + i % 2) * DIM + i % 4 / 2 * 8, state.of[i / 4][i % 4]);
}

extern "C" __global__ void __launch_bounds__(CHUNK_THREADS, 2)
    salvo_wkv7_chunks(const cuda_machine *machine, const __grid_constant__ cuda_wkv7_many wkv7)
{
    DYNAMIC_SHARED(shared);
    const uint32_t end = __ldcg(&((const cuda_step *)machine->step)->run_count), lane = threadIdx.x % 32;
    const cuda_run *runs = (const cuda_run *)(machine->step + machine->runs_at);
    uint32_t index = 0, next_block = 0; /* chunks of earlier runs; the block of the next run */
    invite_next_launch();
    lane_runs all(runs, 0, end, lane);
    wait_for_last_launch();
#pragma unroll 1
    for (uint32_t base = 0; base < end; base += 32) {
        if (base != 0)
            all = lane_runs(runs, base, end, lane);
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
