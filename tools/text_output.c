#include "text_output.h"

#include "command.h"
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

static void write_text(struct text_output *output, struct salvo_text text)
{
    if (text.size == 0)
        return;
    if (output->first == 0)
        output->first = seconds_now();
    if (output->keep)
        keep(output, text.data, text.size);
    if (output->show && !output->error)
        show(output, text.data, text.size);
    if (output->sink && !output->sink(output->sink_user, text.data, text.size) && !output->error)
        output->error = ENOMEM;
}

int text_output_open(struct text_output *output, const struct stop_strings *stops)
{
    return salvo_text_filter_open(stops->all, stops->count, &output->filter) == SALVO_OK ? EXIT_DONE
                                                                                         : library_failure();
}

bool text_output_text(void *user, const char *text, size_t size)
{
    struct text_output *output = user;
    write_text(output, (struct salvo_text){text, size});
    return !output->error;
}

bool text_output_watch(void *user, int32_t id, const char *data, size_t size)
{
    struct text_output *output = user;
    (void)data;
    (void)size;
    if (output->watch_loops)
        output->loop = loop_watch_add(&output->watch, id);
    return !output->loop;
}

bool text_output_token(void *user, int32_t id, const char *data, size_t size)
{
    struct text_output *output = user;
    struct salvo_text ready;
    (void)text_output_watch(output, id, data, size);
    if (salvo_text_filter_push(output->filter, data, size, &ready, &output->stopped) != SALVO_OK)
        output->error = ENOMEM;
    write_text(output, ready);
    if (output->stopped)
        output->loop = 0;
    return !output->error && !output->stopped && !output->loop;
}

void text_output_generated(struct text_output *output, struct salvo_generate_result *result)
{
    if (result->finish != SALVO_FINISH_CALLBACK)
        output->loop = 0;
    else if (output->stopped)
        result->finish = SALVO_FINISH_STOP;
}

void text_output_end(struct text_output *output)
{
    struct salvo_text rest;
    if (salvo_text_filter_finish(output->filter, &rest) == SALVO_OK && !output->error)
        write_text(output, rest);
}

void text_output_close(struct text_output *output)
{
    salvo_text_filter_close(output->filter);
    free(output->text);
    *output = (struct text_output){0};
}
