#include "engine/snapshots.h"

#include "base/checked.h"
#include "base/memory.h"
#include "engine/session.h"
#include "engine/session_publish.h"

#include <string.h>

/* Tokens between snapshots; computing them again takes a fraction of a second. */
enum { SPACING = PAGE_POSITIONS };

/* Recurrent state alone: the saved state of 0 positions. */
static size_t snapshot_size(const struct salvo_engine *engine)
{
    return engine->has_recurrent_state ? engine->backend->state_size(engine->executor, 0) : 0;
}

enum salvo_status snapshots_open(struct salvo_engine *engine)
{
    enum salvo_status status = SALVO_OK;
    const size_t size = snapshot_size(engine);
    if (!size)
        goto cleanup;
    if (!checked_mul(size, (size_t)engine->options.slots * MOST_SNAPSHOTS, &engine->snapshot_bytes))
        TRY(fail(SALVO_ERROR_MEMORY, "the states of %u sessions are too large", engine->options.slots));
    TRY(memory_map(engine->snapshot_bytes, PAGES_NORMAL, &engine->snapshot_memory));
    for (uint32_t slot = 0; slot < engine->options.slots; slot++) {
        for (size_t i = 0; i < MOST_SNAPSHOTS; i++)
            engine->sessions[slot].snapshots.items[i].state =
                engine->snapshot_memory + (slot * MOST_SNAPSHOTS + i) * size;
    }
cleanup:
    return status;
}

void snapshots_close(struct salvo_engine *engine)
{
    memory_unmap(engine->snapshot_memory, engine->snapshot_bytes);
}

/* Moves snapshot `index`, with its memory, to the unused ones. */
static void drop(struct snapshots *snapshots, uint32_t index)
{
    struct snapshot dropped = snapshots->items[index];
    snapshots->count--;
    memmove(
        &snapshots->items[index], &snapshots->items[index + 1], (snapshots->count - index) * sizeof dropped);
    snapshots->items[snapshots->count] = dropped;
}

/*
 * The snapshot with the smallest gap between its neighbours, relative to its age. So snapshots are dense near
 * the end and sparse further back: the cost of a rollback is proportional to its distance.
 */
static uint32_t least_useful(const struct snapshots *snapshots, uint32_t now)
{
    uint32_t least = 0;
    double least_gap = 2;
    for (uint32_t i = 0; i + 1 < snapshots->count; i++) {
        uint32_t before = i ? snapshots->items[i - 1].position : 0;
        double gap = (double)(snapshots->items[i + 1].position - before) / (double)(now - before);
        if (gap < least_gap) {
            least = i;
            least_gap = gap;
        }
    }
    return least;
}

static bool is_older(const struct salvo_session *session, uint32_t position, uint32_t spacing)
{
    const struct snapshots *snapshots = &session->snapshots;
    const uint32_t newest = snapshots->count ? snapshots->items[snapshots->count - 1].position : 0;
    return session->engine->has_recurrent_state && position >= newest + spacing;
}

bool snapshots_are_due(const struct salvo_session *session, uint32_t position)
{
    return is_older(session, position, SPACING) ||
           (session_keeps_states(session) &&
               (position % SPACING == 0 || position == session->snapshots.wanted) &&
               is_older(session, position, 1));
}

uint32_t snapshots_divide(const struct salvo_session *session, uint32_t position, uint32_t end, uint32_t most)
{
    const uint32_t left = end - position, page = SPACING - position % SPACING;
    uint32_t count = most < left ? most : left;
    if (!session_keeps_states(session))
        return count;
    count = page < count ? page : count;
    return count == left && left > 1 ? left - 1 : count;
}

void snapshots_want(struct salvo_session *session, uint32_t count)
{
    session->snapshots.wanted = count - 1;
}

/* A new snapshot of `position` tokens, after the others. */
static struct snapshot *make_room(struct snapshots *snapshots, uint32_t position)
{
    if (snapshots->count == MOST_SNAPSHOTS)
        drop(snapshots, least_useful(snapshots, position));
    return &snapshots->items[snapshots->count];
}

/* Takes a snapshot, which the prefix cache keeps, too. */
static enum salvo_status take(struct salvo_session *session)
{
    struct salvo_engine *engine = session->engine;
    struct snapshots *snapshots = &session->snapshots;
    struct snapshot *taken = make_room(snapshots, session->computed);
    enum salvo_status status =
        engine->backend->state_save(engine->executor, session->slot, session->pages, 0, taken->state);
    if (status == SALVO_OK) {
        taken->position = session->computed;
        snapshots->count++;
        session_publish_state(session, taken->position, taken->state);
    }
    return status;
}

enum salvo_status snapshots_take_if_due(struct salvo_session *session)
{
    return snapshots_are_due(session, session->computed) ? take(session) : SALVO_OK;
}

void snapshots_keep(struct salvo_session *session, uint32_t position, const uint8_t *state)
{
    if (!is_older(session, position, 1))
        return;
    struct snapshot *kept = make_room(&session->snapshots, position);
    memcpy(kept->state, state, snapshot_size(session->engine));
    kept->position = position;
    session->snapshots.count++;
}

void snapshots_copy(struct salvo_session *to, const struct salvo_session *from)
{
    snapshots_forget(to);
    for (uint32_t i = 0; i < from->snapshots.count; i++)
        snapshots_keep(to, from->snapshots.items[i].position, from->snapshots.items[i].state);
}

enum salvo_status session_mark(struct salvo_session *session)
{
    return is_older(session, session->computed, 1) ? take(session) : SALVO_OK;
}

enum salvo_status snapshots_go_back(struct salvo_session *session, uint32_t position)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_engine *engine = session->engine;
    struct snapshots *snapshots = &session->snapshots;
    if (session->computed <= position)
        return SALVO_OK;
    session->computed = position;
    if (!engine->has_recurrent_state)
        return SALVO_OK;
    while (snapshots->count && snapshots->items[snapshots->count - 1].position > position)
        drop(snapshots, snapshots->count - 1);
    session->computed = 0; /* the state before position 0 is zero */
    if (snapshots->count) {
        const struct snapshot *nearest = &snapshots->items[snapshots->count - 1];
        status = engine->backend->state_restore(
            engine->executor, session->slot, session->pages, 0, NULL, nearest->state);
        if (status == SALVO_OK)
            session->computed = nearest->position;
    }
    return status;
}

void snapshots_forget(struct salvo_session *session)
{
    session->snapshots.count = session->snapshots.wanted = 0;
}
