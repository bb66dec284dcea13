/* Long sessions: what a backend chooses is what the CPU chooses wherever that is not a matter of rounding. */
#ifndef TESTS_TURN_CHECKS_H
#define TESTS_TURN_CHECKS_H

#include "engine_fixture.h"

#include <stdlib.h>

/* The largest of a row, and how far the next is below it. */
static inline int32_t argmax_of(const float *logits, uint32_t count, float *out_margin)
{
    int32_t best = logits[1] > logits[0];
    float second = logits[!best];
    for (uint32_t i = 2; i < count; i++) {
        if (logits[i] > logits[best]) {
            second = logits[best];
            best = (int32_t)i;
        } else if (logits[i] > second) {
            second = logits[i];
        }
    }
    *out_margin = logits[best] - second;
    return best;
}

/* The likeliest ids after `places` are those of the CPU, which reads everything in one pass. Returns how many
 * of them have a margin. */
static inline uint32_t check_likeliest(const struct fixture *cpu, const int32_t *ids, uint32_t count,
    const uint32_t *places, const int32_t *likeliest, uint32_t place_count)
{
    uint32_t clear = 0;
    float *expected = logits_at_once(cpu, ids, count);
    for (uint32_t i = 0; i < place_count; i++) {
        float margin;
        const float *row = expected + (size_t)places[i] * cpu->vocabulary;
        const int32_t best = argmax_of(row, cpu->vocabulary, &margin);
        if (margin > 0.1f) {
            assert_int_equal(best, likeliest[i]);
            clear++;
        }
    }
    free(expected);
    return clear;
}

/*
 * Hundreds of turns in one session, which goes back to its beginning after each `stretch` of them. A turn is
 * an id that is given; now and then there are three, or the id that was chosen is taken: such turns are two
 * tokens, which cost software devices far more than one.
 */
static inline void check_turns(const char *backend, const char *path, uint32_t turns, uint32_t stretch)
{
    enum { KEPT = 7, TAKES = 20, GIVES = 50 };
    const uint32_t most = turns + turns / TAKES + turns / GIVES * 2 + 4;
    struct fixture fixture = fixture_open(
                       path, (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options),
                                 .backend = backend,
                                 .context = most,
                                 .batch = 8}),
                   cpu = fixture_open(path,
                       (struct salvo_engine_options){
                           .size = sizeof(struct salvo_engine_options), .backend = "cpu", .context = most});
    int32_t *ids = some_ids(most, fixture.vocabulary, 17), *likeliest = calloc(stretch, sizeof *likeliest);
    uint32_t *places = calloc(stretch, sizeof *places), clear = 0;
    float margin;
    set_greedy(fixture.session);
    for (uint32_t i = 0; i < turns; i++) {
        uint32_t position = salvo_session_position(fixture.session);
        ASSERT_OK(salvo_session_feed(fixture.session, ids + position, i % GIVES == 0 ? 3 : 1));
        position = salvo_session_position(fixture.session);
        places[i % stretch] = position - 1;
        likeliest[i % stretch] =
            argmax_of(salvo_session_logits(fixture.session), fixture.vocabulary, &margin);
        if (i % TAKES == 0) {
            ASSERT_OK(salvo_session_next(fixture.session, &ids[position]));
            assert_int_equal(likeliest[i % stretch], ids[position]);
        }
        if (i % stretch != stretch - 1)
            continue;
        assert_memory_equal(ids, salvo_session_tokens(fixture.session), position * sizeof *ids);
        clear += check_likeliest(&cpu, ids, position, places, likeliest, stretch);
        if (i + 1 < turns)
            ASSERT_OK(salvo_session_rollback(fixture.session, KEPT));
    }
    assert_int_equal(0, counters_of(fixture.engine).allocations_after_load);
    print_message("%u of %u turns have a margin over 0.1\n", clear, turns);
    assert_true(clear > turns / 2);
    free(ids);
    free(likeliest);
    free(places);
    fixture_close(&fixture);
    fixture_close(&cpu);
}

#endif
