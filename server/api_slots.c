/* /slots/ID?action=save, restore, erase: the prompt of a session in a file, and back into the prefix cache.
 */
#include "api_server.h"
#include "api_write.h"

#include <salvo/memory.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum action { SAVE, RESTORE, ERASE };

struct slot_task {
    struct api_task task; /* first */
    enum action action;
    uint32_t slot;
    struct api_model *model;
    char *name, *path; /* of the file; NULL to erase */
    int32_t *ids;      /* of the slot: saved, erased, or restored */
    size_t count;
    double milliseconds;
};

static struct slot_task *of_task(struct api_task *task)
{
    return (struct slot_task *)(void *)task;
}

void api_slot_note(struct api_model *model, uint32_t slot, const int32_t *prompt, size_t prompt_count,
    const int32_t *answer, size_t answer_count)
{
    if (slot >= model->slot_count)
        return;
    struct api_slot *own = &model->slots[slot];
    int32_t *ids = realloc(own->ids, (prompt_count + answer_count + 1) * sizeof *ids);
    own->count = 0;
    if (!ids)
        return;
    own->ids = ids;
    if (prompt_count)
        memcpy(ids, prompt, prompt_count * sizeof *ids);
    if (answer_count)
        memcpy(ids + prompt_count, answer, answer_count * sizeof *ids);
    own->count = prompt_count + answer_count;
}

/* ---- Checks, on a worker ---- */

/* A name within one folder. */
static bool name_is_safe(const struct api_value *name)
{
    const struct salvo_text text = name->text;
    if (text.size == 0 || text.size > 200 || text.data[0] == '.')
        return false;
    for (size_t i = 0; i < text.size; i++) {
        const unsigned char c = (unsigned char)text.data[i];
        if (c < 0x20 || c == 0x7f || strchr("/\\:*?\"<>|", c))
            return false;
    }
    return true;
}

static bool name_file(struct slot_task *own, const struct api_value *root)
{
    struct api_error *error = &own->task.error;
    const struct api_value *name = api_member(root, "filename");
    struct stat info;
    if (!name || name->kind != JSON_STRING || !name_is_safe(name))
        return api_fail(error, 400, "filename", "'filename': expected the name of a file, without a folder");
    own->name = strdup(name->text.data);
    const size_t room = strlen(own->task.server->slot_folder) + name->text.size + 2;
    own->path = malloc(room);
    if (!own->name || !own->path)
        return api_fail(error, 503, NULL, "not enough memory for the request");
    snprintf(own->path, room, "%s/%s", own->task.server->slot_folder, own->name);
    const bool there = lstat(own->path, &info) == 0;
    if (there && !S_ISREG(info.st_mode)) /* a link might lead elsewhere */
        return api_fail(error, 400, "filename", "'filename': '%.200s' is no plain file", own->name);
    if (!there && own->action == RESTORE)
        return api_fail(error, 400, "filename", "'filename': there is no file '%.200s'", own->name);
    return true;
}

static bool read_slot(const char *path, uint32_t *out)
{
    const char *text = strrchr(path, '/') + 1;
    char *end;
    if (*text < '0' || *text > '9' || strlen(text) > 9)
        return false;
    *out = (uint32_t)strtoul(text, &end, 10);
    return !*end;
}

static bool read_body(struct slot_task *own)
{
    struct api_task *task = &own->task;
    struct api_document document = {0};
    const char *model = "";
    const bool empty = task->body_size == 0;
    bool ok = empty || api_document_parse(task->body, task->body_size, &document, &task->error);
    if (ok && !empty && document.root->kind != JSON_OBJECT_BEGIN)
        ok = api_fail(&task->error, 400, NULL, "the body: expected a JSON object");
    ok = ok && api_get_string(document.root, "model", &model, &task->error) &&
         (own->model = api_find_model(task->server, model, &task->error)) != NULL &&
         (own->action == ERASE || name_file(own, document.root));
    if (ok && own->slot >= own->model->slot_count)
        ok = api_fail(
            &task->error, 400, "id_slot", "slot %u: there are %u", own->slot, own->model->slot_count);
    api_document_free(&document);
    return ok;
}

static void prepare(struct api_task *task)
{
    task->ok = task->ok && read_body(of_task(task));
}

/* ---- The work, on the scheduler's thread ---- */

static enum salvo_status restore(struct slot_task *own, struct salvo_session *session)
{
    enum salvo_status status = salvo_session_state_load_file(session, own->path);
    const uint32_t count = status == SALVO_OK ? salvo_session_position(session) : 0;
    if (status != SALVO_OK)
        return status;
    own->ids = malloc((count + 1) * sizeof *own->ids);
    if (own->ids && count)
        memcpy(own->ids, salvo_session_tokens(session), count * sizeof *own->ids);
    own->count = own->ids ? count : 0;
    return SALVO_OK;
}

/* Computes the tokens that the prefix cache has lost. */
static enum salvo_status save(const struct slot_task *own, struct salvo_session *session)
{
    uint32_t cached = 0;
    enum salvo_status status = salvo_session_prefill_cached(session, own->ids, own->count, &cached);
    if (status == SALVO_OK)
        status = salvo_session_feed(session, own->ids + cached, own->count - cached);
    if (status == SALVO_OK)
        status = salvo_session_state_save_file(session, own->path);
    return status;
}

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static void done(void *argument);

