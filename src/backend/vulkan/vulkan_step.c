/*
 * Steps. The host writes a step into the ring, submits the recorded commands of its plan, and reads back a
 * few words for each run. Up to three steps are in flight; the host waits before it submits a fourth.
 */
#include "backend/vulkan/vulkan_executor.h"

#include "backend/common/checks.h"

#include <assert.h>
#include <string.h>
#include <time.h>

static_assert(sizeof(struct step_header) == HEADER_WORDS * 4, "the shader copies it as words");
static_assert(sizeof(struct step_run) == RUN_WORDS * 4, "the shader copies it as words");

#define IS_AT(type, member, word) \
    static_assert(offsetof(struct type, member) == (word)*4, "the shader finds it there")
IS_AT(step_header, tokens, TOKENS_WORD);
IS_AT(step_header, runs, RUNS_WORD);
IS_AT(step_header, outputs, OUTPUTS_WORD);
IS_AT(step_header, repeat, REPEAT_WORD);
IS_AT(step_header, entry, ENTRY_WORD);
IS_AT(step_header, cancelled, CANCELLED_WORD);
IS_AT(step_header, cancel_mask, CANCEL_MASK_WORD);
IS_AT(step_header, samples_only, SAMPLES_ONLY_WORD);
IS_AT(step_run, slot, RUN_SLOT);
IS_AT(step_run, first, RUN_FIRST);
IS_AT(step_run, count, RUN_COUNT);
IS_AT(step_run, first_row, RUN_FIRST_ROW);
IS_AT(step_run, logits, RUN_LOGITS);
IS_AT(step_run, limit, RUN_LIMIT);
IS_AT(step_run, read_version, RUN_READ_VERSION);
IS_AT(step_run, write_version, RUN_WRITE_VERSION);
IS_AT(step_run, next_version, RUN_NEXT_VERSION);
IS_AT(step_run, source, RUN_SOURCE);
static_assert(sizeof(struct row_place) == ROW_WORDS * 4, "the shader reads it as words");
static_assert((int)TOP_LOGPROBS == (int)MAX_TOP_LOGPROBS, "one size on both sides");
static_assert(sizeof(struct sampling_logprob[1 + MAX_TOP_LOGPROBS]) == LOGPROB_WORDS * 4,
    "the shader writes it as words");
static_assert((int)STEP_STOP_IDS == (int)MAX_STOP_IDS, "one size on both sides");

enum { MAX_REPEAT = 256 };

static uint32_t *ring_entry(const struct executor *executor, uint64_t ticket)
{
    return (uint32_t *)executor->ring.mapped +
           (size_t)(ticket - 1) % RING_ENTRIES * executor->step_entry_words;
}

static struct run_outcome *outcomes_of(const struct executor *executor, uint64_t ticket)
{
    return (struct run_outcome *)executor->outcomes.mapped +
           (size_t)(ticket - 1) % RING_ENTRIES * executor->options.slots;
}

static int32_t *ids_of(const struct executor *executor, uint32_t slot)
{
    return (int32_t *)executor->host_tokens.mapped + slot_tokens_at(&executor->options, slot);
}

/* ---- Ending ---- */

static VkResult wait_a_while(
    const struct executor *executor, const struct pending_step *pending, uint64_t nanoseconds)
{
    const struct vulkan_device *device = &executor->device;
    const VkSemaphoreWaitInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
        .semaphoreCount = 1,
        .pSemaphores = &executor->timeline,
        .pValues = &pending->ticket};
    if (executor->timeline)
        return device->wait_semaphores(device->handle, &info, nanoseconds);
    return device->call.WaitForFences(
        device->handle, 1, &executor->fences[pending->ticket % RING_ENTRIES], VK_TRUE, nanoseconds);
}

static enum salvo_status await(
    struct executor *executor, struct pending_step *pending, uint32_t microseconds, bool *out_done)
{
    const VkResult result = wait_a_while(executor, pending, microseconds * UINT64_C(1000));
    *out_done = result == VK_SUCCESS;
    if (*out_done && executor->idle.is_measured)
        vulkan_idle_note(executor, pending);
    if (result == VK_SUCCESS || result == VK_TIMEOUT)
        return SALVO_OK;
    return vulkan_fail(
        result, executor->timeline ? "vkWaitSemaphores" : "vkWaitForFences", executor->device.physical->name);
}

