/* Embeddings: chunks, texts that share steps, poolings and norms, too little memory, and refused arguments.
 * Values are compared with references by test_arch_embeddings.py. */
#include "cmocka_test.h"
#include "engine_fixture.h"

#include <salvo/embed.h>
#include <salvo/memory.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TEXTS = 7, MOST_SESSIONS = 5, CONTEXT = 600, MOST_TOKENS = 530 };

static const size_t counts[TEXTS] = {1, MOST_TOKENS, 2, 64, 63, 300, 1};
static const struct salvo_embed_options usual = SALVO_EMBED_OPTIONS_INIT;

static void assert_fails(enum salvo_status expected, enum salvo_status status, const char *words)
{
    assert_int_equal(expected, status);
    if (!strstr(salvo_error(), words))
        fail_msg("'%s' does not say '%s'", salvo_error(), words);
}

struct many {
    struct fixture fixture;
    struct salvo_session *sessions[MOST_SESSIONS];
    uint32_t session_count, width;
    int32_t *ids;
    const int32_t *texts[TEXTS];
    float *out; /* [TEXTS][width] */
};

static struct many open_many(const char *shape, struct salvo_engine_options options)
{
    struct many many;
    options.size = sizeof options;
    options.backend = "cpu";
    options.context = CONTEXT;
    many.fixture = fixture_open(made_model(shape, "Q8_0"), options);
    many.session_count = options.sessions;
    many.sessions[0] = many.fixture.session;
    for (uint32_t i = 1; i < options.sessions; i++)
        ASSERT_OK(salvo_session_open(many.fixture.engine, &many.sessions[i]));
    many.width = salvo_engine_width(many.fixture.engine);
    many.ids = some_ids(MOST_TOKENS + TEXTS, many.fixture.vocabulary, 3);
    for (int i = 0; i < TEXTS; i++)
        many.texts[i] = many.ids + i;
    many.out = calloc(TEXTS * many.width, sizeof *many.out);
    assert_non_null(many.out);
    return many;
}

static void close_many(struct many *many)
{
    for (uint32_t i = 1; i < many->session_count; i++)
        salvo_session_close(many->sessions[i]);
    free(many->ids);
    free(many->out);
    fixture_close(&many->fixture);
}

static void embed_all(struct many *many, const struct salvo_embed_options *options)
{
    ASSERT_OK(salvo_engine_embed(
        many->sessions, many->session_count, many->texts, counts, TEXTS, options, many->out));
    for (uint32_t i = 0; i < many->session_count; i++)
        assert_int_equal(0, salvo_session_position(many->sessions[i]));
}

/* Alone in one chunk; with other texts in chunks; with few pages, so that texts wait for each other; with a
 * prefix cache, which is not used. */
static void check_company(const char *shape)
{
    const struct salvo_engine_options kinds[] = {
        {.sessions = 1, .batch = CONTEXT},
        {.sessions = 1, .batch = 1},
        {.sessions = 3, .batch = 48},
        {.sessions = MOST_SESSIONS, .batch = 100},
        {.sessions = MOST_SESSIONS, .batch = 100, .prefix_cache = 1},
    };
    struct many alone = open_many(shape, kinds[0]);
    embed_all(&alone, &usual);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct many many = open_many(shape, kinds[i]);
        for (int round = 0; round < 2; round++) {
            memset(many.out, 0, TEXTS * many.width * sizeof *many.out);
            embed_all(&many, &usual);
            assert_memory_equal(alone.out, many.out, TEXTS * many.width * sizeof *many.out);
        }
        close_many(&many);
    }
    close_many(&alone);
}

static void embeddings_are_the_same_in_any_company(void **state)
{
    (void)state;
    check_company("llama-tiny");
    check_company("rwkv7-tiny");
}

static void texts_wait_for_memory(void **state)
{
    (void)state;
    struct salvo_memory memory = {.size = sizeof memory};
    struct many alone = open_many("llama-tiny", (struct salvo_engine_options){.sessions = 1});
    embed_all(&alone, &usual);
    ASSERT_OK(salvo_engine_memory(alone.fixture.engine, &memory));
    const uint64_t page_bytes = salvo_engine_info(alone.fixture.engine)->state_bytes / memory.pages;
    struct many many = open_many(
        "llama-tiny", (struct salvo_engine_options){
                          .sessions = MOST_SESSIONS, .batch = 100, .kv_memory = memory.pages * page_bytes});
    embed_all(&many, &usual);
    assert_memory_equal(alone.out, many.out, TEXTS * many.width * sizeof *many.out);
    ASSERT_OK(salvo_engine_memory(many.fixture.engine, &memory));
    assert_true(memory.pages < MOST_SESSIONS * 2);
    assert_int_equal(0, memory.used_pages);
    close_many(&many);
    close_many(&alone);
}

