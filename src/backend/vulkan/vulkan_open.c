/* Opens an executor: compiles the plans and allocates all memory before weights are loaded. Nothing is
 * allocated after that. */
#include "backend/common/ropes.h"
#include "backend/vulkan/vulkan_executor.h"

#include "base/memory.h"

#include <string.h>

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* A buffer that shaders bind as a whole, so its size is limited. */
static enum salvo_status open_bound(struct executor *executor, uint64_t size, enum vulkan_place place,
    const char *what, struct vulkan_buffer *out)
{
    const uint32_t most = executor->device.physical->limits.maxStorageBufferRange;
    if (size > most) {
        return fail(SALVO_ERROR_MEMORY,
            "%s of %llu MB: %s can bind %u MB; ask for a smaller batch or context", what,
            (unsigned long long)(size / 1000000), executor->device.physical->name, most / 1000000);
    }
    enum salvo_status status = vulkan_buffer_open(&executor->device, size, place, what, out);
    executor->counters.scratch_bytes += out->size;
    return status;
}

/* ---- Memory ---- */

static enum salvo_status open_ropes(struct executor *executor)
{
    enum salvo_status status = SALVO_OK;
    const struct program *program = executor->program;
    const uint32_t context = executor->options.context;
    const size_t floats = rope_tables_size(program, context);
    float *tables = NULL;
    TRY(ARENA_NEW(&executor->tables, &executor->rope_offsets, program->rope_count));
    TRY(NEW(&tables, floats + 1));
    rope_tables_fill(program, context, executor->rope_offsets, tables);
    TRY(open_bound(executor, floats * sizeof *tables, PLACE_DEVICE, "angles", &executor->ropes));
    TRY(vulkan_write(&executor->transfer, &executor->ropes, 0, tables, floats * sizeof *tables));
cleanup:
    memory_free(tables);
    return status;
}

/* Bytes of the rounded rows: halves with their scale, or int8 with scales and sums. */
static uint64_t rounded_bytes(const struct executor *executor)
{
    const struct program *program = executor->program;
    uint64_t columns = 0;
    for (uint32_t i = 0; i < program->op_count; i++) {
        const struct op *op = &program->ops[i];
        if (op->kind == OP_MATMUL && op->matmul.rounding == ROUNDING_Q8)
            columns = larger(columns, program->buffers[op->inputs[0]].columns);
    }
    const uint64_t row = executor->device.physical->features.coop_matrix
                             ? columns * 2 + ROW_HALVES_WORDS * sizeof(uint32_t)
                             : columns + columns / 16 * 4;
    return executor->options.batch * row;
}

static uint64_t partial_bytes(const struct executor *executor)
{
    const struct program *program = executor->program;
    uint64_t bytes = (uint64_t)executor->options.outputs * ARGMAX_BLOCKS * 2 * sizeof(uint32_t);
    for (uint32_t i = 0; i < program->op_count; i++) {
        const struct op *op = &program->ops[i];
        if (op->kind == OP_ATTEND)
            bytes = larger(
                bytes, (uint64_t)op->attend.heads * SPLITS * (op->attend.head_dim + 2) * sizeof(float));
    }
    return bytes;
}

/* Counters behind the partial results: for each head, the splits of a token's attention that are done. */
static uint64_t count_bytes(const struct program *program)
{
    uint64_t heads = 0;
    for (uint32_t i = 0; i < program->op_count; i++)
        heads = program->ops[i].kind == OP_ATTEND ? larger(heads, program->ops[i].attend.heads) : heads;
    return heads * sizeof(uint32_t);
}

