/* Frequencies of rotary embeddings: base, scaling for longer contexts (linear, YaRN), factors per pair. */
#ifndef ARCH_ROPE_SCALING_H
#define ARCH_ROPE_SCALING_H

#include "arch/arch_metadata.h"
#include "program/program.h"

struct rope_scaling {
    uint32_t dimensions; /* rotated columns of a head */
    bool halves;         /* as in struct rope */
    float base;
    float factor; /* context length divided by the original context length; 1: no scaling */
    bool yarn;    /* low frequencies are divided by the factor, high ones are kept; else all are divided */
    float beta_fast, beta_slow; /* YaRN: turns within the original context between which it interpolates */
    float attention_factor;     /* factor of cosines and sines */
    uint32_t first_context;
};

/* Reads the keys `rope.*`. `trained_context` is the default of the original context. */
struct rope_scaling rope_scaling_read(
    struct arch_metadata *metadata, uint32_t head_dim, bool halves, uint32_t trained_context);

/*
 * Adds the rope to the program and returns its index. Factors of the file divide the frequency of each pair:
 * `rope_freqs.weight`, or `rope_factors_short.weight` or `rope_factors_long.weight`, depending on the
 * context.
 */
uint32_t rope_scaling_build(const struct rope_scaling *scaling, uint32_t context, struct builder *builder);

#endif
