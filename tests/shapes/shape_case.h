/* A random model and how it is run, all of it by one number. */
#ifndef TESTS_SHAPE_CASE_H
#define TESTS_SHAPE_CASE_H

#include "model_mix.h"

#include <salvo/salvo.h>

enum { MOST_SESSIONS = 3 };

struct shape_case {
    uint64_t seed;
    struct model_shape shape;
    const struct model_mix *mix;
    struct salvo_engine_options options; /* without a backend */
};

/* A well-formed file, which a backend runs or refuses by name. */
struct shape_case shape_case_make(uint64_t seed);

/* One line that describes the case, for a failure. */
void shape_case_describe(const struct shape_case *made, char *text, size_t size);

/* 0 .. below-1. */
uint32_t random_below(uint64_t *state, uint32_t below);

#endif
