/*
 * The kernels for many tokens on a GPU, against plain loops in double; with --bench how long they take. From
 * the root of the repository:
 *
 *   nvcc -O3 -std=c++17 -arch=sm_90a -Isrc -Iinclude -Itests -o check_cuda tests/cuda/check_cuda.cu \
 *       src/backend/cuda/kernels/prefill/{gemm_q8,gemm_float,gemm_halves,gemm_thin,flash,flash_any}.cu \
 *       src/backend/cuda/kernels/prefill/{flash_halves,wkv7_many,wkv7_chunks,norm_many}.cu \
 *       src/backend/cuda/kernels/prefill/{rotate_many,rows_many,rwkv7_many}.cu \
 *       src/backend/cuda/{cuda_batch,cuda_weight_tiles}.c src/quant/quant*.c src/base/{status,tensor_type}.c
 *
 * Exits with 1 when a check failed.
 */
#include "cuda/check_attend.h"
#include "cuda/check_gemm.h"
#include "cuda/check_recurrence.h"
#include "cuda/check_rows.h"
#include "cuda/check_rwkv7.h"
#include "cuda/check_tagged_words.h"

int main(int count, char **arguments)
{
    checks results;
    const bool bench = count > 1 && !strcmp(arguments[1], "--bench");
    if (bench) {
        time_gemms();
        time_attends();
        time_recurrences();
        time_rows();
        time_rwkv7_rows();
        return 0;
    }
    check_tagged_words(results);
    check_steps(results);
    check_rwkv7_rows(results);
    check_recurrences(results);
    check_attends(results);
    check_gemms(results);
    printf("%d checks, %d failed\n", results.run, results.failed);
    return results.failed != 0;
}