static void cancel(struct executor *executor, const struct pending_step *pending)
{
    ring_entry(executor, pending->ticket)[CANCELLED_WORD] = 1;
}

static void collect(struct executor *executor, struct pending_step *pending)
{
    const struct run_outcome *outcomes = outcomes_of(executor, pending->ticket);
    for (uint32_t i = 0; i < pending->run_count; i++)
        pending->results[i] = run_result_of(outcomes[i].sampled, outcomes[i].ended, outcomes[i].failed);
    executor->counters.bytes_read_back += pending->run_count * (sizeof *outcomes + sizeof(int32_t));
    vulkan_chunk_note(executor, pending);
}

enum salvo_status vulkan_steps_open(struct executor *executor)
{
    executor->queue = (struct step_queue){.program = executor->program,
        .options = &executor->options,
        .state = &executor->state,
        .counters = &executor->counters,
        .device_name = executor->device.physical->name,
        .entries = RING_ENTRIES,
        .versions = RECURRENT_VERSIONS,
        .most_repeats = MAX_REPEAT,
        .timeout_seconds = VULKAN_TIMEOUT_NS / 1000000000,
        .shows_ids = true,
        .device = {.await = await, .cancel = cancel, .collect = collect, .ids = ids_of},
        .executor = executor};
    return step_queue_open(&executor->queue, &executor->tables);
}

enum salvo_status vulkan_wait(struct executor *executor, uint64_t ticket, struct run_result *results)
{
    return step_queue_wait(&executor->queue, ticket, results);
}

enum salvo_status vulkan_progress(
    struct executor *executor, uint64_t ticket, uint32_t seen, uint32_t *out_sampled, bool *out_done)
{
    return step_queue_progress(&executor->queue, ticket, seen, out_sampled, out_done);
}

/* ---- Beginning ---- */

/* The row of the bias buffer with a run's bias, counted from 1; 0: no bias. A row changes only while no step
 * reads it. */
static enum salvo_status place_bias(
    struct executor *executor, const struct step *step, const struct run *run, uint32_t *out)
{
    enum salvo_status status = SALVO_OK;
    const size_t vocabulary = executor->program->vocabulary;
    struct bias_row *row = NULL, *free_row = NULL;
    *out = 0;
    if (!run->sampler.bias)
        return SALVO_OK;
    for (uint32_t i = 0; i < executor->bias_row_count; i++) {
        struct bias_row *candidate = &executor->bias_rows[i];
        bool taken = false;
        for (uint32_t j = 0; j < step->run_count; j++)
            taken |= step->runs[j].sampler.bias && candidate->bias && candidate->slot == step->runs[j].slot;
        if (candidate->bias && candidate->slot == run->slot)
            row = candidate;
        else if (!taken)
            free_row = candidate;
    }
    row = row ? row : free_row;
    if (!row)
        TRY(fail(SALVO_ERROR_UNSUPPORTED, "more than %u sessions of one step have a bias",
            executor->bias_row_count));
    if (row->bias != run->sampler.bias || row->slot != run->slot ||
        row->version != run->sampler.bias_version) {
        TRY(step_queue_complete_all(&executor->queue));
        memcpy((float *)executor->bias.mapped + (size_t)(row - executor->bias_rows) * vocabulary,
            run->sampler.bias, vocabulary * sizeof(float));
        *row = (struct bias_row){run->slot, run->sampler.bias, run->sampler.bias_version};
    }
    *out = (uint32_t)(row - executor->bias_rows) + 1;
cleanup:
    return status;
}

enum salvo_status vulkan_set_mask(struct executor *executor, uint32_t number, const uint32_t *mask)
{
    const size_t words = step_mask_words(executor->program->vocabulary),
                 row = executor->options.slots + number - 1;
    memcpy((uint32_t *)executor->masks.mapped + row * words, mask, words * sizeof *mask);
    return step_queue_check_device(&executor->queue);
}

/* The row of a run's mask, counted from 1; 0: it has none. */
static uint32_t mask_row(const struct executor *executor, const struct run *run)
{
    const uint32_t number = run->sampler.mask_number;
    return number ? executor->options.slots + number : run->sampler.mask ? run->slot + 1 : 0;
}

/* The row of a slot's mask changes only while no step reads it. A caller that computes masks from earlier ids
 * has already waited for these ids. */
