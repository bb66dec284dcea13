/*
 * A session's state: rollback, saving, restoring, copying. The bytes are a header, the tokens, the backend's
 * state in the program's logical layout, and the nearest earlier snapshot: its position as a uint32_t, 0 if
 * there is none, and its recurrent states. With the snapshot, a restored session of a recurrent model can be
 * rolled back without computing all tokens again. By its header, a state of another model and a truncated or
 * damaged one are refused. The checksum detects accidents only: anyone can compute it, so every number that
 * is used as an index or a size is checked as well.
 */
#include "backend/common/state.h"
#include "base/checksum.h"
#include "base/memory.h"
#include "engine/session.h"
#include "engine/session_pages.h"
#include "engine/session_publish.h"

#include <inttypes.h>
#include <string.h>

/* Version 2 repeats the ids of the computed positions between the tokens and the state; they are skipped.
 * Versions 2 and 3 end after the state. */
enum { OLDEST_VERSION = 2, FIRST_WITH_SNAPSHOT = 4, STATE_VERSION = 4 };
static const char state_magic[8] = {'s', 'a', 'l', 'v', 'o', '-', 's', 't'};

struct state_header {
    char magic[8];
    uint32_t version;
    uint32_t kv_type;
    uint64_t size;     /* of everything, header included */
    uint64_t checksum; /* of everything, with this field 0 */
    uint64_t model_hash, layout_hash;
    uint32_t position, computed;
    int32_t pending;
    char model[68]; /* name of the model, for errors */
};

enum salvo_status session_rollback(struct salvo_session *session, uint32_t position)
{
    if (position > session->position) {
        return fail(SALVO_ERROR_ARGUMENT,
            "cannot roll back to position %" PRIu32 ": the session holds %" PRIu32, position,
            session->position);
    }
    if (position == session->position)
        return SALVO_OK;
    session_publish(session);
    session->position = position;
    session->pending = -1;
    const enum salvo_status status = snapshots_go_back(session, position);
    session_trim_pages(session);
    return status;
}

/* Bytes of all ids, including the ids that version 2 repeats. */
static size_t ids_size(uint32_t version, uint32_t position, uint32_t computed)
{
    return ((size_t)position + (version == OLDEST_VERSION ? computed : 0)) * sizeof(int32_t);
}

/* Bytes of header, ids and the backend's state; the snapshot follows. */
static size_t size_before_snapshot(
    const struct salvo_engine *engine, uint32_t version, uint32_t position, uint32_t computed)
{
    return sizeof(struct state_header) + ids_size(version, position, computed) +
           state_size(engine->backend, engine->executor, computed);
}

/* Bytes of a snapshot at `position`, 0 for none, with its position. */
static size_t snapshot_section_size(const struct salvo_engine *engine, uint32_t position)
{
    return sizeof position + (position ? state_size(engine->backend, engine->executor, 0) : 0);
}

/* The snapshot that a rollback of the saved state would use: the newest one before its end. The end itself
 * needs none, because the backend's state is the snapshot there. */
static struct snapshot earlier_snapshot(const struct salvo_session *session)
{
    const struct snapshots *snapshots = &session->snapshots;
    uint32_t count = session->engine->has_recurrent_state ? snapshots->count : 0;
    while (count && snapshots->items[count - 1].position >= session->computed)
        count--;
    return count ? snapshots->items[count - 1] : (struct snapshot){0};
}

size_t session_state_size(const struct salvo_session *session)
{
    const struct salvo_engine *engine = session->engine;
    return size_before_snapshot(engine, STATE_VERSION, session->position, session->computed) +
           snapshot_section_size(engine, earlier_snapshot(session).position);
}

uint64_t session_state_checksum(const void *data, size_t size)
{
    struct state_header header;
    memcpy(&header, data, sizeof header);
    header.checksum = 0;
    uint64_t parts[] = {checksum64(&header, sizeof header),
        checksum64((const uint8_t *)data + sizeof header, size - sizeof header)};
    return checksum64(parts, sizeof parts);
}

static enum salvo_status identify_model(struct salvo_engine *engine)
{
    if (!engine->model_hash)
        engine->model_hash = model_hash(engine->model);
    return gguf_check(model_gguf(engine->model));
}

/* Copies a model's name as far as it fits, without control characters, which could affect a terminal. */
static void copy_model_name(const char *name, char out[68])
{
    size_t i = 0;
    for (; i < 67 && name[i]; i++)
        out[i] = name[i] < ' ' || name[i] > '~' ? '?' : name[i];
    out[i] = 0;
}

