/* Requests that generate: from the prepared prompt to the last byte of the answer. */
#include "api_dialect.h"
#include "api_recovery.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

/* An event that the scheduler's thread passes to the loop. */
struct queued_event {
    struct queued_event *next;
    struct api_choice *choice;
    struct salvo_event event;
    int32_t top_ids[SALVO_TOP_LOGPROBS];
    float top_logprobs[SALVO_TOP_LOGPROBS];
    char message[256];
};

struct api_generation {
    struct api_task task; /* first */
    enum api_style style;
    const struct api_dialect *dialect;
    bool both_forms;
    struct api_model *model;
    struct api_request request;
    struct api_prepared prepared;
    struct salvo_grammar *grammar; /* of all choices; NULL: none */
    struct api_choice *choices;
    size_t choice_count, submitted, ended;
    char id[40];
    int64_t created;
    bool streaming, paused;
    struct api_stream stream;

    pthread_mutex_t lock; /* protects the members below */
    struct queued_event *first, **last;
    bool posted;    /* the loop will handle the events */
    bool lost;      /* an event could not be kept */
    bool throttled; /* too many events wait */
    size_t lost_ends;
};

enum { SILENCE_MS = 15000, MOST_QUEUED = 64 };

static struct api_generation *of_task(struct api_task *task)
{
    return (struct api_generation *)(void *)task;
}

static struct api_answer answer_of(const struct api_generation *generation)
{
    return (struct api_answer){
        .model = generation->model,
        .request = &generation->request,
        .prepared = &generation->prepared,
        .choices = generation->choices,
        .choice_count = generation->choice_count,
        .id = generation->id,
        .created = generation->created,
        .both_forms = generation->both_forms,
    };
}

/* ---- Worker ---- */

static void name_answer(struct api_generation *generation)
{
    uint64_t random[2] = {0, 0};
    if (getrandom(random, sizeof random, 0) < 0)
        random[0] = (uint64_t)(uintptr_t)generation; /* a name, no secret */
    snprintf(generation->id, sizeof generation->id, "%s%016" PRIx64 "%08" PRIx32,
        generation->style == API_CHAT ? "chatcmpl-" : generation->dialect->id_prefix, random[0],
        (uint32_t)random[1]);
    generation->created = (int64_t)time(NULL);
}

/* Some tokenizers write a blank before the text that they remove again. */
static bool count_dropped(
    struct salvo_model *model, const struct api_prompt *prompt, struct api_choice *choice)
{
    char *text = NULL;
    size_t size = 0, pieces = 0, piece;
    bool ok = salvo_detokenize(model, prompt->ids, prompt->count, false, &text, &size) == SALVO_OK;
    salvo_free(text);
    for (size_t i = 0; ok && i < prompt->count; i++) {
        ok = api_token_bytes(model, prompt->ids[i], &text, &piece);
        pieces += ok ? piece : 0;
        if (ok)
            salvo_free(text);
    }
    choice->dropped = pieces > size ? pieces - size : 0;
    return ok;
}

static bool open_choices(struct api_generation *generation)
{
    const struct api_request *request = &generation->request;
    const struct api_prepared *prepared = &generation->prepared;
    const size_t count = prepared->prompt_count * request->n;
    generation->choices = calloc(count + 1, sizeof *generation->choices); /* there may be none */
    if (!generation->choices)
        return api_fail(&generation->task.error, 503, NULL, "not enough memory for the request");
    for (size_t i = 0; i < count; i++) {
        struct api_choice *choice = &generation->choices[i];
        choice->owner = generation;
        choice->prompt = i / request->n;
        choice->index = (uint32_t)i;
        choice->wants_details = request->logprobs;
        choice->keeps_text = generation->dialect->keeps_text && request->stream;
        choice->keeps_ids = generation->task.server->slot_folder != NULL;
        generation->choice_count++;
        if (!api_choice_open(choice, generation->model->model, prepared->stops, prepared->stop_count))
            return api_fail(&generation->task.error, 503, NULL, "%s", salvo_error());
        choice->calls.in_pieces = request->stream && generation->dialect->calls_in_pieces;
        if (request->is_chat && !api_calls_open(&choice->calls, generation->model->form, request))
            return api_out_of_memory(&generation->task.error);
        if (generation->grammar &&
            salvo_grammar_matcher_new(generation->grammar, &choice->constraint.matcher) != SALVO_OK)
            return api_fail(&generation->task.error, 503, NULL, "%s", salvo_error());
        if (request->echo && request->logprobs &&
            !count_dropped(generation->model->model, &prepared->prompts[choice->prompt], choice))
            return api_out_of_memory(&generation->task.error);
    }
    return true;
}

