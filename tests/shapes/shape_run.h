/* A case from end to end on one backend, beside cpu:scalar. */
#ifndef TESTS_SHAPE_RUN_H
#define TESTS_SHAPE_RUN_H

#include "shape_case.h"

enum shape_outcome { SHAPE_RAN, SHAPE_REFUSED, SHAPE_FAILED };

struct shape_result {
    enum shape_outcome outcome;
    char text[1024]; /* why it was refused or failed */
};

/* `backend` is "cpu", "cuda", "metal" or "vulkan"; `path` is where the file is made, and stays. */
struct shape_result shape_run(const struct shape_case *made, const char *backend, const char *path);

#endif
