/* How a template writes tool calls: it renders made-up ones, and the texts around their names and arguments
 * are the form. */
#include "engine/tool_form.h"

#include "base/json_slice.h"
#include "base/memory.h"
#include "engine/arguments.h"
#include "engine/tool_probe.h"

#include <stdio.h>
#include <string.h>

/* ---- Calls with a JSON object as arguments ---- */

/* A call in a rendered text: its name, and its arguments as JSON. */
static bool find_call(
    struct salvo_text text, const char *number, const char **out_name, struct salvo_text *out_arguments)
{
    char name[16], key[16];
    snprintf(name, sizeof name, "toolname%s", number);
    snprintf(key, sizeof key, "\"argkey%s\"", number);
    *out_name = probe_find(text, name);
    const char *found = *out_name ? probe_find(probe_behind(text, *out_name), key) : NULL;
    const char *begin = found;
    while (begin && begin > *out_name && *begin != '{')
        begin--;
    if (!begin || *begin != '{')
        return false;
    *out_arguments = probe_behind(text, begin);
    out_arguments->size = json_slice_end(*out_arguments);
    return out_arguments->size && begin + out_arguments->size > found && json_slice_is_valid(*out_arguments);
}

/* The end of the arguments of a call. */
static const char *end_of(struct salvo_text arguments)
{
    return arguments.data + arguments.size;
}

/* Two calls: the text between them, and numbers that count them. */
static enum salvo_status read_two(
    const struct probe *probe, const struct salvo_prompt *two, struct salvo_tool_form *form)
{
    enum salvo_status status = SALVO_OK;
    const char *first, *second;
    struct salvo_text arguments, others;
    struct buffer middle = {0}, after = {0};
    const struct salvo_text text = probe_answer(probe, two);
    if (!find_call(text, "0", &first, &arguments) || !find_call(text, "1", &second, &others) ||
        second < end_of(arguments))
        return SALVO_OK;
    TRY(probe_keep(&form->texts[TEXT_BETWEEN], end_of(arguments), second));
    TRY(probe_keep(&middle, second + strlen("toolname1"), others.data));
    probe_number_ends(&form->texts[TEXT_BEFORE], &form->texts[TEXT_BETWEEN]);
    probe_number(&form->texts[TEXT_MIDDLE], &middle);
    /* Some templates end the calls only behind the second one. */
    const struct salvo_text tail = probe_behind(text, end_of(others));
    TRY(probe_keep(&after, tail.data, probe_end(probe, tail)));
    const struct buffer *known = &form->texts[TEXT_AFTER];
    if (after.size > known->size && (!known->size || memcmp(after.data, known->data, known->size) == 0))
        TRY(probe_keep(&form->texts[TEXT_AFTER], after.data, after.data + after.size));
cleanup:
    buffer_free(&middle);
    buffer_free(&after);
    return status;
}

/* Answers that begin with a recipient: the name of a tool, or a word for content. */
static enum salvo_status read_recipient(
    const struct probe *probe, struct salvo_tool_form *form, bool *out_found)
{
    enum salvo_status status = SALVO_OK;
    const struct salvo_text plain = probe_answer(probe, probe->answer);
    const char *answer = probe_find(plain, "answer0");
    const struct buffer *between = &form->texts[TEXT_BETWEEN];
    if (!answer || answer == plain.data || !between->size)
        return SALVO_OK;
    TRY(probe_keep(&form->texts[TEXT_CONTENT], plain.data, answer));
    TRY(probe_keep(&form->texts[TEXT_MARKER], between->data, between->data + between->size));
    form->info.name = "recipients";
    *out_found = true;
cleanup:
    return status;
}

