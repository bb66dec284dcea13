#include "command.h"
#include "commands.h"
#include "engine_flags.h"
#include "man_page.h"
#include "terminal.h"

#include <salvo/salvo.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct command *const commands[] = {
    &chat_command,
    &run_command,
    &serve_command,
    &embed_command,
    &eval_command,
    &bench_command,
    &perplexity_command,
    &quantize_command,
    &verify_command,
    &info_command,
    &show_command,
    &template_command,
    &tokenize_command,
    &detokenize_command,
    &grammar_command,
    &pull_command,
    &list_command,
    &rm_command,
    &ps_command,
    &devices_command,
    &completions_command,
    &help_command,
    NULL,
};

const struct command *command_find(const char *name)
{
    for (size_t i = 0; commands[i]; i++) {
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    }
    return NULL;
}

static void print_overview(FILE *stream)
{
    fprintf(stream,
        "salvo %s: runs language models from GGUF files, one submission per token\n"
        "\n"
        "usage: salvo COMMAND [options]\n"
        "\n",
        salvo_version());
    for (size_t i = 0; commands[i]; i++)
        fprintf(stream, "  %-12s  %s\n", commands[i]->name, commands[i]->summary);
    fprintf(stream, "\n"
                    "`salvo help COMMAND` or `salvo COMMAND --help` shows the options of a command, `salvo "
                    "--version` the version.\n");
}

/* Commands of ollama and llama.cpp that salvo has under another name or not at all. */
static const struct {
    const char *name, *here;
} foreign_commands[] = {
    {"ls", "use `salvo list`"},
    {"stop", "salvo has no 'stop': a server ends by SIGTERM, and `salvo ps` lists the servers"},
    {"create",
        "salvo has no 'create': it runs GGUF files as they are; `salvo quantize` writes other formats"},
};

static int unknown_command(const char *name)
{
    for (size_t i = 0; i < sizeof foreign_commands / sizeof *foreign_commands; i++) {
        if (strcmp(foreign_commands[i].name, name) == 0)
            return usage_error("unknown command '%s': %s", name, foreign_commands[i].here);
    }
    const char *names[sizeof commands / sizeof *commands];
    size_t count = 0;
    for (; commands[count]; count++)
        names[count] = commands[count]->name;
    const char *nearest = nearest_name(name, names, count);
    if (nearest)
        return usage_error("unknown command '%s'; did you mean `salvo %s`?", name, nearest);
    return usage_error("unknown command '%s'; `salvo help` lists the commands", name);
}

static bool wants_man_page;

static int run_help(int count, char **arguments)
{
    if (count > 1)
        return usage_error("help: expected one command");
    const struct command *command = count ? command_find(arguments[0]) : NULL;
    if (count && !command)
        return unknown_command(arguments[0]);
    if (wants_man_page)
        man_page_print(command);
    else if (command)
        command_print_help(command);
    else
        print_overview(stdout);
    return EXIT_DONE;
}

static const struct option help_options[] = {
    {0, "man", NULL, OPTION_FLAG, &wants_man_page, "print a man page, in the format of troff"},
    {0},
};

const struct command help_command = {
    .name = "help",
    .arguments = "[COMMAND]",
    .summary = "show the options of a command",
    .options = help_options,
    .run = run_help,
};

static void print_warning(void *user, enum salvo_log_level level, const char *line)
{
    (void)user;
    if (level != SALVO_LOG_WARNING || output_flags.quiet)
        return;
    fprintf(stderr, "%ssalvo: warning:%s ", colour(stderr, COLOUR_YELLOW), colour(stderr, COLOUR_OFF));
    print_safely(stderr, line, strlen(line));
    fputc('\n', stderr);
}

/* An option in place of a command. */
static int run_option(const char *name, int count, char **arguments)
{
    static const char *const names[] = {"--version", "--help"};
    bool is_version = strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0;
    if (foreign_flag(name, strlen(name)))
        return usage_error("%s is not supported: %s", name, foreign_flag(name, strlen(name)));
    if (!is_version && strcmp(name, "--help") != 0 && strcmp(name, "-h") != 0) {
        const char *nearest = nearest_name(name, names, sizeof names / sizeof *names);
        if (nearest)
            return usage_error("unknown option '%s'; did you mean %s?", name, nearest);
        return usage_error(
            "unknown option '%s': expected a command first; `salvo help` lists the commands", name);
    }
    if (count)
        return usage_error("%s takes no argument: '%s'", name, arguments[0]);
    if (is_version)
        printf("salvo %s\n", salvo_version());
    else
        print_overview(stdout);
    return EXIT_DONE;
}

static int dispatch(int count, char **arguments)
{
    if (count < 2) {
        print_overview(stderr);
        return EXIT_USAGE;
    }
    const char *name = arguments[1];
    if (name[0] == '-')
        return run_option(name, count - 2, arguments + 2);
    const struct command *command = command_find(name);
    if (!command)
        return unknown_command(name);

    count -= 2;
    arguments += 2;
    bool help = false;
    int result = command_parse(command, &count, arguments, &help);
    if (result != EXIT_DONE)
        return result;
    if (help) {
        command_print_help(command);
        return EXIT_DONE;
    }
    return command->run(count, arguments);
}

/* Opens /dev/null for reading in place of closed standard streams. Otherwise the first file that is opened,
 * such as the model, would become standard input or output. Reading gives nothing, and writing still fails.
 */
static bool hold_standard_streams(void)
{
    for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; descriptor++) {
        if (fcntl(descriptor, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != descriptor)
            return false;
    }
    return true;
}

int main(int count, char **arguments)
{
    static char line[BUFSIZ];
    if (!hold_standard_streams())
        return EXIT_FAILED;
    signal(SIGXFSZ, SIG_IGN); /* a file that becomes too large is an error of write */
    /* Whole lines, so that the lines of several processes do not mix. */
    setvbuf(stderr, line, _IOLBF, sizeof line);
    salvo_log_set(print_warning, NULL);
    all_commands = commands;
    int result = dispatch(count, arguments);
    /* A full disk may be reported only when the buffer is written. */
    errno = 0;
    if ((fflush(stdout) != 0 || ferror(stdout)) && result == EXIT_DONE)
        result = failure("cannot write standard output: %s", errno ? strerror(errno) : "I/O error");
    return result;
}