/* The defaults depend on the model, so the body is first read for the model's name alone. */
static struct api_model *choose_model(struct api_generation *generation)
{
    struct api_task *task = &generation->task;
    struct api_document document = {0};
    struct api_model *model = NULL;
    const char *name = "";
    if (task->server->model_count == 1)
        return api_find_model(task->server, "", &task->error);
    if (api_document_parse(task->body, task->body_size, &document, &task->error) &&
        api_get_string(document.root, "model", &name, &task->error))
        model = api_find_model(task->server, name, &task->error);
    api_document_free(&document);
    return model;
}

static void prepare(struct api_task *task)
{
    struct api_generation *generation = of_task(task);
    generation->model = choose_model(generation);
    task->ok = generation->model &&
               api_dialect_parse(task->body, task->body_size, generation->style, &generation->model->defaults,
                   &generation->request, &task->error) &&
               api_prepare(generation->model, &generation->request, &generation->prepared, &task->error) &&
               (generation->request.tools ? api_tools_compile(generation->model, &generation->request,
                                                &generation->grammar, &task->error)
                                          : api_constraint_compile(generation->model->model,
                                                &generation->request, &generation->grammar, &task->error)) &&
               open_choices(generation);
    name_answer(generation);
}

/* ---- Events ---- */

static void drain(void *argument);

/* Events of a choice that may wait for the loop: about as many bytes as a stream may have unsent. */
static size_t most_queued(const struct api_generation *generation)
{
    const size_t share = MOST_QUEUED / (generation->choice_count * (1 + generation->request.top_count));
    return share < 4 ? 4 : share;
}

/* On the scheduler's thread. The post is made under the lock: once it is free, the loop may end the
 * generation. */
static void on_event(void *user, const struct salvo_event *event)
{
    struct api_choice *choice = user;
    struct api_generation *generation = choice->owner;
    struct queued_event *item = malloc(sizeof *item);
    if (item) {
        item->next = NULL;
        item->choice = choice;
        item->event = *event;
        if (item->event.top_count > SALVO_TOP_LOGPROBS)
            item->event.top_count = SALVO_TOP_LOGPROBS;
        for (uint32_t i = 0; i < item->event.top_count; i++) {
            item->top_ids[i] = event->top_ids[i];
            item->top_logprobs[i] = event->top_logprobs[i];
        }
        snprintf(item->message, sizeof item->message, "%s", event->message ? event->message : "");
        item->event.top_ids = item->top_ids;
        item->event.top_logprobs = item->top_logprobs;
        item->event.message = item->message;
    }
    pthread_mutex_lock(&generation->lock);
    if (item) {
        *generation->last = item;
        generation->last = &item->next;
    } else {
        generation->lost = true;
        if (event->kind == SALVO_EVENT_END)
            generation->lost_ends++;
    }
    if (!generation->posted)
        generation->posted = http_post(generation->task.server->http, drain, generation);
    if (++choice->queued >= most_queued(generation) && event->kind != SALVO_EVENT_END) {
        generation->throttled = true; /* the loop lets it go on */
        salvo_scheduler_pause(choice->scheduler, event->request);
    }
    pthread_mutex_unlock(&generation->lock);
}

