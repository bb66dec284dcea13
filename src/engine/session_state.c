/*
 * A session's state: rolled back, written as bytes, read again, copied. The bytes are a header, the tokens,
 * and the backend's state in the program's logical layout. The header refuses what belongs to another model,
 * was cut or changed.
 */
#include "base/memory.h"
#include "base/string_map.h"
#include "engine/engine.h"

#include <inttypes.h>
#include <string.h>

enum { STATE_VERSION = 1 };
static const char state_magic[8] = "salvo-st";

struct state_header {
    char magic[8];
    uint32_t version;
    uint32_t position, computed;
    int32_t pending;
    uint64_t fingerprint;
    uint64_t size;     /* of header, tokens and state */
    uint64_t checksum; /* of everything, with this field 0 */
};

enum salvo_status salvo_session_rollback(struct salvo_session *session, uint32_t position)
{
    if (position > session->position)
        return fail(SALVO_ERROR_ARGUMENT,
            "cannot roll back to position %" PRIu32 ": the session holds %" PRIu32, position,
            session->position);
    if (position < session->computed && session->engine->has_folded_state && position > 0)
        return fail(SALVO_ERROR_UNSUPPORTED,
            "this model folds its tokens into one state: it cannot be rolled back, only restored");
    if (position == session->position)
        return SALVO_OK;
    session->position = position;
    if (session->computed > position)
        session->computed = position;
    session->pending = -1;
    return SALVO_OK;
}

static size_t total_size(const struct salvo_engine *engine, uint32_t position, uint32_t computed)
{
    return sizeof(struct state_header) + position * sizeof(int32_t) +
           engine->backend->state_size(engine->executor, computed);
}

size_t salvo_session_state_size(const struct salvo_session *session)
{
    return total_size(session->engine, session->position, session->computed);
}

static uint64_t checksum_of(struct state_header header, const uint8_t *rest, size_t rest_size)
{
    header.checksum = 0;
    uint64_t parts[] = {hash_bytes(&header, sizeof header), hash_bytes(rest, rest_size)};
    return hash_bytes(parts, sizeof parts);
}

enum salvo_status salvo_session_state_save(struct salvo_session *session, void *out, size_t size)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_engine *engine = session->engine;
    size_t needed = salvo_session_state_size(session), tokens_size = session->position * sizeof(int32_t);
    if (size < needed)
        TRY(fail(SALVO_ERROR_ARGUMENT, "the state needs %zu bytes, not %zu", needed, size));
    uint8_t *rest = (uint8_t *)out + sizeof(struct state_header);
    memcpy(rest, session->tokens, tokens_size);
    TRY(engine->backend->state_save(
        engine->executor, session->slot, session->pages, session->computed, rest + tokens_size));
    struct state_header header = {
        .version = STATE_VERSION,
        .position = session->position,
        .computed = session->computed,
        .pending = session->pending,
        .fingerprint = engine->fingerprint,
        .size = needed,
    };
    memcpy(header.magic, state_magic, sizeof header.magic);
    header.checksum = checksum_of(header, rest, needed - sizeof header);
    memcpy(out, &header, sizeof header);
cleanup:
    return status;
}

static enum salvo_status check_header(
    const struct salvo_engine *engine, const struct state_header *header, size_t size)
{
    if (memcmp(header->magic, state_magic, sizeof state_magic) != 0)
        return fail(SALVO_ERROR_FORMAT, "this is not a saved state");
    if (header->version != STATE_VERSION)
        return fail(SALVO_ERROR_UNSUPPORTED, "the state has version %" PRIu32 "; this is version %d",
            header->version, STATE_VERSION);
    if (header->fingerprint != engine->fingerprint)
        return fail(SALVO_ERROR_ARGUMENT, "the state was saved from another model or with another KV type");
    if (header->position > engine->options.context)
        return fail(SALVO_ERROR_CONTEXT, "the state holds %" PRIu32 " tokens, the context %" PRIu32,
            header->position, engine->options.context);
    if (header->computed > header->position || header->position - header->computed > 1 ||
        header->pending < -1 || header->pending >= (int32_t)engine->program->vocabulary ||
        header->size != total_size(engine, header->position, header->computed))
        return fail(SALVO_ERROR_FORMAT, "the state contradicts itself");
    if (size < header->size)
        return fail(SALVO_ERROR_FORMAT, "the state was cut: %" PRIu64 " bytes, not %zu", header->size, size);
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

enum salvo_status salvo_session_state_restore(struct salvo_session *session, const void *state, size_t size)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_engine *engine = session->engine;
    struct state_header header;
    if (size < sizeof header)
        TRY(fail(SALVO_ERROR_FORMAT, "%zu bytes are too few for a saved state", size));
    memcpy(&header, state, sizeof header);
    TRY(check_header(engine, &header, size));
    const uint8_t *rest = (const uint8_t *)state + sizeof header;
    size_t tokens_size = header.position * sizeof(int32_t);
    if (checksum_of(header, rest, header.size - sizeof header) != header.checksum ||
        !ids_are_valid(engine, rest, header.position))
        TRY(fail(SALVO_ERROR_FORMAT, "the state is damaged: its checksum is wrong"));

    session->position = session->computed = 0; /* should restoring fail half way */
    session->pending = -1;
    TRY(engine->backend->state_restore(
        engine->executor, session->slot, session->pages, header.computed, rest + tokens_size));
    memcpy(session->tokens, rest, tokens_size);
    session->position = header.position;
    session->computed = header.computed;
    session->pending = header.pending;
    session->logits_step = 0;
cleanup:
    return status;
}

enum salvo_status salvo_session_copy(struct salvo_session *to, struct salvo_session *from)
{
    enum salvo_status status = SALVO_OK;
    size_t size = salvo_session_state_size(from);
    uint8_t *state = NULL;
    if (to == from)
        goto cleanup;
    TRY(NEW(&state, size));
    TRY(salvo_session_state_save(from, state, size));
    TRY(salvo_session_state_restore(to, state, size));
cleanup:
    memory_free(state);
    return status;
}
