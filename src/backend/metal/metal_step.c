/*
 * Steps. The host writes a step into an entry of the ring, which the device reads and changes in place,
 * encodes the dispatches of its plan, and reads the results from the same entry. Two steps are in flight.
 */
#include "backend/metal/metal_executor.h"

#include <string.h>
#include <time.h>

enum { STATUS_ERROR = 5, TIMEOUT_SECONDS = 60 };

struct step_header *metal_ring_entry(const struct executor *executor, uint64_t ticket)
{
    return (
        struct step_header *)(void *)(executor->ring.bytes + ticket % RING_ENTRIES * executor->entry_bytes);
}

static struct step_run *entry_runs(struct step_header *entry)
{
    return (struct step_run *)(void *)(entry + 1);
}

/* ---- Ending ---- */

/* The first command buffer of a step that failed; NULL: none has. */
static objc_id failed_commands(const struct metal_step *step)
{
    for (uint32_t i = 0; i < step->command_count; i++) {
        if (objc_status(step->commands[i]) == STATUS_ERROR)
            return step->commands[i];
    }
    return NULL;
}

void metal_release_commands(struct metal_step *step)
{
    for (uint32_t i = 0; i < step->command_count; i++)
        objc_release(step->commands[i]);
    step->command_count = 0;
}

/* Records the device's time, by which the number of tokens per command buffer is chosen. It is known a moment
 * after the event is signalled, so it is read when the entry of the ring is used again. */
static void note_time(struct executor *executor, const struct metal_step *step)
{
    double seconds = 0;
    for (uint32_t i = 0; i < step->command_count; i++)
        seconds += objc_end_time(step->commands[i]) - objc_start_time(step->commands[i]);
    if (seconds > 0)
        pending_step_note_time(step->pending, &executor->pace, (uint64_t)(seconds * 1e9));
}

static enum salvo_status check_commands(const struct executor *executor, const struct metal_step *step)
{
    objc_id failed = failed_commands(step);
    return failed ? metal_fail(&executor->device, "a command buffer", objc_buffer_error(failed)) : SALVO_OK;
}

/*
 * After the event has the step's ticket: the status of a command buffer that failed may be known a moment
 * later, and the signal may be that of a step behind it. Only the last signal proves that its own command
 * buffer is complete.
 */
static void await_statuses(const struct executor *executor, const struct metal_step *step)
{
    const uint32_t proven = executor->queue.submitted == step->pending->ticket;
    for (uint32_t i = 0; i + proven < step->command_count; i++)
        objc_wait_until_completed(step->commands[i]);
}

/* Waits until the event has the step's ticket. A command buffer that fails does not signal it. */
static enum salvo_status await(
    struct executor *executor, struct pending_step *pending, uint32_t microseconds, bool *out_done)
{
    void *pool = objc.push_pool();
    *out_done = objc_wait_for_event(executor->device.event, (objc_count)pending->ticket, microseconds / 1000);
    if (!*out_done && microseconds < 1000)
        nanosleep(&(struct timespec){.tv_nsec = 1000L * microseconds}, NULL);
    const struct metal_step *step = &executor->steps[pending->ticket % RING_ENTRIES];
    if (*out_done)
        await_statuses(executor, step);
    const enum salvo_status status = check_commands(executor, step);
    objc.pop_pool(pool);
    return status;
}

static void cancel(struct executor *executor, const struct pending_step *pending)
{
    __atomic_store_n(&metal_ring_entry(executor, pending->ticket)->cancelled, 1, __ATOMIC_RELAXED);
}

enum salvo_status metal_wait_for_commands(struct executor *executor, struct metal_step *step)
{
    void *pool = objc.push_pool();
    for (uint32_t i = 0; i < step->command_count; i++)
        objc_wait_until_completed(step->commands[i]);
    const enum salvo_status status = check_commands(executor, step);
    metal_release_commands(step);
    objc.pop_pool(pool);
    executor->queue.is_lost |= status != SALVO_OK;
    return status;
}

static void collect(struct executor *executor, struct pending_step *pending)
{
    const struct step_run *runs = entry_runs(metal_ring_entry(executor, pending->ticket));
    for (uint32_t i = 0; i < pending->run_count; i++)
        pending->results[i] = run_result_of(runs[i].sampled, runs[i].ended, runs[i].failed);
    executor->counters.bytes_read_back += pending->run_count * (4 * sizeof(uint32_t));
}

int32_t *metal_host_ids(const struct executor *executor, uint32_t slot)
{
    return (int32_t *)(void *)executor->host_ids.bytes + slot_tokens_at(&executor->options, slot);
}

enum salvo_status metal_steps_open(struct executor *executor)
{
    executor->queue = (struct step_queue){.program = executor->program,
        .options = &executor->options,
        .state = &executor->state,
        .counters = &executor->counters,
        .device_name = executor->device.physical->name,
        .entries = RING_ENTRIES,
        .versions = METAL_VERSIONS,
        .most_repeats = MAX_REPEAT,
        .timeout_seconds = TIMEOUT_SECONDS,
        .shows_ids = executor->device.shows_ids,
        .device = {.await = await, .cancel = cancel, .collect = collect, .ids = metal_host_ids},
        .executor = executor};
    for (uint32_t i = 0; i < RING_ENTRIES; i++)
        executor->steps[i].pending = &executor->queue.pending[i];
    return step_queue_open(&executor->queue, &executor->tables);
}

enum salvo_status metal_wait(struct executor *executor, uint64_t ticket, struct run_result *results)
{
    return step_queue_wait(&executor->queue, ticket, results);
}

enum salvo_status metal_progress(
    struct executor *executor, uint64_t ticket, uint32_t seen, uint32_t *out_sampled, bool *out_done)
{
    return step_queue_progress(&executor->queue, ticket, seen, out_sampled, out_done);
}

