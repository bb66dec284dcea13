/* Sessions: positions, rollback, saved states, cancelling, full contexts, and refused arguments. */
#include "cancel_hook.h"
#include "cmocka_test.h"
#include "engine_fixture.h"
#include "unit/text_sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct fixture open_tiny(struct salvo_engine_options options)
{
    return fixture_open(made_model("llama-tiny", "Q8_0"), options);
}

static void assert_fails(enum salvo_status expected, enum salvo_status status, const char *words)
{
    assert_int_equal(expected, status);
    if (!strstr(salvo_error(), words))
        fail_msg("'%s' does not say '%s'", salvo_error(), words);
}

#define ASSERT_NEXT(expected, session)                    \
    do {                                                  \
        int32_t next_id;                                  \
        ASSERT_OK(salvo_session_next(session, &next_id)); \
        assert_int_equal(expected, next_id);              \
    } while (0)

static void positions_are_exact(void **state)
{
    (void)state;
    struct fixture fixture =
        open_tiny((struct salvo_engine_options){.size = sizeof(struct salvo_engine_options), .batch = 16});
    struct salvo_session *session = fixture.session;
    int32_t *ids = some_ids(50, fixture.vocabulary, 1), id;
    assert_fails(SALVO_ERROR_ARGUMENT, salvo_session_next(session, &id), "no token was fed");
    assert_int_equal(0, salvo_session_position(session));
    ASSERT_OK(salvo_session_feed(session, ids, 0));
    assert_null(salvo_session_logits(session));
    ASSERT_OK(salvo_session_feed(session, ids, 50));
    assert_int_equal(50, salvo_session_position(session));
    assert_memory_equal(ids, salvo_session_tokens(session), 50 * sizeof *ids);
    assert_non_null(salvo_session_logits(session));
    ASSERT_OK(salvo_session_next(session, &id));
    assert_int_equal(51, salvo_session_position(session));
    assert_int_equal(id, salvo_session_tokens(session)[50]);
    assert_null(salvo_session_logits(session));
    free(ids);
    fixture_close(&fixture);
}

/* Prompt in four chunks, then ten tokens: 4 + 9 submissions, since the first token came with the prompt. */
static void every_token_is_one_submission(void **state)
{
    (void)state;
    struct fixture fixture =
        open_tiny((struct salvo_engine_options){.size = sizeof(struct salvo_engine_options), .batch = 16});
    int32_t *ids = some_ids(50, fixture.vocabulary, 1);
    free(continuation(fixture.session, ids, 50, 10));
    struct salvo_counters counters = counters_of(fixture.engine);
    assert_int_equal(4 + 9, counters.submissions);
    assert_int_equal(50 + 9, counters.tokens);
    free(ids);
    fixture_close(&fixture);
}

static void feeding_after_a_sampled_token_counts_it(void **state)
{
    (void)state;
    struct fixture fixture =
        open_tiny((struct salvo_engine_options){.size = sizeof(struct salvo_engine_options)});
    set_greedy(fixture.session);
    int32_t *ids = some_ids(40, fixture.vocabulary, 2), sampled;
    ASSERT_OK(salvo_session_feed(fixture.session, ids, 20));
    ASSERT_OK(salvo_session_next(fixture.session, &sampled));
    int32_t *mixed = continuation(fixture.session, ids + 20, 20, 5);

    int32_t whole[41];
    memcpy(whole, ids, 20 * sizeof *ids);
    whole[20] = sampled;
    memcpy(whole + 21, ids + 20, 20 * sizeof *ids);
    ASSERT_OK(salvo_session_rollback(fixture.session, 0));
    int32_t *expected = continuation(fixture.session, whole, 41, 5);
    assert_memory_equal(expected, mixed, 5 * sizeof *mixed);
    free(expected);
    free(mixed);
    free(ids);
    fixture_close(&fixture);
}

