/* The functions of struct backend: devices, counters and printing; the others are in files of their own. */
#include "backend/common/print.h"
#include "backend/vulkan/vulkan_executor.h"

#include <stdio.h>

static struct salvo_device device(uint32_t number)
{
    const struct vulkan_physical *physical = vulkan_device_at(number);
    if (!physical)
        return (struct salvo_device){.backend = "vulkan", .number = number, .name = "", .features = ""};
    return (struct salvo_device){
        .backend = "vulkan",
        .number = number,
        .name = physical->name,
        .features = physical->feature_names,
        .memory = physical->memory,
        .software = physical->type == VK_PHYSICAL_DEVICE_TYPE_CPU,
    };
}

static const char *why_none(void)
{
    return vulkan_instance() ? "no driver has a device with Vulkan 1.1 and compute"
                             : "neither a Vulkan loader nor the driver that SALVO_VULKAN_ICD names was found";
}

/* Devices are sorted, the best first. If the best is a processor, the CPU backend is faster. */
static bool auto_skips(void)
{
    const struct vulkan_physical *best = vulkan_device_at(0);
    return !best || best->type == VK_PHYSICAL_DEVICE_TYPE_CPU;
}

/* A device is idle between two submissions. The versions of recurrent state suffice for three steps of one
 * token in flight, but for two of several tokens. */
static struct backend_info info(const struct executor *executor)
{
    return (struct backend_info){.isa = executor->device.physical->feature_names,
        .in_flight = STEPS_IN_FLIGHT,
        .ahead = executor->state.recurrent_elements ? 1 : TOKENS_AHEAD,
        .fine_batches = executor->device.physical->features.coop_matrix,
        .state = &executor->state,
        .memory_free = executor->free_before};
}

static struct backend_counters counters(const struct executor *executor)
{
    struct backend_counters result = executor->counters;
    result.bytes_read_back += executor->transfer.bytes_read;
    result.creations_after_load = vulkan_objects(executor) - executor->objects_at_load;
    return result;
}

static void print_plans(
    const struct executor *executor, void (*line)(void *user, const char *text), void *user)
{
    char text[640];
    const struct vulkan_plan *const plans[] = {&executor->single, &executor->batch};
    uint64_t imported = 0;
    for (uint32_t i = 0; i < executor->imported_buffers; i++)
        imported += executor->weight_buffers[i].size;
    snprintf(text, sizeof text,
        "vulkan %s, %s, weights in planes: %llu bytes, in the mapped file: %llu bytes, %u pipelines",
        executor->device.physical->name, executor->device.physical->feature_names,
        (unsigned long long)(executor->counters.weight_bytes - imported), (unsigned long long)imported,
        executor->pipelines.count);
    line(user, text);
    const struct printer printer = {line, user};
    const struct backend_counters counted = counters(executor);
    print_memory(printer, &counted, executor->free_before);
    for (size_t i = 0; i < 2; i++)
        print_dispatched_plan(
            printer, executor->program, &plans[i]->lowered, plans[i]->dispatch_count, plans[i]->barriers);
}

static enum salvo_status measure_idle(struct executor *executor, bool on)
{
    enum salvo_status status = step_queue_complete_all(&executor->queue);
    return status == SALVO_OK ? vulkan_idle_measure(executor, on) : status;
}

const struct backend vulkan_backend = {
    .name = "vulkan",
    .device_count = vulkan_device_count,
    .device = device,
    .why_none = why_none,
    .auto_skips = auto_skips,
    .open = vulkan_executor_open,
    .close = vulkan_executor_close,
    .info = info,
    .submit = vulkan_submit,
    .wait = vulkan_wait,
    .chunk = vulkan_chunk,
    .progress = vulkan_progress,
    .logits = vulkan_logits,
    .hidden = vulkan_hidden,
    .logprobs = vulkan_logprobs,
    .set_mask = vulkan_set_mask,
    .tokens = vulkan_tokens,
    .counters = counters,
    .print = print_plans,
    .state = &vulkan_state,
    .profile = {.time_phases = vulkan_profile, .measure_idle = measure_idle},
    .debug = {.plan = vulkan_debug_plan,
        .begin = vulkan_debug_begin,
        .run = vulkan_debug_run,
        .end = vulkan_debug_end},
};
