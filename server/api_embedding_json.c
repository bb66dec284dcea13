#include "api_embeddings.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Texts ---- */

static bool wrong_input(struct api_error *error)
{
    return api_fail(error, 400, "input",
        "'input': expected a string, an array of strings, token ids, or an array of arrays of token ids");
}

static bool read_text(
    struct api_model *model, struct salvo_text text, struct api_prompt *out, struct api_error *error)
{
    unsigned flags;
    int32_t *ids;
    enum salvo_status status = salvo_tokenize_default_flags(model->model, &flags);
    if (status == SALVO_OK)
        status = salvo_tokenize(
            model->model, text.data, text.size, flags | SALVO_TOKENIZE_SPECIAL, &ids, &out->count);
    if (status != SALVO_OK)
        return api_fail_library(error, status, salvo_error());
    out->ids = calloc(out->count + 1, sizeof *out->ids);
    if (out->ids && out->count)
        memcpy(out->ids, ids, out->count * sizeof *ids);
    salvo_free(ids);
    return out->ids || api_out_of_memory(error);
}

static bool read_ids(
    struct api_model *model, const struct api_value *list, struct api_prompt *out, struct api_error *error)
{
    const uint32_t vocabulary = salvo_model_info(model->model)->vocabulary;
    out->ids = calloc(list->count + 1, sizeof *out->ids);
    if (!out->ids)
        return api_out_of_memory(error);
    for (const struct api_value *item = list->first; item; item = item->next) {
        if (item->kind != JSON_INTEGER)
            return wrong_input(error);
        if (item->integer < 0 || item->integer >= vocabulary) {
            return api_fail(error, 400, "input",
                "'input': token %" PRId64 " is not in the vocabulary of %" PRIu32 " tokens", item->integer,
                vocabulary);
        }
        out->ids[out->count++] = (int32_t)item->integer;
    }
    return true;
}

static bool read_input(struct api_model *model, const struct api_value *value, size_t index,
    struct api_prompt *out, struct api_error *error)
{
    if (value->kind != JSON_STRING && value->kind != JSON_ARRAY_BEGIN)
        return wrong_input(error);
    const bool is_empty = value->kind == JSON_STRING ? value->text.size == 0 : value->count == 0;
    if (!is_empty && !(value->kind == JSON_STRING ? read_text(model, value->text, out, error)
                                                  : read_ids(model, value, out, error)))
        return false;
    if (out->count == 0)
        return api_fail(error, 400, "input", "'input': text %zu is empty", index + 1);
    return true;
}

bool api_embedding_request_fits(
    struct api_embedding_request *request, uint32_t context, struct api_error *error)
{
    for (size_t i = 0; i < request->count; i++) {
        const size_t count = request->inputs[i].count;
        if (count > context && request->truncate)
            request->inputs[i].count = context;
        if (count <= context || request->truncate)
            continue;
        api_fail(error, 400, "input",
            "'input': text %zu of %zu tokens exceeds the available context size of %" PRIu32 " tokens", i + 1,
            count, context);
        error->type = "exceed_context_size_error";
        error->n_prompt_tokens = count;
        error->n_ctx = context;
        return false;
    }
    return true;
}

/* Numbers are the token ids of one text; anything else in an array is a text of its own. */
static bool read_inputs(struct api_model *model, const struct api_value *input,
    struct api_embedding_request *out, struct api_error *error)
{
    const bool several =
        input->kind == JSON_ARRAY_BEGIN && input->count && input->first->kind != JSON_INTEGER;
    const size_t count = several ? input->count : 1;
    if (input->kind == JSON_ARRAY_BEGIN && input->count == 0)
        return wrong_input(error);
    if (count > API_MAX_INPUTS)
        return api_fail(
            error, 400, "input", "'input': %zu texts; expected at most %d", count, API_MAX_INPUTS);
    out->inputs = calloc(count, sizeof *out->inputs);
    if (!out->inputs)
        return api_out_of_memory(error);
    out->count = count;
    const struct api_value *value = several ? input->first : input;
    for (size_t i = 0; i < count; i++, value = value->next) {
        if (!read_input(model, value, i, &out->inputs[i], error))
            return false;
    }
    return true;
}

/* ---- Other members ---- */

static bool read_format(
    const struct api_value *root, struct api_embedding_request *out, struct api_error *error)
{
    const char *format = "float";
    if (!api_get_string(root, "encoding_format", &format, error))
        return false;
    out->base64 = strcmp(format, "base64") == 0;
    if (!out->base64 && strcmp(format, "float") != 0)
        return api_fail(error, 400, "encoding_format", "'encoding_format': expected \"float\" or \"base64\"");
    return true;
}

static bool read_numbers(
    const struct api_value *root, struct api_embedding_request *out, struct api_error *error)
{
    int64_t dimensions = out->width, norm = 2;
    if (!api_get_integer(root, "dimensions", 1, out->width, &dimensions, error) ||
        !api_get_integer(root, "embd_normalize", -1, INT32_MAX, &norm, error))
        return false;
    if (norm == 0)
        return api_fail(error, 400, "embd_normalize", "'embd_normalize': expected -1, 1, 2 or more");
    if (norm < 0 && dimensions < out->width)
        return api_fail(
            error, 400, "dimensions", "'dimensions': cannot be combined with 'embd_normalize' -1");
    out->dimensions = (uint32_t)dimensions;
    out->options.norm = norm == 2 ? SALVO_NORM_EUCLIDEAN : (int32_t)norm;
    return true;
}

