#include "backend/vulkan/vulkan_coop.h"

#include "base/log.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct vulkan_physical devices[MAX_VULKAN_DEVICES];
static uint32_t device_count;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Whether the list in an environment variable contains a name. */
static bool is_named(const char *variable, const char *name)
{
    const char *list = getenv(variable);
    const size_t length = strlen(name);
    while (list && *list) {
        const size_t item = strcspn(list, ",");
        if (item == length && strncmp(list, name, length) == 0)
            return true;
        list += item + (list[item] == ',');
    }
    return false;
}

static bool is_disabled(const char *name)
{
    return is_named("SALVO_VULKAN_DISABLE", name);
}

static bool has_extension(const VkExtensionProperties *extensions, uint32_t count, const char *name)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(extensions[i].extensionName, name) == 0)
            return true;
    }
    return false;
}

static bool find_queue(const struct instance_functions *call, struct vulkan_physical *device)
{
    VkQueueFamilyProperties families[32];
    uint32_t count = 32;
    call->GetPhysicalDeviceQueueFamilyProperties(device->handle, &count, families);
    for (uint32_t i = 0; i < count; i++) {
        if (families[i].queueFlags & VK_QUEUE_COMPUTE_BIT) {
            device->queue_family = i;
            return true;
        }
    }
    return false;
}

static bool has_host_local_memory(const VkPhysicalDeviceMemoryProperties *memory)
{
    const VkMemoryPropertyFlags wanted = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT |
                                         VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                                         VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    for (uint32_t i = 0; i < memory->memoryTypeCount; i++) {
        if ((memory->memoryTypes[i].propertyFlags & wanted) == wanted)
            return true;
    }
    return false;
}

/* Inserts a struct at the front of the chain that begins at *first. */
static void chain_if(bool wanted, void **first, void *item, void **next)
{
    if (wanted) {
        *next = *first;
        *first = item;
    }
}

/* Cooperative matrices need Vulkan 1.2, full subgroups, and limits that fit a tile. Rows are rounded before
 * the matmuls that read them are known, so all matmuls use cooperative matrices or none. Processors are
 * faster without tiles. */
static void find_coop(struct vulkan_physical *device, bool has_extension)
{
    struct vulkan_features *offers = &device->features;
    offers->coop_emulated = is_named("SALVO_VULKAN_EMULATE", "coop-matrix");
    offers->coop_matrix =
        offers->coop_emulated || (has_extension && device->api_version >= VK_API_VERSION_1_2 &&
                                     offers->subgroup && !offers->processor && !is_disabled("coop-matrix") &&
                                     !is_disabled("float16") && vulkan_coop_find(device));
    if (offers->coop_emulated)
        device->coop_tokens = device->coop_rows = device->coop_depth = 16;
    offers->coop_matrix = offers->coop_matrix && vulkan_coop_fits(device, &coop_small_tile);
}

/* The granularity of mapped files. */
static uint64_t page_bytes(void)
{
    const long bytes = sysconf(_SC_PAGESIZE);
    return bytes > 0 ? (uint64_t)bytes : 4096;
}

