/* Usable Vulkan devices, their properties, and an opened device. */
#ifndef VULKAN_DEVICE_H
#define VULKAN_DEVICE_H

#include "backend/vulkan/vulkan_api.h"

enum { MAX_VULKAN_DEVICES = 16 };

/* Optional device features; SALVO_VULKAN_DISABLE=name,... disables them. */
struct vulkan_features {
    bool subgroup;      /* shuffles between neighbouring invocations */
    bool full_subgroup; /* subgroups can be required to be full, so that invocation numbers tell neighbours */
    bool int_dot;       /* dot products of four bytes in one instruction */
    bool processor;     /* a CPU: invocations are SIMD lanes; kernels use little shared memory */
    bool halves;        /* conversion to and from f16, which software devices may not compile */
    bool memory_budget; /* the free memory is known */
    bool host_local;    /* device memory that the host can write */
    bool timeline;      /* timeline semaphores: one counts all steps and is never reset */
    bool host_import;   /* host memory that the device can read, on devices with unified memory */
    bool storage16;     /* loads of 16 bits */
    bool storage8;      /* loads of 8 bits */
    bool coop_matrix;   /* subgroups multiply matrices of halves */
    bool coop_emulated; /* a substitute without the instructions, for tests */
};

struct vulkan_physical {
    VkPhysicalDevice handle;
    VkPhysicalDeviceType type;
    VkPhysicalDeviceLimits limits;
    struct vulkan_features features;
    uint32_t queue_family, subgroup_size, vendor, api_version;
    uint64_t memory;                             /* bytes of the largest device-local heap */
    uint64_t import_alignment;                   /* of imported host memory; at most a page */
    uint32_t coop_tokens, coop_rows, coop_depth; /* shape of one cooperative multiplication */
    bool is_portability_subset;
    uint8_t cache_key[VK_UUID_SIZE];
    char name[VK_MAX_PHYSICAL_DEVICE_NAME_SIZE];
    char feature_names[128];
};

/* Sorted, the best first: discrete, integrated, virtual, others, processors. */
uint32_t vulkan_device_count(void);
const struct vulkan_physical *vulkan_device_at(uint32_t number);

/* Memory allocated through an opened device. */
struct vulkan_usage {
    uint64_t buffers;                    /* created so far */
    uint64_t bytes[VK_MAX_MEMORY_HEAPS]; /* allocated now */
};

struct vulkan_device {
    const struct vulkan_physical *physical;
    VkDevice handle;
    VkQueue queue;
    struct device_functions call;
    VkPhysicalDeviceMemoryProperties memory;
    PFN_vkGetMemoryHostPointerPropertiesEXT host_pointer; /* NULL: nothing can be imported */
    PFN_vkWaitSemaphores wait_semaphores;                 /* NULL: steps have fences */
    struct vulkan_usage *usage;
};

enum salvo_status vulkan_device_open(uint32_t number, struct vulkan_device *out);
void vulkan_device_close(struct vulkan_device *device);

/* Free bytes of a heap: by its budget, or its size less our allocations if the device does not report one. */
uint64_t vulkan_heap_free(const struct vulkan_device *device, uint32_t heap);

/* Free bytes of the largest device-local heap. */
uint64_t vulkan_device_free_memory(const struct vulkan_device *device);

/* CHECK(device, vkCreateBuffer, (arguments)) calls the function through the device's table and reports a
 * failure by the function's name. */
#define CHECK(device, function, arguments)                                             \
    do {                                                                               \
        VkResult check_result_ = (device)->call.function arguments;                    \
        if (check_result_ != VK_SUCCESS)                                               \
            TRY(vulkan_fail(check_result_, "vk" #function, (device)->physical->name)); \
    } while (0)

#endif
