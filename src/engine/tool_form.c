/* How a template writes tool calls: it renders two made-up ones, and what is around their names and arguments
 * is the form. */
#include "engine/tool_form.h"

#include "base/json_slice.h"
#include "base/memory.h"
#include "engine/arguments.h"

#include <stdio.h>
#include <string.h>

#define FUNCTION(number)                                                                                 \
    "{\"type\":\"function\",\"function\":{\"name\":\"toolname" number "\",\"description\":\"tooltext\"," \
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"argkey" number "\":{\"type\":\"string\","     \
    "\"description\":\"argtext\"}},\"required\":[\"argkey" number "\"]}}}"
#define CALL(number, arguments)                                                                     \
    "{\"id\":\"callid00" number "\",\"type\":\"function\",\"function\":{\"name\":\"toolname" number \
    "\",\"arguments\":" arguments "}}"
#define AS_OBJECT(number) "{\"argkey" number "\":\"argvalue\"}"
#define AS_STRING(number) "\"{\\\"argkey" number "\\\": \\\"argvalue\\\"}\""

static const char tools[] = "{\"tools\":[" FUNCTION("0") "," FUNCTION("1") "]}";
static const char *const one_call[] = {
    "{\"tool_calls\":[" CALL("0", AS_OBJECT("0")) "]}", "{\"tool_calls\":[" CALL("0", AS_STRING("0")) "]}"};
static const char *const two_calls[] = {
    "{\"tool_calls\":[" CALL("0", AS_OBJECT("0")) "," CALL("1", AS_OBJECT("1")) "]}",
    "{\"tool_calls\":[" CALL("0", AS_STRING("0")) "," CALL("1", AS_STRING("1")) "]}"};

static struct salvo_text text_of(const char *text)
{
    return (struct salvo_text){text, strlen(text)};
}

/* Renders a question and, unless `answer` and `calls` are NULL, an answer. A template that refuses the
 * conversation gives *out NULL. */
static enum salvo_status render(
    const struct salvo_template *chat, const char *answer, const char *calls, struct salvo_prompt **out)
{
    const bool answers = answer || calls;
    const struct salvo_message messages[] = {
        {"user", text_of("question0"), NULL},
        {"assistant", text_of(answer ? answer : ""), calls},
    };
    struct salvo_conversation conversation = SALVO_CONVERSATION_INIT;
    conversation.messages = messages;
    conversation.message_count = answers ? 2 : 1;
    conversation.no_generation_prompt = answers;
    conversation.json = text_of(tools);
    const enum salvo_status status = salvo_template_render(chat, &conversation, out);
    return status == SALVO_ERROR_MEMORY ? status : SALVO_OK;
}

static const char *find(struct salvo_text text, const char *part)
{
    return text.size ? memmem(text.data, text.size, part, strlen(part)) : NULL;
}

static struct salvo_text behind(struct salvo_text text, const char *place)
{
    return (struct salvo_text){place, (size_t)(text.data + text.size - place)};
}

/* A call in a rendered text: its name, and its arguments as JSON. */
static bool find_call(
    struct salvo_text text, const char *number, const char **out_name, struct salvo_text *out_arguments)
{
    char name[16], key[16];
    snprintf(name, sizeof name, "toolname%s", number);
    snprintf(key, sizeof key, "\"argkey%s\"", number);
    *out_name = find(text, name);
    const char *found = *out_name ? find(behind(text, *out_name), key) : NULL;
    const char *begin = found;
    while (begin && begin > *out_name && *begin != '{')
        begin--;
    if (!begin || *begin != '{')
        return false;
    *out_arguments = behind(text, begin);
    out_arguments->size = json_slice_end(*out_arguments);
    return out_arguments->size && begin + out_arguments->size > found && json_slice_is_valid(*out_arguments);
}

/* Stores a text with the ids of calls replaced. */
static enum salvo_status keep(struct buffer *out, const char *begin, const char *end)
{
    static const char id[] = "callid00"; /* and a digit */
    enum salvo_status status = SALVO_OK;
    out->size = 0;
    while (begin < end) {
        const bool is_id = (size_t)(end - begin) > sizeof id - 1 && memcmp(begin, id, sizeof id - 1) == 0;
        const char c = is_id ? (char)TOOL_ID : *begin;
        TRY(buffer_append(out, &c, 1));
        begin += is_id ? sizeof id : 1;
    }
cleanup:
    return status;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* Removes the end of the answer from the text behind a call. */
static const char *without_end(struct salvo_text tail, struct salvo_text end)
{
    static const char sentence[] = "<\xef\xbd\x9c"
                                   "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>";
    static const char *const ends[] = {
        "<|call|>", "<|eom_id|>", "<|eot_id|>", "<|im_end|>", "</s>", "<|end|>", "<|endoftext|>", sentence};
    const char *last = tail.data + tail.size;
    if (end.size && end.size <= tail.size && memcmp(last - end.size, end.data, end.size) == 0) {
        last -= end.size;
    } else {
        for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
            const char *found = find(tail, ends[i]);
            last = found && found < last ? found : last;
        }
    }
    while (last > tail.data && is_space(last[-1]))
        last--;
    return last;
}

/* The beginning of `before` that is enough to know a call: a tag, or all of it. */
static struct salvo_text find_marker(const struct buffer *before)
{
    struct salvo_text text = {before->data, before->size};
    while (text.size && is_space(text.data[text.size - 1]))
        text.size--;
    while (text.size && is_space(text.data[0]))
        text = behind(text, text.data + 1);
    const char close = text.size && text.data[0] == '<' ? '>' : ']';
    const bool is_tag = text.size && (text.data[0] == '<' || text.data[0] == '[');
    const char *end = is_tag ? memchr(text.data, close, text.size) : NULL;
    if (end)
        text.size = (size_t)(end + 1 - text.data);
    return text;
}

