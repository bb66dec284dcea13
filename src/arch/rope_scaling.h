/* The angles of rotary embeddings: base, stretched contexts (linear, YaRN), factors that a file has per pair.
 */
#ifndef ARCH_ROPE_SCALING_H
#define ARCH_ROPE_SCALING_H

#include "arch/arch_metadata.h"
#include "program/program.h"

struct rope_scaling {
    uint32_t dimensions; /* rotated columns of a head */
    bool halves;         /* as in struct rope */
    float base;
    float factor; /* how many times longer the context is than the one of the first training; 1: not */
    bool yarn;    /* low frequencies are divided by the factor, high ones stay; else all are divided */
    float beta_fast,
        beta_slow;          /* YaRN: turns within the first context, from which and up to which it mixes */
    float attention_factor; /* of cosines and sines */
    uint32_t first_context;
};

/* What the keys `rope.*` say. `trained_context` is the default of the first context. */
struct rope_scaling rope_scaling_read(
    struct arch_metadata *metadata, uint32_t head_dim, bool halves, uint32_t trained_context);

/*
 * Adds the rope to the program and returns its number. The file's own factors (`rope_freqs.weight`, or of
 * `rope_factors_short.weight` and `rope_factors_long.weight` the one that suits the context) divide each
 * pair's frequency.
 */
uint32_t rope_scaling_build(const struct rope_scaling *scaling, uint32_t context, struct builder *builder);

#endif
