/* Continuations of three prompts by SmolLM2-135M-Instruct, published with the reference data. */
#ifndef TESTS_SMOLLM2_CONTINUATIONS_H
#define TESTS_SMOLLM2_CONTINUATIONS_H

#include "engine_fixture.h"

#include <stdlib.h>

static inline void check_smollm2_continuations(const char *path, struct salvo_engine_options options)
{
    static const struct {
        int32_t prompt[16], expected[15];
        uint32_t prompt_count, expected_count;
    } cases[] = {
        {{504, 3575, 282, 4649, 314}, {7042, 30, 198, 198, 504}, 5, 5},
        {{1, 4093, 198, 19161, 582, 6330, 563, 260, 3426, 30, 2, 198, 1, 520, 9531, 198},
            {504, 3426, 314, 253, 4749, 284, 11965, 7815}, 16, 8},
        {{1604, 3987, 46477, 24, 94, 727, 198, 198},
            {1604, 3987, 46477, 24, 94, 727, 472, 585, 304, 10204, 216, 33, 42, 448, 1003}, 8, 15},
    };
    struct fixture fixture = fixture_open(path, options);
    set_greedy(fixture.session);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ASSERT_OK(salvo_session_rollback(fixture.session, 0));
        int32_t *ids =
            continuation(fixture.session, cases[i].prompt, cases[i].prompt_count, cases[i].expected_count);
        for (uint32_t j = 0; j < cases[i].expected_count; j++)
            assert_int_equal(cases[i].expected[j], ids[j]);
        free(ids);
    }
    fixture_close(&fixture);
}

#endif
