#include "api_prompt.h"

#include "api_tools.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Messages ---- */

/* Parts are joined by `between`. */
static bool message_text(struct api_document *document, const struct api_value *content, const char *between,
    struct salvo_text *out)
{
    size_t size = 0;
    *out = (struct salvo_text){"", 0};
    if (!content)
        return true;
    if (content->kind == JSON_STRING) {
        *out = content->text;
        return true;
    }
    for (const struct api_value *part = content->first; part; part = part->next)
        size += api_member(part, "text")->text.size + strlen(between);
    char *text = api_document_take(document, size + 1);
    if (!text)
        return false;
    size = 0;
    for (const struct api_value *part = content->first; part; part = part->next) {
        const struct salvo_text piece = api_member(part, "text")->text;
        if (part != content->first) {
            memcpy(text + size, between, strlen(between));
            size += strlen(between);
        }
        memcpy(text + size, piece.data, piece.size);
        size += piece.size;
    }
    text[size] = 0;
    *out = (struct salvo_text){text, size};
    return true;
}

/* Copies a buffer to the document and frees it. */
static const char *keep_buffer(struct api_document *document, struct buffer *buffer)
{
    char *text = api_document_take(document, buffer->size + 1);
    if (text) {
        memcpy(text, buffer->data, buffer->size);
        text[buffer->size] = 0;
    }
    buffer_free(buffer);
    return text;
}

/* Members of a message beside role and content, as JSON; NULL in *out if there are none. */
static bool other_members(struct api_model *model, struct api_document *document,
    const struct api_value *message, const char **out, struct api_error *error)
{
    struct buffer buffer = {0};
    struct json_writer json = api_json(&buffer);
    size_t count = 0;
    *out = NULL;
    bool ok = api_tools_write_message(&json, model, message, &count, error);
    if (ok && count) {
        *out = json.status == SALVO_OK ? keep_buffer(document, &buffer) : NULL;
        ok = *out || api_out_of_memory(error);
    }
    buffer_free(&buffer);
    return ok;
}

/* The variables of the template: the request's variables, and its tools if the template writes them. Models
 * that can think do so unless the request says otherwise, as in llama-server. */
static bool read_variables(
    struct api_request *request, bool with_tools, struct salvo_text *out, struct api_error *error)
{
    const struct api_value *variables = request->template_variables;
    struct buffer buffer = {0};
    struct json_writer json = api_json(&buffer);
    json_begin(&json, '{');
    if (!variables || !api_member(variables, "enable_thinking")) {
        json_key(&json, "enable_thinking");
        json_bool(&json, true);
    }
    for (const struct api_value *member = variables ? variables->first : NULL; member;
         member = member->next) {
        json_key_text(&json, member->key);
        api_write_value(&json, member);
    }
    if (with_tools) {
        json_key(&json, "tools");
        api_write_value(&json, request->tools);
    }
    json_end(&json, '}');
    const size_t size = buffer.size;
    const char *text = json.status == SALVO_OK ? keep_buffer(&request->document, &buffer) : NULL;
    buffer_free(&buffer);
    *out = (struct salvo_text){text, size};
    return text || api_out_of_memory(error);
}

static bool read_conversation(struct api_model *model, struct api_request *request,
    struct salvo_conversation *out, struct api_error *error)
{
    struct api_document *document = &request->document;
    const bool described = request->tools && salvo_tool_form_info(model->form)->described;
    size_t count = request->messages->count - (request->continue_last ? 1 : 0);
    struct salvo_message *messages = api_document_take(document, (count + 2) * sizeof *messages),
                         *all = messages;
    const struct api_value *message = request->messages->first;
    *out = (struct salvo_conversation)SALVO_CONVERSATION_INIT;
    if (!messages)
        return api_out_of_memory(error);
    if (described && strcmp(api_member(message, "role")->text.data, "system") != 0) {
        *messages++ = (struct salvo_message){.role = "system", .content = {"", 0}};
        count++;
    }
    for (; message && messages < all + count; messages++, message = message->next) {
        messages->role = api_member(message, "role")->text.data;
        if (!message_text(document, api_member(message, "content"), "\n", &messages->content))
            return api_out_of_memory(error);
        if (!other_members(model, document, message, &messages->json, error) ||
            !api_tools_describe_message(model, document, message, messages, error))
            return false;
    }
    if (described && !api_tools_describe(model, request, all[0].content, &all[0].content, error))
        return false;
    out->messages = all;
    out->message_count = count;
    out->no_generation_prompt = request->no_generation_prompt;
    return read_variables(request, request->tools && !described, &out->json, error);
}

