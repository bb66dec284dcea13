#include "api_dialect.h"

#include <string.h>

static void key_float(struct json_writer *json, const char *key, float value)
{
    json_key(json, key);
    json_float(json, (double)value, true);
}

static void key_number(struct json_writer *json, const char *key, uint64_t value)
{
    json_key(json, key);
    json_unsigned(json, value);
}

void api_write_settings(struct json_writer *json, const struct salvo_sampler *sampler, int64_t max_tokens)
{
    json_key(json, "n_predict");
    json_signed(json, max_tokens);
    json_key(json, "max_tokens");
    json_signed(json, max_tokens);
    /* llama.cpp's name of a random seed is the largest number of 32 bits. */
    key_number(json, "seed", sampler->seed == SALVO_SEED_RANDOM ? UINT32_MAX : sampler->seed);
    key_float(json, "temperature", sampler->temperature);
    key_number(json, "top_k", sampler->top_k);
    key_float(json, "top_p", sampler->top_p);
    key_float(json, "min_p", sampler->min_p);
    key_number(json, "repeat_last_n", sampler->repeat_last_n);
    key_float(json, "repeat_penalty", sampler->repeat_penalty);
    key_float(json, "presence_penalty", sampler->presence_penalty);
    key_float(json, "frequency_penalty", sampler->frequency_penalty);
}

static void write_biases(struct json_writer *json, const struct api_prepared *prepared)
{
    json_key(json, "logit_bias");
    json_begin(json, '[');
    for (size_t i = 0; i < prepared->bias_count; i++) {
        json_begin(json, '{');
        json_key(json, "bias");
        json_float(json, (double)prepared->biases[i], true);
        json_key(json, "token");
        json_signed(json, prepared->bias_ids[i]);
        json_end(json, '}');
    }
    json_end(json, ']');
}

static void write_request_settings(struct json_writer *json, const struct api_answer *answer)
{
    const struct api_request *request = answer->request;
    json_key(json, "generation_settings");
    json_begin(json, '{');
    api_write_settings(json, &request->sampler, request->max_tokens);
    json_key(json, "stop");
    json_begin(json, '[');
    for (size_t i = 0; i < request->stop_count; i++)
        json_string(json, request->stops[i]);
    json_end(json, ']');
    json_key(json, "stream");
    json_bool(json, request->stream);
    json_key(json, "ignore_eos");
    json_bool(json, request->ignore_end);
    key_number(json, "n_probs", request->top_count);
    write_biases(json, answer->prepared);
    json_end(json, '}');
}

static void write_prompt(
    struct json_writer *json, const struct api_answer *answer, const struct api_choice *choice)
{
    const struct api_prompt *prompt = &answer->prepared->prompts[choice->prompt];
    char *text = NULL;
    size_t size = 0;
    if (salvo_detokenize(choice->model, prompt->ids, prompt->count, true, &text, &size) != SALVO_OK)
        size = 0;
    json_key(json, "prompt");
    json_text(json, (struct salvo_text){text ? text : "", size});
    salvo_free(text);
}

static void write_probabilities(struct json_writer *json, const struct api_choice *choice)
{
    if (!choice->wants_details)
        return;
    json_key(json, "completion_probabilities");
    api_write_tokens(json, choice->model, &choice->details);
}

static void write_text(struct json_writer *json, const struct api_choice *choice)
{
    json_key(json, "index");
    json_unsigned(json, choice->index);
    json_key(json, "content");
    json_text(json, (struct salvo_text){choice->text.size ? choice->text.data : "", choice->text.size});
}

static void write_part(struct json_writer *json, const struct api_answer *answer,
    const struct api_choice *choice, bool is_progress)
{
    json_begin(json, '{');
    write_text(json, choice);
    json_key(json, "tokens");
    api_write_ids(json, &choice->ids);
    json_key(json, "stop");
    json_bool(json, false);
    json_key(json, "id_slot");
    json_signed(json, choice->session == UINT32_MAX ? -1 : (int64_t)choice->session);
    key_number(json, "tokens_predicted", choice->tokens);
    key_number(json, "tokens_evaluated", choice->prompt_tokens);
    write_probabilities(json, choice);
    if (is_progress)
        api_write_progress(json, choice);
    else if (answer->request->timings_per_token)
        api_write_timings(json, choice);
    json_end(json, '}');
}