static void find_features(const struct instance_functions *call, struct vulkan_physical *device)
{
    VkExtensionProperties extensions[512];
    uint32_t count = 512;
    if (call->EnumerateDeviceExtensionProperties(device->handle, NULL, &count, extensions) < 0)
        count = 0;
    const bool imports = has_extension(extensions, count, VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME);
    VkPhysicalDeviceExternalMemoryHostPropertiesEXT host = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT};
    VkPhysicalDeviceSubgroupProperties subgroup = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES, .pNext = imports ? &host : NULL};
    VkPhysicalDeviceProperties2 properties = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &subgroup};
    call->GetPhysicalDeviceProperties2(device->handle, &properties);
    device->subgroup_size = subgroup.subgroupSize;
    device->import_alignment = host.minImportedHostPointerAlignment;

    const bool is_12 = device->api_version >= VK_API_VERSION_1_2,
               is_13 = device->api_version >= VK_API_VERSION_1_3;
    bool asks_timeline = is_12 || has_extension(extensions, count, VK_KHR_TIMELINE_SEMAPHORE_EXTENSION_NAME);
    bool asks_size = is_13 || has_extension(extensions, count, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME);
    bool asks_dot =
        is_13 || has_extension(extensions, count, VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME);
    bool asks_storage8 = is_12 || has_extension(extensions, count, VK_KHR_8BIT_STORAGE_EXTENSION_NAME);
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2};
    VkPhysicalDeviceSubgroupSizeControlFeatures size = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES};
    VkPhysicalDeviceShaderIntegerDotProductFeatures dot = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES};
    VkPhysicalDeviceTimelineSemaphoreFeatures timeline = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES};
    chain_if(asks_size, &features.pNext, &size, &size.pNext);
    chain_if(asks_dot, &features.pNext, &dot, &dot.pNext);
    VkPhysicalDevice16BitStorageFeatures storage16 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES};
    VkPhysicalDevice8BitStorageFeatures storage8 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_8BIT_STORAGE_FEATURES};
    chain_if(asks_timeline, &features.pNext, &timeline, &timeline.pNext);
    chain_if(true, &features.pNext, &storage16, &storage16.pNext);
    chain_if(asks_storage8, &features.pNext, &storage8, &storage8.pNext);
    call->GetPhysicalDeviceFeatures2(device->handle, &features);

    VkPhysicalDeviceMemoryProperties memory;
    call->GetPhysicalDeviceMemoryProperties(device->handle, &memory);
    for (uint32_t i = 0; i < memory.memoryHeapCount; i++) {
        if ((memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) &&
            memory.memoryHeaps[i].size > device->memory)
            device->memory = memory.memoryHeaps[i].size;
    }
    device->is_portability_subset = has_extension(extensions, count, "VK_KHR_portability_subset");
    struct vulkan_features *offers = &device->features;
    offers->full_subgroup = size.computeFullSubgroups && !is_disabled("full-subgroup");
    offers->subgroup = (subgroup.supportedStages & VK_SHADER_STAGE_COMPUTE_BIT) &&
                       (subgroup.supportedOperations & VK_SUBGROUP_FEATURE_SHUFFLE_BIT) &&
                       offers->full_subgroup && !is_disabled("subgroup");
    offers->int_dot = dot.shaderIntegerDotProduct && !is_disabled("int-dot");
    offers->processor = device->type == VK_PHYSICAL_DEVICE_TYPE_CPU && !is_disabled("processor");
    offers->halves = device->type != VK_PHYSICAL_DEVICE_TYPE_CPU && !is_disabled("halves");
    offers->memory_budget = has_extension(extensions, count, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME) &&
                            !is_disabled("memory-budget");
    offers->host_local = has_host_local_memory(&memory) && !is_disabled("host-local");
    offers->timeline = timeline.timelineSemaphore && !is_disabled("timeline");
    offers->storage16 = storage16.storageBuffer16BitAccess && !is_disabled("storage16");
    offers->storage8 = storage8.storageBuffer8BitAccess && !is_disabled("storage8");
    offers->host_import = imports && !is_disabled("host-import") &&
                          device->type != VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU &&
                          device->import_alignment > 0 && device->import_alignment <= page_bytes();
    find_coop(device, has_extension(extensions, count, COOP_EXTENSION));
    snprintf(device->feature_names, sizeof device->feature_names, "subgroups-of-%u%s%s%s%s%s%s%s%s%s",
        device->subgroup_size, offers->subgroup ? " subgroup" : "", offers->int_dot ? " int-dot" : "",
        offers->host_local ? " host-local" : "", offers->host_import ? " host-import" : "",
        offers->timeline ? " timeline" : "", offers->memory_budget ? " memory-budget" : "",
        offers->storage16 ? " storage16" : "", offers->storage8 ? " storage8" : "",
        offers->coop_emulated ? " coop-matrix-emulated"
        : offers->coop_matrix ? " coop-matrix"
                              : "");
}

