#include "generate_flags.h"

#include "escapes.h"

#include <stdlib.h>
#include <string.h>

struct generate_flags generate_flags;

static const uint32_t no_limit = 0;

const struct option generate_flag_table[] = {
    {0, "system", "TEXT", OPTION_TEXT, &generate_flags.system, "system message of a conversation",
        .also = "-sys --system-prompt"},
    {'n', "tokens", "N", OPTION_COUNT, &generate_flags.tokens,
        "maximum number of tokens to generate; -1: no limit (default)", .also = "--n-predict --predict",
        .minus_one = &no_limit},
    {0, "ahead", "N", OPTION_COUNT, &generate_flags.ahead,
        "tokens per submission to the device; does not change the text (default: chosen by the device)"},
    {0, "stop", "TEXT", OPTION_TEXTS, &generate_flags.stops, "stop string: end before this text; repeatable",
        .also = "-r --reverse-prompt"},
    {0, "escape", NULL, OPTION_ALWAYS, NULL,
        "process escapes in --system, --stop and the prompt of `salvo run` (default)", .also = "-e"},
    {0, "jinja", NULL, OPTION_ALWAYS, NULL, "ignored, as are these options of llama.cpp",
        .also = "--no-display-prompt --no-warmup --simple-io"},
    {0, "no-escape", NULL, OPTION_FLAG, &generate_flags.no_escape, "do not process escapes"},
    {0, "allow-loops", NULL, OPTION_FLAG, &generate_flags.allow_loops,
        "do not end an answer that repeats itself (256 tokens that are a cycle of at most 64)"},
    {0, "stats", NULL, OPTION_FLAG, &generate_flags.stats,
        "print speed, memory and token counts to standard error"},
    {0},
};

int stop_strings_open(const struct salvo_stops *more, struct stop_strings *out)
{
    const struct text_list *given = &generate_flags.stops;
    const size_t more_count = more ? more->string_count : 0;
    *out = (struct stop_strings){0};
    out->all = calloc(given->count + more_count + 1, sizeof *out->all);
    if (!out->all)
        return failure("out of memory");
    for (size_t i = 0; i < given->count; i++) {
        const char *text = given->items[i];
        size_t size = strlen(text);
        if (!size)
            return usage_error("--stop is empty");
        out->copies[i] = strdup(text);
        if (!out->copies[i])
            return failure("out of memory");
        if (!generate_flags.no_escape)
            size = unescape(out->copies[i], size);
        out->copies[i][size] = 0;
        if (strlen(out->copies[i]) != size)
            return usage_error("--stop '%s' contains a NUL", text);
        out->all[out->count++] = out->copies[i];
    }
    for (size_t i = 0; i < more_count; i++)
        out->all[out->count++] = more->strings[i];
    return EXIT_DONE;
}

void stop_strings_close(struct stop_strings *strings)
{
    for (size_t i = 0; i < sizeof strings->copies / sizeof *strings->copies; i++)
        free(strings->copies[i]);
    free(strings->all);
    *strings = (struct stop_strings){0};
}

int set_system_from_flags(struct salvo_chat *chat)
{
    if (!generate_flags.system)
        return EXIT_DONE;
    size_t size = strlen(generate_flags.system);
    char *text = strdup(generate_flags.system);
    if (!text)
        return failure("out of memory");
    if (!generate_flags.no_escape)
        size = unescape(text, size);
    enum salvo_status status = salvo_chat_set_system(chat, text, size);
    free(text);
    return status == SALVO_OK ? EXIT_DONE : library_failure();
}
