/* The functions of struct backend: devices, results, counters and printing; the others are in files of their
 * own. */
#include "backend/common/print.h"
#include "backend/metal/metal_executor.h"

#include <stdio.h>
#include <string.h>

static struct salvo_device device(uint32_t number)
{
    const struct metal_physical *physical = metal_device_at(number);
    if (!physical)
        return (struct salvo_device){.backend = "metal", .number = number, .name = "", .features = ""};
    return (struct salvo_device){.backend = "metal",
        .number = number,
        .name = physical->name,
        .features = "",
        .memory = physical->working_set};
}

/* It has not run on Apple hardware yet: the user names it. */
static bool auto_skips(void)
{
    return true;
}

static struct backend_info info(const struct executor *executor)
{
    return (struct backend_info){.isa = "",
        .in_flight = STEPS_IN_FLIGHT,
        .ahead = TOKENS_AHEAD,
        .most_ahead = MAX_REPEAT,
        .fine_batches = true,
        .fine_singles = true,
        .state = &executor->state,
        .memory_free = executor->device.working_set};
}

static uint32_t chunk(const struct executor *executor)
{
    return executor->pace.chunk;
}

static float *arena_rows(const struct executor *executor, buffer_id buffer)
{
    return (float *)(void *)(executor->arena.bytes + executor->last->plan->lowered.offsets[buffer]);
}

static const float *logits(struct executor *executor, uint32_t row)
{
    if (!executor->last || step_queue_check_device(&executor->queue) != SALVO_OK)
        return NULL;
    return arena_rows(executor, executor->program->logits) + (size_t)row * executor->program->vocabulary;
}

static enum salvo_status hidden(struct executor *executor, uint32_t row, uint32_t count, float *out)
{
    const buffer_id buffer = executor->program->hidden;
    const size_t columns = executor->program->buffers[buffer].columns;
    const enum salvo_status status = step_queue_check_device(&executor->queue);
    if (status != SALVO_OK)
        return status;
    memcpy(out, arena_rows(executor, buffer) + row * columns, count * columns * sizeof *out);
    return SALVO_OK;
}

static const int32_t *tokens(struct executor *executor, uint32_t slot)
{
    return metal_host_ids(executor, slot);
}

/* The run that row `row` of the logits belongs to. */
static const struct step_run *run_of_logits(const struct step_header *entry, uint32_t row)
{
    const struct step_run *run = (const struct step_run *)(const void *)(entry + 1);
    while (run->logits == LOGITS_NONE || row < run->logits_row ||
           row >= run->logits_row + (run->logits == LOGITS_ALL ? run->count : 1))
        run++;
    return run;
}

/* Computed by the host, in float64, which the device does not have. */
static const struct sampling_logprob *logprobs(struct executor *executor, uint32_t row)
{
    const struct step_header *entry = metal_ring_entry(executor, executor->last->pending->ticket);
    const struct step_run *run = run_of_logits(entry, row);
    const float *values = logits(executor, row);
    if (!values)
        return NULL;
    const uint32_t after = run->logits == LOGITS_ALL ? row - run->logits_row + 1 : run->count;
    const bool is_given = run->logits == LOGITS_ALL && after == run->count;
    const int32_t id = is_given ? run->next_id : tokens(executor, run->slot)[run->first + after];
    sampling_logprobs(values, executor->program->vocabulary, id, MAX_TOP_LOGPROBS, executor->logprobs);
    return executor->logprobs;
}

static struct backend_counters counters(const struct executor *executor)
{
    struct backend_counters result = executor->counters;
    result.creations_after_load = executor->device.objects - executor->objects_at_load;
    return result;
}

static void print_plans(
    const struct executor *executor, void (*line)(void *user, const char *text), void *user)
{
    char text[256];
    const struct metal_plan *const plans[] = {&executor->single, &executor->batch};
    const struct printer printer = {line, user};
    const struct backend_counters counted = counters(executor);
    snprintf(text, sizeof text,
        "metal %s, weights in the mapped file: %llu bytes, %u pipelines, ids are seen %s",
        executor->device.physical->name,
        (unsigned long long)(executor->counters.weight_bytes - executor->vectors.size),
        executor->pipeline_count,
        executor->device.shows_ids ? "as they come" : "when their command buffer ends");
    line(user, text);
    print_memory(printer, &counted, executor->device.working_set);
    for (size_t i = 0; i < 2; i++)
        print_dispatched_plan(
            printer, executor->program, &plans[i]->lowered, plans[i]->dispatch_count, plans[i]->barriers);
}

const struct backend metal_backend = {
    .name = "metal",
    .device_count = metal_device_count,
    .device = device,
    .why_none = metal_why_none,
    .unusable = metal_unusable,
    .auto_skips = auto_skips,
    .open = metal_executor_open,
    .close = metal_executor_close,
    .info = info,
    .rounds_finely = true,
    .submit = metal_submit,
    .wait = metal_wait,
    .set_mask = metal_set_mask,
    .chunk = chunk,
    .progress = metal_progress,
    .logits = logits,
    .hidden = hidden,
    .logprobs = logprobs,
    .tokens = tokens,
    .counters = counters,
    .print = print_plans,
    .state = &metal_state,
    .debug = {.plan = metal_debug_plan,
        .begin = metal_debug_begin,
        .run = metal_debug_run,
        .end = metal_debug_end},
};
