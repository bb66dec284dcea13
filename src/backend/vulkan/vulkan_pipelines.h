/* Shaders, and pipelines made of them: one for each set of constants that a plan asks for. */
#ifndef VULKAN_PIPELINES_H
#define VULKAN_PIPELINES_H

#include "backend/vulkan/vulkan_device.h"
#include "base/team.h"

#include <stdatomic.h>

enum vulkan_shader {
    SHADER_TAKE,
    SHADER_TAKE_EMBED,
    SHADER_ROWS,
    SHADER_MATVEC,
    SHADER_MATMUL,
    SHADER_MATMUL_DIRECT,
    SHADER_MATMUL_COOP,
    SHADER_ATTEND,
    SHADER_ATTEND_ONE,
    SHADER_PROJECT_ATTEND,
    SHADER_MERGE,
    SHADER_WKV7,
    SHADER_WKV7_ONE,
    SHADER_ARGMAX,
    SHADER_SAMPLE,
    SHADER_COUNT
};

/* What every shader keeps to, since Apple's devices have no more. check_shaders.py looks at the memory. */
enum { MOST_THREADS = 1024, MOST_SHARED_BYTES = 32 << 10 };

/* Pipelines are compiled by one thread per processor: compiling dominates the first start. */
enum { MOST_COMPILE_THREADS = 16 };

/* What a pipeline is specialised on. */
struct pipeline_constants {
    uint32_t threads;
    uint64_t types; /* formats of weights, a bit for each number of a type */
    uint32_t extra; /* tokens of an invocation, head_dim */
    uint32_t columns;
    uint32_t state_types,
        head_dim; /* of attention: as types. Of cooperative matrices all three: what they multiply */
};

struct vulkan_pipelines {
    const struct vulkan_device *device;
    VkDescriptorSetLayout set_layout;
    VkPipelineLayout layout;
    VkPipelineCache cache;
    VkShaderModule modules[SHADER_COUNT];
    struct pipeline {
        enum vulkan_shader shader;
        struct pipeline_constants constants;
        VkPipeline handle;
    } * made;
    uint32_t count, capacity;
    uint32_t ready; /* the first ones have been made */

    /* While pipelines are being compiled. */
    struct team *team;
    atomic_int result; /* VkResult of the last failure */
    atomic_bool cancelled;
};

enum salvo_status vulkan_pipelines_open(const struct vulkan_device *device, struct vulkan_pipelines *out);
void vulkan_pipelines_close(struct vulkan_pipelines *pipelines);

/* The index of a pipeline, which exists after the next vulkan_pipelines_make. vulkan_pipelines_begin lets
 * threads compile in the background until then; no pipeline is requested in between. */
enum salvo_status vulkan_pipeline(struct vulkan_pipelines *pipelines, enum vulkan_shader shader,
    struct pipeline_constants constants, uint32_t *out);
enum salvo_status vulkan_pipelines_begin(struct vulkan_pipelines *pipelines);
enum salvo_status vulkan_pipelines_make(struct vulkan_pipelines *pipelines);

/* vulkan_cache.c: what the driver compiled, kept in the user's cache folder. A file that is damaged or is not
 * to be had counts as none. */
void vulkan_cache_load(const struct vulkan_physical *physical, uint8_t **out_data, size_t *out_size);
void vulkan_cache_store(const struct vulkan_physical *physical, const uint8_t *data, size_t size);

#endif