static void rolling_back_replays(void **state)
{
    (void)state;
    enum { PROMPT = 270, TAKEN = 30 };
    struct fixture fixture =
        open_tiny((struct salvo_engine_options){.size = sizeof(struct salvo_engine_options)});
    struct salvo_session *session = fixture.session;
    int32_t *ids = some_ids(PROMPT, fixture.vocabulary, 3);
    int32_t *first = continuation(session, ids, PROMPT, TAKEN);
    static const uint32_t places[] = {PROMPT + 17, PROMPT, PROMPT + TAKEN - 1};
    for (unsigned p = 0; p < 3; p++) { /* random numbers belong to positions, so even sampling replays */
        ASSERT_OK(salvo_session_rollback(session, places[p]));
        assert_int_equal(places[p], salvo_session_position(session));
        for (uint32_t i = places[p] - PROMPT; i < TAKEN; i++)
            ASSERT_NEXT(first[i], session);
    }
    ASSERT_OK(salvo_session_rollback(session, 100)); /* into the prompt: the rest of it again */
    int32_t *again = continuation(session, ids + 100, PROMPT - 100, TAKEN);
    assert_memory_equal(first, again, TAKEN * sizeof *first);
    assert_fails(SALVO_ERROR_ARGUMENT, salvo_session_rollback(session, PROMPT + TAKEN + 1), "roll back");
    free(again);
    free(first);
    free(ids);
    fixture_close(&fixture);
}

static void states_go_on_with_the_same_bits(void **state)
{
    (void)state;
    static const enum salvo_kv_type types[] = {SALVO_KV_F16, SALVO_KV_F32, SALVO_KV_Q8_0};
    for (unsigned t = 0; t < 3; t++) {
        const struct salvo_engine_options options = {
            .size = sizeof(struct salvo_engine_options), .kv_type = types[t], .sessions = 3};
        struct fixture fixture = open_tiny(options), elsewhere = open_tiny(options);
        struct salvo_session *session = fixture.session, *copy;
        ASSERT_OK(salvo_session_open(fixture.engine, &copy));
        int32_t *ids = some_ids(300, fixture.vocabulary, 4);
        for (uint32_t taken = 0; taken < 3; taken++) { /* with a pending id, and with one not computed yet */
            ASSERT_OK(salvo_session_rollback(session, 0));
            ASSERT_OK(salvo_session_feed(session, ids, 300));
            int32_t id;
            for (uint32_t i = 0; i < taken; i++)
                ASSERT_OK(salvo_session_next(session, &id));
            size_t size, size_again;
            uint8_t *bytes = saved_state(session, &size);
            ASSERT_OK(salvo_session_copy(copy, session));
            ASSERT_OK(salvo_session_state_restore(elsewhere.session, bytes, size));
            assert_int_equal(300 + taken, salvo_session_position(copy));
            uint8_t *bytes_again = saved_state(elsewhere.session, &size_again);
            assert_int_equal(size, size_again);
            assert_memory_equal(bytes, bytes_again, size);
            for (unsigned i = 0; i < 20; i++) {
                ASSERT_OK(salvo_session_next(session, &id));
                ASSERT_NEXT(id, copy);
                ASSERT_NEXT(id, elsewhere.session);
            }
            ASSERT_OK(salvo_session_feed(session, ids, 10));
            ASSERT_OK(salvo_session_feed(elsewhere.session, ids, 10));
            assert_memory_equal(salvo_session_logits(session), salvo_session_logits(elsewhere.session),
                fixture.vocabulary * sizeof(float));
            free(bytes);
            free(bytes_again);
        }
        free(ids);
        salvo_session_close(copy);
        fixture_close(&elsewhere);
        fixture_close(&fixture);
    }
}

