/* Parses the options of a command. */
#include "command.h"
#include "hub.h"

#include <salvo/salvo.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Options of llama.cpp that salvo does not have, and the advice for each. The options of a command are looked
 * up first. */
static const struct {
    const char *flags, *here;
} foreign_flags[] = {
    {"-i --interactive -cnv --conversation", "use `salvo chat`"},
    {"-no-cnv --no-conversation", "`salvo run` continues a prompt"},
    {"-st --single-turn", "`salvo run --chat` answers one message"},
    {"-hff --hf-file", "use -m hf:ORG/REPO/FILE.gguf"},
    {"-hft --hf-token", "set the environment variable HF_TOKEN"},
    {"-mu --model-url", "use `salvo pull URL`"},
    {"-md --model-draft -hfd --hf-repo-draft -ps --draft-p-split", "salvo has no speculative decoding"},
    {"-ts --tensor-split -rpc --rpc", "a model runs on one device; choose it with --device"},
    {"-tb --threads-batch", "-t sets the threads for prompts as well"},
    {"-ub --ubatch-size", "-b sets the tokens of a prompt that are computed at once"},
    {"-dev", "choose the device with --backend and --device"},
    {"-fit --fit -fitc --fit-ctx -fitt --fit-target -fitp --fit-print",
        "a model that does not fit the memory of a device is refused"},
    {"-rtr --run-time-repack", "weights are always repacked where it is faster"},
    {"-cmoe --cpu-moe -ncmoe --n-cpu-moe", "salvo runs no mixture-of-experts models"},
    {"-mli --multiline-input", "`salvo chat` takes several lines between two lines of \"\"\""},
    {"-sysf --system-prompt-file -sys --system-prompt", "use `salvo chat --system TEXT`"},
    {"-np --parallel", "a command runs one sequence"},
    {"--grammar --grammar-file -j --json-schema -jf --json-schema-file",
        "`salvo run` has --grammar, --regex and --json-schema"},
    {"--lora --lora-scaled", "salvo has no adapters"},
    {"--mmproj -mm --mmproj-url -mmu -mv --model-vocoder -hfv --hf-repo-v", "salvo runs text models only"},
    {"-nkvo --no-kv-offload",
        "the KV cache is on the device of the model; --backend cpu keeps both in main memory"},
    {"-ptc --print-token-count", "`salvo run --stats` prints the number of tokens"},
    {"-embd --embeddings", "`salvo embed` computes embeddings"},
    {"-pps", "`salvo bench --sessions 1,8` measures many sequences"},
    {"-pg", "use -p for prompts, -n for generation and -d for the depth of the context"},
    {"--prompt-cache", "use `salvo run` with --state-save FILE and --state-load FILE"},
    {"--keep", "a full context ends the text; `salvo chat --on-full slide` drops the oldest turns"},
    {"--list-devices", "use `salvo devices`"},
    {"--chat-template --chat-template-file",
        "the chat template is the model's; `salvo template --template FILE` renders another one"},
    {"--no-warmup", "each test is warmed up before it is measured"},
    {"--no-mmap -nommp -mmp --mmap",
        "a model file is always mapped; its weights are copied once when the model is loaded"},
    {"--mlock", "salvo does not lock memory"},
    {"--color -co --colors", "a terminal gets colours, a pipe or file does not; the environment variable "
                             "NO_COLOR=1 disables them"},
};

const char *foreign_flag(const char *flag, size_t length)
{
    for (size_t i = 0; i < sizeof foreign_flags / sizeof *foreign_flags; i++) {
        if (is_listed(foreign_flags[i].flags, flag, length))
            return foreign_flags[i].here;
    }
    return NULL;
}

static int unknown_option(const struct command *command, const char *given)
{
    enum { MOST = 64 };
    const char *names[MOST], *here = foreign_flag(given, strlen(given));
    if (here)
        return usage_error("%s: %s is not supported: %s", command->name, given, here);
    size_t count = 0;
    const struct option *listed;
    while (count < MOST && (listed = command_option(command, count)))
        names[count++] = listed->name;
    const char *nearest = nearest_name(given + strspn(given, "-"), names, count);
    if (nearest)
        return usage_error("%s: unknown option '%s'; did you mean --%s?", command->name, given, nearest);
    return usage_error(
        "%s: unknown option '%s'; `salvo help %s` lists the options", command->name, given, command->name);
}

