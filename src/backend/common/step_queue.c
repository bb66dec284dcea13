#include "backend/common/step_queue.h"

#include "backend/common/checks.h"
#include "backend/common/steps.h"

#include <string.h>

/* The intervals at which a wait reads the cancel flag, and at which the host checks for new ids. */
enum { SLICE_US = 5000, LOOK_US = 200 };

/* Marks an id that is not sampled yet. */
static const int32_t no_id = -1;

enum salvo_status step_queue_open(struct step_queue *queue, struct arena *tables)
{
    enum salvo_status status = SALVO_OK;
    TRY(ARENA_NEW(tables, &queue->slots, queue->options->slots));
    for (uint32_t i = 0; i < queue->entries; i++) {
        TRY(ARENA_NEW(tables, &queue->pending[i].runs, queue->options->slots));
        TRY(ARENA_NEW(tables, &queue->pending[i].results, queue->options->slots));
    }
cleanup:
    return status;
}

struct pending_step *step_queue_at(struct step_queue *queue, uint64_t ticket)
{
    return &queue->pending[ticket % queue->entries];
}

enum salvo_status step_queue_check_device(const struct step_queue *queue)
{
    if (queue->is_lost)
        return fail(SALVO_ERROR_DEVICE, "%s was lost; the engine has to be opened again", queue->device_name);
    return SALVO_OK;
}

/* ---- Ending ---- */

/* The version of recurrent state that a run wrote last: repetitions alternate between two versions. */
static uint8_t version_after(
    const struct pending_step *pending, const struct pending_run *run, uint32_t sampled)
{
    if (pending->repeat <= 1)
        return run->write_version;
    return sampled == 0 ? run->read_version : sampled % 2 ? run->write_version : run->next_version;
}

/* The position behind the tokens of a run. */
static uint32_t end_after(const struct pending_step *pending, const struct pending_run *run, uint32_t sampled)
{
    return run->first + (pending->repeat > 1 ? sampled : run->count);
}

/* The slot's state stays as it was committed last, and steps in flight behind this one do not change it. */
static void ignore_steps_behind(const struct step_queue *queue, struct recurrent_slot *slot)
{
    slot->ignored = queue->submitted;
    slot->current = slot->committed;
    slot->end = slot->committed_end;
}

/* Collects the results of a step and commits its recurrent state. A cancelled step that repeats keeps its
 * complete tokens. */
static enum salvo_status commit(struct step_queue *queue, struct pending_step *pending)
{
    const struct run_result *results = pending->results;
    bool cancelled = step_is_cancelled(pending->cancel);
    queue->device.collect(queue->executor, pending);
    for (uint32_t i = 0; i < pending->run_count; i++)
        cancelled = cancelled && (pending->repeat <= 1 || results[i].sampled == 0);
    for (uint32_t i = 0; i < pending->run_count; i++) {
        const struct pending_run *run = &pending->runs[i];
        struct recurrent_slot *slot = &queue->slots[run->slot];
        /* A run that did nothing because the step before it stopped early leaves its state unchanged. */
        const bool did_nothing = run->samples && results[i].sampled == 0;
        queue->counters->tokens += pending->repeat > 1 ? results[i].sampled : did_nothing ? 0 : run->count;
        if (pending->ticket <= slot->ignored) {
            if (queue->state->recurrent_elements)
                pending->results[i] = (struct run_result){0}; /* its ids have no state */
        } else if (cancelled || did_nothing) {
            ignore_steps_behind(queue, slot);
        } else {
            if (!pending->samples_only) {
                slot->committed = version_after(pending, run, results[i].sampled);
                slot->committed_end = end_after(pending, run, results[i].sampled);
            }
            if (results[i].ended || (pending->repeat > 1 && results[i].sampled < run->tokens))
                ignore_steps_behind(queue, slot);
        }
    }
    return cancelled ? fail(SALVO_ERROR_CANCELLED, "cancelled") : SALVO_OK;
}

void step_queue_run_last(struct step_queue *queue)
{
    queue->completed = queue->submitted;
}

