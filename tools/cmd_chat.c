#include "chat.h"
#include "chat_input.h"
#include "commands.h"
#include "interrupt.h"
#include "models.h"
#include "sampler_flags.h"
#include "terminal.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *on_full = "stop";

static const struct option option_table[] = {
    {0, "on-full", "stop|slide", OPTION_TEXT, &on_full,
        "when the context is full: end the answer, or drop the oldest turns (default: stop)",
        .choices = "stop slide"},
    {0, "tools", "FILE", OPTION_FILE, &tool_flags.file,
        "tools that answers may call, a JSON array as in OpenAI's requests; calls are printed as lines of "
        "JSON, "
        "and the next lines of the input are their results"},
    {0},
};

/* Uses UTF-8 in any locale: models write it and terminals show it. */
static void use_utf8(void)
{
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0 && !setlocale(LC_CTYPE, "C.UTF-8"))
        setlocale(LC_CTYPE, "en_US.UTF-8");
}

static int open_chat(struct chat *chat)
{
    chat->slides = strcmp(on_full, "slide") == 0;
    if (!chat->slides && strcmp(on_full, "stop") != 0)
        return usage_error("chat: invalid --on-full '%s': expected stop or slide", on_full);
    struct salvo_chat_options options = {
        .size = sizeof options, .on_full = chat->slides ? SALVO_ON_FULL_SLIDE : SALVO_ON_FULL_STOP};
    int result = load(&chat->loaded);
    if (result == EXIT_DONE)
        result = tool_use_open(chat->loaded.model, &chat->tools);
    if (result == EXIT_DONE && chat->tools.form)
        result = tool_use_grammar(&chat->tools, chat->loaded.model, &chat->grammar);
    options.json = tool_use_variables(&chat->tools);
    if (result == EXIT_DONE)
        result = sampler_from_flags(chat->loaded.model, chat->loaded.session, &chat->sampler);
    if (result == EXIT_DONE && salvo_chat_open(chat->loaded.model, &options, &chat->conversation) != SALVO_OK)
        result = library_failure();
    if (result == EXIT_DONE)
        result =
            stop_strings_open(chat->tools.form ? salvo_chat_stops(chat->conversation) : NULL, &chat->stops);
    if (result == EXIT_DONE)
        result = set_system_from_flags(chat->conversation);
    return result == EXIT_DONE ? tool_use_describe(&chat->tools, chat->conversation) : result;
}

static void close_chat(struct chat *chat)
{
    salvo_chat_close(chat->conversation);
    stop_strings_close(&chat->stops);
    salvo_grammar_free(chat->grammar);
    tool_use_close(&chat->tools);
    unload(&chat->loaded);
}

static void print_banner(const struct chat *chat)
{
    const struct salvo_model_info *model = salvo_model_info(chat->loaded.model);
    const struct salvo_engine_info engine = *salvo_engine_info(chat->loaded.engine);
    const char *dim = colour(stdout, COLOUR_DIM), *off = colour(stdout, COLOUR_OFF);
    const char *slash = strrchr(model->path, '/');
    const char *name = *model->name ? model->name : slash ? slash + 1 : model->path;
    char size[32], parameters[32];
    fputs(colour(stdout, COLOUR_BOLD), stdout);
    print_safely(stdout, name, strlen(name));
    printf("%s  %s%s parameters, %s%s%s%s\n", off, dim, format_count(model->parameters, parameters),
        model->file_type, *model->file_type ? ", " : "", format_bytes(model->file_size, size), off);
    printf("%s%s: %s%s%s, context %u%s\n", dim, engine.backend, engine.device, *engine.isa ? ", " : "",
        engine.isa, engine.context, off);
    if (!model->has_chat_template)
        printf("%sThe model has no chat template; messages are marked with User: and Assistant: instead.%s\n",
            dim, off);
    printf("%s/help lists the commands. Ctrl-C stops an answer, Ctrl-D quits.%s\n"
           "\n",
        dim, off);
    fflush(stdout);
}

/* One message or command. */
static int handle(struct chat *chat, const struct chat_message *message)
{
    const char *text = message->text;
    if (strspn(text, " \t\n") == message->size)
        return EXIT_DONE;
    const size_t slash = text[0] == '/' && !message->is_quoted;
    if (slash && text[1] != '/')
        return chat_obey(chat, text);
    return chat_ask(chat, text + slash, message->size - slash);
}

static int hold_conversation(struct chat *chat)
{
    int worst = EXIT_DONE;
    unsigned interrupts = 0;
    chat->editor = line_editor_open(chat->interactive);
    if (!chat->editor)
        return failure("out of memory");
    interrupt_catch_each(NULL);
    while (!chat->leaving) {
        struct chat_message message;
        interrupt_take();
        enum line_result result = chat_input_read(chat->editor, ">", &message);
        if (result == LINE_INTERRUPTED) {
            if (!chat->interactive) {
                worst = 128 + SIGINT;
                break;
            }
            fputs(interrupts++ ? "\n"
                                 "(Ctrl-D or /quit quits)\n"
                               : "\n",
                stdout);
            continue;
        }
        interrupts = 0;
        if (result == LINE_FAILED)
            worst = failure("standard input: %s", strerror(errno));
        if (result != LINE_READ)
            break;
        int status = handle(chat, &message);
        free(message.text);
        if (status != EXIT_DONE && !chat->interactive)
            worst = EXIT_FAILED;
        if (!chat->interactive && interrupt_pending())
            worst = 128 + SIGINT;
        if (worst == 128 + SIGINT || ferror(stdout))
            break;
    }
    interrupt_release();
    if (chat->interactive && !chat->leaving)
        putchar('\n'); /* after Ctrl-D the shell gets a line of its own */
    line_editor_close(chat->editor);
    return worst;
}

static int run(int count, char **arguments)
{
    (void)count;
    (void)arguments;
    struct chat chat = {.interactive = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)};
    use_utf8();
    if (output_flags.verbose)
        fprintf(stderr, "%s\n", line_editor_description);
    int result = open_chat(&chat);
    if (result == EXIT_DONE) {
        if (chat.interactive && !output_flags.quiet)
            print_banner(&chat);
        result = hold_conversation(&chat);
    }
    close_chat(&chat);
    return result;
}

const struct command chat_command = {
    .name = "chat",
    .model = &engine_flags.model,
    .summary = "chat with a model",
    .details = "Without a terminal, each line of standard input is a message. Answers go to standard output, "
               "everything else\n"
               "to standard error; the exit status is 1 if anything failed. A backslash at the end of a line "
               "continues the\n"
               "message on the next line; put \"\"\" before and after a message of several lines. Lines that "
               "begin with / are\n"
               "commands, which /help lists; write // for a message that begins with a slash.\n"
               "The input history is in ${XDG_STATE_HOME:-~/.local/state}/salvo/history.\n"
#ifndef SALVO_LIBEDIT
               "This salvo was built without libedit: no line editing and no history.\n"
#endif
               "Tokens of earlier turns stay in the KV cache; --stats shows how many were reused.",
    .options = option_table,
    .shared = {generate_flag_table, sampler_flag_table, engine_flag_table,
        output_flag_table + 1 /* no --json */},
    .run = run,
};