static void states_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    struct fixture fixture =
        open_tiny((struct salvo_engine_options){.size = sizeof(struct salvo_engine_options)});
    struct fixture other = fixture_open(made_model("llama-256", "Q4_0"),
        (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options)});
    struct fixture other_type = open_tiny(
        (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options), .kv_type = SALVO_KV_F32});
    struct fixture shorter =
        open_tiny((struct salvo_engine_options){.size = sizeof(struct salvo_engine_options), .context = 20});
    int32_t *ids = some_ids(30, fixture.vocabulary, 5);
    ASSERT_OK(salvo_session_feed(fixture.session, ids, 30));
    size_t size;
    uint8_t *bytes = saved_state(fixture.session, &size);
    assert_fails(SALVO_ERROR_ARGUMENT, salvo_session_state_save(fixture.session, bytes, size - 1), "bytes");
    assert_fails(
        SALVO_ERROR_ARGUMENT, salvo_session_state_restore(other.session, bytes, size), "another model");
    assert_fails(
        SALVO_ERROR_ARGUMENT, salvo_session_state_restore(other_type.session, bytes, size), "KV type");
    assert_fails(SALVO_ERROR_CONTEXT, salvo_session_state_restore(shorter.session, bytes, size), "30 tokens");
    assert_fails(SALVO_ERROR_FORMAT, salvo_session_state_restore(fixture.session, bytes, 10), "too few");
    assert_fails(SALVO_ERROR_FORMAT, salvo_session_state_restore(fixture.session, bytes, size - 1), "cut");
    for (size_t at = 0; at < size; at += at < 200 ? 1 : 97) { /* any byte that was changed */
        bytes[at] ^= 0x10;
        assert_int_not_equal(SALVO_OK, salvo_session_state_restore(fixture.session, bytes, size));
        bytes[at] ^= 0x10;
    }
    assert_int_equal(30, salvo_session_position(fixture.session)); /* refused without effect */
    ASSERT_OK(salvo_session_state_restore(fixture.session, bytes, size));
    free(bytes);
    free(ids);
    fixture_close(&shorter);
    fixture_close(&other_type);
    fixture_close(&other);
    fixture_close(&fixture);
}

static void a_full_context_is_said(void **state)
{
    (void)state;
    struct fixture fixture =
        open_tiny((struct salvo_engine_options){.size = sizeof(struct salvo_engine_options), .context = 40});
    int32_t *ids = some_ids(41, fixture.vocabulary, 6), id;
    assert_fails(SALVO_ERROR_CONTEXT, salvo_session_feed(fixture.session, ids, 41), "41 tokens do not fit");
    assert_int_equal(0, salvo_session_position(fixture.session));
    ASSERT_OK(salvo_session_feed(fixture.session, ids, 38));
    assert_fails(SALVO_ERROR_CONTEXT, salvo_session_feed(fixture.session, ids, 3), "3 tokens do not fit");
    assert_int_equal(38, salvo_session_position(fixture.session));
    ASSERT_OK(salvo_session_next(fixture.session, &id));
    ASSERT_OK(salvo_session_next(fixture.session, &id));
    assert_fails(SALVO_ERROR_CONTEXT, salvo_session_next(fixture.session, &id), "40 tokens is full");
    assert_int_equal(40, salvo_session_position(fixture.session));
    ASSERT_OK(salvo_session_rollback(fixture.session, 0));
    free(logits_at_once(&fixture, ids, 40)); /* all of it can be used */
    free(ids);
    fixture_close(&fixture);
}

