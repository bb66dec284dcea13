/* Turns dispatches into descriptor sets and commands, with a barrier before each dispatch that accesses data
 * that an earlier one writes. */
#include "backend/vulkan/vulkan_executor.h"

#include "base/memory.h"

static enum salvo_status upload_tables(struct executor *executor, struct vulkan_plan *plan)
{
    enum salvo_status status = SALVO_OK;
    const uint64_t row_bytes = plan->row_op_count * sizeof *plan->row_ops,
                   matrix_bytes = plan->matrix_count * sizeof *plan->matrices;
    TRY(vulkan_buffer_open(&executor->device, row_bytes, PLACE_DEVICE, "row ops", &plan->row_table));
    TRY(vulkan_buffer_open(&executor->device, matrix_bytes, PLACE_DEVICE, "matrices", &plan->matrix_table));
    TRY(vulkan_write(&executor->transfer, &plan->row_table, 0, plan->row_ops, row_bytes));
    TRY(vulkan_write(&executor->transfer, &plan->matrix_table, 0, plan->matrices, matrix_bytes));
cleanup:
    return status;
}

static void write_set(const struct executor *executor, const struct dispatch *dispatch, VkDescriptorSet set)
{
    VkDescriptorBufferInfo buffers[BIND_COUNT];
    VkWriteDescriptorSet writes[BIND_COUNT];
    for (uint32_t i = 0; i < BIND_COUNT; i++) {
        const struct memory_use *bound = &dispatch->bindings[i];
        const struct vulkan_buffer *buffer = bound->memory;
        const uint64_t rest = buffer->size - bound->offset;
        buffers[i] =
            (VkDescriptorBufferInfo){buffer->handle, bound->offset, bound->size < rest ? bound->size : rest};
        writes[i] = (VkWriteDescriptorSet){.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
            .dstSet = set,
            .dstBinding = i,
            .descriptorCount = 1,
            .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
            .pBufferInfo = &buffers[i]};
    }
    executor->device.call.UpdateDescriptorSets(executor->device.handle, BIND_COUNT, writes, 0, NULL);
}

static bool binds_the_same(const struct dispatch *a, const struct dispatch *b)
{
    for (uint32_t i = 0; i < BIND_COUNT; i++) {
        const struct memory_use *x = &a->bindings[i], *y = &b->bindings[i];
        if (x->memory != y->memory || x->offset != y->offset || x->size != y->size)
            return false;
    }
    return true;
}

/* Numbers the distinct sets; firsts[n] is the first dispatch that uses set n. Both are [dispatches]. */
static uint32_t number_sets(const struct vulkan_plan *plan, uint32_t *numbers, uint32_t *firsts)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->dispatch_count; i++) {
        uint32_t number = 0;
        while (number < count && !binds_the_same(&plan->dispatches[firsts[number]], &plan->dispatches[i]))
            number++;
        if (number == count)
            firsts[count++] = i;
        numbers[i] = number;
    }
    return count;
}

static struct dispatch_uses uses_of(const void *plan, uint32_t dispatch)
{
    return (struct dispatch_uses){
        ((const struct vulkan_plan *)plan)->dispatches[dispatch].bindings, BIND_COUNT};
}

enum salvo_status vulkan_plan_prepare(struct executor *executor, struct vulkan_plan *plan)
{
    enum salvo_status status = SALVO_OK;
    const struct vulkan_device *device = &executor->device;
    VkDescriptorSetLayout *layouts = NULL;
    VkDescriptorSet *different = NULL;
    uint32_t *numbers = NULL, *firsts = NULL;
    TRY(upload_tables(executor, plan));
    TRY(NEW(&layouts, plan->dispatch_count));
    TRY(NEW(&different, plan->dispatch_count));
    TRY(NEW(&numbers, plan->dispatch_count));
    TRY(NEW(&firsts, plan->dispatch_count));
    TRY(NEW(&plan->sets, plan->dispatch_count));
    TRY(NEW(&plan->waits, plan->dispatch_count));
    plan->barriers = find_barriers(plan, plan->dispatch_count, uses_of, plan->waits);
    const uint32_t count = number_sets(plan, numbers, firsts);
    const VkDescriptorPoolSize size = {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, count * (uint32_t)BIND_COUNT};
    const VkDescriptorPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
        .maxSets = count,
        .poolSizeCount = 1,
        .pPoolSizes = &size};
    CHECK(device, CreateDescriptorPool, (device->handle, &pool, NULL, &plan->pool));
    for (uint32_t i = 0; i < count; i++)
        layouts[i] = executor->pipelines.set_layout;
    const VkDescriptorSetAllocateInfo sets = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
        .descriptorPool = plan->pool,
        .descriptorSetCount = count,
        .pSetLayouts = layouts};
    CHECK(device, AllocateDescriptorSets, (device->handle, &sets, different));
    for (uint32_t i = 0; i < count; i++)
        write_set(executor, &plan->dispatches[firsts[i]], different[i]);
    for (uint32_t i = 0; i < plan->dispatch_count; i++)
        plan->sets[i] = different[numbers[i]];
    const VkCommandBufferAllocateInfo commands = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
        .commandPool = executor->command_pool,
        .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
        .commandBufferCount = 1};
    CHECK(device, AllocateCommandBuffers, (device->handle, &commands, &plan->commands));
    if (plan == &executor->single)
        CHECK(device, AllocateCommandBuffers, (device->handle, &commands, &plan->commands_ahead));
    CHECK(device, AllocateCommandBuffers, (device->handle, &commands, &plan->sampling));
cleanup:
    memory_free(layouts);
    memory_free(different);
    memory_free(numbers);
    memory_free(firsts);
    return status;
}

