#include "batch_schedule.h"

#include "cmocka_test.h"
#include "test_random.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_REQUESTS = 16, MOST_ACTORS = 8, MOST_TOKENS = 6 };

/* A request, and the ids and logits that it gets when it runs alone. */
struct request {
    int32_t *prompt, *ids; /* ids: after the prompt, [id_count] */
    float *logits;         /* that each id was chosen from, [id_count][vocabulary] */
    uint32_t prompt_count, id_count;
    int32_t stop_id; /* the last of `ids` */
    uint64_t seed;
};

/* A session with the request that it works on. */
struct actor {
    struct salvo_session *session; /* NULL: none */
    const struct request *request;
    uint32_t planned; /* tokens of the prompt that were submitted */
    uint32_t got;     /* ids that came */
    uint32_t open;    /* runs */
    bool ended, cancelled;
};

struct open_step {
    uint64_t step; /* 0: free */
    uint32_t count;
    struct {
        struct actor *actor;
        uint64_t handle;
        float *logits;
        bool wants_id, decodes;
        int32_t ids[MOST_TOKENS];
        uint32_t tokens; /* to decode, 0: one */
    } runs[MOST_ACTORS];
};

struct world {
    struct salvo_engine *engine;
    const struct schedule *schedule;
    struct schedule_report *report;
    uint64_t random;
    uint32_t vocabulary;
    struct request requests[MOST_REQUESTS];
    uint32_t next_request, finished;
    struct actor actors[MOST_ACTORS];
    uint32_t actor_count;
    struct open_step steps[SALVO_OPEN_STEPS];
};

static uint32_t pick(struct world *world, uint32_t below)
{
    return test_random(&world->random, below);
}

/* Random samplers choose equal ids only where logits have equal bits. */
static void set_sampler(
    const struct world *world, struct salvo_session *session, const struct request *request)
{
    struct salvo_sampler sampler = SALVO_SAMPLER_INIT;
    sampler.temperature = world->schedule->compare_logits ? 0.9f : 0;
    sampler.repeat_penalty = 1.1f;
    sampler.repeat_last_n = world->schedule->compare_logits ? 8 : 0;
    sampler.seed = request->seed;
    ASSERT_OK(salvo_session_set_sampler(session, &sampler));
}

/* ---- Alone ---- */

static void run_alone(struct world *world, const struct fixture *alone, struct request *request)
{
    request->prompt_count = 1 + pick(world, world->schedule->most_prompt);
    request->id_count = 1 + pick(world, world->schedule->most_tokens);
    request->seed = pick(world, 1000);
    request->prompt = some_ids(request->prompt_count, world->vocabulary, pick(world, 1000));
    struct salvo_session *session = alone->session;
    ASSERT_OK(salvo_session_rollback(session, 0));
    set_sampler(world, session, request);
    request->ids = continuation(session, request->prompt, request->prompt_count, request->id_count);
    request->stop_id = request->ids[request->id_count - 1];
    for (uint32_t i = 0; i < request->id_count; i++) { /* the first time that it is chosen ends the request */
        if (request->ids[i] == request->stop_id)
            request->id_count = i + 1;
    }
    if (!world->schedule->compare_logits)
        return;
    const uint32_t count = request->prompt_count + request->id_count - 1;
    int32_t *all = malloc(count * sizeof *all);
    assert_non_null(all);
    memcpy(all, request->prompt, request->prompt_count * sizeof *all);
    memcpy(all + request->prompt_count, request->ids, (request->id_count - 1) * sizeof *all);
    ASSERT_OK(salvo_session_rollback(session, 0));
    float *rows = logits_at_once(alone, all, count);
    const size_t bytes = (size_t)request->id_count * world->vocabulary * sizeof *rows;
    request->logits = malloc(bytes);
    assert_non_null(request->logits);
    memcpy(request->logits, rows + (size_t)(request->prompt_count - 1) * world->vocabulary, bytes);
    free(rows);
    free(all);
}

/* ---- Submitting ---- */

/* After a cancel: the session tells how far it came. */
static void resume(struct actor *actor)
{
    const uint32_t position = salvo_session_position(actor->session);
    actor->planned = position < actor->request->prompt_count ? position : actor->request->prompt_count;
    actor->cancelled = false;
    if (position >= actor->request->prompt_count)
        assert_int_equal(actor->request->prompt_count + actor->got - 1, position);
}

static void begin_request(struct world *world, struct actor *actor)
{
    *actor = (struct actor){.request = &world->requests[world->next_request++]};
    ASSERT_OK(salvo_session_open(world->engine, &actor->session));
    set_sampler(world, actor->session, actor->request);
}

