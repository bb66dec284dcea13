/* Matmuls of many tokens on the emulator. */
#include "cuda/fake_kernels.h"

#include "backend/cuda/kernels/prefill/gemm_float.cu"
#include "backend/cuda/kernels/prefill/gemm_q8.cu"
#include "backend/cuda/kernels/prefill/gemm_halves.cu"
#include "backend/cuda/kernels/prefill/gemm_thin.cu"

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
        FAKE_KERNEL(salvo_gemm_thin_16),
        FAKE_KERNEL(salvo_gemm_thin_16_glu),
        FAKE_KERNEL(salvo_gemm_thin_32),
        {"salvo_gemm_halves_16", {kernel_of(salvo_gemm_halves_16), false, true}},
        {"salvo_gemm_halves_16_glu", {kernel_of(salvo_gemm_halves_16_glu), false, true}},
        {"salvo_gemm_halves_32", {kernel_of(salvo_gemm_halves_32), false, true}},
        {"salvo_gemm_halves_32_glu", {kernel_of(salvo_gemm_halves_32_glu), false, true}},
        {"salvo_gemm_halves_64", {kernel_of(salvo_gemm_halves_64), false, true}},
        {"salvo_gemm_halves_64_glu", {kernel_of(salvo_gemm_halves_64_glu), false, true}},
        {"salvo_gemm_halves_128", {kernel_of(salvo_gemm_halves_128), false, true}},
        {"salvo_gemm_halves_128_glu", {kernel_of(salvo_gemm_halves_128_glu), false, true}},
    });
}
