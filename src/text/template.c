#include "text/template.h"

#include "base/memory.h"
#include "text/jinja/builtins.h"
#include "text/jinja/json.h"

#include <string.h>

const struct template_limits template_limits = {(size_t)512 << 20, (size_t)64 << 20, 400 * 1000 * 1000};

/* Blank lines are removed from a message, because a blank line ends one. */
const char template_plain[] =
    "{%- for message in messages -%}"
    "{%- set content = (message.content | trim).split('\\n') | select | join('\\n') -%}"
    "{%- if message.role == 'assistant' -%}Assistant: {{ message.content | trim }}"
    "{%- elif message.role == 'user' -%}User: {{ content }}"
    "{%- else -%}{{ message.role | capitalize }}: {{ content }}"
    "{%- endif -%}{{ '\\n\\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}Assistant:{%- endif -%}";

struct template
{
    struct heap heap;
    struct node *body;
    struct string literals;
};

enum salvo_status template_open(const char *text, size_t size, struct template **out)
{
    enum salvo_status status = SALVO_OK;
    struct template *template = NULL;
    *out = NULL;
    TRY(NEW(&template, 1));
    template->heap.left = template_limits.memory;
    TRY(parse(&template->heap, text, size, &template->body, &template->literals));
    *out = template;

cleanup:
    if (status != SALVO_OK)
        template_close(template);
    return status;
}

void template_close(struct template *template)
{
    if (!template)
        return;
    arena_free(&template->heap.arena);
    memory_free(template);
}

enum salvo_status template_literals(const struct template *template, struct buffer *out)
{
    enum salvo_status status = SALVO_OK;
    for (size_t i = 0; i < template->literals.size; i++) {
        char bytes[4];
        TRY(buffer_append(out, bytes, char_encode(template->literals.chars[i], bytes)));
    }

cleanup:
    return status;
}

/* ---- Messages ---------------------------------------------------------------------------------------- */

const char *const template_roles[] = {"system", "developer", "user", "assistant", "tool", "function",
    "ipython", "model", "observation", "environment", "context", "documents", "tools", "human",
    "tool_response", NULL};

static enum salvo_status trust_role(struct interpreter *in, struct value *message)
{
    enum salvo_status status = SALVO_OK;
    struct value *role = message->kind == VALUE_DICT ? dict_find_name(message->dict, "role") : NULL;
    for (size_t i = 0; role && role->kind == VALUE_STRING && template_roles[i]; i++) {
        struct text text = {.heap = &in->heap};
        if (!string_is(role->string, template_roles[i]))
            continue;
        TRY(text_ascii(&text, template_roles[i], 0));
        *role = value_string(text_take(&text));
    }

cleanup:
    return status;
}

/* Joins a content that is a list of texts with line feeds; a list with other parts stays. */
static enum salvo_status join_parts(struct interpreter *in, const struct value *message)
{
    enum salvo_status status = SALVO_OK;
    struct text text = {.heap = &in->heap};
    struct value *content = message->kind == VALUE_DICT ? dict_find_name(message->dict, "content") : NULL;
    if (!content || content->kind != VALUE_LIST)
        goto cleanup;
    for (size_t i = 0; i < content->list->count; i++) {
        const struct value *part = &content->list->items[i];
        const struct value *words = part->kind == VALUE_DICT ? dict_find_name(part->dict, "text") : NULL;
        if (!words || words->kind != VALUE_STRING)
            goto cleanup;
        if (i)
            TRY(text_char(&text, '\n' | CHAR_DATA));
        TRY(text_string(&text, words->string));
    }
    *content = value_string(text_take(&text));

cleanup:
    return status;
}

static enum salvo_status add_message(
    struct interpreter *in, const struct salvo_message *message, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct text role = {.heap = &in->heap}, content = {.heap = &in->heap};
    struct value more;
    const char *role_text = message->role ? message->role : "";
    TRY(dict_new(&in->heap, 2, out));
    TRY(text_utf8(&role, role_text, strlen(role_text), CHAR_DATA));
    TRY(dict_set_name(in, out->dict, "role", value_string(text_take(&role))));
    TRY(text_utf8(&content, message->content.data, message->content.size, CHAR_DATA));
    TRY(dict_set_name(in, out->dict, "content", value_string(text_take(&content))));
    if (!message->json)
        goto cleanup;
    TRY(value_from_json(in, message->json, strlen(message->json), &more));
    if (more.kind != VALUE_DICT)
        TRY(fail(SALVO_ERROR_ARGUMENT, "the JSON of a message is not an object"));
    for (size_t i = 0; i < more.dict->count; i++)
        TRY(dict_set(in, out->dict, more.dict->pairs[i].key, more.dict->pairs[i].value));

cleanup:
    return status;
}