enum salvo_status session_state_save(struct salvo_session *session, void *out, size_t size)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_engine *engine = session->engine;
    size_t needed = session_state_size(session), tokens_size = session->position * sizeof(int32_t);
    if (size < needed)
        TRY(fail(SALVO_ERROR_ARGUMENT, "the state needs %zu bytes, not %zu", needed, size));
    uint8_t *rest = (uint8_t *)out + sizeof(struct state_header);
    memcpy(rest, session->tokens, tokens_size);
    TRY(state_save(engine->backend, engine->executor, session->slot, session->pages, session->computed,
        rest + tokens_size));
    const struct snapshot earlier = earlier_snapshot(session);
    const size_t section_size = snapshot_section_size(engine, earlier.position);
    uint8_t *section = (uint8_t *)out + needed - section_size;
    memcpy(section, &earlier.position, sizeof earlier.position);
    if (earlier.position)
        TRY(state_save(engine->backend, engine->executor, snapshots_place(engine, earlier.state),
            session->pages, 0, section + sizeof earlier.position));
    TRY(identify_model(engine));
    struct state_header header = {
        .version = STATE_VERSION,
        .kv_type = engine->options.kv_type,
        .size = needed,
        .model_hash = engine->model_hash,
        .layout_hash = engine->layout_hash,
        .position = session->position,
        .computed = session->computed,
        .pending = session->pending,
    };
    memcpy(header.magic, state_magic, sizeof header.magic);
    copy_model_name(salvo_model_info(engine->model)->name, header.model);
    memcpy(out, &header, sizeof header);
    header.checksum = session_state_checksum(out, needed);
    memcpy(out, &header, sizeof header);
cleanup:
    return status;
}

struct state_extent session_state_extent(const void *data, size_t size)
{
    struct state_header header;
    if (size < sizeof header)
        return (struct state_extent){0};
    memcpy(&header, data, sizeof header);
    if (memcmp(header.magic, state_magic, sizeof state_magic) != 0 || header.size < sizeof header)
        return (struct state_extent){0};
    return (struct state_extent){header.size, header.checksum};
}

/* Checks size, version and checksum. */
static enum salvo_status check_integrity(const void *data, size_t size)
{
    struct state_header header;
    if (size < sizeof header)
        return fail(SALVO_ERROR_FORMAT, "%zu bytes are too few for a saved state", size);
    memcpy(&header, data, sizeof header);
    if (memcmp(header.magic, state_magic, sizeof state_magic) != 0)
        return fail(SALVO_ERROR_FORMAT, "this is not a saved state");
    if (header.version < OLDEST_VERSION || header.version > STATE_VERSION)
        return fail(SALVO_ERROR_UNSUPPORTED, "the state has version %" PRIu32 "; versions %d to %d are read",
            header.version, OLDEST_VERSION, STATE_VERSION);
    if (size < header.size)
        return fail(SALVO_ERROR_FORMAT, "the state was cut: %zu bytes of %" PRIu64, size, header.size);
    if (size > header.size)
        return fail(SALVO_ERROR_FORMAT, "%zu bytes follow the state's %" PRIu64, size - (size_t)header.size,
            header.size);
    if (header.size < sizeof header || header.model[sizeof header.model - 1] ||
        session_state_checksum(data, size) != header.checksum)
        return fail(SALVO_ERROR_FORMAT, "the state is damaged: its checksum is wrong");
    return SALVO_OK;
}

/* Checks positions and sizes against each other. *out_snapshot is the position of the snapshot, 0 for none.
 */
static bool is_consistent(const struct salvo_engine *engine, const struct state_header *header,
    const uint8_t *data, uint32_t *out_snapshot)
{
    *out_snapshot = 0;
    if (header->computed > header->position || header->pending < -1 ||
        header->pending >= (int32_t)engine->program->vocabulary)
        return false;
    const size_t before = size_before_snapshot(engine, header->version, header->position, header->computed);
    if (header->version < FIRST_WITH_SNAPSHOT)
        return header->size == before;
    if (header->size < before + sizeof *out_snapshot)
        return false;
    memcpy(out_snapshot, data + before, sizeof *out_snapshot);
    if (*out_snapshot && (!engine->has_recurrent_state || *out_snapshot >= header->computed))
        return false;
    return header->size == before + snapshot_section_size(engine, *out_snapshot);
}

