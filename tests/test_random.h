/* Pseudo-random numbers for tests, equal on every machine. */
#ifndef TESTS_TEST_RANDOM_H
#define TESTS_TEST_RANDOM_H

#include <stdint.h>

/* A number in [0, below). `state` is the seed at first. */
static inline uint32_t test_random(uint64_t *state, uint32_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((*state >> 33) % below);
}

#endif
