/* The single-token kernel on the emulator. */
#include "cuda/fake_kernels.h"

#include "backend/cuda/kernels/decode/decode.cu"

void add_decode_kernels(kernel_table &table)
{
    table.insert({
        {"salvo_decode", {kernel_of(salvo_decode), true}},
    });
}
