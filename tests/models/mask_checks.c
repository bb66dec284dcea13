#include "mask_checks.h"

#include "cmocka_test.h"
#include "program/sampling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 3, TOP = SALVO_TOP_LOGPROBS };

struct checked_run {
    struct salvo_run run;
    struct sampler_settings settings; /* as the session has them */
    struct salvo_run_result result;
    uint32_t *mask;
    float *logits;
    float logprobs[1 + TOP];
    int32_t top_ids[TOP];
};

struct checks {
    struct salvo_engine *engine;
    uint32_t vocabulary;
    size_t words;
    struct checked_run runs[RUNS];
    struct sampling_candidate *scratch;
};

/* ---- Masks ---- */

/* All bits beyond the vocabulary are set: nobody may look at them. */
static void allow_only(const struct checks *checks, uint32_t *mask, int32_t id)
{
    memset(mask, 0, checks->words * sizeof *mask);
    for (size_t i = checks->vocabulary; i < checks->words * 32; i++)
        mask[i / 32] |= UINT32_C(1) << i % 32;
    if (id >= 0)
        mask[id / 32] |= UINT32_C(1) << id % 32;
}

static void allow_some(const struct checks *checks, uint32_t *mask, uint64_t seed)
{
    allow_only(checks, mask, (int32_t)(seed % checks->vocabulary));
    for (uint32_t id = 0; id < checks->vocabulary; id++)
        mask[id / 32] |= (uint32_t)(sampling_random(seed, id) >> 63) << id % 32;
}

/* ---- Expected results ---- */

