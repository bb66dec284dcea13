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

void vulkan_chunk_begin(struct executor *executor, struct pending_step *pending)
{
    pending->begun_ns = executor->submitted == executor->completed + 1 ? clock_ns() : 0;
}

void vulkan_chunk_note(struct executor *executor, const struct pending_step *pending)
{
    if (!executor->pace.target_ns || !pending->begun_ns)
        return;
    const uint64_t spent = clock_ns() - pending->begun_ns;
    if (pending->token_count > 1)
        pace_note_chunk(&executor->pace, spent / pending->repeat, pending->token_count);
    else if (pending->results[0].sampled == pending->repeat)
        pace_note_tokens(&executor->pace, spent, pending->repeat);
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
