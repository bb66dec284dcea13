/* The Metal without a GPU that the environment names, for tests that control it. */
#ifndef TESTS_FIND_FAKE_METAL_H
#define TESTS_FIND_FAKE_METAL_H

#include "cmocka_test.h"
#include "engine/session.h"
#include "engine_fixture.h"
#include "metal/fake_metal.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static inline struct fake_metal *fake_metal(void)
{
    const char *path = getenv("SALVO_METAL_LIBRARY");
    void *library = path ? dlopen(path, RTLD_NOW) : NULL;
    void *symbol = library ? dlsym(library, "fake_metal_control") : NULL;
    fake_metal_function control;
    assert_non_null(symbol);
    memcpy(&control, &symbol, sizeof control);
    return control();
}

/* The last test of each program: no rule of Metal was broken, and every object is gone but the device and the
 * list that it is in. */
static inline void nothing_is_left_and_no_rule_was_broken(void **state)
{
    (void)state;
    if (fake_metal()->violations)
        fail_msg("%lu violations, the first: %s", fake_metal()->violations, fake_metal()->first_violation);
    assert_int_equal(2, fake_metal()->live_objects);
}

/* By the device, also those that the host has dropped. */
static inline uint64_t computed_tokens(const struct fixture *fixture)
{
    return fixture->engine->backend->counters(fixture->engine->executor).tokens;
}

static inline struct salvo_engine_options metal_options(uint32_t sessions)
{
    return (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options),
        .backend = "metal",
        .context = 128,
        .batch = 32,
        .sessions = sessions,
        .threads = 2};
}

#endif
