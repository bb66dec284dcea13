#include "engine/scheduler.h"

#include "base/memory.h"
#include "engine/arguments.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static enum salvo_status check_ids(
    const struct salvo_engine *engine, const char *what, const int32_t *ids, size_t count)
{
    const uint32_t vocabulary = engine->program->vocabulary;
    if (count && !ids)
        return fail(SALVO_ERROR_ARGUMENT, "the list of %zu %s is NULL", count, what);
    for (size_t i = 0; i < count; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= vocabulary)
            return fail(SALVO_ERROR_ARGUMENT,
                "%s: token id %" PRId32 " is outside the vocabulary of %" PRIu32, what, ids[i], vocabulary);
    }
    return SALVO_OK;
}

uint32_t request_most_positions(const struct salvo_engine *engine)
{
    const uint64_t paged = (uint64_t)engine->page_pool.count * PAGE_POSITIONS;
    const uint32_t context = engine->options.context;
    return engine->has_caches && paged < context ? (uint32_t)paged : context;
}

static enum salvo_status check_prompt(const struct salvo_engine *engine, const struct salvo_request *given)
{
    enum salvo_status status = SALVO_OK;
    const uint32_t context = engine->options.context;
    const bool answers = given->max_tokens != UINT32_MAX;
    if (given->count == 0)
        TRY(fail(SALVO_ERROR_ARGUMENT, "the prompt has no tokens"));
    if (given->count > context || given->count + answers > context)
        TRY(fail(SALVO_ERROR_CONTEXT, "a prompt of %zu tokens%s does not fit into the context of %" PRIu32,
            given->count, answers ? " and one of the answer" : "", context));
    if (given->count + answers > request_most_positions(engine)) {
        TRY(fail(SALVO_ERROR_CONTEXT,
            "a prompt of %zu tokens%s does not fit into the KV memory of %" PRIu32 " tokens", given->count,
            answers ? " and one of the answer" : "", request_most_positions(engine)));
    }
    TRY(check_ids(engine, "tokens of the prompt", given->ids, given->count));
cleanup:
    return status;
}

static enum salvo_status check_bias(const struct salvo_engine *engine, const struct salvo_request *given)
{
    enum salvo_status status = SALVO_OK;
    TRY(check_ids(engine, "tokens with a bias", given->bias_ids, given->bias_count));
    if (given->bias_count && !given->biases)
        TRY(fail(SALVO_ERROR_ARGUMENT, "the list of %zu biases is NULL", given->bias_count));
    for (size_t i = 0; i < given->bias_count; i++) {
        if (isnan(given->biases[i]) || given->biases[i] == INFINITY)
            TRY(fail(SALVO_ERROR_ARGUMENT, "the bias of token %" PRId32 " cannot be %g", given->bias_ids[i],
                (double)given->biases[i]));
    }
cleanup:
    return status;
}

static enum salvo_status check_extras(
    const struct salvo_scheduler *scheduler, const struct salvo_request *given)
{
    enum salvo_status status = SALVO_OK;
    const struct salvo_engine *engine = scheduler->engine;
    if (given->stop_id_count > SALVO_STOP_IDS)
        TRY(fail(SALVO_ERROR_ARGUMENT, "%zu stop ids; at most %d are possible", given->stop_id_count,
            SALVO_STOP_IDS));
    TRY(check_ids(engine, "stop ids", given->stop_ids, given->stop_id_count));
    if (!given->ignore_end && !scheduler->tokenizer)
        TRY(fail(SALVO_ERROR_UNSUPPORTED, "the model's end tokens are not known (%s); ignore_end must be 1",
            scheduler->no_tokenizer));
    if (given->top_count > SALVO_TOP_LOGPROBS)
        TRY(fail(SALVO_ERROR_ARGUMENT, "the %u most likely ids; at most %d are possible", given->top_count,
            SALVO_TOP_LOGPROBS));
    if ((given->logprobs || given->prompt_logprobs) && !engine->backend->logprobs)
        TRY(fail(
            SALVO_ERROR_UNSUPPORTED, "backend %s does not compute log-probabilities", engine->backend->name));
    if (given->session > scheduler->slots)
        TRY(fail(SALVO_ERROR_ARGUMENT, "session %u; there are %u", given->session - 1, scheduler->slots));
    if (!given->event && !scheduler->options.poll)
        TRY(fail(SALVO_ERROR_ARGUMENT, "the function for events is NULL"));
cleanup:
    return status;
}

/* The settings, with a seed drawn if it is to be random. */
static enum salvo_status read_sampler(
    struct salvo_engine *engine, const struct salvo_sampler *given, struct sampler_settings *out)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_sampler sampler = model_sampler(engine->model);
    struct salvo_session session = {.engine = engine}; /* has its own sampler, and nothing else */
    if (given)
        TRY(options_read("salvo_sampler", given, sizeof sampler, &sampler));
    TRY(session_set_sampler(&session, &sampler));
    *out = session.sampler;
cleanup:
    return status;
}

