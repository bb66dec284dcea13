/* The commands of a conversation: /help, /save, ... */
#include "chat.h"

#include "command.h"
#include "output_file.h"
#include "sampler_flags.h"
#include "terminal.h"
#include "word_wrap.h"

#include <float.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct chat_command {
    const char *name, *argument; /* argument: NULL when it takes none */
    const char *help;
    int (*run)(struct chat *chat, const char *argument); /* "" when none was given */
    bool needs_argument;
};

static int show_help(struct chat *chat, const char *argument);

static int forget(struct chat *chat, const char *argument)
{
    (void)argument;
    salvo_chat_cut(chat->conversation, chat_system(chat) ? 1 : 0);
    chat_notice(chat, "new conversation");
    return EXIT_DONE;
}

static int set_system(struct chat *chat, const char *argument)
{
    const struct salvo_message *system = chat_system(chat);
    if (!*argument) {
        if (system) {
            fputs("  ", stderr);
            print_safely(stderr, system->content.data, system->content.size);
            fputc('\n', stderr);
        } else {
            chat_notice(chat, "no system message");
        }
        return EXIT_DONE;
    }
    const char *text = strcmp(argument, "\"\"") == 0 ? "" : argument;
    if (salvo_chat_set_system(chat->conversation, text, strlen(text)) != SALVO_OK)
        return library_failure();
    int result = tool_use_describe(&chat->tools, chat->conversation);
    if (result != EXIT_DONE)
        return result;
    chat_notice(
        chat, *text ? "the system message is used from the next answer on" : "system message removed");
    return EXIT_DONE;
}

/* Expands ~/, as a shell would. EXIT_DONE, or an exit status after an error message. */
static int resolve(const char *name, char path[PATH_MAX])
{
    const char *home = getenv("HOME");
    bool in_home = name[0] == '~' && name[1] == '/' && home;
    int length = snprintf(path, PATH_MAX, "%s%s", in_home ? home : "", name + in_home);
    return length < PATH_MAX ? EXIT_DONE : usage_error("the file name is too long");
}

static int save_to(struct chat *chat, const char *name, bool force)
{
    char path[PATH_MAX];
    if (resolve(name, path) != EXIT_DONE)
        return EXIT_USAGE;
    int result = chat_save(chat, path, force);
    if (result == EXIT_DONE)
        chat_notice(chat, "%zu messages in %s", salvo_chat_messages(chat->conversation).count, path);
    return result;
}

static int save(struct chat *chat, const char *name)
{
    return save_to(chat, name, false);
}

static int save_anyway(struct chat *chat, const char *name)
{
    return save_to(chat, name, true);
}

static int load_conversation(struct chat *chat, const char *name)
{
    char path[PATH_MAX];
    if (resolve(name, path) != EXIT_DONE)
        return EXIT_USAGE;
    if (salvo_chat_load_file(chat->conversation, chat->loaded.session, path) != SALVO_OK)
        return library_failure();
    output_file_own(path);
    chat_notice(chat, "%zu messages, %" PRIu32 " tokens restored",
        salvo_chat_messages(chat->conversation).count, salvo_session_position(chat->loaded.session));
    return tool_use_describe(&chat->tools, chat->conversation);
}

static int answer_again(struct chat *chat, const char *argument)
{
    (void)argument;
    return chat_answer_again(chat);
}

static int undo(struct chat *chat, const char *argument)
{
    (void)argument;
    return chat_undo(chat);
}

static int show_tools(struct chat *chat, const char *argument)
{
    (void)argument;
    if (chat->tools.form)
        return tool_use_print(&chat->tools);
    chat_notice(chat, "no tools; --tools FILE gives some");
    return EXIT_DONE;
}

static int show_statistics(struct chat *chat, const char *argument)
{
    (void)argument;
    chat_print_totals(chat);
    return EXIT_DONE;
}

static void print_settings(const struct salvo_sampler *sampler)
{
    const double top_p = sampler->top_p > FLT_MIN ? (double)sampler->top_p : 0; /* FLT_MIN: was set to 0 */
    fprintf(stderr,
        "  temp %g, top-k %" PRIu32 ", top-p %g, min-p %g\n"
        "  repeat-penalty %g, presence-penalty %g, frequency-penalty %g, repeat-last-n %" PRIu32 "\n"
        "  seed %" PRIu64 "; logit-bias ID=X adds to one token\n",
        (double)sampler->temperature, sampler->top_k, top_p, (double)sampler->min_p,
        (double)sampler->repeat_penalty, (double)sampler->presence_penalty,
        (double)sampler->frequency_penalty, sampler->repeat_last_n, sampler->seed);
}

