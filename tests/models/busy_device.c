#include "busy_device.h"

#include "backend/common/state.h"
#include "cmocka_test.h"
#include "engine/engine.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RING = 4, IN_FLIGHT = 3, AHEAD = 5, MOST_SLOTS = 8, MOST_PAGES = 64, MASK_WORDS = 2048 };

struct job {
    uint64_t ticket;
    struct run runs[MOST_SLOTS];
    uint32_t pages[MOST_SLOTS][MOST_PAGES];
    uint32_t masks[MOST_SLOTS][MASK_WORDS];
    int32_t *ids; /* of a prompt */
    uint32_t run_count, token_count, repeat;
    int32_t stop_ids[MAX_STOP_IDS];
    uint32_t stop_count;
    bool samples_only;
    const volatile bool *cancel;
    enum salvo_status status;
    struct run_result results[MOST_SLOTS];
    bool done;
};

/* The executor that the engine gets; it forwards steps to `cpu` on a thread of its own. */
struct executor {
    struct executor *cpu;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct job jobs[RING];
    uint64_t submitted, finished, waited;
    bool refuses_next;
    size_t mask_words;
    uint32_t next[MOST_SLOTS];      /* position where a queued run has to begin; 0: ended */
    uint32_t live_rows[MOST_SLOTS]; /* row of logits in the CPU's step, for each row of the last job */
    unsigned most_in_flight, random;
    busy_hook hook;
    void *hook_user;
    bool closing;
};

/* ---- The device ---- */

static void pause_a_while(struct executor *device)
{
    device->random = device->random * 1664525u + 1013904223u;
    if (device->random >> 29 == 0)
        nanosleep(&(struct timespec){.tv_nsec = (device->random >> 8) % 300000}, NULL);
}

static bool is_stop_id(const struct job *job, const struct run *run, int32_t id)
{
    for (uint32_t i = 0; i < job->stop_count; i++) {
        if (run->stop_mask >> i & 1 && job->stop_ids[i] == id)
            return true;
    }
    return false;
}

/* The runs whose slots are at the expected position, with rows and ids of their own; `places` has their
 * indices in the job. */
static struct step live_step(
    struct executor *device, const struct job *job, struct run *runs, int32_t *ids, uint32_t *places)
{
    struct step step = {.runs = runs, .ids = ids, .samples_only = job->samples_only};
    uint32_t row = 0, live_row = 0;
    for (uint32_t i = 0; i < job->run_count; i++) {
        struct run run = job->runs[i];
        run.first += job->results[i].sampled;
        run.source = job->results[i].sampled ? SOURCE_LAST : run.source;
        const bool has_row = run.logits == LOGITS_LAST || (run.logits == LOGITS_ALL && run.count == 1);
        const uint32_t reached = job->samples_only ? run.first + 1 : run.first;
        if (job->samples_only)
            run.logits_row = device->live_rows[run.logits_row];
        else if (has_row)
            device->live_rows[row++] = live_row;
        if ((run.source == SOURCE_LAST && device->next[run.slot] != reached) || job->results[i].failed ||
            job->results[i].ended || (job->repeat > 1 && run.limit && run.first >= run.limit))
            continue;
        live_row += has_row;
        memcpy(ids + step.token_count, job->ids + run.first_row, run.count * sizeof *ids);
        run.first_row = step.token_count;
        step.token_count += run.count;
        places[step.run_count] = i;
        runs[step.run_count++] = run;
    }
    return step;
}

static void note_result(struct executor *device, struct job *job, uint32_t place, const struct run *run,
    const struct run_result *result)
{
    const int32_t *tokens = cpu_backend.tokens(device->cpu, run->slot);
    job->results[place].sampled += result->sampled;
    job->results[place].failed = result->failed;
    job->results[place].failed_position = result->failed_position;
    device->next[run->slot] = job->status != SALVO_OK || result->failed ? 0 : run->first + run->count;
    if (result->sampled && is_stop_id(job, run, tokens[run->first + run->count])) {
        job->results[place].ended = true;
        device->next[run->slot] = 0;
    }
}

