#include "backend/vulkan/vulkan_memory.h"

#include <string.h>

static const uint32_t no_type = UINT32_MAX;

static uint32_t find_type(const struct vulkan_device *device, uint32_t allowed, VkMemoryPropertyFlags wanted)
{
    for (uint32_t i = 0; i < device->memory.memoryTypeCount; i++) {
        if ((allowed >> i & 1) && (device->memory.memoryTypes[i].propertyFlags & wanted) == wanted)
            return i;
    }
    return no_type;
}

/* The best memory type for a place: the property sets are tried in order of preference. */
static uint32_t choose_type(const struct vulkan_device *device, uint32_t allowed, enum vulkan_place place)
{
    const VkMemoryPropertyFlags local = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
                                visible = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                                          VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
                                cached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
    const bool host_local = device->physical->features.host_local;
    const VkMemoryPropertyFlags wishes[][3] = {
        [PLACE_DEVICE] = {local, 0, 0},
        [PLACE_TO_DEVICE] = {host_local ? local | visible : visible, visible, visible},
        [PLACE_TO_HOST] = {visible | cached, visible, visible},
    };
    for (int i = 0; i < 3; i++) {
        uint32_t type = find_type(device, allowed, wishes[place][i]);
        if (type != no_type)
            return type;
    }
    return no_type;
}

enum salvo_status vulkan_buffer_open(const struct vulkan_device *device, uint64_t size,
    enum vulkan_place place, const char *what, struct vulkan_buffer *out)
{
    enum salvo_status status = SALVO_OK;
    const VkMemoryPropertyFlags visible =
        VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    size = size ? (size + 15) / 16 * 16 : 16;
    *out = (struct vulkan_buffer){.size = size};
    const VkBufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
        .size = size,
        .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                 VK_BUFFER_USAGE_TRANSFER_DST_BIT,
        .sharingMode = VK_SHARING_MODE_EXCLUSIVE,
    };
    VkMemoryRequirements needs;
    device->usage->buffers++;
    CHECK(device, CreateBuffer, (device->handle, &info, NULL, &out->handle));
    device->call.GetBufferMemoryRequirements(device->handle, out->handle, &needs);
    const uint32_t type = choose_type(device, needs.memoryTypeBits, place);
    if (type == no_type)
        TRY(fail(SALVO_ERROR_UNSUPPORTED, "%s has no memory for %s", device->physical->name, what));
    const uint32_t heap = device->memory.memoryTypes[type].heapIndex;
    const uint64_t left = vulkan_heap_free(device, heap);
    if (needs.size > left) {
        TRY(fail(SALVO_ERROR_MEMORY, "%s has %llu MB free of %llu MB", device->physical->name,
            (unsigned long long)(left / 1000000),
            (unsigned long long)(device->memory.memoryHeaps[heap].size / 1000000)));
    }
    const VkMemoryAllocateInfo allocation = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
        .allocationSize = needs.size,
        .memoryTypeIndex = type};
    CHECK(device, AllocateMemory, (device->handle, &allocation, NULL, &out->memory));
    out->heap = heap;
    out->taken = needs.size;
    device->usage->bytes[heap] += needs.size;
    CHECK(device, BindBufferMemory, (device->handle, out->handle, out->memory, 0));
    /* Memory that both device and host can access is mapped, except on a discrete device, where small writes
     * are slow. */
    bool is_visible = (device->memory.memoryTypes[type].propertyFlags & visible) == visible;
    if (is_visible &&
        (place != PLACE_DEVICE || device->physical->type != VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU))
        CHECK(device, MapMemory, (device->handle, out->memory, 0, VK_WHOLE_SIZE, 0, &out->mapped));
cleanup:
    if (status != SALVO_OK) {
        vulkan_buffer_close(device, out);
        status = fail_within(status, "%llu MB for %s: ", (unsigned long long)(size / 1000000), what);
    }
    return status;
}

