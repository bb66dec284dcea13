/*
 * What the kernels of matmuls for many tokens have in common. A block computes GEMM_ROWS rows of a matrix for
 * TOKENS tokens, in pairs of warps: each warp of a pair has 16 of the rows, and the pairs take the parts (128
 * columns) in turn. In the end the sums of all pairs meet in shared memory and are added in order.
 */
#ifndef CUDA_GEMM_CUH
#define CUDA_GEMM_CUH

#include "backend/cuda/cuda_batch.h"
#include "backend/cuda/tensor_cores.cuh"

/* The part of a launch that a block has. */
struct gemm_block {
    uint32_t matmul;    /* with a glu the first of the two */
    uint32_t first_row; /* of the matrix */
};

KERNEL_INLINE gemm_block find_gemm_block(const cuda_gemm &gemm, uint32_t block)
{
    gemm_block found = {0, block};
    if (gemm.glu == ACTIVATION_NONE) {
        for (uint32_t i = 0; i + 1 < gemm.count; i++) {
            const uint32_t blocks = (gemm.matmuls[i].matrix.rows + GEMM_ROWS - 1) / GEMM_ROWS;
            if (found.matmul == i && found.first_row >= blocks) {
                found.matmul++;
                found.first_row -= blocks;
            }
        }
    }
    found.first_row *= GEMM_ROWS;
    return found;
}

/* How many of the tokens from `first` on live, at most `tokens`. */
KERNEL_INLINE uint32_t live_rows(const cuda_step *step, uint32_t kind, uint32_t first, uint32_t tokens)
{
    const uint32_t live = __ldcg(kind == ROWS_OUTPUTS ? &step->output_count : &step->token_count);
    return live <= first ? 0 : min(live - first, tokens);
}

/* The item of a tile and a part; tiles beyond the last read the last, and nobody uses what comes of it. */
KERNEL_INLINE const uint8_t *gemm_item(const cuda_matrix &matrix, uint32_t tile, uint32_t part)
{
    return (const uint8_t *)item_address(matrix, min(tile, matrix.tiles - 1), part);
}

/* Sums in shared memory: [MATRICES][SPLIT][TOKENS][SUM_STRIDE], rows side by side. */
enum { SUM_STRIDE = GEMM_ROWS + 4 };

template <int MATRICES, int SPLIT, int TOKENS>
KERNEL_INLINE void leave_sums(
    const float (&sums)[MATRICES][TOKENS / 8][4], uint32_t pair, uint32_t half, uint32_t lane, float *place)
{
    const uint32_t row = half * 16 + lane / 4, token = lane % 4 * 2;
#pragma unroll
    for (int m = 0; m < MATRICES; m++) {
#pragma unroll
        for (int j = 0; j < TOKENS / 8; j++) {
            float *to = place + ((m * SPLIT + pair) * TOKENS + j * 8 + token) * SUM_STRIDE + row;
            to[0] = sums[m][j][0];
            to[SUM_STRIDE] = sums[m][j][1];
            to[8] = sums[m][j][2];
            to[SUM_STRIDE + 8] = sums[m][j][3];
        }
    }
}

template <int SPLIT, int TOKENS>
KERNEL_INLINE float add_sums(const float *place, uint32_t matrix, uint32_t token, uint32_t row)
{
    float sum = 0;
#pragma unroll
    for (int i = 0; i < SPLIT; i++)
        sum += place[((matrix * SPLIT + i) * TOKENS + token) * SUM_STRIDE + row];
    return sum;
}

/* By all threads, after a barrier: what is left to do with the sums. */
template <int MATRICES, int SPLIT, int TOKENS>
KERNEL_INLINE void finish_sums(
    const cuda_gemm &gemm, gemm_block block, uint32_t first_token, uint32_t live, const float *place)
{
    const cuda_gemm_matmul &matmul = gemm.matmuls[block.matmul];
    const uint32_t rows = matmul.matrix.rows;
    for (uint32_t i = threadIdx.x; i < live * GEMM_ROWS; i += SPLIT * 64) {
        const uint32_t local = i % GEMM_ROWS, token = i / GEMM_ROWS, row = block.first_row + local;
        if (row >= rows)
            continue;
        float value = add_sums<SPLIT, TOKENS>(place, 0, token, local);
        if (matmul.bias)
            value += __ldg((const float *)matmul.bias + row);
        value = activated(matmul.activation, value);
        float *out = (float *)matmul.out + (uint64_t)(first_token + token) * rows + row;
        if (MATRICES == 2) {
            float up = add_sums<SPLIT, TOKENS>(place, MATRICES - 1, token, local);
            if (gemm.matmuls[1].bias)
                up += __ldg((const float *)gemm.matmuls[1].bias + row);
            value = gated(gemm.glu, value) * activated(gemm.matmuls[1].activation, up);
        }
        if (matmul.cap != 0)
            value = matmul.cap * tanhf(value / matmul.cap);
        if (matmul.accumulate)
            value += __ldcg(out);
        *out = value;
    }
}

#endif