static bool is_before(const float *logits, uint32_t a, uint32_t b)
{
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

/* In double precision, by another method than the library's. */
static void check_logprobs(const struct checks *checks, const struct checked_run *run)
{
    double sum = 0;
    for (uint32_t i = 0; i < checks->vocabulary; i++)
        sum += exp((double)run->logits[i]);
    for (uint32_t i = 0; i <= run->run.top_count; i++) {
        const int32_t id = i ? run->top_ids[i - 1] : run->result.id;
        if (i > checks->vocabulary) {
            assert_int_equal(-1, id);
            assert_true(run->logprobs[i] == -INFINITY);
            continue;
        }
        assert_in_range(id, 0, checks->vocabulary - 1);
        assert_true(fabs((double)run->logits[id] - log(sum) - (double)run->logprobs[i]) < 1e-4);
        uint32_t rank = 0;
        for (uint32_t other = 0; other < checks->vocabulary; other++)
            rank += is_before(run->logits, other, (uint32_t)id);
        assert_true(i == 0 || rank == i - 1);
    }
}

static void check_run(const struct checks *checks, struct checked_run *run)
{
    const struct salvo_run_result *result = &run->result;
    if (run->run.want == SALVO_WANT_NOTHING) {
        assert_int_equal(SALVO_OK, result->status);
        return;
    }
    if (result->status != SALVO_OK)
        fail_msg("%s", result->message);
    if (run->run.logprobs)
        check_logprobs(checks, run);
    run->settings.mask = run->run.mask;
    const int32_t expected = sampling_choose(&run->settings, run->logits, checks->vocabulary,
        salvo_session_tokens(run->run.session), (uint32_t)result->position, checks->scratch);
    assert_int_equal(expected, result->id);
}

/* ---- Steps ---- */

/* Logits come with every run that chooses, for the reference. */
static void submit(struct checks *checks, uint32_t first, uint32_t count)
{
    struct salvo_run runs[RUNS];
    struct salvo_run_result results[RUNS];
    uint64_t step;
    for (uint32_t i = 0; i < count; i++) {
        struct checked_run *run = &checks->runs[first + i];
        run->run.logits = run->run.want == SALVO_WANT_ID ? run->logits : NULL;
        runs[i] = run->run;
    }
    ASSERT_OK(salvo_engine_submit(checks->engine, runs, count, sizeof *runs, &step));
    ASSERT_OK(salvo_engine_wait(checks->engine, step, results, count, sizeof *results));
    for (uint32_t i = 0; i < count; i++)
        checks->runs[first + i].result = results[i];
}

static void submit_and_check(struct checks *checks, uint32_t first, uint32_t count)
{
    submit(checks, first, count);
    for (uint32_t i = 0; i < count; i++)
        check_run(checks, &checks->runs[first + i]);
}

/* The next run of a session: `ids` may be NULL, which decodes; `top` below 0: no log-probabilities. */
static void plan(struct checked_run *run, const int32_t *ids, size_t count, bool masked, int top)
{
    run->run = (struct salvo_run){.session = run->run.session,
        .ids = ids,
        .count = count,
        .mask = masked ? run->mask : NULL,
        .logprobs = top >= 0 ? run->logprobs : NULL,
        .top_ids = top > 0 ? run->top_ids : NULL,
        .top_count = top > 0 ? (uint32_t)top : 0};
}

static void set_sampler(struct checked_run *run, float temperature, float top_p, uint32_t top_k)
{
    struct salvo_sampler sampler = SALVO_SAMPLER_INIT;
    sampler.temperature = temperature;
    sampler.top_k = top_k;
    sampler.top_p = top_p;
    sampler.min_p = 0;
    sampler.repeat_penalty = temperature > 0 ? 1.3f : 1;
    sampler.repeat_last_n = 64;
    sampler.seed = 5;
    ASSERT_OK(salvo_session_set_sampler(run->run.session, &sampler));
    run->settings = (struct sampler_settings){.temperature = temperature,
        .top_k = top_k,
        .top_p = top_p,
        .repeat_penalty = sampler.repeat_penalty,
        .repeat_last_n = sampler.repeat_last_n,
        .seed = sampler.seed};
}

/* ---- Checks ---- */

/* A prompt with a mask of one id beside one with many and half a prompt; then an empty mask among others. */
static void check_company(struct checks *checks, const int32_t *ids)
{
    struct checked_run *a = &checks->runs[0], *b = &checks->runs[1], *c = &checks->runs[2];
    const int32_t last = (int32_t)checks->vocabulary - 1;
    plan(a, ids, 5, true, -1);
    allow_only(checks, a->mask, last);
    plan(b, ids + 1, 7, true, TOP);
    allow_some(checks, b->mask, 3);
    plan(c, ids, 6, false, -1);
    c->run.want = SALVO_WANT_NOTHING;
    submit_and_check(checks, 0, 3);
    assert_int_equal(last, a->result.id);

    plan(a, NULL, 0, true, 2);
    allow_only(checks, a->mask, -1);
    plan(b, NULL, 0, true, 3);
    allow_some(checks, b->mask, 4);
    plan(c, ids + 6, 6, false, 0);
    submit(checks, 0, 3);
    check_run(checks, b);
    check_run(checks, c);
    assert_int_equal(SALVO_ERROR_NUMERIC, a->result.status);
    assert_non_null(strstr(a->result.message, "the mask allows none"));
    assert_int_equal(5, a->result.position);

    plan(a, NULL, 0, false, 1);
    plan(b, NULL, 0, true, -1);
    plan(c, NULL, 0, true, 5);
    allow_some(checks, c->mask, 5);
    submit_and_check(checks, 0, 3);
    assert_int_equal(6, a->result.position);
}

/* One token at a time, with every kind of sampler. */
static void check_single(struct checks *checks)
{
    struct checked_run *run = &checks->runs[1];
    for (int i = 0; i < 12; i++) {
        set_sampler(run, i % 4 ? 0.8f : 0, i % 4 == 2 ? 0.7f : 1, i % 4 == 3 ? 2 : 0);
        plan(run, NULL, 0, i % 3 != 0, i % 2 ? -1 : i);
        allow_some(checks, run->mask, (uint64_t)i);
        submit_and_check(checks, 1, 1);
    }
    plan(run, NULL, 0, true, 1);
    allow_only(checks, run->mask, -1);
    submit(checks, 1, 1);
    assert_int_equal(SALVO_ERROR_NUMERIC, run->result.status);
    plan(run, NULL, 0, true, 1);
    allow_only(checks, run->mask, 1);
    submit_and_check(checks, 1, 1);
    assert_int_equal(1, run->result.id);
}

/* Steps of one session in flight at once; the caller's memory changes as soon as they are submitted. */
static void check_in_flight(struct checks *checks)
{
    struct checked_run *run = &checks->runs[0];
    uint64_t steps[2];
    plan(run, NULL, 0, true, -1);
    for (int i = 0; i < 2; i++) {
        allow_only(checks, run->mask, 2 - i);
        ASSERT_OK(salvo_engine_submit(checks->engine, &run->run, 1, sizeof run->run, &steps[i]));
    }
    allow_only(checks, run->mask, 0);
    for (int i = 0; i < 2; i++) {
        struct salvo_run_result result;
        ASSERT_OK(salvo_engine_wait(checks->engine, steps[i], &result, 1, sizeof result));
        assert_int_equal(SALVO_OK, result.status);
        assert_int_equal(2 - i, result.id);
    }
}

void check_masks(struct fixture *fixture)
{
    struct checks checks = {.engine = fixture->engine,
        .vocabulary = fixture->vocabulary,
        .words = (fixture->vocabulary + 31) / 32,
        .scratch = calloc(fixture->vocabulary, sizeof *checks.scratch)};
    int32_t *ids = some_ids(12, fixture->vocabulary, 6);
    for (int i = 0; i < RUNS; i++) {
        struct checked_run *run = &checks.runs[i];
        run->mask = calloc(checks.words, sizeof *run->mask);
        run->logits = calloc(fixture->vocabulary, sizeof *run->logits);
        assert_true(run->mask && run->logits && checks.scratch);
        run->run.session = fixture->session;
        if (i)
            ASSERT_OK(salvo_session_open(fixture->engine, &run->run.session));
        set_sampler(run, i == 2 ? 0.9f : 0, 1, 0);
    }
    check_company(&checks, ids);
    check_single(&checks);
    check_in_flight(&checks);
    for (int i = 0; i < RUNS; i++) {
        if (i)
            salvo_session_close(checks.runs[i].run.session);
        free(checks.runs[i].mask);
        free(checks.runs[i].logits);
    }
    free(checks.scratch);
    free(ids);
}
