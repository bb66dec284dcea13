#include "engine/tool_probe.h"

#include "base/memory.h"
#include "base/text_order.h"
#include "engine/chat_template.h"

#include <stdio.h>
#include <string.h>

#define FUNCTION(number)                                                                                 \
    "{\"type\":\"function\",\"function\":{\"name\":\"toolname" number "\",\"description\":\"tooltext\"," \
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"argkey0\":{\"type\":\"string\","              \
    "\"description\":\"argtext\"},\"argkey1\":{\"type\":\"string\",\"description\":\"argtext\"}},"       \
    "\"required\":[\"argkey" number "\"]}}}"

static struct salvo_text text_of(const char *text)
{
    return (struct salvo_text){text, strlen(text)};
}

/* Renders a question and, unless `answer` and `calls` are NULL, an answer. */
static enum salvo_status render(
    const struct probe *probe, const char *answer, const char *calls, struct salvo_prompt **out)
{
    static const char tools[] = "{\"tools\":[" FUNCTION("0") "," FUNCTION("1") "]}";
    static const char builtin[] =
        "{\"tools\":[" FUNCTION("0") "," FUNCTION("1") "],\"builtin_tools\":[\"toolname0\",\"toolname1\"]}";
    const bool answers = answer || calls;
    const struct salvo_message messages[] = {
        {"user", text_of("question0"), NULL},
        {"assistant", text_of(answer ? answer : ""), calls},
    };
    struct salvo_conversation conversation = SALVO_CONVERSATION_INIT;
    conversation.messages = messages;
    conversation.message_count = answers ? 2 : 1;
    conversation.no_generation_prompt = answers;
    conversation.json = text_of(probe->builtin ? builtin : tools);
    const enum salvo_status status = salvo_template_render(probe->chat, &conversation, out);
    return status == SALVO_ERROR_MEMORY ? status : SALVO_OK;
}

const char *probe_find(struct salvo_text text, const char *part)
{
    return text.size ? memmem(text.data, text.size, part, strlen(part)) : NULL;
}

struct salvo_text probe_behind(struct salvo_text text, const char *place)
{
    return (struct salvo_text){place, (size_t)(text.data + text.size - place)};
}

static struct salvo_text text_of_prompt(const struct salvo_prompt *prompt)
{
    return prompt ? (struct salvo_text){prompt->text, prompt->size} : (struct salvo_text){0};
}

static enum salvo_status add(struct buffer *out, const char *text)
{
    return buffer_append(out, text, strlen(text));
}

/* A call as OpenAI writes it. */
static enum salvo_status add_call(
    struct buffer *out, struct probe_style style, const char *number, const char *arguments)
{
    enum salvo_status status = SALVO_OK;
    char head[200];
    snprintf(head, sizeof head,
        "{\"id\":\"%s%s%s%s\",\"type\":\"function\",\"function\":{\"name\":\"toolname%s\",\"arguments\":",
        style.id_has_name ? "functions.toolname" : "callid00", number, style.id_has_name ? ":" : "",
        style.id_has_name ? number : "", number);
    TRY(add(out, head));
    if (style.arguments_are_text) {
        TRY(add(out, "\""));
        for (const char *c = arguments; *c; c++) {
            if (*c == '"')
                TRY(add(out, "\\"));
            TRY(buffer_append(out, c, 1));
        }
        TRY(add(out, "\""));
    } else {
        TRY(add(out, arguments));
    }
    TRY(add(out, "}}"));
cleanup:
    return status;
}

enum salvo_status probe_calls(const struct probe *probe, struct probe_style style, const char *first,
    const char *second, struct salvo_prompt **out)
{
    enum salvo_status status = SALVO_OK;
    struct buffer json = {0};
    *out = NULL;
    TRY(add(&json, style.content_is_null ? "{\"content\":null,\"tool_calls\":[" : "{\"tool_calls\":["));
    TRY(add_call(&json, style, "0", first));
    if (second) {
        TRY(add(&json, ","));
        TRY(add_call(&json, style, "1", second));
    }
    TRY(add(&json, "]}"));
    TRY(buffer_append(&json, "", 1));
    TRY(render(probe, NULL, json.data, out));
cleanup:
    buffer_free(&json);
    return status;
}

