/* Endpoints of Ollama that tell about the server and its models. */
#include "api_ollama.h"
#include "api_prompt.h"
#include "api_server.h"
#include "api_tools.h"
#include "api_write.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Clients compare this with the versions of Ollama that have what they need, and expect three numbers. */
static const char ollama_version[] = "0.12.0";

/* FNV-1a. */
static uint64_t hash_text(uint64_t hash, const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash;
}

/* Ollama identifies a model by 64 hexadecimal digits. Here they follow from its name, size and kind. */
static void write_digest(struct json_writer *json, const struct api_model *model)
{
    const struct salvo_model_info *info = salvo_model_info(model->model);
    char text[65];
    for (unsigned i = 0; i < 4; i++) {
        uint64_t hash = hash_text(0xcbf29ce484222325u + i, info->name);
        hash = hash_text(hash, info->architecture) ^ info->file_size ^ info->parameters << 20;
        hash = hash_text(hash, info->file_type);
        snprintf(text + (size_t)16 * i, sizeof text - (size_t)16 * i, "%016" PRIx64, hash);
    }
    api_write_text(json, "digest", text);
}

/* "1.2B", "135M" */
static void write_parameters(struct json_writer *json, uint64_t count)
{
    static const struct {
        double unit;
        char name;
    } units[] = {{1e12, 'T'}, {1e9, 'B'}, {1e6, 'M'}, {1e3, 'K'}};
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, count);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        const double amount = (double)count / units[i].unit;
        if (amount >= 1) {
            snprintf(text, sizeof text, amount < 10 ? "%.1f%c" : "%.0f%c", amount, units[i].name);
            break;
        }
    }
    api_write_text(json, "parameter_size", text);
}

static void write_details(struct json_writer *json, const struct salvo_model_info *info)
{
    json_key(json, "details");
    json_begin(json, '{');
    api_write_text(json, "parent_model", "");
    api_write_text(json, "format", "gguf");
    api_write_text(json, "family", info->architecture);
    json_key(json, "families");
    json_begin(json, '[');
    json_string(json, info->architecture);
    json_end(json, ']');
    write_parameters(json, info->parameters);
    api_write_text(json, "quantization_level", info->file_type);
    json_end(json, '}');
}

/* Members of an open object. */
static void write_model(struct json_writer *json, const struct api_model *model)
{
    const struct salvo_model_info *info = salvo_model_info(model->model);
    api_write_text(json, "name", model->id);
    api_write_text(json, "model", model->id);
    api_write_number(json, "size", info->file_size);
    write_digest(json, model);
    write_details(json, info);
}

void api_get_version(struct api_server *server, struct http_exchange *exchange)
{
    struct buffer out = {0};
    struct json_writer json = api_json(&out);
    json_begin(&json, '{');
    api_write_text(&json, "version", ollama_version);
    json_end(&json, '}');
    api_reply_json(server, exchange, &json, &out);
}

/* Models that are loaded stay loaded: the end of the year 9999. */
static void write_running(struct json_writer *json, const struct api_model *model)
{
    const struct salvo_engine_info *info = salvo_engine_info(model->engine);
    api_write_text(json, "expires_at", "9999-12-31T23:59:59Z");
    api_write_number(
        json, "size_vram", strcmp(info->backend, "cpu") == 0 ? 0 : salvo_model_info(model->model)->file_size);
    api_write_number(json, "context_length", info->context);
}

static void reply_models(struct api_server *server, struct http_exchange *exchange, bool only_running)
{
    struct buffer out = {0};
    struct json_writer json = api_json(&out);
    json_begin(&json, '{');
    json_key(&json, "models");
    json_begin(&json, '[');
    for (size_t i = 0; i < server->model_count; i++) {
        const struct api_model *model = &server->models[i];
        if (only_running && atomic_load(&model->state) != API_MODEL_READY)
            continue;
        json_begin(&json, '{');
        write_model(&json, model);
        if (only_running)
            write_running(&json, model);
        else
            api_write_ollama_time(&json, "modified_at", server->started);
        json_end(&json, '}');
    }
    json_end(&json, ']');
    json_end(&json, '}');
    api_reply_json(server, exchange, &json, &out);
}

void api_get_tags(struct api_server *server, struct http_exchange *exchange)
{
    reply_models(server, exchange, false);
}

void api_get_running(struct api_server *server, struct http_exchange *exchange)
{
    reply_models(server, exchange, true);
}

static void write_value(struct json_writer *json, const struct salvo_value *value, bool verbose)
{
    struct salvo_value rest = *value, item;
    switch (value->type) {
    case SALVO_BOOL:
        json_bool(json, value->b);
        break;
    case SALVO_F32:
    case SALVO_F64:
        json_float(json, value->f, value->type == SALVO_F32);
        break;
    case SALVO_STRING:
        json_text(json, value->text);
        break;
    case SALVO_I8:
    case SALVO_I16:
    case SALVO_I32:
    case SALVO_I64:
        json_signed(json, value->i);
        break;
    case SALVO_ARRAY:
        if (!verbose) {
            json_null(json);
            break;
        }
        json_begin(json, '[');
        while (salvo_array_next(&rest, &item))
            write_value(json, &item, verbose);
        json_end(json, ']');
        break;
    default:
        json_unsigned(json, value->u);
    }
}

static void write_metadata(struct json_writer *json, struct salvo_model *model, bool verbose)
{
    struct salvo_text key;
    struct salvo_value value;
    json_key(json, "model_info");
    json_begin(json, '{');
    for (size_t i = 0; i < salvo_model_metadata_count(model); i++) {
        if (!salvo_model_metadata(model, i, &key, &value) ||
            (key.size == strlen("tokenizer.chat_template") &&
                memcmp(key.data, "tokenizer.chat_template", key.size) == 0))
            continue;
        json_key_text(json, key);
        write_value(json, &value, verbose);
    }
    api_write_number(json, "general.parameter_count", salvo_model_info(model)->parameters);
    json_end(json, '}');
}

void api_write_show(struct json_writer *json, const struct api_model *model, bool verbose, int64_t time)
{
    const struct salvo_model_info *info = salvo_model_info(model->model);
    struct salvo_value chat = {0};
    const bool has_chat =
        salvo_model_find(model->model, "tokenizer.chat_template", &chat) && chat.type == SALVO_STRING;
    json_begin(json, '{');
    api_write_text(json, "license", info->license);
    api_write_text(json, "modelfile", "");
    api_write_text(json, "parameters", "");
    json_key(json, "template");
    json_text(json, has_chat ? chat.text : (struct salvo_text){"", 0});
    write_details(json, info);
    write_metadata(json, model->model, verbose);
    json_key(json, "capabilities");
    json_begin(json, '[');
    json_string(json, "completion");
    json_string(json, "tools");
    const char *thoughts = salvo_tool_form_info(model->form)->think_begin;
    if (has_chat && *thoughts && memmem(chat.text.data, chat.text.size, thoughts, strlen(thoughts)))
        json_string(json, "thinking");
    if (api_has_infill(model->model))
        json_string(json, "insert");
    json_end(json, ']');
    api_write_ollama_time(json, "modified_at", time);
    json_end(json, '}');
}
