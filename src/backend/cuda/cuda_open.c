/* Opens an executor: compiles the plans and allocates all memory before a weight is read. A plan that does
 * not fit is refused before that. */
#include "backend/cuda/cuda_executor.h"
#include "backend/cuda/cuda_images.h"
#include "base/log.h"
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STAGING_BYTES = 4 << 20, WARPGROUP_MAJOR = 9 };

static unsigned long long megabytes(uint64_t bytes)
{
    return (unsigned long long)((bytes + 999999) / 1000000);
}

/* ---- The device ---- */

static enum salvo_status load_modules(struct executor *executor)
{
    enum salvo_status status = SALVO_OK;
    struct cuda_context *context = &executor->context;
    for (const struct cuda_image *image = cuda_images; image->name; image++) {
        int result = context->driver->module_load(&executor->modules[executor->module_count], image->bytes);
        if (result == CUDA_NO_BINARY) {
            TRY(fail(SALVO_ERROR_UNSUPPORTED,
                "cuda device %u (%s): this build has no kernels for compute capability %d.%d",
                context->number, context->name, executor->device->major, executor->device->minor));
        }
        TRY(cuda_context_result(context, cuda_driver_symbols.module_load, result));
        executor->module_count++;
        context->creations++;
    }
cleanup:
    return status;
}

/*
 * A token in one launch needs all blocks of the decode kernel resident at once, since they wait for each
 * other. Another process may occupy multiprocessors, which no query reports: an empty kernel of the same size
 * is launched.
 */
static enum salvo_status find_residency(struct executor *executor)
{
    enum salvo_status status = SALVO_OK;
    const struct cuda_context *context = &executor->context;
    cuda_function probe;
    TRY(cuda_function_find(executor, "salvo_probe", &probe));
    const struct cuda_launch_attribute cooperative = {.kind = CUDA_LAUNCH_COOPERATIVE, .value.on = 1};
    const struct cuda_launch_config config = {
        .grid = {executor->blocks, 1, 1},
        .block = {CUDA_THREADS, 1, 1},
        .shared_bytes = cuda_decode_shared(executor),
        .queue = executor->queue,
        .attributes = &cooperative,
        .attribute_count = 1,
    };
    cuda_address machine = 0;
    void *arguments[] = {&machine};
    const int result = context->driver->launch(&config, probe, arguments, NULL);
    executor->resident = result != CUDA_TOO_LARGE_TOGETHER;
    if (executor->resident)
        TRY(cuda_context_result(&executor->context, cuda_driver_symbols.launch, result));
    if (!executor->resident) {
        log_line(SALVO_LOG_INFO,
            "cuda device %u (%s): %u blocks of %u bytes cannot be resident at once; a token is a graph of "
            "launches instead of one",
            context->number, context->name, executor->blocks, config.shared_bytes);
    }
cleanup:
    return status;
}

static enum salvo_status open_device(struct executor *executor)
{
    enum salvo_status status = SALVO_OK;
    struct cuda_context *context = &executor->context;
    size_t left, total;
    executor->device = cuda_device_at(executor->options.device);
    TRY(CUDA_CALL(context, memory_info, (&left, &total)));
    executor->free_before = left;
    TRY(CUDA_CALL(context, stream_new, (&executor->queue, CUDA_STREAM_NON_BLOCKING)));
    context->creations++;
    TRY(load_modules(executor));
    TRY(cuda_function_find(executor, "salvo_decode", &executor->decode));
    /* Other devices do not have warpgroups; this device lacks them if the build has only PTX for it. */
    if (executor->device->major == WARPGROUP_MAJOR && executor->device->shared_bytes >= GEMM_HALVES_SHARED)
        TRY(cuda_function_exists(executor, "salvo_gemm_halves_64", &executor->halves));
    executor->blocks = (uint32_t)executor->device->multiprocessors;
    executor->flags = getenv("SALVO_CUDA_DELAYS") ? CUDA_RANDOM_DELAYS : 0; /* for tests */
    TRY(find_residency(executor));
cleanup:
    return status;
}

/* ---- Plans and memory ---- */

/* Rows of all plans for many tokens but the last: blocks without work cost time, too, and matmuls have
 * kernels for each of these numbers. */