static void nonsense_is_refused_by_name(void **state)
{
    (void)state;
    struct fixture fixture =
        open_tiny((struct salvo_engine_options){.size = sizeof(struct salvo_engine_options)});
    struct salvo_session *session = fixture.session, *second;
    struct salvo_engine *engine;
    const int32_t outside[] = {0, (int32_t)fixture.vocabulary}, negative[] = {-1};
    assert_fails(
        SALVO_ERROR_ARGUMENT, salvo_session_feed(session, outside, 2), "outside the vocabulary of 331");
    assert_fails(SALVO_ERROR_ARGUMENT, salvo_session_feed(session, negative, 1), "-1");
    assert_int_equal(0, salvo_session_position(session));
    assert_fails(SALVO_ERROR_ARGUMENT, salvo_session_open(fixture.engine, &second), "are open");
    assert_null(second);

    struct salvo_sampler sampler = default_sampler(fixture.model);
    sampler.temperature = -1;
    assert_fails(
        SALVO_ERROR_ARGUMENT, salvo_session_set_sampler(session, &sampler), "temperature -1 is invalid");
    sampler = default_sampler(fixture.model);
    sampler.top_p = NAN;
    assert_fails(SALVO_ERROR_ARGUMENT, salvo_session_set_sampler(session, &sampler), "top-p");
    assert_fails(SALVO_ERROR_ARGUMENT, salvo_session_set_bias(session, 331, 1), "331");
    assert_fails(SALVO_ERROR_ARGUMENT, salvo_session_set_bias(session, 1, NAN), "bias");
    assert_fails(SALVO_ERROR_ARGUMENT, salvo_session_set_bias(session, 1, INFINITY), "bias");
    ASSERT_OK(salvo_session_set_bias(session, 1, -INFINITY));

    assert_fails(SALVO_ERROR_ARGUMENT, salvo_session_feed(session, NULL, 2), "list of 2 tokens");
    assert_fails(SALVO_ERROR_CONTEXT, salvo_session_feed(session, NULL, SIZE_MAX), "do not fit");
    struct salvo_text key = {"x", 1};
    struct salvo_value value = {.u = 1};
    struct salvo_tensor tensor = SALVO_TENSOR_INIT;
    assert_fails(SALVO_ERROR_ARGUMENT, salvo_model_tensor(fixture.model, SIZE_MAX, &tensor), "tensor");
    assert_false(salvo_model_metadata(fixture.model, SIZE_MAX, &key, &value));
    assert_int_equal(0, value.u);
    assert_null(key.data);
    assert_fails(SALVO_ERROR_ARGUMENT, salvo_quantize(fixture.model, "/tmp/x", NULL), "'options' is NULL");

    const struct {
        struct salvo_engine_options options;
        const char *words;
    } wrong[] = {
        {{.backend = "cuda"}, "backend 'cuda' "}, /* is not built in, or has no device */
        {{.backend = "abacus"}, "'abacus' is not known"},
        {{.device = 7}, "no device 7"},
        {{.isa = "mmx"}, "'mmx'"},
        {{.threads = 1000}, "1000"},
        {{.threads = UINT32_MAX}, "4294967295"},
        {{.context = UINT32_MAX}, "4294967295 positions"},
        {{.batch = UINT32_MAX}, "4294967295 tokens"},
        {{.sessions = UINT32_MAX}, "4294967295 sessions"},
        {{.device = UINT32_MAX}, "4294967295"},
        {{.context = 60000000, .sessions = 1000}, "MB"},
        {{.sessions = 100000}, "100000 sessions"},
        {{.kv_type = (enum salvo_kv_type)9}, "KV type 9"},
    };
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct salvo_engine_options options = wrong[i].options;
        options.size = sizeof options;
        assert_int_not_equal(SALVO_OK, salvo_engine_open(fixture.model, &options, &engine));
        assert_null(engine);
        if (!strstr(salvo_error(), wrong[i].words))
            fail_msg("'%s' does not say '%s'", salvo_error(), wrong[i].words);
    }
    fixture_close(&fixture);
}

/* Logits belong to the last step: another session's step replaces them. */
static void logits_belong_to_the_last_step(void **state)
{
    (void)state;
    struct fixture fixture =
        open_tiny((struct salvo_engine_options){.size = sizeof(struct salvo_engine_options), .sessions = 2});
    struct salvo_session *second;
    int32_t *ids = some_ids(5, fixture.vocabulary, 8);
    ASSERT_OK(salvo_session_open(fixture.engine, &second));
    ASSERT_OK(salvo_session_feed(fixture.session, ids, 5));
    assert_non_null(salvo_session_logits(fixture.session));
    ASSERT_OK(salvo_session_feed(second, ids, 4));
    assert_non_null(salvo_session_logits(second));
    assert_null(salvo_session_logits(fixture.session));
    free(ids);
    fixture_close(&fixture);
}

