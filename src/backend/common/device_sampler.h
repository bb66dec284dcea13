/* The sampler settings of a run as the kernels of Vulkan and Metal read them. C, GLSL and Metal include this
 * file; every member has four bytes, so that all use the same layout. */
#ifndef COMMON_DEVICE_SAMPLER_H
#define COMMON_DEVICE_SAMPLER_H

#ifdef GLSL
#define uint32_t uint
#elif !defined __METAL_VERSION__
#include <stdint.h>
#endif

struct device_sampler {
    uint32_t is_argmax; /* 1: the largest logit, without bias and penalties */
    float temperature, inverse_temperature;
    uint32_t top_k; /* 0: off */
    uint32_t top_p; /* fraction of 2^32; 0 with top_p_off */
    uint32_t top_p_off;
    uint32_t min_p_low, min_p_high; /* the smallest weight kept, 64 bits */
    float repeat_penalty, inverse_repeat, presence_penalty, frequency_penalty;
    uint32_t recent; /* maximum number of last ids that are penalised */
    uint32_t seed_low, seed_high;
};

#endif