/* Checks that a state belongs to this model and fits this engine. */
static enum salvo_status check_fit(const struct salvo_engine *engine, const struct state_header *header,
    const uint8_t *data, uint32_t *out_snapshot)
{
    static const char *const types[] = {[TYPE_F32] = "f32", [TYPE_F16] = "f16", [TYPE_Q8_0] = "q8_0"};
    if (header->model_hash != engine->model_hash) {
        char name[sizeof header->model];
        copy_model_name(header->model, name);
        return fail(SALVO_ERROR_ARGUMENT, "the state was saved from another model, '%s'", name);
    }
    if (header->kv_type != engine->options.kv_type) {
        return fail(SALVO_ERROR_ARGUMENT, "the state was saved with the KV type %s; here it is %s",
            header->kv_type < sizeof types / sizeof *types && types[header->kv_type] ? types[header->kv_type]
                                                                                     : "unknown",
            types[engine->options.kv_type]);
    }
    if (header->layout_hash != engine->layout_hash)
        return fail(
            SALVO_ERROR_UNSUPPORTED, "the state has another layout than this version uses for the model");
    if (header->position > engine->options.context)
        return fail(SALVO_ERROR_CONTEXT, "the state holds %" PRIu32 " tokens, the context %" PRIu32,
            header->position, engine->options.context);
    if (!is_consistent(engine, header, data, out_snapshot))
        return fail(SALVO_ERROR_FORMAT, "the state is inconsistent");
    return SALVO_OK;
}

static bool ids_are_valid(const struct salvo_engine *engine, const uint8_t *tokens, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        int32_t id;
        memcpy(&id, tokens + i * sizeof id, sizeof id);
        if (id < 0 || (uint32_t)id >= engine->program->vocabulary)
            return false;
    }
    return true;
}

enum salvo_status session_state_restore(struct salvo_session *session, const void *state, size_t size)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_engine *engine = session->engine;
    struct state_header header;
    uint32_t snapshot = 0;
    TRY(check_integrity(state, size));
    memcpy(&header, state, sizeof header);
    const uint8_t *rest = (const uint8_t *)state + sizeof header;
    TRY(identify_model(engine));
    TRY(check_fit(engine, &header, state, &snapshot));
    if (!ids_are_valid(engine, rest, header.position))
        TRY(fail(SALVO_ERROR_FORMAT, "the state holds tokens outside the vocabulary"));

    TRY(session_take_pages(session, 0, header.computed));
    snapshots_forget(session);
    session->position = session->computed = 0; /* in case restoring fails half way */
    session->pending = -1;
    memcpy(session->tokens, rest, header.position * sizeof *session->tokens);
    const uint8_t *states = rest + ids_size(header.version, header.position, header.computed);
    TRY(state_restore(engine->backend, engine->executor, session->slot, session->pages, header.computed,
        session->tokens, states));
    session->position = header.position;
    session->computed = header.computed;
    session->pending = header.pending;
    session->logits_step = 0;
    session_trim_pages(session);
    const uint8_t *end = states + state_size(engine->backend, engine->executor, header.computed);
    if (snapshot)
        TRY(snapshots_restore(session, snapshot, end + sizeof snapshot));
    TRY(snapshots_restore(session, header.computed, end - state_size(engine->backend, engine->executor, 0)));
cleanup:
    return status;
}

static enum salvo_status copy_between_engines(struct salvo_session *to, struct salvo_session *from)
{
    enum salvo_status status = SALVO_OK;
    const size_t size = session_state_size(from);
    uint8_t *state = NULL;
    TRY(NEW(&state, size));
    TRY(session_state_save(from, state, size));
    TRY(session_state_restore(to, state, size));
cleanup:
    memory_free(state);
    return status;
}

/* Within an engine KV pages are shared, and the device copies the recurrent state. */
enum salvo_status session_copy(struct salvo_session *to, struct salvo_session *from)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_engine *engine = from->engine;
    if (to == from)
        goto cleanup;
    if (to->engine != engine) {
        status = copy_between_engines(to, from);
        goto cleanup;
    }
    snapshots_forget(to);
    to->position = to->computed = 0; /* in case copying fails half way */
    to->pending = -1;
    to->logits_step = 0;
    session_share_pages(to, from, from->computed);
    if (from->position)
        memcpy(to->tokens, from->tokens, from->position * sizeof *to->tokens);
    if (from->computed) {
        TRY(state_set_tokens(engine->backend, engine->executor, to->slot, to->tokens, from->computed));
        TRY(state_copy_recurrent(engine->backend, engine->executor, to->slot, from->slot));
    }
    to->position = from->position;
    to->computed = from->computed;
    to->pending = from->pending;
    snapshots_copy(to, from);
cleanup:
    return status;
}
