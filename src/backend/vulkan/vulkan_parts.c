/* What one submission buys: for measurements a token is handed over in parts, with a wait after each. */
#include "backend/vulkan/vulkan_executor.h"

#include "base/log.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

/* Dispatches of a part; 0: all of them, as ever, and always for several tokens. */
static uint32_t dispatches_each(const struct executor *executor, const struct vulkan_plan *plan)
{
    const char *wanted = getenv("SALVO_VULKAN_LOWERING");
    const uint32_t layers = executor->program->layers;
    if (!wanted || strcmp(wanted, "whole") == 0 || plan->lowered.capacity[ROWS_TOKENS] > 1)
        return 0;
    if (strcmp(wanted, "op") == 0)
        return 1;
    if (strcmp(wanted, "layer") == 0)
        return layers ? (plan->dispatch_count + layers - 1) / layers : 1;
    log_line(SALVO_LOG_WARNING, "SALVO_VULKAN_LOWERING cannot be '%s': whole, layer or op", wanted);
    return 0;
}

enum salvo_status vulkan_parts_open(struct executor *executor, struct vulkan_plan *plan)
{
    enum salvo_status status = SALVO_OK;
    const struct vulkan_device *device = &executor->device;
    const uint32_t each = dispatches_each(executor, plan);
    if (!each)
        return SALVO_OK;
    const uint32_t count = (plan->dispatch_count + each - 1) / each;
    const VkCommandBufferAllocateInfo commands = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
        .commandPool = executor->command_pool,
        .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
        .commandBufferCount = count};
    TRY(NEW(&plan->parts, count));
    CHECK(device, AllocateCommandBuffers, (device->handle, &commands, plan->parts));
    plan->part_count = count;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t first = i * each,
                       left = plan->dispatch_count - first < each ? plan->dispatch_count - first : each;
        TRY(vulkan_plan_record(executor, plan, first, left, 1, plan->parts[i], VK_NULL_HANDLE));
    }
cleanup:
    return status;
}

void vulkan_parts_close(struct executor *executor, struct vulkan_plan *plan)
{
    const struct vulkan_device *device = &executor->device;
    if (plan->part_count)
        device->call.FreeCommandBuffers(
            device->handle, executor->command_pool, plan->part_count, plan->parts);
    memory_free(plan->parts);
}

enum salvo_status vulkan_parts_run(struct executor *executor, const struct vulkan_plan *plan, uint32_t repeat)
{
    enum salvo_status status = SALVO_OK;
    for (uint32_t i = 0; i + 1 < plan->part_count * repeat; i++) {
        TRY(vulkan_submit_and_wait(
            &executor->device, plan->parts[i % plan->part_count], executor->transfer.fence));
        executor->counters.submissions++;
    }
cleanup:
    return status;
}
