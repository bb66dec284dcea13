#include "input.h"

#include "command.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    NOTICE_AFTER_MS = 1000,  /* before the notice that standard input is awaited */
    DEVICE_LIMIT = 64 << 20, /* bytes that are read from a character device: /dev/zero has no end */
};

static int read_stream(FILE *stream, const char *name, struct input *out)
{
    size_t capacity = 1 << 16;
    struct stat information;
    const bool is_device = fstat(fileno(stream), &information) == 0 && S_ISCHR(information.st_mode);
    out->data = malloc(capacity);
    while (out->data) {
        out->size += fread(out->data + out->size, 1, capacity - out->size, stream);
        if (out->size < capacity)
            break;
        if (is_device && capacity >= DEVICE_LIMIT) {
            input_free(out);
            return failure("%s: a device with more than %d MiB of input", name, DEVICE_LIMIT >> 20);
        }
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
        return usage_error("-p and -f cannot be combined");
    if (text) {
        out->data = strdup(text);
        out->size = strlen(text);
        return out->data ? EXIT_DONE : failure("out of memory");
    }
    if (!file || strcmp(file, "-") == 0) {
        if (isatty(STDIN_FILENO))
            fputs("(reading standard input until Ctrl-D)\n", stderr);
        return read_stream(stdin, "standard input", out);
    }
    FILE *stream = fopen(file, "rb");
    if (!stream)
        return failure("%s: %s", file, strerror(errno));
    int result = read_stream(stream, file, out);
    fclose(stream);
    return result;
}

/* False for a terminal, where reading would wait for a user who has already given the text. */
static bool has_standard_input(void)
{
    struct stat input, nothing;
    if (isatty(STDIN_FILENO) || fstat(STDIN_FILENO, &input) != 0)
        return false;
    bool is_null = S_ISCHR(input.st_mode) && stat("/dev/null", &nothing) == 0 && S_ISCHR(nothing.st_mode) &&
                   input.st_rdev == nothing.st_rdev;
    return !is_null;
}

int input_prepend_standard_input(struct input *input)
{
    static const char blanks[] = " \t\r\n";
    struct input piped = {0};
    if (!has_standard_input())
        return EXIT_DONE;
    struct pollfd silence = {.fd = STDIN_FILENO, .events = POLLIN};
    if (poll(&silence, 1, NOTICE_AFTER_MS) == 0)
        fputs("(reading standard input, which is put before the prompt; skip it with < /dev/null)\n", stderr);
    int result = read_stream(stdin, "standard input", &piped);
    if (result != EXIT_DONE || piped.size == 0) {
        input_free(&piped);
        return result;
    }
    const bool is_separated = input->size == 0 ||
                              memchr(blanks, piped.data[piped.size - 1], sizeof blanks - 1) ||
                              memchr(blanks, input->data[0], sizeof blanks - 1);
    char *both = realloc(piped.data, piped.size + 1 + input->size);
    if (!both) {
        input_free(&piped);
        return failure("out of memory");
    }
    if (!is_separated)
        both[piped.size++] = ' ';
    memcpy(both + piped.size, input->data, input->size);
    piped.size += input->size;
    piped.data = both;
    input_free(input);
    *input = piped;
    return EXIT_DONE;
}

void input_free(struct input *input)
{
    free(input->data);
    *input = (struct input){0};
}
