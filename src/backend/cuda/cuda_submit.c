/*
 * Steps in flight: written into a ring that the device reads, launched, and waited for by polling a word that
 * the device writes last. Nothing here waits unless the ring is full or results are asked for.
 */
#include "backend/common/checks.h"
#include "backend/common/steps.h"
#include "backend/cuda/cuda_executor.h"
#include "backend/cuda/sample_plan.h"
#include "base/clock.h"
#include "base/wait_word.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    SPIN_NS = 4000000,     /* polled without a pause: longer than a token or a short prompt takes */
    SLEEP_NS = 50000,      /* then with pauses of this */
    QUERY_NS = 2000000,    /* interval at which the driver is asked for errors */
    ABORT_NS = 2000000000, /* after the abort word was set */
    MOST_REPEATS = 32768,  /* of an entry: as many ids as a result can count */
    FIRST_CHUNK = 512,     /* of a prompt, until the device's speed is known */
    FIRST_CHUNK_OF_DISPLAY = 64,
    CANCELLED = 2, /* in a result */
};

static_assert((int)CUDA_TOP_LOGPROBS == (int)MAX_TOP_LOGPROBS, "one size on both sides");

static const uint64_t timeout_ns = UINT64_C(30000000000); /* without progress of the device */

static uint32_t load_acquire(const volatile uint32_t *word)
{
    uint32_t value = *word;
    atomic_thread_fence(memory_order_acquire);
    return value;
}

enum salvo_status cuda_step_check(const struct executor *executor, const struct step *step)
{
    return backend_check_step(&executor->options, executor->state.pages, executor->program->vocabulary, step);
}

/* ---- Writing ---- */

/* The mask of a run: resident, or the slot's. */
static cuda_address mask_of(const struct executor *executor, const struct run *run)
{
    const struct sampler_settings *settings = &run->sampler;
    const uint64_t bytes = step_mask_words(executor->program->vocabulary) * sizeof *settings->mask;
    if (settings->mask_number)
        return executor->resident_masks + (settings->mask_number - 1) * bytes;
    return settings->mask ? executor->mask_address + run->slot * bytes : 0;
}

/* `row`: the run's first row of logits. */
static struct cuda_sampler sampler_of(
    const struct executor *executor, const struct run *run, uint32_t row, cuda_address bias)
{
    const struct sampler_settings *settings = &run->sampler;
    const uint64_t row_bytes = (1 + MAX_TOP_LOGPROBS) * sizeof *executor->logprobs;
    return (struct cuda_sampler){
        .temperature = settings->temperature,
        .inverse_temperature = settings->temperature > 0 ? 1.0F / settings->temperature : 0,
        .top_p = settings->top_p,
        .min_p = settings->min_p,
        .repeat = settings->repeat_penalty,
        .inverse_repeat = 1.0F / settings->repeat_penalty,
        .presence = settings->presence_penalty,
        .frequency = settings->frequency_penalty,
        .top_k = settings->top_k,
        .last_n = settings->repeat_last_n,
        .seed = settings->seed,
        .bias = settings->bias ? bias : 0,
        .mask = mask_of(executor, run),
        .logprobs = run->has_logprobs ? executor->logprob_address + row * row_bytes : 0,
        .top_count = run->top_count,
        .row = row,
    };
}

/* A slot's mask changes only when no entry reads it any more. A caller that computes masks from earlier ids
 * has already waited for these ids. */
static enum salvo_status place_masks(struct executor *executor, const struct step *step)
{
    enum salvo_status status = SALVO_OK;
    const size_t words = step_mask_words(executor->program->vocabulary);
    for (uint32_t i = 0; i < step->run_count; i++) {
        const struct run *run = &step->runs[i];
        if (!sampler_brings_mask(&run->sampler))
            continue;
        TRY(cuda_entries_finish(executor, executor->masked_by[run->slot]));
        memcpy(executor->masks + run->slot * words, run->sampler.mask, words * sizeof *run->sampler.mask);
    }
cleanup:
    return status;
}

