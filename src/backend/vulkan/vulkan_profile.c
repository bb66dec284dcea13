/* Times each dispatch of a step: the plan's commands recorded again, with a timestamp after each dispatch. */
#include "backend/vulkan/vulkan_executor.h"

#include "base/memory.h"

struct profiling {
    VkQueryPool queries;
    VkCommandBuffer commands;
    uint64_t *stamps; /* [dispatches + 1] */
    double *seconds;  /* [groups + 1]: the last is take.comp */
};

static enum salvo_status open_profiling(
    struct executor *executor, struct vulkan_plan *plan, struct profiling *out)
{
    enum salvo_status status = SALVO_OK;
    const struct vulkan_device *device = &executor->device;
    const VkQueryPoolCreateInfo queries = {.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
        .queryType = VK_QUERY_TYPE_TIMESTAMP,
        .queryCount = plan->dispatch_count + 1};
    const VkCommandBufferAllocateInfo commands = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
        .commandPool = executor->command_pool,
        .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
        .commandBufferCount = 1};
    if (!device->physical->limits.timestampComputeAndGraphics)
        TRY(fail(SALVO_ERROR_UNSUPPORTED, "%s has no timestamps", device->physical->name));
    TRY(NEW(&out->stamps, plan->dispatch_count + 1));
    TRY(NEW(&out->seconds, plan->lowered.group_count + 1));
    CHECK(device, CreateQueryPool, (device->handle, &queries, NULL, &out->queries));
    CHECK(device, AllocateCommandBuffers, (device->handle, &commands, &out->commands));
    TRY(vulkan_plan_record(executor, plan, 0, plan->dispatch_count, 1, out->commands, out->queries));
cleanup:
    return status;
}

static void close_profiling(struct executor *executor, struct profiling *profiling)
{
    const struct vulkan_device *device = &executor->device;
    if (profiling->commands)
        device->call.FreeCommandBuffers(device->handle, executor->command_pool, 1, &profiling->commands);
    if (profiling->queries)
        device->call.DestroyQueryPool(device->handle, profiling->queries, NULL);
    memory_free(profiling->stamps);
    memory_free(profiling->seconds);
}

/* Runs the step once and reverts its commit. */
static enum salvo_status run_once(
    struct executor *executor, const struct step *step, const struct profiling *profiling)
{
    enum salvo_status status = SALVO_OK;
    struct recurrent_slot *slot = &executor->queue.slots[step->runs[0].slot];
    const struct recurrent_slot before = *slot;
    struct pending_step *pending;
    TRY(vulkan_step_begin(executor, step, &pending));
    TRY(vulkan_submit_and_wait(
        &executor->device, profiling->commands, executor->fences[pending->ticket % RING_ENTRIES]));
    executor->queue.completed = executor->queue.submitted;
    *slot = before;
cleanup:
    return status;
}

static uint64_t bytes_of(const struct executor *executor, const struct group *group, uint32_t positions)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < group->op_count; i++) {
        const struct op *op = &executor->program->ops[group->first_op + i];
        if (op->kind == OP_MATMUL) {
            const struct vulkan_weight *weight = &executor->weights[op->inputs[0]];
            for (uint32_t j = 0; j < weight->slice_count; j++)
                bytes += weight->slices[j].bytes;
        } else if (op->kind == OP_ATTEND) {
            bytes += UINT64_C(8) * positions * executor->state.caches[op->attend.key_state].heads *
                     vulkan_head_words(executor, op->attend.key_state);
        }
    }
    return bytes;
}

enum salvo_status vulkan_profile(struct executor *executor, const struct step *step, uint32_t repetitions,
    backend_profile_function function, void *user)
{
    enum salvo_status status = SALVO_OK;
    const struct vulkan_device *device = &executor->device;
    struct vulkan_plan *plan = step->token_count == 1 ? &executor->single : &executor->batch;
    struct profiling profiling = {0};
    const uint32_t groups = plan->lowered.group_count;
    char text[512];
    TRY(step_queue_complete_all(&executor->queue));
    TRY(open_profiling(executor, plan, &profiling));
    for (uint32_t i = 0; i < repetitions; i++) {
        const size_t count = plan->dispatch_count + 1;
        TRY(run_once(executor, step, &profiling));
        CHECK(device, GetQueryPoolResults,
            (device->handle, profiling.queries, 0, (uint32_t)count, count * sizeof(uint64_t),
                profiling.stamps, sizeof(uint64_t), VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT));
        for (uint32_t j = 0; j < plan->dispatch_count; j++) {
            const double ticks = (double)(profiling.stamps[j + 1] - profiling.stamps[j]);
            profiling.seconds[j == 0 ? groups : plan->dispatches[j].group] +=
                ticks * (double)device->physical->limits.timestampPeriod * 1e-9 / repetitions;
        }
    }
    function(user, &(struct salvo_profile_phase){
                       .kind = "take", .operations = "take the step", .seconds = profiling.seconds[groups]});
    for (uint32_t i = 0; i < groups; i++) {
        const struct group *group = &plan->lowered.groups[i];
        lower_describe_ops(executor->program, &plan->lowered, i, text, sizeof text);
        function(user, &(struct salvo_profile_phase){.kind = group_kind_name(group->kind),
                           .operations = text,
                           .seconds = profiling.seconds[i],
                           .bytes = bytes_of(executor, group, step->runs[0].first + step->runs[0].count)});
    }
cleanup:
    close_profiling(executor, &profiling);
    return status;
}
