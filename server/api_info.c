/* Endpoints that tell about the server and its models. */
#include "api_server.h"
#include "api_write.h"

#include <string.h>

void api_reply_json(struct api_server *server, struct http_exchange *exchange, const struct json_writer *json,
    struct buffer *out)
{
    struct api_error error;
    if (json->status == SALVO_OK) {
        api_reply(server, exchange, 200, out);
    } else {
        api_fail(&error, 503, NULL, "not enough memory for the answer");
        api_reply_error(server, exchange, &error);
    }
    buffer_free(out);
}

/* The model of "?model=", or the first one. NULL after a reply. */
static struct api_model *asked_model(struct api_server *server, struct http_exchange *exchange)
{
    char name[256];
    struct api_error error;
    const bool named = http_request_query(http_exchange_request(exchange), "model", name, sizeof name);
    struct api_model *model = api_find_model(server, named ? name : server->models[0].id, &error);
    if (!model)
        api_reply_error(server, exchange, &error);
    return model;
}

void api_get_health(struct api_server *server, struct http_exchange *exchange)
{
    static char ready[] = "{\"status\":\"ok\"}";
    struct api_error error;
    if (server->draining) {
        api_fail(&error, 503, NULL, "the server is stopping");
        error.retry_after = 1;
        api_reply_error(server, exchange, &error);
        return;
    }
    for (size_t i = 0; i < server->model_count; i++) {
        if (!api_find_model(server, server->models[i].id, &error)) {
            api_reply_error(server, exchange, &error);
            return;
        }
    }
    const struct buffer out = {ready, sizeof ready - 1, 0};
    api_reply(server, exchange, 200, &out);
}

static void write_model(
    struct json_writer *json, const struct api_server *server, const struct api_model *model)
{
    const struct salvo_model_info *info = salvo_model_info(model->model);
    json_begin(json, '{');
    json_key(json, "id");
    json_string(json, model->id);
    json_key(json, "object");
    json_string(json, "model");
    json_key(json, "created");
    json_signed(json, server->started);
    json_key(json, "owned_by");
    json_string(json, "salvo");
    json_key(json, "meta");
    json_begin(json, '{');
    json_key(json, "n_vocab");
    json_unsigned(json, info->vocabulary);
    json_key(json, "n_ctx_train");
    json_unsigned(json, info->context);
    json_key(json, "n_embd");
    json_unsigned(json, info->width);
    json_key(json, "n_params");
    json_unsigned(json, info->parameters);
    json_key(json, "size");
    json_unsigned(json, info->file_size);
    json_end(json, '}');
    json_end(json, '}');
}

void api_get_models(struct api_server *server, struct http_exchange *exchange)
{
    struct buffer out = {0};
    struct json_writer json = api_json(&out);
    json_begin(&json, '{');
    json_key(&json, "object");
    json_string(&json, "list");
    json_key(&json, "data");
    json_begin(&json, '[');
    for (size_t i = 0; i < server->model_count; i++)
        write_model(&json, server, &server->models[i]);
    json_end(&json, ']');
    json_end(&json, '}');
    api_reply_json(server, exchange, &json, &out);
}

void api_get_model(struct api_server *server, struct http_exchange *exchange)
{
    const char *name = strstr(http_exchange_request(exchange)->path, "/models/") + strlen("/models/");
    struct api_error error;
    for (size_t i = 0; i < server->model_count; i++) {
        if (strcmp(server->models[i].id, name) == 0) {
            struct buffer out = {0};
            struct json_writer json = api_json(&out);
            write_model(&json, server, &server->models[i]);
            api_reply_json(server, exchange, &json, &out);
            return;
        }
    }
    api_fail(&error, 404, "model", "there is no model '%.100s'; /v1/models lists them", name);
    api_reply_error(server, exchange, &error);
}

