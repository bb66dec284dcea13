/* A session's state in a file: the bytes of session_state_save, followed by the messages of a conversation,
 * if any. */
#include "base/mapped_file.h"
#include "base/memory.h"
#include "engine/chat_section.h"
#include "engine/session.h"

#include <string.h>

enum { MOST_OF_OTHERS = 4096 }; /* bytes of a file that is no state, enough to tell that it is none */

enum salvo_status session_write(
    struct salvo_session *session, const struct salvo_messages *messages, struct salvo_file *file)
{
    enum salvo_status status = SALVO_OK;
    const size_t size = session_state_size(session);
    size_t section_size = 0;
    uint8_t *state = NULL, *section = NULL;
    TRY(NEW(&state, size));
    TRY(session_state_save(session, state, size));
    if (messages)
        TRY(chat_section_write(messages->items, messages->count, session_state_extent(state, size).checksum,
            &section, &section_size));
    TRY(salvo_file_write(file, state, size));
    if (section)
        TRY(salvo_file_write(file, section, section_size));
cleanup:
    memory_free(section);
    memory_free(state);
    return status;
}

enum salvo_status session_save_file(
    struct salvo_session *session, const struct salvo_messages *messages, const char *path)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_file *file = NULL;
    TRY(salvo_file_open(path, true, &file));
    TRY(session_write(session, messages, file));
    TRY(salvo_file_commit(file));
cleanup:
    salvo_file_close(file);
    return status;
}

/* Reads the messages after the state, if there are any, and reduces *in_out_size to the size of the state. */
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
    if (is_chat && size && extent.size == size)
        return fail(SALVO_ERROR_ARGUMENT, "this is a saved state without a conversation");
    return SALVO_OK; /* restoring reports the error */
}

enum salvo_status session_load_file(
    struct salvo_session *session, const char *path, struct salvo_messages **out_messages)
{
    enum salvo_status status = SALVO_OK;
    struct mapped_file file = {.guard = -1};
    struct salvo_messages *messages = NULL;
    uint8_t *copy = NULL;
    TRY(mapped_file_open(path, &file));
    size_t size = file.size;
    if (size > MOST_OF_OTHERS && session_state_extent(file.data, size).size == 0)
        size = MOST_OF_OTHERS;
    TRY(NEW(&copy, size)); /* a copy, because the file may change after it was checked */
    if (copy)
        memcpy(copy, file.data, size);
    TRY(mapped_file_check(&file));
    TRY(read_messages(copy, &size, out_messages != NULL, &messages));
    TRY(session_state_restore(session, copy, size));
    if (out_messages) {
        *out_messages = messages;
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
