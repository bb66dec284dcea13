#include "backend/vulkan/vulkan_api.h"

#include "base/log.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct vulkan_instance instance;
static bool has_instance;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static PFN_vkGetInstanceProcAddr get_address;
static atomic_ullong validation_messages;

/* ISO C has no cast from an object pointer to a function pointer. */
static PFN_vkGetInstanceProcAddr find_entry(void *library, const char *name)
{
    union {
        void *object;
        PFN_vkGetInstanceProcAddr function;
    } pointer = {dlsym(library, name)};
    return pointer.function;
}

/* A driver that is opened without the loader must be asked for its interface version first. */
static PFN_vkGetInstanceProcAddr open_driver(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        log_line(SALVO_LOG_WARNING, "SALVO_VULKAN_ICD: %s", dlerror());
        return NULL;
    }
    union {
        void *object;
        VkResult(VKAPI_PTR *function)(uint32_t *version);
    } negotiate = {dlsym(library, "vk_icdNegotiateLoaderICDInterfaceVersion")};
    uint32_t version = 5;
    if (negotiate.object && negotiate.function(&version) != VK_SUCCESS)
        return NULL;
    PFN_vkGetInstanceProcAddr entry = find_entry(library, "vk_icdGetInstanceProcAddr");
    return entry ? entry : find_entry(library, "vkGetInstanceProcAddr");
}

static PFN_vkGetInstanceProcAddr open_loader(void)
{
    static const char *const names[] = {
        "libvulkan.so.1", "libvulkan.so", "libvulkan.1.dylib", "libvulkan.dylib", "libMoltenVK.dylib"};
    const char *driver = getenv("SALVO_VULKAN_ICD");
    if (driver && *driver)
        return open_driver(driver);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (library)
            return find_entry(library, "vkGetInstanceProcAddr");
    }
    return NULL;
}

static VKAPI_ATTR VkBool32 VKAPI_CALL note_message(VkDebugUtilsMessageSeverityFlagBitsEXT severity,
    VkDebugUtilsMessageTypeFlagsEXT types, const VkDebugUtilsMessengerCallbackDataEXT *data, void *user)
{
    (void)severity;
    (void)types;
    (void)user;
    atomic_fetch_add(&validation_messages, 1);
    fprintf(stderr, "vulkan validation: %s\n", data->pMessage);
    return VK_FALSE;
}

uint64_t vulkan_validation_messages(void)
{
    return atomic_load(&validation_messages);
}

static bool has_extension(const char *layer, const char *name)
{
    VkExtensionProperties extensions[128];
    uint32_t count = 128;
    PFN_vkEnumerateInstanceExtensionProperties enumerate =
        (PFN_vkEnumerateInstanceExtensionProperties)get_address(
            NULL, "vkEnumerateInstanceExtensionProperties");
    if (!enumerate || enumerate(layer, &count, extensions) < 0)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(extensions[i].extensionName, name) == 0)
            return true;
    }
    return false;
}

/* With SALVO_VULKAN_VALIDATION=1 the Khronos layer checks every call and the hazards between dispatches; with
 * "gpu" it checks the memory accesses of shaders instead. */
static VkResult create_instance(PFN_vkCreateInstance create)
{
    const char *validation = getenv("SALVO_VULKAN_VALIDATION");
    const bool validate = validation && *validation && strcmp(validation, "0") != 0;
    const bool on_device = validate && strcmp(validation, "gpu") == 0;
    const char *layer = "VK_LAYER_KHRONOS_validation", *extensions[3];
    uint32_t extension_count = 0;
    VkInstanceCreateFlags flags = 0;
    if (has_extension(NULL, VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME)) {
        extensions[extension_count++] = VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME;
        flags |= VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR;
    }
    if (validate) {
        extensions[extension_count++] = VK_EXT_DEBUG_UTILS_EXTENSION_NAME;
        extensions[extension_count++] = VK_EXT_VALIDATION_FEATURES_EXTENSION_NAME;
    }
    const VkValidationFeatureEnableEXT checks[] = {
        on_device ? VK_VALIDATION_FEATURE_ENABLE_GPU_ASSISTED_EXT
                  : VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT,
        VK_VALIDATION_FEATURE_ENABLE_GPU_ASSISTED_RESERVE_BINDING_SLOT_EXT,
    };
    const VkDebugUtilsMessengerCreateInfoEXT messenger = {
        .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
        .messageSeverity =
            VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
        .messageType =
            VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT,
        .pfnUserCallback = note_message,
    };
    const VkValidationFeaturesEXT features = {
        .sType = VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT,
        .pNext = &messenger,
        .enabledValidationFeatureCount = on_device ? 2 : 1,
        .pEnabledValidationFeatures = checks,
    };
    const VkApplicationInfo application = {
        .sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
        .pApplicationName = "salvo",
        .apiVersion = VK_API_VERSION_1_3, /* the newest version used; devices need 1.1 */
    };
    const VkInstanceCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
        .pNext = validate ? &features : NULL,
        .flags = flags,
        .pApplicationInfo = &application,
        .enabledLayerCount = validate,
        .ppEnabledLayerNames = &layer,
        .enabledExtensionCount = extension_count,
        .ppEnabledExtensionNames = extensions,
    };
    VkResult result = create(&info, NULL, &instance.handle);
    if (result != VK_SUCCESS)
        return result;
    PFN_vkCreateDebugUtilsMessengerEXT create_messenger =
        validate ? (PFN_vkCreateDebugUtilsMessengerEXT)get_address(
                       instance.handle, "vkCreateDebugUtilsMessengerEXT")
                 : NULL;
    VkDebugUtilsMessengerEXT handle;
    return create_messenger ? create_messenger(instance.handle, &messenger, NULL, &handle) : VK_SUCCESS;
}