enum salvo_status step_queue_commit_last(struct step_queue *queue)
{
    return commit(queue, step_queue_at(queue, queue->submitted));
}

static enum salvo_status await(struct step_queue *queue, struct pending_step *pending)
{
    enum salvo_status status = SALVO_OK;
    bool is_done = false;
    for (uint64_t waited = 0; !is_done; waited += SLICE_US) {
        if (waited >= UINT64_C(1000000) * queue->timeout_seconds)
            TRY(fail(SALVO_ERROR_DEVICE, "%s did not answer for %u s", queue->device_name,
                queue->timeout_seconds));
        if (step_is_cancelled(pending->cancel))
            queue->device.cancel(queue->executor, pending);
        TRY(queue->device.await(queue->executor, pending, SLICE_US, &is_done));
    }
cleanup:
    return status;
}

enum salvo_status step_queue_complete(struct step_queue *queue, uint64_t ticket)
{
    enum salvo_status status = SALVO_OK;
    while (queue->completed < ticket) {
        struct pending_step *pending = step_queue_at(queue, queue->completed + 1);
        TRY(step_queue_check_device(queue));
        status = await(queue, pending);
        queue->is_lost = status != SALVO_OK;
        TRY(status);
        queue->completed++;
        pending->status = commit(queue, pending);
    }
cleanup:
    return status;
}

enum salvo_status step_queue_complete_all(struct step_queue *queue)
{
    return step_queue_complete(queue, queue->submitted);
}

enum salvo_status step_queue_wait(struct step_queue *queue, uint64_t ticket, struct run_result *results)
{
    enum salvo_status status = SALVO_OK;
    TRY(backend_check_ticket(ticket, queue->submitted, queue->entries));
    TRY(step_queue_complete(queue, ticket));
    const struct pending_step *pending = step_queue_at(queue, ticket);
    if (pending->status == SALVO_ERROR_CANCELLED)
        TRY(fail(SALVO_ERROR_CANCELLED, "cancelled"));
    TRY(gguf_check(queue->program->gguf));
    memcpy(results, pending->results, pending->run_count * sizeof *results);
cleanup:
    return status;
}

/* ---- Ids before the end ---- */

/* The ids that a run which repeats will sample are marked, so that the host can tell when they arrive. */
static void place_ids(const struct step_queue *queue, const struct step *step)
{
    const uint32_t repeat = step_repeats(step);
    for (uint32_t i = 0; queue->device.ids && i < step->run_count; i++) {
        const struct run *run = &step->runs[i];
        int32_t *ids = queue->device.ids(queue->executor, run->slot) + run->first;
        if (run->source == SOURCE_IDS)
            memcpy(ids, step->ids + run->first_row, run->count * sizeof *ids);
        for (uint32_t j = 1; repeat > 1 && j <= repeat && run->first + j <= queue->options->context; j++)
            ids[j] = no_id;
    }
}

/* How many ids a step that repeats has sampled, for its first run. Each id is checked by itself, because the
 * order in which the host sees the device's writes is not defined. */
static uint32_t ids_so_far(const struct step_queue *queue, const struct pending_step *pending, uint32_t seen)
{
    const uint32_t first = pending->runs[0].first + 1;
    const volatile int32_t *ids = queue->device.ids(queue->executor, pending->runs[0].slot) + first;
    while (seen < pending->repeat && first + seen <= queue->options->context && ids[seen] != no_id)
        seen++;
    return seen;
}

/* Waits for an id beyond the first `seen`; returns `seen` if the step has ended or is lost, which
 * step_queue_complete finds out. */
static uint32_t await_ids(struct step_queue *queue, struct pending_step *pending, uint32_t seen)
{
    bool is_done =
        queue->completed >= pending->ticket || pending->repeat <= 1 || !queue->shows_ids || queue->is_lost;
    for (uint64_t waited = 0; !is_done && waited < UINT64_C(1000000) * queue->timeout_seconds;
         waited += LOOK_US) {
        const uint32_t sampled = ids_so_far(queue, pending, seen);
        if (sampled > seen)
            return sampled;
        if (step_is_cancelled(pending->cancel))
            queue->device.cancel(queue->executor, pending);
        if (queue->device.await(queue->executor, pending, LOOK_US, &is_done) != SALVO_OK)
            break;
    }
    return seen;
}

