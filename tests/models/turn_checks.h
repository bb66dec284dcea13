/* Long sessions: a backend chooses the same ids as the CPU, except where rounding decides. */
#ifndef TESTS_TURN_CHECKS_H
#define TESTS_TURN_CHECKS_H

#include "engine/engine.h"
#include "engine_fixture.h"

#include <stdlib.h>
#include <string.h>

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

/* The results of a stretch of turns: after each a row of logits, which follows position `places`. */
struct turns {
    float *logits; /* [count][vocabulary] */
    uint32_t *places, count;
};

/* The CPU rounds activations as finely as the backend does; otherwise both round, in different ways. */
static inline void round_alike(const struct fixture *cpu, const struct fixture *other)
{
    const struct salvo_engine *engine = other->engine;
    if (engine->backend->info(engine->executor).fine_singles)
        cpu->engine->backend->set_rounding(cpu->engine->executor, ACTIVATIONS_FINEST);
}

/* Compares turns with the CPU, which reads all ids in one pass: the distributions within the limit of
 * `salvo verify`, the likeliest ids where they have a margin. Returns the number of compared ids. */
static inline uint32_t check_likeliest(
    const struct fixture *cpu, const int32_t *ids, uint32_t count, const struct turns *turns)
{
    uint32_t clear = 0;
    double divergences = 0;
    float *expected = logits_at_once(cpu, ids, count);
    for (uint32_t i = 0; i < turns->count; i++) {
        float margin, other;
        const float *row = expected + (size_t)turns->places[i] * cpu->vocabulary,
                    *got = turns->logits + (size_t)i * cpu->vocabulary;
        const int32_t best = argmax_of(row, cpu->vocabulary, &margin);
        divergences += divergence_of(row, got, cpu->vocabulary);
        if (margin > 0.1f) {
            assert_int_equal(best, argmax_of(got, cpu->vocabulary, &other));
            clear++;
        }
    }
    print_message("mean divergence of %u turns: %.2g\n", turns->count, divergences / turns->count);
    assert_true(divergences / turns->count < 1e-3);
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
    int32_t *ids = some_ids(most, fixture.vocabulary, 17);
    const struct turns taken = {calloc((size_t)stretch * fixture.vocabulary, sizeof(float)),
        calloc(stretch, sizeof(uint32_t)), stretch};
    uint32_t clear = 0;
    float margin;
    set_greedy(fixture.session);
    round_alike(&cpu, &fixture);
    for (uint32_t i = 0; i < turns; i++) {
        uint32_t position = salvo_session_position(fixture.session);
        ASSERT_OK(salvo_session_feed(fixture.session, ids + position, i % GIVES == 0 ? 3 : 1));
        position = salvo_session_position(fixture.session);
        float *row = taken.logits + (size_t)(i % stretch) * fixture.vocabulary;
        taken.places[i % stretch] = position - 1;
        memcpy(row, salvo_session_logits(fixture.session), fixture.vocabulary * sizeof *row);
        if (i % TAKES == 0) {
            ASSERT_OK(salvo_session_next(fixture.session, &ids[position]));
            assert_int_equal(argmax_of(row, fixture.vocabulary, &margin), ids[position]);
        }
        if (i % stretch != stretch - 1)
            continue;
        assert_memory_equal(ids, salvo_session_tokens(fixture.session), position * sizeof *ids);
        clear += check_likeliest(&cpu, ids, position, &taken);
        if (i + 1 < turns)
            ASSERT_OK(salvo_session_rollback(fixture.session, KEPT));
    }
    assert_int_equal(0, counters_of(fixture.engine).allocations_after_load);
    print_message("%u of %u turns have a margin over 0.1\n", clear, turns);
    assert_true(clear > turns / 2);
    free(ids);
    free(taken.logits);
    free(taken.places);
    fixture_close(&fixture);
    fixture_close(&cpu);
}

#endif