bool vulkan_buffer_import(
    const struct vulkan_device *device, const void *memory, uint64_t size, struct vulkan_buffer *out)
{
    const VkExternalMemoryHandleTypeFlagBits kind = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;
    union {
        const void *from;
        void *to;
    } pointer = {memory}; /* only read */
    VkMemoryHostPointerPropertiesEXT properties = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT};
    const VkExternalMemoryBufferCreateInfo external = {
        .sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO, .handleTypes = kind};
    const VkBufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
        .pNext = &external,
        .size = size,
        .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT,
        .sharingMode = VK_SHARING_MODE_EXCLUSIVE,
    };
    VkMemoryRequirements needs = {0};
    *out = (struct vulkan_buffer){.size = size};
    if (!device->host_pointer ||
        device->host_pointer(device->handle, kind, pointer.to, &properties) != VK_SUCCESS ||
        device->call.CreateBuffer(device->handle, &info, NULL, &out->handle) != VK_SUCCESS)
        return false;
    device->usage->buffers++;
    device->call.GetBufferMemoryRequirements(device->handle, out->handle, &needs);
    const uint32_t type = find_type(device, needs.memoryTypeBits & properties.memoryTypeBits, 0);
    const VkImportMemoryHostPointerInfoEXT import = {
        .sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT,
        .handleType = kind,
        .pHostPointer = pointer.to};
    const VkMemoryAllocateInfo allocation = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
        .pNext = &import,
        .allocationSize = size,
        .memoryTypeIndex = type};
    if (type == no_type || needs.size > size ||
        device->call.AllocateMemory(device->handle, &allocation, NULL, &out->memory) != VK_SUCCESS ||
        device->call.BindBufferMemory(device->handle, out->handle, out->memory, 0) != VK_SUCCESS) {
        vulkan_buffer_close(device, out);
        return false;
    }
    return true;
}

void vulkan_buffer_close(const struct vulkan_device *device, struct vulkan_buffer *buffer)
{
    if (buffer->handle)
        device->call.DestroyBuffer(device->handle, buffer->handle, NULL);
    if (buffer->memory)
        device->call.FreeMemory(device->handle, buffer->memory, NULL);
    if (buffer->taken)
        device->usage->bytes[buffer->heap] -= buffer->taken;
    *buffer = (struct vulkan_buffer){0};
}

enum salvo_status vulkan_submit_and_wait(
    const struct vulkan_device *device, VkCommandBuffer commands, VkFence fence)
{
    enum salvo_status status = SALVO_OK;
    const VkSubmitInfo submit = {
        .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO, .commandBufferCount = 1, .pCommandBuffers = &commands};
    CHECK(device, ResetFences, (device->handle, 1, &fence));
    CHECK(device, QueueSubmit, (device->queue, 1, &submit, fence));
    CHECK(device, WaitForFences, (device->handle, 1, &fence, VK_TRUE, VULKAN_TIMEOUT_NS));
cleanup:
    return status;
}

enum salvo_status vulkan_transfer_open(const struct vulkan_device *device, struct vulkan_transfer *out)
{
    enum salvo_status status = SALVO_OK;
    *out = (struct vulkan_transfer){.device = device};
    const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
        .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
        .queueFamilyIndex = device->physical->queue_family};
    CHECK(device, CreateCommandPool, (device->handle, &pool, NULL, &out->pool));
    const VkCommandBufferAllocateInfo commands = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
        .commandPool = out->pool,
        .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
        .commandBufferCount = 1};
    CHECK(device, AllocateCommandBuffers, (device->handle, &commands, &out->commands));
    const VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
    CHECK(device, CreateFence, (device->handle, &fence, NULL, &out->fence));
    TRY(vulkan_buffer_open(device, STAGING_BYTES, PLACE_TO_HOST, "staging", &out->staging));
cleanup:
    return status;
}

void vulkan_transfer_close(struct vulkan_transfer *transfer)
{
    const struct vulkan_device *device = transfer->device;
    if (!device)
        return;
    vulkan_buffer_close(device, &transfer->staging);
    if (transfer->fence)
        device->call.DestroyFence(device->handle, transfer->fence, NULL);
    if (transfer->pool)
        device->call.DestroyCommandPool(device->handle, transfer->pool, NULL);
    *transfer = (struct vulkan_transfer){0};
}

static enum salvo_status begin(struct vulkan_transfer *transfer)
{
    enum salvo_status status = SALVO_OK;
    const VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
        .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
    /* Makes the writes of earlier steps visible here, and the writes from here visible to later steps. */
    const VkMemoryBarrier barrier = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
        .dstAccessMask = VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT};
    CHECK(transfer->device, BeginCommandBuffer, (transfer->commands, &info));
    transfer->device->call.CmdPipelineBarrier(transfer->commands,
        VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_TRANSFER_BIT,
        0, 1, &barrier, 0, NULL, 0, NULL);
cleanup:
    return status;
}

