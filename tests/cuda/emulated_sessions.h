/* For tests of the CUDA backend on the emulator: sessions behind many ids that the CPU has computed, and
 * comparison of their logits. */
#ifndef TESTS_CUDA_EMULATED_SESSIONS_H
#define TESTS_CUDA_EMULATED_SESSIONS_H

#include "engine_fixture.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_VOCABULARY = 4096 }; /* of the models of these tests */

static const struct salvo_engine_options on_cuda = {.size = sizeof(struct salvo_engine_options),
    .backend = "cuda",
    .context = 300,
    .batch = 64,
    .sessions = 2,
    .threads = 1};

static inline float largest_difference(const float *a, const float *b, uint32_t count)
{
    float largest = 0;
    for (uint32_t i = 0; i < count; i++)
        largest = fabsf(a[i] - b[i]) > largest ? fabsf(a[i] - b[i]) : largest;
    return largest;
}

/* Feeds the ids to a session on the CPU and moves its state to this one: the emulator takes long for many
 * ids. */
static inline void feed_on_the_cpu(const char *path, struct salvo_engine_options options,
    struct salvo_session *session, const int32_t *ids, uint32_t count)
{
    options.backend = "cpu";
    struct fixture cpu = fixture_open(path, options);
    ASSERT_OK(salvo_session_feed(cpu.session, ids, count));
    const size_t size = salvo_session_state_size(cpu.session);
    uint8_t *saved = malloc(size);
    assert_non_null(saved);
    ASSERT_OK(salvo_session_state_save(cpu.session, saved, size));
    ASSERT_OK(salvo_session_state_restore(session, saved, size));
    free(saved);
    fixture_close(&cpu);
}

/* For salvo_session_profile; `user` is a uint32_t. */
static inline void count_phase(void *user, const struct salvo_profile_phase *phase)
{
    (void)phase;
    ++*(uint32_t *)user;
}

/* The emulator takes minutes for these: ctest runs them as a test of their own. */
#define LONG_TEST(function)                           \
    {                                                 \
        "long_" #function, function, NULL, NULL, NULL \
    }

#endif