static void note_masks(struct executor *executor, const struct step *step)
{
    for (uint32_t i = 0; i < step->run_count; i++) {
        if (sampler_brings_mask(&step->runs[i].sampler))
            executor->masked_by[step->runs[i].slot] = executor->entries;
    }
}

enum salvo_status cuda_set_mask(struct executor *executor, uint32_t number, const uint32_t *mask)
{
    enum salvo_status status = SALVO_OK;
    const size_t bytes = step_mask_words(executor->program->vocabulary) * sizeof *mask;
    TRY(cuda_context_enter(&executor->context));
    status = cuda_copy_in(executor, executor->resident_masks + (number - 1) * (uint64_t)bytes, mask, bytes);
    if (status == SALVO_OK)
        status = cuda_queue_wait(executor); /* the caller may change it at once */
    cuda_context_leave(&executor->context);
cleanup:
    return status;
}

/* A slot's bias goes to the device when it has changed. */
static enum salvo_status upload_bias(struct executor *executor, const struct run *run, cuda_address *out)
{
    enum salvo_status status = SALVO_OK;
    const size_t bytes = executor->program->vocabulary * sizeof(float);
    *out = executor->bias + run->slot * (uint64_t)bytes;
    if (run->sampler.bias && executor->bias_versions[run->slot] != run->sampler.bias_version) {
        TRY(cuda_copy_in(executor, *out, run->sampler.bias, bytes));
        TRY(cuda_queue_wait(executor)); /* the caller may change it again at once */
        executor->bias_versions[run->slot] = run->sampler.bias_version;
    }
cleanup:
    return status;
}

/* The first position of a run in the entry of token number `skip`. A run that has reached its limit before
 * stays at its last position, which is not the next one of its slot, so it does nothing. */
static uint32_t first_after(const struct executor *executor, const struct run *run, uint32_t skip)
{
    const uint32_t context = executor->options.context,
                   end = run->limit && run->limit < context ? run->limit : context;
    return skip == 0 || run->first + skip < end ? run->first + skip : end - 1;
}

static void write_rows(
    const struct executor *executor, const struct step *step, uint8_t *entry, uint32_t skip)
{
    const struct cuda_machine *machine = &executor->machine;
    struct cuda_row *rows = (struct cuda_row *)(void *)(entry + machine->rows_at);
    for (uint32_t i = 0; i < step->run_count; i++) {
        const struct run *run = &step->runs[i];
        for (uint32_t j = 0; j < run->count; j++) {
            const uint32_t row = run->first_row + j;
            rows[row] = (struct cuda_row){
                .run = i, .slot = run->slot, .position = first_after(executor, run, skip) + j};
        }
    }
    ((struct cuda_step *)(void *)entry)->output_count =
        step_output_rows(step->runs, step->run_count, (uint32_t *)(void *)(entry + machine->outputs_at));
}

/* The decode kernel does not read masks: the entry of a single run lists only its own stop ids. */
static void write_stop_ids(const struct step *step, struct cuda_step *head)
{
    for (uint32_t i = 0; i < step->stop_count && i < CUDA_MAX_STOPS; i++) {
        if (step->run_count > 1 || step->runs[0].stop_mask >> i & 1)
            head->stop_ids[head->stop_count++] = step->stop_ids[i];
    }
}

/* The single-token kernel keeps tagged words between its phases, not floats, so the other plans compute
 * hidden rows. It computes log-probabilities only when it samples an id. */
static const struct cuda_plan *plan_of(const struct executor *executor, const struct step *step)
{
    if (step->samples_only)
        return executor->last_plan;
    const uint32_t least = step->keeps_hidden || run_is_scored(&step->runs[0]) ? 2 : 1;
    return cuda_plan_for(executor, step->token_count < least ? least : step->token_count);
}

/* The next entry of the ring: token number `skip` of a step that repeats, and how many more are left to the
 * device. */
