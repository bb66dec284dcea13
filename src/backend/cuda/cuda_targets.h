/* Which of the embedded kernels a device runs. */
#ifndef CUDA_CUDA_TARGETS_H
#define CUDA_CUDA_TARGETS_H

#include <stddef.h>

/* The architectures that this build compiled kernels for, separated by blanks: "ptx 80 90a". */
extern const char cuda_targets[];

/* Describes how a device of compute capability major.minor runs the kernels of `targets`; an empty text where
 * they were compiled for exactly this device. */
const char *cuda_targets_describe(const char *targets, int major, int minor, char *text, size_t size);

#endif
