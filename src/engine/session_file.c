/* A session's state in a file: the bytes that salvo_session_state_save gives, and nothing else. */
#include "base/atomic_file.h"
#include "base/mapped_file.h"
#include "base/memory.h"
#include "engine/engine.h"

#include <string.h>

enum salvo_status salvo_session_state_save_file(struct salvo_session *session, const char *path)
{
    enum salvo_status status = SALVO_OK;
    const size_t size = salvo_session_state_size(session);
    struct atomic_file file = {0};
    uint8_t *state = NULL;
    TRY(NEW(&state, size));
    TRY(salvo_session_state_save(session, state, size));
    TRY(atomic_file_open(path, &file));
    TRY(atomic_file_write(&file, state, size));
    TRY(atomic_file_commit(&file));
cleanup:
    atomic_file_abandon(&file);
    memory_free(state);
    return status;
}

enum salvo_status salvo_file_check_writable(const char *path)
{
    struct atomic_file file;
    enum salvo_status status = atomic_file_open(path, &file);
    atomic_file_abandon(&file);
    return status;
}

enum salvo_status salvo_session_state_load_file(struct salvo_session *session, const char *path)
{
    enum salvo_status status = SALVO_OK;
    struct mapped_file file = {.guard = -1};
    uint8_t *state = NULL;
    TRY(mapped_file_open(path, &file));
    TRY(NEW(&state, file.size)); /* a copy: what was checked must not change while it is used */
    memcpy(state, file.data, file.size);
    TRY(mapped_file_check(&file));
    status = salvo_session_state_restore(session, state, file.size);
    if (status != SALVO_OK)
        TRY(fail_within(status, "%s: ", path));
cleanup:
    memory_free(state);
    mapped_file_close(&file);
    return status;
}