static void bias_decides(void **state)
{
    (void)state;
    struct fixture fixture =
        open_tiny((struct salvo_engine_options){.size = sizeof(struct salvo_engine_options)});
    int32_t *ids = some_ids(5, fixture.vocabulary, 7);
    set_greedy(fixture.session);
    ASSERT_OK(salvo_session_set_bias(fixture.session, 123, 1e6f));
    ASSERT_OK(salvo_session_feed(fixture.session, ids, 5));
    ASSERT_NEXT(123, fixture.session);
    for (int32_t id = 0; id < (int32_t)fixture.vocabulary; id++)
        ASSERT_OK(salvo_session_set_bias(fixture.session, id, -INFINITY));
    int32_t id;
    assert_fails(
        SALVO_ERROR_NUMERIC, salvo_session_next(fixture.session, &id), "no token can be chosen at position");
    assert_int_equal(6, salvo_session_position(fixture.session));

    /* A session that is opened again has none of it. */
    salvo_session_close(fixture.session);
    ASSERT_OK(salvo_session_open(fixture.engine, &fixture.session));
    set_greedy(fixture.session);
    ASSERT_OK(salvo_session_feed(fixture.session, ids, 5));
    ASSERT_OK(salvo_session_next(fixture.session, &id));
    assert_int_not_equal(123, id);
    free(ids);
    fixture_close(&fixture);
}

/* The largest element of an array with a number per layer is shown. */
static void numbers_of_layers_are_shown_by_the_largest(void **state)
{
    (void)state;
    char path[] = "/tmp/salvo-layers-XXXXXX";
    struct text_sample sample = {0};
    struct salvo_model *model;
    sample_text(&sample, "general.architecture", "llama");
    sample_integers(&sample, "llama.attention.head_count_kv", (const int32_t[]){2, 8, -1, 4}, 4);
    sample_bpe(&sample, "gpt-2");
    ASSERT_OK(sample_open(&sample));
    const int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    assert_int_equal(sample.file.size, write(descriptor, sample.file.data, sample.file.size));
    assert_int_equal(0, close(descriptor));
    ASSERT_OK(salvo_model_open(path, &model));
    assert_int_equal(8, salvo_model_info(model)->kv_heads);
    salvo_model_close(model);
    sample_close(&sample);
    unlink(path);
}

/* The batch is at least as large as the number of sessions. */
static void sessions_beyond_the_batch_decode_in_one_step(void **state)
{
    (void)state;
    enum { SESSIONS = 3 };
    struct fixture fixture = open_tiny((struct salvo_engine_options){
        .size = sizeof(struct salvo_engine_options), .sessions = SESSIONS, .batch = 2});
    struct salvo_session *sessions[SESSIONS] = {fixture.session};
    int32_t *ids = some_ids(10, fixture.vocabulary, 8), taken[SESSIONS];
    enum salvo_status statuses[SESSIONS];
    for (int i = 0; i < SESSIONS; i++) {
        if (i)
            ASSERT_OK(salvo_session_open(fixture.engine, &sessions[i]));
        ASSERT_OK(salvo_session_feed(sessions[i], ids, 10));
    }
    ASSERT_OK(salvo_engine_next(sessions, SESSIONS, taken, statuses)); /* chosen with the prompts */
    const uint64_t before = counters_of(fixture.engine).submissions;
    ASSERT_OK(salvo_engine_next(sessions, SESSIONS, taken, statuses));
    assert_int_equal(1, counters_of(fixture.engine).submissions - before);
    for (int i = 0; i < SESSIONS; i++)
        assert_int_equal(SALVO_OK, statuses[i]);
    for (int i = 1; i < SESSIONS; i++)
        salvo_session_close(sessions[i]);
    free(ids);
    fixture_close(&fixture);
}

