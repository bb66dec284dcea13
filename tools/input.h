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

/* Prepends all of standard input to the text, separated by a blank if neither has one. A terminal and
 * /dev/null are not read. */
int input_prepend_standard_input(struct input *input);
void input_free(struct input *input);

#endif