static enum salvo_status write_entry(
    struct executor *executor, const struct step *step, uint32_t skip, uint32_t repeat)
{
    enum salvo_status status = SALVO_OK;
    const struct cuda_machine *machine = &executor->machine;
    const size_t index = executor->entries % CUDA_STEP_RING_ENTRIES;
    uint8_t *entry = executor->step_ring + index * machine->step_bytes;
    struct cuda_step *head = (struct cuda_step *)(void *)entry;
    struct cuda_run *runs = (struct cuda_run *)(void *)(entry + machine->runs_at);
    uint32_t outputs = 0;
    *head = (struct cuda_step){.run_count = step->run_count,
        .token_count = step->token_count,
        .repeat = repeat,
        .plan = plan_of(executor, step)->plan.capacity[ROWS_TOKENS],
        .sequence = (uint32_t)executor->entries,
        .samples_only = step->samples_only};
    write_stop_ids(step, head);
    for (uint32_t i = 0; i < step->run_count; i++) {
        struct run run = step->runs[i];
        cuda_address bias;
        TRY(upload_bias(executor, &run, &bias));
        run.first = first_after(executor, &run, skip);
        runs[i] = (struct cuda_run){
            .slot = run.slot,
            .first = run.first,
            .count = run.count,
            .first_row = run.first_row,
            .source = skip ? SOURCE_LAST : run.source,
            .logits = run.logits,
            .limit = run.limit,
            .stop_mask = step->run_count > 1 ? run.stop_mask : UINT32_MAX,
            .output = outputs,
            .next_id = run.next_id,
            .sampler = sampler_of(executor, &run, step_logits_row(step, &run, outputs), bias),
        };
        outputs += run_output_count(&run);
        if (executor->state.pages_per_slot) {
            memcpy(entry + machine->pages_at + (size_t)i * executor->state.pages_per_slot * sizeof(uint32_t),
                run.pages, run_page_count(&executor->options, &run, repeat) * sizeof(uint32_t));
        }
        if (run.source == SOURCE_IDS && !skip)
            memcpy(executor->host_tokens + slot_tokens_at(&executor->options, run.slot) + run.first,
                step->ids + run.first_row, run.count * sizeof *step->ids);
    }
    if (step->ids)
        memcpy(entry + machine->ids_at, step->ids, step->token_count * sizeof *step->ids);
    write_rows(executor, step, entry, skip);
    executor->progress[index] = 0;
    memset(
        executor->results + index * executor->options.slots, 0, step->run_count * sizeof *executor->results);
    atomic_thread_fence(memory_order_seq_cst);
cleanup:
    return status;
}

enum salvo_status cuda_step_write(struct executor *executor, const struct step *step)
{
    enum salvo_status status = place_masks(executor, step);
    return status == SALVO_OK ? write_entry(executor, step, 0, 1) : status;
}

/* ---- Waiting ---- */

static struct cuda_ticket *ticket_of(struct executor *executor, uint64_t ticket)
{
    return &executor->tickets[ticket % CUDA_STEP_RING_ENTRIES];
}

static struct run_result *results_of(struct executor *executor, uint64_t ticket)
{
    return executor->run_results + ticket % CUDA_STEP_RING_ENTRIES * executor->options.slots;
}

static const uint64_t nanoseconds_per_tick = CUDA_TICK_NS;

/* The time that a step took, as the device measured it and wrote it into the result of the first run. */
static void note_time(struct executor *executor, uint32_t token_count, const struct cuda_result *left)
{
    const uint64_t spent = left->number * nanoseconds_per_tick;
    if (left->failed)
        return;
    if (token_count == 1)
        pace_note_tokens(&executor->pace, spent, left->sampled);
    else
        pace_note_chunk(&executor->pace, spent, token_count);
}