static void sessions_that_cannot_go_on_do_not_stop_others(void **state)
{
    (void)state;
    struct fixture fixture = open_tiny((struct salvo_engine_options){
        .size = sizeof(struct salvo_engine_options), .sessions = 4, .context = 30});
    struct salvo_session *sessions[4] = {fixture.session};
    for (int i = 1; i < 4; i++)
        ASSERT_OK(salvo_session_open(fixture.engine, &sessions[i]));
    int32_t *ids = some_ids(30, fixture.vocabulary, 8), taken[4];
    enum salvo_status statuses[4];
    ASSERT_OK(salvo_session_feed(sessions[0], ids, 30)); /* full */
    ASSERT_OK(salvo_session_feed(sessions[1], ids, 10));
    ASSERT_OK(salvo_session_feed(sessions[3], ids, 10)); /* cancelled; the third is empty */
    salvo_session_cancel(sessions[3]);
    for (int round = 0; round < 3; round++) {
        ASSERT_OK(salvo_engine_next(sessions, 4, taken, statuses));
        assert_int_equal(SALVO_ERROR_CONTEXT, statuses[0]);
        assert_int_equal(SALVO_OK, statuses[1]);
        assert_int_equal(SALVO_ERROR_ARGUMENT, statuses[2]);
        assert_int_equal(round ? SALVO_OK : SALVO_ERROR_CANCELLED, statuses[3]);
        assert_int_equal(11 + round, salvo_session_position(sessions[1]));
    }
    assert_int_equal(12, salvo_session_position(sessions[3]));
    assert_int_equal(SALVO_ERROR_ARGUMENT,
        salvo_engine_next((struct salvo_session *const[]){sessions[1], sessions[1]}, 2, taken, statuses));
    for (int i = 1; i < 4; i++)
        salvo_session_close(sessions[i]);
    free(ids);
    fixture_close(&fixture);
}

static void cancelling_keeps_what_was_finished(void **state)
{
    (void)state;
    struct fixture fixture =
        open_tiny((struct salvo_engine_options){.size = sizeof(struct salvo_engine_options), .batch = 8});
    struct salvo_session *session = fixture.session;
    int32_t *ids = some_ids(500, fixture.vocabulary, 9), *others = some_ids(500, fixture.vocabulary, 10);
    salvo_session_cancel(session); /* before anything runs: the next call stops at once */
    assert_fails(SALVO_ERROR_CANCELLED, salvo_session_feed(session, ids, 100), "cancelled");
    assert_int_equal(0, salvo_session_position(session));
    int32_t *expected = continuation(session, ids, 450, 10); /* the cancel is used up */

    uint32_t reached = 0;
    for (unsigned call = 1; call < 1000; call *= 3) { /* in the first chunk and in later ones */
        ASSERT_OK(salvo_session_rollback(session, 0));
        ASSERT_OK(salvo_session_feed(session, others, 450)); /* nothing of the prompt is left in the cache */
        ASSERT_OK(salvo_session_rollback(session, 0));
        cancel_hook_set(fixture.engine, session, call);
        assert_fails(SALVO_ERROR_CANCELLED, salvo_session_feed(session, ids, 450), "cancelled");
        assert_true(cancel_hook_remove(fixture.engine));
        const uint32_t position = salvo_session_position(session);
        assert_int_equal(0, position % 8); /* whole chunks */
        assert_in_range(position, reached, 448);
        reached = position;
        int32_t *again = continuation(session, ids + position, 450 - position, 10);
        assert_memory_equal(expected, again, 10 * sizeof *again);
        free(again);
    }
    assert_in_range(reached, 8, 448); /* the last cancel came behind the first chunk */
    free(expected);
    free(others);
    free(ids);
    fixture_close(&fixture);
}