static double norm_of(const float *values, uint32_t width, double power)
{
    double sum = 0;
    for (uint32_t i = 0; i < width; i++)
        sum += pow(fabs((double)values[i]), power);
    return pow(sum, 1 / power);
}

/* The mean and the last of the rows that a batch gives, divided by their norms. */
static void poolings_and_norms_are_those_of_the_rows(void **state)
{
    (void)state;
    enum { TOKENS = 9 };
    struct many many = open_many("llama-tiny", (struct salvo_engine_options){.sessions = 1, .batch = 16});
    const uint32_t width = many.width;
    float *rows = calloc(TOKENS * width, sizeof *rows);
    struct salvo_run_result result;
    uint64_t step;
    const struct salvo_run run = {.session = many.sessions[0],
        .ids = many.ids,
        .count = TOKENS,
        .want = SALVO_WANT_NOTHING,
        .hidden = rows};
    ASSERT_OK(salvo_engine_submit(many.fixture.engine, &run, 1, sizeof run, &step));
    ASSERT_OK(salvo_engine_wait(many.fixture.engine, step, &result, 1, sizeof result));
    assert_int_equal(SALVO_OK, result.status);
    for (int i = 0; i < 8; i++) {
        const int32_t norms[] = {SALVO_NORM_NONE, SALVO_NORM_EUCLIDEAN, 1, 3};
        const double powers[] = {0, 2, 1, 3};
        const bool is_mean = i < 4;
        const struct salvo_embed_options options = {.size = sizeof options,
            .pooling = is_mean ? SALVO_POOLING_MEAN : SALVO_POOLING_LAST,
            .norm = norms[i % 4]};
        ASSERT_OK(salvo_session_embed(many.sessions[0], many.ids, TOKENS, &options, many.out));
        float *expected = calloc(width, sizeof *expected);
        for (uint32_t j = 0; j < width; j++) {
            double sum = 0;
            for (int row = is_mean ? 0 : TOKENS - 1; row < TOKENS; row++)
                sum += (double)rows[row * width + j];
            expected[j] = (float)(sum / (is_mean ? TOKENS : 1));
        }
        const double norm = i % 4 ? norm_of(expected, width, powers[i % 4]) : 1;
        for (uint32_t j = 0; j < width; j++)
            assert_true(fabs((double)many.out[j] - (double)expected[j] / norm) < 1e-6);
        free(expected);
    }
    free(rows);
    close_many(&many);
}

/* A decode beside texts chooses the ids that it chooses alone, and gives rows of its own. */
static void decodes_go_on_beside_texts(void **state)
{
    (void)state;
    struct many many = open_many("rwkv7-tiny", (struct salvo_engine_options){.sessions = 2, .batch = 32});
    const uint32_t width = many.width;
    float *rows = calloc(10 * width, sizeof *rows);
    int32_t ids[4];
    for (int beside = 0; beside < 2; beside++) {
        ASSERT_OK(salvo_session_rollback(many.sessions[0], 0));
        ASSERT_OK(salvo_session_rollback(many.sessions[1], 0));
        set_greedy(many.sessions[0]);
        ASSERT_OK(salvo_session_feed(many.sessions[0], many.ids, 5));
        for (int i = 0; i < 4; i++) {
            struct salvo_run_result results[2];
            uint64_t step;
            const struct salvo_run runs[] = {
                {.session = many.sessions[0], .hidden = rows},
                {.session = many.sessions[1],
                    .ids = many.ids,
                    .count = 9,
                    .want = SALVO_WANT_NOTHING,
                    .hidden = rows + width},
            };
            const size_t count = beside ? 2 : 1;
            ASSERT_OK(salvo_engine_submit(many.fixture.engine, runs, count, sizeof *runs, &step));
            ASSERT_OK(salvo_engine_wait(many.fixture.engine, step, results, count, sizeof *results));
            assert_int_equal(SALVO_OK, results[0].status);
            assert_int_equal(beside ? ids[i] : results[0].id, results[0].id);
            ids[i] = results[0].id;
        }
        if (!beside)
            memcpy(many.out, rows, width * sizeof *rows);
        assert_memory_equal(many.out, rows, width * sizeof *rows);
    }
    free(rows);
    close_many(&many);
}

