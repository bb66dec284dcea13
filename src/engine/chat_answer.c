/* Answers by a session: brings the session to the prompt and generates. */
#include "base/clock.h"
#include "base/memory.h"
#include "engine/arguments.h"
#include "engine/chat.h"
#include "engine/session.h"

#include <salvo/memory.h>

struct work {
    struct salvo_chat *chat;
    struct salvo_session *session;
    const struct salvo_answer_options *options;
    struct salvo_answer *answer;
    struct message_list said; /* the messages that are answered */
    struct token_list wanted; /* tokens before generation goes on: the prompt, and the answer so far */
    const char **stop_strings;
    struct salvo_text_filter *filter;
    struct buffer text;       /* the answer */
    bool stopped;             /* by a stop string */
    enum salvo_status failed; /* in the callback */
};

static uint64_t tokens_computed(const struct salvo_session *session)
{
    const struct salvo_engine *engine = session->engine;
    return engine->backend->counters(engine->executor).tokens;
}

static double seconds_since(uint64_t start)
{
    return (double)(clock_ns() - start) * 1e-9;
}

/* Keeps the common prefix of the session's tokens and the wanted tokens, or begins with a prefix of the
 * prefix cache if that is longer. */
static enum salvo_status keep_common(struct work *work)
{
    struct salvo_session *session = work->session;
    struct prefix_cache *cache = &session->engine->prefix_cache;
    const struct token_list *wanted = &work->wanted;
    const uint32_t last = (uint32_t)wanted->count - 1; /* it is computed in any case, for its logits */
    uint32_t common = 0;
    while (common < session->position && common < last && session->tokens[common] == wanted->ids[common])
        common++;
    if (cache->is_on && prefix_cache_peek(cache, wanted->ids, last) > common)
        return salvo_session_prefill_cached(session, wanted->ids, wanted->count, &common);
    return salvo_session_rollback(session, common);
}

/* Brings the session to the wanted tokens. The marks make it cheap to return to the end of the last message,
 * and to answer again. */
static enum salvo_status feed(struct work *work)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_session *session = work->session;
    const struct token_list *wanted = &work->wanted;
    const uint64_t start = clock_ns(), before = tokens_computed(session);
    TRY(keep_common(work));
    TRY(salvo_session_mark(session));
    const uint32_t kept = salvo_session_position(session);
    if (kept + 1 < wanted->count) {
        TRY(salvo_session_feed(session, wanted->ids + kept, wanted->count - 1 - kept));
        TRY(salvo_session_mark(session));
    }
    TRY(salvo_session_feed(session, wanted->ids + wanted->count - 1, 1));
cleanup:
    work->answer->prompt_seconds += seconds_since(start);
    const uint64_t computed = tokens_computed(session) - before;
    work->answer->computed += computed;
    if (status == SALVO_OK)
        work->answer->reused += wanted->count > computed ? wanted->count - computed : 0;
    return status;
}

/* Passes text on. False if it stops the answer. */
static bool write_text(struct work *work, struct salvo_text text)
{
    const struct salvo_answer_options *options = work->options;
    if (text.size == 0)
        return true;
    work->failed = buffer_append(&work->text, text.data, text.size);
    if (work->failed != SALVO_OK)
        return false;
    return !options->text || options->text(options->user, text.data, text.size);
}

/* A salvo_token_function. */
static bool on_token(void *user, int32_t id, const char *data, size_t size)
{
    struct work *work = user;
    const struct salvo_answer_options *options = work->options;
    struct salvo_text ready;
    const bool go_on = !options->token || options->token(options->user, id, data, size);
    work->failed = salvo_text_filter_push(work->filter, data, size, &ready, &work->stopped);
    return work->failed == SALVO_OK && write_text(work, ready) && go_on && !work->stopped;
}

static enum salvo_status generate(struct work *work)
{
    struct salvo_answer *answer = work->answer;
    const uint32_t most = work->options->max_tokens;
    const struct salvo_stops *stops = salvo_chat_stops(work->chat);
    const struct salvo_generate_options options = {
        .size = sizeof options,
        .ahead = work->options->ahead,
        .max_tokens = most ? most - answer->tokens : 0,
        .stop_ids = stops->ids,
        .stop_id_count = stops->id_count,
        .token = on_token,
        .user = work,
    };
    struct salvo_generate_result result = SALVO_GENERATE_RESULT_INIT;
    const uint64_t start = clock_ns();
    enum salvo_status status = salvo_session_generate(work->session, &options, &result);
    answer->decode_seconds += seconds_since(start);
    answer->tokens += result.tokens;
    answer->finish = work->stopped ? SALVO_FINISH_STOP : result.finish;
    return status == SALVO_OK ? work->failed : status;
}

