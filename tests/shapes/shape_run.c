/*
 * Two engines of one file go through the same events: prompts in odd chunks, decoding, rollbacks, states
 * saved and restored, until the context is full. The CPU's logits and ids equal those of cpu:scalar to the
 * last bit. Other backends round differently: each group of ops is compared within the tolerance of `verify`,
 * and the events against its bound for models that run free.
 */
#include "shape_run.h"

#include "backend/cpu/kernels.h"
#include "engine/engine.h"
#include "model_write.h"
#include "quant/half.h"
#include "random_weights.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERIFIED_TOKENS = 10, MOST_EVENTS = 24 };

/* As in engine/verify.c. */
static const double largest_mean_divergence = 1e-3;

struct side {
    struct salvo_engine *engine;
    struct salvo_session *sessions[MOST_SESSIONS];
};

struct shape_test {
    const struct shape_case *made;
    const char *backend;
    bool is_exact; /* bits are compared */
    uint64_t random;
    struct salvo_model *model;
    struct side ours, expected;
    uint32_t vocabulary, events;
    double divergences;
    uint32_t rows;
    struct shape_result result;
    jmp_buf failed;
};

static void fail_case(struct shape_test *test, const char *format, ...)
    __attribute__((format(printf, 2, 3), noreturn));

static void fail_case(struct shape_test *test, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    test->result.outcome = SHAPE_FAILED;
    vsnprintf(test->result.text, sizeof test->result.text, format, arguments);
    va_end(arguments);
    longjmp(test->failed, 1);
}

static void must(struct shape_test *test, const char *what, enum salvo_status status)
{
    if (status != SALVO_OK)
        fail_case(test, "event %u, %s: %s", test->events, what, salvo_error());
}

/* ---- Logits ---- */

/* How far `q` is from `p`, as Kullback and Leibler have it; both hold logits. */
static double divergence(const float *p, const float *q, uint32_t count)
{
    double largest_p = -INFINITY, largest_q = -INFINITY, sum_p = 0, sum_q = 0, sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        largest_p = (double)p[i] > largest_p ? (double)p[i] : largest_p;
        largest_q = (double)q[i] > largest_q ? (double)q[i] : largest_q;
    }
    for (uint32_t i = 0; i < count; i++) {
        sum_p += exp((double)p[i] - largest_p);
        sum_q += exp((double)q[i] - largest_q);
    }
    for (uint32_t i = 0; i < count; i++) {
        double log_p = (double)p[i] - largest_p - log(sum_p), log_q = (double)q[i] - largest_q - log(sum_q);
        sum += exp(log_p) * (log_p - log_q);
    }
    return sum;
}

static void compare_logits(struct shape_test *test, uint32_t number, const char *after)
{
    const float *got = salvo_session_logits(test->ours.sessions[number]),
                *expected = salvo_session_logits(test->expected.sessions[number]);
    if (!got || !expected)
        fail_case(test, "event %u, %s: there are no logits", test->events, after);
    for (uint32_t i = 0; i < test->vocabulary; i++) {
        const bool differs = test->is_exact ? f32_bits(got[i]) != f32_bits(expected[i])
                                            : isfinite(got[i]) != isfinite(expected[i]);
        if (differs) {
            fail_case(test, "event %u, %s: logit %u of session %u at position %u is %.9g, not %.9g",
                test->events, after, i, number, salvo_session_position(test->ours.sessions[number]),
                (double)got[i], (double)expected[i]);
        }
    }
    if (!test->is_exact) {
        test->divergences += divergence(expected, got, test->vocabulary);
        test->rows++;
    }
}

/* ---- Events ---- */

static uint32_t room_of(const struct shape_test *test, uint32_t number)
{
    return test->made->options.context - salvo_session_position(test->ours.sessions[number]);
}