static int rank(VkPhysicalDeviceType type)
{
    switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
        return 0;
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
        return 1;
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU:
        return 2;
    case VK_PHYSICAL_DEVICE_TYPE_CPU:
        return 4;
    default:
        return 3;
    }
}

static void find_devices(void)
{
    const struct vulkan_instance *instance = vulkan_instance();
    VkPhysicalDevice handles[MAX_VULKAN_DEVICES];
    uint32_t count = MAX_VULKAN_DEVICES;
    if (!instance)
        return;
    VkResult result = instance->functions.EnumeratePhysicalDevices(instance->handle, &count, handles);
    if (result < 0) {
        log_line(
            SALVO_LOG_WARNING, "vkEnumeratePhysicalDevices failed with %d; Vulkan is left out", (int)result);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        VkPhysicalDeviceProperties properties;
        instance->functions.GetPhysicalDeviceProperties(handles[i], &properties);
        struct vulkan_physical device = {
            .handle = handles[i],
            .type = properties.deviceType,
            .limits = properties.limits,
            .vendor = properties.vendorID,
            .api_version = properties.apiVersion,
        };
        memcpy(device.name, properties.deviceName, sizeof device.name);
        memcpy(device.cache_key, properties.pipelineCacheUUID, sizeof device.cache_key);
        if (properties.apiVersion < VK_API_VERSION_1_1 || !find_queue(&instance->functions, &device))
            continue;
        find_features(&instance->functions, &device);
        uint32_t place = device_count++;
        for (; place > 0 && rank(devices[place - 1].type) > rank(device.type); place--)
            devices[place] = devices[place - 1];
        devices[place] = device;
    }
}

uint32_t vulkan_device_count(void)
{
    pthread_once(&once, find_devices);
    return device_count;
}

const struct vulkan_physical *vulkan_device_at(uint32_t number)
{
    return number < vulkan_device_count() ? &devices[number] : NULL;
}