/* One repetition; whether another may follow. */
static bool do_token(struct executor *device, struct job *job, enum busy_fate fate)
{
    struct run runs[MOST_SLOTS];
    struct run_result results[MOST_SLOTS] = {{0}};
    uint32_t places[MOST_SLOTS] = {0};
    int32_t ids[512];
    uint64_t ticket;
    assert_true(job->token_count <= sizeof ids / sizeof *ids);
    const struct step step = live_step(device, job, runs, ids, places);
    if (step.run_count == 0)
        return false;
    enum salvo_status status = SALVO_OK;
    if (fate != BUSY_LOST_BEFORE)
        status = cpu_backend.submit(device->cpu, &step, &ticket);
    if (fate != BUSY_LOST_BEFORE && status == SALVO_OK)
        status = cpu_backend.wait(device->cpu, ticket, results);
    if (fate != BUSY_GOES_ON) {
        status = SALVO_ERROR_DEVICE;
        memset(results, 0, sizeof results);
    }
    bool goes_on = false;
    pthread_mutex_lock(&device->mutex);
    job->status = status;
    for (uint32_t i = 0; i < step.run_count; i++) {
        note_result(device, job, places[i], &runs[i], &results[i]);
        goes_on |= device->next[runs[i].slot] != 0;
    }
    pthread_cond_broadcast(&device->changed);
    pthread_mutex_unlock(&device->mutex);
    return goes_on;
}

static void do_job(struct executor *device, struct job *job)
{
    for (uint32_t i = 0; i < job->repeat; i++) {
        pause_a_while(device);
        enum busy_fate fate = BUSY_GOES_ON;
        if (device->hook)
            fate = device->hook(device->hook_user, job->runs[0].first + job->results[0].sampled);
        if (job->cancel && __atomic_load_n(job->cancel, __ATOMIC_RELAXED)) {
            device->next[job->runs[0].slot] = 0;
            job->status = i ? SALVO_OK : fail(SALVO_ERROR_CANCELLED, "cancelled");
            return;
        }
        if (!do_token(device, job, fate))
            return;
    }
}

static void *work(void *user)
{
    struct executor *device = user;
    pthread_mutex_lock(&device->mutex);
    for (;;) {
        while (device->finished == device->submitted && !device->closing)
            pthread_cond_wait(&device->changed, &device->mutex);
        if (device->finished == device->submitted)
            break;
        struct job *job = &device->jobs[device->finished % RING];
        pthread_mutex_unlock(&device->mutex);
        do_job(device, job);
        pthread_mutex_lock(&device->mutex);
        job->done = true;
        device->finished++;
        pthread_cond_broadcast(&device->changed);
    }
    pthread_mutex_unlock(&device->mutex);
    return NULL;
}

/* ---- What the engine calls ---- */

static struct backend_info info(const struct executor *device)
{
    struct backend_info result = cpu_backend.info(device->cpu);
    result.in_flight = IN_FLIGHT;
    result.ahead = AHEAD;
    return result;
}

