#include "text_output.h"

#include "loop_watch.h"
#include "measure.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void keep(struct text_output *output, const char *text, size_t size)
{
    if (output->size + size > output->capacity) {
        size_t capacity = (output->size + size) * 2;
        char *larger = realloc(output->text, capacity);
        if (!larger) {
            output->error = ENOMEM;
            return;
        }
        output->text = larger;
        output->capacity = capacity;
    }
    memcpy(output->text + output->size, text, size);
    output->size += size;
}

static void show(struct text_output *output, const char *text, size_t size)
{
    char *safe = NULL;
    if (isatty(STDOUT_FILENO)) {
        safe = malloc(SAFE_TEXT_ROOM(size));
        if (!safe) {
            output->error = ENOMEM;
            return;
        }
        size = safe_text_pass(&output->safe, text, size, safe);
        text = safe;
    }
    while (output->skip_blanks && !output->last && size && strchr(" \t\n\r", *text)) {
        text++;
        size--;
    }
    errno = 0;
    if (output->wrap && safe)
        word_wrap_write(&output->words, terminal_width(), text, size, stdout);
    else if (size)
        fwrite(text, 1, size, stdout);
    if (fflush(stdout) != 0 || ferror(stdout))
        output->error = errno ? errno : EIO;
    if (size)
        output->last = text[size - 1];
    free(safe);
}

bool text_output_write(void *user, const char *text, size_t size)
{
    struct text_output *output = user;
    if (output->first == 0)
        output->first = seconds_now();
    if (output->keep)
        keep(output, text, size);
    if (output->show && !output->error)
        show(output, text, size);
    return output->error == 0 && !output->loop;
}

bool text_output_token(void *user, int32_t id, const char *data, size_t size)
{
    struct text_output *output = user;
    (void)id;
    (void)data;
    if (output->watched)
        output->loop = find_loop(salvo_session_tokens(output->watched) + output->answer_begins,
            salvo_session_position(output->watched) - output->answer_begins);
    return !output->loop || size; /* text_output_write stops after the text of the token */
}