/* On the scheduler's thread. */
static bool fill_mask(void *user, const int32_t *tokens, size_t count, uint32_t *mask, size_t words)
{
    struct api_choice *choice = user;
    return api_constraint_mask(&choice->constraint, tokens, count, mask, words);
}

/* On the scheduler's thread. */
static size_t force_tokens(void *user, const int32_t *tokens, size_t count, int32_t *ids, size_t capacity)
{
    struct api_choice *choice = user;
    return api_constraint_forced(&choice->constraint, choice->model, tokens, count, ids, capacity);
}

static struct salvo_scheduler *scheduler_of(
    const struct api_generation *generation, const struct api_choice *choice)
{
    return api_choice_scheduler(generation->model, choice);
}

static void cancel_all(struct api_generation *generation)
{
    for (size_t i = 0; i < generation->submitted; i++) {
        struct api_choice *choice = &generation->choices[i];
        if (choice->is_parked) { /* the scheduler will send no event */
            api_unpark(choice);
            choice->ended = true;
            generation->ended++;
        }
        if (!choice->ended)
            salvo_scheduler_cancel(scheduler_of(generation, choice), choice->handle);
    }
}

/* Ends the exchange with an error. Later events are ignored. */
static void give_up(struct api_generation *generation, const struct api_error *error)
{
    struct api_task *task = &generation->task;
    if (task->exchange && generation->streaming) {
        struct api_stream *stream = &generation->stream;
        buffer_free(&stream->out);
        stream->failed = false;
        generation->dialect->write_error(stream, error);
        if (!stream->failed) {
            http_stream_write(task->exchange, stream->out.data, stream->out.size);
            http_stream_end(task->exchange);
        } else {
            http_stream_abort(task->exchange);
        }
    } else if (task->exchange) {
        api_reply_error(task->server, task->exchange, error);
    }
    task->exchange = NULL;
    cancel_all(generation);
}

static void give_up_memory(struct api_generation *generation)
{
    struct api_error error;
    api_fail(&error, 503, NULL, "not enough memory for the answer");
    error.retry_after = 1;
    give_up(generation, &error);
}

/* ---- Streams ---- */

static void on_room(void *argument)
{
    struct api_generation *generation = argument;
    generation->paused = false;
    for (size_t i = 0; i < generation->submitted; i++)
        salvo_scheduler_resume(
            scheduler_of(generation, &generation->choices[i]), generation->choices[i].handle);
}

static void send(struct api_generation *generation, const char *data, size_t size)
{
    const size_t unsent = http_stream_write(generation->task.exchange, data, size);
    if (unsent <= HTTP_UNSENT_LIMIT || generation->paused)
        return;
    generation->paused = true;
    for (size_t i = 0; i < generation->submitted; i++)
        salvo_scheduler_pause(
            scheduler_of(generation, &generation->choices[i]), generation->choices[i].handle);
}

static void send_object(struct api_generation *generation, enum api_object object,
    const struct api_choice *choice, bool with_echo)
{
    const struct api_answer answer = answer_of(generation);
    struct api_stream *stream = &generation->stream;
    struct salvo_text echo = {0};
    char *text = NULL;
    size_t size = 0;
    bool ok = true;
    if (!generation->task.exchange)
        return;
    if (with_echo) {
        const struct api_prompt *prompt = &generation->prepared.prompts[choice->prompt];
        ok = salvo_detokenize(generation->model->model, prompt->ids, prompt->count, false, &text, &size) ==
             SALVO_OK;
        echo = (struct salvo_text){text, size};
    }
    generation->dialect->write_object(stream, &answer, object, choice, echo);
    salvo_free(text);
    if (!ok || stream->failed)
        give_up_memory(generation);
    else if (stream->out.size)
        send(generation, stream->out.data, stream->out.size);
    buffer_free(&stream->out);
}

