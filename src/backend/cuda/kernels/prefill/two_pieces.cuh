/* Products of floats by tensor cores: a float is cut into two pieces of 11 bits or more, and the product of
 * two low pieces is left out. */
#ifndef CUDA_TWO_PIECES_CUH
#define CUDA_TWO_PIECES_CUH

#include "backend/cuda/kernels/common/tensor_cores.cuh"

struct two_pieces {
    uint32_t high, low;
};

/* The high piece is rounded to nearest, so that errors have no direction; tensor cores ignore the lower 13
 * bits of the low one. */
KERNEL_INLINE two_pieces cut_in_two(uint32_t bits)
{
    const uint32_t high = (bits + 0x1000) & 0xffffe000;
    return {high, __float_as_uint(__uint_as_float(bits) - __uint_as_float(high))};
}

/* Eight elements of K; operands are those of multiply_short_floats. */
KERNEL_INLINE void multiply_f32_step(const two_pieces (&a)[4], two_pieces b0, two_pieces b1, float (&sum)[4])
{
    multiply_short_floats(a[0].low, a[1].low, a[2].low, a[3].low, b0.high, b1.high, sum);
    multiply_short_floats(a[0].high, a[1].high, a[2].high, a[3].high, b0.low, b1.low, sum);
    multiply_short_floats(a[0].high, a[1].high, a[2].high, a[3].high, b0.high, b1.high, sum);
}

#endif
