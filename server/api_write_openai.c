#include "api_dialect.h"

#include <math.h>
#include <stdio.h>

static bool is_chat(const struct api_answer *answer)
{
    return answer->request->style == API_CHAT;
}

const char *api_fingerprint(void)
{
    static const char text[] = "b" /* as llama.cpp's builds */ "0-salvo";
    return text;
}

static void write_head(struct json_writer *json, const struct api_answer *answer, bool chunk)
{
    const char *object = !is_chat(answer) ? "text_completion"
                         : chunk          ? "chat.completion.chunk"
                                          : "chat.completion";
    json_key(json, "id");
    json_string(json, answer->id);
    json_key(json, "object");
    json_string(json, object);
    json_key(json, "created");
    json_signed(json, answer->created);
    json_key(json, "model");
    json_string(json, answer->model->id);
    json_key(json, "system_fingerprint");
    json_string(json, api_fingerprint());
}

static void write_usage(struct json_writer *json, const struct api_answer *answer)
{
    uint64_t prompt = 0, cached = 0, tokens = 0;
    for (size_t i = 0; i < answer->choice_count; i++) {
        const struct api_choice *choice = &answer->choices[i];
        tokens += choice->tokens;
        if (i % answer->request->n)
            continue; /* a prompt counts once, whatever the number of its answers */
        prompt += choice->prompt_tokens;
        cached += choice->cached_tokens;
    }
    json_key(json, "usage");
    json_begin(json, '{');
    json_key(json, "prompt_tokens");
    json_unsigned(json, prompt);
    json_key(json, "completion_tokens");
    json_unsigned(json, tokens);
    json_key(json, "total_tokens");
    json_unsigned(json, prompt + tokens);
    json_key(json, "prompt_tokens_details");
    json_begin(json, '{');
    json_key(json, "cached_tokens");
    json_unsigned(json, cached);
    json_end(json, '}');
    json_end(json, '}');
}

/* The log-probabilities of text completions are parallel lists. */
static void write_lists(struct json_writer *json, const struct api_choice *choice, bool with_top)
{
    const struct api_token *tokens = (const struct api_token *)(const void *)choice->details.data;
    const size_t count = choice->details.size / sizeof *tokens;
    json_key(json, "tokens");
    json_begin(json, '[');
    for (size_t i = 0; i < count; i++)
        api_write_token_name(json, choice->model, tokens[i].id, false);
    json_end(json, ']');
    json_key(json, "token_logprobs");
    json_begin(json, '[');
    for (size_t i = 0; i < count; i++)
        json_float(json, isinf(tokens[i].logprob) ? -9999.0 : (double)tokens[i].logprob, true);
    json_end(json, ']');
    json_key(json, "top_logprobs");
    json_begin(json, '[');
    for (size_t i = 0; i < count && with_top; i++) {
        if (isnan(tokens[i].logprob)) {
            json_null(json);
            continue;
        }
        json_begin(json, '{');
        for (uint32_t k = 0; k < tokens[i].top_count; k++) {
            if (tokens[i].top_ids[k] < 0)
                continue;
            const float logprob = tokens[i].top_logprobs[k];
            api_write_token_name(json, choice->model, tokens[i].top_ids[k], true);
            json_float(json, isinf(logprob) ? -9999.0 : (double)logprob, true);
        }
        json_end(json, '}');
    }
    json_end(json, ']');
    json_key(json, "text_offset");
    json_begin(json, '[');
    for (size_t i = 0; i < count; i++)
        json_unsigned(json, tokens[i].offset);
    json_end(json, ']');
}

static void write_logprobs(
    struct json_writer *json, const struct api_answer *answer, const struct api_choice *choice)
{
    json_key(json, "logprobs");
    if (!answer->request->logprobs || !choice) {
        json_null(json);
        return;
    }
    json_begin(json, '{');
    if (!is_chat(answer))
        write_lists(json, choice, answer->request->top_count > 0);
    json_key(json, "content");
    api_write_tokens(json, choice->model, &choice->details);
    json_end(json, '}');
}

/* The text of a prompt, for `echo`. */
static void write_text(
    struct json_writer *json, const struct api_answer *answer, const struct api_choice *choice)
{
    const struct api_prompt *prompt = &answer->prepared->prompts[choice->prompt];
    char *echo = NULL;
    size_t size = 0;
    if (answer->request->echo &&
        salvo_detokenize(choice->model, prompt->ids, prompt->count, false, &echo, &size) != SALVO_OK)
        size = 0;
    json_string_begin(json);
    if (size)
        json_string_part(json, (struct salvo_text){echo, size});
    json_string_part(json, api_text_of(&choice->text));
    json_string_end(json, false);
    salvo_free(echo);
}

static void write_choice(
    struct json_writer *json, const struct api_answer *answer, const struct api_choice *choice)
{
    json_begin(json, '{');
    json_key(json, "index");
    json_unsigned(json, choice->index);
    if (is_chat(answer)) {
        json_key(json, "message");
        json_begin(json, '{');
        json_key(json, "role");
        json_string(json, "assistant");
        json_key(json, "content");
        if (choice->text.size || !api_calls_count(&choice->calls))
            json_text(json, api_text_of(&choice->text));
        else
            json_null(json);
        api_write_calls(json, &choice->calls, false);
        json_end(json, '}');
    } else {
        json_key(json, "text");
        write_text(json, answer, choice);
    }
    write_logprobs(json, answer, choice);
    json_key(json, "finish_reason");
    json_string(json, api_choice_finish(choice));
    json_end(json, '}');
}

