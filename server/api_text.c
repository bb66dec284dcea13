/* Endpoints that need a model's tokenizer or template and no computing. */
#include "api_dialect.h"
#include "api_prompt.h"
#include "api_server.h"

#include <inttypes.h>
#include <stdlib.h>

struct text_task {
    struct api_task task; /* first */
    int number;           /* API_TOKENIZE, ... */
    struct buffer out;
};

static struct text_task *of_task(struct api_task *task)
{
    return (struct text_task *)(void *)task;
}

static void write_piece(struct json_writer *json, struct salvo_model *model, int32_t id)
{
    char *bytes = NULL;
    size_t size = 0;
    if (salvo_token_text(model, id, &bytes, &size) != SALVO_OK)
        size = 0;
    json_begin(json, '{');
    json_key(json, "id");
    json_signed(json, id);
    json_key(json, "piece");
    if (api_is_utf8(bytes, size)) {
        json_text(json, (struct salvo_text){bytes ? bytes : "", size});
    } else { /* a part of a character: its bytes */
        json_begin(json, '[');
        for (size_t i = 0; i < size; i++)
            json_unsigned(json, (unsigned char)bytes[i]);
        json_end(json, ']');
    }
    json_end(json, '}');
    salvo_free(bytes);
}

static bool tokenize(
    struct api_model *model, const struct api_value *root, struct json_writer *json, struct api_error *error)
{
    const struct api_value *content = api_member(root, "content");
    bool add_special = false, parse_special = true, with_pieces = false;
    unsigned flags;
    int32_t *ids;
    size_t count;
    if (!api_get_bool(root, "add_special", &add_special, error) ||
        !api_get_bool(root, "parse_special", &parse_special, error) ||
        !api_get_bool(root, "with_pieces", &with_pieces, error))
        return false;
    if (!content || content->kind != JSON_STRING)
        return api_fail(error, 400, "content", "'content': expected a string");
    enum salvo_status status = salvo_tokenize_default_flags(model->model, &flags);
    flags = (add_special ? flags : 0) | (parse_special ? SALVO_TOKENIZE_SPECIAL : 0);
    if (status == SALVO_OK)
        status = salvo_tokenize(model->model, content->text.data, content->text.size, flags, &ids, &count);
    if (status != SALVO_OK)
        return api_fail_library(error, status, salvo_error());
    json_begin(json, '{');
    json_key(json, "tokens");
    json_begin(json, '[');
    for (size_t i = 0; i < count; i++) {
        if (with_pieces)
            write_piece(json, model->model, ids[i]);
        else
            json_signed(json, ids[i]);
    }
    json_end(json, ']');
    json_end(json, '}');
    salvo_free(ids);
    return true;
}

static bool detokenize(
    struct api_model *model, const struct api_value *root, struct json_writer *json, struct api_error *error)
{
    const struct api_value *tokens = api_member(root, "tokens");
    const uint32_t vocabulary = salvo_model_info(model->model)->vocabulary;
    char *text = NULL;
    size_t size = 0, count = 0;
    if (!tokens || tokens->kind != JSON_ARRAY_BEGIN)
        return api_fail(error, 400, "tokens", "'tokens': expected an array of token ids");
    int32_t *ids = calloc(tokens->count + 1, sizeof *ids);
    if (!ids)
        return api_fail(error, 503, NULL, "not enough memory for the request");
    for (const struct api_value *item = tokens->first; item; item = item->next) {
        if (item->kind != JSON_INTEGER || item->integer < 0 || item->integer >= vocabulary) {
            free(ids);
            return api_fail(
                error, 400, "tokens", "'tokens': expected token ids from 0 to %" PRIu32, vocabulary - 1);
        }
        ids[count++] = (int32_t)item->integer;
    }
    enum salvo_status status = salvo_detokenize(model->model, ids, count, true, &text, &size);
    free(ids);
    if (status != SALVO_OK)
        return api_fail_library(error, status, salvo_error());
    json_begin(json, '{');
    json_key(json, "content");
    json_text(json, (struct salvo_text){text ? text : "", size});
    json_end(json, '}');
    salvo_free(text);
    return true;
}