/* Collects the results of entry number `entry`. */
static void harvest(struct executor *executor, uint64_t entry)
{
    const size_t index = (entry - 1) % CUDA_STEP_RING_ENTRIES;
    struct cuda_ticket *ticket = ticket_of(executor, executor->ticket_of_entry[index]);
    const bool all_runs = executor->run_of_entry[index] == CUDA_ALL_RUNS;
    const uint32_t run_count = all_runs ? ticket->run_count : 1,
                   token_count = all_runs ? ticket->token_count : 1;
    struct run_result *results =
        results_of(executor, ticket->ticket) + (all_runs ? 0 : executor->run_of_entry[index]);
    const struct cuda_result *left = executor->results + index * executor->options.slots;
    uint32_t sampled = 0;
    for (uint32_t i = 0; i < run_count; i++) {
        results[i].sampled += left[i].sampled;
        results[i].ended |= left[i].ended != 0;
        sampled += left[i].sampled;
        if (left[i].failed == CANCELLED) {
            ticket->cancelled = true;
        } else if (left[i].failed) {
            results[i].failed = true;
            results[i].failed_position = left[i].number;
        }
    }
    if (!ticket->samples_only) {
        note_time(executor, token_count, left);
        executor->counters.tokens += ticket->repeats ? sampled : token_count;
    }
    /* Mapped memory of `done`, results, ids, and the number of ids so far. */
    executor->counters.bytes_read_back += sizeof(uint32_t) + run_count * sizeof *left +
                                          sampled * (sizeof(int32_t) + (sampled > 1 ? sizeof(uint32_t) : 0));
    executor->finished_entries = entry;
    if (executor->finished_entries == executor->entries)
        *executor->cancel = 0;
}

/* After a wait on the device timed out: all steps in flight have failed and nothing of them was committed. */
static enum salvo_status recover(struct executor *executor)
{
    enum salvo_status status = SALVO_OK;
    const uint32_t sequence = (uint32_t)executor->entries;
    TRY(cuda_queue_wait(executor));
    for (uint64_t entry = executor->finished_entries + 1; entry <= executor->entries; entry++)
        ticket_of(executor, executor->ticket_of_entry[(entry - 1) % CUDA_STEP_RING_ENTRIES])->failed = true;
    executor->finished_entries = executor->entries;
    *executor->abort = *executor->error = *executor->cancel = 0;
    TRY(CUDA_CALL(&executor->context, fill,
        (executor->machine.barrier, 0, CUDA_BARRIER_WORDS * sizeof(uint32_t), executor->queue)));
    TRY(cuda_copy_in(executor, executor->machine.sequence, &sequence, sizeof sequence));
    TRY(cuda_tagged_words_clear(executor));
    TRY(CUDA_CALL(&executor->context, fill,
        (executor->machine.sampling, 0,
            executor->options.outputs * cuda_sample_row_bytes(executor->program->vocabulary),
            executor->queue)));
    TRY(cuda_queue_wait(executor));
cleanup:
    return status;
}

static const char *name_failure(uint32_t error)
{
    return error == CUDA_ERROR_TIME      ? "a wait on the device took too long, the step was given up"
           : error == CUDA_ERROR_ABORTED ? "the step was stopped: it took too long"
           : error == CUDA_ERROR_STEP    ? "a launch found a step that is not its own"
                                         : "the step ended without a result";
}

/* The queue is empty and the entry is not done: the kernel has given up. */
static enum salvo_status explain(struct executor *executor)
{
    executor->failure = *executor->error;
    enum salvo_status status = recover(executor);
    if (status != SALVO_OK)
        return status;
    return fail(SALVO_ERROR_DEVICE, "cuda device %u (%s): %s", executor->context.number,
        executor->context.name, name_failure(executor->failure));
}

enum salvo_status cuda_queue_check(struct executor *executor)
{
    enum salvo_status status = cuda_queue_wait(executor);
    return status == SALVO_OK && *executor->error ? explain(executor) : status;
}

struct watchdog {
    uint64_t began, asked, sign_of_life, aborted;
    uint32_t progress;
};