static void feed(struct shape_test *test, uint32_t number, uint32_t count)
{
    int32_t *ids = calloc(count, sizeof *ids);
    if (!ids)
        fail_case(test, "no memory");
    for (uint32_t i = 0; i < count; i++)
        ids[i] = (int32_t)random_below(&test->random, test->vocabulary);
    enum salvo_status ours = salvo_session_feed(test->ours.sessions[number], ids, count);
    if (ours == SALVO_OK)
        ours = salvo_session_feed(test->expected.sessions[number], ids, count);
    free(ids);
    must(test, "feed", ours);
    compare_logits(test, number, "feed");
}

/* Other rounding may choose another id: then both go on with the expected one. */
static void agree_on_id(struct shape_test *test, uint32_t number, int32_t got, int32_t expected)
{
    struct salvo_session *session = test->ours.sessions[number];
    const uint32_t position = salvo_session_position(session);
    if (got < 0 || (uint32_t)got >= test->vocabulary)
        fail_case(test, "event %u: id %d was chosen out of %u", test->events, got, test->vocabulary);
    if (test->is_exact && got != expected)
        fail_case(
            test, "event %u: id %d was chosen at position %u, not %d", test->events, got, position, expected);
    if (got != expected) {
        must(test, "rollback", salvo_session_rollback(session, position - 1));
        must(test, "feed", salvo_session_feed(session, &expected, 1));
    }
}

static void decode(struct shape_test *test, uint32_t number)
{
    int32_t got, expected;
    must(test, "next", salvo_session_next(test->ours.sessions[number], &got));
    must(test, "next of the reference", salvo_session_next(test->expected.sessions[number], &expected));
    agree_on_id(test, number, got, expected);
}

/* All sessions that can go on, in one step. */
static void decode_together(struct shape_test *test)
{
    struct salvo_session *ours[MOST_SESSIONS], *expected[MOST_SESSIONS];
    int32_t got_ids[MOST_SESSIONS], expected_ids[MOST_SESSIONS];
    enum salvo_status statuses[MOST_SESSIONS];
    uint32_t numbers[MOST_SESSIONS], count = 0;
    for (uint32_t i = 0; i < test->made->options.sessions; i++) {
        if (!room_of(test, i) || !salvo_session_position(test->ours.sessions[i]))
            continue;
        ours[count] = test->ours.sessions[i];
        expected[count] = test->expected.sessions[i];
        numbers[count++] = i;
    }
    if (!count)
        return;
    must(test, "next of all", salvo_engine_next(ours, count, got_ids, statuses));
    must(test, "next of all of the reference", salvo_engine_next(expected, count, expected_ids, statuses));
    for (uint32_t i = 0; i < count; i++)
        agree_on_id(test, numbers[i], got_ids[i], expected_ids[i]);
}

static void roll_back(struct shape_test *test, uint32_t number)
{
    const uint32_t to = random_below(&test->random, salvo_session_position(test->ours.sessions[number]) + 1);
    must(test, "rollback", salvo_session_rollback(test->ours.sessions[number], to));
    must(test, "rollback", salvo_session_rollback(test->expected.sessions[number], to));
}

/* The tested session is saved, gets other tokens, and is restored; the reference session does not
 * change. */
static void save_and_restore(struct shape_test *test, uint32_t number)
{
    struct salvo_session *session = test->ours.sessions[number];
    const uint32_t position = salvo_session_position(session);
    const size_t size = salvo_session_state_size(session);
    uint8_t *state = malloc(size);
    const int32_t other = (int32_t)random_below(&test->random, test->vocabulary);
    if (!state)
        fail_case(test, "no memory");
    enum salvo_status status = salvo_session_state_save(session, state, size);
    if (status == SALVO_OK)
        status = salvo_session_rollback(session, 0);
    if (status == SALVO_OK)
        status = salvo_session_feed(session, &other, 1);
    if (status == SALVO_OK)
        status = salvo_session_state_restore(session, state, size);
    free(state);
    must(test, "save and restore", status);
    if (salvo_session_logits(session) || salvo_session_position(session) != position)
        fail_case(test, "event %u: a restored session stands at %u, not %u, or has logits", test->events,
            salvo_session_position(session), position);
}