/* Adds a run of the actor to the step, if it has something to do; returns its tokens. */
static uint32_t add_run(
    struct world *world, struct actor *actor, uint32_t room, struct open_step *step, struct salvo_run *run)
{
    if (!actor->session && world->next_request < world->schedule->requests)
        begin_request(world, actor);
    if (!actor->session || actor->ended || (actor->cancelled && actor->open))
        return 0;
    if (actor->cancelled)
        resume(actor);
    const struct request *request = actor->request;
    const uint32_t left = request->prompt_count - actor->planned;
    uint32_t tokens = 1;
    *run = (struct salvo_run){.session = actor->session,
        .stop_ids = &request->stop_id,
        .stop_id_count = 1,
        .handle = __atomic_add_fetch(&world->report->last_handle, 1, __ATOMIC_RELAXED)};
    if (left) {
        tokens = 1 + pick(world, left < room ? left : room);
        run->ids = request->prompt + actor->planned;
        run->count = tokens;
        run->want = tokens == left ? SALVO_WANT_ID : SALVO_WANT_NOTHING;
        run->stop_id_count = tokens == left;
        actor->planned += tokens;
    }
    const bool wants_id = run->want == SALVO_WANT_ID;
    if (wants_id && world->schedule->compare_logits && pick(world, 2))
        run->logits = calloc(world->vocabulary, sizeof *run->logits);
    actor->open++;
    step->runs[step->count].actor = actor;
    step->runs[step->count].handle = run->handle;
    step->runs[step->count].logits = run->logits;
    step->runs[step->count].wants_id = wants_id;
    step->runs[step->count].decodes = left == 0;
    step->count++;
    return tokens;
}

/* Some steps whose runs all decode have runs of several tokens. */
static void add_tokens(struct world *world, struct open_step *step, struct salvo_run *runs)
{
    bool repeats = pick(world, 2);
    for (uint32_t i = 0; i < step->count; i++) {
        repeats &= step->runs[i].decodes;
        step->runs[i].tokens = 0;
    }
    for (uint32_t i = 0; repeats && i < step->count; i++) {
        runs[i].tokens = step->runs[i].tokens = pick(world, 1 + MOST_TOKENS);
        runs[i].chosen_ids = step->runs[i].ids;
        free(runs[i].logits);
        runs[i].logits = step->runs[i].logits = NULL;
        world->report->longer_runs += runs[i].tokens > 1;
    }
}

static bool submit(struct world *world, struct open_step *step)
{
    struct salvo_run runs[MOST_ACTORS];
    uint32_t room = world->schedule->batch, open = 0, decodes = 0;
    const uint32_t start = pick(world, world->actor_count);
    step->count = 0;
    for (uint32_t i = 0; i < world->actor_count && room; i++) {
        if (pick(world, 4))
            room -= add_run(
                world, &world->actors[(start + i) % world->actor_count], room, step, &runs[step->count]);
    }
    if (step->count == 0)
        return false;
    add_tokens(world, step, runs);
    ASSERT_OK(salvo_engine_submit(world->engine, runs, step->count, sizeof *runs, &step->step));
    for (uint32_t i = 0; i < step->count; i++)
        decodes += step->runs[i].decodes;
    for (size_t i = 0; i < SALVO_OPEN_STEPS; i++)
        open += world->steps[i].step != 0;
    world->report->steps++;
    world->report->mixed_steps += decodes && decodes < step->count;
    world->report->most_open = open > world->report->most_open ? open : world->report->most_open;
    return true;
}

/* ---- Results ---- */

/* `expected`: the ids that the request has not got yet. */
static void check_ids(const struct open_step *step, uint32_t index, const struct salvo_run_result *result,
    const int32_t *expected, uint32_t left)
{
    const uint32_t tokens = step->runs[index].tokens, most = tokens ? tokens : 1;
    assert_int_equal(most < left ? most : left, result->id_count);
    assert_int_equal(expected[result->id_count - 1], result->id);
    if (tokens)
        assert_memory_equal(expected, step->runs[index].ids, result->id_count * sizeof *expected);
}

