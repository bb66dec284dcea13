/*
 * A driver that hands everything to another one (FAILING_DRIVER_OF) and makes every call of one function
 * (FAILING_DRIVER_CALL) fail, with VK_ERROR_DEVICE_LOST or, where memory is asked for, for lack of it.
 */
#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static PFN_vkGetInstanceProcAddr real_address;
static PFN_vkGetDeviceProcAddr real_device_address;

/* Any function that returns a VkResult: its arguments do not matter to one that fails. */
static VKAPI_ATTR VkResult VKAPI_CALL fail_always(void)
{
    return VK_ERROR_DEVICE_LOST;
}

static VKAPI_ATTR VkResult VKAPI_CALL lack_memory(void)
{
    return VK_ERROR_OUT_OF_DEVICE_MEMORY;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL device_address(VkDevice device, const char *name)
{
    const char *failing = getenv("FAILING_DRIVER_CALL");
    if (failing && strcmp(name, failing) == 0)
        return strcmp(name, "vkAllocateMemory") == 0 ? (PFN_vkVoidFunction)lack_memory
                                                     : (PFN_vkVoidFunction)fail_always;
    return real_device_address(device, name);
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
    if (strcmp(name, "vkGetDeviceProcAddr") == 0 && function) {
        real_device_address = (PFN_vkGetDeviceProcAddr)function;
        return (PFN_vkVoidFunction)device_address;
    }
    return function;
}