enum salvo_status step_queue_progress(
    struct step_queue *queue, uint64_t ticket, uint32_t seen, uint32_t *out_sampled, bool *out_done)
{
    enum salvo_status status = SALVO_OK;
    *out_sampled = seen;
    *out_done = true;
    TRY(backend_check_ticket(ticket, queue->submitted, queue->entries));
    struct pending_step *pending = step_queue_at(queue, ticket);
    *out_sampled = await_ids(queue, pending, seen);
    *out_done = *out_sampled == seen;
    if (!*out_done)
        goto cleanup;
    TRY(step_queue_complete(queue, ticket));
    if (pending->status != SALVO_ERROR_CANCELLED)
        *out_sampled = pending->results[0].sampled;
cleanup:
    return status;
}

/* ---- Beginning ---- */

/* The slot's run of a step; NULL: it has none. */
static const struct pending_run *run_of_slot(const struct pending_step *pending, uint32_t slot)
{
    for (uint32_t i = 0; i < pending->run_count; i++) {
        if (pending->runs[i].slot == slot)
            return &pending->runs[i];
    }
    return NULL;
}

/* The first version that is not used; false: all are. */
static bool find_unused(const struct step_queue *queue, const bool *used, uint8_t *out)
{
    for (uint8_t i = 0; i < queue->versions; i++) {
        if (!used[i]) {
            *out = i;
            return true;
        }
    }
    return false;
}

/*
 * The versions that a step of a slot writes. Its first token writes one that no step in flight reads, writes
 * or may commit: a run that does nothing may still write it, beside others. Its second token is computed only
 * if the slot's steps in flight were complete, so where all of these repeat, it may write what they leave
 * behind. False: there are not enough.
 */
static bool find_versions(
    const struct step_queue *queue, uint32_t slot, bool repeats, uint8_t *out_after, uint8_t *out_other)
{
    const struct recurrent_slot *versions = &queue->slots[slot];
    bool used[QUEUE_MAX_VERSIONS] = {false}, all_repeat = true;
    used[versions->committed] = used[versions->current] = true;
    for (uint64_t i = queue->completed + 1; i <= queue->submitted; i++) {
        const struct pending_step *pending = &queue->pending[i % queue->entries];
        const struct pending_run *run = run_of_slot(pending, slot);
        if (!run)
            continue;
        used[run->read_version] = used[run->write_version] = used[run->next_version] = true;
        all_repeat &= pending->repeat > 1;
    }
    if (!find_unused(queue, used, out_after))
        return false;
    *out_other = *out_after;
    if (!repeats)
        return true;
    if (all_repeat)
        memset(used, 0, sizeof used);
    used[versions->current] = used[*out_after] = true;
    return find_unused(queue, used, out_other);
}

/* Whether the run continues what the slot's steps compute if nothing stops them. */
static bool continues(const struct recurrent_slot *slot, const struct run *run)
{
    return run->source == SOURCE_LAST && run->first == slot->end;
}

/* Whether the slot has a step in flight; `repeats`: one that repeats. */
static bool is_in_flight(const struct step_queue *queue, uint32_t slot, bool repeats)
{
    for (uint64_t i = queue->completed + 1; i <= queue->submitted; i++) {
        const struct pending_step *pending = &queue->pending[i % queue->entries];
        if ((pending->repeat > 1 || !repeats) && run_of_slot(pending, slot))
            return true;
    }
    return false;
}

/* Whether the slot's last step must be complete before another can be written. The device runs a step behind
 * one that repeats only if that one has all its tokens, so its version of the state is known. A step that
 * continues a state that does not exist is ignored, but not those before it. */
