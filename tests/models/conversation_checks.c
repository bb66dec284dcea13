#include "conversation_checks.h"

#include "cmocka_test.h"
#include "engine/engine.h"
#include "program/sampling.h"

#include <stdlib.h>
#include <string.h>

/* The id that the device chose is the one that the reference chooses from the same logits. */
void check_sampling(const struct fixture *fixture)
{
    static const struct salvo_sampler samplers[] = {
        {.size = sizeof(struct salvo_sampler), .temperature = 0, .top_p = 1, .repeat_penalty = 1},
        {.size = sizeof(struct salvo_sampler),
            .temperature = 0.8f,
            .top_k = 40,
            .top_p = 0.95f,
            .min_p = 0.05f,
            .repeat_penalty = 1,
            .seed = 1},
        {.size = sizeof(struct salvo_sampler), .temperature = 1, .top_p = 1, .repeat_penalty = 1, .seed = 2},
        {.size = sizeof(struct salvo_sampler),
            .temperature = 1.5f,
            .top_p = 0.7f,
            .repeat_penalty = 1,
            .seed = UINT64_C(0x300000002)},
        {.size = sizeof(struct salvo_sampler),
            .temperature = 0.7f,
            .top_k = 5,
            .top_p = 1,
            .repeat_penalty = 1.3f,
            .repeat_last_n = 64,
            .seed = 4},
        {.size = sizeof(struct salvo_sampler),
            .temperature = 2,
            .top_k = 1,
            .top_p = 0.1f,
            .min_p = 1,
            .repeat_penalty = 1,
            .seed = 5},
        {.size = sizeof(struct salvo_sampler),
            .temperature = 0,
            .top_p = 1,
            .repeat_penalty = 1.1f,
            .frequency_penalty = 0.3f,
            .presence_penalty = 0.2f,
            .repeat_last_n = 20},
    };
    int32_t *ids = some_ids(12, fixture->vocabulary, 7);
    float *logits = malloc(fixture->vocabulary * sizeof *logits);
    struct sampling_candidate *scratch = malloc(fixture->vocabulary * sizeof *scratch);
    for (size_t i = 0; i < sizeof samplers / sizeof *samplers; i++) {
        const struct salvo_sampler *sampler = &samplers[i];
        const struct sampler_settings settings = {
            .temperature = sampler->temperature,
            .top_k = sampler->top_k,
            .top_p = sampler->top_p,
            .min_p = sampler->min_p,
            .repeat_penalty = sampler->repeat_penalty,
            .presence_penalty = sampler->presence_penalty,
            .frequency_penalty = sampler->frequency_penalty,
            .repeat_last_n = sampler->repeat_last_n,
            .seed = sampler->seed,
        };
        ASSERT_OK(salvo_session_rollback(fixture->session, 0));
        ASSERT_OK(salvo_session_set_sampler(fixture->session, sampler));
        ASSERT_OK(salvo_session_feed(fixture->session, ids, 12));
        for (uint32_t position = 12; position < 24; position += 2) {
            int32_t id;
            memcpy(logits, salvo_session_logits(fixture->session), fixture->vocabulary * sizeof *logits);
            int32_t expected = sampling_choose(&settings, logits, fixture->vocabulary,
                salvo_session_tokens(fixture->session), position, scratch);
            ASSERT_OK(salvo_session_next(fixture->session, &id));
            assert_int_equal(expected, id);
            ASSERT_OK(salvo_session_feed(
                fixture->session, &ids[(position + 1) % 12], 1)); /* so there are two more */
        }
    }
    free(logits);
    free(scratch);
    free(ids);
}

enum { PROMPT = 20, TAKEN = 6 };

/* Half of a conversation on one backend and the rest on the other gives the same ids as each backend
 * alone. */
static void check_move(const struct fixture *from, const struct fixture *to, const int32_t *ids)
{
    ASSERT_OK(salvo_session_rollback(from->session, 0));
    free(continuation(from->session, ids, PROMPT, TAKEN));
    size_t size = salvo_session_state_size(from->session);
    uint8_t *saved = malloc(size);
    assert_non_null(saved);
    ASSERT_OK(salvo_session_state_save(from->session, saved, size));
    ASSERT_OK(salvo_session_state_restore(to->session, saved, size));
    for (int i = 0; i < TAKEN; i++) {
        int32_t expected, id;
        ASSERT_OK(salvo_session_next(from->session, &expected));
        ASSERT_OK(salvo_session_next(to->session, &id));
        assert_int_equal(expected, id);
    }
    free(saved);
}

/* A state that is moved contains the snapshot taken after `PROMPT` tokens; a rollback by one token begins
 * there. */
static void check_rollback_after_move(
    const struct fixture *from, const struct fixture *to, const int32_t *ids, uint64_t recomputed)
{
    int32_t expected, id;
    ASSERT_OK(salvo_session_rollback(from->session, 0));
    ASSERT_OK(salvo_session_feed(from->session, ids, PROMPT));
    ASSERT_OK(salvo_session_mark(from->session));
    for (int i = 0; i < TAKEN; i++)
        ASSERT_OK(salvo_session_next(from->session, &expected));
    const size_t size = salvo_session_state_size(from->session);
    uint8_t *saved = malloc(size);
    assert_non_null(saved);
    ASSERT_OK(salvo_session_state_save(from->session, saved, size));
    ASSERT_OK(salvo_session_state_restore(to->session, saved, size));
    free(saved);
    ASSERT_OK(salvo_session_rollback(to->session, PROMPT + TAKEN - 1));
    const uint64_t before = counters_of(to->engine).tokens;
    ASSERT_OK(salvo_session_next(to->session, &id));
    assert_int_equal(expected, id);
    assert_int_equal(recomputed, counters_of(to->engine).tokens - before);
}