static enum salvo_status submit(struct executor *device, const struct step *step, uint64_t *out_ticket)
{
    assert_true(step->run_count == 1 || !step->cancel);
    pthread_mutex_lock(&device->mutex);
    assert_true(device->submitted - device->waited < IN_FLIGHT);
    if (device->refuses_next) {
        device->refuses_next = false;
        pthread_mutex_unlock(&device->mutex);
        return fail(SALVO_ERROR_DEVICE, "the device takes no step");
    }
    struct job *job = &device->jobs[device->submitted % RING];
    free(job->ids);
    *job = (struct job){
        .ticket = ++device->submitted,
        .run_count = step->run_count,
        .token_count = step->token_count,
        .repeat = step->repeat ? step->repeat : 1,
        .stop_count = step->stop_count,
        .samples_only = step->samples_only,
        .cancel = step->cancel,
    };
    /* Copied, as a device does: the caller may change them. */
    for (uint32_t i = 0; i < step->run_count; i++) {
        const struct run *run = &step->runs[i];
        const uint32_t page_count = (run->first + run->count + job->repeat - 2) / PAGE_POSITIONS + 1;
        assert_true(page_count <= MOST_PAGES);
        memcpy(job->pages[i], run->pages, sizeof(uint32_t) * page_count);
        job->runs[i] = *run;
        job->runs[i].pages = job->pages[i];
        if (run->sampler.mask) {
            memcpy(job->masks[i], run->sampler.mask, sizeof(uint32_t) * device->mask_words);
            job->runs[i].sampler.mask = job->masks[i];
        }
    }
    if (step->stop_count)
        memcpy(job->stop_ids, step->stop_ids, step->stop_count * sizeof *step->stop_ids);
    job->ids = malloc(step->token_count * sizeof *job->ids);
    assert_non_null(job->ids);
    memcpy(job->ids, step->ids, step->token_count * sizeof *job->ids);
    const unsigned in_flight = (unsigned)(device->submitted - device->finished);
    device->most_in_flight = in_flight > device->most_in_flight ? in_flight : device->most_in_flight;
    *out_ticket = job->ticket;
    pthread_cond_broadcast(&device->changed);
    pthread_mutex_unlock(&device->mutex);
    return SALVO_OK;
}

static struct job *job_of(struct executor *device, uint64_t ticket)
{
    struct job *job = &device->jobs[(ticket - 1) % RING];
    assert_true(job->ticket == ticket);
    return job;
}

static enum salvo_status wait_for(struct executor *device, uint64_t ticket, struct run_result *results)
{
    pthread_mutex_lock(&device->mutex);
    const struct job *job = job_of(device, ticket);
    while (!job->done)
        pthread_cond_wait(&device->changed, &device->mutex);
    memcpy(results, job->results, job->run_count * sizeof *results);
    device->waited++;
    enum salvo_status status = job->status;
    pthread_mutex_unlock(&device->mutex);
    return status == SALVO_OK ? SALVO_OK : fail(status, "the device has failed or was cancelled");
}

static enum salvo_status progress(
    struct executor *device, uint64_t ticket, uint32_t seen, uint32_t *out_sampled, bool *out_done)
{
    pthread_mutex_lock(&device->mutex);
    const struct job *job = job_of(device, ticket);
    while (!job->done && job->results[0].sampled <= seen)
        pthread_cond_wait(&device->changed, &device->mutex);
    *out_sampled = job->results[0].sampled;
    *out_done = job->done;
    pthread_mutex_unlock(&device->mutex);
    return SALVO_OK;
}

static struct executor *idle_cpu(const struct executor *device)
{
    assert_true(device->finished == device->submitted);
    return device->cpu;
}

/* The row of the CPU's last step for one of the last job. */
static uint32_t cpu_row(const struct executor *device, uint32_t row)
{
    const struct job *last = &device->jobs[(device->submitted - 1) % RING];
    const bool is_mapped = last->runs[0].logits != LOGITS_ALL || last->runs[0].count == 1;
    return is_mapped ? device->live_rows[row] : row;
}

static const float *logits(struct executor *device, uint32_t row)
{
    return cpu_backend.logits(idle_cpu(device), cpu_row(device, row));
}

static const struct sampling_logprob *logprobs(struct executor *device, uint32_t row)
{
    return cpu_backend.logprobs(idle_cpu(device), cpu_row(device, row));
}

/* The hidden rows of a step whose runs all have ids from the host. */
static enum salvo_status hidden(struct executor *device, uint32_t row, uint32_t count, float *out)
{
    return cpu_backend.hidden(idle_cpu(device), row, count, out);
}