bool tool_prompt_thinks(struct salvo_text prompt, const char *think_begin)
{
    const size_t size = strlen(think_begin);
    while (prompt.size && tool_is_space(prompt.data[prompt.size - 1]))
        prompt.size--;
    return size && prompt.size >= size && memcmp(prompt.data + prompt.size - size, think_begin, size) == 0;
}

/* Reasoning parts have the first of these pairs that the template writes for reasoning, or the first of all.
 */
static enum salvo_status find_thoughts(struct probe *probe)
{
    static const char *const pairs[][2] = {{"<think>", "</think>"}, {"[THINK]", "[/THINK]"},
        {"<|START_THINKING|>", "<|END_THINKING|>"}, {"<seed:think>", "</seed:think>"}};
    enum salvo_status status = SALVO_OK;
    struct salvo_prompt *thoughts = NULL, *call = NULL;
    TRY(probe_calls(probe, (struct probe_style){0}, "{\"argkey0\":\"argvalue0\"}", NULL, &call));
    TRY(render(probe, "answer0",
        "{\"reasoning_content\":\"thought0\",\"reasoning\":\"thought0\",\"thinking\":\"thought0\"}",
        &thoughts));
    const struct salvo_text written = text_of_prompt(thoughts), called = text_of_prompt(call),
                            asked = text_of_prompt(probe->question);
    probe->think_begin = pairs[0][0];
    probe->think_end = pairs[0][1];
    for (size_t i = sizeof pairs / sizeof *pairs; i-- > 0;) {
        if (probe_find(written, pairs[i][0]) || probe_find(called, pairs[i][0]) ||
            probe_find(asked, pairs[i][0])) {
            probe->think_begin = pairs[i][0];
            probe->think_end = pairs[i][1];
        }
    }
    probe->begins_thinking = tool_prompt_thinks(asked, probe->think_begin);
cleanup:
    salvo_free(thoughts);
    salvo_free(call);
    return status;
}

enum salvo_status probe_open(struct probe *probe)
{
    enum salvo_status status = SALVO_OK;
    TRY(render(probe, NULL, NULL, &probe->question));
    TRY(render(probe, "answer0", NULL, &probe->answer));
    probe->lists_tools = probe_find(text_of_prompt(probe->question), "toolname0") != NULL;
    TRY(find_thoughts(probe));
cleanup:
    return status;
}

void probe_close(struct probe *probe)
{
    salvo_free(probe->question);
    salvo_free(probe->answer);
}

struct salvo_text probe_answer(const struct probe *probe, const struct salvo_prompt *rendering)
{
    const struct salvo_text text = text_of_prompt(rendering), asked = text_of_prompt(probe->question);
    if (!text.size || !asked.size)
        return (struct salvo_text){0};
    size_t size = text_common_prefix(text, asked);
    /* Both may go on with tags that begin alike. */
    size_t tag = size;
    while (tag > 0 && size - tag < 24 && text.data[tag - 1] != '<' && text.data[tag - 1] != '>')
        tag--;
    if (tag > 0 && tag <= size && text.data[tag - 1] == '<')
        size = tag - 1;
    struct salvo_text answer = probe_behind(text, text.data + size);
    /* A tag that ends the question begins the answer elsewhere in the conversation. */
    size_t last = asked.size;
    while (last && asked.data[last - 1] != '<')
        last--;
    const size_t length = last ? asked.size - last + 1 : 0;
    if (length && length <= answer.size && memcmp(answer.data, asked.data + last - 1, length) == 0)
        answer = probe_behind(answer, answer.data + length);
    /* An empty reasoning part is no part of calls. */
    const char *thought = probe_find(answer, probe->think_end), *name = probe_find(answer, "toolname0");
    if (thought && name && thought < name)
        answer = probe_behind(answer, thought + strlen(probe->think_end));
    return answer;
}

