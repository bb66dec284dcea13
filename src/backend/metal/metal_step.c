/*
 * Steps. The host writes a step into an entry of the ring, which the device reads and changes in place,
 * encodes the dispatches of its plan, and reads the results from the same entry. Two steps are in flight.
 * With recurrent state a step waits for the one before it, whose version of the state it continues.
 */
#include "backend/metal/metal_executor.h"

#include "backend/common/checks.h"

#include <string.h>

enum { SLICE_MS = 5, STATUS_ERROR = 5 };

/* A step that takes longer is lost. */
static const uint64_t timeout_ms = 60000;

static struct pending_step *pending_of(struct executor *executor, uint64_t ticket)
{
    return &executor->pending[ticket % RING_ENTRIES];
}

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
static objc_id failed_commands(const struct pending_step *pending)
{
    for (uint32_t i = 0; i < pending->command_count; i++) {
        if (objc_status(pending->commands[i]) == STATUS_ERROR)
            return pending->commands[i];
    }
    return NULL;
}

void metal_release_commands(struct pending_step *pending)
{
    for (uint32_t i = 0; i < pending->command_count; i++)
        objc_release(pending->commands[i]);
    pending->command_count = 0;
}

/* Records the device's time, by which the number of tokens per command buffer is chosen. It is known a moment
 * after the event is signalled, so it is read when the entry of the ring is used again. */
static void note_time(struct executor *executor, const struct pending_step *pending)
{
    double seconds = 0;
    for (uint32_t i = 0; i < pending->command_count; i++)
        seconds += objc_end_time(pending->commands[i]) - objc_start_time(pending->commands[i]);
    if (!(seconds > 0))
        return;
    const uint64_t spent = (uint64_t)(seconds * 1e9);
    if (pending->live[ROWS_TOKENS] > 1)
        pace_note_chunk(&executor->pace, spent / pending->repeat, pending->live[ROWS_TOKENS]);
    else if (pending->results[0].sampled == pending->repeat)
        pace_note_tokens(&executor->pace, spent, pending->repeat);
}

/* While waiting, passes a cancellation on to the device. After an error the event is never signalled. */
enum salvo_status metal_wait_for_step(struct executor *executor, struct pending_step *pending)
{
    enum salvo_status status = SALVO_OK;
    struct step_header *entry = metal_ring_entry(executor, pending->ticket);
    bool is_done = false;
    void *pool = objc.push_pool();
    for (uint64_t waited = 0; !is_done && waited < timeout_ms && !failed_commands(pending);
         waited += SLICE_MS) {
        if (step_is_cancelled(pending->cancel))
            __atomic_store_n(&entry->cancelled, 1, __ATOMIC_RELAXED);
        is_done = objc_wait_for_event(executor->device.event, (objc_count)pending->ticket, SLICE_MS);
    }
    objc_id failed = failed_commands(pending);
    if (failed)
        status = metal_fail(&executor->device, "a command buffer", objc_buffer_error(failed));
    else if (!is_done)
        status = fail(SALVO_ERROR_DEVICE, "%s did not answer for %llu s", executor->device.physical->name,
            (unsigned long long)timeout_ms / 1000);
    objc.pop_pool(pool);
    executor->is_lost |= status != SALVO_OK;
    return status;
}

enum salvo_status metal_wait_for_commands(struct executor *executor, struct pending_step *pending)
{
    void *pool = objc.push_pool();
    for (uint32_t i = 0; i < pending->command_count; i++)
        objc_wait_until_completed(pending->commands[i]);
    objc_id failed = failed_commands(pending);
    const enum salvo_status status =
        failed ? metal_fail(&executor->device, "a command buffer", objc_buffer_error(failed)) : SALVO_OK;
    metal_release_commands(pending);
    objc.pop_pool(pool);
    executor->is_lost |= status != SALVO_OK;
    return status;
}

/* The version of recurrent state that a run wrote last: repetitions alternate between two versions. */
static uint8_t version_after(
    const struct pending_step *pending, const struct pending_run *run, uint32_t sampled)
{
    if (pending->repeat <= 1)
        return run->write_version;
    return sampled == 0 ? run->read_version : sampled % 2 ? run->write_version : run->next_version;
}

/* Reads the results of a step and commits its recurrent state. A cancelled step that repeats keeps its
 * complete tokens. */