static void begin_stream(struct api_generation *generation)
{
    struct api_task *task = &generation->task;
    struct http_header headers[API_HEADERS];
    size_t count = 0;
    api_headers(task->server, task->exchange, generation->dialect->stream_type, headers);
    while (headers[count].name)
        count++;
    if (count + 2 < API_HEADERS) {
        headers[count++] = (struct http_header){"Cache-Control", "no-cache"};
        headers[count++] = (struct http_header){"X-Accel-Buffering", "no"}; /* nginx */
        headers[count] = (struct http_header){NULL, NULL};
    }
    generation->streaming = true;
    http_stream_begin(task->exchange, 200, headers);
    http_stream_on_room(task->exchange, on_room, generation);
    if (generation->dialect->silence)
        http_stream_on_silence(task->exchange, SILENCE_MS, generation->dialect->silence);
    for (size_t i = 0; i < generation->choice_count; i++) {
        send_object(generation, API_OBJECT_FIRST, &generation->choices[i], false);
        if (generation->request.echo && !generation->request.logprobs)
            send_object(generation, API_OBJECT_PART, &generation->choices[i], true);
    }
}

/* Sends the new part of a choice after an event. With log-probabilities each token is an object of its own,
 * except that the tokens of the prompt are one object, with its text. */
static void send_news(struct api_generation *generation, struct api_choice *choice, uint32_t kind)
{
    const struct api_request *request = &generation->request;
    const bool is_end = kind == SALVO_EVENT_END, joined = generation->dialect->last_has_text;
    if (kind == SALVO_EVENT_PROGRESS)
        send_object(generation, API_OBJECT_PROGRESS, choice, false);
    if (kind == SALVO_EVENT_PROMPT || kind == SALVO_EVENT_PROGRESS)
        return;
    const bool has_prompt = request->echo && request->logprobs && !choice->echoed;
    const bool news = choice->text.size || choice->calls.reasoning.size ||
                      api_calls_has_news(&choice->calls) || (request->logprobs && choice->details.size);
    if (has_prompt || (news && !(is_end && joined))) {
        send_object(generation, API_OBJECT_PART, choice, has_prompt);
        choice->echoed = true;
        api_choice_sent(choice);
    }
    if (is_end) {
        send_object(generation, API_OBJECT_LAST, choice, false);
        api_choice_sent(choice);
    }
}

/* ---- The end ---- */

static void finish(struct api_generation *generation)
{
    struct api_task *task = &generation->task;
    if (generation->streaming) {
        send_object(generation, API_OBJECT_END, NULL, false);
        if (task->exchange)
            http_stream_end(task->exchange);
        task->exchange = NULL;
        return;
    }
    const struct api_answer answer = answer_of(generation);
    struct buffer out = {0};
    struct json_writer json = api_json(&out);
    generation->dialect->write_answer(&json, &answer);
    if (json.status == SALVO_OK)
        api_reply(task->server, task->exchange, 200, &out);
    else
        give_up_memory(generation);
    task->exchange = NULL;
    buffer_free(&out);
}

/* The tokens that the session has computed: the last one of an answer that was cut is not among them. */
static void note_slot(struct api_generation *generation, const struct api_choice *choice)
{
    const struct api_prompt *prompt = &generation->prepared.prompts[choice->prompt];
    const int32_t *answer = (const int32_t *)(const void *)choice->all_ids.data;
    size_t count = choice->all_ids.size / sizeof *answer;
    if (!choice->keeps_ids || choice->status != SALVO_OK)
        return;
    if (count && choice->finish != SALVO_FINISH_END)
        count--;
    api_slot_note(generation->model, choice->session, prompt->ids, prompt->count, answer, count);
}