static void take_result(
    struct world *world, struct open_step *step, uint32_t index, const struct salvo_run_result *result)
{
    struct actor *actor = step->runs[index].actor;
    const struct request *request = actor->request;
    float *logits = step->runs[index].logits;
    actor->open--;
    if (actor->cancelled || result->status == SALVO_ERROR_CANCELLED) {
        assert_int_equal(SALVO_ERROR_CANCELLED, result->status);
        assert_true(strstr(result->message, "cancelled") != NULL);
        assert_int_equal(-1, result->id);
        world->report->cancelled++;
        actor->cancelled = true;
    } else if (result->status != SALVO_OK) {
        fail_msg("a run gives %u: %s", result->status, result->message);
    } else if (actor->ended) {
        assert_int_equal(-1, result->id);
        assert_int_equal(0, result->id_count);
        assert_int_equal(0, result->tokens);
        assert_int_equal(request->prompt_count + request->id_count - 1, result->position);
        world->report->idle_runs++;
    } else if (step->runs[index].wants_id) {
        check_ids(step, index, result, request->ids + actor->got, request->id_count - actor->got);
        if (logits)
            assert_memory_equal(request->logits + (size_t)actor->got * world->vocabulary, logits,
                world->vocabulary * sizeof *logits);
        actor->got += result->id_count;
        assert_int_equal(request->prompt_count + actor->got - 1, result->position);
        actor->ended = actor->got == request->id_count;
        assert_int_equal(actor->ended, result->ended);
    } else {
        assert_int_equal(-1, result->id);
        assert_int_equal(0, result->ended);
    }
    free(logits);
    if (!actor->ended || actor->open)
        return;
    assert_memory_equal(
        request->prompt, salvo_session_tokens(actor->session), request->prompt_count * sizeof(int32_t));
    assert_memory_equal(request->ids, salvo_session_tokens(actor->session) + request->prompt_count,
        (request->id_count - 1) * sizeof(int32_t));
    salvo_session_close(actor->session);
    actor->session = NULL;
    world->finished++;
}

static void collect(struct world *world, struct open_step *step)
{
    struct salvo_run_result results[MOST_ACTORS];
    ASSERT_OK(salvo_engine_wait(world->engine, step->step, results, step->count, sizeof *results));
    step->step = 0;
    for (uint32_t i = 0; i < step->count; i++)
        take_result(world, step, i, &results[i]);
}

/* ---- Events ---- */

/* Results of one session are looked at in order: runs behind a cancelled one are recognised by it. */
static struct open_step *oldest_step(struct world *world)
{
    struct open_step *oldest = NULL;
    for (size_t i = 0; i < SALVO_OPEN_STEPS; i++) {
        if (world->steps[i].step && (!oldest || world->steps[i].step < oldest->step))
            oldest = &world->steps[i];
    }
    return oldest;
}

static void happen(struct world *world)
{
    struct open_step *free_step = NULL, *oldest = oldest_step(world);
    for (size_t i = 0; i < SALVO_OPEN_STEPS; i++) {
        if (!world->steps[i].step)
            free_step = &world->steps[i];
    }
    if (free_step && (!oldest || pick(world, 5) < 3) && submit(world, free_step))
        return;
    if (!oldest)
        return;
    if (world->schedule->cancel && pick(world, 6) == 0)
        salvo_engine_cancel(world->engine, oldest->runs[pick(world, oldest->count)].handle);
    if (pick(world, 8) == 0) /* a call that completes all steps */
        ASSERT_OK(salvo_session_mark(oldest->runs[0].actor->session));
    collect(world, oldest);
}

void run_schedule(const char *path, struct salvo_engine *engine, const struct schedule *schedule,
    struct schedule_report *report)
{
    struct world world = {.engine = engine, .schedule = schedule, .report = report, .random = schedule->seed};
    struct fixture alone = fixture_open(path,
        (struct salvo_engine_options){
            .size = sizeof(struct salvo_engine_options), .backend = "cpu", .threads = 1, .context = 512});
    assert_true(schedule->requests <= MOST_REQUESTS);
    world.vocabulary = alone.vocabulary;
    world.actor_count = salvo_engine_info(engine)->sessions;
    assert_true(world.actor_count <= MOST_ACTORS);
    for (uint32_t i = 0; i < schedule->requests; i++)
        run_alone(&world, &alone, &world.requests[i]);
    while (world.finished < schedule->requests)
        happen(&world);
    for (struct open_step *step; (step = oldest_step(&world));)
        collect(&world, step);
    for (uint32_t i = 0; i < schedule->requests; i++) {
        free(world.requests[i].prompt);
        free(world.requests[i].ids);
        free(world.requests[i].logits);
    }
    fixture_close(&alone);
}

struct schedule_report run_mixtures(const char *path, struct fixture *fixture, uint64_t seeds)
{
    struct schedule_report report = {0};
    salvo_session_close(fixture->session);
    fixture->session = NULL;
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        const struct schedule schedule = {
            .seed = seed, .requests = 6, .most_prompt = 30, .most_tokens = 8, .batch = 16, .cancel = true};
        run_schedule(path, fixture->engine, &schedule, &report);
    }
    return report;
}
