/*
 * Vulkan, opened at run time: the loader, or one driver directly if SALVO_VULKAN_ICD names it. Instance
 * functions and device functions are in separate tables.
 */
#ifndef VULKAN_API_H
#define VULKAN_API_H

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

#include "base/status.h"

#define FOR_INSTANCE_FUNCTIONS(F)             \
    F(EnumeratePhysicalDevices)               \
    F(GetPhysicalDeviceProperties)            \
    F(GetPhysicalDeviceProperties2)           \
    F(GetPhysicalDeviceFeatures2)             \
    F(GetPhysicalDeviceMemoryProperties)      \
    F(GetPhysicalDeviceMemoryProperties2)     \
    F(GetPhysicalDeviceQueueFamilyProperties) \
    F(EnumerateDeviceExtensionProperties)     \
    F(CreateDevice)                           \
    F(GetDeviceProcAddr)

#define FOR_DEVICE_FUNCTIONS(F)    \
    F(DestroyDevice)               \
    F(GetDeviceQueue)              \
    F(DeviceWaitIdle)              \
    F(QueueSubmit)                 \
    F(CreateBuffer)                \
    F(DestroyBuffer)               \
    F(GetBufferMemoryRequirements) \
    F(AllocateMemory)              \
    F(FreeMemory)                  \
    F(BindBufferMemory)            \
    F(MapMemory)                   \
    F(CreateShaderModule)          \
    F(DestroyShaderModule)         \
    F(CreateDescriptorSetLayout)   \
    F(DestroyDescriptorSetLayout)  \
    F(CreatePipelineLayout)        \
    F(DestroyPipelineLayout)       \
    F(CreatePipelineCache)         \
    F(DestroyPipelineCache)        \
    F(GetPipelineCacheData)        \
    F(CreateComputePipelines)      \
    F(DestroyPipeline)             \
    F(CreateDescriptorPool)        \
    F(DestroyDescriptorPool)       \
    F(AllocateDescriptorSets)      \
    F(UpdateDescriptorSets)        \
    F(CreateCommandPool)           \
    F(DestroyCommandPool)          \
    F(AllocateCommandBuffers)      \
    F(FreeCommandBuffers)          \
    F(BeginCommandBuffer)          \
    F(EndCommandBuffer)            \
    F(CmdBindPipeline)             \
    F(CmdBindDescriptorSets)       \
    F(CmdPushConstants)            \
    F(CmdDispatch)                 \
    F(CmdPipelineBarrier)          \
    F(CmdCopyBuffer)               \
    F(CmdFillBuffer)               \
    F(CmdWriteTimestamp)           \
    F(CmdResetQueryPool)           \
    F(CreateQueryPool)             \
    F(DestroyQueryPool)            \
    F(GetQueryPoolResults)         \
    F(CreateSemaphore)             \
    F(DestroySemaphore)            \
    F(CreateFence)                 \
    F(DestroyFence)                \
    F(ResetFences)                 \
    F(WaitForFences)

#define DECLARE_FUNCTION(name) PFN_vk##name name;

struct instance_functions {
    FOR_INSTANCE_FUNCTIONS(DECLARE_FUNCTION)
};

struct device_functions {
    FOR_DEVICE_FUNCTIONS(DECLARE_FUNCTION)
};

/* The instance of this process, created at the first call; NULL without Vulkan. */
struct vulkan_instance {
    VkInstance handle;
    struct instance_functions functions;
};
const struct vulkan_instance *vulkan_instance(void);

/* An optional instance function; NULL: the driver does not have it. */
PFN_vkVoidFunction vulkan_instance_function(const char *name);

enum salvo_status vulkan_load_device_functions(VkDevice device, struct device_functions *out);

/* Sets the error "vkQueueSubmit on llvmpipe: VK_ERROR_DEVICE_LOST"; SALVO_ERROR_MEMORY if memory ran out. */
enum salvo_status vulkan_fail(VkResult result, const char *call, const char *device);

/* The number of warnings and errors from validation layers so far (SALVO_VULKAN_VALIDATION). */
uint64_t vulkan_validation_messages(void);

#endif
