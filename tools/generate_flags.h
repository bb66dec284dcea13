/* The options of commands that generate text: length, stop strings, statistics. */
#ifndef TOOLS_GENERATE_FLAGS_H
#define TOOLS_GENERATE_FLAGS_H

#include "command.h"

#include <salvo/chat.h>

extern struct generate_flags {
    const char *system;
    uint32_t tokens, ahead;
    struct text_list stops;
    bool no_escape, allow_loops, stats;
} generate_flags;

extern const struct option generate_flag_table[];

/* Stop strings of the options, with escapes resolved, and optionally the stop strings of a template. */
struct stop_strings {
    char *copies[sizeof generate_flags.stops.items / sizeof *generate_flags.stops.items];
    const char **all;
    size_t count;
};

/* `more`: stop strings of a template, or NULL. EXIT_DONE, or an exit status after an error message; the
 * caller closes `out` in both cases. */
int stop_strings_open(const struct salvo_stops *more, struct stop_strings *out);
void stop_strings_close(struct stop_strings *strings);

/* Sets the system message of --system, if it was given. EXIT_DONE, or an exit status after an error message.
 */
int set_system_from_flags(struct salvo_chat *chat);

#endif
