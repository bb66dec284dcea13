/* Opens an executor: places the weights, allocates all memory and makes the pipelines before weights are
 * read. */
#include "backend/common/ropes.h"
#include "backend/metal/metal_executor.h"

#include "base/memory.h"

#include <string.h>

/* A longer step delays the display that the same GPU draws. */
static const uint64_t target_ns = 80000000;
enum { FIRST_CHUNK = 64 };

static enum salvo_status open_scratch_buffer(
    struct executor *executor, uint64_t size, const char *what, struct metal_buffer *out)
{
    enum salvo_status status = metal_buffer_open(&executor->device, size, what, out);
    if (status == SALVO_OK)
        memset(out->bytes, 0, out->size);
    executor->counters.scratch_bytes += out->size;
    return status;
}

static enum salvo_status open_ropes(struct executor *executor)
{
    enum salvo_status status = SALVO_OK;
    const struct program *program = executor->program;
    const uint32_t context = executor->options.context;
    TRY(ARENA_NEW(&executor->tables, &executor->rope_offsets, program->rope_count));
    TRY(open_scratch_buffer(
        executor, rope_tables_size(program, context) * sizeof(float), "angles", &executor->ropes));
    rope_tables_fill(program, context, executor->rope_offsets, (float *)(void *)executor->ropes.bytes);
cleanup:
    return status;
}

/* Floats of the parts of one attention, of the largest one. */
static uint64_t attend_part_elements(const struct program *program)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < program->op_count; i++) {
        const struct op *op = &program->ops[i];
        if (op->kind != OP_ATTEND)
            continue;
        const uint64_t elements = (uint64_t)op->attend.heads * METAL_PARTS * (op->attend.head_dim + 2);
        most = elements > most ? elements : most;
    }
    return most;
}

static enum salvo_status open_scratch(struct executor *executor)
{
    enum salvo_status status = SALVO_OK;
    const struct backend_options *options = &executor->options;
    const uint64_t single_bytes = scratch_bytes(plan_places(&executor->single.lowered)),
                   batch_bytes = scratch_bytes(plan_places(&executor->batch.lowered)),
                   vocabulary = executor->program->vocabulary;
    const uint64_t words = (uint64_t)2 * options->batch + options->outputs +
                           (uint64_t)options->slots * executor->state.pages_per_slot + options->batch;
    executor->entry_bytes = (sizeof(struct step_header) + options->slots * sizeof(struct step_run) +
                                words * sizeof(uint32_t) + 255) /
                            256 * 256;
    TRY(open_scratch_buffer(
        executor, single_bytes > batch_bytes ? single_bytes : batch_bytes, "scratch", &executor->arena));
    TRY(open_scratch_buffer(executor, executor->entry_bytes * RING_ENTRIES, "steps", &executor->ring));
    TRY(open_scratch_buffer(executor,
        ((uint64_t)RING_ENTRIES * options->slots + RESIDENT_MASKS) *
            step_mask_words(executor->program->vocabulary) * sizeof(uint32_t),
        "masks", &executor->masks));
    TRY(open_scratch_buffer(executor, options->slots * (options->context + UINT64_C(1)) * sizeof(int32_t),
        "ids", &executor->tokens));
    TRY(open_scratch_buffer(executor, executor->tokens.size, "ids of the host", &executor->host_ids));
    TRY(open_scratch_buffer(executor, options->slots * sizeof(uint32_t), "positions", &executor->next));
    TRY(open_scratch_buffer(
        executor, options->outputs * vocabulary * sizeof(float), "sampling", &executor->changed));
    TRY(open_scratch_buffer(
        executor, options->slots * vocabulary * sizeof(float), "biases", &executor->biases));
    TRY(open_scratch_buffer(executor, attend_part_elements(executor->program) * sizeof(float),
        "parts of attention", &executor->attend_parts));
    TRY(ARENA_NEW(&executor->tables, &executor->slot_biases, options->slots));
cleanup:
    return status;
}

static enum salvo_status compile(struct executor *executor, struct metal_plan *plan)
{
    struct compiling compiling = {
        .executor = executor, .plan = plan, .arena = &executor->arena, .places = plan_places(&plan->lowered)};
    return metal_plan_compile(&compiling);
}

