/* Devices that can run programs: what they offer, and one of them opened. */
#ifndef VULKAN_DEVICE_H
#define VULKAN_DEVICE_H

#include "backend/vulkan/vulkan_api.h"

enum { MAX_VULKAN_DEVICES = 16 };

/* What a device offers beyond the baseline; SALVO_VULKAN_DISABLE=name,... takes it away. */
struct vulkan_features {
    bool subgroup;      /* shuffles between neighbours */
    bool full_subgroup; /* subgroups can be required to be full, so that neighbours are known */
    bool int_dot;       /* products of four bytes in one instruction */
    bool processor;     /* invocations are lanes of a processor's threads: kernels that share little */
    bool halves;        /* conversion of f16, which software devices may not manage */
    bool memory_budget; /* how much memory is free is known */
    bool host_local;    /* memory of the device that the host can write */
    bool timeline;      /* semaphores that count: one for all steps, which nobody has to reset */
    bool host_import;   /* memory of the host that the device can use, where both have the same */
    bool storage16;     /* memory that is read two bytes at a time */
    bool storage8;      /* a byte at a time */
    bool coop_matrix;   /* subgroups that multiply matrices of halves */
    bool coop_emulated; /* the same by hand, for tests */
};

struct vulkan_physical {
    VkPhysicalDevice handle;
    VkPhysicalDeviceType type;
    VkPhysicalDeviceLimits limits;
    struct vulkan_features features;
    uint32_t queue_family, subgroup_size, vendor, api_version;
    uint64_t memory;                             /* of the largest heap on the device */
    uint64_t import_alignment;                   /* of memory that is imported; a page at most */
    uint32_t coop_tokens, coop_rows, coop_depth; /* what cooperative matrices multiply at once */
    bool is_portability_subset;
    uint8_t cache_key[VK_UUID_SIZE];
    char name[VK_MAX_PHYSICAL_DEVICE_NAME_SIZE];
    char feature_names[128];
};

/* The best first: discrete, integrated, virtual, others, processors. */
uint32_t vulkan_device_count(void);
const struct vulkan_physical *vulkan_device_at(uint32_t number);

/* What was taken through one opened device. */
struct vulkan_usage {
    uint64_t buffers;                    /* opened so far */
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

/* Bytes that a heap can still give: by its budget, or what was not taken here where the device does not tell.
 */
uint64_t vulkan_heap_free(const struct vulkan_device *device, uint32_t heap);

/* The same of the largest heap that is the device's own. */
uint64_t vulkan_device_free_memory(const struct vulkan_device *device);

/* CHECK(device, vkCreateBuffer, (arguments)): the call through the device's table, and its failure by name.
 */
#define CHECK(device, function, arguments)                                             \
    do {                                                                               \
        VkResult check_result_ = (device)->call.function arguments;                    \
        if (check_result_ != VK_SUCCESS)                                               \
            TRY(vulkan_fail(check_result_, "vk" #function, (device)->physical->name)); \
    } while (0)

#endif
