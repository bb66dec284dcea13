/* Requests for embeddings: each text is a request of the scheduler. */
#include "api_embeddings.h"

#include "api_recovery.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Most texts of one request in the scheduler's queue, so that it has room for other requests. */
enum { MOST_AT_ONCE = 64 };

struct embeddings;

struct text {
    struct embeddings *owner;
    uint64_t handle;
    bool ended; /* under the lock */
};

struct embeddings {
    struct api_task task; /* first */
    struct api_model *model;
    unsigned failures; /* failures of the device before the texts were submitted */
    struct api_embedding_request request;
    struct text *texts; /* [request.count] */
    float *values;      /* [request.count][width] */
    size_t submitted;
    bool given_up; /* no further text is submitted */

    pthread_mutex_t lock; /* protects the members below */
    size_t ended;
    bool posted; /* the loop will handle the ends */
    enum salvo_status status;
    char message[256]; /* of the first text that failed */
};

static struct embeddings *of_task(struct api_task *task)
{
    return (struct embeddings *)(void *)task;
}

/* ---- Worker ---- */

static bool read_body(struct embeddings *own, const struct api_value *root)
{
    struct api_task *task = &own->task;
    const char *name = "";
    if (root->kind != JSON_OBJECT_BEGIN)
        return api_fail(&task->error, 400, NULL, "the body: expected a JSON object");
    if (!api_get_string(root, "model", &name, &task->error))
        return false;
    own->model = api_find_model(task->server, name, &task->error);
    if (!own->model || !api_embedding_request_read(own->model, root, &own->request, &task->error))
        return false;
    own->texts = calloc(own->request.count, sizeof *own->texts);
    own->values = calloc(own->request.count, own->request.width * sizeof *own->values);
    if (own->texts && own->values)
        return true;
    return api_out_of_memory(&task->error);
}

static void prepare(struct api_task *task)
{
    struct api_document document = {0};
    task->ok = api_document_parse(task->body, task->body_size, &document, &task->error) &&
               read_body(of_task(task), document.root);
    api_document_free(&document);
}

/* ---- Events ---- */

static void drain(void *argument);

/* On the scheduler's thread. The post is made under the lock: once it is free, the loop may end the task. */
static void on_event(void *user, const struct salvo_event *event)
{
    struct text *text = user;
    struct embeddings *own = text->owner;
    if (event->kind != SALVO_EVENT_END)
        return;
    pthread_mutex_lock(&own->lock);
    text->ended = true;
    own->ended++;
    if (event->embedding && event->width == own->request.width) {
        memcpy(own->values + (size_t)(text - own->texts) * own->request.width, event->embedding,
            event->width * sizeof *own->values);
    } else if (own->status == SALVO_OK) {
        own->status = event->status ? (enum salvo_status)event->status : SALVO_ERROR_UNSUPPORTED;
        snprintf(own->message, sizeof own->message, "%s", event->message);
    }
    if (!own->posted)
        own->posted = http_post(own->task.server->http, drain, own);
    pthread_mutex_unlock(&own->lock);
}

/* ---- Loop ---- */

static void cancel_all(struct embeddings *own)
{
    own->given_up = true;
    for (size_t i = 0; i < own->submitted; i++) {
        pthread_mutex_lock(&own->lock);
        const bool ended = own->texts[i].ended;
        pthread_mutex_unlock(&own->lock);
        if (!ended && own->failures == own->model->failures)
            salvo_scheduler_cancel(own->model->scheduler, own->texts[i].handle);
    }
}

static void give_up(struct embeddings *own, const struct api_error *error)
{
    if (own->task.exchange)
        api_reply_error(own->task.server, own->task.exchange, error);
    own->task.exchange = NULL;
    cancel_all(own);
}

static void reply(struct embeddings *own)
{
    struct api_task *task = &own->task;
    struct buffer out = {0};
    struct json_writer json = api_json(&out);
    struct api_error error;
    api_write_embeddings(&json, own->model, &own->request, own->values);
    if (json.status == SALVO_OK) {
        api_reply(task->server, task->exchange, 200, &out);
        task->exchange = NULL;
    } else {
        api_fail(&error, 503, NULL, "not enough memory for the answer");
        error.retry_after = 1;
        give_up(own, &error);
    }
    buffer_free(&out);
}

static enum salvo_status submit(struct embeddings *own)
{
    struct text *text = &own->texts[own->submitted];
    const struct api_prompt *input = &own->request.inputs[own->submitted];
    const struct salvo_request request = {
        .size = sizeof request,
        .ids = input->ids,
        .count = input->count,
        .embed = &own->request.options,
        .event = on_event,
        .user = text,
    };
    text->owner = own;
    return salvo_scheduler_submit(own->model->scheduler, &request, &text->handle);
}

/* Submits as many texts as the scheduler may have of this request. A full queue is no error while another
 * text of this request is in it: its end calls this function again. */
static void submit_more(struct embeddings *own, size_t ended)
{
    struct api_error error;
    while (!own->given_up && own->submitted < own->request.count && own->submitted - ended < MOST_AT_ONCE) {
        if (own->failures != own->model->failures || !own->model->scheduler) {
            api_fail(&error, 503, NULL, "the device has failed");
            error.retry_after = 1;
            give_up(own, &error);
            return;
        }
        const enum salvo_status status = submit(own);
        if (status == SALVO_OK) {
            own->submitted++;
            continue;
        }
        api_fail_library(&error, status, salvo_error());
        if (error.status != 429 || own->submitted == ended)
            give_up(own, &error);
        return;
    }
}

/* Goes on until all texts have ended, then answers. */
static void go_on(struct embeddings *own)
{
    struct api_error error;
    pthread_mutex_lock(&own->lock);
    const size_t ended = own->ended;
    const enum salvo_status status = own->status;
    own->posted = false;
    pthread_mutex_unlock(&own->lock);
    if (status == SALVO_ERROR_DEVICE && own->failures == own->model->failures)
        (void)api_recover(own->task.server, own->model, api_generation_resume);
    if (status != SALVO_OK && !own->given_up) {
        api_fail_library(&error, status, own->message);
        give_up(own, &error);
    }
    submit_more(own, ended);
    if (ended < own->submitted)
        return;
    if (own->task.exchange)
        reply(own);
    api_task_end(&own->task);
}

static void drain(void *argument)
{
    go_on(argument);
}

static void ready(struct api_task *task)
{
    struct embeddings *own = of_task(task);
    if (task->ok)
        own->failures = own->model->failures;
    if (task->ok && own->model->engine)
        task->ok = api_embedding_request_fits(
            &own->request, salvo_engine_info(own->model->engine)->context, &task->error);
    if (!task->ok || !task->exchange)
        give_up(own, &task->error);
    go_on(own);
}

static void closed(struct api_task *task)
{
    cancel_all(of_task(task)); /* the last events end the task */
}

static void destroy(struct api_task *task)
{
    struct embeddings *own = of_task(task);
    api_embedding_request_free(&own->request);
    pthread_mutex_destroy(&own->lock);
    free(own->texts);
    free(own->values);
    free(own);
}

struct api_task *api_embeddings_new(const struct api_route *route)
{
    struct embeddings *own = calloc(1, sizeof *own);
    if (!own)
        return NULL;
    own->task.prepare = prepare;
    own->task.ready = ready;
    own->task.closed = closed;
    own->task.destroy = destroy;
    own->request.form = (enum api_embedding_form)route->number;
    pthread_mutex_init(&own->lock, NULL);
    return &own->task;
}