static enum salvo_status open_scratch(struct executor *executor)
{
    enum salvo_status status = SALVO_OK;
    const struct backend_options *options = &executor->options;
    const uint32_t vocabulary = executor->program->vocabulary;
    const uint64_t arena = larger(scratch_bytes(plan_places(&executor->single.lowered)),
        scratch_bytes(plan_places(&executor->batch.lowered)));
    const uint32_t groups = options->outputs < SAMPLE_GROUPS ? options->outputs : SAMPLE_GROUPS;
    const uint64_t ids = (uint64_t)options->slots * (options->context + 1) * sizeof(int32_t);
    executor->bias_row_count = options->slots < BIAS_ROWS ? options->slots : BIAS_ROWS;
    TRY(open_bound(executor, arena, PLACE_DEVICE, "scratch", &executor->arena));
    TRY(open_bound(executor, rounded_bytes(executor), PLACE_DEVICE, "activations", &executor->rounded));
    TRY(open_bound(executor, partial_bytes(executor) + count_bytes(executor->program), PLACE_DEVICE,
        "partial results", &executor->partials));
    executor->split_counts_at = (uint32_t)(partial_bytes(executor) / sizeof(uint32_t));
    TRY(vulkan_clear(&executor->transfer, &executor->partials));
    TRY(open_bound(executor, (uint64_t)groups * 2 * vocabulary * sizeof(uint32_t), PLACE_DEVICE, "sampling",
        &executor->sample_scratch));
    TRY(open_bound(executor, ids, PLACE_DEVICE, "ids", &executor->tokens));
    TRY(open_bound(executor, ids, PLACE_TO_HOST, "ids", &executor->host_tokens));
    TRY(open_bound(executor, sizeof(struct ring_state) + options->slots * sizeof(uint32_t), PLACE_DEVICE,
        "ring state", &executor->ring_state));
    TRY(open_bound(executor, (uint64_t)executor->bias_row_count * vocabulary * sizeof(float), PLACE_TO_DEVICE,
        "bias", &executor->bias));
    TRY(ARENA_NEW(&executor->tables, &executor->bias_rows, executor->bias_row_count));
    TRY(open_bound(executor,
        ((uint64_t)options->slots + RESIDENT_MASKS) * step_mask_words(vocabulary) * sizeof(uint32_t),
        PLACE_TO_DEVICE, "masks", &executor->masks));
    TRY(ARENA_NEW(&executor->tables, &executor->masked_by, options->slots));
    TRY(open_bound(executor, (uint64_t)options->outputs * LOGPROB_WORDS * sizeof(uint32_t), PLACE_TO_HOST,
        "log-probabilities", &executor->logprobs));
    TRY(NEW(&executor->logits, (size_t)options->outputs * vocabulary));
    TRY(vulkan_clear(&executor->transfer, &executor->sample_scratch));
    TRY(vulkan_clear(&executor->transfer, &executor->ring_state));
    TRY(vulkan_clear(&executor->transfer, &executor->tokens));
    memset(executor->host_tokens.mapped, 0, executor->host_tokens.size);
cleanup:
    return status;
}

