/* Idle time of the device between two steps: timestamps before and after each submission. They have command
 * buffers of their own, because a plan is recorded once, and are submitted only while idle time is measured.
 */
#include "backend/vulkan/vulkan_executor.h"

static enum salvo_status record_stamp(
    struct executor *executor, VkCommandBuffer commands, uint32_t entry, bool at_end)
{
    enum salvo_status status = SALVO_OK;
    const struct vulkan_device *device = &executor->device;
    VkQueryPool stamps = executor->idle.stamps;
    const VkPipelineStageFlags compute = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT;
    const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
        .flags = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT};
    CHECK(device, BeginCommandBuffer, (commands, &begin));
    if (!at_end) { /* a step begins when all earlier steps have ended */
        device->call.CmdPipelineBarrier(commands, compute, compute, 0, 0, NULL, 0, NULL, 0, NULL);
        device->call.CmdResetQueryPool(commands, stamps, entry * 2, 2);
    }
    device->call.CmdWriteTimestamp(commands, compute, stamps, entry * 2 + at_end);
    CHECK(device, EndCommandBuffer, (commands));
cleanup:
    return status;
}

static enum salvo_status open_idle(struct executor *executor)
{
    enum salvo_status status = SALVO_OK;
    const struct vulkan_device *device = &executor->device;
    struct vulkan_idle *idle = &executor->idle;
    const VkQueryPoolCreateInfo queries = {.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
        .queryType = VK_QUERY_TYPE_TIMESTAMP,
        .queryCount = RING_ENTRIES * 2};
    const VkCommandBufferAllocateInfo commands = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
        .commandPool = executor->command_pool,
        .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
        .commandBufferCount = RING_ENTRIES};
    if (!device->physical->limits.timestampComputeAndGraphics)
        TRY(fail(SALVO_ERROR_UNSUPPORTED, "%s has no timestamps", device->physical->name));
    CHECK(device, CreateQueryPool, (device->handle, &queries, NULL, &idle->stamps));
    CHECK(device, AllocateCommandBuffers, (device->handle, &commands, idle->begin));
    CHECK(device, AllocateCommandBuffers, (device->handle, &commands, idle->end));
    for (uint32_t i = 0; i < RING_ENTRIES; i++) {
        TRY(record_stamp(executor, idle->begin[i], i, false));
        TRY(record_stamp(executor, idle->end[i], i, true));
    }
cleanup:
    if (status != SALVO_OK)
        vulkan_idle_close(executor);
    return status;
}

enum salvo_status vulkan_idle_measure(struct executor *executor, bool on)
{
    enum salvo_status status = SALVO_OK;
    if (on && !executor->idle.stamps)
        TRY(open_idle(executor));
    executor->idle.is_measured = on;
    executor->idle.last_ticket = 0;
cleanup:
    return status;
}

void vulkan_idle_note(struct executor *executor, const struct pending_step *pending)
{
    const struct vulkan_device *device = &executor->device;
    struct vulkan_idle *idle = &executor->idle;
    const uint32_t entry = (uint32_t)(pending->ticket % RING_ENTRIES);
    uint64_t stamps[2];
    if (device->call.GetQueryPoolResults(device->handle, idle->stamps, entry * 2, 2, sizeof stamps, stamps,
            sizeof *stamps, VK_QUERY_RESULT_64_BIT) != VK_SUCCESS)
        return;
    if (idle->last_ticket && idle->last_ticket + 1 == pending->ticket && stamps[0] > idle->last_end)
        executor->counters.idle_seconds +=
            (double)(stamps[0] - idle->last_end) * (double)device->physical->limits.timestampPeriod * 1e-9;
    idle->last_ticket = pending->ticket;
    idle->last_end = stamps[1];
}

void vulkan_idle_close(struct executor *executor)
{
    const struct vulkan_device *device = &executor->device;
    struct vulkan_idle *idle = &executor->idle;
    if (idle->stamps)
        device->call.DestroyQueryPool(device->handle, idle->stamps, NULL);
    for (uint32_t i = 0; i < RING_ENTRIES; i++) {
        if (idle->begin[i])
            device->call.FreeCommandBuffers(device->handle, executor->command_pool, 1, &idle->begin[i]);
        if (idle->end[i])
            device->call.FreeCommandBuffers(device->handle, executor->command_pool, 1, &idle->end[i]);
    }
    *idle = (struct vulkan_idle){0};
}
