/*
 * Integers to floats without a conversion, which some cores do at a quarter of the pace of an addition: these
 * are the bits of 1.5 * 2^23, where floats count in ones. An integer sum that starts there and stays below
 * 2^22 is, read as a float, that many above it.
 */
#ifndef CPU_NEON_INTEGERS_H
#define CPU_NEON_INTEGERS_H

#include "backend/cpu/tile_format.h"

#include <arm_neon.h>

enum { INT_AS_FLOAT = 0x4B400000 };

INLINE float32x4_t int_as_float(int32x4_t sums)
{
    return vsubq_f32(vreinterpretq_f32_s32(sums), vdupq_n_f32(0x1.8p23f));
}

#endif
