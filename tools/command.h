/*
 * A command is a table: its options drive parsing, help and shell completions. Each command's file defines
 * one `struct command`; main.c lists them.
 */
#ifndef TOOLS_COMMAND_H
#define TOOLS_COMMAND_H

#include <salvo/salvo.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum exit_status { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

enum option_kind {
    OPTION_FLAG,     /* bool: true when given */
    OPTION_TEXT,     /* const char * */
    OPTION_FILE,     /* const char *, completed as a file name */
    OPTION_TEXTS,    /* struct text_list: may be given several times */
    OPTION_NUMBER,   /* uint32_t */
    OPTION_MAYBE,    /* struct optional_number */
    OPTION_COUNT,    /* uint32_t, at least 1 */
    OPTION_COUNTS,   /* struct count_list: "64,512" */
    OPTION_SEED,     /* struct optional_seed */
    OPTION_FLOAT,    /* float; preset it to NAN to see whether it was given, also for the next two */
    OPTION_POSITIVE, /* float, not negative */
    OPTION_SHARE,    /* float, 0 to 1 */
    OPTION_ALWAYS,   /* says what is so anyway, without a target; `choices` are the values it may have */
};

struct text_list {
    const char *items[64];
    size_t count;
};

struct count_list {
    uint32_t items[32];
    size_t count;
};

struct optional_number {
    bool given;
    uint32_t value;
};

struct optional_seed {
    bool given;
    uint64_t value;
};

struct option {
    char letter;       /* 0: none */
    const char *name;  /* without dashes; NULL ends the table */
    const char *value; /* what help calls its value; NULL for flags */
    enum option_kind kind;
    void *target;
    const char *help;
    const char *also;    /* its names in llama.cpp, with their dashes and blanks between them; or NULL */
    const char *choices; /* the values that completions offer, with blanks between them; or NULL */
    const uint32_t *minus_one; /* of OPTION_NUMBER and OPTION_COUNT: what -1 stands for; NULL: nothing */
};

struct command {
    const char *name;
    const char **model;    /* where a model goes that is named without -m; NULL: it needs -m */
    const char *arguments; /* what else follows in the usage line, "[IDS...]"; NULL when there is nothing */
    const char *summary;   /* one line, no full stop */
    const char *details;   /* more lines for its help, or NULL */
    const struct option *options;
    const struct option *shared[5];          /* tables that several commands have, shown after its own; the
                                              * last is NULL */
    int (*run)(int count, char **arguments); /* what is left after the options */
};

/* Parses the options out of `arguments`. EXIT_DONE, or EXIT_USAGE after saying why. --help sets *help. */
int command_parse(const struct command *command, int *count, char **arguments, bool *help);
void command_print_help(const struct command *command);

extern const struct option help_option; /* that every command has */

/* Whether `given`, with its dashes, is one of the option's names. */
bool option_is_called(const struct option *option, const char *given, size_t length);

/* Advice for a flag that llama.cpp has and no command here; NULL when there is no such flag. */
const char *foreign_flag(const char *flag, size_t length);

/* Its options one by one, its own and the shared ones; NULL after the last. */
const struct option *command_option(const struct command *command, size_t index);

/* All commands, ending with NULL. */
extern const struct command *const all_commands[];
const struct command *command_find(const char *name);

/* "salvo: ..." on standard error, one line. Both return their exit status. */
int usage_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
int failure(const char *format, ...) __attribute__((format(printf, 1, 2)));
int library_failure(void);                        /* with salvo_error() */
int library_failure_by(enum salvo_status status); /* a usage error where an argument was wrong */

/* Of a list of names, the one a mistyped word most likely meant; NULL when none is near. */
const char *nearest_name(const char *word, const char *const *names, size_t count);

/* Whether a list with blanks between its words has the word. */
bool is_listed(const char *list, const char *word, size_t length);

/* Puts `text`, NULL for an option without a value, into the option's target: EXIT_DONE, or EXIT_USAGE after
 * saying what is wrong with it. `shown` is how the option was written. */
int option_store(const char *command, const struct option *option, const char *shown, const char *text);

/* A table row that every command with a model has. */
#define MODEL_OPTION(target)                                                                        \
    {                                                                                               \
        'm', "model", "FILE", OPTION_FILE, target,                                                  \
            "model file, or a name from `salvo list` (default: $SALVO_MODEL, or the default model)" \
    }

#endif
