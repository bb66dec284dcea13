#include "engine/ahead.h"

#include "base/memory.h"
#include "engine/batch_complete.h"
#include "engine/engine.h"
#include "engine/session_pages.h"

#include <string.h>

/* Whether submissions return before they are complete. */
static bool is_asynchronous(const struct salvo_engine *engine)
{
    return engine->backend->info(engine->executor).in_flight > 1;
}

static uint32_t most_flights(const struct salvo_engine *engine)
{
    const uint32_t most = engine->backend->info(engine->executor).in_flight;
    return most < 1 ? 1 : most < MOST_FLIGHTS ? most : MOST_FLIGHTS;
}

/* Tokens of the next submission: the number requested, limited by the device. */
static uint32_t tokens_at_once(const struct salvo_engine *engine, const struct ahead_limits *limits)
{
    const uint32_t most = engine->backend->info(engine->executor).most_ahead;
    return most && most < limits->tokens ? most : limits->tokens;
}

/* ---- Results ---- */

/* Appends the ids that a flight has sampled so far. */
static void absorb(struct salvo_session *session, struct flight *flight, uint32_t sampled)
{
    const struct salvo_engine *engine = session->engine;
    const int32_t *ids = engine->backend->tokens(engine->executor, session->slot);
    for (; flight->seen < sampled; flight->seen++) {
        const uint32_t at = flight->first + flight->seen + 1;
        session->tokens[at] = ids[at];
        session->known = at + 1;
        session->computed = at;
        if (at == session->position)
            session->pending = ids[at];
    }
}

/* Waits for the first flight and removes it. */
static enum salvo_status land(struct salvo_session *session)
{
    struct salvo_engine *engine = session->engine;
    struct ahead *ahead = &engine->ahead;
    struct flight flight = ahead->flights[0];
    memmove(ahead->flights, ahead->flights + 1, --ahead->flight_count * sizeof flight);
    enum salvo_status status = engine->backend->wait(engine->executor, flight.ticket, engine->results);
    if (status == SALVO_ERROR_CANCELLED) {
        ahead->stopped = true;
        return SALVO_OK;
    }
    if (status != SALVO_OK) {
        if (!ahead->lost)
            ahead->lost = flight.first + 1;
        return status;
    }
    const struct run_result *result = &engine->results[0];
    absorb(session, &flight, result->sampled);
    ahead->stopped |= result->sampled < flight.count || result->ended;
    if (result->failed) {
        ahead->failed = true;
        ahead->failed_position = result->failed_position;
    }
    return SALVO_OK;
}

/* Flights after one that stopped early do nothing on the device. */
static enum salvo_status land_all(struct salvo_session *session)
{
    enum salvo_status status = SALVO_OK;
    while (session->engine->ahead.flight_count) {
        enum salvo_status landed = land(session);
        status = status == SALVO_OK ? landed : status;
    }
    return status;
}

/* Waits until at least one more id is available. */
static enum salvo_status collect(struct salvo_session *session)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_engine *engine = session->engine;
    struct flight *first = &engine->ahead.flights[0];
    bool done = true;
    if (is_asynchronous(engine)) {
        uint32_t sampled;
        TRY(engine->backend->progress(engine->executor, first->ticket, first->seen, &sampled, &done));
        absorb(session, first, sampled);
    }
    if (done)
        TRY(land(session));
    if (engine->ahead.stopped)
        TRY(land_all(session));
cleanup:
    return status;
}

/* ---- Submissions ---- */

static enum salvo_status submit(
    struct salvo_session *session, const struct ahead_limits *limits, uint32_t first, uint32_t count)
{
    struct salvo_engine *engine = session->engine;
    struct ahead *ahead = &engine->ahead;
    uint64_t ticket, allocations = memory_count();
    engine->runs[0] = session_run(session, 1, 0, LOGITS_LAST);
    engine->runs[0].first = first;
    engine->runs[0].source = ahead->flight_count ? SOURCE_LAST : SOURCE_IDS;
    engine->runs[0].stop_mask = UINT32_MAX;
    const int32_t id =
        session->pending >= 0 && first == session->position ? session->pending : session->tokens[first];
    const struct step step = {
        .runs = engine->runs,
        .run_count = 1,
        .token_count = 1,
        .ids = &id,
        .stop_ids = limits->stop_ids,
        .stop_count = limits->stop_count,
        .repeat = count,
        .cancel = &session->stop,
    };
    engine->steps++;
    engine->waits += ahead->flight_count == 0;
    enum salvo_status status = engine->backend->submit(engine->executor, &step, &ticket);
    if (status == SALVO_OK) {
        ahead->session = session;
        ahead->flights[ahead->flight_count++] =
            (struct flight){.ticket = ticket, .first = first, .count = count};
    } else if (status != SALVO_ERROR_CANCELLED && is_asynchronous(engine)) {
        ahead->session = session; /* the device may have begun a part of it */
        if (!ahead->lost)
            ahead->lost = first + 1;
    }
    engine->allocations += memory_count() - allocations;
    return status == SALVO_ERROR_CANCELLED ? session_cancelled(session) : status;
}