/* Called when the entry is not done after some time. */
static enum salvo_status check_watchdog(
    struct executor *executor, struct watchdog *watchdog, uint64_t now, size_t index)
{
    struct cuda_context *context = &executor->context;
    watchdog->asked = now;
    if (executor->progress[index] != watchdog->progress) {
        watchdog->progress = executor->progress[index];
        watchdog->sign_of_life = now;
    }
    int result = context->driver->stream_query(executor->queue);
    if (result == CUDA_OK) {
        watchdog->sign_of_life = 0; /* nothing runs: it is done, or never will be */
        return SALVO_OK;
    }
    if (result != CUDA_NOT_READY)
        return cuda_context_result(context, cuda_driver_symbols.stream_query, result);
    if (!watchdog->aborted && now - watchdog->sign_of_life > timeout_ns) {
        *executor->abort = 1;
        watchdog->aborted = now;
    }
    if (watchdog->aborted && now - watchdog->aborted > ABORT_NS) {
        context->lost = true;
        snprintf(context->lost_text, sizeof context->lost_text, "it does not answer");
        return fail(
            SALVO_ERROR_DEVICE, "cuda device %u (%s) does not answer", context->number, context->name);
    }
    return SALVO_OK;
}

static void watch_cancel(struct executor *executor)
{
    for (uint64_t entry = executor->finished_entries + 1; entry <= executor->entries; entry++) {
        const struct cuda_ticket *ticket =
            ticket_of(executor, executor->ticket_of_entry[(entry - 1) % CUDA_STEP_RING_ENTRIES]);
        if (ticket->cancel && __atomic_load_n(ticket->cancel, __ATOMIC_RELAXED))
            *executor->cancel = 1;
    }
}

/* Until the entry is done or has sampled more than `seen` ids. */
static enum salvo_status wait_for_entry(struct executor *executor, uint64_t entry, uint32_t seen)
{
    enum salvo_status status = SALVO_OK;
    const size_t index = (entry - 1) % CUDA_STEP_RING_ENTRIES;
    struct watchdog watchdog = {0};
    while (load_acquire(&executor->done[index]) != (uint32_t)entry &&
           load_acquire(&executor->progress[index]) <= seen) {
        const uint64_t now = clock_ns();
        if (!watchdog.began)
            watchdog = (struct watchdog){.began = now, .asked = now, .sign_of_life = now};
        watch_cancel(executor);
        if (now - watchdog.asked > QUERY_NS) {
            TRY(check_watchdog(executor, &watchdog, now, index));
            if (!watchdog.sign_of_life && load_acquire(&executor->done[index]) != (uint32_t)entry)
                TRY(explain(executor));
        }
        if (now - watchdog.began < SPIN_NS) {
            for (int i = 0; i < 16; i++)
                spin_pause();
        } else {
            nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
        }
    }
cleanup:
    return status;
}

enum salvo_status cuda_entries_finish(struct executor *executor, uint64_t entry)
{
    enum salvo_status status = SALVO_OK;
    while (executor->finished_entries < entry) {
        TRY(wait_for_entry(executor, executor->finished_entries + 1, UINT32_MAX));
        harvest(executor, executor->finished_entries + 1);
    }
cleanup:
    return status;
}

/* ---- Submitting ---- */

/* The limit of a launch: a quarter of a second if the device has a display, because the system resets it,
 * otherwise a second. The last token of a launch, or the next chunk, may take twice as long as the ones
 * before. */
void cuda_pace_open(struct executor *executor)
{
    const uint64_t of_display_ns = 100000000, usual_ns = 400000000;
    if (executor->device->has_watchdog)
        pace_open(&executor->pace, of_display_ns, executor->options.batch, FIRST_CHUNK_OF_DISPLAY);
    else
        pace_open(&executor->pace, usual_ns, executor->options.batch, FIRST_CHUNK);
}

/* A launch of the whole grid continues from token to token itself. */
uint32_t cuda_most_ahead(const struct executor *executor)
{
    const uint32_t fitting = pace_tokens(&executor->pace);
    return !executor->resident ? 1 : fitting < MOST_REPEATS ? fitting : MOST_REPEATS;
}

bool cuda_step_is_long(const struct executor *executor, const struct step *step, uint32_t skip)
{
    for (uint32_t i = 0; i < step->run_count; i++) {
        if (first_after(executor, &step->runs[i], skip) + step->runs[i].count > FLASH_LONG_CONTEXT)
            return true;
    }
    return false;
}