static bool must_wait(const struct step_queue *queue, const struct step *step)
{
    if (!queue->state->recurrent_elements || step->samples_only)
        return false;
    for (uint32_t i = 0; i < step->run_count; i++) {
        uint8_t after, other;
        const struct run *run = &step->runs[i];
        if (!find_versions(queue, run->slot, step->repeat > 1, &after, &other) ||
            (is_in_flight(queue, run->slot, run->source != SOURCE_LAST) &&
                !continues(&queue->slots[run->slot], run)))
            return true;
    }
    return false;
}

/* Tokens that a run decodes unless it is stopped. */
static uint32_t tokens_of(const struct step_queue *queue, const struct step *step, const struct run *run)
{
    const uint32_t context = queue->options->context,
                   end = run->limit > run->first && run->limit < context ? run->limit : context,
                   left = end - run->first, repeat = step_repeats(step);
    return left < repeat ? left : repeat;
}

enum salvo_status step_queue_make_room(struct step_queue *queue, const struct step *step)
{
    enum salvo_status status = SALVO_OK;
    const uint32_t in_flight = queue->entries - 1;
    TRY(step_queue_check_device(queue));
    if (step->repeat > queue->most_repeats)
        TRY(fail(SALVO_ERROR_ARGUMENT, "a step repeats at most %u times, not %u", queue->most_repeats,
            step->repeat));
    TRY(backend_check_step(queue->options, queue->state->pages, queue->program->vocabulary, step));
    if (queue->submitted - queue->completed >= in_flight)
        TRY(step_queue_complete(queue, queue->submitted - in_flight + 1));
    while (queue->completed < queue->submitted && must_wait(queue, step))
        TRY(step_queue_complete(queue, queue->completed + 1));
cleanup:
    return status;
}

struct pending_step *step_queue_add(struct step_queue *queue, const struct step *step)
{
    const uint64_t ticket = queue->submitted + 1;
    struct pending_step *pending = step_queue_at(queue, ticket);
    pending->ticket = ticket;
    pending->run_count = step->run_count;
    pending->token_count = step->token_count;
    pending->repeat = step_repeats(step);
    pending->samples_only = step->samples_only;
    pending->cancel = step->cancel;
    pending->status = SALVO_OK;
    for (uint32_t i = 0; i < step->run_count; i++) {
        const struct run *run = &step->runs[i];
        struct recurrent_slot *slot = &queue->slots[run->slot];
        struct pending_run *out = &pending->runs[i];
        *out = (struct pending_run){.slot = run->slot,
            .first = run->first,
            .count = step->samples_only ? 0 : run->count,
            .tokens = tokens_of(queue, step, run),
            .samples = run->logits == LOGITS_LAST,
            .read_version = slot->current,
            .write_version = slot->current,
            .next_version = slot->current};
        if (step->samples_only)
            continue;
        (void)find_versions(queue, run->slot, step->repeat > 1, &out->write_version, &out->next_version);
        if (run->source == SOURCE_LAST && !continues(slot, run)) {
            slot->ignored = ticket; /* the state that it continues does not exist */
            continue;
        }
        slot->current = version_after(pending, out, out->tokens);
        slot->end = end_after(pending, out, out->tokens);
    }
    place_ids(queue, step);
    queue->submitted = ticket;
    return pending;
}

/* ---- State and time ---- */

uint64_t step_queue_recurrent_place(const struct step_queue *queue, uint32_t number)
{
    const uint32_t slots = queue->options->slots;
    return number < slots ? (uint64_t)number * queue->versions + queue->slots[number].committed
                          : number - slots;
}

void pending_step_note_time(const struct pending_step *pending, struct pace *pace, uint64_t spent_ns)
{
    if (pending->samples_only)
        return;
    if (pending->token_count > 1)
        pace_note_chunk(pace, spent_ns / pending->repeat, pending->token_count);
    else if (pending->results[0].sampled == pending->repeat)
        pace_note_tokens(pace, spent_ns, pending->repeat);
}