/* The device may page out what exceeds its working set, at a thousandth of the speed. */
static enum salvo_status check_working_set(const struct executor *executor)
{
    const uint64_t bytes = executor->counters.weight_bytes + executor->counters.state_bytes +
                           executor->counters.scratch_bytes,
                   most = executor->device.working_set;
    if (bytes <= most)
        return SALVO_OK;
    return fail(SALVO_ERROR_MEMORY,
        "the model needs %llu MB (weights %llu, states %llu, scratch %llu); %s recommends at most %llu MB",
        (unsigned long long)(bytes / 1000000),
        (unsigned long long)(executor->counters.weight_bytes / 1000000),
        (unsigned long long)(executor->counters.state_bytes / 1000000),
        (unsigned long long)(executor->counters.scratch_bytes / 1000000), executor->device.physical->name,
        (unsigned long long)(most / 1000000));
}

/* Calls the function for each buffer that an executor may have. */
static void for_each_buffer(struct executor *executor, void (*each)(struct executor *, struct metal_buffer *))
{
    struct metal_buffer *const buffers[] = {&executor->arena, &executor->vectors, &executor->recurrent,
        &executor->kept_states, &executor->ropes, &executor->tokens, &executor->next, &executor->changed,
        &executor->biases, &executor->attend_parts, &executor->ring, &executor->masks, &executor->host_ids};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        each(executor, buffers[i]);
    for (uint32_t i = 0; i < executor->window_count; i++)
        each(executor, &executor->windows[i]);
    for (uint32_t i = 0; executor->kv_pages && i < executor->program->buffer_count; i++)
        each(executor, &executor->kv_pages[i]);
}

static void keep_resident(struct executor *executor, struct metal_buffer *buffer)
{
    metal_keep_resident(&executor->device, buffer);
}

static void close_buffer(struct executor *executor, struct metal_buffer *buffer)
{
    (void)executor;
    metal_buffer_close(buffer);
}

enum salvo_status metal_executor_open(
    const struct program *program, const struct backend_options *options, struct executor **out)
{
    enum salvo_status status = SALVO_OK;
    struct executor *executor = NULL;
    *out = NULL;
    TRY(NEW(&executor, 1));
    executor->program = program;
    executor->options = *options;
    TRY(metal_device_open(options->device, &executor->device));
    pace_open(&executor->pace, target_ns, executor->options.batch, FIRST_CHUNK);
    TRY(lower_single_and_batch(program, &executor->options,
        (struct lowering_options){.max_rounded = MAX_ROUNDED,
            .max_batch_inputs = 1,
            .projects_attention = true,
            .takes = metal_takes_projection,
            .executor = executor},
        &executor->tables, &executor->single.lowered, &executor->batch.lowered));
    TRY(metal_weights_place(executor));
    TRY(metal_states_open(executor));
    TRY(metal_steps_open(executor));
    TRY(open_scratch(executor));
    TRY(open_ropes(executor));
    TRY(check_working_set(executor));
    for_each_buffer(executor, keep_resident);
    metal_request_residency(&executor->device);
    TRY(compile(executor, &executor->single));
    TRY(compile(executor, &executor->batch));
    TRY(metal_weights_load(executor));
    executor->objects_at_load = executor->device.objects;
    *out = executor;
    executor = NULL;
cleanup:
    metal_executor_close(executor);
    return status;
}

void metal_executor_close(struct executor *executor)
{
    if (!executor)
        return;
    if (executor->device.physical) {
        (void)step_queue_complete_all(&executor->queue);
        /* Behind a step that failed others may still run, and they do not keep the buffers that they use. */
        for (uint32_t i = 0; i < RING_ENTRIES; i++)
            (void)metal_wait_for_commands(executor, &executor->steps[i]);
        metal_debug_end(executor);
        metal_plan_close(&executor->single);
        metal_plan_close(&executor->batch);
        for (uint32_t i = 0; i < executor->pipeline_count; i++)
            objc_release(executor->pipelines[i].handle);
        for_each_buffer(executor, close_buffer);
        metal_device_close(&executor->device);
    }
    memory_free(executor->pipelines);
    memory_free(executor->choices);
    arena_free(&executor->tables);
    memory_free(executor);
}