bool api_embedding_request_read(struct api_model *model, const struct api_value *root,
    struct api_embedding_request *out, struct api_error *error)
{
    const struct api_value *input = api_member(root, "input"), *content = api_member(root, "content");
    out->width = salvo_model_info(model->model)->width;
    out->options = (struct salvo_embed_options)SALVO_EMBED_OPTIONS_INIT;
    if (!read_format(root, out, error) || !read_numbers(root, out, error))
        return false;
    if (out->form == API_EMBED_ONE) { /* as Ollama answers it: not normalised */
        input = api_member(root, "prompt");
        out->options.norm = -1;
        if (!input || input->kind != JSON_STRING)
            return api_fail(error, 400, "prompt", "'prompt': expected a string");
    }
    if (!input && content && out->form == API_EMBED_OPENAI)
        out->form = API_EMBED_LLAMA;
    if (!input && out->form == API_EMBED_LLAMA)
        input = content;
    if (!api_get_bool(root, "truncate", &out->truncate, error))
        return false;
    return input ? read_inputs(model, input, out, error) : wrong_input(error);
}

void api_embedding_request_free(struct api_embedding_request *request)
{
    for (size_t i = 0; i < request->count; i++)
        free(request->inputs[i].ids);
    free(request->inputs);
    *request = (struct api_embedding_request){0};
}

/* ---- Answers ---- */

/* Fits for a prefix of an embedding that was normalised as a whole. */
static double scale_of(const struct api_embedding_request *request, const float *values)
{
    const double power = request->options.norm == SALVO_NORM_EUCLIDEAN ? 2 : request->options.norm;
    double sum = 0;
    if (request->dimensions == request->width)
        return 1;
    for (uint32_t i = 0; i < request->dimensions; i++)
        sum += pow(fabs((double)values[i]), power);
    return sum > 0 ? 1 / pow(sum, 1 / power) : 1;
}

/* The bytes of the floats, the lowest first. */
static void write_base64(struct json_writer *json, const float *values, uint32_t count, double scale)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0, bit_count = 0;
    json_string_begin(json);
    for (uint32_t i = 0; i < 4 * count; i++) {
        const float value = (float)((double)values[i / 4] * scale);
        uint32_t word;
        memcpy(&word, &value, sizeof word);
        bits = bits << 8 | (word >> 8 * (i % 4) & 0xff);
        for (bit_count += 8; bit_count >= 6; bit_count -= 6)
            json_string_part(json, (struct salvo_text){&digits[bits >> (bit_count - 6) & 63], 1});
    }
    if (bit_count) {
        json_string_part(json, (struct salvo_text){&digits[bits << (6 - bit_count) & 63], 1});
        json_string_part(json, (struct salvo_text){"==", bit_count == 2 ? 2 : 1});
    }
    json_string_end(json, false);
}

static void write_embedding(
    struct json_writer *json, const struct api_embedding_request *request, const float *values)
{
    const double scale = scale_of(request, values);
    if (request->base64) {
        write_base64(json, values, request->dimensions, scale);
        return;
    }
    json_begin(json, '[');
    for (uint32_t i = 0; i < request->dimensions; i++)
        json_float(json, (double)(float)((double)values[i] * scale), true);
    json_end(json, ']');
}

static void write_items(
    struct json_writer *json, const struct api_embedding_request *request, const float *values)
{
    json_begin(json, '[');
    for (size_t i = 0; i < request->count; i++) {
        json_begin(json, '{');
        if (request->form != API_EMBED_LLAMA) {
            json_key(json, "object");
            json_string(json, "embedding");
        }
        json_key(json, "index");
        json_unsigned(json, i);
        json_key(json, "embedding");
        if (request->form == API_EMBED_LLAMA) /* a list of the rows, of which pooling leaves one */
            json_begin(json, '[');
        write_embedding(json, request, values + i * request->width);
        if (request->form == API_EMBED_LLAMA)
            json_end(json, ']');
        json_end(json, '}');
    }
    json_end(json, ']');
}

static void write_ollama(struct json_writer *json, const struct api_model *model,
    const struct api_embedding_request *request, const float *values, uint64_t tokens)
{
    json_begin(json, '{');
    if (request->form == API_EMBED_ONE) {
        json_key(json, "embedding");
        write_embedding(json, request, values);
        json_end(json, '}');
        return;
    }
    json_key(json, "model");
    json_string(json, model->id);
    json_key(json, "embeddings");
    json_begin(json, '[');
    for (size_t i = 0; i < request->count; i++)
        write_embedding(json, request, values + i * request->width);
    json_end(json, ']');
    json_key(json, "prompt_eval_count");
    json_unsigned(json, tokens);
    json_end(json, '}');
}

void api_write_embeddings(struct json_writer *json, const struct api_model *model,
    const struct api_embedding_request *request, const float *values)
{
    uint64_t tokens = 0;
    if (request->form == API_EMBED_LLAMA) {
        write_items(json, request, values);
        return;
    }
    for (size_t i = 0; i < request->count; i++)
        tokens += request->inputs[i].count;
    if (request->form == API_EMBED || request->form == API_EMBED_ONE) {
        write_ollama(json, model, request, values, tokens);
        return;
    }
    json_begin(json, '{');
    json_key(json, "object");
    json_string(json, "list");
    json_key(json, "data");
    write_items(json, request, values);
    json_key(json, "model");
    json_string(json, model->id);
    json_key(json, "usage");
    json_begin(json, '{');
    json_key(json, "prompt_tokens");
    json_unsigned(json, tokens);
    json_key(json, "total_tokens");
    json_unsigned(json, tokens);
    json_end(json, '}');
    json_end(json, '}');
}
