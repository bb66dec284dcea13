/*
 * Recurrent state, which each token replaces. A step reads one version and writes another, so that a step
 * that fails or is cancelled changes nothing. A step that repeats alternates between the two versions that
 * are not committed; without such steps the third version is never touched and costs no memory.
 */
#include "backend/cpu/executor.h"

#include "base/checked.h"
#include "base/memory.h"

#include <string.h>

enum { VERSIONS = 3 };

enum salvo_status recurrent_pool_open(struct executor *executor)
{
    enum salvo_status status = SALVO_OK;
    struct recurrent_pool *pool = &executor->recurrent;
    TRY(ARENA_NEW(&executor->tables, &pool->versions, executor->options.slots));
    const struct backend_options *options = &executor->options;
    const size_t one = (size_t)executor->state.recurrent_elements * sizeof(float);
    size_t both = 0;
    if (!checked_mul((size_t)options->slots * VERSIONS, one, &pool->bytes) ||
        !checked_mul(options->states, one, &pool->kept_bytes) ||
        !checked_add(pool->bytes, pool->kept_bytes, &both))
        TRY(fail(SALVO_ERROR_MEMORY, "the states of %u sessions are too large", options->slots));
    if (both)
        TRY(memory_map(both, PAGES_NORMAL, &pool->memory));
cleanup:
    return status;
}

static float *version_of(const struct executor *executor, uint32_t slot, unsigned version)
{
    return executor->recurrent.memory +
           ((size_t)slot * VERSIONS + version) * executor->state.recurrent_elements;
}

/* The lowest version that is neither committed nor being read. */
static unsigned next_version(struct recurrent_versions versions)
{
    unsigned next = 0;
    while (next == versions.committed || next == versions.current)
        next++;
    return next;
}

const float *recurrent_pool_before(const struct executor *executor, buffer_id state, const struct run *run)
{
    if (run->first == 0)
        return NULL;
    return version_of(executor, run->slot, executor->recurrent.versions[run->slot].current) +
           executor->state.recurrent_offsets[state];
}

float *recurrent_pool_after(const struct executor *executor, buffer_id state, const struct run *run)
{
    return version_of(executor, run->slot, next_version(executor->recurrent.versions[run->slot])) +
           executor->state.recurrent_offsets[state];
}

void recurrent_pool_begin(struct executor *executor)
{
    for (uint32_t i = 0; i < executor->step->run_count; i++) {
        struct recurrent_versions *versions = &executor->recurrent.versions[executor->step->runs[i].slot];
        versions->current = versions->committed;
    }
}

void recurrent_pool_advance(struct executor *executor)
{
    for (uint32_t i = 0; i < executor->live[ROWS_RUNS]; i++) {
        struct recurrent_versions *versions = &executor->recurrent.versions[executor->runs[i].slot];
        if (!executor->results[executor->run_numbers[i]].failed)
            versions->current = next_version(*versions);
    }
}

void recurrent_pool_commit(struct executor *executor)
{
    for (uint32_t i = 0; i < executor->step->run_count; i++) {
        struct recurrent_versions *versions = &executor->recurrent.versions[executor->step->runs[i].slot];
        versions->committed = versions->current;
    }
}

static size_t version_bytes(const struct executor *executor)
{
    return executor->state.recurrent_elements * sizeof(float);
}

/* The state of a slot, or a kept state. */
static float *state_of(const struct executor *executor, uint32_t number)
{
    const uint32_t slots = executor->options.slots;
    if (number < slots)
        return version_of(executor, number, executor->recurrent.versions[number].committed);
    return version_of(executor, slots, 0) + (size_t)(number - slots) * executor->state.recurrent_elements;
}

enum salvo_status recurrent_pool_move(
    struct executor *executor, uint32_t number, uint32_t positions, uint8_t *saved, bool restores)
{
    (void)positions;
    if (!executor->state.recurrent_elements)
        return SALVO_OK;
    void *memory = state_of(executor, number);
    memcpy(restores ? memory : saved, restores ? saved : memory, version_bytes(executor));
    return SALVO_OK;
}

enum salvo_status recurrent_pool_copy(struct executor *executor, uint32_t to, uint32_t from)
{
    memcpy(state_of(executor, to), state_of(executor, from), version_bytes(executor));
    return SALVO_OK;
}