static void one_event(struct shape_test *test)
{
    const uint32_t number = random_below(&test->random, test->made->options.sessions);
    const uint32_t room = room_of(test, number);
    const bool is_empty = salvo_session_position(test->ours.sessions[number]) == 0;
    switch (random_below(&test->random, 8)) {
    case 0:
        roll_back(test, number);
        break;
    case 1:
        save_and_restore(test, number);
        break;
    case 2:
    case 3:
        if (room)
            feed(test, number, 1 + random_below(&test->random, room));
        break;
    case 4:
        decode_together(test);
        break;
    default:
        if (room && !is_empty)
            decode(test, number);
        else if (room)
            feed(test, number, 1 + random_below(&test->random, room < 5 ? room : 5));
        break;
    }
    test->events++;
}

/* The last position is computed, and nothing goes beyond it. */
static void fill_context(struct shape_test *test, uint32_t number)
{
    struct salvo_session *session = test->ours.sessions[number];
    const int32_t more = 0;
    int32_t id;
    if (room_of(test, number) > 1)
        feed(test, number, room_of(test, number) - 1);
    if (room_of(test, number) && salvo_session_position(session))
        decode(test, number);
    if (room_of(test, number))
        feed(test, number, 1);
    if (salvo_session_next(session, &id) != SALVO_ERROR_CONTEXT ||
        salvo_session_feed(session, &more, 1) != SALVO_ERROR_CONTEXT)
        fail_case(test, "a full context of %u takes more tokens", test->made->options.context);
    if (test->is_exact || salvo_session_position(session) < 2)
        return;
    /* A decoded id was not computed: computing it again shows the row of the last position. */
    must(test, "rollback", salvo_session_rollback(session, test->made->options.context - 1));
    must(test, "rollback",
        salvo_session_rollback(test->expected.sessions[number], test->made->options.context - 1));
    feed(test, number, 1);
}

static struct salvo_sampler random_sampler(struct shape_test *test)
{
    struct salvo_sampler sampler = {
        .size = sizeof(struct salvo_sampler), .top_p = 1, .repeat_penalty = 1, .seed = test->made->seed};
    if (random_below(&test->random, 2)) {
        sampler.repeat_penalty = 1.3f;
        sampler.presence_penalty = 0.25f;
        sampler.frequency_penalty = 0.125f;
        sampler.repeat_last_n = random_below(&test->random, 70);
    }
    if (random_below(&test->random, 2)) {
        sampler.temperature = 0.9f;
        sampler.top_k = random_below(&test->random, 50);
        sampler.top_p = random_below(&test->random, 2) ? 1 : 0.9f;
        sampler.min_p = random_below(&test->random, 2) ? 0 : 0.05f;
    }
    return sampler;
}

static void run_events(struct shape_test *test)
{
    for (uint32_t i = 0; i < test->made->options.sessions; i++) {
        const struct salvo_sampler sampler = random_sampler(test);
        must(test, "open", salvo_session_open(test->ours.engine, &test->ours.sessions[i]));
        must(test, "open", salvo_session_open(test->expected.engine, &test->expected.sessions[i]));
        must(test, "sampler", salvo_session_set_sampler(test->ours.sessions[i], &sampler));
        must(test, "sampler", salvo_session_set_sampler(test->expected.sessions[i], &sampler));
    }
    const bool is_slow = !test->is_exact || test->made->options.context > PAGE_POSITIONS / 2;
    const uint32_t events = 4 + random_below(&test->random, is_slow ? MOST_EVENTS / 4 : MOST_EVENTS);
    while (test->events < events)
        one_event(test);
    for (uint32_t i = 0; i < test->made->options.sessions; i++)
        fill_context(test, i);
    if (test->rows && !(test->divergences / test->rows <= largest_mean_divergence))
        fail_case(test, "the mean divergence of %u rows is %g", test->rows, test->divergences / test->rows);
}

/* ---- Verify ---- */

