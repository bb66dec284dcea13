/*
 * The driver takes machine code for the device's own compute capability, else machine code for the same major
 * and a lower minor version, else it compiles PTX. Code for an "a" target runs on exactly that capability;
 * the kernels use wgmma only there.
 */
#include "backend/cuda/cuda_targets.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WGMMA_CAPABILITY = 90 };

const char cuda_targets[] = SALVO_CUDA_TARGETS;

const char *cuda_targets_describe(const char *targets, int major, int minor, char *text, size_t size)
{
    const int capability = 10 * major + minor;
    int nearest = 0;
    bool has_ptx = false, is_exact = false;
    for (const char *at = targets; *at; at += strcspn(at, " "), at += strspn(at, " ")) {
        char *end;
        const long target = strtol(at, &end, 10);
        if (end == at) {
            has_ptx = true;
        } else if (*end == 'a') {
            is_exact |= target == capability;
        } else if (target / 10 == major && target <= capability && target > nearest) {
            nearest = (int)target;
        }
    }
    const char *suffix = capability == WGMMA_CAPABILITY ? "a" : "";
    is_exact |= nearest == capability && !*suffix;
    if (is_exact) {
        snprintf(text, size, "%s", "");
    } else if (nearest) {
        snprintf(text, size, "runs kernels for sm_%d: SALVO_CUDA_ARCHS=%d%s builds its own", nearest,
            capability, suffix);
    } else if (has_ptx) {
        snprintf(text, size, "kernels are compiled at run time: SALVO_CUDA_ARCHS=%d%s builds them",
            capability, suffix);
    } else {
        snprintf(text, size, "this build has no kernels for it: SALVO_CUDA_ARCHS=%d%s builds them",
            capability, suffix);
    }
    return text;
}