static enum salvo_status submit_entry(struct executor *executor, const struct step *step, uint32_t skip,
    uint32_t repeat, struct cuda_ticket *ticket, int32_t run)
{
    enum salvo_status status = SALVO_OK;
    if (executor->entries - executor->finished_entries == CUDA_STEP_RING_ENTRIES)
        TRY(cuda_entries_finish(executor, executor->finished_entries + 1));
    TRY(write_entry(executor, step, skip, repeat));
    TRY(step->samples_only
            ? cuda_launch_sampling(executor, plan_of(executor, step))
            : cuda_launch_plan(executor, plan_of(executor, step), cuda_step_is_long(executor, step, skip)));
    executor->ticket_of_entry[executor->entries % CUDA_STEP_RING_ENTRIES] = ticket->ticket;
    executor->run_of_entry[executor->entries % CUDA_STEP_RING_ENTRIES] = run;
    executor->entries++;
    note_masks(executor, step);
    executor->counters.submissions++;
    ticket->last_entry = executor->entries;
cleanup:
    return status;
}

static enum salvo_status submit_entries(
    struct executor *executor, const struct step *step, struct cuda_ticket *ticket, int32_t run)
{
    enum salvo_status status = SALVO_OK;
    const uint32_t repeat = step_repeats(step);
    const uint32_t most = step->token_count == 1 ? cuda_most_ahead(executor) : 1;
    TRY(place_masks(executor, step));
    for (uint32_t done = 0, each; done < repeat; done += each) {
        each = repeat - done < most ? repeat - done : most;
        TRY(submit_entry(executor, step, done, each, ticket, run));
    }
cleanup:
    return status;
}

/* ---- Sessions one after another ---- */

/* Few tokens, each of another run, are faster one after the other than together. */
static bool is_faster_serially(const struct executor *executor, const struct step *step)
{
    if (step->token_count < 2 || step->token_count > executor->most_serial ||
        step->run_count != step->token_count || step->keeps_hidden || step->samples_only)
        return false;
    for (uint32_t i = 0; i < step->run_count; i++) {
        const struct run *run = &step->runs[i];
        if (run->logits != LOGITS_LAST || run->has_logprobs || run->sampler.mask)
            return false;
    }
    return true;
}

/* Each run as a separate step. The next step overwrites its logits, so they are copied. */
static enum salvo_status submit_serially(
    struct executor *executor, const struct step *step, struct cuda_ticket *ticket)
{
    enum salvo_status status = SALVO_OK;
    const struct cuda_scratch *scratch = &executor->single.scratch;
    const size_t bytes = executor->program->vocabulary * sizeof(float);
    for (uint32_t i = 0; i < step->run_count; i++) {
        struct run run = step->runs[i];
        struct step single = *step;
        single.runs = &run;
        single.run_count = single.token_count = 1;
        single.ids = step->ids ? step->ids + run.first_row : NULL;
        run.first_row = 0;
        TRY(submit_entries(executor, &single, ticket, (int32_t)i));
        TRY(CUDA_CALL(&executor->context, copy_within,
            (executor->serial_logits + i * (uint64_t)bytes,
                scratch->arena + scratch->offsets[executor->program->logits], bytes, executor->queue)));
    }
cleanup:
    return status;
}

static enum salvo_status submit_step(
    struct executor *executor, const struct step *step, struct cuda_ticket *ticket)
{
    executor->last_was_serial = is_faster_serially(executor, step);
    executor->last_plan = plan_of(executor, step);
    return executor->last_was_serial ? submit_serially(executor, step, ticket)
                                     : submit_entries(executor, step, ticket, CUDA_ALL_RUNS);
}

