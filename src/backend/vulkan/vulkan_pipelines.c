#include "backend/vulkan/vulkan_pipelines.h"

#include "backend/vulkan/vulkan_shared.h"
#include "base/memory.h"

#include <assert.h>
#include <unistd.h>

#define SPIRV(name) static const uint32_t name##_code[] = {

SPIRV(take)
#include "take.inc"
}
;
SPIRV(take_embed)
#include "take_embed.inc"
}
;
SPIRV(rows)
#include "rows.inc"
}
;
SPIRV(matvec)
#include "matvec.inc"
}
;
SPIRV(matvec_subgroup)
#include "matvec_subgroup.inc"
}
;
SPIRV(matvec_dot)
#include "matvec_dot.inc"
}
;
SPIRV(matmul)
#include "matmul.inc"
}
;
SPIRV(matmul_dot)
#include "matmul_dot.inc"
}
;
SPIRV(matmul_emulated)
#include "matmul_emulated.inc"
}
;
#if defined(SALVO_COOP_KHR) || defined(SALVO_COOP_NV)
SPIRV(matmul_coop)
#include "matmul_coop.inc"
}
;
#endif
SPIRV(matmul_direct)
#include "matmul_direct.inc"
}
;
SPIRV(attend)
#include "attend.inc"
}
;
SPIRV(attend_subgroup)
#include "attend_subgroup.inc"
}
;
SPIRV(attend_storage16)
#include "attend_storage16.inc"
}
;
SPIRV(attend_storage8)
#include "attend_storage8.inc"
}
;
SPIRV(attend_one)
#include "attend_one.inc"
}
;
SPIRV(attend_one_subgroup)
#include "attend_one_subgroup.inc"
}
;
SPIRV(project_attend)
#include "project_attend.inc"
}
;
SPIRV(project_attend_subgroup)
#include "project_attend_subgroup.inc"
}
;
SPIRV(project_attend_dot)
#include "project_attend_dot.inc"
}
;
SPIRV(merge)
#include "merge.inc"
}
;
SPIRV(wkv7)
#include "wkv7.inc"
}
;
SPIRV(wkv7_one)
#include "wkv7_one.inc"
}
;
SPIRV(wkv7_one_subgroup)
#include "wkv7_one_subgroup.inc"
}
;
SPIRV(argmax)
#include "argmax.inc"
}
;
SPIRV(sample)
#include "sample.inc"
}
;

struct code {
    const uint32_t *words;
    size_t bytes;
};

#define CODE(name) ((struct code){name##_code, sizeof name##_code})

/* The SPIR-V variant for the device's features. */
static struct code code_of(enum vulkan_shader shader, const struct vulkan_features *features)
{
    switch (shader) {
    case SHADER_TAKE:
        return CODE(take);
    case SHADER_TAKE_EMBED:
        return CODE(take_embed);
    case SHADER_ROWS:
        return CODE(rows);
    case SHADER_MATVEC:
        return !features->subgroup ? CODE(matvec)
               : features->int_dot ? CODE(matvec_dot)
                                   : CODE(matvec_subgroup);
    case SHADER_MATMUL:
        return features->int_dot ? CODE(matmul_dot) : CODE(matmul);
    case SHADER_MATMUL_DIRECT:
        return CODE(matmul_direct);
    case SHADER_MATMUL_COOP:
#if defined(SALVO_COOP_KHR) || defined(SALVO_COOP_NV)
        if (!features->coop_emulated)
            return CODE(matmul_coop);
#endif
        return CODE(matmul_emulated);
    case SHADER_ATTEND:
        return !features->subgroup    ? CODE(attend)
               : !features->storage16 ? CODE(attend_subgroup)
               : !features->storage8  ? CODE(attend_storage16)
                                      : CODE(attend_storage8);
    case SHADER_ATTEND_ONE:
        return features->subgroup ? CODE(attend_one_subgroup) : CODE(attend_one);
    case SHADER_PROJECT_ATTEND:
        return !features->subgroup ? CODE(project_attend)
               : features->int_dot ? CODE(project_attend_dot)
                                   : CODE(project_attend_subgroup);
    case SHADER_MERGE:
        return CODE(merge);
    case SHADER_WKV7:
        return CODE(wkv7);
    case SHADER_WKV7_ONE:
        return features->subgroup ? CODE(wkv7_one_subgroup) : CODE(wkv7_one);
    case SHADER_ARGMAX:
        return CODE(argmax);
    case SHADER_SAMPLE:
    case SHADER_COUNT:
        break;
    }
    return CODE(sample);
}