enum { MARKER, BEFORE, MIDDLE, BETWEEN, AFTER };

struct renderings {
    struct salvo_prompt *question, *answer, *one, *two;
};

static size_t common_size(const struct salvo_prompt *left, const struct salvo_prompt *right)
{
    size_t size = 0;
    while (size < left->size && size < right->size && left->text[size] == right->text[size])
        size++;
    return size;
}

/* Reads the form from the renderings; *out_found is false where they have no calls that are understood. */
static enum salvo_status read_form(
    const struct renderings *seen, struct salvo_tool_form *form, bool *out_found)
{
    enum salvo_status status = SALVO_OK;
    const char *name, *second;
    struct salvo_text arguments, others;
    *out_found = false;
    if (!seen->question || !seen->one || !seen->answer ||
        !find((struct salvo_text){seen->question->text, seen->question->size}, "toolname0"))
        return SALVO_OK;
    struct salvo_text text = {seen->one->text, seen->one->size};
    text = behind(text, text.data + common_size(seen->question, seen->one));
    if (!find_call(text, "0", &name, &arguments))
        return SALVO_OK;
    TRY(keep(&form->texts[BEFORE], text.data, name));
    TRY(keep(&form->texts[MIDDLE], name + strlen("toolname0"), arguments.data));
    const struct salvo_text plain = {seen->answer->text, seen->answer->size};
    const char *answer = find(plain, "answer0");
    const struct salvo_text tail = behind(text, arguments.data + arguments.size);
    TRY(keep(&form->texts[AFTER], tail.data,
        without_end(tail, answer ? behind(plain, answer + strlen("answer0")) : (struct salvo_text){"", 0})));
    const struct salvo_text marker = find_marker(&form->texts[BEFORE]);
    if (!marker.size || !form->texts[MIDDLE].size || is_tool_name(form->texts[MIDDLE].data[0]))
        return SALVO_OK;
    TRY(keep(&form->texts[MARKER], marker.data, marker.data + marker.size));
    *out_found = true;
    text = seen->two ? (struct salvo_text){seen->two->text, seen->two->size} : (struct salvo_text){0};
    if (seen->two)
        text = behind(text, text.data + common_size(seen->question, seen->two));
    if (find_call(text, "0", &name, &arguments) && find_call(text, "1", &second, &others) &&
        second > arguments.data + arguments.size)
        TRY(keep(&form->texts[BETWEEN], arguments.data + arguments.size, second));
cleanup:
    return status;
}

static enum salvo_status read_template(
    const struct salvo_template *chat, struct salvo_tool_form *form, bool *out_found)
{
    enum salvo_status status = SALVO_OK;
    struct renderings seen = {0};
    *out_found = false;
    TRY(render(chat, NULL, NULL, &seen.question));
    TRY(render(chat, "answer0", NULL, &seen.answer));
    for (size_t i = 0; i < 2 && !*out_found; i++) {
        salvo_free(seen.one);
        salvo_free(seen.two);
        seen.one = seen.two = NULL;
        TRY(render(chat, NULL, one_call[i], &seen.one));
        TRY(render(chat, NULL, two_calls[i], &seen.two));
        TRY(read_form(&seen, form, out_found));
        form->info.arguments_are_text = *out_found && i == 1;
    }
    if (seen.question) {
        struct salvo_text text = {seen.question->text, seen.question->size};
        while (text.size && is_space(text.data[text.size - 1]))
            text.size--;
        const size_t size = strlen(form->info.think_begin);
        form->info.begins_thinking =
            text.size >= size && memcmp(text.data + text.size - size, form->info.think_begin, size) == 0;
    }
cleanup:
    salvo_free(seen.question);
    salvo_free(seen.answer);
    salvo_free(seen.one);
    salvo_free(seen.two);
    return status;
}

enum salvo_status salvo_tool_form_open(const struct salvo_template *chat, struct salvo_tool_form **out)
{
    static const char *const described[TOOL_TEXTS] = {[MARKER] = "<tool_call>",
        [BEFORE] = "<tool_call>\n{\"name\": \"",
        [MIDDLE] = "\", \"arguments\": ",
        [BETWEEN] = "}\n</tool_call>\n<tool_call>\n{\"name\": \"",
        [AFTER] = "}\n</tool_call>"};
    enum salvo_status status = SALVO_OK;
    struct salvo_tool_form *form = NULL;
    bool found;
    REQUIRE(out);
    *out = NULL;
    REQUIRE(chat);
    TRY(NEW(&form, 1));
    form->info.size = sizeof form->info;
    form->info.think_begin = "<think>";
    form->info.think_end = "</think>";
    TRY(read_template(chat, form, &found));
    form->info.described = !found;
    for (size_t i = 0; i < TOOL_TEXTS; i++) {
        if (!found)
            TRY(keep(&form->texts[i], described[i], described[i] + strlen(described[i])));
        TRY(buffer_append(&form->texts[i], "", 1));
    }
    form->info.marker = form->texts[MARKER].data;
    form->info.before = form->texts[BEFORE].data;
    form->info.middle = form->texts[MIDDLE].data;
    form->info.between = form->texts[BETWEEN].data;
    form->info.after = form->texts[AFTER].data;
    *out = form;
cleanup:
    if (status != SALVO_OK)
        salvo_tool_form_close(form);
    return status;
}

void salvo_tool_form_close(struct salvo_tool_form *form)
{
    if (!form)
        return;
    for (size_t i = 0; i < TOOL_TEXTS; i++)
        buffer_free(&form->texts[i]);
    memory_free(form);
}

const struct salvo_tool_form_info *salvo_tool_form_info(const struct salvo_tool_form *form)
{
    return form ? &form->info : NULL;
}
