#include "chat_input.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char quotes[] = "\"\"\"";
enum { QUOTES = sizeof quotes - 1 };

static bool append(struct chat_message *message, const char *text, size_t size)
{
    char *longer = realloc(message->text, message->size + size + 1);
    if (!longer)
        return false;
    if (size)
        memcpy(longer + message->size, text, size);
    message->text = longer;
    message->size += size;
    longer[message->size] = 0;
    return true;
}

static bool ends_with_quotes(const char *line, size_t size)
{
    return size >= QUOTES && memcmp(line + size - QUOTES, quotes, QUOTES) == 0;
}

/* Adds a line. *out_more: the message is not complete. */
static bool add_line(struct chat_message *message, const char *line, size_t size, bool *out_more)
{
    bool is_first = message->text == NULL;
    if (is_first && size >= QUOTES && memcmp(line, quotes, QUOTES) == 0) {
        message->is_quoted = true;
        line += QUOTES;
        size -= QUOTES;
    } else if (message->is_quoted && message->size && !append(message, "\n", 1)) {
        return false;
    }
    if (message->is_quoted) {
        *out_more = !ends_with_quotes(line, size);
        size -= *out_more ? 0 : QUOTES;
        /* Closing quotes on a line of their own add no line. */
        if (!*out_more && size == 0 && message->size)
            message->text[--message->size] = 0;
        return append(message, line, size);
    }
    *out_more = size && line[size - 1] == '\\';
    if (!*out_more)
        return append(message, line, size);
    return append(message, line, size - 1) && append(message, "\n", 1);
}

enum line_result chat_input_read(struct line_editor *editor, const char *prompt, struct chat_message *out)
{
    bool more = true;
    *out = (struct chat_message){0};
    while (more) {
        const char *line;
        size_t size;
        enum line_result result = line_editor_read(editor, out->text ? "." : prompt, &line, &size);
        if (result == LINE_END && out->text)
            return LINE_READ; /* an incomplete message at the end of the input */
        if (result == LINE_READ && !add_line(out, line, size, &more)) {
            result = LINE_FAILED;
            errno = ENOMEM;
        }
        if (result != LINE_READ) {
            free(out->text);
            *out = (struct chat_message){0};
            return result;
        }
    }
    return LINE_READ;
}