static enum salvo_status read_json(
    const struct probe *probe, struct probe_style style, struct salvo_tool_form *form, bool *out_found)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_prompt *one = NULL, *two = NULL;
    const char *name;
    struct salvo_text arguments;
    TRY(probe_calls(probe, style, "{\"argkey0\":\"argvalue0\"}", NULL, &one));
    TRY(probe_calls(probe, style, "{\"argkey0\":\"argvalue0\"}", "{\"argkey1\":\"argvalue1\"}", &two));
    const struct salvo_text text = probe_answer(probe, one);
    if (!find_call(text, "0", &name, &arguments))
        goto cleanup;
    const struct salvo_text tail = probe_behind(text, end_of(arguments));
    TRY(probe_keep(&form->texts[TEXT_BEFORE], text.data, name));
    TRY(probe_keep(&form->texts[TEXT_MIDDLE], name + strlen("toolname0"), arguments.data));
    TRY(probe_keep(&form->texts[TEXT_AFTER], tail.data, probe_end(probe, tail)));
    TRY(read_two(probe, two, form));
    const struct buffer *middle = &form->texts[TEXT_MIDDLE];
    if (!middle->size || is_tool_name(middle->data[0]))
        goto cleanup;
    if (!form->texts[TEXT_BEFORE].size)
        TRY(read_recipient(probe, form, out_found));
    else
        TRY(probe_marker(probe, form, out_found));
    form->info.arguments_are_text = *out_found && style.arguments_are_text;
cleanup:
    salvo_free(one);
    salvo_free(two);
    return status;
}

/* ---- Channels ---- */

/* Every message begins with a header that has a channel; the recipient of a call is in it. */
static enum salvo_status read_channels(
    const struct probe *probe, struct salvo_tool_form *form, bool *out_found)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_prompt *one = NULL;
    TRY(probe_calls(probe, (struct probe_style){0}, "{\"argkey0\":\"argvalue0\"}", NULL, &one));
    const struct salvo_text text = probe_answer(probe, one);
    *out_found = probe_find(text, "to=functions.toolname0") && probe_find(text, "<|channel|>commentary") &&
                 probe_find(text, "<|message|>{\"argkey0\"");
    if (!*out_found)
        goto cleanup;
    static const char *const texts[TOOL_TEXTS] = {[TEXT_MARKER] = " to=functions.",
        [TEXT_BEFORE] = "<|channel|>commentary to=functions.",
        [TEXT_MIDDLE] = " <|constrain|>json<|message|>"};
    for (size_t i = 0; i < TOOL_TEXTS; i++) {
        if (texts[i])
            TRY(probe_keep(&form->texts[i], texts[i], texts[i] + strlen(texts[i])));
    }
    form->info.name = "channels";
cleanup:
    salvo_free(one);
    return status;
}

/* ---- All forms ---- */

static void forget(struct salvo_tool_form *form)
{
    for (size_t i = 0; i < TOOL_TEXTS; i++)
        form->texts[i].size = 0;
}

/* A form whose texts have words of the made-up calls would repeat them in every call. */
static bool is_clean(const struct salvo_tool_form *form)
{
    static const char *const words[] = {"toolname", "argkey", "argvalue", "callid"};
    for (size_t i = 0; i < TOOL_TEXTS; i++) {
        for (size_t k = 0; k < sizeof words / sizeof *words; k++) {
            if (probe_find((struct salvo_text){form->texts[i].data, form->texts[i].size}, words[k]))
                return false;
        }
    }
    return true;
}

static enum salvo_status read_style(
    const struct probe *probe, struct probe_style style, struct salvo_tool_form *form, bool *out_found)
{
    enum salvo_status status = SALVO_OK;
    form->info.name = "json";
    TRY(read_json(probe, style, form, out_found));
    *out_found = *out_found && is_clean(form);
    if (!*out_found && !style.arguments_are_text) {
        forget(form);
        form->info.name = "parameters";
        TRY(probe_parameters(probe, style, form, out_found));
        *out_found = *out_found && is_clean(form);
    }
    if (!*out_found)
        forget(form);
    form->info.content_is_null = *out_found && style.content_is_null;
    form->info.id_has_name = *out_found && style.id_has_name;
cleanup:
    return status;
}

/* Calls of tools that the model has built in, as name.call(key="value") behind a tag. */
static enum salvo_status read_tagged(struct probe *probe, struct salvo_tool_form *form)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_tool_form *tagged = NULL;
    bool found = false;
    TRY(NEW(&tagged, 1));
    tagged->info = form->info;
    tagged->info.name = "parameters";
    probe->builtin = true;
    TRY(probe_parameters(probe, (struct probe_style){0}, tagged, &found));
    probe->builtin = false;
    const struct buffer *marker = &tagged->texts[TEXT_MARKER], *usual = &form->texts[TEXT_MARKER];
    if (found && is_clean(tagged) &&
        (marker->size != usual->size || memcmp(marker->data, usual->data, marker->size) != 0)) {
        form->tagged = tagged;
        tagged = NULL;
    }
