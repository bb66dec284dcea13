/*
 * Dot products with VPDPBUSD, which adds four products of an unsigned and a signed byte to each 32-bit sum.
 * The weights are the unsigned bytes, so that an activation is read from memory by the instruction itself.
 * 128 is added to signed codes, and the sum starts with the correction of q8_tile. For matmul_avx512.c and
 * matmul_avx_vnni.c, included after these definitions:
 *
 *   bytes, VECTORS, bytes_all   as for matmul_codes.h
 *   DPBUSD, SET1_EPI64, XOR     intrinsics for vectors of this size
 */
#include "backend/cpu/vec8.h"

INLINE bytes unsigned_codes(bytes codes, const bool are_signed)
{
    return are_signed ? XOR(codes, bytes_all(0x80)) : codes;
}

typedef uint32_t lanes __attribute__((vector_size(sizeof(bytes))));

/* For each row two sums, which are not added yet. The steps are those from a term and from an octet to the
 * next one. */
INLINE bytes codes_sums(const bytes *codes, const bool are_signed, const int32_t *correction, const int8_t *x,
    size_t term_step, size_t octet_step, const unsigned octets, const unsigned terms)
{
    const bytes start = are_signed ? SET1_EPI64((uint32_t)*correction) : bytes_all(0);
    bytes sums = terms == 1 ? start : bytes_all(0);
    UNROLL
    for (unsigned term = 0; term < terms; term++) {
        if (term > 0)
            sums = (bytes)(((lanes)sums << TERM_BITS) + (lanes)start);
        UNROLL
        for (unsigned o = 0; o < octets; o++) {
            const int8_t *octet = x + term * term_step + o * octet_step;
            sums = DPBUSD(sums, unsigned_codes(codes[o * VECTORS], are_signed),
                SET1_EPI64((long long)load_octet(octet)));
        }
    }
    return sums;
}