static enum salvo_status end(struct vulkan_transfer *transfer)
{
    enum salvo_status status = SALVO_OK;
    const VkMemoryBarrier barrier = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
        .dstAccessMask = VK_ACCESS_HOST_READ_BIT | VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT};
    transfer->device->call.CmdPipelineBarrier(transfer->commands, VK_PIPELINE_STAGE_TRANSFER_BIT,
        VK_PIPELINE_STAGE_HOST_BIT | VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, 0, 1, &barrier, 0, NULL, 0, NULL);
    CHECK(transfer->device, EndCommandBuffer, (transfer->commands));
    TRY(vulkan_submit_and_wait(transfer->device, transfer->commands, transfer->fence));
cleanup:
    return status;
}

enum salvo_status vulkan_flush(struct vulkan_transfer *transfer)
{
    enum salvo_status status = SALVO_OK;
    const bool has_any = transfer->staged > 0;
    transfer->staged = 0; /* also after a failure, so that the next copy starts empty */
    if (has_any)
        TRY(end(transfer));
cleanup:
    return status;
}

enum salvo_status vulkan_write_later(struct vulkan_transfer *transfer, struct vulkan_buffer *buffer,
    uint64_t offset, const void *data, uint64_t size)
{
    enum salvo_status status = SALVO_OK;
    if (size == 0) /* an empty table has no address */
        return SALVO_OK;
    if (buffer->mapped) {
        memcpy((uint8_t *)buffer->mapped + offset, data, size);
        return SALVO_OK;
    }
    for (uint64_t done = 0; done < size;) {
        if (transfer->staged == STAGING_BYTES)
            TRY(vulkan_flush(transfer));
        if (transfer->staged == 0)
            TRY(begin(transfer));
        const uint64_t room = STAGING_BYTES - transfer->staged, now = size - done < room ? size - done : room;
        const VkBufferCopy region = {.srcOffset = transfer->staged, .dstOffset = offset + done, .size = now};
        memcpy((uint8_t *)transfer->staging.mapped + transfer->staged, (const uint8_t *)data + done, now);
        transfer->device->call.CmdCopyBuffer(
            transfer->commands, transfer->staging.handle, buffer->handle, 1, &region);
        transfer->staged += now;
        done += now;
    }
cleanup:
    return status;
}

enum salvo_status vulkan_write(struct vulkan_transfer *transfer, struct vulkan_buffer *buffer,
    uint64_t offset, const void *data, uint64_t size)
{
    enum salvo_status status = SALVO_OK;
    TRY(vulkan_write_later(transfer, buffer, offset, data, size));
    TRY(vulkan_flush(transfer));
cleanup:
    return status;
}

enum salvo_status vulkan_read(struct vulkan_transfer *transfer, const struct vulkan_buffer *buffer,
    uint64_t offset, void *out, uint64_t size)
{
    enum salvo_status status = SALVO_OK;
    transfer->bytes_read += size;
    if (buffer->mapped) {
        memcpy(out, (const uint8_t *)buffer->mapped + offset, size);
        return SALVO_OK;
    }
    for (uint64_t done = 0; done < size;) {
        const uint64_t now = size - done < STAGING_BYTES ? size - done : STAGING_BYTES;
        const VkBufferCopy region = {.srcOffset = offset + done, .size = now};
        TRY(begin(transfer));
        transfer->device->call.CmdCopyBuffer(
            transfer->commands, buffer->handle, transfer->staging.handle, 1, &region);
        TRY(end(transfer));
        memcpy((uint8_t *)out + done, transfer->staging.mapped, now);
        done += now;
    }
cleanup:
    return status;
}

enum salvo_status vulkan_copy(struct vulkan_transfer *transfer, struct vulkan_buffer *to, uint64_t to_offset,
    const struct vulkan_buffer *from, uint64_t from_offset, uint64_t size)
{
    enum salvo_status status = SALVO_OK;
    const VkBufferCopy region = {.srcOffset = from_offset, .dstOffset = to_offset, .size = size};
    if (to->mapped && from->mapped) {
        memcpy((uint8_t *)to->mapped + to_offset, (const uint8_t *)from->mapped + from_offset, size);
        return SALVO_OK;
    }
    TRY(begin(transfer));
    transfer->device->call.CmdCopyBuffer(transfer->commands, from->handle, to->handle, 1, &region);
    TRY(end(transfer));
cleanup:
    return status;
}

enum salvo_status vulkan_clear(struct vulkan_transfer *transfer, struct vulkan_buffer *buffer)
{
    enum salvo_status status = SALVO_OK;
    TRY(begin(transfer));
    transfer->device->call.CmdFillBuffer(transfer->commands, buffer->handle, 0, VK_WHOLE_SIZE, 0);
    TRY(end(transfer));
cleanup:
    return status;
}