bool option_is_called(const struct option *option, const char *given, size_t length)
{
    const bool is_long = length > 2 && given[0] == '-' && given[1] == '-';
    if (is_long && strlen(option->name) == length - 2 && memcmp(option->name, given + 2, length - 2) == 0)
        return true;
    if (length == 2 && given[0] == '-' && option->letter && option->letter == given[1])
        return true;
    return is_listed(option->also, given, length);
}

/* Whether `flag` is a name of an option of some command, and so not a letter with a value attached. */
static bool is_known_elsewhere(const char *flag, size_t length)
{
    for (size_t i = 0; all_commands[i]; i++) {
        const struct option *option;
        for (size_t j = 0; (option = command_option(all_commands[i], j)); j++) {
            if (length > 2 && option_is_called(option, flag, length))
                return true;
        }
    }
    return false;
}

/* The option with this name, dashes included. */
static const struct option *find_option(const struct command *command, const char *given, size_t length)
{
    const struct option *option;
    for (size_t i = 0; (option = command_option(command, i)); i++) {
        if (option_is_called(option, given, length))
            return option;
    }
    return option_is_called(&help_option, given, length) ? &help_option : NULL;
}

struct parser {
    const struct command *command;
    char **arguments;
    int count, next;
    bool help;
};

/* Takes the next argument if it is a value for an option whose value is optional. As in llama.cpp, 0 and 1
 * are such values, never a prompt. */
static const char *take_optional_value(struct parser *parser)
{
    const char *next = parser->next < parser->count ? parser->arguments[parser->next] : "";
    if (!is_listed("on off auto 0 1", next, strlen(next)))
        return NULL;
    parser->next++;
    return next;
}

/* -hf REPO is -m hf:REPO. */
static int store_hub_model(const struct parser *parser, const char *shown, const char *repository)
{
    const struct option *model = find_option(parser->command, "--model", 7);
    const size_t size = strlen(repository) + 4;
    char *text = malloc(size);
    if (!text)
        return failure("out of memory");
    snprintf(text, size, "hf:%s", repository);
    struct hub_reference reference;
    const int result = hub_parse(text, &reference);
    if (result != EXIT_DONE) {
        free(text);
        return result;
    }
    // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the option has it until the program ends
    return option_store(parser->command->name, model, shown, text);
}

static int take_option(
    struct parser *parser, const struct option *option, const char *shown, const char *value)
{
    const bool may_have_value = option->value || (option->kind == OPTION_ALWAYS && option->choices);
    if (may_have_value && !option->value && !value)
        value = take_optional_value(parser);
    if (value && !may_have_value)
        return usage_error("%s: %s takes no value", parser->command->name, shown);
    if (option->value && !value) {
        if (parser->next == parser->count)
            return usage_error("%s: %s needs a value: %s", parser->command->name, shown, option->value);
        value = parser->arguments[parser->next++];
    }
    if (option == &help_option) {
        parser->help = true;
        return EXIT_DONE;
    }
    if (option->kind == OPTION_HUB && value)
        return store_hub_model(parser, shown, value);
    return option_store(parser->command->name, option, shown, value);
}

/* Whether the text behind a letter can be its value: -n5, but not -nocb, which is a name. */
static bool can_be_attached(const struct option *option, const char *text)
{
    return option->kind == OPTION_TEXT || option->kind == OPTION_FILE || option->kind == OPTION_TEXTS ||
           option->kind == OPTION_HUB || strchr("+-.0123456789", *text);
}

/* The length of a name such as -fa at the beginning of an argument, with a value behind it that is not a
 * text; 0: there is none. -fa1 is not a file "a1". */
