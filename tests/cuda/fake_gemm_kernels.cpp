/* Matmuls of many tokens on the emulator. */
#include "cuda/fake_kernels.h"

#include "backend/cuda/kernels/prefill/gemm_float.cu"
#include "backend/cuda/kernels/prefill/gemm_q8.cu"
#include "backend/cuda/kernels/prefill/gemm_split.cu"
#include "backend/cuda/kernels/prefill/gemm_wide.cu"

void add_gemm_kernels(kernel_table &table)
{
    table.insert({
        FAKE_KERNEL(salvo_gemm_q8_few),
        FAKE_KERNEL(salvo_gemm_q8_few_glu),
        FAKE_KERNEL(salvo_gemm_q8_some),
        FAKE_KERNEL(salvo_gemm_q8_some_glu),
        FAKE_KERNEL(salvo_gemm_q8_many),
        FAKE_KERNEL(salvo_gemm_q8_many_glu),
        FAKE_KERNEL(salvo_gemm_f16_few),
        FAKE_KERNEL(salvo_gemm_f16_few_glu),
        FAKE_KERNEL(salvo_gemm_f16_some),
        FAKE_KERNEL(salvo_gemm_f16_some_glu),
        FAKE_KERNEL(salvo_gemm_f16_many),
        FAKE_KERNEL(salvo_gemm_f16_many_glu),
        FAKE_KERNEL(salvo_gemm_f32_few),
        FAKE_KERNEL(salvo_gemm_f32_few_glu),
        FAKE_KERNEL(salvo_gemm_f32_some),
        FAKE_KERNEL(salvo_gemm_f32_some_glu),
        FAKE_KERNEL(salvo_gemm_f32_many),
        FAKE_KERNEL(salvo_gemm_f32_many_glu),
        {"salvo_gemm_wide_64", {kernel_of(salvo_gemm_wide_64), false, true}},
        {"salvo_gemm_wide_64_glu", {kernel_of(salvo_gemm_wide_64_glu), false, true}},
        {"salvo_gemm_wide_128", {kernel_of(salvo_gemm_wide_128), false, true}},
        {"salvo_gemm_wide_128_glu", {kernel_of(salvo_gemm_wide_128_glu), false, true}},
        {"salvo_gemm_split_16", {kernel_of(salvo_gemm_split_16), false, true}},
        {"salvo_gemm_split_16_glu", {kernel_of(salvo_gemm_split_16_glu), false, true}},
        {"salvo_gemm_split_32", {kernel_of(salvo_gemm_split_32), false, true}},
        {"salvo_gemm_split_32_glu", {kernel_of(salvo_gemm_split_32_glu), false, true}},
        {"salvo_gemm_split_64", {kernel_of(salvo_gemm_split_64), false, true}},
        {"salvo_gemm_split_64_glu", {kernel_of(salvo_gemm_split_64_glu), false, true}},
        {"salvo_gemm_split_128", {kernel_of(salvo_gemm_split_128), false, true}},
        {"salvo_gemm_split_128_glu", {kernel_of(salvo_gemm_split_128_glu), false, true}},
    });
}
