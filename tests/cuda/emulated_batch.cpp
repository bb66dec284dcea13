/* The kernels for many tokens as device code, run on the host by the checks that also run on a GPU. */
#include "cuda/emulator.h"

#include "cuda/check_device.h"

#include "backend/cuda/kernels/prefill/gemm_q8.cu"

#include "backend/cuda/kernels/prefill/gemm_float.cu"

#include "backend/cuda/kernels/prefill/gemm_halves.cu"

#include "backend/cuda/kernels/prefill/gemm_thin.cu"

#include "backend/cuda/kernels/prefill/flash.cu"
#include "backend/cuda/kernels/prefill/flash_halves.cu"

#include "backend/cuda/kernels/prefill/flash_any.cu"

#include "backend/cuda/kernels/prefill/wkv7_chunks.cu"

#include "backend/cuda/kernels/prefill/wkv7_many.cu"

#include "backend/cuda/kernels/prefill/norm_many.cu"

#include "backend/cuda/kernels/prefill/rotate_many.cu"

#include "backend/cuda/kernels/prefill/rows_many.cu"

#include "backend/cuda/kernels/prefill/rwkv7_many.cu"

#include "cuda/check_attend.h"
#include "cuda/check_gemm.h"
#include "cuda/check_recurrence.h"
#include "cuda/check_rows.h"
#include "cuda/check_rwkv7.h"
#include "cuda/check_tagged_words.h"

int main()
{
    checks results;
    check_tagged_words(results);
    check_steps(results);
    check_rwkv7_rows(results);
    check_gemms(results);
    check_attends(results);
    check_recurrences(results);
    printf("%d checks, %d failed\n", results.run, results.failed);
    return results.failed != 0;
}