static void write_verbose(
    struct json_writer *json, const struct api_answer *answer, const struct api_choice *choice)
{
    if (!answer->request->verbose || !is_chat(answer))
        return;
    json_key(json, "__verbose");
    api_write_llama_answer(json, answer, choice);
}

static void write_answer(struct json_writer *json, const struct api_answer *answer)
{
    json_begin(json, '{');
    write_head(json, answer, false);
    json_key(json, "choices");
    json_begin(json, '[');
    for (size_t i = 0; i < answer->choice_count; i++)
        write_choice(json, answer, &answer->choices[i]);
    json_end(json, ']');
    write_usage(json, answer);
    if (answer->both_forms) {
        json_key(json, "content");
        write_text(json, answer, &answer->choices[0]);
    }
    write_verbose(json, answer, &answer->choices[0]);
    if (answer->choice_count == 1)
        api_write_timings(json, &answer->choices[0]);
    json_end(json, '}');
}

/* ---- Streams ---- */

static void begin_chunk(
    struct json_writer *json, const struct api_answer *answer, const struct api_choice *choice)
{
    json_begin(json, '{');
    write_head(json, answer, true);
    json_key(json, "choices");
    json_begin(json, '[');
    json_begin(json, '{');
    json_key(json, "index");
    json_unsigned(json, choice->index);
}

static void end_chunk(
    struct json_writer *json, const struct api_choice *timed, const struct api_choice *in_progress)
{
    json_end(json, '}');
    json_end(json, ']');
    if (timed)
        api_write_timings(json, timed);
    if (in_progress)
        api_write_progress(json, in_progress);
    json_end(json, '}');
}

/* Before the first token. */
static void write_first(struct json_writer *json, const struct api_answer *answer,
    const struct api_choice *choice, bool is_progress)
{
    begin_chunk(json, answer, choice);
    if (is_chat(answer)) {
        json_key(json, "delta");
        json_begin(json, '{');
        json_key(json, "role");
        json_string(json, "assistant");
        json_key(json, "content");
        json_null(json);
        json_end(json, '}');
    } else {
        json_key(json, "text");
        json_string(json, "");
    }
    write_logprobs(json, answer, NULL);
    json_key(json, "finish_reason");
    json_null(json);
    end_chunk(json, NULL, is_progress ? choice : NULL);
}

static void write_part(struct json_writer *json, const struct api_answer *answer,
    const struct api_choice *choice, struct salvo_text echo)
{
    begin_chunk(json, answer, choice);
    if (is_chat(answer)) {
        json_key(json, "delta");
        json_begin(json, '{');
        if (choice->text.size || answer->request->logprobs) {
            json_key(json, "content");
            json_text(json, api_text_of(&choice->text));
        }
        api_write_calls(json, &choice->calls, true);
        json_end(json, '}');
    } else {
        json_key(json, "text");
        json_string_begin(json);
        if (echo.size)
            json_string_part(json, echo);
        json_string_part(json, api_text_of(&choice->text));
        json_string_end(json, false);
    }
    write_logprobs(json, answer, choice);
    json_key(json, "finish_reason");
    json_null(json);
    end_chunk(json, answer->request->timings_per_token ? choice : NULL, NULL);
}

static void write_last(
    struct json_writer *json, const struct api_answer *answer, const struct api_choice *choice)
{
    begin_chunk(json, answer, choice);
    if (is_chat(answer)) {
        json_key(json, "delta");
        json_begin(json, '{');
        json_end(json, '}');
    } else {
        json_key(json, "text");
        json_string(json, "");
    }
    write_logprobs(json, answer, NULL);
    json_key(json, "finish_reason");
    json_string(json, api_choice_finish(choice));
    const bool is_timed = !answer->request->include_usage || answer->request->timings_per_token;
    end_chunk(json, is_timed ? choice : NULL, NULL);
}

static void write_end(struct json_writer *json, const struct api_answer *answer)
{
    json_begin(json, '{');
    write_head(json, answer, true);
    json_key(json, "choices");
    json_begin(json, '[');
    json_end(json, ']');
    write_usage(json, answer);
    api_write_timings(json, &answer->choices[0]);
    json_end(json, '}');
}

static void write_object(struct api_stream *stream, const struct api_answer *answer, enum api_object object,
    const struct api_choice *choice, struct salvo_text echo)
{
    static const char done[] = "data: [DONE]\n\n";
    const bool is_end = object == API_OBJECT_END;
    if (object == API_OBJECT_FIRST && !is_chat(answer))
        return;
    if (!is_end || answer->request->include_usage) {
        struct json_writer json = api_event_begin(stream, NULL);
        if (object == API_OBJECT_FIRST || object == API_OBJECT_PROGRESS)
            write_first(&json, answer, choice, object == API_OBJECT_PROGRESS);
        else if (object == API_OBJECT_PART)
            write_part(&json, answer, choice, echo);
        else if (object == API_OBJECT_LAST)
            write_last(&json, answer, choice);
        else
            write_end(&json, answer);
        api_event_end(stream, &json);
    }
    if (is_end)
        stream->failed = buffer_append(&stream->out, done, sizeof done - 1) != SALVO_OK || stream->failed;
}

const struct api_dialect api_openai = {
    .id_prefix = "cmpl-",
    .stream_type = "text/event-stream",
    .calls_in_pieces = true,
    .silence = ": still here\n\n",
    .read = api_read_openai,
    .write_answer = write_answer,
    .write_object = write_object,
    .write_error = api_openai_error,
};