static size_t name_with_value(const struct command *command, const char *argument)
{
    for (size_t length = strlen(argument) - 1; length > 2; length--) {
        const char *value = argument + length;
        const size_t size = strlen(value);
        const bool is_value =
            strspn(value, "+-.,0123456789") == size || is_listed("on off auto none", value, size);
        if (is_value && (find_option(command, argument, length) || foreign_flag(argument, length) ||
                            is_known_elsewhere(argument, length)))
            return length;
    }
    return 0;
}

/* A letter with its value attached, -mFILE, or several flags, -qv. */
static int parse_letters(struct parser *parser, const char *argument)
{
    for (const char *letter = argument + 1; *letter; letter++) {
        const char shown[] = {'-', *letter, 0};
        const struct option *option = find_option(parser->command, shown, 2);
        if (!option || (option->value && !can_be_attached(option, letter + 1)) ||
            (option == &help_option && argument[2])) /* -hfORG/REPO asks for no help */
            return unknown_option(parser->command, argument);
        bool takes_value = option->value != NULL;
        int result = take_option(parser, option, shown, takes_value && letter[1] ? letter + 1 : NULL);
        if (result != EXIT_DONE || takes_value)
            return result;
    }
    return EXIT_DONE;
}

void dash_name(const char *given, char out[64])
{
    snprintf(out, 64, "%s", given);
    for (char *at = out; (at = strchr(at, '_'));)
        *at = '-';
}

static int parse_option(struct parser *parser, const char *argument)
{
    const char *equals = strchr(argument, '=');
    const size_t length = equals ? (size_t)(equals - argument) : strlen(argument);
    char shown[64], name[64];
    snprintf(shown, sizeof shown, "%.*s", (int)length, argument);
    dash_name(shown, name);
    const struct option *option = find_option(parser->command, name, strlen(name));
    if (option && !(equals && length == 2)) /* -p=x is the letter with the value "=x" */
        return take_option(parser, option, shown, equals ? equals + 1 : NULL);
    if (argument[1] == '-' || foreign_flag(name, strlen(name)) || is_known_elsewhere(name, strlen(name)))
        return unknown_option(parser->command, name);
    char doubled[sizeof name + 1]; /* -model is not a file "odel" */
    snprintf(doubled, sizeof doubled, "-%s", name);
    const size_t doubled_length = strlen(doubled);
    if (foreign_flag(doubled, doubled_length))
        return unknown_option(parser->command, doubled);
    if (doubled_length > 3 && is_known_elsewhere(doubled, doubled_length))
        return unknown_option(parser->command, name);
    const size_t name_length = name_with_value(parser->command, argument);
    if (name_length)
        return usage_error("%s: unknown option '%s'; write a blank: %.*s %s", parser->command->name, argument,
            (int)name_length, argument, argument + name_length);
    return parse_letters(parser, argument);
}

/* The first argument may be the model. */
static int take_model(const struct command *command, int *count, char **arguments)
{
    if (*count == 0 || !command->model || *command->model)
        return EXIT_DONE;
    if (!*arguments[0])
        return usage_error("%s: the model name is empty", command->name);
    *command->model = arguments[0];
    memmove(arguments, arguments + 1, (size_t)-- * count * sizeof *arguments);
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
        else
            result = parse_option(&parser, argument);
        if (result != EXIT_DONE)
            return result;
    }
    *count = kept;
    *help = parser.help;
    if (parser.help)
        return EXIT_DONE;
    int result = take_model(command, count, arguments);
    if (result != EXIT_DONE || *count == 0 || command->arguments)
        return result;
    const char *hint = command->model ? "the model was given already, with -m or as the first argument"
                       : find_option(command, "-p", 2) ? "give the text with -p and the model with -m"
                       : find_option(command, "-f", 2) ? "give the file with -f and the model with -m"
                       : find_option(command, "-m", 2) ? "give the model with -m"
                                                       : "this command takes no arguments";
    return usage_error("%s: unexpected argument '%s': %s; `salvo help %s` lists all options", command->name,
        arguments[0], hint, command->name);
}
