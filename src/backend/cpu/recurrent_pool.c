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
    size_t all = (size_t)executor->options.slots * VERSIONS;
    if (!checked_mul(all, sizeof(float), &all) ||
        !checked_mul(all, (size_t)executor->state.recurrent_elements, &pool->bytes))
        TRY(fail(SALVO_ERROR_MEMORY, "the states of %u sessions are too large", executor->options.slots));
    if (pool->bytes)
        TRY(memory_map(pool->bytes, PAGES_NORMAL, &pool->memory));
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
        struct recurrent_versions *versions = &executor->recurrent.versions[executor->runs[i].slot];
        versions->current = versions->committed;
    }
}

void recurrent_pool_advance(struct executor *executor)
{
    for (uint32_t i = 0; i < executor->step->run_count; i++) {
        struct recurrent_versions *versions = &executor->recurrent.versions[executor->runs[i].slot];
        if (!executor->results[i].failed)
            versions->current = next_version(*versions);
    }
}

void recurrent_pool_commit(struct executor *executor)
{
    for (uint32_t i = 0; i < executor->step->run_count; i++) {
        struct recurrent_versions *versions = &executor->recurrent.versions[executor->runs[i].slot];
        versions->committed = versions->current;
    }
}

static size_t version_bytes(const struct executor *executor)
{
    return executor->state.recurrent_elements * sizeof(float);
}

void recurrent_pool_copy_out(const struct executor *executor, uint32_t slot, uint8_t *out)
{
    if (executor->state.recurrent_elements)
        memcpy(out, version_of(executor, slot, executor->recurrent.versions[slot].committed),
            version_bytes(executor));
}

void recurrent_pool_copy(struct executor *executor, uint32_t to_slot, uint32_t from_slot)
{
    if (executor->state.recurrent_elements) {
        memcpy(version_of(executor, to_slot, executor->recurrent.versions[to_slot].committed),
            version_of(executor, from_slot, executor->recurrent.versions[from_slot].committed),
            version_bytes(executor));
    }
}

void recurrent_pool_copy_in(struct executor *executor, uint32_t slot, const uint8_t *data)
{
    if (executor->state.recurrent_elements)
        memcpy(version_of(executor, slot, executor->recurrent.versions[slot].committed), data,
            version_bytes(executor));
}
