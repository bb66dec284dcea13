/* Attention of many tokens on the emulator. */
#include "cuda/fake_kernels.h"

#include "backend/cuda/kernels/prefill/flash.cu"
#include "backend/cuda/kernels/prefill/flash_halves.cu"
#include "backend/cuda/kernels/prefill/flash_any.cu"

void add_flash_kernels(kernel_table &table)
{
    table.insert({
        FAKE_KERNEL(salvo_flash_f16_64),
        {"salvo_flash_halves_64", {kernel_of(salvo_flash_halves_64), false, true}},
        {"salvo_flash_halves_128", {kernel_of(salvo_flash_halves_128), false, true}},
        FAKE_KERNEL(salvo_flash_f16_128),
        FAKE_KERNEL(salvo_flash_f16_128_few),
        FAKE_KERNEL(salvo_flash_any),
        FAKE_KERNEL(salvo_flash_append_64),
        FAKE_KERNEL(salvo_flash_append_128),
    });
}
