#include "chat.h"

#include "command.h"
#include "terminal.h"
#include "text_output.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const struct salvo_message *chat_system(const struct chat *chat)
{
    const struct salvo_messages messages = salvo_chat_messages(chat->conversation);
    return messages.count && strcmp(messages.items[0].role, "system") == 0 ? messages.items : NULL;
}

size_t chat_question(const struct chat *chat)
{
    const struct salvo_messages messages = salvo_chat_messages(chat->conversation);
    for (size_t i = messages.count; i > 0; i--) {
        const struct salvo_message *message = &messages.items[i - 1];
        if (strcmp(message->role, "user") == 0 && !message->json)
            return i - 1;
    }
    return messages.count;
}

void chat_notice(const struct chat *chat, const char *format, ...)
{
    if (output_flags.quiet && !chat->interactive)
        return;
    char line[4096];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    fprintf(stderr, "%s(", colour(stderr, COLOUR_DIM));
    print_safely(stderr, line, strlen(line));
    fprintf(stderr, ")%s\n", colour(stderr, COLOUR_OFF));
}

/* The error of an answer; a prompt that does not fit gets advice. */
int chat_answer_failure(const struct chat *chat, enum salvo_status status)
{
    if (status != SALVO_ERROR_CONTEXT)
        return library_failure();
    const bool is_alone = chat_question(chat) == (chat_system(chat) ? 1 : 0);
    return failure("%s%s", salvo_error(),
        chat->slides || is_alone ? "; -c N enlarges it"
                                 : ". /undo and /clear make room, --on-full slide drops the oldest turns, -c "
                                   "N enlarges the context");
}