void vulkan_plan_close(struct executor *executor, struct vulkan_plan *plan)
{
    const struct vulkan_device *device = &executor->device;
    if (plan->commands)
        device->call.FreeCommandBuffers(device->handle, executor->command_pool, 1, &plan->commands);
    if (plan->commands_ahead)
        device->call.FreeCommandBuffers(device->handle, executor->command_pool, 1, &plan->commands_ahead);
    if (plan->sampling)
        device->call.FreeCommandBuffers(device->handle, executor->command_pool, 1, &plan->sampling);
    if (plan->pool)
        device->call.DestroyDescriptorPool(device->handle, plan->pool, NULL);
    vulkan_buffer_close(device, &plan->row_table);
    vulkan_buffer_close(device, &plan->matrix_table);
    memory_free(plan->dispatches);
    memory_free(plan->row_ops);
    memory_free(plan->matrices);
    memory_free(plan->sets);
    memory_free(plan->waits);
    *plan = (struct vulkan_plan){0};
}

static void add_barrier(const struct executor *executor, VkCommandBuffer commands, VkPipelineStageFlags from,
    VkAccessFlags written, VkPipelineStageFlags to, VkAccessFlags used)
{
    const VkMemoryBarrier barrier = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER, .srcAccessMask = written, .dstAccessMask = used};
    executor->device.call.CmdPipelineBarrier(commands, from, to, 0, 1, &barrier, 0, NULL, 0, NULL);
}

static void record_dispatches(const struct executor *executor, const struct vulkan_plan *plan, uint32_t first,
    uint32_t count, VkCommandBuffer commands, VkQueryPool stamps)
{
    const struct vulkan_device *device = &executor->device;
    const VkAccessFlags shader = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT;
    const VkPipelineStageFlags compute = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT;
    uint32_t pipeline = UINT32_MAX;
    for (uint32_t i = first; i < first + count; i++) {
        const struct dispatch *dispatch = &plan->dispatches[i];
        if (i > first && plan->waits[i])
            add_barrier(executor, commands, compute, VK_ACCESS_SHADER_WRITE_BIT, compute, shader);
        if (dispatch->pipeline != pipeline)
            device->call.CmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE,
                executor->pipelines.made[dispatch->pipeline].handle);
        pipeline = dispatch->pipeline;
        if (i == first || plan->sets[i] != plan->sets[i - 1])
            device->call.CmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_COMPUTE,
                executor->pipelines.layout, 0, 1, &plan->sets[i], 0, NULL);
        device->call.CmdPushConstants(commands, executor->pipelines.layout, VK_SHADER_STAGE_COMPUTE_BIT, 0,
            dispatch->argument_bytes, dispatch->arguments);
        device->call.CmdDispatch(commands, dispatch->groups[0], dispatch->groups[1], dispatch->groups[2]);
        if (stamps)
            device->call.CmdWriteTimestamp(
                commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, stamps, i - first + 1);
    }
}

/* After all earlier submissions, steps and copies. */
static enum salvo_status begin_commands(const struct executor *executor, VkCommandBuffer commands)
{
    enum salvo_status status = SALVO_OK;
    const struct vulkan_device *device = &executor->device;
    const VkPipelineStageFlags compute = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT;
    const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
        .flags = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT}; /* several steps can be in flight */
    CHECK(device, BeginCommandBuffer, (commands, &begin));
    add_barrier(executor, commands, compute | VK_PIPELINE_STAGE_TRANSFER_BIT,
        VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT, compute,
        VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT);
cleanup:
    return status;
}

/* The host reads results that the shaders have written. */
static enum salvo_status end_commands(const struct executor *executor, VkCommandBuffer commands)
{
    enum salvo_status status = SALVO_OK;
    add_barrier(executor, commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_WRITE_BIT,
        VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT);
    CHECK(&executor->device, EndCommandBuffer, (commands));
cleanup:
    return status;
}

enum salvo_status vulkan_plan_record_sampling(struct executor *executor, struct vulkan_plan *plan)
{
    enum salvo_status status = SALVO_OK;
    const VkPipelineStageFlags compute = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT;
    TRY(begin_commands(executor, plan->sampling));
    record_dispatches(executor, plan, 0, 1, plan->sampling, VK_NULL_HANDLE);
    add_barrier(executor, plan->sampling, compute, VK_ACCESS_SHADER_WRITE_BIT, compute,
        VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT);
    record_dispatches(executor, plan, plan->dispatch_count - 1, 1, plan->sampling, VK_NULL_HANDLE);
    TRY(end_commands(executor, plan->sampling));
cleanup:
    return status;
}

enum salvo_status vulkan_plan_record(struct executor *executor, struct vulkan_plan *plan, uint32_t first,
    uint32_t count, uint32_t times, VkCommandBuffer commands, VkQueryPool stamps)
{
    enum salvo_status status = SALVO_OK;
    const struct vulkan_device *device = &executor->device;
    const VkAccessFlags shader = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT;
    const VkPipelineStageFlags compute = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT;
    TRY(begin_commands(executor, commands));
    if (stamps) {
        device->call.CmdResetQueryPool(commands, stamps, 0, count + 1);
        device->call.CmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, stamps, 0);
    }
    for (uint32_t i = 0; i < times; i++) {
        if (i > 0)
            add_barrier(executor, commands, compute, VK_ACCESS_SHADER_WRITE_BIT, compute, shader);
        record_dispatches(executor, plan, first, count, commands, stamps);
    }
    TRY(end_commands(executor, commands));
cleanup:
    return status;
}