static void note_end(struct api_generation *generation, const struct api_choice *choice)
{
    struct api_model *model = generation->model;
    struct api_error error;
    generation->ended++;
    note_slot(generation, choice);
    if (choice->first_seconds > choice->queue_seconds)
        model->prompt_seconds += choice->first_seconds - choice->queue_seconds;
    if (choice->end_seconds > choice->first_seconds && choice->tokens)
        model->answer_seconds += choice->end_seconds - choice->first_seconds;
    const bool fits = choice->constraint.message[0] == 0;
    if ((choice->status == SALVO_OK && fits) || !generation->task.exchange)
        return;
    if (fits)
        api_fail_library(&error, choice->status, choice->message);
    else
        api_fail(&error, 500, generation->request.constraint_field, "%s", choice->constraint.message);
    give_up(generation, &error);
}

/* Destroys the generation when nothing of it is left. */
static void end_if_done(struct api_generation *generation)
{
    if (generation->ended < generation->submitted)
        return;
    if (generation->task.exchange)
        finish(generation);
    api_task_end(&generation->task);
}

static bool submit(struct api_generation *generation, struct api_choice *choice);

/* The engine was opened again, after the device had failed before the choice had begun. */
void api_generation_resume(struct api_choice *choice, bool ok)
{
    struct api_generation *generation = choice->owner;
    struct api_task *task = &generation->task;
    if (!ok)
        api_fail(&task->error, 500, NULL, "%s", generation->model->message);
    if (ok && submit(generation, choice))
        return;
    choice->ended = true;
    generation->ended++;
    give_up(generation, &task->error);
    end_if_done(generation);
}

/* A choice that has not begun when the device fails waits until the engine is opened again. */
static bool park(struct api_generation *generation, struct api_choice *choice)
{
    if (!api_recover(generation->task.server, generation->model, api_generation_resume))
        return false;
    api_park(generation->model, choice);
    return true;
}

static bool is_parked_at(struct api_generation *generation, const struct queued_event *item)
{
    const struct salvo_event *event = &item->event;
    if (event->kind != SALVO_EVENT_END || event->status != SALVO_ERROR_DEVICE)
        return false;
    if (event->session == UINT32_MAX && generation->task.exchange)
        return park(generation, item->choice);
    (void)api_recover(generation->task.server, generation->model, api_generation_resume);
    return false;
}

static void take_event(struct api_generation *generation, const struct queued_event *item)
{
    struct api_choice *choice = item->choice;
    if (is_parked_at(generation, item))
        return;
    const bool was_stopped = choice->stopped;
    const bool ok = api_choice_take(choice, &item->event);
    if (choice->stopped && !was_stopped)
        salvo_scheduler_cancel(scheduler_of(generation, choice), choice->handle);
    if (item->event.kind == SALVO_EVENT_END)
        note_end(generation, choice);
    if (!ok && generation->task.exchange)
        give_up_memory(generation);
    if (generation->streaming && generation->task.exchange)
        send_news(generation, choice, item->event.kind);
}

static void drain(void *argument)
{
    struct api_generation *generation = argument;
    pthread_mutex_lock(&generation->lock);
    struct queued_event *item = generation->first;
    const bool lost = generation->lost, throttled = generation->throttled;
    generation->first = NULL;
    generation->last = &generation->first;
    generation->posted = false;
    generation->throttled = false;
    for (size_t i = 0; i < generation->choice_count; i++)
        generation->choices[i].queued = 0;
    generation->ended += generation->lost_ends;
    generation->lost_ends = 0;
    pthread_mutex_unlock(&generation->lock);
    while (item) {
        struct queued_event *next = item->next;
        take_event(generation, item);
        free(item);
        item = next;
    }
    if (lost && generation->task.exchange)
        give_up_memory(generation);
    if (throttled && !generation->paused)
        on_room(generation);
    end_if_done(generation);
}

/* ---- The beginning ---- */

