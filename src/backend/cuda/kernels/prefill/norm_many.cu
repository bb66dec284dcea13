/*
 * Rows of many tokens to packed inputs, through an rms norm or as they are.
 *
 *   salvo_norm(machine, norm)   a block of NORM_THREADS for each row
 *
 * This is what salvo_rows does for most phases. It runs twice a layer or more, and is short: what counts is
 * how many instructions have to be fetched and how often one load waits for another.
 */
#include "backend/cuda/kernels/prefill/gemm.cuh"

extern "C" __global__ void __launch_bounds__(NORM_THREADS)
    salvo_norm(const cuda_machine *machine, const __grid_constant__ cuda_norm_rows norm)
{
    __shared__ __align__(16) float scratch[2 * NORM_THREADS / 32];
    constexpr uint32_t pieces = NORM_COLUMNS / NORM_THREADS / 4, piece_columns = NORM_THREADS * 4;
    const uint32_t columns = norm.columns, first = blockIdx.y * NORM_COLUMNS + threadIdx.x * 4;
    const float *x = (const float *)norm.x + (uint64_t)blockIdx.x * columns;
    const cuda_step *step = (const cuda_step *)__ldg(&machine->step);
    float4 values[pieces], weights[pieces];
    invite_next_launch();
    if (norm.weight) {
#pragma unroll
        for (uint32_t i = 0; i < pieces && i * piece_columns < columns; i++)
            weights[i] = load_four((const float *)norm.weight, first + i * piece_columns, columns);
    }
    const uint32_t live = live_rows(step, norm.rows, blockIdx.x, 1);
    const bool fine =
        norm.packed_input.fine || (norm.rows == ROWS_TOKENS && is_early_row(norm.token_rows, blockIdx.x));
    wait_for_last_launch();
    if (live == 0)
        return;
    float squares = 0;
#pragma unroll
    for (uint32_t i = 0; i < pieces && i * piece_columns < columns; i++) {
        values[i] = load_four(x, first + i * piece_columns, columns);
        squares = fmaf(values[i].x, values[i].x, squares);
        squares = fmaf(values[i].y, values[i].y, squares);
        squares = fmaf(values[i].z, values[i].z, squares);
        squares = fmaf(values[i].w, values[i].w, squares);
    }
    if (norm.weight) {
        uint32_t serial = 0;
        squares = block_sum<NORM_THREADS>(squares, scratch, serial);
        const float scale = 1 / sqrtf(squares / (float)columns + norm.epsilon);
#pragma unroll
        for (uint32_t i = 0; i < pieces && i * piece_columns < columns; i++) {
            values[i].x *= scale;
            values[i].y *= scale;
            values[i].z *= scale;
            values[i].w *= scale;
            values[i].x *= weights[i].x;
            values[i].y *= weights[i].y;
            values[i].z *= weights[i].z;
            values[i].w *= weights[i].w;
        }
    }
#pragma unroll
    for (uint32_t i = 0; i < pieces && i * piece_columns < norm.packed_input.columns; i++) {
        const uint32_t column = first + i * piece_columns;
        if (norm.out && column < columns)
            __stcg((float4 *)((float *)norm.out + (uint64_t)blockIdx.x * columns + column), values[i]);
        /* Whole warps: a packed input has a multiple of 128 columns. */
        if (column < norm.packed_input.columns)
            round_to_packed_input(norm.packed_input, blockIdx.x, column, values[i], fine);
    }
}
