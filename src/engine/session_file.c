/* A session's state in a file: the bytes that salvo_session_state_save gives, and behind them the messages of
 * the conversation, if it is one. */
#include "base/mapped_file.h"
#include "base/memory.h"
#include "engine/chat_section.h"
#include "engine/engine.h"

#include <string.h>

static enum salvo_status write_state(struct salvo_session *session, const struct salvo_message *messages,
    size_t count, bool is_chat, struct salvo_file *file)
{
    enum salvo_status status = SALVO_OK;
    const size_t size = salvo_session_state_size(session);
    size_t section_size = 0;
    uint8_t *state = NULL, *section = NULL;
    TRY(NEW(&state, size));
    TRY(salvo_session_state_save(session, state, size));
    if (is_chat)
        TRY(chat_section_write(
            messages, count, session_state_extent(state, size).checksum, &section, &section_size));
    TRY(salvo_file_write(file, state, size));
    if (section)
        TRY(salvo_file_write(file, section, section_size));
cleanup:
    memory_free(section);
    memory_free(state);
    return status;
}

enum salvo_status salvo_session_state_write(struct salvo_session *session, struct salvo_file *file)
{
    return write_state(session, NULL, 0, false, file);
}

enum salvo_status salvo_session_chat_write(struct salvo_session *session,
    const struct salvo_message *messages, size_t count, struct salvo_file *file)
{
    return write_state(session, messages, count, true, file);
}

static enum salvo_status save_file(struct salvo_session *session, const struct salvo_message *messages,
    size_t count, bool is_chat, const char *path)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_file *file = NULL;
    TRY(salvo_file_open(path, true, &file));
    TRY(write_state(session, messages, count, is_chat, file));
    TRY(salvo_file_commit(file));
cleanup:
    salvo_file_close(file);
    return status;
}

enum salvo_status salvo_session_state_save_file(struct salvo_session *session, const char *path)
{
    return save_file(session, NULL, 0, false, path);
}

enum salvo_status salvo_session_chat_save_file(
    struct salvo_session *session, const struct salvo_message *messages, size_t count, const char *path)
{
    return save_file(session, messages, count, true, path);
}

/* The messages behind the state, if there are some: *in_out_size then becomes that of the state alone. */
static enum salvo_status read_messages(
    const uint8_t *data, size_t *in_out_size, bool is_chat, struct salvo_messages **out)
{
    const struct state_extent extent = session_state_extent(data, *in_out_size);
    const size_t size = *in_out_size;
    *out = NULL;
    if (extent.size < size && chat_section_begins(data + extent.size, size - extent.size)) {
        *in_out_size = extent.size;
        return chat_section_read(data + extent.size, size - extent.size, extent.checksum, out);
    }
    if (is_chat && extent.size == size)
        return fail(SALVO_ERROR_ARGUMENT, "this is a saved state without a conversation");
    return SALVO_OK; /* restoring says what is wrong with anything else */
}

static enum salvo_status load_file(
    struct salvo_session *session, const char *path, bool is_chat, struct salvo_messages **out)
{
    enum salvo_status status = SALVO_OK;
    struct mapped_file file = {.guard = -1};
    struct salvo_messages *messages = NULL;
    uint8_t *copy = NULL;
    TRY(mapped_file_open(path, &file));
    size_t size = file.size;
    TRY(NEW(&copy, file.size)); /* what was checked must not change while it is used */
    if (copy)
        memcpy(copy, file.data, file.size);
    TRY(mapped_file_check(&file));
    TRY(read_messages(copy, &size, is_chat, &messages));
    TRY(salvo_session_state_restore(session, copy, size));
    if (is_chat) {
        *out = messages;
        messages = NULL;
    }
cleanup:
    if (status != SALVO_OK)
        status = fail_within(status, "%s: ", path);
    memory_free(messages);
    memory_free(copy);
    mapped_file_close(&file);
    return status;
}

enum salvo_status salvo_session_state_load_file(struct salvo_session *session, const char *path)
{
    return load_file(session, path, false, NULL);
}

enum salvo_status salvo_session_chat_load_file(
    struct salvo_session *session, const char *path, struct salvo_messages **out)
{
    *out = NULL;
    return load_file(session, path, true, out);
}