static enum salvo_status list_messages(
    struct interpreter *in, const struct salvo_conversation *conversation, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    TRY(list_new(&in->heap, LIST_LIST, conversation->message_count, out));
    for (size_t i = 0; i < conversation->message_count; i++) {
        TRY(add_message(in, &conversation->messages[i], &out->list->items[i]));
        out->list->count++;
    }

cleanup:
    return status;
}

/* ---- Variables --------------------------------------------------------------------------------------- */

/* The variables that transformers passes: special tokens of the vocabulary, then the request's variables,
 * which may replace them. */
static enum salvo_status make_variables(
    struct interpreter *in, const struct template_input *input, struct dict *variables)
{
    enum salvo_status status = SALVO_OK;
    const struct salvo_conversation *conversation = input->conversation;
    struct value request = {0}, messages, *given;
    for (size_t i = 0; i < input->word_count; i++) {
        struct text text = {.heap = &in->heap};
        TRY(text_utf8(&text, input->words[i].text.data, input->words[i].text.size, 0));
        TRY(dict_set_name(in, variables, input->words[i].name, value_string(text_take(&text))));
    }
    TRY(dict_set_name(in, variables, "tools", value_none()));
    TRY(dict_set_name(in, variables, "documents", value_none()));
    TRY(list_new(&in->heap, LIST_LIST, 0, &messages));
    TRY(dict_set_name(in, variables, "messages", messages));
    TRY(dict_set_name(
        in, variables, "add_generation_prompt", value_bool(!conversation->no_generation_prompt)));
    if (conversation->json.size)
        TRY(value_from_json(in, conversation->json.data, conversation->json.size, &request));
    if (request.kind == VALUE_LIST) {
        TRY(dict_set_name(in, variables, "messages", request));
    } else if (request.kind == VALUE_DICT) {
        if (!conversation->message_count && !dict_find_name(request.dict, "messages"))
            TRY(fail(SALVO_ERROR_ARGUMENT, "JSON: the object has no 'messages'"));
        for (size_t i = 0; i < request.dict->count; i++)
            TRY(dict_set(in, variables, request.dict->pairs[i].key, request.dict->pairs[i].value));
    } else if (conversation->json.size) {
        TRY(fail(SALVO_ERROR_ARGUMENT, "JSON: expected a list of messages or an object"));
    }
    if (conversation->message_count) {
        TRY(list_messages(in, conversation, &messages));
        TRY(dict_set_name(in, variables, "messages", messages));
    }
    given = dict_find_name(variables, "messages");
    if (given->kind != VALUE_LIST)
        TRY(fail(SALVO_ERROR_ARGUMENT, "'messages' is not a list"));
    for (size_t i = 0; i < given->list->count; i++) {
        TRY(trust_role(in, &given->list->items[i]));
        if (input->joins_parts)
            TRY(join_parts(in, &given->list->items[i]));
    }

cleanup:
    return status;
}

/* ---- Rendering --------------------------------------------------------------------------------------- */

void marked_text_free(struct marked_text *marked)
{
    buffer_free(&marked->text);
    buffer_free(&marked->marks);
}

static enum salvo_status encode(const struct text *text, size_t most, struct marked_text *out)
{
    enum salvo_status status = SALVO_OK;
    for (size_t i = 0; i < text->size; i++) {
        char bytes[4], mark = (text->chars[i] & CHAR_DATA) != 0, marks[4] = {mark, mark, mark, mark};
        size_t size = char_encode(text->chars[i], bytes);
        if (out->text.size + size > most)
            TRY(fail(SALVO_ERROR_FORMAT, "chat template: the output is longer than %zu bytes", most));
        TRY(buffer_append(&out->text, bytes, size));
        TRY(buffer_append(&out->marks, marks, size));
    }

cleanup:
    return status;
}

enum salvo_status template_render(
    const struct template *template, const struct template_input *input, struct marked_text *out)
{
    enum salvo_status status = SALVO_OK;
    const struct template_limits *limits = input->limits ? input->limits : &template_limits;
    struct interpreter in = {
        .heap = {.left = limits->memory}, .builtins = &builtin_tables, .work_left = limits->work};
    struct text output = {.heap = &in.heap};
    struct value variables;
    struct scope *given;
    *out = (struct marked_text){0};
    in.output = &output;
    TRY(dict_new(&in.heap, 16, &variables));
    TRY(make_variables(&in, input, variables.dict));
    TRY(scope_open(&in, NULL, &given));
    for (size_t i = 0; i < variables.dict->count; i++)
        TRY(scope_set(&in, given, variables.dict->pairs[i].key.string, variables.dict->pairs[i].value));
    TRY(scope_open(&in, given, &in.scope));
    TRY(run_body(&in, template->body));
    TRY(encode(&output, limits->output, out));

cleanup:
    arena_free(&in.heap.arena);
    if (status != SALVO_OK)
        marked_text_free(out);
    return status;
}