/* The text is computed and nothing is chosen. */
static enum salvo_status open_pool(
    const struct salvo_engine *engine, const struct salvo_embed_options *given, struct request *request)
{
    enum salvo_status status = SALVO_OK;
    struct pool *pool = &request->pool;
    if (!given)
        goto cleanup;
    TRY(options_read("salvo_embed_options", given, sizeof pool->options, &pool->options));
    TRY(pooling_resolve(engine->model, &pool->options));
    pool->width = engine->last_norm.width;
    TRY(NEW(&pool->sums, pool->width));
    TRY(NEW(&request->embedding, pool->width));
cleanup:
    return status;
}

static enum salvo_status copy_items(const void *from, size_t count, size_t size, void *out)
{
    const enum salvo_status status = memory_new(out, count, size);
    if (status == SALVO_OK && count)
        memcpy(*(void **)out, from, count * size);
    return status;
}

/* Stop ids of the request come first: the engine itself finds end tokens beyond the room of the list. */
static void list_stop_ids(
    const struct salvo_scheduler *scheduler, const struct salvo_request *given, struct request *request)
{
    request->ends_at_end = !given->ignore_end;
    for (size_t i = 0; i < given->stop_id_count; i++)
        request->stop_ids[request->stop_count++] = given->stop_ids[i];
    for (uint32_t i = 0; request->ends_at_end && i < scheduler->end_id_count; i++) {
        if (request->stop_count < SALVO_STOP_IDS)
            request->stop_ids[request->stop_count++] = scheduler->end_ids[i];
    }
}

/* Memory for the events that may be unread: no more than there are tokens, and one of progress for each
 * number of tokens. One more may be in use by the caller of poll. */
static enum salvo_status open_nodes(const struct salvo_scheduler *scheduler, struct request *request)
{
    enum salvo_status status = SALVO_OK;
    const uint32_t progress = request->tells_progress ? request->prompt_count + 1 : 0;
    const uint32_t most = request->prompt_count + request->limit + progress,
                   unread = scheduler->options.unread;
    if (!scheduler->options.poll)
        goto cleanup;
    request->node_count = (unread < most ? unread : most) + 1;
    TRY(NEW(&request->nodes, request->node_count));
    TRY(NEW(&request->top_ids, (size_t)request->node_count * request->top_count));
    TRY(NEW(&request->top_logprobs, (size_t)request->node_count * request->top_count));
cleanup:
    return status;
}

enum salvo_status request_open(
    struct salvo_scheduler *scheduler, const struct salvo_request *given, struct request **out)
{
    enum salvo_status status = SALVO_OK;
    const struct salvo_engine *engine = scheduler->engine;
    struct request *request = NULL;
    struct salvo_request text = *given;
    *out = NULL;
    if (given->embed) {
        text.max_tokens = UINT32_MAX; /* none */
        text.ignore_end = 1;
        text.logprobs = text.prompt_logprobs = 0;
        text.mask = NULL;
        given = &text;
    }
    TRY(check_prompt(engine, given));
    TRY(check_bias(engine, given));
    TRY(check_extras(scheduler, given));
    TRY(NEW(&request, 1));
    TRY(open_pool(engine, given->embed, request));
    TRY(read_sampler(scheduler->engine, given->sampler, &request->sampler));
    TRY(copy_items(given->ids, given->count, sizeof *given->ids, &request->ids));
    TRY(copy_items(given->bias_ids, given->bias_count, sizeof *given->bias_ids, &request->bias_ids));
    TRY(copy_items(given->biases, given->bias_count, sizeof *given->biases, &request->biases));
    request->bias_count = given->bias_count;
    request->known = request->prompt_count = (uint32_t)given->count;
    list_stop_ids(scheduler, given, request);
    const uint32_t room = request_most_positions(engine) - request->prompt_count;
    request->length_is_limit =
        given->max_tokens && (given->max_tokens <= room || given->max_tokens == UINT32_MAX);
    request->limit = given->max_tokens == UINT32_MAX ? 0
                     : request->length_is_limit      ? given->max_tokens
                                                     : room;
    request->has_logprobs = given->logprobs;
    request->scores_prompt = given->prompt_logprobs;
    request->tells_progress = given->progress && request->limit;
    request->uses_cache = !given->no_cache && !given->prompt_logprobs;
    request->top_count = given->logprobs || given->prompt_logprobs ? given->top_count : 0;
    request->mask = given->mask;
    request->forced = given->mask ? given->forced : NULL;
    request->event = given->event;
    request->user = given->user;
    request->wanted = given->session ? given->session - 1 : NO_SESSION;
    request->slot = NO_SESSION;
    if (given->mask)
        TRY(NEW(&request->mask_bits, (engine->program->vocabulary + 31) / 32));
    TRY(open_nodes(scheduler, request));
    request->submitted_ns = scheduler_now();
    *out = request;
cleanup:
    if (status != SALVO_OK)
        request_close(request);
    return status;
}

void request_close(struct request *request)
{
    if (!request)
        return;
    memory_free(request->ids);
    memory_free(request->bias_ids);
    memory_free(request->biases);
    memory_free(request->pool.sums);
    memory_free(request->embedding);
    memory_free(request->mask_bits);
    memory_free(request->nodes);
    memory_free(request->top_ids);
    memory_free(request->top_logprobs);
    memory_free(request);
}