enum salvo_status metal_step_commit(struct executor *executor, struct pending_step *pending)
{
    const struct step_run *runs = entry_runs(metal_ring_entry(executor, pending->ticket));
    const uint32_t run_count = pending->live[ROWS_RUNS];
    bool cancelled = step_is_cancelled(pending->cancel);
    for (uint32_t i = 0; i < run_count; i++)
        cancelled = cancelled && (pending->repeat <= 1 || runs[i].sampled == 0);
    for (uint32_t i = 0; i < run_count; i++) {
        const struct pending_run *run = &pending->runs[i];
        const bool did_nothing = run->samples && runs[i].sampled == 0;
        pending->results[i] = (struct run_result){
            .sampled = runs[i].sampled,
            .ended = runs[i].ended,
            .failed = runs[i].failed != 0,
            .failed_position = runs[i].failed ? runs[i].failed - 1 : 0,
        };
        if (!cancelled && !did_nothing)
            executor->versions[run->slot] = version_after(pending, run, runs[i].sampled);
        executor->counters.tokens += pending->repeat > 1 ? runs[i].sampled : did_nothing ? 0 : run->count;
    }
    executor->counters.bytes_read_back += run_count * (4 * sizeof(uint32_t));
    return cancelled ? fail(SALVO_ERROR_CANCELLED, "cancelled") : SALVO_OK;
}

/* Completes the steps up to `ticket`, in their order. */
static enum salvo_status complete(struct executor *executor, uint64_t ticket)
{
    enum salvo_status status = SALVO_OK;
    while (executor->completed < ticket) {
        struct pending_step *pending = pending_of(executor, executor->completed + 1);
        TRY(metal_wait_for_step(executor, pending));
        executor->completed++;
        pending->status = metal_step_commit(executor, pending);
    }
cleanup:
    return status;
}

enum salvo_status metal_wait_for_all(struct executor *executor)
{
    return executor->is_lost ? SALVO_OK : complete(executor, executor->submitted);
}

static enum salvo_status check_not_lost(const struct executor *executor)
{
    if (executor->is_lost)
        return fail(SALVO_ERROR_DEVICE, "%s was lost; the engine has to be opened again",
            executor->device.physical->name);
    return SALVO_OK;
}

enum salvo_status metal_wait(struct executor *executor, uint64_t ticket, struct run_result *results)
{
    enum salvo_status status = SALVO_OK;
    TRY(backend_check_ticket(ticket, executor->submitted, RING_ENTRIES));
    if (executor->completed < ticket)
        TRY(check_not_lost(executor));
    TRY(complete(executor, ticket));
    const struct pending_step *pending = pending_of(executor, ticket);
    if (pending->status == SALVO_ERROR_CANCELLED)
        TRY(fail(SALVO_ERROR_CANCELLED, "cancelled"));
    TRY(gguf_check(executor->program->gguf));
    memcpy(results, pending->results, pending->live[ROWS_RUNS] * sizeof *results);
cleanup:
    return status;
}

/* Ids can be read when their command buffer has ended, and a step is complete when its last one has. */
enum salvo_status metal_progress(
    struct executor *executor, uint64_t ticket, uint32_t seen, uint32_t *out_sampled, bool *out_done)
{
    enum salvo_status status = SALVO_OK;
    *out_sampled = seen;
    *out_done = true;
    TRY(backend_check_ticket(ticket, executor->submitted, RING_ENTRIES));
    if (executor->completed < ticket)
        TRY(check_not_lost(executor));
    TRY(complete(executor, ticket));
    const struct pending_step *pending = pending_of(executor, ticket);
    if (pending->status != SALVO_ERROR_CANCELLED)
        *out_sampled = pending->results[0].sampled;
cleanup:
    return status;
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
    TRY(metal_wait_for_all(executor));
    memcpy((float *)(void *)executor->biases.bytes + run->slot * vocabulary, wanted.bias,
        vocabulary * sizeof(float));
    *known = wanted;
cleanup:
    return status;
}

static void write_run(
    struct executor *executor, const struct run *run, struct pending_run *pending, struct step_run *out)
{
    const uint8_t current = executor->versions[run->slot];
    *pending = (struct pending_run){.slot = run->slot,
        .count = run->count,
        .samples = run->logits == LOGITS_LAST,
        .read_version = current,
        .write_version = (uint8_t)((current + 1) % METAL_VERSIONS),
        .next_version = (uint8_t)((current + 2) % METAL_VERSIONS)};
    *out = (struct step_run){.slot = run->slot,
        .first = run->first,
        .count = run->count,
        .first_row = run->first_row,
        .logits = run->logits,
        .source = run->source,
        .limit = run->limit,
        .stop_mask = run->stop_mask,
        .read_version = pending->read_version,
        .write_version = pending->write_version,
        .next_version = pending->next_version,
        .has_mask = run->sampler.mask != NULL,
        .has_bias = run->sampler.bias != NULL,
        .settings = sampler_for_device(&run->sampler)};
}