enum salvo_status vulkan_device_open(uint32_t number, struct vulkan_device *out)
{
    enum salvo_status status = SALVO_OK;
    const struct vulkan_physical *physical = vulkan_device_at(number);
    const char *extensions[8];
    uint32_t extension_count = 0;
    *out = (struct vulkan_device){.physical = physical};
    if (!physical)
        return fail(SALVO_ERROR_UNSUPPORTED, "there is no Vulkan device %u", number);
    const struct vulkan_features *offers = &physical->features;
    const bool is_13 = physical->api_version >= VK_API_VERSION_1_3,
               uses_coop = offers->coop_matrix && !offers->coop_emulated;
    if (offers->full_subgroup && !is_13)
        extensions[extension_count++] = VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME;
    if (offers->int_dot && !is_13)
        extensions[extension_count++] = VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME;
    if (offers->timeline && physical->api_version < VK_API_VERSION_1_2)
        extensions[extension_count++] = VK_KHR_TIMELINE_SEMAPHORE_EXTENSION_NAME;
    if (offers->memory_budget)
        extensions[extension_count++] = VK_EXT_MEMORY_BUDGET_EXTENSION_NAME;
    if (offers->host_import)
        extensions[extension_count++] = VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME;
    if (physical->is_portability_subset)
        extensions[extension_count++] = "VK_KHR_portability_subset";
    VkPhysicalDeviceSubgroupSizeControlFeatures size = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES,
        .computeFullSubgroups = VK_TRUE};
    VkPhysicalDeviceShaderIntegerDotProductFeatures dot = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES,
        .shaderIntegerDotProduct = VK_TRUE};
    VkPhysicalDeviceTimelineSemaphoreFeatures timeline = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES, .timelineSemaphore = VK_TRUE};
    VkPhysicalDevice16BitStorageFeatures storage16 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES,
        .storageBuffer16BitAccess = VK_TRUE};
    VkPhysicalDevice8BitStorageFeatures storage8 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_8BIT_STORAGE_FEATURES, .storageBuffer8BitAccess = VK_TRUE};
    if (offers->storage8 && physical->api_version < VK_API_VERSION_1_2)
        extensions[extension_count++] = VK_KHR_8BIT_STORAGE_EXTENSION_NAME;
    struct vulkan_coop_features coop;
    if (uses_coop)
        extensions[extension_count++] = COOP_EXTENSION;
    void *chain = NULL;
    vulkan_coop_chain(&coop, NULL);
    vulkan_coop_ask(&coop);
    if (uses_coop)
        chain = &coop.float16;
    chain_if(offers->full_subgroup, &chain, &size, &size.pNext);
    chain_if(offers->int_dot, &chain, &dot, &dot.pNext);
    chain_if(offers->timeline, &chain, &timeline, &timeline.pNext);
    chain_if(offers->storage16, &chain, &storage16, &storage16.pNext);
    chain_if(offers->storage8, &chain, &storage8, &storage8.pNext);
    const float priority = 1;
    const VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
        .queueFamilyIndex = physical->queue_family,
        .queueCount = 1,
        .pQueuePriorities = &priority};
    const VkDeviceCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
        .pNext = chain,
        .queueCreateInfoCount = 1,
        .pQueueCreateInfos = &queue,
        .enabledExtensionCount = extension_count,
        .ppEnabledExtensionNames = extensions,
    };
    const struct instance_functions *call = &vulkan_instance()->functions;
    VkResult result = call->CreateDevice(physical->handle, &info, NULL, &out->handle);
    if (result != VK_SUCCESS)
        return vulkan_fail(result, "vkCreateDevice", physical->name);
    TRY(vulkan_load_device_functions(out->handle, &out->call));
    if (offers->host_import)
        out->host_pointer = (PFN_vkGetMemoryHostPointerPropertiesEXT)call->GetDeviceProcAddr(
            out->handle, "vkGetMemoryHostPointerPropertiesEXT");
    if (offers->timeline)
        out->wait_semaphores = (PFN_vkWaitSemaphores)call->GetDeviceProcAddr(out->handle,
            physical->api_version < VK_API_VERSION_1_2 ? "vkWaitSemaphoresKHR" : "vkWaitSemaphores");
    call->GetPhysicalDeviceMemoryProperties(physical->handle, &out->memory);
    out->call.GetDeviceQueue(out->handle, physical->queue_family, 0, &out->queue);
cleanup:
    return status;
}

void vulkan_device_close(struct vulkan_device *device)
{
    if (device->handle && device->call.DestroyDevice)
        device->call.DestroyDevice(device->handle, NULL);
    device->handle = VK_NULL_HANDLE;
}

uint64_t vulkan_heap_free(const struct vulkan_device *device, uint32_t heap)
{
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    VkPhysicalDeviceMemoryProperties2 properties = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2, .pNext = &budget};
    if (!device->physical->features.memory_budget) {
        const uint64_t size = device->memory.memoryHeaps[heap].size, taken = device->usage->bytes[heap];
        return size > taken ? size - taken : 0;
    }
    vulkan_instance()->functions.GetPhysicalDeviceMemoryProperties2(device->physical->handle, &properties);
    return budget.heapBudget[heap] > budget.heapUsage[heap] ? budget.heapBudget[heap] - budget.heapUsage[heap]
                                                            : 0;
}

uint64_t vulkan_device_free_memory(const struct vulkan_device *device)
{
    uint64_t largest = 0, left = 0;
    for (uint32_t i = 0; i < device->memory.memoryHeapCount; i++) {
        const VkMemoryHeap *heap = &device->memory.memoryHeaps[i];
        if ((heap->flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) && heap->size > largest) {
            largest = heap->size;
            left = vulkan_heap_free(device, i);
        }
    }
    return left;
}