cleanup:
    salvo_tool_form_close(tagged);
    return status;
}

static enum salvo_status read_template(
    const struct salvo_template *chat, struct salvo_tool_form *form, bool *out_found)
{
    static const struct probe_style styles[] = {{0}, {.arguments_are_text = true}, {.content_is_null = true},
        {.arguments_are_text = true, .content_is_null = true}, {.id_has_name = true},
        {.arguments_are_text = true, .id_has_name = true}};
    enum salvo_status status = SALVO_OK;
    struct probe probe = {.chat = chat};
    *out_found = false;
    TRY(probe_open(&probe));
    TRY(read_channels(&probe, form, out_found));
    for (size_t i = 0; i < sizeof styles / sizeof *styles && !*out_found; i++)
        TRY(read_style(&probe, styles[i], form, out_found));
    if (*out_found && strcmp(form->info.name, "json") == 0)
        TRY(read_tagged(&probe, form));
    form->info.described = !*out_found || !probe.lists_tools;
    form->info.writes_calls = *out_found;
    form->info.think_begin = probe.think_begin;
    form->info.think_end = probe.think_end;
    form->info.begins_thinking = probe.begins_thinking;
cleanup:
    probe_close(&probe);
    return status;
}

/* Ends the texts, and shows them to users of the library. */
static enum salvo_status complete(struct salvo_tool_form *form)
{
    enum salvo_status status = SALVO_OK;
    for (size_t i = 0; i < TOOL_TEXTS; i++)
        TRY(buffer_append(&form->texts[i], "", 1));
    form->info.marker = form->texts[TEXT_MARKER].data;
    form->info.before = form->texts[TEXT_BEFORE].data;
    form->info.middle = form->texts[TEXT_MIDDLE].data;
    form->info.between = form->texts[TEXT_BETWEEN].data;
    form->info.after = form->texts[TEXT_AFTER].data;
cleanup:
    return status;
}

enum salvo_status salvo_tool_form_open(const struct salvo_template *chat, struct salvo_tool_form **out)
{
    static const char *const described[TOOL_TEXTS] = {[TEXT_MARKER] = "<tool_call>",
        [TEXT_BEFORE] = "<tool_call>\n{\"name\": \"",
        [TEXT_MIDDLE] = "\", \"arguments\": ",
        [TEXT_BETWEEN] = "}\n</tool_call>\n<tool_call>\n{\"name\": \"",
        [TEXT_AFTER] = "}\n</tool_call>"};
    enum salvo_status status = SALVO_OK;
    struct salvo_tool_form *form = NULL;
    bool found;
    REQUIRE(out);
    *out = NULL;
    REQUIRE(chat);
    TRY(NEW(&form, 1));
    form->info.size = sizeof form->info;
    TRY(read_template(chat, form, &found));
    if (!found)
        form->info.name = "json";
    for (size_t i = 0; i < TOOL_TEXTS && !found; i++) {
        if (described[i])
            TRY(probe_keep(&form->texts[i], described[i], described[i] + strlen(described[i])));
    }
    TRY(complete(form));
    if (form->tagged)
        TRY(complete(form->tagged));
    *out = form;
    form = NULL;
cleanup:
    salvo_tool_form_close(form);
    return status;
}

void salvo_tool_form_close(struct salvo_tool_form *form)
{
    while (form) {
        struct salvo_tool_form *tagged = form->tagged;
        for (size_t i = 0; i < TOOL_TEXTS; i++)
            buffer_free(&form->texts[i]);
        memory_free(form);
        form = tagged;
    }
}

enum salvo_tool_thinking salvo_tool_form_thinking(
    const struct salvo_tool_form *form, const char *prompt, size_t size)
{
    if (!form)
        return SALVO_TOOL_THINKING_USUAL;
    return tool_prompt_thinks((struct salvo_text){prompt, size}, form->info.think_begin)
               ? SALVO_TOOL_THINKING_YES
               : SALVO_TOOL_THINKING_NO;
}

const struct salvo_tool_form_info *salvo_tool_form_info(const struct salvo_tool_form *form)
{
    return form ? &form->info : NULL;
}
