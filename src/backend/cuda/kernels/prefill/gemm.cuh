/*
 * Common code of the matmul kernels of many tokens. A block computes GEMM_ROWS rows (or more: gemm_halves.cu)
 * of a matrix for TOKENS tokens; its warps, or pairs of them, take every nth part (128 columns). In the end
 * the sums of all are added in order in shared memory.
 */
#ifndef CUDA_GEMM_CUH
#define CUDA_GEMM_CUH

#include "backend/cuda/cuda_batch.h"
#include "backend/cuda/kernels/common/tensor_cores.cuh"
#include "backend/cuda/kernels/prefill/rounding.cuh"

/* The rows and tokens of a block. */
struct gemm_block {
    uint32_t matmul;    /* with a glu the first of the two */
    uint32_t first_row; /* of the matrix */
};

template <int ROWS = GEMM_ROWS>
KERNEL_INLINE gemm_block find_gemm_block(const cuda_gemm &gemm, uint32_t block)
{
    gemm_block found = {0, block};
    if (gemm.glu == ACTIVATION_NONE) {
        for (uint32_t i = 0; i + 1 < gemm.count; i++) {
            const uint32_t blocks = (gemm.matmuls[i].matrix.rows + ROWS - 1) / ROWS;
            if (found.matmul == i && found.first_row >= blocks) {
                found.matmul++;
                found.first_row -= blocks;
            }
        }
    }
    found.first_row *= ROWS;
    return found;
}

/* The number of live tokens from `first` on, at most `tokens`. */
KERNEL_INLINE uint32_t live_rows(const cuda_step *step, uint32_t kind, uint32_t first, uint32_t tokens)
{
    const uint32_t live = __ldcg(kind == ROWS_OUTPUTS ? &step->output_count : &step->token_count);
    return live <= first ? 0 : min(live - first, tokens);
}

/* A bit for each token from `first` on, 64 at most, that is at the first positions of its sequence; by a
 * whole warp. */
template <int TOKENS>
KERNEL_INLINE uint64_t early_tokens(const cuda_gemm &gemm, uint32_t first, uint32_t live, uint32_t lane)
{
    uint64_t early = 0;
#pragma unroll
    for (uint32_t base = 0; base < TOKENS; base += 32) {
        const uint32_t token = base + lane;
        const bool is_early =
            gemm.rows == ROWS_TOKENS && token < live && is_early_row(gemm.token_rows, first + token);
        early |= (uint64_t)__ballot_sync(~0u, is_early) << base;
    }
    return early;
}

/* The weight tile of a tile row and a part; tile rows beyond the last read the last one, and their results
 * are not used. */
KERNEL_INLINE const uint8_t *gemm_tile(const cuda_matrix &matrix, uint32_t tile_row, uint32_t part)
{
    return (const uint8_t *)tile_address(matrix, min(tile_row, matrix.tile_rows - 1), part);
}

/* Sums in shared memory: [splits][MATRICES][TOKENS][sum_stride], rows side by side. */
template <int ROWS> constexpr int sum_stride = ROWS + 4;

/* A warp's sums of the 16 rows from `row` on, one of ROWS. */
template <int MATRICES, int TOKENS, int ROWS = GEMM_ROWS>
KERNEL_INLINE void leave_sums(const float (&sums)[TOKENS / 8][4], uint32_t split, uint32_t matrix,
    uint32_t row, uint32_t lane, float *place)
{
    constexpr int stride = sum_stride<ROWS>;
    float *to = place + ((split * MATRICES + matrix) * TOKENS + lane % 4 * 2) * stride + row + lane / 4;
#pragma unroll
    for (int j = 0; j < TOKENS / 8; j++, to += 8 * stride) {
        to[0] = sums[j][0];
        to[stride] = sums[j][1];
        to[8] = sums[j][2];
        to[stride + 8] = sums[j][3];
    }
}

/* Sums of `splits` warps or pairs in shared memory. */
template <int MATRICES, int TOKENS, int ROWS> struct block_sums {
    const float *place;
    uint32_t splits;

    KERNEL_INLINE float4 add(uint32_t matrix, uint32_t token, uint32_t row) const
    {
        constexpr uint32_t stride = sum_stride<ROWS>;
        const float4 *from = (const float4 *)(place + (matrix * TOKENS + token) * stride + row);
        float4 sum = *from;
#pragma unroll 2
        for (uint32_t i = 1; i < splits; i++) {
            from += MATRICES * TOKENS * stride / 4;
            const float4 part = *from;
            sum.x += part.x;
            sum.y += part.y;
            sum.z += part.z;
            sum.w += part.w;
        }
        return sum;
    }
};

/* By all threads, once the sums are in shared memory: adds them, applies bias, activation, glu and cap, and
 * stores, four rows at a time. Blocks may share this, each with a share of the fours. Common values are in
 * registers: parameter loads are slow, and instruction fetches count because each instruction runs once or
 * twice. */
