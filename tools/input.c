#include "input.h"

#include "command.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int read_stream(FILE *stream, const char *name, struct input *out)
{
    size_t capacity = 1 << 16;
    out->data = malloc(capacity);
    while (out->data) {
        out->size += fread(out->data + out->size, 1, capacity - out->size, stream);
        if (out->size < capacity)
            break;
        capacity *= 2;
        char *larger = realloc(out->data, capacity);
        if (!larger)
            input_free(out);
        else
            out->data = larger;
    }
    if (!out->data)
        return failure("%s: out of memory", name);
    if (ferror(stream)) {
        input_free(out);
        return failure("%s: %s", name, strerror(errno));
    }
    return EXIT_DONE;
}

int input_read(const char *text, const char *file, struct input *out)
{
    *out = (struct input){0};
    if (text && file)
        return usage_error("-p and -f exclude each other");
    if (text) {
        out->data = strdup(text);
        out->size = strlen(text);
        return out->data ? EXIT_DONE : failure("out of memory");
    }
    if (!file || strcmp(file, "-") == 0) {
        if (isatty(STDIN_FILENO))
            fputs("(reading standard input; Ctrl-D ends it)\n", stderr);
        return read_stream(stdin, "standard input", out);
    }
    FILE *stream = fopen(file, "rb");
    if (!stream)
        return failure("%s: %s", file, strerror(errno));
    int result = read_stream(stream, file, out);
    fclose(stream);
    return result;
}

void input_free(struct input *input)
{
    free(input->data);
    *input = (struct input){0};
}
