/* The same tokens give the same bits: in chunks of any size, with any number of threads, beside any
 * neighbours. */
#include "cmocka_test.h"
#include "engine_fixture.h"

#include "backend/cpu/kernels.h"

#include <stdlib.h>
#include <string.h>

enum { COUNT = 300 }; /* beyond one page of keys */

static const struct {
    const char *shape, *mix;
} models[] = {{"llama-tiny", "F32"}, {"llama-tiny", "Q4_0"}, {"llama-odd", "F16"}, {"llama-256", "Q4_K_M"},
    {"llama-64to1", "F16"}, {"rwkv7-tiny", "F32"}, {"rwkv7-256", "Q4_K_M"}, {"rwkv7-tiny", "Q4_0"}};
enum { MODELS = sizeof models / sizeof *models };

static void assert_same_row(
    const struct fixture *fixture, const float *expected, const float *got, uint32_t row)
{
    size_t offset = (size_t)row * fixture->vocabulary;
    if (memcmp(expected + offset, got + offset, fixture->vocabulary * sizeof *got) != 0)
        fail_msg("row %u differs", row);
}

/* Feeds chunks of these sizes, over and over; the last row of each has the expected logits. */
static void check_chunks(const struct fixture *fixture, const int32_t *ids, const uint32_t *sizes,
    uint32_t size_count, const float *expected)
{
    ASSERT_OK(salvo_session_rollback(fixture->session, 0));
    for (uint32_t first = 0, i = 0; first < COUNT; i++) {
        const uint32_t size = sizes[i % size_count], count = size < COUNT - first ? size : COUNT - first;
        ASSERT_OK(salvo_session_feed(fixture->session, ids + first, count));
        first += count;
        const float *logits = salvo_session_logits(fixture->session);
        assert_non_null(logits);
        if (memcmp(expected + (size_t)(first - 1) * fixture->vocabulary, logits,
                fixture->vocabulary * sizeof *logits) != 0)
            fail_msg("row %u differs at the end of a chunk of %u", first - 1, count);
    }
}

static void chunks_of_any_size_give_the_same_bits(void **state)
{
    (void)state;
    static const uint32_t small[] = {2, 3, 7, 8, 31, 64}, below_a_page[] = {255, 2, 43}, a_page[] = {256, 44},
                          above_a_page[] = {257, 43};
    for (unsigned m = 0; m < MODELS; m++) {
        struct fixture fixture = fixture_open(made_model(models[m].shape, models[m].mix),
            (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options)});
        int32_t *ids = some_ids(COUNT, fixture.vocabulary, m);
        float *expected = logits_by_chunks(&fixture, ids, COUNT, 1);
        check_chunks(&fixture, ids, small, sizeof small / sizeof *small, expected);
        check_chunks(&fixture, ids, below_a_page, 3, expected);
        check_chunks(&fixture, ids, m % 2 ? a_page : above_a_page, 2, expected);
        float *all = logits_at_once(&fixture, ids, COUNT);
        for (uint32_t row = 0; row < COUNT; row++)
            assert_same_row(&fixture, expected, all, row);
        free(all);
        free(expected);
        free(ids);
        fixture_close(&fixture);
    }
}

/* Steps of few rows have kernels of their own, which differ between instruction sets. */
static void chunks_give_the_same_bits_with_each_instruction_set(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 21, 23};
    for (unsigned m = 0; m < MODELS; m++) {
        if (models[m].mix[0] == 'F') /* the kernels are those of quantised weights */
            continue;
        const char *file = made_model(models[m].shape, models[m].mix);
        float *expected = NULL;
        for (size_t i = 0; i < cpu_kernels_count(); i++) {
            bool usable;
            const char *isa = cpu_kernels_at(i, &usable)->name;
            if (!usable || (expected && strcmp(isa, "scalar") == 0)) /* which takes long */
                continue;
            struct fixture fixture = fixture_open(
                file, (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options), .isa = isa});
            int32_t *ids = some_ids(COUNT, fixture.vocabulary, m);
            assert_string_equal(isa, salvo_engine_info(fixture.engine)->isa);
            if (!expected)
                expected = logits_by_chunks(&fixture, ids, COUNT, 1);
            check_chunks(&fixture, ids, sizes, sizeof sizes / sizeof *sizes, expected);
            free(ids);
            fixture_close(&fixture);
        }
        free(expected);
    }
}

static void the_batch_of_the_engine_does_not_matter(void **state)
{
    (void)state;
    float *expected = NULL;
    static const uint32_t batches[] = {1, 5, 64, 512};
    for (unsigned b = 0; b < 4; b++) {
        struct fixture fixture = fixture_open(made_model("llama-tiny", "Q4_0"),
            (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options), .batch = batches[b]});
        int32_t *ids = some_ids(COUNT, fixture.vocabulary, 3);
        float *got = logits_by_chunks(&fixture, ids, COUNT, COUNT);
        if (expected)
            assert_same_row(&fixture, expected, got, COUNT - 1);
        else
            expected = got;
        if (expected != got)
            free(got);
        free(ids);
        fixture_close(&fixture);
    }
    free(expected);
}