/* "temp 0.5"; "temp=0.5" and "--temp 0.5" are understood as well. */
static int set(struct chat *chat, const char *argument)
{
    if (!*argument) {
        print_settings(&chat->sampler);
        return EXIT_DONE;
    }
    char name[32];
    argument += strspn(argument, "-");
    const size_t length = strcspn(argument, " \t=");
    snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1), argument);
    const char *value = argument + length + (argument[length] != 0);
    value += strspn(value, " \t");
    if (!*value)
        return usage_error("/set: %s needs a value", name);
    return sampler_flag_set(chat->loaded.model, chat->loaded.session, name, value, &chat->sampler);
}

static int leave(struct chat *chat, const char *argument)
{
    (void)argument;
    chat->leaving = true;
    return EXIT_DONE;
}

static const struct chat_command commands[] = {
    {"help", NULL, "this list", show_help},
    {"clear", NULL, "start a new conversation; keeps the system message", forget},
    {"system", "TEXT", "set the system message; without TEXT: show it; \"\": remove it", set_system},
    {"save", "FILE", "save the conversation and its KV cache or recurrent state", save, true},
    {"save!", "FILE", "as /save, and replace an existing file", save_anyway, true},
    {"load", "FILE", "load a saved conversation and continue it", load_conversation, true},
    {"regen", NULL, "generate the last answer again", answer_again},
    {"undo", NULL, "remove the last message and its answer", undo},
    {"tools", NULL, "list the tools that answers may call", show_tools},
    {"stats", NULL, "show tokens computed and reused, speed and memory", show_statistics},
    {"set", "NAME VALUE", "set temp, top-k, top-p, min-p, seed, ...; without NAME: show all", set},
    {"quit", NULL, "quit, as Ctrl-D does", leave},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static int show_help(struct chat *chat, const char *argument)
{
    enum { NAMES = 20, NARROW = 60 }; /* columns of the names; below this width they get lines of their own */
    static const char *const notes[] = {
        "A \\ at the end of a line continues the message on the next line, as does Alt-Enter.",
        "Put \"\"\" before and after a message of several lines.",
        "Write // for a message that begins with a slash.",
        "Ctrl-C stops an answer or clears the line.",
    };
    const unsigned width = terminal_width(), indent = width && width < NARROW ? 4 : NAMES;
    (void)chat;
    (void)argument;
    for (size_t i = 0; i < COMMANDS; i++) {
        char left[32];
        snprintf(left, sizeof left, "/%s%s%s", commands[i].name, commands[i].argument ? " " : "",
            commands[i].argument ? commands[i].argument : "");
        fprintf(stderr, "  %s%-*s%s", colour(stderr, COLOUR_BOLD), indent == NAMES ? NAMES - 2 : 0, left,
            colour(stderr, COLOUR_OFF));
        if (indent != NAMES)
            fprintf(stderr, "\n%*s", (int)indent, "");
        print_wrapped(width, indent, indent, commands[i].help, stderr);
    }
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++) {
        fputs("  ", stderr);
        print_wrapped(width, 2, 2, notes[i], stderr);
    }
    return EXIT_DONE;
}

static int unknown_command(const char *name)
{
    const char *names[COMMANDS];
    for (size_t i = 0; i < COMMANDS; i++)
        names[i] = commands[i].name;
    const bool leaves =
        strcmp(name, "bye") == 0 || strcmp(name, "exit") == 0; /* the names in other programs */
    const char *nearest = leaves ? "quit" : nearest_name(name, names, COMMANDS);
    if (nearest)
        return usage_error(
            "unknown command /%s; did you mean /%s? //%s sends it as a message", name, nearest, name);
    return usage_error(
        "unknown command /%s; /help lists the commands, //%s sends it as a message", name, name);
}

int chat_obey(struct chat *chat, const char *text)
{
    char *line = strdup(text + 1);
    if (!line)
        return failure("out of memory");
    char *argument = line + strcspn(line, " \t\n");
    if (*argument)
        *argument++ = 0;
    argument += strspn(argument, " \t\n");
    for (size_t end = strlen(argument); end && strchr(" \t\n", argument[end - 1]); end--)
        argument[end - 1] = 0;

    const struct chat_command *command = NULL;
    for (size_t i = 0; i < COMMANDS; i++) {
        if (strcmp(commands[i].name, line) == 0)
            command = &commands[i];
    }
    int result;
    if (!command)
        result = unknown_command(line);
    else if (*argument && !command->argument)
        result = usage_error("/%s takes no argument: '%s'", line, argument);
    else if (!*argument && command->needs_argument)
        result = usage_error("/%s needs a value: %s", line, command->argument);
    else
        result = command->run(chat, argument);
    free(line);
    return result;
}
