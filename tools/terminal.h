/* Terminal output: colours, sizes and counts in readable units. */
#ifndef TOOLS_TERMINAL_H
#define TOOLS_TERMINAL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Amount and format of the output. */
extern struct output_flags {
    bool json, verbose, quiet;
} output_flags;

/* Readable on dark and on light backgrounds. */
enum colour { COLOUR_OFF, COLOUR_BOLD, COLOUR_DIM, COLOUR_YELLOW, COLOUR_PROMPT };

/* The sequence for a colour; "" unless the stream is a terminal and NO_COLOR is not set. */
const char *colour(FILE *stream, enum colour which);

/* Whether the terminal that TERM names understands escape sequences. */
bool terminal_is_smart(void);

/* "98.4 MB", "134.5 M"; `text` has room for 32 bytes and is returned. */
const char *format_bytes(uint64_t bytes, char *text);
const char *format_count(uint64_t count, char *text);

/* Prints text from a file with control characters as escapes, so that it cannot control the terminal.
 */
void print_safely(FILE *stream, const char *text, size_t size);

#endif