/* The size of the ending that both texts have, from a tag on. */
static size_t common_end(struct salvo_text left, struct salvo_text right)
{
    size_t size = 0;
    while (size < left.size && size < right.size &&
           left.data[left.size - 1 - size] == right.data[right.size - 1 - size])
        size++;
    while (size && left.data[left.size - size] != '<' && left.data[left.size - size] != '[' &&
           !(size == left.size || size == right.size))
        size--;
    return size;
}

const char *probe_end(const struct probe *probe, struct salvo_text tail)
{
    static const char sentence[] = "<\xef\xbd\x9c"
                                   "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>";
    static const char *const ends[] = {"<|call|>", "<|calls|>", "<|eom_id|>", "<|eot_id|>", "<|im_end|>",
        "</s>", "<|end|>", "<|endoftext|>", "<|END_OF_TURN_TOKEN|>", "<|tool_response>", sentence};
    const struct salvo_text plain = text_of_prompt(probe->answer);
    const char *answer = probe_find(plain, "answer0"), *last = tail.data + tail.size;
    if (answer)
        last -= common_end(tail, probe_behind(plain, answer + strlen("answer0")));
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const char *found = probe_find(tail, ends[i]);
        last = found && found < last ? found : last;
    }
    last = tail.data +
           chat_template_before_end(probe->chat, (struct salvo_text){tail.data, (size_t)(last - tail.data)});
    while (last > tail.data && tool_is_space(last[-1]))
        last--;
    return last;
}

enum salvo_status probe_keep(struct buffer *out, const char *begin, const char *end)
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

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

void probe_number(struct buffer *first, const struct buffer *second)
{
    for (size_t i = 0; first->size == second->size && i < first->size; i++) {
        if (first->data[i] != second->data[i] && is_digit(first->data[i]) && is_digit(second->data[i]))
            first->data[i] = (char)TOOL_NUMBER;
    }
}

void probe_number_ends(struct buffer *first, struct buffer *second)
{
    for (size_t i = 1; i <= first->size && i <= second->size; i++) {
        char *left = first->data + first->size - i, *right = second->data + second->size - i;
        if (*left != *right && !(is_digit(*left) && is_digit(*right)))
            return;
        if (*left != *right)
            *left = *right = (char)TOOL_NUMBER;
    }
}

enum salvo_status probe_marker(const struct probe *probe, struct salvo_tool_form *form, bool *out_found)
{
    enum salvo_status status = SALVO_OK;
    const struct buffer *before = &form->texts[TEXT_BEFORE];
    struct buffer *marker = &form->texts[TEXT_MARKER];
    struct salvo_text text = {before->data, before->size};
    const struct salvo_text plain = text_of_prompt(probe->answer), asked = text_of_prompt(probe->question);
    *out_found = false;
    while (text.size && tool_is_space(text.data[text.size - 1]))
        text.size--;
    while (text.size && tool_is_space(text.data[0]))
        text = probe_behind(text, text.data + 1);
    for (size_t i = 0; i < text.size; i++) { /* ids and numbers are different in each call */
        if (text.data[i] == TOOL_ID || text.data[i] == TOOL_NUMBER)
            text.size = i;
    }
    if (!text.size)
        return SALVO_OK;
    const bool is_tag = text.data[0] == '<' || text.data[0] == '[';
    const char close = text.data[0] == '<' ? '>' : ']';
    const struct salvo_text answer =
        plain.size > asked.size ? probe_behind(plain, plain.data + asked.size) : (struct salvo_text){0};
    for (const char *end = text.data; is_tag && end;) {
        end = memchr(end, close, (size_t)(text.data + text.size - end));
        if (!end)
            break;
        end++;
        marker->size = 0;
        TRY(buffer_append(marker, text.data, (size_t)(end - text.data)));
        TRY(buffer_append(marker, "", 1));
        *out_found = !probe_find(answer, marker->data);
        marker->size--;
        if (*out_found)
            goto cleanup;
    }
    TRY(probe_keep(marker, text.data, text.data + text.size));
    *out_found = true;
cleanup:
    return status;
}
