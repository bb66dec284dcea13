#include "mask_checks.h"

#include "cmocka_test.h"
#include "engine/session.h"
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

/* All bits beyond the vocabulary are set: no backend may read them. */
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
    return a < b ? logits[a] >= logits[b] : logits[a] > logits[b];
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

/* Every run that chooses also returns its logits, for the reference. */
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

/* ---- Choices that a run leaves to the next one ---- */

static uint64_t tokens_computed(const struct checks *checks)
{
    return checks->engine->backend->counters(checks->engine->executor).tokens;
}

static void wait_for(
    const struct checks *checks, uint64_t step, struct salvo_run_result *results, uint32_t count)
{
    ASSERT_OK(salvo_engine_wait(checks->engine, step, results, count, sizeof *results));
    for (uint32_t i = 0; i < count; i++) {
        if (results[i].status != SALVO_OK)
            fail_msg("%s", results[i].message);
    }
}

/* Starts a step in which the runs numbered from `first` on leave their choice to the next. */
static uint64_t begin_later(struct checks *checks, uint32_t first, uint32_t count)
{
    struct salvo_run runs[RUNS] = {{0}};
    uint64_t step;
    for (uint32_t i = 0; i < count; i++) {
        runs[i].session = checks->runs[first + i].run.session;
        runs[i].want = SALVO_WANT_LATER;
    }
    ASSERT_OK(salvo_engine_submit(checks->engine, runs, count, sizeof *runs, &step));
    return step;
}

/* Two of three runs leave the choice to the next step, which computes no token; one of these chooses alone,
 * from the second row of logits, and the other one's token is computed again later. */
static void check_later(struct checks *checks)
{
    struct checked_run *a = &checks->runs[0], *b = &checks->runs[1], *c = &checks->runs[2];
    struct salvo_run runs[RUNS];
    struct salvo_run_result results[RUNS];
    uint64_t step;
    for (int i = 0; i < 4; i++) {
        set_sampler(a, i % 2 ? 0.9f : 0, 1, 0);
        plan(c, NULL, 0, true, -1);
        allow_some(checks, c->mask, (uint64_t)i + 20);
        runs[0] = runs[1] = (struct salvo_run){.session = a->run.session, .want = SALVO_WANT_LATER};
        runs[1].session = b->run.session;
        runs[2] = c->run;
        ASSERT_OK(salvo_engine_submit(checks->engine, runs, 3, sizeof *runs, &step));
        plan(a, NULL, 0, true, i % 3 - 1);
        allow_some(checks, a->mask, (uint64_t)i + 30);
        plan(b, NULL, 0, i % 2, 2);
        allow_some(checks, b->mask, (uint64_t)i + 40);
        const uint32_t before = salvo_session_position(c->run.session);
        wait_for(checks, step, results, 3);
        assert_true(salvo_session_position(c->run.session) >= before);
        assert_true(results[0].id == -1 && results[0].tokens == 1 && results[2].id >= 0);
        const uint64_t computed = tokens_computed(checks);
        if (i < 3)
            submit_and_check(checks, 0, 2);
        else
            submit_and_check(checks, 1, 1);
        assert_int_equal(computed, tokens_computed(checks));
        assert_int_equal(0, b->result.tokens);
    }
    submit_and_check(checks, 0, 1); /* whose logits are gone */
    assert_int_equal(0, a->result.tokens);
}

/* The same for one session, with both steps in flight; an empty mask; a choice behind a stop id. */
static void check_later_alone(struct checks *checks)
{
    struct checked_run *run = &checks->runs[0];
    struct salvo_run_result result, later;
    uint64_t step, choice;
    for (int i = 0; i < 6; i++) {
        set_sampler(run, i % 2 ? 0.8f : 0, 1, 0);
        plan(run, NULL, 0, i != 2, i);
        allow_some(checks, run->mask, (uint64_t)i);
        run->run.logits = run->logits;
        step = begin_later(checks, 0, 1);
        ASSERT_OK(salvo_engine_submit(checks->engine, &run->run, 1, sizeof run->run, &choice));
        wait_for(checks, step, &later, 1);
        wait_for(checks, choice, &run->result, 1);
        check_run(checks, run);
    }
    step = begin_later(checks, 0, 1);
    plan(run, NULL, 0, true, -1);
    allow_only(checks, run->mask, -1);
    submit(checks, 0, 1);
    wait_for(checks, step, &later, 1);
    assert_int_equal(SALVO_ERROR_NUMERIC, run->result.status);
    assert_int_equal(later.position, run->result.position);

    const int32_t stop = 1;
    const uint32_t position = salvo_session_position(run->run.session);
    uint64_t first;
    allow_only(checks, run->mask, stop);
    run->run.logits = NULL;
    run->run.stop_ids = &stop;
    run->run.stop_id_count = 1;
    ASSERT_OK(salvo_engine_submit(checks->engine, &run->run, 1, sizeof run->run, &first));
    step = begin_later(checks, 0, 1);
    ASSERT_OK(salvo_engine_submit(checks->engine, &run->run, 1, sizeof run->run, &choice));
    wait_for(checks, first, &result, 1);
    assert_true(result.ended && result.id == stop);
    wait_for(checks, step, &later, 1);
    assert_true(later.tokens == 0 && later.id == -1);
    wait_for(checks, choice, &later, 1);
    assert_true(later.tokens == 0 && later.id == -1 && later.position == position);
    plan(run, NULL, 0, true, 1);
    allow_some(checks, run->mask, 9);
    submit_and_check(checks, 0, 1);
    assert_int_equal(position + 1, run->result.position);
}

