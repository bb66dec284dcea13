/* The CUDA backend as the engine sees it. */
#include "backend/common/print.h"
#include "backend/common/steps.h"
#include "backend/cuda/cuda_executor.h"

#include <stdio.h>

static uint32_t device_count(void)
{
    uint32_t count = 0;
    while (cuda_device_at(count))
        count++;
    return count;
}

static struct salvo_device device(uint32_t number)
{
    return cuda_device_at(number)->device;
}

/* If the device continues from token to token itself, a few tokens per launch hide the cost of a launch. */
static struct backend_info info(const struct executor *executor)
{
    return (struct backend_info){.isa = "",
        .in_flight = CUDA_STEP_RING_ENTRIES / 2,
        .ahead = 8,
        .most_ahead = cuda_most_ahead(executor),
        .fine_batches = executor->halves,
        .state = &executor->state,
        .memory_free = executor->free_before,
        .bytes_per_second = executor->device->bytes_per_second};
}

static uint32_t chunk(const struct executor *executor)
{
    return executor->pace.chunk;
}

static const float *logits(struct executor *executor, uint32_t row)
{
    const size_t bytes = executor->program->vocabulary * sizeof(float);
    const struct cuda_plan *plan = executor->last_plan;
    if (!plan || cuda_context_enter(&executor->context) != SALVO_OK)
        return NULL;
    const cuda_address rows = executor->last_was_serial
                                  ? executor->serial_logits
                                  : plan->scratch.arena + plan->scratch.offsets[executor->program->logits],
                       from = rows + row * (uint64_t)bytes;
    enum salvo_status status = cuda_copy_out(executor, executor->host_logits, from, bytes);
    cuda_context_leave(&executor->context);
    executor->counters.bytes_read_back += bytes;
    return status == SALVO_OK ? executor->host_logits : NULL;
}

static const struct sampling_logprob *logprobs(struct executor *executor, uint32_t row)
{
    const struct sampling_logprob *from = executor->logprobs + row * (size_t)(1 + MAX_TOP_LOGPROBS);
    executor->counters.bytes_read_back += (1 + MAX_TOP_LOGPROBS) * sizeof *from;
    return from;
}

static const int32_t *tokens(struct executor *executor, uint32_t slot)
{
    return executor->host_tokens + slot_tokens_at(&executor->options, slot);
}

static struct backend_counters counters(const struct executor *executor)
{
    struct backend_counters result = executor->counters;
    result.creations_after_load = executor->context.creations - executor->creations_at_load;
    result.scratch_bytes += executor->single.tables.bytes;
    for (uint32_t i = 0; i < executor->many_count; i++)
        result.scratch_bytes += executor->many[i].tables.bytes;
    return result;
}

/* ---- Printing ---- */

static void print_cuda_plan(
    struct printer printer, const struct executor *executor, const struct cuda_plan *plan)
{
    char commands[40];
    const struct cuda_tables *tables = &plan->tables;
    snprintf(commands, sizeof commands, ", %u %s",
        tables->node_count ? tables->node_count : tables->phase_count,
        tables->node_count ? "launches" : "phases");
    print_plan(printer, executor->program, &plan->plan, commands);
}

static void print_plans(
    const struct executor *executor, void (*line)(void *user, const char *text), void *user)
{
    char text[512];
    const struct printer printer = {line, user};
    const struct backend_counters counted = counters(executor);
    snprintf(text, sizeof text,
        "cuda %s, %u blocks; one token: %s; weights packed in tiles of %d rows by %d columns",
        executor->context.name, executor->blocks,
        executor->resident ? "one launch on all multiprocessors" : "a graph of one launch per phase",
        CUDA_TILE_ROWS, CUDA_TILE_COLUMNS);
    line(user, text);
    print_memory(printer, &counted, executor->free_before);
    print_cuda_plan(printer, executor, &executor->single);
    for (uint32_t i = 0; i < executor->many_count; i++)
        print_cuda_plan(printer, executor, &executor->many[i]);
}

const struct backend cuda_backend = {
    .name = "cuda",
    .device_count = device_count,
    .device = device,
    .why_none = cuda_devices_why_none,
    .unusable = cuda_devices_unusable,
    .rounds_finely = true,
    .open = cuda_executor_open,
    .close = cuda_executor_close,
    .info = info,
    .submit = cuda_step_submit,
    .wait = cuda_step_wait,
    .set_mask = cuda_set_mask,
    .chunk = chunk,
    .progress = cuda_step_progress,
    .logits = logits,
    .logprobs = logprobs,
    .hidden = cuda_hidden,
    .tokens = tokens,
    .counters = counters,
    .print = print_plans,
    .state = &cuda_state,
    .profile = {.time_phases = cuda_profile},
    .debug = {.plan = cuda_debug_plan,
        .begin = cuda_debug_begin,
        .run = cuda_debug_run,
        .end = cuda_debug_end},
};