static void a_cancel_stops_the_texts(void **state)
{
    (void)state;
    struct many many = open_many("llama-tiny", (struct salvo_engine_options){.sessions = 2, .batch = 16});
    ASSERT_OK(salvo_session_feed(many.sessions[1], many.ids, 3)); /* is removed */
    salvo_session_cancel(many.sessions[1]);
    assert_fails(SALVO_ERROR_CANCELLED,
        salvo_engine_embed(many.sessions, 2, many.texts, counts, TEXTS, NULL, many.out), "cancelled");
    embed_all(&many, NULL);
    close_many(&many);
}

static void mistakes_are_refused_by_name(void **state)
{
    (void)state;
    struct many many = open_many("llama-tiny", (struct salvo_engine_options){.sessions = 2});
    struct salvo_session *session = many.sessions[0];
    const int32_t bad[] = {1, 2, (int32_t)many.fixture.vocabulary};
    const size_t some[] = {3, 0}, lengths[] = {3, 3};
    const int32_t *const texts[] = {many.ids, bad};
    struct salvo_embed_options options = usual;
    int32_t *longer = some_ids(CONTEXT + 1, many.fixture.vocabulary, 1);
    ASSERT_OK(salvo_session_feed(session, many.ids, 4));
    assert_fails(
        SALVO_ERROR_ARGUMENT, salvo_session_embed(session, many.ids, 0, NULL, many.out), "no tokens");
    assert_fails(SALVO_ERROR_ARGUMENT, salvo_session_embed(session, NULL, 2, NULL, many.out), "NULL");
    assert_fails(SALVO_ERROR_CONTEXT, salvo_session_embed(session, longer, CONTEXT + 1, NULL, many.out),
        "the text has 601 tokens, the context 600");
    ASSERT_OK(salvo_engine_embed(many.sessions, 0, NULL, NULL, 0, NULL, NULL));
    assert_fails(SALVO_ERROR_ARGUMENT, salvo_engine_embed(many.sessions, 2, texts, some, 2, NULL, many.out),
        "text 2: the text has no tokens");
    assert_fails(SALVO_ERROR_ARGUMENT,
        salvo_engine_embed(many.sessions, 2, texts, lengths, 2, NULL, many.out), "text 2: token id");
    struct salvo_session *const twice[] = {session, session};
    assert_fails(SALVO_ERROR_ARGUMENT, salvo_engine_embed(twice, 2, texts, some, 1, NULL, many.out), "twice");
    options.pooling = 2;
    assert_fails(SALVO_ERROR_ARGUMENT, salvo_session_embed(session, many.ids, 3, &options, many.out),
        "a pooling of 2 is not known");
    options = usual;
    options.norm = -2;
    assert_fails(
        SALVO_ERROR_ARGUMENT, salvo_session_embed(session, many.ids, 3, &options, many.out), "a norm of -2");
    options.size = 0;
    assert_fails(
        SALVO_ERROR_ARGUMENT, salvo_session_embed(session, many.ids, 3, &options, many.out), "embed_options");
    assert_fails(SALVO_ERROR_ARGUMENT, salvo_session_embed(NULL, many.ids, 3, NULL, many.out), "session");
    assert_fails(SALVO_ERROR_ARGUMENT, salvo_session_embed(session, many.ids, 3, NULL, NULL), "out");
    assert_fails(
        SALVO_ERROR_ARGUMENT, salvo_engine_embed(NULL, 1, texts, some, 1, NULL, many.out), "sessions");
    assert_int_equal(0, salvo_engine_width(NULL));
    assert_int_equal(4, salvo_session_position(session)); /* nothing has happened */
    ASSERT_OK(salvo_session_embed(session, longer, CONTEXT, NULL, many.out));
    free(longer);
    close_many(&many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embeddings_are_the_same_in_any_company),
        cmocka_unit_test(texts_wait_for_memory),
        cmocka_unit_test(poolings_and_norms_are_those_of_the_rows),
        cmocka_unit_test(decodes_go_on_beside_texts),
        cmocka_unit_test(a_cancel_stops_the_texts),
        cmocka_unit_test(mistakes_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