/* A restarted conversation is independent of the earlier one, whether its first step has one token or
 * several. */
static void check_new_start(const struct fixture *fixture, const int32_t *ids)
{
    ASSERT_OK(salvo_session_rollback(fixture->session, 0));
    int32_t *expected = continuation(fixture->session, ids, PROMPT, TAKEN);
    for (uint32_t first = 1; first <= 8; first += 7) {
        ASSERT_OK(salvo_session_rollback(fixture->session, 0));
        ASSERT_OK(salvo_session_feed(fixture->session, ids, first));
        int32_t *again = continuation(fixture->session, ids + first, PROMPT - first, TAKEN);
        assert_memory_equal(expected, again, TAKEN * sizeof *again);
        free(again);
    }
    free(expected);
}

/* Tokens that are computed ahead, several in a submission, equal the tokens of one submission each. */
static void check_ahead(const struct fixture *fixture, const int32_t *ids)
{
    enum { COUNT = 24 };
    struct salvo_generate_result result = SALVO_GENERATE_RESULT_INIT;
    ASSERT_OK(salvo_session_rollback(fixture->session, 0));
    int32_t *expected = continuation(fixture->session, ids, PROMPT, COUNT);
    ASSERT_OK(salvo_session_rollback(fixture->session, PROMPT));
    for (uint32_t taken = 0; taken < COUNT; taken += 8) {
        ASSERT_OK(salvo_session_generate(fixture->session,
            &(struct salvo_generate_options){.size = sizeof(struct salvo_generate_options),
                .ignore_end = true,
                .max_tokens = 8,
                .ahead = 3},
            &result));
        assert_int_equal(8, result.tokens);
    }
    assert_memory_equal(expected, salvo_session_tokens(fixture->session) + PROMPT, COUNT * sizeof *expected);
    free(expected);
}

void check_bias(const struct fixture *fixture)
{
    int32_t *ids = some_ids(5, fixture->vocabulary, 9), id;
    set_greedy(fixture->session);
    ASSERT_OK(salvo_session_set_bias(fixture->session, 11, 1000));
    ASSERT_OK(salvo_session_feed(fixture->session, ids, 5));
    ASSERT_OK(salvo_session_next(fixture->session, &id));
    assert_int_equal(11, id);
    ASSERT_OK(salvo_session_set_bias(fixture->session, 11, 0));
    ASSERT_OK(salvo_session_set_bias(fixture->session, 12, 1000));
    ASSERT_OK(salvo_session_next(fixture->session, &id));
    assert_int_equal(12, id);
    free(ids);
}

void check_conversations(const struct fixture *fixture, const char *shape)
{
    struct fixture cpu = fixture_open(
        made_model(shape, "F32"), (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options),
                                      .backend = "cpu",
                                      .context = 128,
                                      .batch = 32,
                                      .sessions = 1,
                                      .threads = 2});
    int32_t *ids = some_ids(PROMPT, cpu.vocabulary, 3);
    set_greedy(cpu.session);
    set_greedy(fixture->session);
    check_move(&cpu, fixture, ids);
    check_move(fixture, &cpu, ids);
    const uint64_t recomputed = cpu.engine->has_recurrent_state ? TAKEN - 1 : 1;
    check_rollback_after_move(&cpu, fixture, ids, recomputed);
    check_rollback_after_move(fixture, &cpu, ids, recomputed);
    check_new_start(fixture, ids);
    check_ahead(fixture, ids);
    free(ids);
    fixture_close(&cpu);
}

/* A run from SOURCE_LAST that is not at the end of its slot samples nothing; the other run of the step does.
 */
void check_missed_position(const struct fixture *fixture)
{
    const struct backend *backend = fixture->engine->backend;
    struct salvo_session *other;
    const int32_t ids[] = {5, 6, 7};
    ASSERT_OK(salvo_session_open(fixture->engine, &other));
    struct salvo_session *const sessions[] = {fixture->session, other};
    for (uint32_t missing = 0; missing <= 2; missing++) { /* 2: none */
        struct run runs[2];
        struct run_result results[2];
        uint64_t ticket;
        for (uint32_t i = 0; i < 2; i++) {
            ASSERT_OK(salvo_session_rollback(sessions[i], 0));
            ASSERT_OK(salvo_session_feed(sessions[i], ids, 3));
            runs[i] = (struct run){.slot = sessions[i]->slot,
                .first = i == missing ? 4 : 3,
                .count = 1,
                .first_row = i,
                .source = SOURCE_LAST,
                .logits = LOGITS_LAST,
                .pages = sessions[i]->pages,
                .sampler = {.repeat_penalty = 1}};
        }
        const struct step step = {.runs = runs, .run_count = 2, .token_count = 2, .repeat = 1};
        ASSERT_OK(backend->submit(fixture->engine->executor, &step, &ticket));
        ASSERT_OK(backend->wait(fixture->engine->executor, ticket, results));
        for (uint32_t i = 0; i < 2; i++)
            assert_int_equal(i == missing ? 0 : 1, results[i].sampled);
    }
    salvo_session_close(other);
}
