#include "backend/vulkan/vulkan_coop.h"

#if defined(SALVO_COOP_KHR)
#define COOP_NAME(name) name##KHR
#define COOP_RESULT     ResultType
#define COOP_FUNCTION   "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"
#define COOP_STRUCTURE  VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR
#define COOP_FEATURES   VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR
#define COOP_SUBGROUP   VK_SCOPE_SUBGROUP_KHR
#define COOP_HALVES     VK_COMPONENT_TYPE_FLOAT16_KHR
#define COOP_FLOATS     VK_COMPONENT_TYPE_FLOAT32_KHR
#elif defined(SALVO_COOP_NV)
#define COOP_NAME(name) name##NV
#define COOP_RESULT     DType
#define COOP_FUNCTION   "vkGetPhysicalDeviceCooperativeMatrixPropertiesNV"
#define COOP_STRUCTURE  VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_NV
#define COOP_FEATURES   VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_NV
#define COOP_SUBGROUP   VK_SCOPE_SUBGROUP_NV
#define COOP_HALVES     VK_COMPONENT_TYPE_FLOAT16_NV
#define COOP_FLOATS     VK_COMPONENT_TYPE_FLOAT32_NV
#endif

const struct coop_tile coop_large_tile = {2, 2, 2, 2, 2}, coop_small_tile = {1, 2, 2, 2, 2};

uint32_t vulkan_coop_threads(const struct vulkan_physical *device, const struct coop_tile *tile)
{
    const uint32_t team = device->features.coop_emulated ? 32 : device->subgroup_size;
    return team * tile->beside * tile->below;
}

/* Shared memory of a workgroup in matmul_coop.comp: inputs, or the sums of one piece of each team. */
static uint32_t pool_bytes(const struct vulkan_physical *device, const struct coop_tile *tile)
{
    const uint32_t rows = 16 * tile->rows * tile->below, tokens = 16 * tile->tokens * tile->beside;
    const uint32_t inputs = (rows + tokens) * (4 * tile->step + 1),
                   sums = tile->beside * device->coop_tokens * (rows / 4 + 1);
    return 16 * (inputs > sums ? inputs : sums);
}

bool vulkan_coop_fits(const struct vulkan_physical *device, const struct coop_tile *tile)
{
    const VkPhysicalDeviceLimits *limits = &device->limits;
    const uint32_t threads = vulkan_coop_threads(device, tile);
    return threads <= limits->maxComputeWorkGroupInvocations &&
           threads <= limits->maxComputeWorkGroupSize[0] &&
           pool_bytes(device, tile) <= limits->maxComputeSharedMemorySize;
}

void vulkan_coop_chain(struct vulkan_coop_features *features, void *next)
{
    *features = (struct vulkan_coop_features){
        .float16 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES,
            .pNext = &features->memory_model},
        .memory_model = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_MEMORY_MODEL_FEATURES,
            .pNext = &features->matrices},
    };
#ifdef COOP_FEATURES
    features->matrices.sType = COOP_FEATURES;
#endif
    features->matrices.pNext = next;
}

#ifdef COOP_FEATURES
typedef COOP_NAME(VkCooperativeMatrixProperties) shape;

void vulkan_coop_ask(struct vulkan_coop_features *features)
{
    features->float16.shaderFloat16 = VK_TRUE;
    features->memory_model.vulkanMemoryModel = VK_TRUE;
    features->matrices.cooperativeMatrix = VK_TRUE;
}

/* The shader's tiles are multiples of 16 x 16, and its blocks have 32 inputs. */
static bool suits(const shape *offered)
{
    return offered->scope == COOP_SUBGROUP && offered->AType == COOP_HALVES &&
           offered->BType == COOP_HALVES && offered->CType == COOP_FLOATS &&
           offered->COOP_RESULT == COOP_FLOATS && (offered->MSize == 8 || offered->MSize == 16) &&
           (offered->NSize == 8 || offered->NSize == 16) &&
           (offered->KSize == 8 || offered->KSize == 16 || offered->KSize == 32);
}

static uint32_t size_of(const shape *offered)
{
    return offered->MSize * offered->NSize * offered->KSize;
}

static bool find_shape(struct vulkan_physical *device)
{
    enum { MOST = 128 };
    shape shapes[MOST];
    const shape *best = NULL;
    uint32_t count = MOST;
    COOP_NAME(PFN_vkGetPhysicalDeviceCooperativeMatrixProperties)
    get = (COOP_NAME(PFN_vkGetPhysicalDeviceCooperativeMatrixProperties))vulkan_instance_function(
        COOP_FUNCTION);
    for (uint32_t i = 0; i < MOST; i++)
        shapes[i] = (shape){.sType = COOP_STRUCTURE};
    if (!get || get(device->handle, &count, shapes) < 0)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        if (suits(&shapes[i]) && (!best || size_of(&shapes[i]) > size_of(best)))
            best = &shapes[i];
    }
    if (!best)
        return false;
    device->coop_tokens = best->MSize;
    device->coop_rows = best->NSize;
    device->coop_depth = best->KSize;
    return true;
}

bool vulkan_coop_find(struct vulkan_physical *device)
{
    struct vulkan_coop_features offers;
    vulkan_coop_chain(&offers, NULL);
    VkPhysicalDeviceFeatures2 features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &offers.float16};
    vulkan_instance()->functions.GetPhysicalDeviceFeatures2(device->handle, &features);
    return offers.float16.shaderFloat16 && offers.memory_model.vulkanMemoryModel &&
           offers.matrices.cooperativeMatrix && find_shape(device);
}
#else
void vulkan_coop_ask(struct vulkan_coop_features *features)
{
    (void)features;
}

bool vulkan_coop_find(struct vulkan_physical *device)
{
    (void)device;
    return false;
}
#endif