enum salvo_status cuda_step_submit(struct executor *executor, const struct step *step, uint64_t *out_ticket)
{
    enum salvo_status status = SALVO_OK;
    const uint64_t number = executor->last_ticket + 1;
    struct cuda_ticket *ticket = ticket_of(executor, number);
    *out_ticket = 0;
    TRY(cuda_step_check(executor, step));
    TRY(cuda_context_enter(&executor->context));
    /* The step whose place it takes must be complete. */
    status = cuda_entries_finish(executor, ticket->last_entry);
    if (status == SALVO_OK) {
        *ticket = (struct cuda_ticket){.ticket = number,
            .last_entry = executor->entries,
            .run_count = step->run_count,
            .token_count = step->token_count,
            .repeats = step->repeat > 1,
            .samples_only = step->samples_only,
            .cancel = step->cancel};
        memset(results_of(executor, number), 0, executor->options.slots * sizeof(struct run_result));
        executor->last_ticket = number;
        status = submit_step(executor, step, ticket);
    }
    cuda_context_leave(&executor->context);
    TRY(status);
    *out_ticket = number;
cleanup:
    return status;
}

static enum salvo_status find_ticket(struct executor *executor, uint64_t number, struct cuda_ticket **out)
{
    *out = ticket_of(executor, number);
    return backend_check_ticket(number, executor->last_ticket, CUDA_STEP_RING_ENTRIES);
}

/* Whether it failed because an earlier step failed. */
static enum salvo_status check_ticket(const struct executor *executor, const struct cuda_ticket *ticket)
{
    if (ticket->failed) {
        return fail(SALVO_ERROR_DEVICE,
            "cuda device %u (%s): the step was dropped because an earlier step failed: %s",
            executor->context.number, executor->context.name, name_failure(executor->failure));
    }
    return SALVO_OK;
}

enum salvo_status cuda_step_wait(struct executor *executor, uint64_t ticket, struct run_result *results)
{
    enum salvo_status status = SALVO_OK;
    struct cuda_ticket *waited;
    uint32_t sampled = 0;
    TRY(find_ticket(executor, ticket, &waited));
    TRY(cuda_context_enter(&executor->context));
    status = cuda_entries_finish(executor, waited->last_entry);
    cuda_context_leave(&executor->context);
    TRY(status);
    TRY(check_ticket(executor, waited));
    memcpy(results, results_of(executor, ticket), waited->run_count * sizeof *results);
    for (uint32_t i = 0; i < waited->run_count; i++)
        sampled += results[i].sampled;
    if (waited->cancelled && sampled == 0)
        TRY(fail(SALVO_ERROR_CANCELLED, "cancelled"));
cleanup:
    return status;
}

/* The entries of a ticket are consecutive; earlier entries may still be in flight. */
static enum salvo_status follow(struct executor *executor, struct cuda_ticket *ticket, uint32_t seen,
    uint32_t *out_sampled, bool *out_done)
{
    enum salvo_status status = SALVO_OK;
    const struct run_result *result = results_of(executor, ticket->ticket);
    for (;;) {
        const uint64_t entry = executor->finished_entries + 1;
        const size_t index = (entry - 1) % CUDA_STEP_RING_ENTRIES;
        *out_sampled = result->sampled;
        *out_done = executor->finished_entries >= ticket->last_entry;
        if (*out_done || *out_sampled > seen)
            break;
        /* Reports the first run; the others are computed after it. */
        const bool is_own =
            executor->ticket_of_entry[index] == ticket->ticket && executor->run_of_entry[index] <= 0;
        TRY(wait_for_entry(executor, entry, is_own ? seen - result->sampled : UINT32_MAX));
        if (load_acquire(&executor->done[index]) == (uint32_t)entry) {
            harvest(executor, entry);
        } else {
            *out_sampled = result->sampled + executor->progress[index];
            break;
        }
    }
cleanup:
    return status;
}

enum salvo_status cuda_step_progress(
    struct executor *executor, uint64_t ticket, uint32_t seen, uint32_t *out_sampled, bool *out_done)
{
    enum salvo_status status = SALVO_OK;
    struct cuda_ticket *followed;
    *out_sampled = 0;
    *out_done = false;
    TRY(find_ticket(executor, ticket, &followed));
    TRY(cuda_context_enter(&executor->context));
    status = follow(executor, followed, seen, out_sampled, out_done);
    cuda_context_leave(&executor->context);
    TRY(status);
    TRY(check_ticket(executor, followed));
cleanup:
    return status;
}
