#include "engine/snapshots.h"
#include "backend/common/state.h"

#include "engine/session.h"
#include "engine/session_publish.h"

#include <string.h>

/* Tokens between snapshots; computing them again takes a fraction of a second. */
enum { SPACING = PAGE_POSITIONS };

static void drop(struct salvo_session *session, uint32_t index)
{
    struct snapshots *snapshots = &session->snapshots;
    page_pool_drop(&session->engine->state_pool, snapshots->items[index].state);
    snapshots->count--;
    memmove(&snapshots->items[index], &snapshots->items[index + 1],
        (snapshots->count - index) * sizeof *snapshots->items);
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

/* Makes room for a snapshot of `position` tokens, after the others. */
static void make_room(struct salvo_session *session, uint32_t position)
{
    if (session->snapshots.count == session->engine->snapshots_each)
        drop(session, least_useful(&session->snapshots, position));
}

/* Adds a state of which the session is a holder. */
static void add(struct salvo_session *session, uint32_t position, uint32_t state)
{
    session->snapshots.items[session->snapshots.count++] = (struct snapshot){position, state};
}

/* Takes a snapshot, which the prefix cache keeps, too. */
static enum salvo_status take(struct salvo_session *session)
{
    struct salvo_engine *engine = session->engine;
    make_room(session, session->computed);
    const uint32_t state = snapshots_take_state(engine);
    enum salvo_status status = state_copy_recurrent(
        engine->backend, engine->executor, snapshots_place(engine, state), session->slot);
    if (status != SALVO_OK) {
        page_pool_drop(&engine->state_pool, state);
        return status;
    }
    add(session, session->computed, state);
    session_publish_state(session, session->computed, state);
    return SALVO_OK;
}

enum salvo_status snapshots_take_if_due(struct salvo_session *session)
{
    return snapshots_are_due(session, session->computed) ? take(session) : SALVO_OK;
}

void snapshots_keep(struct salvo_session *session, uint32_t position, uint32_t state)
{
    if (!is_older(session, position, 1))
        return;
    page_pool_hold(&session->engine->state_pool, state); /* before others are dropped */
    make_room(session, position);
    add(session, position, state);
}

enum salvo_status snapshots_restore(struct salvo_session *session, uint32_t position, const uint8_t *saved)
{
    struct salvo_engine *engine = session->engine;
    if (!is_older(session, position, 1))
        return SALVO_OK;
    make_room(session, position);
    const uint32_t state = snapshots_take_state(engine);
    const enum salvo_status status = state_restore(
        engine->backend, engine->executor, snapshots_place(engine, state), session->pages, 0, NULL, saved);
    if (status == SALVO_OK)
        add(session, position, state);
    else
        page_pool_drop(&engine->state_pool, state);
    return status;
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
        drop(session, snapshots->count - 1);
    session->computed = 0; /* the state before position 0 is zero */
    if (snapshots->count) {
        const struct snapshot *nearest = &snapshots->items[snapshots->count - 1];
        status = state_copy_recurrent(
            engine->backend, engine->executor, session->slot, snapshots_place(engine, nearest->state));
        if (status == SALVO_OK)
            session->computed = nearest->position;
    }
    return status;
}

void snapshots_forget(struct salvo_session *session)
{
    while (session->snapshots.count)
        drop(session, session->snapshots.count - 1);
    session->snapshots.wanted = 0;
}
