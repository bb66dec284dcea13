/* Generation: appends tokens until the text ends. */
#include "engine/session.h"
#include "engine/text_filter.h"

const char *salvo_finish_name(uint32_t finish)
{
    static const char *const names[] = {
        [SALVO_FINISH_END] = "end",
        [SALVO_FINISH_STOP] = "stop",
        [SALVO_FINISH_LENGTH] = "length",
        [SALVO_FINISH_CONTEXT] = "context",
        [SALVO_FINISH_CALLBACK] = "callback",
        [SALVO_FINISH_CANCELLED] = "cancelled",
    };
    return finish < sizeof names / sizeof *names ? names[finish] : "";
}

struct generation {
    struct salvo_session *session;
    const struct salvo_generate_options *options;
    const struct tokenizer *tokenizer; /* NULL if neither text nor end tokens are needed */
    struct text_filter filter;
    struct salvo_generate_result result;
    int32_t stop_ids[MAX_STOP_IDS]; /* for the device; the host finds further ones, a little later */
    uint32_t stop_count, ahead;
};

/* False if the callback returned false. */
static bool hand_over(struct generation *generation, size_t size)
{
    const struct salvo_generate_options *options = generation->options;
    bool go_on = true;
    if (size && options->text)
        go_on = options->text(options->user, generation->filter.held.data, size);
    text_filter_drop(&generation->filter, size);
    return go_on;
}

static bool ends_text(const struct generation *generation, int32_t id)
{
    const struct salvo_generate_options *options = generation->options;
    for (size_t i = 0; i < options->stop_id_count; i++) {
        if (options->stop_ids[i] == id)
            return true;
    }
    return !options->ignore_end && tokenizer_is_end(generation->tokenizer, id);
}

static void find_end_ids(struct salvo_engine *engine, const struct tokenizer *tokenizer)
{
    for (uint32_t id = 0; id < engine->program->vocabulary && engine->end_id_count < MAX_STOP_IDS; id++) {
        if (tokenizer_is_end(tokenizer, (int32_t)id))
            engine->end_ids[engine->end_id_count++] = (int32_t)id;
    }
    engine->knows_end_ids = true;
}

static void list_stop_ids(struct generation *generation)
{
    struct salvo_engine *engine = generation->session->engine;
    const struct salvo_generate_options *options = generation->options;
    for (size_t i = 0; i < options->stop_id_count && generation->stop_count < MAX_STOP_IDS; i++)
        generation->stop_ids[generation->stop_count++] = options->stop_ids[i];
    if (options->ignore_end)
        return;
    if (!engine->knows_end_ids)
        find_end_ids(engine, generation->tokenizer);
    for (uint32_t i = 0; i < engine->end_id_count && generation->stop_count < MAX_STOP_IDS; i++)
        generation->stop_ids[generation->stop_count++] = engine->end_ids[i];
}

static struct ahead_limits limits_of(const struct generation *generation)
{
    const uint32_t most = generation->options->max_tokens,
                   context = generation->session->engine->options.context;
    const uint64_t end = (uint64_t)generation->session->position + most - generation->result.tokens;
    return (struct ahead_limits){
        .tokens = generation->ahead,
        .end = most && end < context ? (uint32_t)end : context,
        .stop_ids = generation->stop_ids,
        .stop_count = generation->stop_count,
    };
}

/* Ensures that an id is pending, unless the generation ends first. */
static enum salvo_status prepare_token(struct generation *generation, bool *out_finished)
{
    struct salvo_generate_result *result = &generation->result;
    uint32_t most = generation->options->max_tokens;
    *out_finished = true;
    if (most && result->tokens == most) {
        result->finish = SALVO_FINISH_LENGTH;
        return SALVO_OK;
    }
    if (session_take_cancel(generation->session)) {
        result->finish = SALVO_FINISH_CANCELLED;
        return SALVO_OK;
    }
    const struct ahead_limits limits = limits_of(generation);
    enum salvo_status status = ahead_sample(generation->session, &limits);
    if (status == SALVO_ERROR_CONTEXT || status == SALVO_ERROR_CANCELLED) {
        result->finish = status == SALVO_ERROR_CONTEXT ? SALVO_FINISH_CONTEXT : SALVO_FINISH_CANCELLED;
        return SALVO_OK;
    }
    result->finish = SALVO_FINISH_END;
    *out_finished = status == SALVO_OK && ends_text(generation, generation->session->pending);
    return status;
}