static enum salvo_status open_layout(struct vulkan_pipelines *pipelines)
{
    enum salvo_status status = SALVO_OK;
    const struct vulkan_device *device = pipelines->device;
    VkDescriptorSetLayoutBinding bindings[BIND_COUNT];
    for (uint32_t i = 0; i < BIND_COUNT; i++) {
        bindings[i] = (VkDescriptorSetLayoutBinding){.binding = i,
            .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
            .descriptorCount = 1,
            .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT};
    }
    const VkDescriptorSetLayoutCreateInfo set = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
        .bindingCount = BIND_COUNT,
        .pBindings = bindings};
    CHECK(device, CreateDescriptorSetLayout, (device->handle, &set, NULL, &pipelines->set_layout));
    const VkPushConstantRange range = {.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT, .size = 128};
    const VkPipelineLayoutCreateInfo layout = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
        .setLayoutCount = 1,
        .pSetLayouts = &pipelines->set_layout,
        .pushConstantRangeCount = 1,
        .pPushConstantRanges = &range};
    CHECK(device, CreatePipelineLayout, (device->handle, &layout, NULL, &pipelines->layout));
cleanup:
    return status;
}

enum salvo_status vulkan_pipelines_open(const struct vulkan_device *device, struct vulkan_pipelines *out)
{
    enum salvo_status status = SALVO_OK;
    const VkPhysicalDeviceLimits *limits = &device->physical->limits;
    uint8_t *kept = NULL;
    size_t kept_bytes = 0;
    *out = (struct vulkan_pipelines){.device = device};
    if (limits->maxPerStageDescriptorStorageBuffers < BIND_COUNT ||
        limits->maxDescriptorSetStorageBuffers < BIND_COUNT) {
        TRY(fail(SALVO_ERROR_UNSUPPORTED, "%s binds %u buffers to a shader; %u are needed",
            device->physical->name, limits->maxPerStageDescriptorStorageBuffers, (unsigned)BIND_COUNT));
    }
    if (limits->maxComputeSharedMemorySize < MOST_SHARED_BYTES) {
        TRY(fail(SALVO_ERROR_UNSUPPORTED, "%s has %u bytes of memory for a workgroup; %d are needed",
            device->physical->name, limits->maxComputeSharedMemorySize, (int)MOST_SHARED_BYTES));
    }
    TRY(open_layout(out));
    vulkan_cache_load(device->physical, &kept, &kept_bytes);
    const VkPipelineCacheCreateInfo cache = {.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO,
        .initialDataSize = kept_bytes,
        .pInitialData = kept};
    CHECK(device, CreatePipelineCache, (device->handle, &cache, NULL, &out->cache));
cleanup:
    memory_free(kept);
    return status;
}

static void store_cache(struct vulkan_pipelines *pipelines)
{
    const struct vulkan_device *device = pipelines->device;
    size_t size = 0;
    uint8_t *data = NULL;
    if (device->call.GetPipelineCacheData(device->handle, pipelines->cache, &size, NULL) == VK_SUCCESS &&
        size > 0 && NEW(&data, size) == SALVO_OK &&
        device->call.GetPipelineCacheData(device->handle, pipelines->cache, &size, data) == VK_SUCCESS)
        vulkan_cache_store(device->physical, data, size);
    memory_free(data);
}

void vulkan_pipelines_close(struct vulkan_pipelines *pipelines)
{
    const struct vulkan_device *device = pipelines->device;
    if (!device || !device->handle)
        return;
    atomic_store(&pipelines->cancelled, true); /* workers compile no further pipeline */
    team_close(pipelines->team);
    for (uint32_t i = 0; i < pipelines->count; i++)
        device->call.DestroyPipeline(device->handle, pipelines->made[i].handle, NULL);
    for (int i = 0; i < SHADER_COUNT; i++) {
        if (pipelines->modules[i])
            device->call.DestroyShaderModule(device->handle, pipelines->modules[i], NULL);
    }
    if (pipelines->cache) {
        store_cache(pipelines);
        device->call.DestroyPipelineCache(device->handle, pipelines->cache, NULL);
    }
    if (pipelines->layout)
        device->call.DestroyPipelineLayout(device->handle, pipelines->layout, NULL);
    if (pipelines->set_layout)
        device->call.DestroyDescriptorSetLayout(device->handle, pipelines->set_layout, NULL);
    memory_free(pipelines->made);
    *pipelines = (struct vulkan_pipelines){0};
}

static bool is_same(struct pipeline_constants a, struct pipeline_constants b)
{
    return a.threads == b.threads && a.types == b.types && a.extra == b.extra && a.columns == b.columns &&
           a.state_types == b.state_types && a.head_dim == b.head_dim;
}

/* Checks all limits first, so that on the worker threads only vkCreateComputePipelines can fail. */
static enum salvo_status prepare(
    struct vulkan_pipelines *pipelines, enum vulkan_shader shader, struct pipeline_constants constants)
{
    enum salvo_status status = SALVO_OK;
    const struct vulkan_device *device = pipelines->device;
    assert(constants.threads <= MOST_THREADS);
    if (constants.threads > device->physical->limits.maxComputeWorkGroupInvocations ||
        constants.threads > device->physical->limits.maxComputeWorkGroupSize[0]) {
        TRY(fail(SALVO_ERROR_UNSUPPORTED, "%s has workgroups of %u invocations; %u are needed",
            device->physical->name, device->physical->limits.maxComputeWorkGroupInvocations,
            constants.threads));
    }
    if (!pipelines->modules[shader]) {
        struct code code = code_of(shader, &device->physical->features);
        const VkShaderModuleCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
            .codeSize = code.bytes,
            .pCode = code.words};
        CHECK(device, CreateShaderModule, (device->handle, &info, NULL, &pipelines->modules[shader]));
    }