static void open_instance(void)
{
    get_address = open_loader();
    PFN_vkCreateInstance create =
        get_address ? (PFN_vkCreateInstance)get_address(NULL, "vkCreateInstance") : NULL;
    if (!create)
        return;
    VkResult result = create_instance(create);
    if (result != VK_SUCCESS) {
        log_line(SALVO_LOG_WARNING, "vkCreateInstance failed with %d; Vulkan is left out", (int)result);
        return;
    }
    bool complete = true;
#define LOAD_FUNCTION(name)                                                           \
    instance.functions.name = (PFN_vk##name)get_address(instance.handle, "vk" #name); \
    complete = complete && instance.functions.name;
    FOR_INSTANCE_FUNCTIONS(LOAD_FUNCTION)
#undef LOAD_FUNCTION
    has_instance = complete;
}

const struct vulkan_instance *vulkan_instance(void)
{
    pthread_once(&once, open_instance);
    return has_instance ? &instance : NULL;
}

PFN_vkVoidFunction vulkan_instance_function(const char *name)
{
    return vulkan_instance() ? get_address(instance.handle, name) : NULL;
}

enum salvo_status vulkan_load_device_functions(VkDevice device, struct device_functions *out)
{
    const char *missing = NULL;
#define LOAD_FUNCTION(name)                                                             \
    out->name = (PFN_vk##name)instance.functions.GetDeviceProcAddr(device, "vk" #name); \
    missing = out->name ? missing : "vk" #name;
    FOR_DEVICE_FUNCTIONS(LOAD_FUNCTION)
#undef LOAD_FUNCTION
    return missing ? fail(SALVO_ERROR_UNSUPPORTED, "the driver has no %s", missing) : SALVO_OK;
}

static const char *result_name(VkResult result)
{
    switch (result) {
    case VK_NOT_READY:
        return "VK_NOT_READY";
    case VK_TIMEOUT:
        return "VK_TIMEOUT";
    case VK_ERROR_OUT_OF_HOST_MEMORY:
        return "VK_ERROR_OUT_OF_HOST_MEMORY";
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
        return "VK_ERROR_OUT_OF_DEVICE_MEMORY";
    case VK_ERROR_INITIALIZATION_FAILED:
        return "VK_ERROR_INITIALIZATION_FAILED";
    case VK_ERROR_DEVICE_LOST:
        return "VK_ERROR_DEVICE_LOST";
    case VK_ERROR_MEMORY_MAP_FAILED:
        return "VK_ERROR_MEMORY_MAP_FAILED";
    case VK_ERROR_EXTENSION_NOT_PRESENT:
        return "VK_ERROR_EXTENSION_NOT_PRESENT";
    case VK_ERROR_FEATURE_NOT_PRESENT:
        return "VK_ERROR_FEATURE_NOT_PRESENT";
    case VK_ERROR_TOO_MANY_OBJECTS:
        return "VK_ERROR_TOO_MANY_OBJECTS";
    default:
        return NULL;
    }
}

enum salvo_status vulkan_fail(VkResult result, const char *call, const char *device)
{
    const char *name = result_name(result);
    const enum salvo_status status =
        result == VK_ERROR_OUT_OF_HOST_MEMORY || result == VK_ERROR_OUT_OF_DEVICE_MEMORY ? SALVO_ERROR_MEMORY
                                                                                         : SALVO_ERROR_DEVICE;
    if (name)
        return fail(status, "%s on %s: %s", call, device, name);
    return fail(status, "%s on %s: error %d", call, device, (int)result);
}
