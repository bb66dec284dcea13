#include "api_choice.h"

#include <stdio.h>
#include <string.h>

bool api_choice_open(
    struct api_choice *choice, struct salvo_model *model, const char *const *stops, size_t stop_count)
{
    choice->model = model;
    choice->stops = stops;
    choice->stop_count = stop_count;
    choice->stop_word = "";
    choice->session = UINT32_MAX;
    return salvo_text_filter_open(stops, stop_count, &choice->filter) == SALVO_OK;
}

void api_choice_close(struct api_choice *choice)
{
    salvo_text_filter_close(choice->filter);
    salvo_grammar_matcher_free(choice->constraint.matcher);
    api_calls_close(&choice->calls);
    buffer_free(&choice->text);
    buffer_free(&choice->ids);
    buffer_free(&choice->all_ids);
    buffer_free(&choice->whole);
    buffer_free(&choice->details);
    buffer_free(&choice->held);
}

void api_choice_sent(struct api_choice *choice)
{
    choice->text.size = 0;
    choice->ids.size = 0;
    choice->details.size = 0;
    api_calls_sent(&choice->calls);
}

static size_t count_characters(const char *text, size_t size)
{
    size_t count = 0;
    for (size_t i = 0; i < size; i++)
        count += ((unsigned char)text[i] & 0xC0) != 0x80;
    return count;
}

static bool keep_details(struct api_choice *choice, const struct salvo_event *event)
{
    struct api_token token = {.id = event->id, .logprob = event->logprob, .offset = choice->characters};
    token.offset -= token.offset < choice->dropped ? token.offset : choice->dropped;
    token.top_count = event->top_count < SALVO_TOP_LOGPROBS ? event->top_count : SALVO_TOP_LOGPROBS;
    for (uint32_t i = 0; i < token.top_count; i++) {
        token.top_ids[i] = event->top_ids[i];
        token.top_logprobs[i] = event->top_logprobs[i];
    }
    return buffer_append(&choice->details, &token, sizeof token) == SALVO_OK;
}

static bool add_text(struct api_choice *choice, struct salvo_text text, bool last)
{
    if (text.size && memchr(text.data, '\n', text.size))
        choice->has_new_line = true;
    const size_t ready = text.size < choice->held.size ? text.size : choice->held.size;
    choice->held.size -= ready;
    if (ready)
        memmove(choice->held.data, choice->held.data + ready, choice->held.size);
    const size_t before = choice->text.size;
    if ((text.size || last) && !api_calls_take(&choice->calls, text, last, &choice->text))
        return false;
    const size_t more = choice->text.size - before;
    return !choice->keeps_text || !more ||
           buffer_append(&choice->whole, choice->text.data + before, more) == SALVO_OK;
}

/* The bytes held back begin with the stop string. */
static void find_stop_word(struct api_choice *choice)
{
    for (size_t i = 0; i < choice->stop_count; i++) {
        const size_t size = strlen(choice->stops[i]);
        if (size && size <= choice->held.size && memcmp(choice->held.data, choice->stops[i], size) == 0 &&
            size > strlen(choice->stop_word))
            choice->stop_word = choice->stops[i];
    }
}

static void take_numbers(struct api_choice *choice, const struct salvo_event *event)
{
    choice->prompt_tokens = event->prompt_tokens;
    choice->cached_tokens = event->cached_tokens;
    choice->queue_seconds = event->queue_seconds;
    choice->first_seconds = event->first_seconds;
    choice->end_seconds = event->end_seconds;
    choice->session = event->session;
}

/* The bytes of a token; a control token has none, unless it is a part of calls. */
static bool token_text(const struct api_choice *choice, int32_t id, char **out, size_t *out_size)
{
    if (!api_token_bytes(choice->model, id, out, out_size))
        return false;
    if (*out_size || !choice->calls.parser)
        return true;
    salvo_free(*out);
    if (salvo_token_text(choice->model, id, out, out_size) != SALVO_OK)
        return false;
    if (*out_size && !api_calls_has_token(&choice->calls, *out, *out_size))
        *out_size = 0;
    return true;
}

static bool take_token(struct api_choice *choice, const struct salvo_event *event)
{
    struct salvo_text ready = {0};
    char *bytes;
    size_t size;
    if (choice->stopped)
        return true; /* computed before the scheduler saw the cancel */
    if (!token_text(choice, event->id, &bytes, &size))
        return false;
    const bool is_prompt = event->kind == SALVO_EVENT_PROMPT;
    bool ok = !choice->wants_details || keep_details(choice, event);
    choice->characters += count_characters(bytes, size);
    if (ok && !is_prompt) {
        choice->tokens++;
        take_numbers(choice, event);
        ok = (!choice->keeps_ids ||
                 buffer_append(&choice->all_ids, &event->id, sizeof event->id) == SALVO_OK) &&
             buffer_append(&choice->ids, &event->id, sizeof event->id) == SALVO_OK &&
             (!size || buffer_append(&choice->held, bytes, size) == SALVO_OK) &&
             salvo_text_filter_push(choice->filter, bytes, size, &ready, &choice->stopped) == SALVO_OK &&
             add_text(choice, ready, choice->stopped);
    }
    salvo_free(bytes);
    if (choice->stopped)
        find_stop_word(choice);
    return ok;
}

static bool take_end(struct api_choice *choice, const struct salvo_event *event)
{
    struct salvo_text rest = {0};
    choice->ended = true;
    choice->status = choice->stopped ? SALVO_OK : event->status;
    choice->finish = choice->stopped ? SALVO_FINISH_STOP : event->finish;
    snprintf(choice->message, sizeof choice->message, "%s", event->message ? event->message : "");
    take_numbers(choice, event);
    if (choice->stopped)
        return true;
    return salvo_text_filter_finish(choice->filter, &rest) == SALVO_OK && add_text(choice, rest, true);
}

bool api_choice_take(struct api_choice *choice, const struct salvo_event *event)
{
    if (event->kind == SALVO_EVENT_PROGRESS) {
        take_numbers(choice, event);
        choice->computed_tokens = event->computed_tokens;
        return true;
    }
    return event->kind == SALVO_EVENT_END ? take_end(choice, event) : take_token(choice, event);
}

static bool has_call(const struct api_choice *choice)
{
    bool found = false;
    for (size_t i = 0; i < api_calls_count(&choice->calls); i++)
        found |= !api_calls_get(&choice->calls, i).is_cut;
    return found;
}

const char *api_choice_finish(const struct api_choice *choice)
{
    return choice->finish == SALVO_FINISH_LENGTH || choice->finish == SALVO_FINISH_CONTEXT ? "length"
           : has_call(choice)                                                              ? "tool_calls"
                                                                                           : "stop";
}

const char *api_choice_stop_type(const struct api_choice *choice)
{
    if (choice->finish == SALVO_FINISH_STOP)
        return "word";
    /* A grammar that is complete ends the answer by the callback. */
    return choice->finish == SALVO_FINISH_END || choice->finish == SALVO_FINISH_CALLBACK ? "eos" : "limit";
}