static const uint32_t many_rows[CUDA_MANY_PLANS] = {GEMM_FEW_TOKENS, 32, 64, 128, 256};

/* Products of warpgroups use halves, which are closer to the activations than int8 with a scale. */
static void round_to_halves(struct plan *plan)
{
    for (uint32_t i = 0; i < plan->group_count; i++) {
        if (plan->groups[i].rounding == ROUNDING_Q8)
            plan->groups[i].rounding = ROUNDING_F16;
    }
}

static enum salvo_status lower_plans(struct executor *executor)
{
    enum salvo_status status = SALVO_OK;
    /* At least two tokens: a plan for one would be lowered as the single-token plan. */
    const uint32_t batch = executor->options.batch < 2 ? 2 : executor->options.batch;
    const struct backend_options *options = &executor->options;
    const struct program *program = executor->program;
    for (uint32_t i = 0; i < program->rope_count; i++) {
        uint32_t pairs = program->ropes[i].dimensions / 2;
        executor->rope_pairs = pairs > executor->rope_pairs ? pairs : executor->rope_pairs;
    }
    struct lowering_options lowering = {{1, 1, 1}, .max_rounded = MAX_ROUNDED,
        .max_batch_inputs = GEMM_MATMULS, .fine_batches = executor->halves, .softcaps_in_matmuls = true};
    TRY(lower_program(program, &lowering, &executor->tables, &executor->single.plan));
    for (uint32_t i = 0; i < CUDA_MANY_PLANS; i++) {
        if (many_rows[i] >= batch && i + 1 < CUDA_MANY_PLANS)
            continue;
        struct plan *plan = &executor->many[executor->many_count++].plan;
        const uint32_t rows = i + 1 < CUDA_MANY_PLANS ? many_rows[i] : batch;
        const uint32_t outputs = rows < options->outputs ? rows : options->outputs;
        memcpy(
            lowering.capacity, (const uint32_t[]){rows, options->slots, outputs}, sizeof lowering.capacity);
        lowering.appends_in_batches = rows <= FLASH_APPEND_ROWS && options->kv_type == TYPE_F16 &&
                                      executor->rope_pairs % 8 == 0; /* angles are read eight at a time */
        TRY(lower_program(program, &lowering, &executor->tables, plan));
        if (executor->halves)
            round_to_halves(plan);
    }
cleanup:
    return status;
}

/* A placeholder for the address of memory that is not allocated yet: code that tests an address then decides
 * as it will with the real one. Only plans for little shared memory (not CUDA_FIT_ROOMY) need it. */
enum { STAND_IN = 1 << 20 };

static void stand_in_addresses(struct executor *executor)
{
    struct cuda_scratch *scratch = &executor->single.scratch;
    scratch->arena = scratch->spilled = scratch->tagged_words = STAND_IN;
    for (uint32_t i = 0; i < executor->program->buffer_count; i++) {
        struct cuda_weight *weight = &executor->weights[i];
        weight->matrix = (struct cuda_matrix){0}; /* of the attempt before this one */
        weight->vector = executor->weight_uses[i] & WEIGHT_VECTOR ? STAND_IN : 0;
    }
}

/* Computes all sizes by a pass without addresses. */
static enum salvo_status count_memory(struct executor *executor)
{
    enum salvo_status status = SALVO_OK;
    struct cuda_region region = {0};
    executor->single.scratch.offsets = executor->single.plan.offsets;
    if (executor->fit != CUDA_FIT_ROOMY)
        stand_in_addresses(executor);
    TRY(cuda_tables_build(executor, &executor->single));
    for (uint32_t i = 0; i < executor->many_count; i++) {
        executor->many[i].scratch.offsets = executor->many[i].plan.offsets;
        TRY(cuda_tables_build(executor, &executor->many[i]));
    }
    cuda_layout_weights(executor, &region);
    executor->counters.weight_bytes = region.used;
    region.used = 0;
    cuda_layout_state(executor, &region);
    executor->counters.state_bytes = region.used;
    region.used = 0;
    cuda_layout_scratch(executor, &region);
    executor->counters.scratch_bytes = region.used;
    region.used = 0;
    cuda_layout_mapped(executor, &region, NULL);
    executor->mapped_bytes = region.used;
cleanup:
    return status;
}

