/*
 * A block of any format, unpacked: its codes, one per byte, and its scales. Backends with their own weight
 * layouts start from this. All functions are inline, so that a constant type leaves only its own code.
 */
#ifndef QUANT_BLOCK_PARTS_H
#define QUANT_BLOCK_PARTS_H

#include "quant/blocks.h"

#include <stddef.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* Eight bytes as a number; byte i is bits 8i .. 8i+7 (all supported machines are little-endian). */
INLINE uint64_t load_octet(const void *from)
{
    uint64_t octet;
    memcpy(&octet, from, sizeof octet);
    return octet;
}

INLINE void store_octet(void *to, uint64_t octet)
{
    memcpy(to, &octet, sizeof octet);
}

/* Repeats a byte eight times. */
INLINE uint64_t octet_all(uint8_t byte)
{
    return byte * UINT64_C(0x0101010101010101);
}

/* The bits of each byte from `shift` on. */
INLINE uint64_t octet_bits(uint64_t octet, unsigned shift, uint8_t mask)
{
    return octet >> shift & octet_all(mask);
}

/* Codes are stored as octets: eight codes in the bytes of a word. */
struct block_parts {
    uint64_t octets[32]; /* 4 for blocks of 32; signed codes in two's complement of their width */
    uint16_t scale, min; /* f16; or an exponent */
    uint8_t group_scales[16], group_mins[16];
};

INLINE uint64_t bits_at(const uint8_t *from, size_t shift, uint8_t mask)
{
    return load_octet(from) >> shift & octet_all(mask);
}

/* Bit i of a byte to byte i of a word. */
INLINE uint64_t spread_bits(uint8_t bits)
{
    uint64_t apart = octet_all(bits) & UINT64_C(0x8040201008040201);
    return (apart + octet_all(0x7f)) >> 7 & octet_all(1);
}

INLINE void read_nibbles(const uint8_t nibbles[16], uint64_t octets[4])
{
    for (size_t o = 0; o < 4; o++)
        octets[o] = bits_at(nibbles + o % 2 * 8, o / 2 * 4, 15);
}

INLINE void read_five_bits(const uint8_t nibbles[16], const uint8_t high[4], uint64_t octets[4])
{
    read_nibbles(nibbles, octets);
    for (size_t o = 0; o < 4; o++)
        octets[o] |= spread_bits(high[o]) << 4;
}

INLINE void flip_sign_bits(uint64_t *octets, size_t count, uint8_t sign_bit)
{
    for (size_t o = 0; o < count; o++)
        octets[o] ^= octet_all(sign_bit);
}

INLINE void read_small_block(enum tensor_type type, const void *block, struct block_parts *out)
{
    switch (type) {
    case TYPE_Q4_0: {
        const struct block_q4_0 *b = block;
        out->scale = b->scale;
        read_nibbles(b->nibbles, out->octets);
        flip_sign_bits(out->octets, 4, 8);
        break;
    }
    case TYPE_Q4_1: {
        const struct block_q4_1 *b = block;
        out->scale = b->scale;
        out->min = b->min;
        read_nibbles(b->nibbles, out->octets);
        break;
    }
    case TYPE_Q5_0: {
        const struct block_q5_0 *b = block;
        out->scale = b->scale;
        read_five_bits(b->nibbles, b->high, out->octets);
        flip_sign_bits(out->octets, 4, 16);
        break;
    }
    case TYPE_Q5_1: {
        const struct block_q5_1 *b = block;
        out->scale = b->scale;
        out->min = b->min;
        read_five_bits(b->nibbles, b->high, out->octets);
        break;
    }
    case TYPE_Q8_0: {
        const struct block_q8_0 *b = block;
        out->scale = b->scale;
        memcpy(out->octets, b->codes, sizeof b->codes);
        break;
    }
    case TYPE_IQ4_NL: {
        const struct block_iq4_nl *b = block;
        out->scale = b->scale;
        read_nibbles(b->nibbles, out->octets);
        break;
    }
    default: {
        const struct block_mxfp4 *b = block;
        out->scale = b->exponent;
        read_nibbles(b->nibbles, out->octets);
    }
    }
}

INLINE void read_k_groups(const uint8_t groups[12], struct block_parts *out)
{
    for (unsigned group = 0; group < 8; group++) {
        out->group_scales[group] = k_group_scale(groups, group);
        out->group_mins[group] = k_group_min(groups, group);
    }
}

INLINE void read_large_block(enum tensor_type type, const void *block, struct block_parts *out)
{
    switch (type) {
    case TYPE_Q2_K: {
        const struct block_q2_k *b = block;
        out->scale = b->scale;
        out->min = b->min;
        memcpy(out->group_scales, b->groups, sizeof b->groups); /* with the mins in their upper halves */
        for (size_t e = 0; e < 256; e += 8)
            out->octets[e / 8] = bits_at(b->pairs + e / 128 * 32 + e % 32, e % 128 / 32 * 2, 3);
        break;
    }
    case TYPE_Q3_K: {
        const struct block_q3_k *b = block;
        out->scale = b->scale;
        for (unsigned group = 0; group < 16; group++)
            out->group_scales[group] = (uint8_t)q3_k_group_scale(b->groups, group);
        for (size_t e = 0; e < 256; e += 8)
            out->octets[e / 8] = bits_at(b->pairs + e / 128 * 32 + e % 32, e % 128 / 32 * 2, 3) |
                                 bits_at(b->high + e % 32, e / 32, 1) << 2;
        flip_sign_bits(out->octets, 32, 4);
        break;
    }
    case TYPE_Q4_K: {
        const struct block_q4_k *b = block;
        out->scale = b->scale;
        out->min = b->min;
        read_k_groups(b->groups, out);
        for (size_t e = 0; e < 256; e += 8)
            out->octets[e / 8] = bits_at(b->nibbles + e / 64 * 32 + e % 32, e / 32 % 2 * 4, 15);
        break;
    }
    case TYPE_Q5_K: {
        const struct block_q5_k *b = block;
        out->scale = b->scale;
        out->min = b->min;
        read_k_groups(b->groups, out);
        for (size_t e = 0; e < 256; e += 8)
            out->octets[e / 8] = bits_at(b->nibbles + e / 64 * 32 + e % 32, e / 32 % 2 * 4, 15) |
                                 bits_at(b->high + e % 32, e / 32, 1) << 4;
        break;
    }
    case TYPE_Q6_K: {
        const struct block_q6_k *b = block;
        out->scale = b->scale;
        memcpy(out->group_scales, b->groups, sizeof b->groups);
        for (size_t e = 0; e < 256; e += 8)
            out->octets[e / 8] = bits_at(b->nibbles + e / 128 * 64 + e % 64, e % 128 / 64 * 4, 15) |
                                 bits_at(b->pairs + e / 128 * 32 + e % 32, e % 128 / 32 * 2, 3) << 4;
        flip_sign_bits(out->octets, 32, 32);
        break;
    }
    default: {
        const struct block_iq4_xs *b = block;
        out->scale = b->scale;
        for (unsigned group = 0; group < 8; group++) {
            out->group_scales[group] = (uint8_t)iq4_xs_group_scale(b, group);
            read_nibbles(b->nibbles + group * 16, out->octets + group * 4);
        }
    }
    }
}

#endif
