/* Sampling's device code on the host, for tests in C. */
#ifndef TESTS_CUDA_EMULATED_SAMPLE_H
#define TESTS_CUDA_EMULATED_SAMPLE_H

#include "backend/cuda/cuda_plan.h"
#include "backend/cuda/sample_plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All stages, by `blocks` blocks of `threads` threads; `seed` varies their order. */
void emulated_sample(const struct cuda_machine *machine, unsigned blocks, unsigned threads, unsigned seed);

uint64_t emulated_weight(float x);

#ifdef __cplusplus
}
#endif

#endif
