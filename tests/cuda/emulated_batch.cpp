/* The kernels for many tokens as device code, run on the host by the checks that also run on a GPU. */
#include "cuda/emulator.h"

inline size_t __cvta_generic_to_shared(const void *pointer)
{
    return (size_t)pointer;
}
#define __shared__ static

#include "cuda/check_device.h"

#include "backend/cuda/gemm_q8.cu"

#include "backend/cuda/gemm_float.cu"

#include "backend/cuda/gemm_wide.cu"

#include "backend/cuda/flash.cu"

#include "backend/cuda/flash_any.cu"

#include "backend/cuda/wkv7_chunks.cu"

#include "backend/cuda/wkv7_many.cu"

#include "backend/cuda/norm_many.cu"

#include "backend/cuda/rotate_many.cu"

#include "backend/cuda/rows_many.cu"

#include "cuda/check_attend.h"
#include "cuda/check_gemm.h"
#include "cuda/check_recurrence.h"
#include "cuda/check_rows.h"
#include "cuda/check_words.h"

int main()
{
    checks results;
    check_words(results);
    check_steps(results);
    check_gemms(results);
    check_attends(results);
    check_recurrences(results);
    printf("%d checks, %d failed\n", results.run, results.failed);
    return results.failed != 0;
}