static enum salvo_status place_mask(struct executor *executor, const struct run *run)
{
    enum salvo_status status = SALVO_OK;
    const size_t words = step_mask_words(executor->program->vocabulary);
    if (!sampler_brings_mask(&run->sampler))
        return SALVO_OK;
    TRY(step_queue_complete(&executor->queue, executor->masked_by[run->slot]));
    memcpy((uint32_t *)executor->masks.mapped + run->slot * words, run->sampler.mask,
        words * sizeof *run->sampler.mask);
    executor->masked_by[run->slot] = executor->queue.submitted + 1;
cleanup:
    return status;
}

/* Writes rows, output rows and pages, which follow the runs in an entry. */
static void write_words(
    const struct executor *executor, const struct step *step, struct step_header *header, uint32_t *words)
{
    const struct backend_options *options = &executor->options;
    header->outputs_at = options->batch * ROW_WORDS;
    header->pages_at = header->outputs_at + options->outputs;
    header->pages_stride = executor->state.pages_per_slot;
    header->outputs = step_write_words(options, step,
        (struct step_words){(struct row_place *)(void *)words, words + header->outputs_at,
            words + header->pages_at, header->pages_stride});
}

enum salvo_status vulkan_step_begin(
    struct executor *executor, const struct step *step, struct pending_step **out)
{
    enum salvo_status status = SALVO_OK;
    uint32_t bias_rows[64] = {0};
    *out = NULL;
    TRY(step_queue_make_room(&executor->queue, step));
    uint32_t biased = 0;
    for (uint32_t i = 0; i < step->run_count; i++) {
        uint32_t row;
        TRY(place_bias(executor, step, &step->runs[i], &row));
        if (row)
            bias_rows[biased++] = row;
        TRY(place_mask(executor, &step->runs[i]));
    }

    struct pending_step *pending = step_queue_add(&executor->queue, step);
    const uint64_t ticket = pending->ticket;
    uint32_t *entry = ring_entry(executor, ticket);
    struct step_run *runs = (struct step_run *)(void *)(entry + HEADER_WORDS);
    /* The ring may be device memory, which is slow to read, so it is only written. */
    struct step_header header = {
        .tokens = step->token_count,
        .runs = step->run_count,
        .repeat = pending->repeat,
        .context = executor->options.context,
        .slots = executor->options.slots,
        .entry = (uint32_t)((ticket - 1) % RING_ENTRIES),
        .cancel_mask = vulkan_cancel_mask(executor),
        .samples_only = step->samples_only,
    };
    header.stop_count = step_stop_ids(step, header.stop_ids);
    write_words(executor, step, &header, entry + executor->step_words_at);
    memcpy(entry, &header, sizeof header);
    biased = 0;
    for (uint32_t i = 0, output = 0; i < step->run_count; i++) {
        const struct run *run = &step->runs[i];
        runs[i] = (struct step_run){RUN_FOR_DEVICE(run, &pending->runs[i]),
            .has_mask = mask_row(executor, run), .has_bias = run->sampler.bias ? bias_rows[biased++] : 0,
            .logprobs = run->has_logprobs ? 1 + run->top_count : 0,
            .logits_row = step_logits_row(step, run, output)};
        if (step->samples_only) /* without argmax.comp the largest logit is found as others are */
            runs[i].settings.is_argmax = 0;
        output += run_output_count(run);
    }
    memset(outcomes_of(executor, ticket), 0, step->run_count * sizeof(struct run_outcome));
    executor->begun_ns[ticket % RING_ENTRIES] = 0;
    if (!step->samples_only)
        executor->last_outputs = header.outputs;
    executor->logits_are_read = false;
    *out = pending;
cleanup:
    return status;
}

/* One submission. The last submission of a step signals its end. */
static enum salvo_status submit_commands(struct executor *executor, const struct pending_step *pending,
    const VkCommandBuffer *commands, uint32_t count, bool is_last)
{
    enum salvo_status status = SALVO_OK;
    const struct vulkan_device *device = &executor->device;
    const bool counts = executor->timeline && is_last;
    const VkTimelineSemaphoreSubmitInfo done = {.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
        .signalSemaphoreValueCount = 1,
        .pSignalSemaphoreValues = &pending->ticket};
    const VkSubmitInfo submit = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
        .pNext = counts ? &done : NULL,
        .commandBufferCount = count,
        .pCommandBuffers = commands,
        .signalSemaphoreCount = counts ? 1 : 0,
        .pSignalSemaphores = &executor->timeline};
    VkFence fence =
        executor->timeline || !is_last ? VK_NULL_HANDLE : executor->fences[pending->ticket % RING_ENTRIES];
    if (fence)
        CHECK(device, ResetFences, (device->handle, 1, &fence));
    CHECK(device, QueueSubmit, (device->queue, 1, &submit, fence));
    executor->counters.submissions++;
