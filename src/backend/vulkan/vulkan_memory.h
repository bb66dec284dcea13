/* Buffers on a device, and copies between them and the host. */
#ifndef VULKAN_MEMORY_H
#define VULKAN_MEMORY_H

#include "backend/vulkan/vulkan_device.h"

enum vulkan_place {
    PLACE_DEVICE,    /* device-local; also mapped on devices with unified memory */
    PLACE_TO_DEVICE, /* written by the host, read by the device: device-local if the host can write that */
    PLACE_TO_HOST,   /* written by the device, read by the host: cached if available */
};

struct vulkan_buffer {
    VkBuffer handle;
    VkDeviceMemory memory;
    uint64_t size;
    void *mapped; /* NULL if the host cannot access it */
    uint32_t heap;
    uint64_t taken; /* bytes allocated from the heap */
};

enum salvo_status vulkan_buffer_open(const struct vulkan_device *device, uint64_t size,
    enum vulkan_place place, const char *what, struct vulkan_buffer *out);

/* Host memory as a read-only buffer; address and size are multiples of pages. False if the device refuses. */
bool vulkan_buffer_import(
    const struct vulkan_device *device, const void *memory, uint64_t size, struct vulkan_buffer *out);
void vulkan_buffer_close(const struct vulkan_device *device, struct vulkan_buffer *buffer);

/* Copies outside of steps. Each call waits until its copy is complete. */
struct vulkan_transfer {
    const struct vulkan_device *device;
    VkCommandPool pool;
    VkCommandBuffer commands;
    VkFence fence;
    struct vulkan_buffer staging;
    uint64_t staged; /* bytes staged for the next flush */
    uint64_t bytes_read;
};

enum { STAGING_BYTES = 8 << 20 };

enum salvo_status vulkan_transfer_open(const struct vulkan_device *device, struct vulkan_transfer *out);
void vulkan_transfer_close(struct vulkan_transfer *transfer);
enum salvo_status vulkan_write(struct vulkan_transfer *transfer, struct vulkan_buffer *buffer,
    uint64_t offset, const void *data, uint64_t size);
/* Stages a write; no other copy is allowed until vulkan_flush writes all of them. */
enum salvo_status vulkan_write_later(struct vulkan_transfer *transfer, struct vulkan_buffer *buffer,
    uint64_t offset, const void *data, uint64_t size);
enum salvo_status vulkan_flush(struct vulkan_transfer *transfer);
enum salvo_status vulkan_read(struct vulkan_transfer *transfer, const struct vulkan_buffer *buffer,
    uint64_t offset, void *out, uint64_t size);
/* Copies within the device; the two parts do not overlap. */
enum salvo_status vulkan_copy(struct vulkan_transfer *transfer, struct vulkan_buffer *to, uint64_t to_offset,
    const struct vulkan_buffer *from, uint64_t from_offset, uint64_t size);
enum salvo_status vulkan_clear(struct vulkan_transfer *transfer, struct vulkan_buffer *buffer);

/* Submits recorded commands and waits for them, up to VULKAN_TIMEOUT_NS. */
enum salvo_status vulkan_submit_and_wait(
    const struct vulkan_device *device, VkCommandBuffer commands, VkFence fence);

/* The timeout of a wait, after which the device counts as lost. */
#define VULKAN_TIMEOUT_NS UINT64_C(120000000000)

#endif