static void keep_worst(void *user, const struct salvo_verify_output *output)
{
    char *text = user;
    if (!*text)
        snprintf(text, 256, "%s of '%s': %g, allowed %g", output->operation, output->buffer, output->error,
            output->tolerance);
}

static void verify(struct shape_test *test)
{
    int32_t ids[VERIFIED_TOKENS];
    char worst[256] = "";
    struct salvo_verify_result result = SALVO_VERIFY_RESULT_INIT;
    for (uint32_t i = 0; i < VERIFIED_TOKENS; i++)
        ids[i] = (int32_t)random_below(&test->random, test->vocabulary);
    const struct salvo_verify_options options = {
        .size = sizeof(struct salvo_verify_options),
        .backend = test->backend,
        .ids = ids,
        .count = 1 + random_below(&test->random, VERIFIED_TOKENS),
        .threads = test->made->options.threads,
        .kv_type = test->made->options.kv_type,
    };
    must(test, "verify", salvo_verify(test->model, &options, keep_worst, worst, &result));
    if (!result.passed) {
        fail_case(test, "verify: %u of %u outputs out of tolerance, mean divergence %g (%g, %g); worst %s",
            result.failed, result.outputs, result.mean_divergence, result.from_finest,
            result.against_from_finest, worst);
    }
}

/* ---- Opening ---- */

static void note_loading(void *user, uint64_t done, uint64_t total)
{
    (void)done;
    (void)total;
    *(bool *)user = true;
}

/* Any instruction set that this processor has; NULL: the best. */
static const char *random_isa(struct shape_test *test)
{
    bool usable;
    const struct cpu_kernels *kernels =
        cpu_kernels_at(random_below(&test->random, (uint32_t)cpu_kernels_count()), &usable);
    return usable && random_below(&test->random, 2) ? kernels->name : NULL;
}

/* False: refused, as it may be: by name, and before anything was loaded. */
static bool open_ours(struct shape_test *test)
{
    bool loads = false;
    struct salvo_engine_options options = test->made->options;
    options.backend = test->backend;
    options.isa = test->is_exact ? random_isa(test) : NULL;
    options.progress = note_loading;
    options.user = &loads;
    enum salvo_status status = salvo_engine_open(test->model, &options, &test->ours.engine);
    if (status == SALVO_OK)
        return true;
    test->result.outcome = SHAPE_REFUSED;
    snprintf(test->result.text, sizeof test->result.text, "%s", salvo_error());
    if (status != SALVO_ERROR_UNSUPPORTED || loads)
        fail_case(test, "refused %s: %s", loads ? "after loading" : "with another status", salvo_error());
    return false;
}

static void run_case(struct shape_test *test, const char *path)
{
    const struct shape_case *made = test->made;
    struct salvo_engine_options options = made->options;
    options.backend = "cpu";
    options.isa = "scalar";
    must(test, "write", model_write(&made->shape, made->mix, path, made->seed));
    must(test, "open", salvo_model_open(path, &test->model));
    if (!open_ours(test))
        return;
    must(test, "open the reference", salvo_engine_open(test->model, &options, &test->expected.engine));
    test->vocabulary = made->shape.vocabulary;
    if (!test->is_exact)
        cpu_backend.set_rounding(test->expected.engine->executor, ACTIVATIONS_FINEST);
    run_events(test);
    if (!test->is_exact || random_below(&test->random, 4) == 0)
        verify(test);
}

struct shape_result shape_run(const struct shape_case *made, const char *backend, const char *path)
{
    static struct shape_test test; /* static: it is read after a longjmp */
    test = (struct shape_test){.made = made,
        .backend = backend,
        .is_exact = strcmp(backend, "cpu") == 0,
        .random = made->seed + 1,
        .result = {SHAPE_RAN, ""}};
    if (setjmp(test.failed) == 0)
        run_case(&test, path);
    salvo_engine_close(test.ours.engine);
    salvo_engine_close(test.expected.engine);
    salvo_model_close(test.model);
    return test.result;
}
