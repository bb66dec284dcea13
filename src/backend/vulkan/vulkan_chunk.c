/* The number of tokens of one submission (backend/common/pace.h). */
#include "backend/vulkan/vulkan_executor.h"
#include "base/clock.h"

enum { FIRST_CHUNK = 64 };

static const uint64_t target_ns = 100000000;

void vulkan_chunk_open(struct executor *executor)
{
    const bool is_processor = executor->device.physical->features.processor; /* has no time limit */
    pace_open(&executor->pace, is_processor ? 0 : target_ns, executor->options.batch, FIRST_CHUNK);
}

void vulkan_chunk_begin(struct executor *executor, const struct pending_step *pending)
{
    const bool is_idle = executor->queue.submitted == executor->queue.completed + 1;
    executor->begun_ns[pending->ticket % RING_ENTRIES] = is_idle ? clock_ns() : 0;
}

void vulkan_chunk_note(struct executor *executor, const struct pending_step *pending)
{
    const uint64_t begun_ns = executor->begun_ns[pending->ticket % RING_ENTRIES];
    if (executor->pace.target_ns && begun_ns)
        pending_step_note_time(pending, &executor->pace, clock_ns() - begun_ns);
}

uint32_t vulkan_tokens_per_submission(const struct executor *executor)
{
    return pace_tokens(&executor->pace);
}

/* Reading the host's cancel word is slow: a fast device does so only every eighth token. */
uint32_t vulkan_cancel_mask(const struct executor *executor)
{
    enum { MOST = 8 }; /* tokens, a power of two */
    const uint64_t soon_ns = 10000000, token_ns = executor->pace.token_ns;
    return token_ns && token_ns < soon_ns / MOST ? MOST - 1 : 0;
}

uint32_t vulkan_chunk(const struct executor *executor)
{
    return executor->pace.chunk;
}