static const int32_t *tokens(struct executor *device, uint32_t slot)
{
    return cpu_backend.tokens(device->cpu, slot);
}

static enum salvo_status begin(struct executor *device)
{
    (void)idle_cpu(device);
    return SALVO_OK;
}

static enum salvo_status move_page(
    struct executor *device, buffer_id buffer, uint32_t page, uint32_t count, uint8_t *saved, bool restores)
{
    return cpu_backend.state->move_page(device->cpu, buffer, page, count, saved, restores);
}

static enum salvo_status move_recurrent(
    struct executor *device, uint32_t number, uint32_t positions, uint8_t *saved, bool restores)
{
    return cpu_backend.state->move_recurrent(device->cpu, number, positions, saved, restores);
}

static enum salvo_status copy_page(struct executor *device, buffer_id buffer, uint32_t to, uint32_t from)
{
    return cpu_backend.state->copy_page(device->cpu, buffer, to, from);
}

static enum salvo_status copy_recurrent(struct executor *device, uint32_t to, uint32_t from)
{
    return cpu_backend.state->copy_recurrent(device->cpu, to, from);
}

static enum salvo_status write_tokens(
    struct executor *device, uint32_t slot, const int32_t *ids, uint32_t count)
{
    return cpu_backend.state->write_tokens(device->cpu, slot, ids, count);
}

static const struct backend_state busy_state = {.begin = begin,
    .move_page = move_page,
    .move_recurrent = move_recurrent,
    .copy_page = copy_page,
    .copy_recurrent = copy_recurrent,
    .write_tokens = write_tokens};

static struct backend_counters counters(const struct executor *device)
{
    struct backend_counters result = cpu_backend.counters(idle_cpu(device));
    result.submissions = device->submitted;
    return result;
}

static void close_device(struct executor *device)
{
    pthread_mutex_lock(&device->mutex);
    device->closing = true;
    pthread_cond_broadcast(&device->changed);
    pthread_mutex_unlock(&device->mutex);
    pthread_join(device->thread, NULL);
    cpu_backend.close(device->cpu);
    for (size_t i = 0; i < RING; i++)
        free(device->jobs[i].ids);
    pthread_mutex_destroy(&device->mutex);
    pthread_cond_destroy(&device->changed);
    free(device);
}

static const struct backend busy_backend = {
    .name = "busy",
    .info = info,
    .close = close_device,
    .submit = submit,
    .wait = wait_for,
    .progress = progress,
    .logits = logits,
    .logprobs = logprobs,
    .hidden = hidden,
    .tokens = tokens,
    .state = &busy_state,
    .counters = counters,
};

void busy_device_install(struct salvo_engine *engine)
{
    struct executor *device = calloc(1, sizeof *device);
    assert_non_null(device);
    assert_true(engine->options.slots <= MOST_SLOTS);
    device->cpu = engine->executor;
    device->random = 1;
    device->mask_words = (engine->program->vocabulary + 31) / 32;
    assert_true(device->mask_words <= MASK_WORDS);
    pthread_mutex_init(&device->mutex, NULL);
    pthread_cond_init(&device->changed, NULL);
    assert_int_equal(0, pthread_create(&device->thread, NULL, work, device));
    engine->backend = &busy_backend;
    engine->executor = device;
}

void busy_device_set_hook(struct salvo_engine *engine, busy_hook hook, void *user)
{
    struct executor *device = engine->executor;
    pthread_mutex_lock(&device->mutex);
    assert_true(device->finished == device->submitted);
    device->hook = hook;
    device->hook_user = user;
    pthread_mutex_unlock(&device->mutex);
}

void busy_device_refuse_next(struct salvo_engine *engine)
{
    struct executor *device = engine->executor;
    device->refuses_next = true;
}

unsigned busy_device_most_in_flight(struct salvo_engine *engine)
{
    struct executor *device = engine->executor;
    const unsigned most = device->most_in_flight;
    device->most_in_flight = 0;
    return most;
}