template <int MATRICES, int TOKENS, int ROWS = GEMM_ROWS> struct gemm_finish {
    static constexpr uint32_t quads = ROWS / 4;
    const cuda_gemm &gemm;
    const cuda_matmul &matmul;
    uint32_t rows, first_row, end; /* end: of the quads */
    uint32_t begin, step;          /* this block's first quad, and the distance to its next one */
    bool accumulates, whole;       /* whole: rows of four lie at multiples of 16 bytes */
    float *out;                    /* the first token's first row */
    float4 before;                 /* the next four values to which results are added */

    KERNEL_INLINE gemm_finish(const cuda_gemm &gemm_, const gemm_block &block, uint32_t first_token,
        uint32_t live, uint32_t share = 0, uint32_t shares = 1, uint32_t threads = blockDim.x)
        : gemm(gemm_), matmul(gemm.matmuls[block.matmul]), rows(matmul.matrix.rows),
          first_row(block.first_row), end(live * quads), begin(share * threads), step(shares * threads),
          accumulates(matmul.accumulate != 0), whole(rows % 4 == 0),
          out((float *)matmul.out + (uint64_t)first_token * rows + first_row)
    {
        load_before(begin + threadIdx.x);
    }

    KERNEL_INLINE bool has(uint32_t i) const { return i < end && first_row + i % quads * 4 < rows; }
    KERNEL_INLINE float *place_of(uint32_t i) const
    {
        return out + (uint64_t)(i / quads) * rows + i % quads * 4;
    }

    KERNEL_INLINE void load_before(uint32_t i)
    {
        before = make_float4(0, 0, 0, 0);
        if (!accumulates || !has(i))
            return;
        const float *from = place_of(i);
        if (whole) {
            before = __ldcg((const float4 *)from);
        } else {
            const uint32_t left = rows - first_row - i % quads * 4;
            before.x = __ldcg(from);
            before.y = left > 1 ? __ldcg(from + 1) : 0;
            before.z = left > 2 ? __ldcg(from + 2) : 0;
            before.w = left > 3 ? __ldcg(from + 3) : 0;
        }
    }

    KERNEL_INLINE void store(uint32_t i, float4 sum) const
    {
        float *to = place_of(i);
        if (whole) {
            *(float4 *)to = sum;
        } else {
            const uint32_t left = rows - first_row - i % quads * 4;
            to[0] = sum.x;
            if (left > 1)
                to[1] = sum.y;
            if (left > 2)
                to[2] = sum.z;
            if (left > 3)
                to[3] = sum.w;
        }
    }

    /* Bias and activation of the rows from `row` on; matmuls mostly have none. */
    static KERNEL_INLINE void activate(const cuda_matmul &of, uint32_t row, uint32_t rows, float4 &sum)
    {
        const float *bias = (const float *)of.bias;
        if (bias) {
            sum.x += __ldg(bias + row);
            sum.y += __ldg(bias + min(row + 1, rows - 1));
            sum.z += __ldg(bias + min(row + 2, rows - 1));
            sum.w += __ldg(bias + min(row + 3, rows - 1));
        }
        const uint32_t activation = of.activation;
        if (activation != ACTIVATION_NONE) {
            sum.x = activated(activation, sum.x);
            sum.y = activated(activation, sum.y);
            sum.z = activated(activation, sum.z);
            sum.w = activated(activation, sum.w);
        }
    }

    /* `early`: a bit for each token whose rounded results have two terms. */
    KERNEL_INLINE void run(uint32_t first_token, uint32_t splits, const float *place, uint64_t early)
    {
        run(first_token, block_sums<MATRICES, TOKENS, ROWS>{place, splits}, early);
    }

    template <class SUMS> KERNEL_INLINE void run(uint32_t first_token, const SUMS &sums, uint64_t early)
    {
        const float cap = matmul.cap;
        const cuda_packed_input &rounded = gemm.rounded;
        const uint64_t values = rounded.values;
#pragma unroll 1
        for (uint32_t base = begin; base < end; base += step) {
            const uint32_t i = base + threadIdx.x, token = i / quads, local = i % quads * 4,
                           row = first_row + local;
            const bool on = has(i);
            float4 sum = make_float4(0, 0, 0, 0);
            if (on) {
                sum = sums.add(0, token, local);
                activate(matmul, row, rows, sum);
                if (MATRICES == 2) {
                    float4 up = sums.add(1, token, local);
                    activate((&matmul)[1], row, rows, up);
                    const uint32_t glu = gemm.glu;
                    sum.x = gated(glu, sum.x) * up.x;
                    sum.y = gated(glu, sum.y) * up.y;
                    sum.z = gated(glu, sum.z) * up.z;
                    sum.w = gated(glu, sum.w) * up.w;
                }
                if (cap != 0) {
                    sum.x = cap * tanhf(sum.x / cap);
                    sum.y = cap * tanhf(sum.y / cap);
                    sum.z = cap * tanhf(sum.z / cap);
                    sum.w = cap * tanhf(sum.w / cap);
                }
                sum.x += before.x;
                sum.y += before.y;
                sum.z += before.z;
                sum.w += before.w;
                if (!values || gemm.matmuls[0].out)
                    store(i, sum);
            }
            load_before(i + step);
            const uint64_t at = (uint64_t)(first_token + token) * rounded.columns + row;
            if (values && rounded.rounding == ROUNDING_F16) {
                if (on)
                    store_halves(rounded, first_token + token, row, sum);
            } else if (values) { /* all lanes round */
                const bool fine = rounded.fine || (on && early >> token & 1);
                const rounded_columns four = round_columns_of_row(sum, fine);
                if (on)
                    store_rounded(rounded, at, four, fine);
            }
        }
    }
};

/* A kernel of `matrices` matmuls per block, two with a glu. Blocks with many tokens have fewer warps, so that
 * two of them share a multiprocessor. */
#define DEFINE_GEMM(name, function, tokens, matrices, warps)                       \
    extern "C" __global__ void __launch_bounds__((warps)*32, GEMM_WARPS / (warps)) \
        name(const cuda_machine *machine, const __grid_constant__ cuda_gemm gemm)  \
    {                                                                              \
        function<tokens, matrices>(machine, gemm);                                 \
    }

#endif
