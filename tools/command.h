/*
 * A command is a table: its options drive parsing, help and shell completions. Each command's file defines
 * one `struct command`; main.c lists them.
 */
#ifndef TOOLS_COMMAND_H
#define TOOLS_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum exit_status { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

enum option_kind {
    OPTION_FLAG, /* bool: true when given */
    OPTION_TEXT, /* const char * */
    OPTION_FILE, /* const char *, completed as a file name */
};

struct option {
    char letter;       /* 0: none */
    const char *name;  /* without dashes; NULL ends the table */
    const char *value; /* what help calls its value; NULL for flags */
    enum option_kind kind;
    void *target;
    const char *help;
};

struct command {
    const char *name;
    const char *arguments; /* after the options in the usage line, "[IDS...]"; NULL when there are none */
    const char *summary;   /* one line, no full stop */
    const char *details;   /* more lines for its help, or NULL */
    const struct option *options;
    int (*run)(int count, char **arguments); /* what is left after the options */
};

/* Parses the options out of `arguments`. EXIT_DONE, or EXIT_USAGE after saying why. --help sets *help. */
int command_parse(const struct command *command, int *count, char **arguments, bool *help);
void command_print_help(const struct command *command);

/* All commands, ending with NULL. */
extern const struct command *const all_commands[];
const struct command *command_find(const char *name);

/* "salvo: ..." on standard error, one line. Both return their exit status. */
int usage_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
int failure(const char *format, ...) __attribute__((format(printf, 1, 2)));
int library_failure(void); /* with salvo_error() */

/* Of a list of names, the one a mistyped word most likely meant; NULL when none is near. */
const char *nearest_name(const char *word, const char *const *names, size_t count);

/* A table row that every command with a model has. */
#define MODEL_OPTION(target)                                                                                \
    {                                                                                                       \
        'm', "model", "FILE", OPTION_FILE, target,                                                          \
            "model file, or the name of one that `salvo list` shows (default: $SALVO_MODEL or the default " \
            "model)"                                                                                        \
    }

#endif
