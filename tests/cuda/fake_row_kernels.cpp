/* Row ops, recurrences and sampling of many tokens on the emulator. */
#include "cuda/fake_kernels.h"

#include "backend/cuda/kernels/prefill/norm_many.cu"
#include "backend/cuda/kernels/prefill/rotate_many.cu"
#include "backend/cuda/kernels/prefill/rows_many.cu"
#include "backend/cuda/kernels/prefill/rwkv7_many.cu"
#include "backend/cuda/kernels/prefill/sample.cu"
#include "backend/cuda/kernels/prefill/wkv7_chunks.cu"
#include "backend/cuda/kernels/prefill/wkv7_many.cu"

void add_row_kernels(kernel_table &table)
{
    table.insert({
        FAKE_KERNEL(salvo_begin),
        FAKE_KERNEL(salvo_angles),
        FAKE_KERNEL(salvo_rows),
        FAKE_KERNEL(salvo_few_rows),
        FAKE_KERNEL(salvo_norm),
        FAKE_KERNEL(salvo_rotate),
        FAKE_KERNEL(salvo_rwkv7_mix),
        FAKE_KERNEL(salvo_rwkv7_inputs),
        FAKE_KERNEL(salvo_rwkv7_results),
        FAKE_KERNEL(salvo_end),
        FAKE_KERNEL(salvo_probe),
        FAKE_KERNEL(salvo_sample),
        FAKE_KERNEL(salvo_wkv7_prepare),
        FAKE_KERNEL(salvo_wkv7_chunks),
        FAKE_KERNEL(salvo_wkv7_64),
        FAKE_KERNEL(salvo_wkv7_128),
        FAKE_KERNEL(salvo_wkv7_256),
    });
}
