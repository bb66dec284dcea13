/* Cooperative matrices: what a device offers of the extension that the shader was compiled for. */
#ifndef VULKAN_COOP_H
#define VULKAN_COOP_H

#include "backend/vulkan/vulkan_device.h"

#if defined(SALVO_COOP_KHR)
#define COOP_EXTENSION VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME
typedef VkPhysicalDeviceCooperativeMatrixFeaturesKHR coop_features;
#elif defined(SALVO_COOP_NV)
#define COOP_EXTENSION VK_NV_COOPERATIVE_MATRIX_EXTENSION_NAME
typedef VkPhysicalDeviceCooperativeMatrixFeaturesNV coop_features;
#else
#define COOP_EXTENSION ""
typedef VkBaseOutStructure coop_features;
#endif

/* What the shader needs, as features of a device, chained. */
struct vulkan_coop_features {
    VkPhysicalDeviceShaderFloat16Int8Features float16;
    VkPhysicalDeviceVulkanMemoryModelFeatures memory_model;
    coop_features matrices;
};
void vulkan_coop_chain(struct vulkan_coop_features *features, void *next);
void vulkan_coop_ask(struct vulkan_coop_features *features); /* for all of it */

/* Tiles: what a team, a subgroup, has in sixteens, how many teams are beside and below each other, and how
 * many blocks of 32 inputs there are at a time. */
struct coop_tile {
    uint32_t tokens, rows;
    uint32_t beside, below;
    uint32_t step;
};
extern const struct coop_tile coop_large_tile, coop_small_tile;

uint32_t vulkan_coop_threads(const struct vulkan_physical *device, const struct coop_tile *tile);
/* Within the limits of a device whose shape is known. Every device that multiplies so has the small one. */
bool vulkan_coop_fits(const struct vulkan_physical *device, const struct coop_tile *tile);

/* Notes a shape of halves with sums in floats; false where there is none. Only for devices that have the
 * extension. */
bool vulkan_coop_find(struct vulkan_physical *device);

#endif
