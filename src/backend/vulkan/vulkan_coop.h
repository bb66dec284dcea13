/* Cooperative matrices: the shapes that a device offers through the extension that the shader was compiled
 * for. */
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

/* The device features that the shader needs, as a chain of structs. */
struct vulkan_coop_features {
    VkPhysicalDeviceShaderFloat16Int8Features float16;
    VkPhysicalDeviceVulkanMemoryModelFeatures memory_model;
    coop_features matrices;
};
void vulkan_coop_chain(struct vulkan_coop_features *features, void *next);
void vulkan_coop_ask(struct vulkan_coop_features *features); /* enables all of them */

/* A tile of matmul_coop.comp: the tokens and rows of a team (a subgroup) in units of 16, the number of teams
 * in both directions, and the blocks of 32 inputs per iteration. */
struct coop_tile {
    uint32_t tokens, rows;
    uint32_t beside, below;
    uint32_t step;
};
extern const struct coop_tile coop_large_tile, coop_small_tile;

uint32_t vulkan_coop_threads(const struct vulkan_physical *device, const struct coop_tile *tile);
/* Whether a tile is within the device's limits. The small tile always is. */
bool vulkan_coop_fits(const struct vulkan_physical *device, const struct coop_tile *tile);

/* Finds a shape that multiplies halves and sums floats; false if there is none. Only for devices with the
 * extension. */
bool vulkan_coop_find(struct vulkan_physical *device);

#endif