/* Writes the step into its entry of the ring: header, runs, then rows, output rows, pages and ids. */
static void write_entry(struct executor *executor, const struct step *step, struct pending_step *pending)
{
    const struct backend_options *options = &executor->options;
    struct step_header *entry = metal_ring_entry(executor, pending->ticket);
    uint32_t *words = (uint32_t *)(void *)entry;
    const size_t mask_words = step_mask_words(executor->program->vocabulary);
    uint32_t *masks =
        (uint32_t *)(void *)(executor->masks.bytes + pending->ticket % RING_ENTRIES * executor->mask_bytes);
    *entry = (struct step_header){.context = options->context,
        .pages_stride = executor->state.pages_per_slot,
        .stop_count = step->stop_count < MAX_STOP_IDS ? step->stop_count : MAX_STOP_IDS};
    entry->rows_at = (uint32_t)((sizeof *entry + options->slots * sizeof(struct step_run)) / sizeof *words);
    entry->outputs_at = entry->rows_at + 2 * options->batch;
    entry->pages_at = entry->outputs_at + options->outputs;
    entry->ids_at = entry->pages_at + options->slots * entry->pages_stride;
    if (entry->stop_count)
        memcpy(entry->stop_ids, step->stop_ids, entry->stop_count * sizeof *step->stop_ids);
    step_place_rows(step->runs, step->run_count, (struct row_place *)(void *)(words + entry->rows_at));
    pending->live[ROWS_TOKENS] = step->token_count;
    pending->live[ROWS_RUNS] = step->run_count;
    pending->live[ROWS_OUTPUTS] = step_output_rows(step->runs, step->run_count, words + entry->outputs_at);
    memcpy(entry->given, pending->live, sizeof entry->given);
    for (uint32_t i = 0; i < step->run_count; i++) {
        const struct run *run = &step->runs[i];
        write_run(executor, run, &pending->runs[i], &entry_runs(entry)[i]);
        memcpy(words + entry->pages_at + (size_t)i * entry->pages_stride, run->pages,
            run_page_count(options, run, pending->repeat) * sizeof *words);
        if (run->source == SOURCE_IDS)
            memcpy(words + entry->ids_at + run->first_row, step->ids + run->first_row,
                run->count * sizeof *step->ids);
        if (run->sampler.mask)
            memcpy(masks + i * mask_words, run->sampler.mask, mask_words * sizeof *masks);
    }
}

enum salvo_status metal_step_begin(
    struct executor *executor, const struct step *step, struct pending_step **out)
{
    enum salvo_status status = SALVO_OK;
    *out = NULL;
    TRY(check_not_lost(executor));
    TRY(backend_check_step(&executor->options, executor->state.pages, executor->program->vocabulary, step));
    TRY(gguf_check(executor->program->gguf)); /* a file that was cut must not reach the device */
    if (executor->submitted - executor->completed >= STEPS_IN_FLIGHT)
        TRY(complete(executor, executor->submitted - STEPS_IN_FLIGHT + 1));
    if (executor->state.recurrent_elements)
        TRY(metal_wait_for_all(executor));
    for (uint32_t i = 0; i < step->run_count; i++)
        TRY(place_bias(executor, &step->runs[i]));
    struct pending_step *pending = pending_of(executor, executor->submitted + 1);
    note_time(executor, pending);
    metal_release_commands(pending);
    pending->ticket = ++executor->submitted;
    pending->repeat = step_repeats(step);
    pending->cancel = step->cancel;
    pending->plan = step->token_count == 1 ? &executor->single : &executor->batch;
    pending->status = SALVO_OK;
    write_entry(executor, step, pending);
    executor->last = pending;
    *out = pending;
cleanup:
    return status;
}

enum salvo_status metal_submit(struct executor *executor, const struct step *step, uint64_t *out_ticket)
{
    enum salvo_status status = SALVO_OK;
    struct pending_step *pending = NULL;
    *out_ticket = 0;
    if (step->repeat > MAX_REPEAT)
        TRY(fail(SALVO_ERROR_ARGUMENT, "a step repeats at most %d times, not %u", MAX_REPEAT, step->repeat));
    TRY(metal_step_begin(executor, step, &pending));
    const uint32_t together = pace_tokens(&executor->pace);
    for (uint32_t first = 0, count; first < pending->repeat; first += count) {
        const uint32_t left = pending->repeat - first;
        count = left < together ? left : together;
        TRY(metal_encode_step(executor, pending, first, count, count == left));
    }
    *out_ticket = pending->ticket;
cleanup:
    if (status != SALVO_OK && pending) { /* a part of the step may run */
        executor->is_lost = true;
    }
    return status;
}