cleanup:
    return status;
}

/* Submits the commands of a step as often as it repeats: in one submission, or in a few on a slow device. */
static enum salvo_status submit_plan(
    struct executor *executor, const struct vulkan_plan *plan, const struct pending_step *pending)
{
    enum salvo_status status = SALVO_OK;
    const uint32_t entry = (uint32_t)(pending->ticket % RING_ENTRIES),
                   together = vulkan_tokens_per_submission(executor);
    VkCommandBuffer commands[MAX_REPEAT + 2];
    uint32_t count = 0, left = pending->repeat;
    if (executor->idle.is_measured)
        commands[count++] = executor->idle.begin[entry];
    while (left > 0) {
        for (uint32_t room = left < together ? left : together, each; room > 0; room -= each, left -= each) {
            each = plan->commands_ahead && room >= TOKENS_AHEAD ? TOKENS_AHEAD : 1;
            commands[count++] = pending->samples_only ? plan->sampling
                                : each > 1            ? plan->commands_ahead
                                                      : plan->commands;
        }
        if (left > 0)
            TRY(submit_commands(executor, pending, commands, count, false));
        count = left > 0 ? 0 : count;
    }
    if (executor->idle.is_measured)
        commands[count++] = executor->idle.end[entry];
    TRY(submit_commands(executor, pending, commands, count, true));
    executor->counters.dispatches +=
        pending->samples_only ? 2 : (uint64_t)pending->repeat * plan->dispatch_count;
    executor->counters.barriers += pending->samples_only ? 1 : (uint64_t)pending->repeat * plan->barriers;
cleanup:
    return status;
}

enum salvo_status vulkan_submit(struct executor *executor, const struct step *step, uint64_t *out_ticket)
{
    enum salvo_status status = SALVO_OK;
    struct pending_step *pending = NULL;
    *out_ticket = 0;
    TRY(vulkan_step_begin(executor, step, &pending));
    if (!step->samples_only)
        executor->last_plan = step->token_count == 1 ? &executor->single : &executor->batch;
    vulkan_chunk_begin(executor, pending);
    TRY(submit_plan(executor, executor->last_plan, pending));
    *out_ticket = pending->ticket;
cleanup:
    executor->queue.is_lost |= status != SALVO_OK && pending; /* the counts of device and host differ */
    return status;
}

/* ---- Results ---- */

const int32_t *vulkan_tokens(struct executor *executor, uint32_t slot)
{
    return ids_of(executor, slot);
}

enum salvo_status vulkan_hidden(struct executor *executor, uint32_t row, uint32_t count, float *out)
{
    enum salvo_status status = SALVO_OK;
    const struct program *program = executor->program;
    const uint64_t row_bytes = program->buffers[program->hidden].columns * sizeof *out;
    TRY(step_queue_check_device(&executor->queue));
    status = vulkan_read(&executor->transfer, &executor->arena,
        executor->last_plan->lowered.offsets[program->hidden] + row * row_bytes, out, count * row_bytes);
    executor->queue.is_lost |= status != SALVO_OK;
cleanup:
    return status;
}

const float *vulkan_logits(struct executor *executor, uint32_t row)
{
    const size_t vocabulary = executor->program->vocabulary;
    const struct vulkan_plan *plan = executor->last_plan;
    if (!executor->logits_are_read) {
        const size_t size = executor->last_outputs * vocabulary * sizeof(float);
        if (!plan || step_queue_check_device(&executor->queue) != SALVO_OK)
            return NULL;
        if (vulkan_read(&executor->transfer, &executor->arena,
                plan->lowered.offsets[executor->program->logits], executor->logits, size) != SALVO_OK) {
            executor->queue.is_lost = true;
            return NULL;
        }
        executor->logits_are_read = true;
    }
    return executor->logits + row * vocabulary;
}

const struct sampling_logprob *vulkan_logprobs(struct executor *executor, uint32_t row)
{
    executor->counters.bytes_read_back += LOGPROB_WORDS * sizeof(uint32_t);
    return (const struct sampling_logprob *)executor->logprobs.mapped + row * (size_t)(1 + MAX_TOP_LOGPROBS);
}