static void write_template(struct json_writer *json, const struct api_model *model)
{
    struct salvo_value value;
    const struct salvo_tool_form_info *form = salvo_tool_form_info(model->form);
    json_key(json, "tool_calls");
    json_begin(json, '{');
    json_key(json, "form");
    json_string(json, form->name);
    json_key(json, "described"); /* the prompt tells the model how to write calls */
    json_bool(json, form->described);
    json_key(json, "marker");
    json_string(json, form->marker);
    json_end(json, '}');
    json_key(json, "chat_template");
    if (model->template_text.size)
        json_text(json, model->template_text);
    else if (salvo_model_find(model->model, "tokenizer.chat_template", &value) && value.type == SALVO_STRING)
        json_text(json, value.text);
    else
        json_string(json, "");
}

/* The name of a token that the metadata gives by its id. */
static void write_named_token(
    struct json_writer *json, const struct api_model *model, const char *name, const char *key)
{
    struct salvo_value value;
    char *text = NULL;
    size_t size = 0;
    if (!salvo_model_find(model->model, key, &value) || value.u > INT32_MAX ||
        salvo_token_text(model->model, (int32_t)value.u, &text, &size) != SALVO_OK)
        size = 0;
    json_key(json, name);
    json_text(json, (struct salvo_text){text ? text : "", size});
    salvo_free(text);
}

void api_get_props(struct api_server *server, struct http_exchange *exchange)
{
    struct buffer out = {0};
    struct json_writer json = api_json(&out);
    const struct api_model *model = asked_model(server, exchange);
    if (!model)
        return;
    const struct salvo_engine_info *info = salvo_engine_info(model->engine);
    json_begin(&json, '{');
    json_key(&json, "default_generation_settings");
    json_begin(&json, '{');
    json_key(&json, "n_ctx");
    json_unsigned(&json, info->context);
    json_key(&json, "params");
    json_begin(&json, '{');
    api_write_settings(&json, &model->defaults.sampler, model->defaults.max_tokens);
    json_end(&json, '}');
    json_end(&json, '}');
    json_key(&json, "total_slots");
    json_unsigned(&json, info->sessions);
    json_key(&json, "model_alias");
    json_string(&json, model->id);
    json_key(&json, "model_path");
    json_string(&json, salvo_model_info(model->model)->path);
    json_key(&json, "modalities");
    json_raw(&json, "{\"vision\":false,\"audio\":false}");
    write_template(&json, model);
    write_named_token(&json, model, "bos_token", "tokenizer.ggml.bos_token_id");
    write_named_token(&json, model, "eos_token", "tokenizer.ggml.eos_token_id");
    json_key(&json, "build_info");
    json_string(&json, api_fingerprint());
    json_end(&json, '}');
    api_reply_json(server, exchange, &json, &out);
}

void api_get_adapters(struct api_server *server, struct http_exchange *exchange)
{
    static char none[] = "[]";
    const struct buffer out = {none, sizeof none - 1, 0};
    api_reply(server, exchange, 200, &out);
}

void api_get_slots(struct api_server *server, struct http_exchange *exchange)
{
    struct buffer out = {0};
    struct json_writer json = api_json(&out);
    uint64_t handles[64];
    struct api_error error;
    if (!server->slots) {
        api_fail(&error, 501, NULL, "the server was started with --no-slots");
        api_reply_error(server, exchange, &error);
        return;
    }
    const struct api_model *model = asked_model(server, exchange);
    if (!model)
        return;
    const struct salvo_engine_info *info = salvo_engine_info(model->engine);
    json_begin(&json, '[');
    for (uint32_t i = 0; i < info->sessions; i++) {
        const size_t place = i % (sizeof handles / sizeof *handles);
        if (place == 0)
            salvo_scheduler_sessions(model->scheduler, i, sizeof handles / sizeof *handles, handles);
        json_begin(&json, '{');
        json_key(&json, "id");
        json_unsigned(&json, i);
        json_key(&json, "n_ctx");
        json_unsigned(&json, info->context);
        json_key(&json, "speculative");
        json_bool(&json, false);
        json_key(&json, "is_processing");
        json_bool(&json, handles[place] != 0);
        if (handles[place]) {
            json_key(&json, "id_task");
            json_unsigned(&json, handles[place]);
        }
        json_end(&json, '}');
    }
    json_end(&json, ']');
    api_reply_json(server, exchange, &json, &out);
}
