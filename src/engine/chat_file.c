/* A conversation and the state of its session in a file. */
#include "base/memory.h"
#include "engine/arguments.h"
#include "engine/chat.h"
#include "engine/session.h"
#include "engine/token_overlap.h"

#include <string.h>

/* Removes tokens from the session that are not part of the conversation, so that they are not written to a
 * file. Until then they stay, because the same message may be sent again. */
static enum salvo_status drop_leftovers(struct salvo_chat *chat, struct salvo_session *session)
{
    enum salvo_status status = SALVO_OK;
    const struct token_list *held = &chat->held;
    const struct tokenizer *tokenizer;
    struct token_list ids = {0};
    struct token_overlap overlap = {0};
    if (!chat->has_leftovers && held->count == session->position &&
        (held->count == 0 || memcmp(held->ids, session->tokens, held->count * sizeof *held->ids) == 0))
        goto cleanup;
    TRY(model_tokenizer(chat->model, &tokenizer));
    /* A template may refuse a conversation without a message of the user; the session is then emptied. */
    if (chat->messages.count && chat_render(chat, &chat->messages, 0, false, &ids) == SALVO_OK)
        TRY(token_overlap_find(tokenizer, session->tokens, session->position, ids.ids, ids.count, &overlap));
    TRY(salvo_session_rollback(session, (uint32_t)overlap.kept));
    chat_hold(chat, session->tokens, session->position);
    chat->has_leftovers = false;
cleanup:
    memory_free(ids.ids);
    return status;
}

static enum salvo_status check_session(const struct salvo_chat *chat, const struct salvo_session *session)
{
    return session->engine->model == chat->model
               ? SALVO_OK
               : fail(SALVO_ERROR_ARGUMENT, "the session belongs to another model than the chat");
}

enum salvo_status salvo_chat_save_file(
    struct salvo_chat *chat, struct salvo_session *session, const char *path, bool replace)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_file *file = NULL;
    REQUIRE(chat);
    REQUIRE(session);
    REQUIRE(path);
    TRY(check_session(chat, session));
    TRY(drop_leftovers(chat, session));
    TRY(salvo_file_open(path, replace, &file));
    TRY(salvo_session_chat_write(
        session, chat->messages.items, chat->messages.count, sizeof *chat->messages.items, file));
    TRY(salvo_file_commit(file));
cleanup:
    salvo_file_close(file);
    return status;
}

enum salvo_status salvo_chat_load_file(
    struct salvo_chat *chat, struct salvo_session *session, const char *path)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_messages *loaded = NULL;
    struct message_list messages = {0};
    REQUIRE(chat);
    REQUIRE(session);
    REQUIRE(path);
    TRY(check_session(chat, session));
    TRY(salvo_session_chat_load_file(session, path, &loaded));
    chat->has_leftovers = true; /* until the messages are there */
    TRY(message_list_copy(loaded->items, loaded->count, &messages));
    message_list_free(&chat->messages);
    chat->messages = messages;
    chat_hold(chat, session->tokens, session->position);
    chat->has_leftovers = false;
cleanup:
    salvo_free(loaded);
    return status;
}