/* The rings of steps and results. A step has header and runs, then rows, output rows and pages. */
static enum salvo_status open_rings(struct executor *executor)
{
    enum salvo_status status = SALVO_OK;
    const struct backend_options *options = &executor->options;
    const uint64_t page_words = executor->state.pages_per_slot;
    const uint64_t first = HEADER_WORDS + (uint64_t)options->slots * RUN_WORDS;
    const uint64_t words_at = (first + 63) / 64 * 64; /* every device can bind at multiples of 64 words */
    const uint64_t entry =
        words_at + (uint64_t)options->batch * ROW_WORDS + options->outputs + options->slots * page_words;
    executor->step_words_at = (uint32_t)words_at;
    executor->step_entry_words = (uint32_t)((entry + 63) / 64 * 64);
    const uint64_t bytes = executor->step_entry_words * UINT64_C(4);
    TRY(open_bound(executor, bytes, PLACE_DEVICE, "step", &executor->step));
    TRY(open_bound(executor, bytes * RING_ENTRIES, PLACE_TO_DEVICE, "steps", &executor->ring));
    TRY(open_bound(executor, (uint64_t)RING_ENTRIES * options->slots * sizeof(struct run_outcome),
        PLACE_TO_HOST, "results", &executor->outcomes));
    const VkSemaphoreTypeCreateInfo counting = {
        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO, .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    const VkSemaphoreCreateInfo semaphore = {
        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &counting};
    if (executor->device.wait_semaphores)
        CHECK(&executor->device, CreateSemaphore,
            (executor->device.handle, &semaphore, NULL, &executor->timeline));
    for (uint32_t i = 0; i < RING_ENTRIES; i++) {
        const VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
        CHECK(&executor->device, CreateFence, (executor->device.handle, &fence, NULL, &executor->fences[i]));
    }
cleanup:
    return status;
}

/* ---- Plans ---- */

/* Fused projection and attention is for devices on which a dispatch is expensive. */
static enum salvo_status lower_plans(struct executor *executor)
{
    const struct lowering_options lowering = {.max_rounded = MAX_ROUNDED,
        .max_batch_inputs = 1,
        .projects_attention = !executor->device.physical->features.processor,
        .takes = vulkan_supports_projection,
        .executor = executor};
    return lower_single_and_batch(executor->program, &executor->options, lowering, &executor->tables,
        &executor->single.lowered, &executor->batch.lowered);
}

static enum salvo_status compile(struct executor *executor, struct vulkan_plan *plan)
{
    struct compiling compiling = {executor, plan, &executor->arena, plan_places(&plan->lowered)};
    return vulkan_plan_compile(&compiling);
}

static enum salvo_status record(struct executor *executor, struct vulkan_plan *plan)
{
    enum salvo_status status = SALVO_OK;
    TRY(vulkan_plan_record(executor, plan, 0, plan->dispatch_count, 1, plan->commands, VK_NULL_HANDLE));
    if (plan->commands_ahead)
        TRY(vulkan_plan_record(
            executor, plan, 0, plan->dispatch_count, TOKENS_AHEAD, plan->commands_ahead, VK_NULL_HANDLE));
    TRY(vulkan_plan_record_sampling(executor, plan));
cleanup:
    return status;
}

static uint64_t table_bytes(const struct vulkan_plan *plan)
{
    return plan->row_table.size + plan->matrix_table.size;
}

uint64_t vulkan_objects(const struct executor *executor)
{
    return executor->usage.buffers + executor->pipelines.count;
}

enum salvo_status vulkan_executor_open(
    const struct program *program, const struct backend_options *options, struct executor **out)
{
    enum salvo_status status = SALVO_OK;
    struct executor *executor = NULL;
    *out = NULL;
    TRY(NEW(&executor, 1));
    executor->program = program;
    executor->options = *options;
    TRY(vulkan_device_open(options->device, &executor->device));
    vulkan_chunk_open(executor);
    executor->device.usage = &executor->usage;
    executor->free_before = vulkan_device_free_memory(&executor->device);
    const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
        .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
        .queueFamilyIndex = executor->device.physical->queue_family};
    CHECK(&executor->device, CreateCommandPool,
        (executor->device.handle, &pool, NULL, &executor->command_pool));
    TRY(vulkan_transfer_open(&executor->device, &executor->transfer));
    TRY(vulkan_pipelines_open(&executor->device, &executor->pipelines));
    TRY(vulkan_weights_place(executor));
    TRY(lower_plans(executor));
    TRY(vulkan_states_open(executor));
    TRY(vulkan_steps_open(executor));
    TRY(open_scratch(executor));
    TRY(open_rings(executor));
    TRY(open_ropes(executor));
    TRY(compile(executor, &executor->single));
    TRY(compile(executor, &executor->batch));
    TRY(vulkan_pipelines_begin(&executor->pipelines));
    TRY(vulkan_weights_load(executor));
    TRY(vulkan_pipelines_make(&executor->pipelines));
    TRY(record(executor, &executor->single));
    TRY(record(executor, &executor->batch));
    executor->counters.scratch_bytes +=
        executor->transfer.staging.size + table_bytes(&executor->single) + table_bytes(&executor->batch);
    executor->objects_at_load = vulkan_objects(executor);
    *out = executor;
    executor = NULL;
cleanup:
    vulkan_executor_close(executor);
    return status;
}

void vulkan_executor_close(struct executor *executor)
{
    if (!executor)
        return;
    const struct vulkan_device *device = &executor->device;
    struct vulkan_buffer *const buffers[] = {&executor->arena, &executor->vectors, &executor->rounded,
        &executor->recurrent, &executor->kept_states, &executor->tokens, &executor->ropes,
        &executor->partials, &executor->ring_state, &executor->sample_scratch, &executor->bias,
        &executor->masks, &executor->logprobs, &executor->step, &executor->ring, &executor->outcomes,
        &executor->host_tokens};
    if (device->handle && device->call.DeviceWaitIdle) {
        (void)device->call.DeviceWaitIdle(device->handle);
        vulkan_debug_end(executor);
        vulkan_plan_close(executor, &executor->single);
        vulkan_plan_close(executor, &executor->batch);
        for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
            vulkan_buffer_close(device, buffers[i]);
        for (uint32_t i = 0; i < executor->weight_buffer_count; i++)
            vulkan_buffer_close(device, &executor->weight_buffers[i]);
        for (uint32_t i = 0; executor->kv_pages && i < executor->program->buffer_count; i++)
            vulkan_buffer_close(device, &executor->kv_pages[i]);
        for (uint32_t i = 0; i < RING_ENTRIES; i++) {
            if (executor->fences[i])
                device->call.DestroyFence(device->handle, executor->fences[i], NULL);
        }
        if (executor->timeline)
            device->call.DestroySemaphore(device->handle, executor->timeline, NULL);
        vulkan_idle_close(executor);
        vulkan_pipelines_close(&executor->pipelines);
        vulkan_transfer_close(&executor->transfer);
        if (executor->command_pool)
            device->call.DestroyCommandPool(device->handle, executor->command_pool, NULL);
        vulkan_device_close(&executor->device);
    }
    memory_free(executor->weight_buffers);
    memory_free(executor->logits);
    arena_free(&executor->tables);
    memory_free(executor);
}
