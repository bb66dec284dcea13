/* Command buffers: one for several tokens, with one encoder that runs dispatches concurrently between
 * barriers. */
#include "backend/metal/metal_executor.h"

#include <string.h>

enum { CONCURRENT = 1, SCOPE_BUFFERS = 1 };

/* An encoder, and whether its next dispatch waits. */
struct encoding {
    struct executor *executor;
    const struct metal_step *step;
    objc_id encoder;
    bool waits; /* a barrier comes before the next dispatch */
};

/* The largest number of positions that a run's token `token` of a step sees. */
static uint32_t positions_of(const struct pending_step *pending, uint32_t token)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < pending->run_count; i++) {
        const uint32_t end = pending->runs[i].first + pending->runs[i].count;
        most = end > most ? end : most;
    }
    return most + token;
}

static const struct metal_shape *shape_of(
    const struct metal_dispatch *dispatch, const struct metal_step *step, uint32_t token)
{
    const bool is_large =
        (dispatch->large_rows && step->live[dispatch->rows] >= dispatch->large_rows) ||
        (dispatch->large_positions && positions_of(step->pending, token) >= dispatch->large_positions);
    return is_large ? &dispatch->large : &dispatch->shape;
}

static uint32_t rows_of_groups(
    const struct metal_dispatch *dispatch, const struct metal_shape *shape, const struct metal_step *step)
{
    if (shape->groups == 0)
        return 0;
    if (shape->rows_per_group == 0)
        return 1;
    return (step->live[dispatch->rows] + shape->rows_per_group - 1) / shape->rows_per_group;
}

static void bind_all(const struct encoding *encoding, const struct metal_dispatch *dispatch)
{
    const uint64_t entry = encoding->step->pending->ticket % RING_ENTRIES;
    for (uint32_t i = 0; i < dispatch->binding_count; i++) {
        const struct metal_binding *binding = &dispatch->bindings[i];
        objc_set_buffer(
            encoding->encoder, binding->buffer->handle, (objc_count)(entry * binding->entry_bytes), i + 1);
    }
}

/* A dispatch without rows or threadgroups is left out; its barrier is not. */
static void encode_dispatch(struct encoding *encoding, uint32_t index, uint32_t token)
{
    const struct metal_plan *plan = encoding->step->plan;
    const struct metal_dispatch *dispatch = &plan->dispatches[index];
    struct executor *executor = encoding->executor;
    const struct metal_shape *shape = shape_of(dispatch, encoding->step, token);
    const uint32_t rows = rows_of_groups(dispatch, shape, encoding->step);
    uint8_t arguments[MAX_ARGUMENT_BYTES];
    encoding->waits |= plan->waits[index] || (dispatch->begins && token > 0);
    if (rows == 0)
        return;
    if (encoding->waits) {
        objc_barrier(encoding->encoder, SCOPE_BUFFERS);
        executor->counters.barriers++;
    }
    encoding->waits = false;
    memcpy(arguments, dispatch->arguments, dispatch->argument_bytes);
    if (dispatch->begins)
        memcpy(arguments, &(struct begin_arguments){.repetition = token}, sizeof(struct begin_arguments));
    objc_set_pipeline(encoding->encoder, shape->pipeline);
    objc_set_bytes(encoding->encoder, arguments, dispatch->argument_bytes, 0);
    bind_all(encoding, dispatch);
    if (shape->threadgroup_bytes)
        objc_set_threadgroup_memory(encoding->encoder, shape->threadgroup_bytes, 0);
    objc_dispatch(encoding->encoder, (struct objc_size){shape->groups, rows, 1},
        (struct objc_size){shape->threads, 1, 1});
    executor->counters.dispatches++;
}

/* Dispatches of a plan, for each of some tokens, as one command buffer. */
static enum salvo_status encode(struct executor *executor, struct metal_step *step, uint32_t first,
    uint32_t count, uint32_t first_token, uint32_t tokens, bool is_last)
{
    enum salvo_status status = SALVO_OK;
    void *pool = objc.push_pool();
    objc_id commands = objc_command_buffer(executor->device.queue);
    if (!commands)
        TRY(metal_fail(&executor->device, "commandBuffer", NULL));
    struct encoding encoding = {
        .executor = executor, .step = step, .encoder = objc_encoder(commands, CONCURRENT)};
    if (!encoding.encoder)
        TRY(metal_fail(&executor->device, "computeCommandEncoder", NULL));
    for (uint32_t token = first_token; token < first_token + tokens; token++) {
        for (uint32_t i = 0; i < count; i++) {
            encoding.waits |= step->pending->samples_only && i + 1 == count;
            if (!step->pending->samples_only || i == 0 || i + 1 == count) /* takes the step; samples */
                encode_dispatch(&encoding, first + i, token);
        }
    }
    objc_end_encoding(encoding.encoder);
    if (is_last)
        objc_encode_signal(commands, executor->device.event, (objc_count)step->pending->ticket);
    TRY(gguf_check(executor->program->gguf)); /* a file that was cut must not reach the device */
    step->commands[step->command_count++] = objc_retain(commands);
    objc_commit(commands);
    executor->counters.submissions++;
cleanup:
    objc.pop_pool(pool);
    return status;
}

enum salvo_status metal_encode_step(
    struct executor *executor, struct metal_step *step, uint32_t first_token, uint32_t tokens, bool is_last)
{
    return encode(executor, step, 0, step->plan->dispatch_count, first_token, tokens, is_last);
}

enum salvo_status metal_encode_some(
    struct executor *executor, struct metal_step *step, uint32_t first, uint32_t count)
{
    return encode(executor, step, first, count, 0, 1, false);
}