static enum salvo_status check_memory(struct executor *executor)
{
    const struct backend_options *options = &executor->options;
    size_t left, total;
    enum salvo_status status = CUDA_CALL(&executor->context, memory_info, (&left, &total));
    const uint64_t needed =
        executor->counters.weight_bytes + executor->counters.state_bytes + executor->counters.scratch_bytes;
    if (status != SALVO_OK || needed <= left)
        return status;
    return fail(SALVO_ERROR_MEMORY,
        "cuda device %u (%s): weights of %llu MB, a context of %u for %u session%s of %llu MB and scratch of "
        "%llu "
        "MB do not fit: %llu MB of %llu MB are free",
        executor->context.number, executor->context.name, megabytes(executor->counters.weight_bytes),
        options->context, options->slots, options->slots == 1 ? "" : "s",
        megabytes(executor->counters.state_bytes), megabytes(executor->counters.scratch_bytes),
        megabytes(left), megabytes(total));
}

static enum salvo_status take_memory(struct executor *executor)
{
    enum salvo_status status = SALVO_OK;
    struct cuda_context *context = &executor->context;
    cuda_address mapped;
    TRY(cuda_memory_new(executor, "the model", executor->counters.weight_bytes, &executor->weight_memory));
    TRY(cuda_memory_new(executor, "the context", executor->counters.state_bytes, &executor->state_memory));
    TRY(cuda_memory_new(executor, "scratch", executor->counters.scratch_bytes, &executor->scratch_memory));
    TRY(cuda_host_new(executor, "steps", executor->mapped_bytes, &executor->mapped));
    TRY(CUDA_CALL(context, host_address, (&mapped, executor->mapped, 0)));
    cuda_layout_weights(executor, &(struct cuda_region){.base = executor->weight_memory});
    cuda_layout_state(executor, &(struct cuda_region){.base = executor->state_memory});
    cuda_layout_scratch(executor, &(struct cuda_region){.base = executor->scratch_memory});
    cuda_layout_mapped(executor, &(struct cuda_region){.base = mapped}, executor->mapped);
    TRY(CUDA_CALL(
        context, fill, (executor->state_memory, 0, executor->counters.state_bytes, executor->queue)));
    TRY(CUDA_CALL(
        context, fill, (executor->scratch_memory, 0, executor->counters.scratch_bytes, executor->queue)));

    executor->staging_bytes = STAGING_BYTES;
    for (uint32_t i = 0; i < executor->program->buffer_count; i++) {
        size_t page = kv_page_bytes(&executor->state.caches[i]);
        executor->staging_bytes = page > executor->staging_bytes ? page : executor->staging_bytes;
    }
    TRY(cuda_host_new(executor, "copies", executor->staging_bytes, &executor->staging));
    TRY(ARENA_NEW(&executor->tables, &executor->bias_versions, executor->options.slots));
    TRY(ARENA_NEW(&executor->tables, &executor->masked_by, executor->options.slots));
    TRY(ARENA_NEW(
        &executor->tables, &executor->run_results, (size_t)CUDA_STEP_RING_ENTRIES * executor->options.slots));
cleanup:
    return status;
}

static enum salvo_status open_plans(struct executor *executor)
{
    enum salvo_status status = SALVO_OK;
    TRY(cuda_tables_build(executor, &executor->single));
    TRY(cuda_tables_upload(executor, &executor->single));
    for (uint32_t i = 0; i < executor->many_count; i++) {
        TRY(cuda_tables_build(executor, &executor->many[i]));
        TRY(cuda_tables_upload(executor, &executor->many[i]));
    }
    TRY(cuda_graphs_open(executor));
cleanup:
    return status;
}