/* Removes turns after the context became full within the answer. *out_fits: the answer can go on. */
static enum salvo_status slide_on(struct work *work, bool *out_fits)
{
    enum salvo_status status = SALVO_OK;
    const struct salvo_session *session = work->session;
    const size_t turns = message_list_turns(&work->said);
    const struct token_list generated = {
        session->tokens + session->position - work->answer->tokens, work->answer->tokens};
    struct token_list prompt;
    *out_fits = false;
    if (work->answer->finish != SALVO_FINISH_CONTEXT || work->chat->on_full != SALVO_ON_FULL_SLIDE)
        goto cleanup;
    TRY(chat_slide(work->chat, &work->said, session->engine->options.context, generated, &prompt, out_fits));
    if (*out_fits) {
        memory_free(work->wanted.ids);
        work->wanted = prompt;
        work->answer->dropped += (uint32_t)(turns - message_list_turns(&work->said));
    }
cleanup:
    return status;
}

static enum salvo_status write_answer(struct work *work)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_text rest;
    bool goes_on;
    do {
        status = feed(work);
        if (status == SALVO_ERROR_CANCELLED) {
            work->answer->finish = SALVO_FINISH_CANCELLED;
            break;
        }
        TRY(status);
        TRY(generate(work));
        TRY(slide_on(work, &goes_on));
    } while (goes_on);
    /* The text held back as the possible beginning of a stop string. */
    TRY(salvo_text_filter_finish(work->filter, &rest));
    if (!write_text(work, rest))
        TRY(work->failed);
cleanup:
    return status;
}

/* The messages to answer, and the stop strings of the caller and of the template. */
static enum salvo_status begin(struct work *work)
{
    enum salvo_status status = SALVO_OK;
    const struct salvo_answer_options *options = work->options;
    const struct message_list *messages = &work->chat->messages;
    const struct salvo_stops *stops = salvo_chat_stops(work->chat);
    size_t count = messages->count;
    if (options->again) {
        const size_t question = message_list_question(messages);
        if (question + 1 >= count)
            TRY(fail(SALVO_ERROR_ARGUMENT, "there is no answer yet"));
        count = question + 1;
    }
    if (options->stop_count)
        REQUIRE(options->stop_strings);
    TRY(message_list_copy(messages->items, count, &work->said));
    TRY(NEW(&work->stop_strings, options->stop_count + stops->string_count));
    for (size_t i = 0; i < options->stop_count; i++)
        work->stop_strings[i] = options->stop_strings[i];
    for (size_t i = 0; i < stops->string_count; i++)
        work->stop_strings[options->stop_count + i] = stops->strings[i];
    TRY(salvo_text_filter_open(work->stop_strings, options->stop_count + stops->string_count, &work->filter));
cleanup:
    return status;
}

static enum salvo_status answer(struct work *work)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_chat *chat = work->chat;
    const struct salvo_session *session = work->session;
    TRY(begin(work));
    const size_t turns = message_list_turns(&work->said);
    TRY(chat_make_prompt(
        chat, &work->said, session->engine->options.context, (struct token_list){0}, &work->wanted));
    work->answer->dropped = (uint32_t)(turns - message_list_turns(&work->said));
    chat->has_leftovers = true; /* until the answer is added */
    status = write_answer(work);
    chat_hold(chat, session->tokens, session->position);
    TRY(status);
    if (work->text.size || work->answer->finish != SALVO_FINISH_CANCELLED) {
        const struct salvo_message said = {
            .role = "assistant", .content = {work->text.data, work->text.size}};
        TRY(message_list_insert(&work->said, work->said.count, &said));
        message_list_free(&chat->messages);
        chat->messages = work->said;
        work->said = (struct message_list){0};
        chat->has_leftovers = false;
        work->answer->kept = 1;
    } else {
        work->answer->dropped = 0;
    }
cleanup:
    return status;
}

enum salvo_status salvo_chat_answer(struct salvo_chat *chat, struct salvo_session *session,
    const struct salvo_answer_options *given, struct salvo_answer *out)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_answer_options options;
    struct salvo_answer result = SALVO_ANSWER_INIT;
    struct work work = {.chat = chat, .session = session, .options = &options, .answer = &result};
    if (out)
        TRY(result_write("salvo_answer", &result, sizeof result, out));
    REQUIRE(chat);
    REQUIRE(session);
    TRY(options_read("salvo_answer_options", given, sizeof options, &options));
    if (session->engine->model != chat->model)
        TRY(fail(SALVO_ERROR_ARGUMENT, "the session belongs to another model than the chat"));
    status = answer(&work);
    if (out)
        (void)result_write("salvo_answer", &result, sizeof result, out);
cleanup:
    message_list_free(&work.said);
    memory_free(work.wanted.ids);
    memory_free(work.stop_strings);
    salvo_text_filter_close(work.filter);
    buffer_free(&work.text);
    return status;
}