cleanup:
    return status;
}

static VkResult make(const struct vulkan_pipelines *pipelines, struct pipeline *pipeline)
{
    const struct vulkan_device *device = pipelines->device;
    const struct pipeline_constants constants = pipeline->constants;
    const enum vulkan_shader shader = pipeline->shader;
    const uint32_t values[] = {constants.threads, (uint32_t)constants.types,
        (uint32_t)(constants.types >> 32), constants.extra, device->physical->features.halves,
        constants.columns, constants.state_types, constants.head_dim};
    enum { COUNT = sizeof values / sizeof *values };
    VkSpecializationMapEntry entries[COUNT];
    for (uint32_t i = 0; i < COUNT; i++)
        entries[i] = (VkSpecializationMapEntry){.constantID = i, .offset = i * 4, .size = 4};
    const VkSpecializationInfo special = {
        .mapEntryCount = COUNT, .pMapEntries = entries, .dataSize = sizeof values, .pData = values};
    const bool needs_full =
        device->physical->features.subgroup &&
        (shader == SHADER_MATVEC || shader == SHADER_ATTEND_ONE || shader == SHADER_PROJECT_ATTEND ||
            shader == SHADER_WKV7_ONE ||
            (shader == SHADER_MATMUL_COOP && !device->physical->features.coop_emulated)) &&
        constants.threads % device->physical->subgroup_size == 0;
    const VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage =
            {
                .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                .flags = needs_full ? VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT : 0,
                .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                .module = pipelines->modules[shader],
                .pName = "main",
                .pSpecializationInfo = &special,
            },
        .layout = pipelines->layout,
    };
    return device->call.CreateComputePipelines(
        device->handle, pipelines->cache, 1, &info, NULL, &pipeline->handle);
}

static void make_task(void *context, uint32_t phase, uint32_t task, uint32_t thread)
{
    (void)phase;
    (void)thread;
    struct vulkan_pipelines *pipelines = context;
    if (atomic_load(&pipelines->cancelled))
        return;
    const VkResult result = make(pipelines, &pipelines->made[pipelines->ready + task]);
    if (result != VK_SUCCESS)
        atomic_store(&pipelines->result, result);
}

enum salvo_status vulkan_pipelines_begin(struct vulkan_pipelines *pipelines)
{
    enum salvo_status status = SALVO_OK;
    const uint32_t tasks = pipelines->count - pipelines->ready;
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t threads = tasks < MOST_COMPILE_THREADS ? tasks : MOST_COMPILE_THREADS;
    threads = processors < (long)threads ? (uint32_t)processors : threads;
    /* If no thread can be started, the calling thread compiles. */
    if (threads < 2 || team_open(threads, false, 1, &pipelines->team) != SALVO_OK)
        TRY(team_open(1, false, 1, &pipelines->team));
    atomic_store(&pipelines->result, VK_SUCCESS);
    team_begin(pipelines->team,
        &(struct team_job){.context = pipelines, .tasks = &tasks, .phase_count = 1, .work = make_task});
cleanup:
    return status;
}

enum salvo_status vulkan_pipelines_make(struct vulkan_pipelines *pipelines)
{
    enum salvo_status status = SALVO_OK;
    if (!pipelines->team)
        TRY(vulkan_pipelines_begin(pipelines));
    team_finish(pipelines->team);
    team_close(pipelines->team);
    pipelines->team = NULL;
    pipelines->ready = pipelines->count;
    const VkResult result = atomic_load(&pipelines->result);
    if (result != VK_SUCCESS)
        TRY(vulkan_fail(result, "vkCreateComputePipelines", pipelines->device->physical->name));
cleanup:
    return status;
}

enum salvo_status vulkan_pipeline(struct vulkan_pipelines *pipelines, enum vulkan_shader shader,
    struct pipeline_constants constants, uint32_t *out)
{
    enum salvo_status status = SALVO_OK;
    for (*out = 0; *out < pipelines->count; ++*out) {
        const struct pipeline *known = &pipelines->made[*out];
        if (known->shader == shader && is_same(known->constants, constants))
            return SALVO_OK;
    }
    TRY(GROW(&pipelines->made, pipelines->count, &pipelines->capacity));
    TRY(prepare(pipelines, shader, constants));
    pipelines->made[pipelines->count++] = (struct pipeline){shader, constants, VK_NULL_HANDLE};
cleanup:
    return status;
}