static bool template_failed(struct api_error *error, enum salvo_status status)
{
    if (status == SALVO_ERROR_MEMORY)
        return api_fail_library(error, status, salvo_error());
    return api_fail(error, 400, "messages", "'messages': %s", salvo_error());
}

/* The beginning of the answer that the last message gives. */
static bool last_text(struct api_request *request, struct salvo_text *out, struct api_error *error)
{
    const struct api_value *last = request->messages->first;
    *out = (struct salvo_text){"", 0};
    while (last->next)
        last = last->next;
    if (request->continue_last && !message_text(&request->document, api_member(last, "content"), "", out))
        return api_out_of_memory(error);
    return true;
}

bool api_render_text(
    struct api_model *model, struct api_request *request, struct buffer *out, struct api_error *error)
{
    struct salvo_conversation conversation;
    struct salvo_prompt *prompt;
    struct salvo_text rest;
    if (!read_conversation(model, request, &conversation, error) || !last_text(request, &rest, error))
        return false;
    enum salvo_status status = salvo_template_render(model->chat, &conversation, &prompt);
    if (status != SALVO_OK)
        return template_failed(error, status);
    const bool ok = buffer_append(out, prompt->text, prompt->size) == SALVO_OK &&
                    buffer_append(out, rest.data, rest.size) == SALVO_OK;
    salvo_free(prompt);
    return ok || api_out_of_memory(error);
}

/* ---- Tokens ---- */

/* Whether the prompt ends with the beginning of a reasoning part. */
static bool find_thinking(struct api_model *model, const struct api_prompt *prompt,
    struct api_request *request, struct api_error *error)
{
    enum { TOKENS = 24 }; /* enough for a tag in bytes, and white space */
    struct buffer text = {0};
    bool ok = true;
    for (size_t i = prompt->count > TOKENS ? prompt->count - TOKENS : 0; i < prompt->count && ok; i++) {
        char *bytes = NULL;
        size_t size = 0;
        ok = api_token_bytes(model->model, prompt->ids[i], &bytes, &size);
        if (ok && !size) {
            salvo_free(bytes);
            ok = salvo_token_text(model->model, prompt->ids[i], &bytes, &size) == SALVO_OK;
        }
        ok = ok && (!size || buffer_append(&text, bytes, size) == SALVO_OK);
        salvo_free(bytes);
    }
    request->thinking = salvo_tool_form_thinking(model->form, text.data, text.size);
    buffer_free(&text);
    return ok || api_out_of_memory(error);
}

/* Text that continues another one. Some tokenizers put a blank before a text: behind a newline they do not.
 */
static bool append_rest(
    struct api_model *model, struct salvo_text rest, struct api_prompt *prompt, struct api_error *error)
{
    struct buffer behind = {0};
    int32_t *line = NULL, *ids = NULL;
    size_t line_count = 0, count = 0;
    if (buffer_append(&behind, "\n", 1) != SALVO_OK ||
        buffer_append(&behind, rest.data, rest.size) != SALVO_OK ||
        salvo_tokenize(model->model, "\n", 1, 0, &line, &line_count) != SALVO_OK ||
        salvo_tokenize(model->model, behind.data, behind.size, 0, &ids, &count) != SALVO_OK)
        count = 0;
    const bool is_separate = count > line_count && memcmp(ids, line, line_count * sizeof *line) == 0;
    const bool ok = is_separate ? api_append_ids(prompt, ids + line_count, count - line_count, error)
                                : api_append_text(model, rest, 0, prompt, error);
    salvo_free(line);
    salvo_free(ids);
    buffer_free(&behind);
    return ok;
}