static void work(void *user, struct salvo_session *session)
{
    struct slot_task *own = user;
    struct api_error *error = &own->task.error;
    const double begin = now_ms();
    enum salvo_status status = SALVO_OK;
    own->task.ok = session != NULL;
    if (!session) {
        api_fail(error, 503, NULL, "the model is not ready");
        error->retry_after = 1;
    } else if (own->action == RESTORE) {
        status = restore(own, session);
    } else if (own->action == SAVE) {
        status = own->count ? save(own, session) : salvo_session_state_save_file(session, own->path);
    } else {
        status = salvo_engine_forget(own->model->engine, own->ids, own->count);
    }
    if (status != SALVO_OK) {
        own->task.ok = false;
        api_fail_library(error, status, salvo_error());
        if (own->action == RESTORE && error->status == 500) /* the file is not of this model, or damaged */
            error->status = 400;
    }
    own->milliseconds = now_ms() - begin;
    /* If the loop has ended, the task is destroyed with the others. */
    (void)http_post(own->task.server->http, done, own);
}

/* ---- On the loop ---- */

static uint64_t file_size(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 ? (uint64_t)info.st_size : 0;
}

static void reply(struct slot_task *own)
{
    static const struct {
        const char *tokens, *bytes, *time;
    } names[] = {
        [SAVE] = {"n_saved", "n_written", "save_ms"}, [RESTORE] = {"n_restored", "n_read", "restore_ms"}};
    struct api_task *task = &own->task;
    struct buffer out = {0};
    struct json_writer json = api_json(&out);
    json_begin(&json, '{');
    json_key(&json, "id_slot");
    json_unsigned(&json, own->slot);
    if (own->action != ERASE) {
        json_key(&json, "filename");
        json_string(&json, own->name);
    }
    json_key(&json, own->action == ERASE ? "n_erased" : names[own->action].tokens);
    json_unsigned(&json, own->count);
    if (own->action != ERASE) {
        json_key(&json, names[own->action].bytes);
        json_unsigned(&json, file_size(own->path));
        json_key(&json, "timings");
        json_begin(&json, '{');
        json_key(&json, names[own->action].time);
        json_float(&json, own->milliseconds, false);
        json_end(&json, '}');
    }
    json_end(&json, '}');
    if (json.status == SALVO_OK) {
        api_reply(task->server, task->exchange, 200, &out);
    } else {
        api_fail(&task->error, 503, NULL, "not enough memory for the answer");
        api_reply_error(task->server, task->exchange, &task->error);
    }
    buffer_free(&out);
}

static void done(void *argument)
{
    struct slot_task *own = argument;
    struct api_task *task = &own->task;
    if (task->ok && own->action == RESTORE)
        api_slot_note(own->model, own->slot, own->ids, own->count, NULL, 0);
    if (task->exchange && task->ok)
        reply(own);
    else if (task->exchange)
        api_reply_error(task->server, task->exchange, &task->error);
    api_task_end(task);
}

/* The tokens of the slot, which the loop alone may read. */
static bool copy_slot(struct slot_task *own)
{
    struct api_slot *slot = &own->model->slots[own->slot];
    own->ids = malloc((slot->count + 1) * sizeof *own->ids);
    if (!own->ids)
        return false;
    if (slot->count)
        memcpy(own->ids, slot->ids, slot->count * sizeof *own->ids);
    own->count = slot->count;
    if (own->action == ERASE)
        slot->count = 0;
    return true;
}

static void ready(struct api_task *task)
{
    struct slot_task *own = of_task(task);
    if (task->ok && (own->action == RESTORE || copy_slot(own)) && own->model->scheduler &&
        salvo_scheduler_call(own->model->scheduler, work, own) == SALVO_OK)
        return;
    if (task->ok) {
        api_fail(&task->error, 503, NULL, "the model is not ready");
        task->error.retry_after = 1;
    }
    if (task->exchange)
        api_reply_error(task->server, task->exchange, &task->error);
    api_task_end(task);
}

static void destroy(struct api_task *task)
{
    struct slot_task *own = of_task(task);
    free(own->name);
    free(own->path);
    free(own->ids);
    free(own);
}

/* Path and query are the exchange's: they are read before the task leaves the loop. */
static void begin(struct api_task *task, const struct http_request *request)
{
    static const char *const names[] = {"save", "restore", "erase"};
    struct slot_task *own = of_task(task);
    struct api_error *error = &task->error;
    char action[16] = "";
    size_t found = 0;
    (void)http_request_query(request, "action", action, sizeof action);
    while (found < sizeof names / sizeof *names && strcmp(action, names[found]) != 0)
        found++;
    own->action = (enum action)found;
    if (!task->server->slot_folder)
        api_fail(error, 501, NULL, "the server was started without --slot-save-path");
    else if (!read_slot(request->path, &own->slot))
        api_fail(error, 400, "id_slot", "/slots/ID: expected the number of a slot");
    else if (found == sizeof names / sizeof *names)
        api_fail(error, 400, "action", "'action': expected save, restore or erase");
    else
        task->ok = true;
}

struct api_task *api_slots_new(const struct api_route *route)
{
    struct slot_task *own = calloc(1, sizeof *own);
    (void)route;
    if (!own)
        return NULL;
    own->task.begin = begin;
    own->task.prepare = prepare;
    own->task.ready = ready;
    own->task.destroy = destroy;
    return &own->task;
}
