/* The input text of a command: -p TEXT, -f FILE or standard input, unchanged. */
#ifndef TOOLS_INPUT_H
#define TOOLS_INPUT_H

#include <stdbool.h>
#include <stddef.h>

struct input {
    char *data;
    size_t size;
};

/* `text` and `file` are the values of -p and -f, or NULL. EXIT_DONE, or an exit status after an error
 * message. */
int input_read(const char *text, const char *file, struct input *out);

/* Puts standard input before the text, to its end, with a blank in between where neither has one. Nothing is
 * added by a terminal, by /dev/null and by an input that is empty. */
int input_prepend_standard_input(struct input *input);
void input_free(struct input *input);

#endif