/* ---- Beginning ---- */

/* A slot's row of biases changes only while no step reads it. */
static enum salvo_status place_bias(struct executor *executor, const struct run *run)
{
    enum salvo_status status = SALVO_OK;
    const size_t vocabulary = executor->program->vocabulary;
    struct metal_bias *known = &executor->slot_biases[run->slot];
    const struct metal_bias wanted = {run->sampler.bias, run->sampler.bias_version};
    if (!wanted.bias || (known->bias == wanted.bias && known->version == wanted.version))
        return SALVO_OK;
    TRY(step_queue_complete_all(&executor->queue));
    memcpy((float *)(void *)executor->biases.bytes + run->slot * vocabulary, wanted.bias,
        vocabulary * sizeof(float));
    *known = wanted;
cleanup:
    return status;
}

/* ---- Masks: rows for the runs of each entry of the ring, then the resident ones ---- */

static void write_mask(const struct executor *executor, size_t row, const uint32_t *mask)
{
    const size_t words = step_mask_words(executor->program->vocabulary);
    memcpy((uint32_t *)(void *)executor->masks.bytes + row * words, mask, words * sizeof *mask);
}

enum salvo_status metal_set_mask(struct executor *executor, uint32_t number, const uint32_t *mask)
{
    write_mask(executor, (size_t)RING_ENTRIES * executor->options.slots + number - 1, mask);
    return step_queue_check_device(&executor->queue);
}

/* The row of a run's mask, counted from 1; 0: it has none. */
static uint32_t place_mask(
    const struct executor *executor, const struct run *run, uint64_t ticket, uint32_t index)
{
    const uint32_t slots = executor->options.slots;
    const uint32_t row = (uint32_t)(ticket % RING_ENTRIES) * slots + index;
    if (run->sampler.mask_number)
        return RING_ENTRIES * slots + run->sampler.mask_number;
    if (!run->sampler.mask)
        return 0;
    write_mask(executor, row, run->sampler.mask);
    return row + 1;
}

/* Writes the step into its entry of the ring: header, runs, then rows, output rows, pages and ids. */
static void write_entry(struct executor *executor, const struct step *step, struct metal_step *out)
{
    const struct backend_options *options = &executor->options;
    const struct pending_step *pending = out->pending;
    struct step_header *entry = metal_ring_entry(executor, pending->ticket);
    uint32_t *words = (uint32_t *)(void *)entry;
    *entry = (struct step_header){.context = options->context,
        .pages_stride = executor->state.pages_per_slot,
        .samples_only = step->samples_only};
    entry->rows_at = (uint32_t)((sizeof *entry + options->slots * sizeof(struct step_run)) / sizeof *words);
    entry->outputs_at = entry->rows_at + 2 * options->batch;
    entry->pages_at = entry->outputs_at + options->outputs;
    entry->ids_at = entry->pages_at + options->slots * entry->pages_stride;
    entry->stop_count = step_stop_ids(step, entry->stop_ids);
    out->live[ROWS_TOKENS] = step->token_count;
    out->live[ROWS_RUNS] = step->run_count;
    out->live[ROWS_OUTPUTS] = step_write_words(options, step,
        (struct step_words){(struct row_place *)(void *)(words + entry->rows_at), words + entry->outputs_at,
            words + entry->pages_at, entry->pages_stride});
    memcpy(entry->given, out->live, sizeof entry->given);
    for (uint32_t i = 0, output = 0; i < step->run_count; i++) {
        const struct run *run = &step->runs[i];
        entry_runs(entry)[i] = (struct step_run){RUN_FOR_DEVICE(run, &pending->runs[i]),
            .has_bias = run->sampler.bias != NULL, .mask_row = place_mask(executor, run, pending->ticket, i),
            .logits_row = step_logits_row(step, run, output)};
        output += run_output_count(run);
        if (run->source == SOURCE_IDS)
            memcpy(words + entry->ids_at + run->first_row, step->ids + run->first_row,
                run->count * sizeof *step->ids);
    }
}

enum salvo_status metal_step_begin(
    struct executor *executor, const struct step *step, struct metal_step **out)
{
    enum salvo_status status = SALVO_OK;
    struct step_queue *queue = &executor->queue;
    *out = NULL;
    TRY(step_queue_make_room(queue, step));
    TRY(gguf_check(executor->program->gguf)); /* while the step can be refused as a whole */
    for (uint32_t i = 0; i < step->run_count; i++)
        TRY(place_bias(executor, &step->runs[i]));
    struct metal_step *added = &executor->steps[(queue->submitted + 1) % RING_ENTRIES];
    note_time(executor, added);
    metal_release_commands(added);
    added->plan = step->samples_only       ? executor->last->plan
                  : step->token_count == 1 ? &executor->single
                                           : &executor->batch;
    (void)step_queue_add(queue, step);
    write_entry(executor, step, added);
    executor->last = added;
    *out = added;
cleanup:
    return status;
}

enum salvo_status metal_submit(struct executor *executor, const struct step *step, uint64_t *out_ticket)
{
    enum salvo_status status = SALVO_OK;
    struct metal_step *added = NULL;
    *out_ticket = 0;
    TRY(metal_step_begin(executor, step, &added));
    const uint32_t together = pace_tokens(&executor->pace);
    for (uint32_t first = 0, count; first < added->pending->repeat; first += count) {
        const uint32_t left = added->pending->repeat - first;
        count = left < together ? left : together;
        TRY(metal_encode_step(executor, added, first, count, count == left));
    }
    *out_ticket = added->pending->ticket;
cleanup:
    executor->queue.is_lost |= status != SALVO_OK && added; /* a part of the step may run */
    return status;
}