void api_write_llama_answer(
    struct json_writer *json, const struct api_answer *answer, const struct api_choice *choice)
{
    static const struct buffer none;
    const struct api_request *request = answer->request;
    json_begin(json, '{');
    write_text(json, choice);
    json_key(json, "tokens");
    api_write_ids(json, request->return_tokens && !request->stream ? &choice->ids : &none);
    json_key(json, "stop");
    json_bool(json, true);
    json_key(json, "id_slot");
    json_signed(json, choice->session == UINT32_MAX ? -1 : (int64_t)choice->session);
    json_key(json, "model");
    json_string(json, answer->model->id);
    key_number(json, "tokens_predicted", choice->tokens);
    key_number(json, "tokens_evaluated", choice->prompt_tokens);
    write_request_settings(json, answer);
    write_prompt(json, answer, choice);
    json_key(json, "has_new_line");
    json_bool(json, choice->has_new_line);
    json_key(json, "truncated");
    json_bool(json, choice->finish == SALVO_FINISH_CONTEXT);
    json_key(json, "stop_type");
    json_string(json, api_choice_stop_type(choice));
    json_key(json, "stopping_word");
    json_string(json, choice->stop_word);
    key_number(json, "tokens_cached", (uint64_t)choice->prompt_tokens + choice->tokens);
    if (!request->stream)
        write_probabilities(json, choice);
    api_write_timings(json, choice);
    json_end(json, '}');
}

/* The value at "generation_settings/n_predict". */
static const struct api_value *find_path(const struct api_value *value, struct salvo_text path)
{
    char name[64];
    while (value && path.size) {
        const char *slash = memchr(path.data, '/', path.size);
        const size_t size = slash ? (size_t)(slash - path.data) : path.size;
        if (size >= sizeof name)
            return NULL;
        memcpy(name, path.data, size);
        name[size] = 0;
        value = api_member(value, name);
        const size_t used = slash ? size + 1 : size;
        path = (struct salvo_text){path.data + used, path.size - used};
    }
    return value;
}

/* The members that `response_fields` names, by their paths; others are left out. */
static void write_fields(
    struct json_writer *json, const struct api_answer *answer, const struct api_choice *choice)
{
    struct buffer whole = {0};
    struct json_writer own = api_json(&whole);
    struct api_document document = {0};
    struct api_error error;
    api_write_llama_answer(&own, answer, choice);
    if (own.status != SALVO_OK || !api_document_parse(whole.data, whole.size, &document, &error))
        json->status = own.status != SALVO_OK ? own.status : SALVO_ERROR_MEMORY;
    json_begin(json, '{');
    for (const struct api_value *path = answer->request->response_fields->first; path && document.root;
         path = path->next) {
        const struct api_value *value = find_path(document.root, path->text);
        if (!value)
            continue;
        json_key_text(json, path->text);
        api_write_value(json, value);
    }
    json_end(json, '}');
    api_document_free(&document);
    buffer_free(&whole);
}

static void write_last(
    struct json_writer *json, const struct api_answer *answer, const struct api_choice *choice)
{
    if (answer->request->response_fields)
        write_fields(json, answer, choice);
    else
        api_write_llama_answer(json, answer, choice);
}

/* One object for one prompt, a list for several. */
static void write_answer(struct json_writer *json, const struct api_answer *answer)
{
    if (answer->choice_count > 1)
        json_begin(json, '[');
    for (size_t i = 0; i < answer->choice_count; i++)
        write_last(json, answer, &answer->choices[i]);
    if (answer->choice_count > 1)
        json_end(json, ']');
}

static void write_object(struct api_stream *stream, const struct api_answer *answer, enum api_object object,
    const struct api_choice *choice, struct salvo_text echo)
{
    (void)echo;
    if (object == API_OBJECT_FIRST || object == API_OBJECT_END)
        return;
    struct json_writer json = api_event_begin(stream, NULL);
    if (object == API_OBJECT_LAST)
        write_last(&json, answer, choice);
    else
        write_part(&json, answer, choice, object == API_OBJECT_PROGRESS);
    api_event_end(stream, &json);
}

const struct api_dialect api_llama = {
    .id_prefix = "cmpl-",
    .stream_type = "text/event-stream",
    .silence = ": still here\n\n",
    .last_has_text = true,
    .read = api_read_openai,
    .write_answer = write_answer,
    .write_object = write_object,
    .write_error = api_openai_error,
};
