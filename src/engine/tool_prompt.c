/* Texts of tools and calls in prompts. */
#include "base/json_slice.h"
#include "base/memory.h"
#include "engine/arguments.h"
#include "engine/tool_form.h"

#include <string.h>

static enum salvo_status add(struct buffer *out, const char *text)
{
    return buffer_append(out, text, strlen(text));
}

bool salvo_tool_form_has(const struct salvo_tool_form *form, const char *token, size_t size)
{
    static const char channels[] = "<|channel|><|message|><|constrain|><|start|><|end|>";
    if (!form || !token || !size)
        return false;
    if (strcmp(form->info.name, "channels") == 0 && memmem(channels, sizeof channels - 1, token, size))
        return true;
    if (memmem(form->info.think_begin, strlen(form->info.think_begin), token, size) ||
        memmem(form->info.think_end, strlen(form->info.think_end), token, size))
        return true;
    for (; form; form = form->tagged) {
        for (size_t i = 0; i < TOOL_TEXTS; i++) {
            if (memmem(form->texts[i].data, form->texts[i].size, token, size))
                return true;
        }
    }
    return false;
}

/* A text of a form, with an example of ids and numbers. */
static enum salvo_status add_text(struct buffer *out, const char *text)
{
    enum salvo_status status = SALVO_OK;
    for (; *text; text++) {
        TRY(*text == TOOL_ID       ? add(out, "abc123xyz")
            : *text == TOOL_NUMBER ? add(out, "0")
                                   : buffer_append(out, text, 1));
    }
cleanup:
    return status;
}

/* One allocation, freed by salvo_free. */
static enum salvo_status hand_over(const struct buffer *text, char **out_text, size_t *out_size)
{
    enum salvo_status status = SALVO_OK;
    TRY(NEW(out_text, text->size + 1));
    if (text->size)
        memcpy(*out_text, text->data, text->size);
    *out_size = text->size;
cleanup:
    return status;
}

enum salvo_status salvo_tool_form_prompt(
    const struct salvo_tool_form *form, const char *tools, size_t size, char **out_text, size_t *out_size)
{
    enum salvo_status status = SALVO_OK;
    struct buffer text = {0};
    struct salvo_text item, function;
    size_t at = 0;
    REQUIRE(out_text);
    REQUIRE(out_size);
    *out_text = NULL;
    *out_size = 0;
    REQUIRE(form);
    REQUIRE(tools);
    TRY(tool_check_list("tools", (struct salvo_text){tools, size}));
    TRY(add(&text, "You can call these functions, each described by a JSON object:\n"));
    while (json_slice_item((struct salvo_text){tools, size}, &at, &item)) {
        if (!json_slice_member(item, "function", &function))
            continue;
        TRY(buffer_append(&text, function.data, function.size));
        TRY(add(&text, "\n"));
    }
    TRY(add(&text, "To call a function, write its name and its arguments like this:\n"));
    TRY(add_text(&text, form->info.before));
    TRY(add(&text, "FUNCTION"));
    TRY(add_text(&text, form->info.middle));
    if (strcmp(form->info.name, "parameters") == 0) {
        TRY(add(&text, "ARGUMENT"));
        TRY(add(&text, tool_value_text(form, VALUE_STRING, VALUE_BEGIN)));
        TRY(add(&text, "VALUE"));
    } else {
        TRY(add(&text, "{\"ARGUMENT\": VALUE}"));
    }
    TRY(add_text(&text, form->info.after));
    TRY(hand_over(&text, out_text, out_size));
cleanup:
    buffer_free(&text);
    return status;
}

/* Arguments are a string with JSON, or JSON. */
static enum salvo_status add_arguments(struct buffer *out, struct salvo_text arguments)
{
    enum salvo_status status = SALVO_OK;
    struct buffer text = {0};
    bool is_string = false;
    TRY(json_slice_string(arguments, &is_string, &text));
    TRY(is_string ? buffer_append(out, text.data, text.size)
                  : buffer_append(out, arguments.data, arguments.size));
cleanup:
    buffer_free(&text);
    return status;
}

enum salvo_status salvo_tool_form_calls(
    const struct salvo_tool_form *form, const char *calls, size_t size, char **out_text, size_t *out_size)
{
    enum salvo_status status = SALVO_OK;
    struct buffer text = {0};
    struct salvo_text item, function, name, arguments;
    size_t at = 0, count = 0;
    REQUIRE(out_text);
    REQUIRE(out_size);
    *out_text = NULL;
    *out_size = 0;
    REQUIRE(form);
    REQUIRE(calls);
    TRY(tool_check_list("calls", (struct salvo_text){calls, size}));
    while (json_slice_item((struct salvo_text){calls, size}, &at, &item)) {
        bool is_string = false;
        if (!json_slice_member(item, "function", &function) || !json_slice_member(function, "name", &name) ||
            !json_slice_member(function, "arguments", &arguments))
            TRY(fail(SALVO_ERROR_ARGUMENT, "call %zu has no function with a name and arguments", count + 1));
        TRY(add_text(&text, count++ ? form->info.between : form->info.before));
        TRY(json_slice_string(name, &is_string, &text));
        TRY(add_text(&text, form->info.middle));
        TRY(add_arguments(&text, arguments));
    }
    if (count)
        TRY(add_text(&text, form->info.after));
    TRY(hand_over(&text, out_text, out_size));
cleanup:
    buffer_free(&text);
    return status;
}
