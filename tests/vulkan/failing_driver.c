/*
 * A driver that hands everything to another one (FAILING_DRIVER_OF), except what the environment asks for:
 *
 *   FAILING_DRIVER_CALL=vkName  it always fails: the device is lost, or there is no memory to allocate
 *   FAILING_DRIVER_LOST=vkName  vkQueueSubmit, or the wait after it, fails as long as this is set
 *   FAILING_DRIVER_RANGE=BYTES  is all that can be bound of a buffer
 *   FAILING_DRIVER_FREE=BYTES   is what is left of the memory, by VK_EXT_memory_budget
 *   FAILING_DRIVER_GPU=TYPE     it is no processor but a VkPhysicalDeviceType; memory of 2, a discrete GPU,
 * is not mapped
 */
#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static PFN_vkGetInstanceProcAddr real_address;
static PFN_vkGetDeviceProcAddr real_device_address;
static PFN_vkGetPhysicalDeviceProperties real_properties;
static PFN_vkGetPhysicalDeviceMemoryProperties2 real_memory;
static PFN_vkEnumerateDeviceExtensionProperties real_extensions;
static PFN_vkCreateDevice real_create;
static PFN_vkQueueSubmit real_submit;
static PFN_vkWaitForFences real_wait;
static PFN_vkWaitSemaphores real_wait_semaphores;

/* 0 where the environment does not say. */
static unsigned long number(const char *name)
{
    const char *text = getenv(name);
    return text ? strtoul(text, NULL, 10) : 0;
}

static int is_lost(const char *name)
{
    const char *lost = getenv("FAILING_DRIVER_LOST");
    return lost && strcmp(lost, name) == 0;
}

/* Any function that returns a VkResult: its arguments do not matter to one that fails. */
static VKAPI_ATTR VkResult VKAPI_CALL fail_always(void)
{
    return VK_ERROR_DEVICE_LOST;
}

static VKAPI_ATTR VkResult VKAPI_CALL lack_memory(void)
{
    return VK_ERROR_OUT_OF_DEVICE_MEMORY;
}

static VKAPI_ATTR VkResult VKAPI_CALL submit(
    VkQueue queue, uint32_t count, const VkSubmitInfo *submits, VkFence fence)
{
    return is_lost("vkQueueSubmit") ? VK_ERROR_DEVICE_LOST : real_submit(queue, count, submits, fence);
}

static VKAPI_ATTR VkResult VKAPI_CALL wait_for(
    VkDevice device, uint32_t count, const VkFence *fences, VkBool32 all, uint64_t timeout)
{
    return is_lost("vkWaitForFences") ? VK_ERROR_DEVICE_LOST : real_wait(device, count, fences, all, timeout);
}

static VKAPI_ATTR VkResult VKAPI_CALL wait_semaphores(
    VkDevice device, const VkSemaphoreWaitInfo *info, uint64_t timeout)
{
    return is_lost("vkWaitSemaphores") ? VK_ERROR_DEVICE_LOST : real_wait_semaphores(device, info, timeout);
}

static VKAPI_ATTR void VKAPI_CALL properties(VkPhysicalDevice device, VkPhysicalDeviceProperties *out)
{
    real_properties(device, out);
    if (number("FAILING_DRIVER_RANGE"))
        out->limits.maxStorageBufferRange = (uint32_t)number("FAILING_DRIVER_RANGE");
    if (number("FAILING_DRIVER_GPU"))
        out->deviceType = (VkPhysicalDeviceType)number("FAILING_DRIVER_GPU");
}

static VKAPI_ATTR void VKAPI_CALL memory(VkPhysicalDevice device, VkPhysicalDeviceMemoryProperties2 *out)
{
    VkBaseOutStructure *next = out->pNext;
    real_memory(device, out);
    while (next && next->sType != VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT)
        next = next->pNext;
    if (next) {
        VkPhysicalDeviceMemoryBudgetPropertiesEXT *budget = (void *)next;
        for (uint32_t i = 0; i < VK_MAX_MEMORY_HEAPS; i++) {
            budget->heapUsage[i] = 1000;
            budget->heapBudget[i] = 1000 + number("FAILING_DRIVER_FREE");
        }
    }
}

static VKAPI_ATTR VkResult VKAPI_CALL extensions(
    VkPhysicalDevice device, const char *layer, uint32_t *count, VkExtensionProperties *out)
{
    const uint32_t room = *count;
    VkResult result = real_extensions(device, layer, count, out);
    if (out && number("FAILING_DRIVER_FREE") && *count < room)
        out[(*count)++] = (VkExtensionProperties){VK_EXT_MEMORY_BUDGET_EXTENSION_NAME, 1};
    return result;
}

/* Without the extension that the other driver does not have. */
static VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice physical, const VkDeviceCreateInfo *info,
    const VkAllocationCallbacks *allocation, VkDevice *out)
{
    const char *names[64];
    VkDeviceCreateInfo changed = *info;
    changed.enabledExtensionCount = 0;
    changed.ppEnabledExtensionNames = names;
    for (uint32_t i = 0; i < info->enabledExtensionCount && i < 64; i++) {
        const char *name = info->ppEnabledExtensionNames[i];
        if (strcmp(name, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME) != 0 || !number("FAILING_DRIVER_FREE"))
            names[changed.enabledExtensionCount++] = name;
    }
    return real_create(physical, &changed, allocation, out);
}

/* Keeps the real function in `real` and gives ours for it. */
#define REPLACE(vulkan_name, real, ours)                    \
    do {                                                    \
        if (function && strcmp(name, (vulkan_name)) == 0) { \
            memcpy(&(real), &function, sizeof(real));       \
            return (PFN_vkVoidFunction)(ours);              \
        }                                                   \
    } while (0)

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL device_address(VkDevice device, const char *name)
{
    const char *failing = getenv("FAILING_DRIVER_CALL");
    PFN_vkVoidFunction function = real_device_address(device, name);
    if (failing && strcmp(name, failing) == 0)
        return strcmp(name, "vkAllocateMemory") == 0 ? (PFN_vkVoidFunction)lack_memory
                                                     : (PFN_vkVoidFunction)fail_always;
    REPLACE("vkQueueSubmit", real_submit, submit);
    REPLACE("vkWaitForFences", real_wait, wait_for);
    REPLACE("vkWaitSemaphores", real_wait_semaphores, wait_semaphores);
    return function;
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vk_icdGetInstanceProcAddr(VkInstance instance, const char *name);

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vk_icdGetInstanceProcAddr(VkInstance instance, const char *name)
{
    if (!real_address) {
        void *library = dlopen(getenv("FAILING_DRIVER_OF"), RTLD_NOW | RTLD_LOCAL);
        union {
            void *object;
            PFN_vkGetInstanceProcAddr function;
        } entry = {library ? dlsym(library, "vk_icdGetInstanceProcAddr") : NULL};
        real_address = entry.function;
    }
    PFN_vkVoidFunction function = real_address ? real_address(instance, name) : NULL;
    const char *failing = getenv("FAILING_DRIVER_CALL");
    if (function && failing && strcmp(name, failing) == 0)
        return (PFN_vkVoidFunction)fail_always;
    REPLACE("vkGetDeviceProcAddr", real_device_address, device_address);
    REPLACE("vkGetPhysicalDeviceProperties", real_properties, properties);
    REPLACE("vkGetPhysicalDeviceMemoryProperties2", real_memory, memory);
    REPLACE("vkEnumerateDeviceExtensionProperties", real_extensions, extensions);
    REPLACE("vkCreateDevice", real_create, create_device);
    return function;
}