static void check_later_arguments(struct checks *checks)
{
    struct checked_run *run = &checks->runs[0];
    const int32_t ids[2] = {0, 1};
    const struct salvo_run right = {.session = run->run.session, .want = SALVO_WANT_LATER};
    struct salvo_run wrong[6] = {right, right, right, right, right, right};
    wrong[0].mask = run->mask;
    wrong[1].stop_ids = ids, wrong[1].stop_id_count = 1;
    wrong[2].logits = run->logits;
    wrong[3].ids = ids, wrong[3].count = 2;
    wrong[4].logprobs = run->logprobs;
    wrong[5].want = SALVO_WANT_LATER + 1;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        uint64_t step;
        assert_int_equal(
            SALVO_ERROR_ARGUMENT, salvo_engine_submit(checks->engine, &wrong[i], 1, sizeof *wrong, &step));
        assert_non_null(strstr(salvo_error(), i < 5 ? "leaves the choice to the next" : "is not known"));
    }
}

/* ---- Resident masks ---- */

static void assert_mask_refused(struct checks *checks, struct salvo_run run, const char *words)
{
    uint64_t step;
    assert_int_equal(SALVO_ERROR_ARGUMENT, salvo_engine_submit(checks->engine, &run, 1, sizeof run, &step));
    assert_non_null(strstr(salvo_error(), words));
}

/* As many as there may be, each of one id; their memory changes at once. Steps in flight name different ones,
 * beside a run that brings its mask. */
static void check_resident(struct checks *checks)
{
    struct checked_run *a = &checks->runs[0], *b = &checks->runs[1];
    const uint32_t vocabulary = checks->vocabulary;
    uint32_t numbers[SALVO_RESIDENT_MASKS], none;
    uint64_t steps[2];
    for (uint32_t i = 0; i < SALVO_RESIDENT_MASKS; i++) {
        allow_only(checks, a->mask, (int32_t)(i % vocabulary));
        ASSERT_OK(salvo_engine_mask_open(checks->engine, a->mask, &numbers[i]));
        assert_int_equal(i + 1, numbers[i]);
    }
    assert_int_equal(SALVO_ERROR_MEMORY, salvo_engine_mask_open(checks->engine, a->mask, &none));
    assert_non_null(strstr(salvo_error(), "64 masks are resident"));
    assert_int_equal(0, none);
    allow_only(checks, b->mask, (int32_t)vocabulary - 1);
    for (uint32_t i = 0; i < SALVO_RESIDENT_MASKS; i += 9) {
        struct salvo_run_result results[2];
        for (uint32_t j = 0; j < 2; j++) {
            const struct salvo_run runs[2] = {
                {.session = a->run.session, .mask_number = numbers[i + j ? i + j - 1 : 63]},
                {.session = b->run.session, .mask = b->mask}};
            ASSERT_OK(salvo_engine_submit(checks->engine, runs, 1 + i % 2, sizeof *runs, &steps[j]));
        }
        for (uint32_t j = 0; j < 2; j++) {
            wait_for(checks, steps[j], results, 1 + i % 2);
            assert_int_equal((i + j ? i + j - 1 : 63) % vocabulary, results[0].id);
            if (i % 2)
                assert_int_equal(vocabulary - 1, results[1].id);
        }
    }

    const struct salvo_run run = {.session = a->run.session, .mask_number = numbers[7]};
    struct salvo_run wrong = run;
    wrong.mask = a->mask;
    assert_mask_refused(checks, wrong, "names the resident mask 8 as well");
    wrong = run;
    wrong.want = SALVO_WANT_LATER;
    assert_mask_refused(checks, wrong, "leaves the choice to the next");
    wrong = run;
    wrong.mask_number = SALVO_RESIDENT_MASKS + 1;
    assert_mask_refused(checks, wrong, "mask 65 is not resident");

    /* Closed behind a run that reads it; another one takes its number. */
    struct salvo_run_result result;
    ASSERT_OK(salvo_engine_submit(checks->engine, &run, 1, sizeof run, &steps[0]));
    ASSERT_OK(salvo_engine_mask_close(checks->engine, numbers[7]));
    assert_mask_refused(checks, run, "mask 8 is not resident");
    allow_only(checks, a->mask, -1);
    ASSERT_OK(salvo_engine_mask_open(checks->engine, a->mask, &none));
    assert_int_equal(numbers[7], none);
    wait_for(checks, steps[0], &result, 1);
    assert_int_equal(7 % vocabulary, result.id);
    ASSERT_OK(salvo_engine_submit(checks->engine, &run, 1, sizeof run, &steps[0]));
    ASSERT_OK(salvo_engine_wait(checks->engine, steps[0], &result, 1, sizeof result));
    assert_int_equal(SALVO_ERROR_NUMERIC, result.status);
    assert_non_null(strstr(result.message, "the mask allows none"));
    for (uint32_t i = 0; i < SALVO_RESIDENT_MASKS; i++)
        ASSERT_OK(salvo_engine_mask_close(checks->engine, numbers[i]));
    assert_int_equal(SALVO_ERROR_ARGUMENT, salvo_engine_mask_close(checks->engine, numbers[7]));
    assert_int_equal(SALVO_ERROR_ARGUMENT, salvo_engine_mask_close(checks->engine, 0));
    plan(a, NULL, 0, false, 1);
    submit_and_check(checks, 0, 1);
}

