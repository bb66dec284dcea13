#include "command.h"

#include <salvo/salvo.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct option help_option = {'h', "help", NULL, OPTION_FLAG, NULL, "show this help"};

static int complain(int exit_status, const char *format, va_list arguments)
{
    /* Names of files and options may hold anything; a message stays one line that drives no terminal. */
    char line[4096];
    vsnprintf(line, sizeof line, format, arguments);
    for (char *at = line; *at; at++) {
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            *at = '?';
    }
    fflush(stdout);
    fprintf(stderr, "salvo: %s\n", line);
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

/* Edits (insert, delete, replace, swap neighbours) between two short words. */
static size_t edit_distance(const char *a, const char *b)
{
    enum { LONGEST = 40 };
    size_t a_size = strlen(a), b_size = strlen(b);
    if (a_size > LONGEST || b_size > LONGEST)
        return LONGEST;
    size_t rows[3][LONGEST + 1]; /* of the first i letters of a, in turns */
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
    size_t best_distance = strlen(word) < 4 ? 2 : 3;
    for (size_t i = 0; i < count; i++) {
        bool begins_with = strlen(word) >= 3 && strncmp(names[i], word, strlen(word)) == 0;
        size_t distance = begins_with ? 1 : edit_distance(word, names[i]);
        if (distance < best_distance) {
            best = names[i];
            best_distance = distance;
        }
    }
    return best;
}

const struct option *command_option(const struct command *command, size_t index)
{
    const struct option *table = command->options;
    for (size_t next_table = 0; table; table = command->shared[next_table++]) {
        size_t length = 0;
        while (table[length].name)
            length++;
        if (index < length)
            return &table[index];
        index -= length;
    }
    return NULL;
}

/* Options that people know from elsewhere, and what does the same here. */
static const struct {
    const char *option, *here;
} habits[] = {
    {"-i", "`salvo chat` holds a conversation"},
    {"-cnv", "`salvo chat` holds a conversation"},
    {"--interactive", "`salvo chat` holds a conversation"},
    {"--conversation", "`salvo chat` holds a conversation"},
    {"-sys", "--system is meant"},
    {"--system-prompt", "--system is meant"},
    {"--temperature", "--temp is meant"},
    {"--n-predict", "-n is meant"},
    {"--ctx-size", "-c is meant"},
};

static const char *habit(const char *option)
{
    for (size_t i = 0; i < sizeof habits / sizeof *habits; i++) {
        if (strcmp(habits[i].option, option) == 0)
            return habits[i].here;
    }
    return NULL;
}

static int unknown_option(const struct command *command, const char *given, size_t length)
{
    enum { MOST = 64 };
    const char *names[MOST];
    size_t count = 0;
    const struct option *listed;
    while (count < MOST && (listed = command_option(command, count)))
        names[count++] = listed->name;
    char word[64];
    snprintf(word, sizeof word, "%.*s", (int)length, given);
    const char *skipped = word;
    while (*skipped == '-')
        skipped++;
    const char *nearest = nearest_name(skipped, names, count);
    if (nearest)
        return usage_error("%s: unknown option '%s'; did you mean --%s?", command->name, word, nearest);
    return usage_error(
        "%s: unknown option '%s'; `salvo help %s` lists them", command->name, word, command->name);
}

static const struct option *find_option(
    const struct command *command, char letter, const char *name, size_t length)
{
    const struct option *option;
    for (size_t i = 0; (option = command_option(command, i)); i++) {
        bool matches = letter ? option->letter == letter
                              : strlen(option->name) == length && memcmp(option->name, name, length) == 0;
        if (matches)
            return option;
    }
    bool is_help = letter ? letter == 'h' : length == 4 && memcmp(name, "help", 4) == 0;
    return is_help ? &help_option : NULL;
}

struct parser {
    const struct command *command;
    char **arguments;
    int count, next;
    bool help;
};

static int take_option(
    struct parser *parser, const struct option *option, const char *shown, const char *inline_value)
{
    if (option == &help_option) {
        parser->help = true;
        return EXIT_DONE;
    }
    if (!option->value) {
        if (inline_value)
            return usage_error("%s: %s takes no value", parser->command->name, shown);
        *(bool *)option->target = true;
        return EXIT_DONE;
    }
    if (!inline_value) {
        if (parser->next == parser->count)
            return usage_error("%s: %s needs a value: %s", parser->command->name, shown, option->value);
        inline_value = parser->arguments[parser->next++];
    }
    return option_store(parser->command->name, option, shown, inline_value);
}

static int parse_long(struct parser *parser, char *argument)
{
    const char *name = argument + 2;
    const char *equals = strchr(name, '=');
    size_t length = equals ? (size_t)(equals - name) : strlen(name);
    const struct option *option = find_option(parser->command, 0, name, length);
    if (!option)
        return unknown_option(parser->command, argument, length + 2);
    char shown[64];
    snprintf(shown, sizeof shown, "--%s", option->name);
    return take_option(parser, option, shown, equals ? equals + 1 : NULL);
}

/* -m FILE, -mFILE, and flags written together: -qv. */
static int parse_letters(struct parser *parser, char *argument)
{
    for (const char *letter = argument + 1; *letter; letter++) {
        const struct option *option = find_option(parser->command, *letter, "", 0);
        if (!option)
            return unknown_option(parser->command, argument, strlen(argument));
        char shown[] = {'-', *letter, 0};
        bool takes_value = option->value != NULL;
        int result = take_option(parser, option, shown, takes_value && letter[1] ? letter + 1 : NULL);
        if (result != EXIT_DONE || takes_value)
            return result;
    }
    return EXIT_DONE;
}

int command_parse(const struct command *command, int *count, char **arguments, bool *help)
{
    struct parser parser = {.command = command, .arguments = arguments, .count = *count};
    int kept = 0;
    bool options_end = false;
    while (parser.next < parser.count) {
        char *argument = arguments[parser.next++];
        int result = EXIT_DONE;
        if (options_end || argument[0] != '-' || argument[1] == 0)
            arguments[kept++] = argument;
        else if (strcmp(argument, "--") == 0)
            options_end = true;
        else if (habit(argument))
            result = usage_error("%s: there is no %s here: %s", command->name, argument, habit(argument));
        else if (argument[1] == '-')
            result = parse_long(&parser, argument);
        else
            result = parse_letters(&parser, argument);
        if (result != EXIT_DONE)
            return result;
    }
    *count = kept;
    *help = parser.help;
    if (kept && !command->arguments && !parser.help && find_option(command, 'm', "", 0)) {
        return usage_error("%s: what is '%s'? A model is named by -m, and `salvo help %s` lists all options",
            command->name, arguments[0], command->name);
    }
    if (kept && !command->arguments && !parser.help)
        return usage_error("%s: what is '%s'? It takes options only; `salvo help %s` lists them",
            command->name, arguments[0], command->name);
    return EXIT_DONE;
}

static void print_option(const struct option *option)
{
    char left[48];
    snprintf(left, sizeof left, "%c%c%s --%s%s%s", option->letter ? '-' : ' ',
        option->letter ? option->letter : ' ', option->letter ? "," : " ", option->name,
        option->value ? " " : "", option->value ? option->value : "");
    printf("  %-26s  %s\n", left, option->help);
}

void command_print_help(const struct command *command)
{
    printf("salvo %s: %s\n\n", command->name, command->summary);
    printf("usage: salvo %s [options]%s%s\n\n", command->name, command->arguments ? " " : "",
        command->arguments ? command->arguments : "");
    const struct option *option;
    for (size_t i = 0; (option = command_option(command, i)); i++)
        print_option(option);
    print_option(&help_option);
    if (command->details)
        printf("\n%s\n", command->details);
}