static bool read_chat(
    struct api_model *model, struct api_request *request, struct api_prompt *prompt, struct api_error *error)
{
    struct salvo_conversation conversation;
    struct salvo_text rest;
    int32_t *ids;
    size_t count;
    if (!read_conversation(model, request, &conversation, error) || !last_text(request, &rest, error))
        return false;
    enum salvo_status status = salvo_template_tokens(model->chat, &conversation, &ids, &count);
    if (status != SALVO_OK)
        return template_failed(error, status);
    bool ok = api_append_ids(prompt, ids, count, error);
    salvo_free(ids);
    if (ok && rest.size)
        ok = append_rest(model, rest, prompt, error);
    return ok && find_thinking(model, prompt, request, error);
}

static bool wrong_prompt(struct api_error *error)
{
    return api_fail(error, 400, "prompt", "'prompt': expected a string, token ids, or an array of these");
}

static bool append_id(struct api_model *model, const struct api_value *value, struct api_prompt *prompt,
    struct api_error *error)
{
    const uint32_t vocabulary = salvo_model_info(model->model)->vocabulary;
    if (value->kind != JSON_INTEGER)
        return wrong_prompt(error);
    if (value->integer < 0 || value->integer >= vocabulary) {
        return api_fail(error, 400, "prompt",
            "'prompt': token %" PRId64 " is not in the vocabulary of %" PRIu32 " tokens", value->integer,
            vocabulary);
    }
    const int32_t id = (int32_t)value->integer;
    return api_append_ids(prompt, &id, 1, error);
}

/* The text of "text" or of {"prompt_string": "text"}, NULL if it is neither. */
static const struct api_value *string_of(const struct api_value *value)
{
    const struct api_value *text = value->kind == JSON_STRING ? value : api_member(value, "prompt_string");
    const struct api_value *media = api_member(value, "multimodal_data");
    return text && text->kind == JSON_STRING && (!media || !media->count) ? text : NULL;
}

/* A string, or a list of ids and strings. Only a text at the beginning gets the beginning-of-text token. */
static bool read_text(struct api_model *model, const struct api_value *value, struct api_prompt *prompt,
    struct api_error *error)
{
    unsigned flags;
    enum salvo_status status = salvo_tokenize_default_flags(model->model, &flags);
    if (status != SALVO_OK)
        return api_fail_library(error, status, salvo_error());
    flags = (flags & ~(unsigned)SALVO_TOKENIZE_EOS) | SALVO_TOKENIZE_SPECIAL;
    const struct api_value *text = string_of(value);
    if (text)
        return api_append_text(model, text->text, flags, prompt, error);
    if (value->kind != JSON_ARRAY_BEGIN)
        return wrong_prompt(error);
    for (const struct api_value *item = value->first; item; item = item->next) {
        const bool ok = item->kind == JSON_STRING ? api_append_text(model, item->text, flags, prompt, error)
                                                  : append_id(model, item, prompt, error);
        if (!ok)
            return false;
        flags = SALVO_TOKENIZE_SPECIAL;
    }
    return true;
}

/* [1, 2, "text"] is one prompt; ["text", "text"] and [[1, 2], "text"] are several. */
static bool is_list_of_prompts(const struct api_value *value)
{
    if (value->kind != JSON_ARRAY_BEGIN || value->count == 0)
        return false;
    for (const struct api_value *item = value->first; item; item = item->next) {
        if (!string_of(item) && item->kind != JSON_ARRAY_BEGIN)
            return false;
    }
    return true;
}

static bool read_prompts(
    struct api_model *model, struct api_request *request, struct api_prepared *out, struct api_error *error)
{
    const bool is_chat = request->is_chat;
    const bool several = !is_chat && !request->is_infill && is_list_of_prompts(request->prompt);
    const size_t count = several ? request->prompt->count : 1;
    if (count * request->n > API_MAX_CHOICES) {
        return api_fail(error, 400, is_chat ? "n" : "prompt",
            "the request asks for %zu answers; expected at most %d", count * request->n,
            (int)API_MAX_CHOICES);
    }
    out->prompts = calloc(count, sizeof *out->prompts);
    if (!out->prompts)
        return api_out_of_memory(error);
    out->prompt_count = count;
    const struct api_value *value = several ? request->prompt->first : request->prompt;
    for (size_t i = 0; i < count; i++) {
        struct api_prompt *prompt = &out->prompts[i];
        const bool ok = is_chat              ? read_chat(model, request, prompt, error)
                        : request->is_infill ? api_read_infill(model, request, prompt, error)
                                             : read_text(model, value, prompt, error);
        if (!ok)
            return false;
        if (prompt->count == 0)
            return api_fail(error, 400, is_chat ? "messages" : "prompt", "'%s': the prompt has no tokens",
                is_chat ? "messages" : "prompt");
        value = several ? value->next : NULL;
    }
    return true;
}

