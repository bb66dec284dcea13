/* matmul_q8 for four tokens whose activations have two int8 terms (15 bits). */
#include "backend/cpu/matmul_smmla.h"

void neon_i8mm_matmul_q15(struct unpacked_tiles tile, size_t k, unsigned group, bool offsets,
    struct q8_tile x, bool first, size_t stride, float *out)
{
    multiply_any(tile, k, group, offsets, 2, x, first, stride, out);
}