/* Appends the id and passes on the text that it completes. */
static enum salvo_status write_token(struct generation *generation, bool *out_finished)
{
    enum salvo_status status = SALVO_OK;
    const struct salvo_generate_options *options = generation->options;
    struct salvo_generate_result *result = &generation->result;
    size_t ready;
    int32_t id = session_take(generation->session);
    result->tokens++;
    *out_finished = false;
    if (!generation->tokenizer)
        goto cleanup;
    const struct buffer *held = &generation->filter.held;
    const size_t before = held->size;
    TRY(tokenizer_piece(generation->tokenizer, id, options->special, &generation->filter.held));
    TRY(gguf_check(model_gguf(generation->session->engine->model))); /* the piece is read from the file */
    const size_t size = held->size - before;
    if (options->token && !options->token(options->user, id, size ? held->data + before : "", size)) {
        result->finish = SALVO_FINISH_CALLBACK;
        *out_finished = true;
        goto cleanup;
    }
    bool stopped = text_filter_scan(&generation->filter, &ready);
    bool go_on = hand_over(generation, ready);
    if (stopped)
        generation->filter.held.size = 0;
    result->finish = stopped ? SALVO_FINISH_STOP : SALVO_FINISH_CALLBACK;
    *out_finished = stopped || !go_on;
cleanup:
    return status;
}

static enum salvo_status check_options(const struct salvo_generate_options *options)
{
    if (options->stop_id_count && !options->stop_ids)
        return fail(SALVO_ERROR_ARGUMENT, "the list of %zu stop ids is NULL", options->stop_id_count);
    if (options->stop_count && !options->stop_strings)
        return fail(SALVO_ERROR_ARGUMENT, "the list of %zu stop strings is NULL", options->stop_count);
    for (size_t i = 0; i < options->stop_count; i++) {
        if (!options->stop_strings[i])
            return fail(SALVO_ERROR_ARGUMENT, "stop string %zu of %zu is NULL", i + 1, options->stop_count);
    }
    return SALVO_OK;
}

enum salvo_status session_generate(struct salvo_session *session,
    const struct salvo_generate_options *options, struct salvo_generate_result *out)
{
    enum salvo_status status = SALVO_OK;
    struct generation generation = {
        .session = session,
        .options = options,
        .filter = {.stop_strings = options->stop_strings, .stop_count = options->stop_count},
    };
    const struct salvo_engine *engine = session->engine;
    const uint32_t usual = engine->backend->info(engine->executor).ahead;
    bool finished = false, had_next = false;
    generation.ahead = options->ahead ? options->ahead : usual ? usual : 1;
    TRY(check_options(options));
    if (options->text || options->token || options->stop_count || !options->ignore_end)
        TRY(model_tokenizer(engine->model, &generation.tokenizer));
    list_stop_ids(&generation);
    had_next = session->pending >= 0;
    for (;;) {
        TRY(prepare_token(&generation, &finished));
        if (finished)
            break;
        TRY(write_token(&generation, &finished));
        if (finished)
            break;
    }
    TRY(ahead_finish(session,
        generation.result.finish == SALVO_FINISH_END || (had_next && generation.result.tokens == 0)));
    /* The text held back as the possible beginning of a stop string, without an incomplete character. */
    if (generation.result.finish != SALVO_FINISH_CALLBACK &&
        !hand_over(&generation, text_filter_end(&generation.filter)))
        generation.result.finish = SALVO_FINISH_CALLBACK;

cleanup:
    if (status != SALVO_OK)
        (void)ahead_finish(session, had_next && generation.result.tokens == 0);
    buffer_free(&generation.filter.held);
    *out = generation.result;
    return status;
}
