/* Shaders, and the pipelines made of them: one for each set of constants that a plan requests. */
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

/* Limits of every shader, chosen for Apple GPUs. check_shaders.py checks the shared memory. */
enum { MOST_THREADS = 1024, MOST_SHARED_BYTES = 32 << 10 };

/* Pipelines are compiled by one thread per processor: compiling dominates the first start. */
enum { MOST_COMPILE_THREADS = 16 };

/* The specialisation constants of a pipeline. */
struct pipeline_constants {
    uint32_t threads;
    uint64_t types; /* formats of the weights: bit n is enum tensor_type n */
    uint32_t extra; /* depends on the shader: tokens of an invocation, flags */
    /* state_types: types of the KV cache, as `types`. For cooperative matrices these three are their shape.
     */
    uint32_t columns, state_types, head_dim;
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
    uint32_t count;
    size_t capacity;
    uint32_t ready; /* number of pipelines created; they come first */

    /* Used while pipelines are being compiled. */
    struct team *team;
    atomic_int result; /* VkResult of the last failure */
    atomic_bool cancelled;
};

enum salvo_status vulkan_pipelines_open(const struct vulkan_device *device, struct vulkan_pipelines *out);
void vulkan_pipelines_close(struct vulkan_pipelines *pipelines);

/* Returns the index of a pipeline, which exists after the next vulkan_pipelines_make. From
 * vulkan_pipelines_begin until then threads compile in the background, and no pipeline may be requested. */
enum salvo_status vulkan_pipeline(struct vulkan_pipelines *pipelines, enum vulkan_shader shader,
    struct pipeline_constants constants, uint32_t *out);
enum salvo_status vulkan_pipelines_begin(struct vulkan_pipelines *pipelines);
enum salvo_status vulkan_pipelines_make(struct vulkan_pipelines *pipelines);

/* vulkan_cache.c: the driver's pipeline cache, in the user's cache folder. A damaged or missing file is an
 * empty cache. */
void vulkan_cache_load(const struct vulkan_physical *physical, uint8_t **out_data, size_t *out_size);
void vulkan_cache_store(const struct vulkan_physical *physical, const uint8_t *data, size_t size);

#endif
