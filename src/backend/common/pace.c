#include "backend/common/pace.h"

static uint32_t smaller(uint64_t a, uint32_t b)
{
    return a < b ? (uint32_t)a : b;
}

void pace_open(struct pace *pace, uint64_t target_ns, uint32_t batch, uint32_t first_chunk)
{
    *pace = (struct pace){
        .target_ns = target_ns, .batch = batch, .chunk = target_ns ? smaller(batch, first_chunk) : batch};
}

void pace_note_tokens(struct pace *pace, uint64_t spent_ns, uint32_t tokens)
{
    if (tokens)
        pace->token_ns = spent_ns / tokens + 1;
}

void pace_note_chunk(struct pace *pace, uint64_t spent_ns, uint32_t tokens)
{
    if (!pace->target_ns || tokens < PACE_CHUNK_STEP)
        return;
    const uint64_t each = spent_ns / tokens + 1,
                   fitting = pace->target_ns / each / PACE_CHUNK_STEP * PACE_CHUNK_STEP,
                   most = fitting < PACE_CHUNK_STEP ? PACE_CHUNK_STEP : fitting;
    /* A small chunk takes more time per token than a large one, so it does not reduce the size. */
    if (most < pace->chunk && tokens < pace->chunk && spent_ns < pace->target_ns)
        return;
    pace->chunk = smaller(most, pace->batch);
}

uint32_t pace_tokens(const struct pace *pace)
{
    if (!pace->target_ns)
        return UINT32_MAX;
    const uint64_t fitting = pace->token_ns ? pace->target_ns / pace->token_ns : 1;
    return fitting < 1 ? 1 : smaller(fitting, UINT32_MAX);
}