static bool submit(struct api_generation *generation, struct api_choice *choice)
{
    const struct api_request *request = &generation->request;
    const struct api_prepared *prepared = &generation->prepared;
    const struct api_prompt *prompt = &prepared->prompts[choice->prompt];
    struct salvo_sampler sampler = request->sampler;
    sampler.seed += choice->index % request->n; /* answers of one prompt differ */
    const struct salvo_request own = {
        .size = sizeof own,
        .ids = prompt->ids,
        .count = prompt->count,
        .sampler = &sampler,
        .bias_ids = prepared->bias_ids,
        .biases = prepared->biases,
        .bias_count = prepared->bias_count,
        .stop_ids = prepared->stop_ids,
        .stop_id_count = prepared->stop_id_count,
        .ignore_end = request->ignore_end,
        .max_tokens = request->max_tokens < 0    ? 0
                      : request->max_tokens == 0 ? UINT32_MAX
                                                 : (uint32_t)request->max_tokens,
        .logprobs = request->logprobs,
        .prompt_logprobs = request->logprobs && request->echo,
        .top_count = request->top_count,
        .no_cache = !request->cache_prompt,
        .mask = choice->constraint.matcher ? fill_mask : NULL,
        .forced = choice->constraint.matcher ? force_tokens : NULL,
        .event = on_event,
        .user = choice,
        .session = request->slot < 0 ? 0 : (uint32_t)request->slot + 1,
        .progress = request->stream && request->return_progress,
    };
    struct api_error *error = &generation->task.error;
    if (!generation->model->scheduler) /* the engine is being opened again */
        return park(generation, choice);
    choice->failures = generation->model->failures;
    choice->scheduler = generation->model->scheduler;
    enum salvo_status status = salvo_scheduler_submit(generation->model->scheduler, &own, &choice->handle);
    if (status == SALVO_OK || (status == SALVO_ERROR_DEVICE && park(generation, choice)))
        return true;
    api_fail_library(error, status, salvo_error());
    if (status == SALVO_ERROR_CONTEXT) {
        const uint32_t context = salvo_engine_info(generation->model->engine)->context;
        api_fail(error, 400, generation->request.is_chat ? "messages" : "prompt",
            "the request of %zu tokens exceeds the available context size of %" PRIu32 " tokens",
            prompt->count, context);
        error->type = "exceed_context_size_error";
        error->n_prompt_tokens = prompt->count;
        error->n_ctx = context;
    }
    return false;
}

static void ready(struct api_task *task)
{
    struct api_generation *generation = of_task(task);
    bool ok = task->ok;
    for (size_t i = 0; ok && task->exchange && i < generation->choice_count; i++) {
        ok = submit(generation, &generation->choices[i]);
        generation->submitted += ok;
    }
    if (!ok)
        give_up(generation, &task->error);
    if (task->exchange && generation->request.stream)
        begin_stream(generation);
    end_if_done(generation); /* if nothing was submitted */
}

static void closed(struct api_task *task)
{
    struct api_generation *generation = of_task(task);
    cancel_all(generation);
    end_if_done(generation); /* unless events are expected */
}

static void destroy(struct api_task *task)
{
    struct api_generation *generation = of_task(task);
    while (generation->first) {
        struct queued_event *next = generation->first->next;
        free(generation->first);
        generation->first = next;
    }
    for (size_t i = 0; i < generation->choice_count; i++)
        api_choice_close(&generation->choices[i]);
    free(generation->choices);
    buffer_free(&generation->stream.out);
    salvo_grammar_free(generation->grammar); /* after the matchers */
    api_prepared_free(&generation->prepared);
    api_request_free(&generation->request);
    pthread_mutex_destroy(&generation->lock);
    free(generation);
}

struct api_task *api_generation_new(const struct api_route *route)
{
    struct api_generation *generation = calloc(1, sizeof *generation);
    if (!generation)
        return NULL;
    generation->task.prepare = prepare;
    generation->task.ready = ready;
    generation->task.closed = closed;
    generation->task.destroy = destroy;
    generation->style = (enum api_style)route->number;
    generation->dialect = api_dialect_of(generation->style);
    generation->both_forms = route->both_forms;
    pthread_mutex_init(&generation->lock, NULL);
    generation->last = &generation->first;
    return &generation->task;
}