static bool apply_template(
    struct api_model *model, const struct api_task *task, struct json_writer *json, struct api_error *error)
{
    struct api_request request;
    struct buffer text = {0};
    const bool ok =
        api_dialect_parse(task->body, task->body_size, API_TEMPLATE, &model->defaults, &request, error) &&
        api_render_text(model, &request, &text, error);
    if (ok) {
        json_begin(json, '{');
        json_key(json, "prompt");
        json_text(json, (struct salvo_text){text.size ? text.data : "", text.size});
        json_end(json, '}');
    }
    buffer_free(&text);
    api_request_free(&request);
    return ok;
}

static bool count_tokens(struct api_model *model, const struct api_task *task, enum api_style style,
    struct json_writer *json, struct api_error *error)
{
    struct api_request request;
    struct api_prepared prepared = {0};
    const bool ok =
        api_dialect_parse(task->body, task->body_size, style, &model->defaults, &request, error) &&
        api_prepare(model, &request, &prepared, error);
    if (ok) {
        json_begin(json, '{');
        if (style == API_RESPONSES)
            api_write_text(json, "object", "response.input_tokens");
        api_write_number(json, "input_tokens", prepared.prompts[0].count);
        json_end(json, '}');
    }
    api_prepared_free(&prepared);
    api_request_free(&request);
    return ok;
}

static bool show(const struct api_model *model, const struct api_task *task, const struct api_value *root,
    struct json_writer *json, struct api_error *error)
{
    bool verbose = false;
    if (!api_get_bool(root, "verbose", &verbose, error))
        return false;
    api_write_show(json, model, verbose, task->server->started);
    return true;
}

static bool answer(struct text_task *own, const struct api_value *root)
{
    struct api_task *task = &own->task;
    struct json_writer json = api_json(&own->out);
    const char *name = "";
    bool ok;
    if (root->kind != JSON_OBJECT_BEGIN)
        return api_fail(&task->error, 400, NULL, "the body: expected a JSON object");
    if ((own->number == API_SHOW && !api_get_string(root, "name", &name, &task->error)) ||
        !api_get_string(root, "model", &name, &task->error))
        return false;
    struct api_model *model = api_find_model(task->server, name, &task->error);
    if (!model)
        return false;
    if (own->number == API_TOKENIZE)
        ok = tokenize(model, root, &json, &task->error);
    else if (own->number == API_DETOKENIZE)
        ok = detokenize(model, root, &json, &task->error);
    else if (own->number == API_COUNT_TOKENS)
        ok = count_tokens(model, task, API_ANTHROPIC_COUNT, &json, &task->error);
    else if (own->number == API_COUNT_CHAT)
        ok = count_tokens(model, task, API_CHAT, &json, &task->error);
    else if (own->number == API_COUNT_RESPONSES)
        ok = count_tokens(model, task, API_RESPONSES, &json, &task->error);
    else if (own->number == API_RERANK)
        ok = api_fail(&task->error, 501, NULL, "reranking is not supported");
    else if (own->number == API_SHOW)
        ok = show(model, task, root, &json, &task->error);
    else
        ok = apply_template(model, task, &json, &task->error);
    if (ok && json.status != SALVO_OK)
        ok = api_fail(&task->error, 503, NULL, "not enough memory for the answer");
    return ok;
}

static void prepare(struct api_task *task)
{
    struct api_document document = {0};
    task->ok = api_document_parse(task->body, task->body_size, &document, &task->error) &&
               answer(of_task(task), document.root);
    api_document_free(&document);
}

static void ready(struct api_task *task)
{
    if (task->exchange && task->ok)
        api_reply(task->server, task->exchange, 200, &of_task(task)->out);
    else if (task->exchange)
        api_reply_error(task->server, task->exchange, &task->error);
    api_task_end(task);
}

static void destroy(struct api_task *task)
{
    buffer_free(&of_task(task)->out);
    free(task);
}

struct api_task *api_text_new(const struct api_route *route)
{
    struct text_task *own = calloc(1, sizeof *own);
    if (!own)
        return NULL;
    own->task.prepare = prepare;
    own->task.ready = ready;
    own->task.destroy = destroy;
    own->number = route->number;
    return &own->task;
}
