#include "api_write.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void stream_append(struct api_stream *stream, const char *text)
{
    stream->failed = buffer_append(&stream->out, text, strlen(text)) != SALVO_OK || stream->failed;
}

struct json_writer api_event_begin(struct api_stream *stream, const char *name)
{
    if (name) {
        stream_append(stream, "event: ");
        stream_append(stream, name);
        stream_append(stream, "\n");
    }
    stream_append(stream, "data: ");
    stream->events++;
    return api_json(&stream->out);
}

void api_event_end(struct api_stream *stream, const struct json_writer *json)
{
    stream->failed = json->status != SALVO_OK || stream->failed;
    stream_append(stream, "\n\n");
}

void api_openai_error(struct api_stream *stream, const struct api_error *error)
{
    struct json_writer json = api_event_begin(stream, NULL);
    api_write_error(&json, error);
    api_event_end(stream, &json);
}

struct json_writer api_line_begin(struct api_stream *stream)
{
    return api_json(&stream->out);
}

void api_line_end(struct api_stream *stream, const struct json_writer *json)
{
    stream->failed = json->status != SALVO_OK || stream->failed;
    stream_append(stream, "\n");
}

struct salvo_text api_text_of(const struct buffer *buffer)
{
    return (struct salvo_text){buffer->size ? buffer->data : "", buffer->size};
}

void api_write_text(struct json_writer *json, const char *key, const char *text)
{
    json_key(json, key);
    if (text)
        json_string(json, text);
    else
        json_null(json);
}

void api_write_number(struct json_writer *json, const char *key, uint64_t number)
{
    json_key(json, key);
    json_unsigned(json, number);
}

void api_write_parsed(struct json_writer *json, struct salvo_text text)
{
    struct api_document document;
    struct api_error error;
    if (api_document_parse(text.data, text.size, &document, &error))
        api_write_value(json, document.root);
    else
        json_text(json, text);
    api_document_free(&document);
}

/* Whether the bytes are valid UTF-8. */
bool api_is_utf8(const char *text, size_t size)
{
    for (size_t i = 0; i < size;) {
        const unsigned char first = (unsigned char)text[i];
        const size_t length = first < 0x80   ? 1
                              : first < 0xC2 ? 0
                              : first < 0xE0 ? 2
                              : first < 0xF0 ? 3
                              : first < 0xF5 ? 4
                                             : 0;
        if (length == 0 || length > size - i)
            return false;
        for (size_t k = 1; k < length; k++) {
            const unsigned char next = (unsigned char)text[i + k];
            const unsigned char least = k > 1 ? 0x80 : first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
            const unsigned char most = k > 1 ? 0xBF : first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
            if (next < least || next > most)
                return false;
        }
        i += length;
    }
    return true;
}

void api_write_token_name(struct json_writer *json, struct salvo_model *model, int32_t id, bool is_key)
{
    char *bytes = NULL;
    size_t size = 0;
    if (salvo_token_text(model, id, &bytes, &size) != SALVO_OK)
        size = 0;
    json_string_begin(json);
    if (api_is_utf8(bytes, size)) {
        json_string_part(json, (struct salvo_text){bytes, size});
    } else {
        json_string_part(json, (struct salvo_text){"bytes:", 6});
        for (size_t i = 0; i < size; i++) {
            char escape[8];
            const int length = snprintf(escape, sizeof escape, "\\x%02x", (unsigned)(unsigned char)bytes[i]);
            json_string_part(json, (struct salvo_text){escape, (size_t)length});
        }
    }
    json_string_end(json, is_key);
    salvo_free(bytes);
}

/* JSON has no -infinity; OpenAI writes this number. */
static void write_logprob(struct json_writer *json, float logprob)
{
    if (isnan(logprob))
        json_null(json);
    else
        json_float(json, isinf(logprob) ? -9999.0 : (double)logprob, true);
}