/* ---- Scores of tokens that are given ---- */

struct scored {
    const struct checks *checks;
    struct checked_run *run; /* of which only the session and memory are used */
    const int32_t *ids;
    float *logits; /* [count][vocabulary], from another session of equal tokens */
    uint32_t count, top_count;
};

static bool keep_logits(void *user, uint32_t position, const float *logits)
{
    const struct scored *scored = user;
    const uint32_t vocabulary = scored->checks->vocabulary;
    memcpy(scored->logits + (size_t)position * vocabulary, logits, vocabulary * sizeof *logits);
    return true;
}

static void compare_score(void *user, const struct sampling_logprob *logprobs)
{
    struct scored *scored = user;
    struct checked_run row = {.logits = scored->logits + (size_t)scored->count * scored->checks->vocabulary,
        .run.top_count = scored->top_count,
        .result.id = scored->ids[scored->count + 1]};
    scored->count++;
    assert_int_equal(row.result.id, logprobs[0].id);
    for (uint32_t i = 0; i <= scored->top_count; i++) {
        row.logprobs[i] = logprobs[i].logprob;
        if (i)
            row.top_ids[i - 1] = logprobs[i].id;
    }
    check_logprobs(scored->checks, &row);
}

/* Prompt parts of one token and of many, after earlier tokens; the logits equal those of steps with the
 * same first and last token. */
static void check_scores(struct checks *checks, const int32_t *ids, uint32_t count)
{
    static const uint32_t parts[] = {3, 1, 7}, tops[] = {2, TOP, 0};
    struct salvo_session *scoring = checks->runs[0].run.session, *other = checks->runs[1].run.session;
    struct scored scored = {
        .checks = checks, .ids = ids, .logits = calloc((size_t)count * checks->vocabulary, sizeof(float))};
    assert_non_null(scored.logits);
    ASSERT_OK(salvo_session_rollback(scoring, 0));
    ASSERT_OK(salvo_session_rollback(other, 0));
    for (uint32_t i = 0, first = 0; i < 3; first += parts[i++]) {
        scored.top_count = tops[i];
        ASSERT_OK(salvo_session_eval(other, ids + first, parts[i], keep_logits, &scored));
        ASSERT_OK(session_score(scoring, ids + first, parts[i], tops[i], compare_score, &scored));
        assert_int_equal(first + parts[i], scored.count);
        assert_int_equal(scored.count, salvo_session_position(scoring));
    }
    assert_true(scored.count < count);
    free(scored.logits);
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
    check_later_arguments(&checks);
    check_later(&checks);
    check_later_alone(&checks);
    check_resident(&checks);
    check_scores(&checks, ids, 12);
    for (int i = 0; i < RUNS; i++) {
        if (i)
            salvo_session_close(checks.runs[i].run.session);
        free(checks.runs[i].mask);
        free(checks.runs[i].logits);
    }
    free(checks.scratch);
    free(ids);
}
