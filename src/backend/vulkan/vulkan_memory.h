/* Buffers on a device, and copies between them and the host. */
#ifndef VULKAN_MEMORY_H
#define VULKAN_MEMORY_H

#include "backend/vulkan/vulkan_device.h"

enum vulkan_place {
    PLACE_DEVICE,    /* the device's own; mapped as well where all of its memory is the host's, too */
    PLACE_TO_DEVICE, /* written by the host, read by the device: its own where the host can write that */
    PLACE_TO_HOST,   /* written by the device, read by the host: cached where there is such */
};

struct vulkan_buffer {
    VkBuffer handle;
    VkDeviceMemory memory;
    uint64_t size;
    void *mapped; /* NULL where the host cannot see it */
    uint32_t heap;
    uint64_t taken; /* bytes of the heap */
};

enum salvo_status vulkan_buffer_open(const struct vulkan_device *device, uint64_t size,
    enum vulkan_place place, const char *what, struct vulkan_buffer *out);

/* Memory of the host as a buffer, both at pages, for reading. False where the device refuses. */
bool vulkan_buffer_import(
    const struct vulkan_device *device, const void *memory, uint64_t size, struct vulkan_buffer *out);
void vulkan_buffer_close(const struct vulkan_device *device, struct vulkan_buffer *buffer);

/* Copies outside of steps: each waits until it is done. */
struct vulkan_transfer {
    const struct vulkan_device *device;
    VkCommandPool pool;
    VkCommandBuffer commands;
    VkFence fence;
    struct vulkan_buffer staging;
    uint64_t staged; /* bytes of it that wait to be written */
    uint64_t bytes_read;
};

enum { STAGING_BYTES = 8 << 20 };

enum salvo_status vulkan_transfer_open(const struct vulkan_device *device, struct vulkan_transfer *out);
void vulkan_transfer_close(struct vulkan_transfer *transfer);
enum salvo_status vulkan_write(struct vulkan_transfer *transfer, struct vulkan_buffer *buffer,
    uint64_t offset, const void *data, uint64_t size);
/* The same together with others: until the next vulkan_flush there is no other copy. */
enum salvo_status vulkan_write_later(struct vulkan_transfer *transfer, struct vulkan_buffer *buffer,
    uint64_t offset, const void *data, uint64_t size);
enum salvo_status vulkan_flush(struct vulkan_transfer *transfer);
enum salvo_status vulkan_read(struct vulkan_transfer *transfer, const struct vulkan_buffer *buffer,
    uint64_t offset, void *out, uint64_t size);
enum salvo_status vulkan_clear(struct vulkan_transfer *transfer, struct vulkan_buffer *buffer);

/* Submits recorded commands and waits for them, at most as long as a step may take. */
enum salvo_status vulkan_submit_and_wait(
    const struct vulkan_device *device, VkCommandBuffer commands, VkFence fence);

/* How long a wait may last before the device counts as lost. */
#define VULKAN_TIMEOUT_NS UINT64_C(120000000000)

#endif