/* ---- Biases ---- */

static bool add_bias(
    struct api_prepared *out, int64_t id, float bias, uint32_t vocabulary, struct api_error *error)
{
    if (id < 0 || id >= vocabulary) {
        return api_fail(error, 400, "logit_bias",
            "'logit_bias': token %" PRId64 " is not in the vocabulary of %" PRIu32 " tokens", id, vocabulary);
    }
    int32_t *ids = realloc(out->bias_ids, (out->bias_count + 1) * sizeof *ids);
    if (ids)
        out->bias_ids = ids;
    float *biases = realloc(out->biases, (out->bias_count + 1) * sizeof *biases);
    if (biases)
        out->biases = biases;
    if (!ids || !biases)
        return api_out_of_memory(error);
    ids[out->bias_count] = (int32_t)id;
    biases[out->bias_count++] = bias;
    return true;
}

/* A text means all its tokens. */
static bool add_text_bias(struct api_model *model, struct salvo_text text, float bias,
    struct api_prepared *out, struct api_error *error)
{
    const uint32_t vocabulary = salvo_model_info(model->model)->vocabulary;
    char *end;
    errno = 0;
    const long long id = strtoll(text.data, &end, 10);
    if (text.size && (size_t)(end - text.data) == text.size && !errno)
        return add_bias(out, id, bias, vocabulary, error);
    struct api_prompt tokens = {0};
    bool ok = api_append_text(model, text, 0, &tokens, error);
    for (size_t i = 0; ok && i < tokens.count; i++)
        ok = add_bias(out, tokens.ids[i], bias, vocabulary, error);
    free(tokens.ids);
    return ok;
}

static bool read_biases(
    struct api_model *model, const struct api_value *list, struct api_prepared *out, struct api_error *error)
{
    const uint32_t vocabulary = salvo_model_info(model->model)->vocabulary;
    for (const struct api_value *item = list ? list->first : NULL; item; item = item->next) {
        const bool is_pair = list->kind == JSON_ARRAY_BEGIN;
        const struct api_value *value = is_pair ? item->first->next : item;
        const float bias = value->kind == JSON_FALSE ? -INFINITY : (float)value->number;
        bool ok;
        if (is_pair && item->first->kind == JSON_INTEGER)
            ok = add_bias(out, item->first->integer, bias, vocabulary, error);
        else
            ok = add_text_bias(model, is_pair ? item->first->text : item->key, bias, out, error);
        if (!ok)
            return false;
    }
    return true;
}

bool api_prepare(
    struct api_model *model, struct api_request *request, struct api_prepared *out, struct api_error *error)
{
    *out = (struct api_prepared){0};
    for (size_t i = 0; i < request->stop_count; i++)
        out->stops[out->stop_count++] = request->stops[i];
    if (request->is_chat) {
        const struct salvo_stops *stops = salvo_template_stops(model->chat);
        for (size_t i = 0; i < stops->string_count && i < API_MAX_STOPS; i++)
            out->stops[out->stop_count++] = stops->strings[i];
        out->stop_ids = stops->ids;
        out->stop_id_count = stops->id_count;
    }
    return (request->only_load || read_prompts(model, request, out, error)) &&
           read_biases(model, request->logit_bias, out, error);
}

void api_prepared_free(struct api_prepared *prepared)
{
    for (size_t i = 0; i < prepared->prompt_count; i++)
        free(prepared->prompts[i].ids);
    free(prepared->prompts);
    free(prepared->bias_ids);
    free(prepared->biases);
    *prepared = (struct api_prepared){0};
}