/* The position of the last token whose id is known or in flight: the next submission begins there. */
static uint32_t next_first(const struct salvo_session *session)
{
    const struct ahead *ahead = &session->engine->ahead;
    if (ahead->flight_count) {
        const struct flight *last = &ahead->flights[ahead->flight_count - 1];
        return last->first + last->count;
    }
    if (session->pending < 0)
        return session->position - 1;
    return session->known > session->position ? session->known - 1 : session->position;
}

/* Whether the next submission can be made before the ones in flight are complete. */
static bool may_submit(const struct salvo_session *session, const struct ahead_limits *limits)
{
    const struct ahead *ahead = &session->engine->ahead;
    const uint32_t first = next_first(session);
    if (ahead->stopped || first + 1 >= limits->end || __atomic_load_n(&session->cancelled, __ATOMIC_RELAXED))
        return false;
    if (!is_asynchronous(session->engine))
        return session->pending < 0;
    if (ahead->flight_count)
        return ahead->flight_count < most_flights(session->engine) && !snapshots_are_due(session, first);
    return session->pending < 0 || session->computed == first;
}

static enum salvo_status keep_busy(struct salvo_session *session, const struct ahead_limits *limits)
{
    enum salvo_status status = SALVO_OK;
    while (may_submit(session, limits)) {
        if (session->pending < 0 && session->engine->ahead.flight_count == 0)
            TRY(session_prepare_last(session));
        if (session->engine->ahead.flight_count == 0)
            TRY(snapshots_take_if_due(session));
        const uint32_t first = next_first(session), left = limits->end - 1 - first,
                       tokens = tokens_at_once(session->engine, limits);
        const uint32_t count = left < tokens ? left : tokens;
        TRY(session_take_pages(session, first, first + count));
        TRY(submit(session, limits, first, count));
        if (!is_asynchronous(session->engine))
            break;
    }
cleanup:
    return status;
}

/* ---- Interface ---- */

static enum salvo_status explain_stop(struct salvo_session *session)
{
    const struct ahead *ahead = &session->engine->ahead;
    if (ahead->failed)
        return batch_no_id_at(ahead->failed_position);
    return session_cancelled(session);
}

enum salvo_status ahead_sample(struct salvo_session *session, const struct ahead_limits *limits)
{
    enum salvo_status status = SALVO_OK;
    struct ahead *ahead = &session->engine->ahead;
    bool needs_step;
    if (ahead->session != session) {
        TRY(ahead_settle(session->engine));
        TRY(batch_settle(session->engine)); /* steps that a callback has submitted */
    }
    TRY(session_check_next(session, &needs_step));
    for (;;) {
        if (ahead->stopped && ahead->flight_count == 0 && session->pending < 0 && !ahead->failed)
            ahead->stopped = false; /* by a stop id of another call, or an earlier cancellation */
        TRY(keep_busy(session, limits));
        if (session->pending >= 0)
            break;
        if (ahead->flight_count == 0)
            TRY(explain_stop(session));
        TRY(collect(session));
    }
cleanup:
    return status;
}

enum salvo_status ahead_finish(struct salvo_session *session, bool keep_next)
{
    struct ahead *ahead = &session->engine->ahead;
    if (ahead->session != session)
        return SALVO_OK;
    session_stop_device(session, true);
    enum salvo_status status = land_all(session);
    session_stop_device(session, false);
    const uint32_t lost = ahead->lost;
    uint32_t kept = keep_next ? session->position : session->position - 1;
    *ahead = (struct ahead){0};
    if (!keep_next)
        session->pending = -1;
    session->known = 0;
    if (keep_next && session->computed == kept) {
        session->logits_step = session->engine->steps;
        session->logits_row = 0;
    }
    if (lost) {
        kept = lost - 1 < kept ? lost - 1 : kept;
        session->computed = lost; /* forces the state to be restored */
    }
    enum salvo_status gone_back = snapshots_go_back(session, kept);
    session_trim_pages(session);
    return status == SALVO_OK ? gone_back : status;
}

enum salvo_status ahead_settle(struct salvo_engine *engine)
{
    return engine->ahead.session ? ahead_finish(engine->ahead.session, false) : SALVO_OK;
}