/* Logits of a prompt in chunks, of which the CPU backend divides the rows among threads, and token by token.
 */
static void any_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    static const uint32_t threads[] = {1, 2, 3, 8}, chunks[] = {150, 1}, counts[] = {COUNT, 8};
    for (unsigned m = 0; m < 2 * MODELS; m++) {
        const uint32_t chunk = chunks[m % 2], count = counts[m % 2];
        float *expected = NULL;
        for (unsigned t = 0; t < 4; t++) {
            struct fixture fixture = fixture_open(made_model(models[m / 2].shape, models[m / 2].mix),
                (struct salvo_engine_options){
                    .size = sizeof(struct salvo_engine_options), .threads = threads[t]});
            int32_t *ids = some_ids(count, fixture.vocabulary, m / 2);
            float *got = logits_by_chunks(&fixture, ids, count, chunk);
            if (expected) {
                for (uint32_t row = chunk - 1; row < count; row += chunk)
                    assert_same_row(&fixture, expected, got, row);
                free(got);
            } else {
                expected = got;
            }
            free(ids);
            fixture_close(&fixture);
        }
        free(expected);
    }
}

/* Every stage of sampling at work. */
static void set_lively(const struct salvo_model *model, struct salvo_session *session, uint64_t seed)
{
    struct salvo_sampler sampler = default_sampler(model);
    sampler.seed = seed;
    sampler.top_k = 0;
    sampler.repeat_penalty = 1.1f;
    ASSERT_OK(salvo_session_set_sampler(session, &sampler));
}

static void sessions_do_not_see_each_other(void **state)
{
    (void)state;
    enum { SESSIONS = 5, TAKEN = 40 };
    for (unsigned m = 0; m < MODELS; m++) {
        struct fixture fixture = fixture_open(made_model(models[m].shape, models[m].mix),
            (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options), .sessions = SESSIONS});
        struct salvo_session *sessions[SESSIONS] = {fixture.session};
        int32_t *prompts[SESSIONS], *alone[SESSIONS];
        for (uint32_t s = 0; s < SESSIONS; s++) {
            prompts[s] = some_ids(10 + 60 * s, fixture.vocabulary, 10 + s);
            set_lively(fixture.model, fixture.session, s);
            ASSERT_OK(salvo_session_rollback(fixture.session, 0));
            alone[s] = continuation(fixture.session, prompts[s], 10 + 60 * s, TAKEN);
        }
        ASSERT_OK(salvo_session_rollback(fixture.session, 0));
        for (uint32_t s = 0; s < SESSIONS; s++) {
            if (s)
                ASSERT_OK(salvo_session_open(fixture.engine, &sessions[s]));
            set_lively(fixture.model, sessions[s], s);
            ASSERT_OK(salvo_session_feed(sessions[s], prompts[s], 10 + 60 * s));
        }
        uint64_t before = counters_of(fixture.engine).submissions;
        for (uint32_t i = 0; i < TAKEN; i++) {
            int32_t ids[SESSIONS];
            enum salvo_status statuses[SESSIONS];
            ASSERT_OK(salvo_engine_next(sessions, SESSIONS, ids, statuses));
            for (uint32_t s = 0; s < SESSIONS; s++) {
                assert_int_equal(SALVO_OK, statuses[s]);
                assert_int_equal(alone[s][i], ids[s]);
            }
        }
        /* The first ids came with the prompts. */
        assert_int_equal(TAKEN - 1, counters_of(fixture.engine).submissions - before);
        for (uint32_t s = 0; s < SESSIONS; s++) {
            if (s)
                salvo_session_close(sessions[s]);
            free(prompts[s]);
            free(alone[s]);
        }
        fixture_close(&fixture);
    }
}

static void nothing_is_allocated_once_a_model_is_loaded(void **state)
{
    (void)state;
    struct fixture fixture = fixture_open(made_model("llama-tiny", "Q4_0"),
        (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options), .batch = 64});
    set_greedy(fixture.session);
    for (uint32_t length = 1; length < 480; length = length * 3 / 2 + 1) {
        int32_t *ids = some_ids(length, fixture.vocabulary, length);
        ASSERT_OK(salvo_session_rollback(fixture.session, 0));
        free(continuation(fixture.session, ids, length, 20));
        free(ids);
    }
    struct salvo_counters counters = counters_of(fixture.engine);
    assert_int_equal(0, counters.allocations_after_load);
    assert_true(counters.tokens > counters.submissions);
    fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_of_any_size_give_the_same_bits),
        cmocka_unit_test(chunks_give_the_same_bits_with_each_instruction_set),
        cmocka_unit_test(the_batch_of_the_engine_does_not_matter),
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(sessions_do_not_see_each_other),
        cmocka_unit_test(nothing_is_allocated_once_a_model_is_loaded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