/* Members id, token, bytes and logprob. */
static void write_token_members(
    struct json_writer *json, struct salvo_model *model, int32_t id, float logprob)
{
    char *bytes = NULL;
    size_t size = 0;
    if (salvo_token_text(model, id, &bytes, &size) != SALVO_OK)
        size = 0;
    json_key(json, "id");
    json_signed(json, id);
    json_key(json, "token");
    json_text(json, (struct salvo_text){bytes ? bytes : "", size});
    json_key(json, "bytes");
    json_begin(json, '[');
    for (size_t i = 0; bytes && i < size; i++)
        json_unsigned(json, (unsigned char)bytes[i]);
    json_end(json, ']');
    json_key(json, "logprob");
    write_logprob(json, logprob);
    salvo_free(bytes);
}

void api_write_token(struct json_writer *json, struct salvo_model *model, const struct api_token *token)
{
    json_begin(json, '{');
    write_token_members(json, model, token->id, token->logprob);
    json_key(json, "top_logprobs");
    json_begin(json, '[');
    for (uint32_t i = 0; i < token->top_count; i++) {
        if (token->top_ids[i] < 0)
            continue;
        json_begin(json, '{');
        write_token_members(json, model, token->top_ids[i], token->top_logprobs[i]);
        json_end(json, '}');
    }
    json_end(json, ']');
    json_end(json, '}');
}

void api_write_tokens(struct json_writer *json, struct salvo_model *model, const struct buffer *details)
{
    const struct api_token *tokens = (const struct api_token *)(const void *)details->data;
    json_begin(json, '[');
    for (size_t i = 0; i < details->size / sizeof *tokens; i++)
        api_write_token(json, model, &tokens[i]);
    json_end(json, ']');
}

void api_write_ids(struct json_writer *json, const struct buffer *ids)
{
    const int32_t *list = (const int32_t *)(const void *)ids->data;
    json_begin(json, '[');
    for (size_t i = 0; i < ids->size / sizeof *list; i++)
        json_signed(json, list[i]);
    json_end(json, ']');
}

static double per(double amount, double unit)
{
    return unit > 0 ? amount / unit : 0;
}

void api_write_timings(struct json_writer *json, const struct api_choice *choice)
{
    const double prompt_n = choice->prompt_tokens - (double)choice->cached_tokens, n = choice->tokens;
    /* A prompt that is only scored has no first token. */
    const double first = choice->tokens ? choice->first_seconds : choice->end_seconds;
    const double prompt_ms = fmax(first - choice->queue_seconds, 0) * 1e3;
    const double predicted_ms = fmax(choice->end_seconds - first, 0) * 1e3;
    const double steps = choice->tokens ? n - 1 : 0; /* the first token belongs to the prompt */
    const struct {
        const char *name;
        double value;
    } members[] = {
        {"cache_n", choice->cached_tokens},
        {"prompt_n", prompt_n},
        {"prompt_ms", prompt_ms},
        {"prompt_per_token_ms", per(prompt_ms, prompt_n)},
        {"prompt_per_second", per(prompt_n * 1e3, prompt_ms)},
        {"predicted_n", n},
        {"predicted_ms", predicted_ms},
        {"predicted_per_token_ms", per(predicted_ms, steps)},
        {"predicted_per_second", per(steps * 1e3, predicted_ms)},
    };
    json_key(json, "timings");
    json_begin(json, '{');
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        json_key(json, members[i].name);
        if (members[i].value == floor(members[i].value) && fabs(members[i].value) < 1e15)
            json_signed(json, (int64_t)members[i].value);
        else
            json_float(json, members[i].value, false);
    }
    json_end(json, '}');
}

void api_write_progress(struct json_writer *json, const struct api_choice *choice)
{
    json_key(json, "prompt_progress");
    json_begin(json, '{');
    api_write_number(json, "total", choice->prompt_tokens);
    api_write_number(json, "cache", choice->cached_tokens);
    api_write_number(json, "processed", choice->computed_tokens);
    json_key(json, "time_ms");
    json_float(json, fmax(choice->end_seconds - choice->queue_seconds, 0) * 1e3, false);
    json_end(json, '}');
}
