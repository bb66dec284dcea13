#include "command.h"
#include "terminal.h"

#include <salvo/salvo.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct command *const *all_commands;

const struct option help_option = {'h', "help", NULL, OPTION_FLAG, NULL, "show this help"};

bool pull_wanted;

/* Options of all commands with a model. */
static const struct option source_table[] = {
    {0, "pull", NULL, OPTION_FLAG, &pull_wanted, "download the model without a question if it is not there"},
    {0, "hf-repo", "REPO", OPTION_HUB, NULL, "the same as -m hf:REPO", .also = "-hf -hfr"},
    {0},
};

static int complain(int exit_status, const char *format, va_list arguments)
{
    /* Names of files and options may contain control characters; print_safely replaces them. */
    char line[4096];
    vsnprintf(line, sizeof line, format, arguments);
    fflush(stdout);
    fputs("salvo: ", stderr);
    print_safely(stderr, line, strlen(line));
    fputc('\n', stderr);
    return exit_status;
}

int usage_error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    complain(EXIT_USAGE, format, arguments);
    va_end(arguments);
    return EXIT_USAGE;
}

int failure(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    complain(EXIT_FAILED, format, arguments);
    va_end(arguments);
    return EXIT_FAILED;
}

int library_failure(void)
{
    return failure("%s", salvo_error());
}

int library_failure_by(enum salvo_status status)
{
    return status == SALVO_ERROR_ARGUMENT ? usage_error("%s", salvo_error()) : library_failure();
}

/* Edits (insert, delete, replace, swap neighbours) between two short words. */
static size_t edit_distance(const char *a, const char *b)
{
    enum { LONGEST = 40 };
    size_t a_size = strlen(a), b_size = strlen(b);
    if (a_size > LONGEST || b_size > LONGEST)
        return LONGEST;
    size_t rows[3][LONGEST + 1]; /* rows of the first i letters of a; three are used in rotation */
    for (size_t j = 0; j <= b_size; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= a_size; i++) {
        size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= b_size; j++) {
            size_t replaced = above[j - 1] + (a[i - 1] != b[j - 1]);
            size_t shorter = (above[j] < row[j - 1] ? above[j] : row[j - 1]) + 1;
            row[j] = replaced < shorter ? replaced : shorter;
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && before[j - 2] + 1 < row[j])
                row[j] = before[j - 2] + 1;
        }
    }
    return rows[a_size % 3][b_size];
}

const char *nearest_name(const char *word, const char *const *names, size_t count)
{
    const char *best = NULL;
    const size_t length = strlen(word);
    size_t best_distance = length < 3 ? 1 : length < 6 ? 2 : 3; /* less than this */
    for (size_t i = 0; i < count; i++) {
        size_t distance = edit_distance(word, names[i]);
        if (distance < best_distance) {
            best = names[i];
            best_distance = distance;
        }
    }
    return best;
}

bool is_listed(const char *list, const char *word, size_t length)
{
    while (list && *list) {
        size_t size = strcspn(list, " ");
        if (size == length && memcmp(list, word, length) == 0)
            return true;
        list += size + (list[size] == ' ');
    }
    return false;
}

const struct option *command_option(const struct command *command, size_t index)
{
    const struct option *table = command->options;
    bool has_model = false;
    for (size_t next_table = 0; table; table = command->shared[next_table++]) {
        size_t length = 0;
        for (; table[length].name; length++)
            has_model |= strcmp(table[length].name, "model") == 0;
        if (index < length)
            return &table[index];
        index -= length;
    }
    const size_t sources = sizeof source_table / sizeof *source_table - 1;
    return has_model && index < sources ? &source_table[index] : NULL;
}

static void print_option(const struct option *option)
{
    char left[48];
    snprintf(left, sizeof left, "%c%c%s --%s%s%s", option->letter ? '-' : ' ',
        option->letter ? option->letter : ' ', option->letter ? "," : " ", option->name,
        option->value ? " " : "", option->value ? option->value : "");
    printf("  %-26s  %s", left, option->help);
    printf(option->also ? " (also: %s)\n" : "\n", option->also);
}

void command_print_help(const struct command *command)
{
    printf("salvo %s: %s\n\n", command->name, command->summary);
    printf("usage: salvo %s [options]%s%s%s\n\n", command->name, command->model ? " [MODEL]" : "",
        command->arguments ? " " : "", command->arguments ? command->arguments : "");
    const struct option *option;
    for (size_t i = 0; (option = command_option(command, i)); i++)
        print_option(option);
    print_option(&help_option);
    if (command->details)
        printf("\n%s\n", command->details);
}
