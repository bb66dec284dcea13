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
    OPTION_FLOAT,    /* float; NAN if not given, where the caller set it so; also the next three */
    OPTION_POSITIVE, /* float, not negative */
    OPTION_SHARE,    /* float, 0 to 1 */
    OPTION_FACTOR,   /* float, 1e-6 to 1e6, as the library takes a repeat penalty */
    OPTION_HUB,      /* sets the option --model to hf: and the value; no target */
    OPTION_ALWAYS,   /* names the only behaviour, for compatibility; no target; `choices`: accepted values */
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
    const char *value; /* name of the value in the help; NULL for flags */
    enum option_kind kind;
    void *target;
    const char *help;
    const char *also;          /* other names (llama.cpp's), with dashes, separated by spaces; or NULL */
    const char *choices;       /* values for shell completion, separated by spaces; or NULL */
    const uint32_t *minus_one; /* OPTION_NUMBER, OPTION_COUNT: the value that -1 means; NULL: -1 is invalid */
};

struct command {
    const char *name;
    const char **model;    /* set by a model without -m; NULL: the command needs -m */
    const char *arguments; /* other arguments in the usage line, "[IDS...]"; or NULL */
    const char *summary;   /* one line, no full stop */
    const char *details;   /* more lines for its help, or NULL */
    const struct option *options;
    const struct option *shared[6];          /* tables that several commands have, shown after its own; the
                                              * last is NULL */
    int (*run)(int count, char **arguments); /* the arguments that are not options */
};

/* Removes the options from `arguments` and stores their values. EXIT_DONE, or EXIT_USAGE after an error
 * message. --help sets *help. */
int command_parse(const struct command *command, int *count, char **arguments, bool *help);
void command_print_help(const struct command *command);

extern const struct option help_option; /* --help */

extern bool pull_wanted; /* --pull, which each command with a model has */

/* Whether `given`, with its dashes, is one of the option's names. */
bool option_is_called(const struct option *option, const char *given, size_t length);

/* Copies an option's name with dashes in place of underscores: --n_predict is --n-predict. A name of 64 bytes
 * or more is cut; no option has such a name. */
void dash_name(const char *given, char out[64]);

/* Advice for an option of llama.cpp that salvo does not have; NULL for any other. */
const char *foreign_flag(const char *flag, size_t length);

/* The option at `index`, own options first, then shared ones, then the options of all commands with a model;
 * NULL after the last. */
const struct option *command_option(const struct command *command, size_t index);

/* All commands, ending with NULL; main sets it. */
extern const struct command *const *all_commands;
const struct command *command_find(const char *name);

/* Print one line, "salvo: ...", to standard error and return the exit status. */
int usage_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
int failure(const char *format, ...) __attribute__((format(printf, 1, 2)));
int library_failure(void);                        /* with salvo_error() */
int library_failure_by(enum salvo_status status); /* a usage error for SALVO_ERROR_ARGUMENT */

/* The name that is closest to a mistyped word; NULL when none is close. */
const char *nearest_name(const char *word, const char *const *names, size_t count);

/* Whether `word` is in a list of words separated by spaces. */
bool is_listed(const char *list, const char *word, size_t length);

/* Parses `text`, NULL for an option without a value, and stores it in the option's target. EXIT_DONE, or
 * EXIT_USAGE after an error message. `shown` is the option as the user wrote it. */
int option_store(const char *command, const struct option *option, const char *shown, const char *text);

/* A table row that every command with a model has. */
#define MODEL_OPTION(target)                                                                               \
    {                                                                                                      \
        'm', "model", "FILE", OPTION_FILE, target,                                                         \
            "model file, a name from `salvo list`, or hf:ORG/REPO[:QUANT] (default: $SALVO_MODEL, or the " \
            "default model)"                                                                               \
    }

#endif
