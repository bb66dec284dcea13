/* Sampling on the device: the memory that the host reserves for it, and the results of the stages of
 * sample.cuh. C and CUDA include it. */
#ifndef CUDA_SAMPLE_PLAN_H
#define CUDA_SAMPLE_PLAN_H

#ifdef __cplusplus
#include <cstdint>
#else
#include <stdint.h>
#endif

enum {
    CUDA_SAMPLE_STAGES = 3,
    CUDA_SAMPLE_SHARED = 24576,   /* bytes of shared memory that a stage uses */
    CUDA_SAMPLE_PARTS = 256,      /* most blocks that share a row */
    CUDA_SAMPLE_GROUPS = 512,     /* largest number of groups of ids whose maxima are known */
    CUDA_SAMPLE_CANDIDATES = 512, /* largest number of candidates that are compared each with each */
    CUDA_SAMPLE_STEPS = 192,      /* distances from the largest logit, in steps of 1/8 */
    CUDA_SAMPLE_NO_ID = -1,       /* every logit is NaN or -INFINITY: the run has failed */
    CUDA_SAMPLE_NOT_ASKED = -2,   /* a row whose run does not have LOGITS_LAST */
};

/*
 * Sampling of an output row, at machine.sampling + row * cuda_sample_row_bytes(vocabulary). `id` is the
 * result; the stages exchange the other members. Two arrays, [vocabulary] each, follow: counts of recent ids
 * (uint32), and logits with bias and penalties (float). The host zeroes everything when it allocates the
 * memory and after a failed step.
 */
struct cuda_sample_row {
    int32_t id;         /* sampled, or one of the two words above */
    uint32_t finished;  /* no further stage has anything to do */
    uint32_t arrived;   /* parts that have finished the stage */
    uint32_t listed;    /* candidates found, also beyond the end of the list */
    uint32_t last_step; /* the step in which weights reach top-p */
    uint32_t padding;
    uint64_t sum;                          /* of all weights */
    uint64_t groups[CUDA_SAMPLE_GROUPS];   /* the largest of each group, as pairs of order and id */
    uint64_t list[CUDA_SAMPLE_CANDIDATES]; /* pairs, in any order */
    uint64_t steps[CUDA_SAMPLE_STEPS];     /* sums of weights */
    uint64_t part_sums[CUDA_SAMPLE_PARTS];
    /* For a single token: 64-bit tagged words (cuda_plan.h) in two places that tokens alternate between. The
     * cancel flag, and the largest pair of each block, order and rest. */
    uint64_t cancelled[2];
    uint64_t largest[2][CUDA_SAMPLE_PARTS][2];
};

#ifdef __CUDACC__
__host__ __device__
#endif
    static inline uint64_t
    cuda_sample_row_bytes(uint32_t vocabulary)
{
    uint64_t padded = ((uint64_t)vocabulary + 3) / 4 * 4;
    return sizeof(struct cuda_sample_row) + padded * (sizeof(uint32_t) + sizeof(float));
}

#endif
