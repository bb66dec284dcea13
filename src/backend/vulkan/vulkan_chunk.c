/*
 * How many tokens are one submission, of a prompt or one after the other. Systems reset a GPU that works on
 * one for seconds, and a display that shares it stands still for so long: they are as many as those before
 * them let expect a tenth of a second. Chunks of a prompt are multiples of 16, so that what is left of a
 * prompt does not depend on how fast the device was.
 */
#include "backend/vulkan/vulkan_executor.h"
#include "base/clock.h"

enum { CHUNK_STEP = 16, FIRST_CHUNK = 64 };

static const uint64_t wanted_ns = 100000000;

/* Nobody resets a processor. */
static bool is_unlimited(const struct executor *executor)
{
    return executor->device.physical->features.processor;
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

void vulkan_chunk_open(struct executor *executor)
{
    const uint32_t batch = executor->options.batch;
    executor->chunk = is_unlimited(executor) ? batch : smaller(batch, FIRST_CHUNK);
}

void vulkan_chunk_begin(struct executor *executor, struct pending_step *pending)
{
    pending->begun_ns = executor->submitted == executor->completed + 1 ? clock_ns() : 0;
}

void vulkan_chunk_note(struct executor *executor, const struct pending_step *pending)
{
    if (is_unlimited(executor) || !pending->begun_ns)
        return;
    const uint64_t spent = clock_ns() - pending->begun_ns, each = spent / pending->token_count + 1;
    if (pending->token_count == 1 && pending->results[0].sampled == pending->repeat)
        executor->token_ns = spent / pending->repeat;
    if (pending->token_count < CHUNK_STEP)
        return;
    const uint64_t fitting = wanted_ns / each / CHUNK_STEP * CHUNK_STEP;
    const uint32_t most = fitting < CHUNK_STEP ? CHUNK_STEP : (uint32_t)fitting;
    /* Of few tokens each takes longer than of many: that is nothing against the chunks that were found. */
    if (most < executor->chunk && pending->token_count < executor->chunk && spent < wanted_ns)
        return;
    executor->chunk = smaller(executor->options.batch, most);
}

uint32_t vulkan_together(const struct executor *executor)
{
    if (is_unlimited(executor))
        return UINT32_MAX;
    const uint64_t fitting = executor->token_ns ? wanted_ns / executor->token_ns : 1;
    return fitting < 1 ? 1 : fitting < UINT32_MAX ? (uint32_t)fitting : UINT32_MAX;
}

/* To ask the host takes a while, which is little only of a slow device's token. */
uint32_t vulkan_cancel_mask(const struct executor *executor)
{
    enum { MOST = 8 }; /* tokens, a power of two */
    const uint64_t soon_ns = 10000000;
    return executor->token_ns && executor->token_ns < soon_ns / MOST ? MOST - 1 : 0;
}

uint32_t vulkan_chunk(const struct executor *executor)
{
    return executor->chunk;
}