/* Plans, and whether they fit the device. */
static enum salvo_status try_plans(struct executor *executor)
{
    enum salvo_status status = SALVO_OK;
    struct cuda_region scratch = {.base = STAND_IN};
    struct cuda_machine machine = {0};
    TRY(count_memory(executor));
    cuda_layout_weights(executor, &(struct cuda_region){.base = STAND_IN});
    cuda_layout_state(executor, &(struct cuda_region){.base = STAND_IN});
    cuda_layout_scratch(executor, &(struct cuda_region){.base = STAND_IN});
    TRY(cuda_tables_build(executor, &executor->single));
    TRY(cuda_layout_shared(executor, &executor->single.tables, &machine));
    cuda_layout_scratch(executor, &scratch); /* the phases may differ from the counted ones */
    executor->counters.scratch_bytes = scratch.used;
cleanup:
    return status;
}

static enum salvo_status plan_executor(struct executor *executor)
{
    enum salvo_status status = SALVO_OK;
    TRY(open_device(executor));
    cuda_pace_open(executor);
    TRY(lower_plans(executor));
    TRY(cuda_check_weights(executor));
    TRY(cuda_find_states(executor));
    cuda_layout_step(executor);
    status = try_plans(executor);
    while (status == SALVO_ERROR_UNSUPPORTED && executor->fit < CUDA_FIT_TIGHTEST) {
        executor->fit++;
        status = try_plans(executor);
    }
    TRY(status);
    TRY(check_memory(executor));
cleanup:
    return status;
}

static enum salvo_status load_executor(struct executor *executor)
{
    enum salvo_status status = SALVO_OK;
    TRY(take_memory(executor));
    TRY(open_plans(executor));
    TRY(cuda_load_weights(executor));
    TRY(cuda_serial_open(executor));
    executor->creations_at_load = executor->context.creations;
cleanup:
    return status;
}

static void free_plan(struct executor *executor, struct cuda_plan *plan)
{
    if (plan->graph)
        (void)executor->context.driver->graph_exec_free(plan->graph);
    if (plan->long_graph)
        (void)executor->context.driver->graph_exec_free(plan->long_graph);
    cuda_memory_free(executor, plan->tables.memory);
    cuda_tables_free(&plan->tables);
}

/* Also closes an executor that was opened in part. After an error of the device, memory that cannot be freed
 * is destroyed with the context. */
void cuda_executor_close(struct executor *executor)
{
    if (!executor)
        return;
    struct cuda_context *context = &executor->context;
    if (context->handle) {
        (void)context->driver->context_push(context->handle);
        if (executor->queue)
            (void)context->driver->stream_wait(executor->queue);
        cuda_debug_end(executor);
        free_plan(executor, &executor->single);
        for (uint32_t i = 0; i < executor->many_count; i++)
            free_plan(executor, &executor->many[i]);
        cuda_memory_free(executor, executor->weight_memory);
        cuda_memory_free(executor, executor->state_memory);
        cuda_memory_free(executor, executor->scratch_memory);
        cuda_memory_free(executor, executor->serial_logits);
        cuda_host_free(executor, executor->mapped);
        cuda_host_free(executor, executor->staging);
        for (uint32_t i = 0; i < executor->module_count; i++)
            (void)context->driver->module_unload(executor->modules[i]);
        if (executor->queue)
            (void)context->driver->stream_free(executor->queue);
        cuda_context_leave(context);
        cuda_context_close(context);
    }
    arena_free(&executor->tables);
    memory_free(executor);
}

static enum salvo_status open_executor(
    const struct program *program, const struct backend_options *options, bool loads, struct executor **out)
{
    enum salvo_status status = SALVO_OK;
    struct executor *executor = NULL;
    *out = NULL;
    TRY(NEW(&executor, 1));
    executor->program = program;
    executor->options = *options;
    TRY(cuda_context_open(&executor->context, options->device));
    TRY(cuda_context_enter(&executor->context));
    status = plan_executor(executor);
    if (status == SALVO_OK && loads)
        status = load_executor(executor);
    cuda_context_leave(&executor->context);
    if (status == SALVO_OK)
        *out = executor;
cleanup:
    if (status != SALVO_OK)
        cuda_executor_close(executor);
    return status;
}

enum salvo_status cuda_executor_open(
    const struct program *program, const struct backend_options *options, struct executor **out)
{
    return open_executor(program, options, true, out);
}

enum salvo_status cuda_executor_plan(
    const struct program *program, const struct backend_options *options, struct executor **out)
{
    return open_executor(program, options, false, out);
}