/* Calls that would compute nothing notice a cancel as well, and use it up. */
static void a_cancel_stops_the_next_call(void **state)
{
    (void)state;
    struct fixture fixture =
        open_tiny((struct salvo_engine_options){.size = sizeof(struct salvo_engine_options), .context = 30});
    struct salvo_session *session = fixture.session;
    int32_t *ids = some_ids(30, fixture.vocabulary, 9), id, expected;
    set_greedy(session);
    ASSERT_OK(salvo_session_feed(session, ids, 20));
    ASSERT_OK(salvo_session_next(session, &expected));
    ASSERT_OK(salvo_session_rollback(session, 0));
    ASSERT_OK(salvo_session_feed(session, ids, 20));
    salvo_session_cancel(session);
    assert_fails(SALVO_ERROR_CANCELLED, salvo_session_next(session, &id), "cancelled after 20 tokens");
    assert_int_equal(-1, id);
    salvo_session_cancel(session);
    assert_fails(SALVO_ERROR_CANCELLED, salvo_session_feed(session, NULL, 0), "cancelled");
    salvo_session_cancel(session);
    assert_fails(SALVO_ERROR_CANCELLED, salvo_session_eval(session, NULL, 0, NULL, NULL), "cancelled");
    ASSERT_OK(salvo_session_feed(session, NULL, 0));
    ASSERT_NEXT(expected, session);
    ASSERT_OK(salvo_session_feed(session, ids, 9)); /* it is full: nor does the next call say that instead */
    salvo_session_cancel(session);
    assert_fails(SALVO_ERROR_CANCELLED, salvo_session_next(session, &id), "cancelled");
    assert_fails(SALVO_ERROR_CONTEXT, salvo_session_next(session, &id), "full");
    free(ids);
    fixture_close(&fixture);
}

static bool stop_at_five(void *user, uint32_t position, const float *logits)
{
    (void)logits;
    *(uint32_t *)user = position;
    return position < 5;
}

static void evaluation_can_be_stopped_and_goes_on(void **state)
{
    (void)state;
    struct fixture fixture =
        open_tiny((struct salvo_engine_options){.size = sizeof(struct salvo_engine_options)});
    set_greedy(fixture.session);
    int32_t *ids = some_ids(20, fixture.vocabulary, 10), id;
    int32_t *expected = continuation(fixture.session, ids, 20, 3);
    uint32_t last = 0;
    ASSERT_OK(salvo_session_rollback(fixture.session, 0));
    ASSERT_OK(salvo_session_eval(fixture.session, ids, 20, stop_at_five, &last));
    assert_int_equal(5, last);
    assert_int_equal(20, salvo_session_position(fixture.session)); /* its chunk was computed */
    for (int i = 0; i < 3; i++) {
        ASSERT_OK(salvo_session_next(fixture.session, &id));
        assert_int_equal(expected[i], id);
    }
    free(expected);
    free(ids);
    fixture_close(&fixture);
}

struct loading {
    uint64_t done, total, calls;
};

static void note_loading(void *user, uint64_t done, uint64_t total)
{
    struct loading *loading = user;
    assert_true(done > loading->done && done <= total);
    assert_true(loading->total == 0 || loading->total == total);
    *loading = (struct loading){done, total, loading->calls + 1};
}

static void loading_is_reported_to_its_end(void **state)
{
    (void)state;
    struct loading loading = {0};
    struct fixture fixture = open_tiny((struct salvo_engine_options){
        .size = sizeof(struct salvo_engine_options), .progress = note_loading, .user = &loading});
    assert_true(loading.calls > 1);
    assert_int_equal(loading.total, loading.done);
    assert_int_equal(salvo_engine_info(fixture.engine)->weight_bytes, loading.total);
    fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loading_is_reported_to_its_end),
        cmocka_unit_test(positions_are_exact),
        cmocka_unit_test(every_token_is_one_submission),
        cmocka_unit_test(feeding_after_a_sampled_token_counts_it),
        cmocka_unit_test(rolling_back_replays),
        cmocka_unit_test(states_go_on_with_the_same_bits),
        cmocka_unit_test(states_that_do_not_fit_are_refused),
        cmocka_unit_test(a_full_context_is_said),
        cmocka_unit_test(nonsense_is_refused_by_name),
        cmocka_unit_test(logits_belong_to_the_last_step),
        cmocka_unit_test(bias_decides),
        cmocka_unit_test(numbers_of_layers_are_shown_by_the_largest),
        cmocka_unit_test(sessions_beyond_the_batch_decode_in_one_step),
        cmocka_unit_test(sessions_that_cannot_go_on_do_not_stop_others),
        cmocka_unit_test(cancelling_keeps_what_was_finished),
        cmocka_unit_test(a_cancel_stops_the_next_call),
        cmocka_unit_test(evaluation_can_be_stopped_and_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
