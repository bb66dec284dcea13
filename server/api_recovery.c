#include "api_recovery.h"

#include <signal.h>
#include <stdlib.h>

struct recovery {
    struct api_server *server;
    struct api_model *model;
    api_resume_function resume;
    struct salvo_engine *engine;
    struct salvo_scheduler *scheduler;
    struct salvo_scheduler_counters before, last; /* sums without and of the scheduler that is closed */
    bool ok;
};

struct salvo_scheduler *api_choice_scheduler(const struct api_model *model, const struct api_choice *choice)
{
    return choice->failures == model->failures && !choice->is_parked ? model->scheduler : NULL;
}

void api_park(struct api_model *model, struct api_choice *choice)
{
    struct api_choice **end = &model->parked;
    while (*end) /* in the order of arrival */
        end = &(*end)->next_parked;
    choice->is_parked = true;
    choice->next_parked = NULL;
    choice->parked_link = end;
    *end = choice;
}

void api_unpark(struct api_choice *choice)
{
    if (!choice->is_parked)
        return;
    *choice->parked_link = choice->next_parked;
    if (choice->next_parked)
        choice->next_parked->parked_link = choice->parked_link;
    choice->is_parked = false;
}

/* On the loop. */
static void opened(void *argument)
{
    struct recovery *recovery = argument;
    struct api_model *model = recovery->model;
    pthread_join(model->opener, NULL);
    model->has_opener = false;
    model->past = recovery->before;
    api_counters_add(&model->past, &recovery->last);
    model->engine = recovery->engine;
    model->scheduler = recovery->scheduler;
    atomic_store(&model->state, recovery->ok ? API_MODEL_READY : API_MODEL_FAILED);
    /* While the list is walked, a choice may be parked again at its end, or be removed with another one of
     * its request. */
    size_t count = 0;
    for (const struct api_choice *choice = model->parked; choice; choice = choice->next_parked)
        count++;
    for (; count && model->parked; count--) {
        struct api_choice *choice = model->parked;
        api_unpark(choice);
        recovery->resume(choice, recovery->ok);
    }
    if (!recovery->ok) {
        recovery->server->failed = model;
        recovery->server->draining = true;
        http_server_drain(recovery->server->http);
    }
    free(recovery);
}

/* The last events of all requests are on their way to the loop when the scheduler is closed. */
static void *reopen(void *argument)
{
    struct recovery *recovery = argument;
    (void)salvo_scheduler_counters(recovery->scheduler, &recovery->last);
    salvo_scheduler_close(recovery->scheduler);
    salvo_engine_close(recovery->engine);
    recovery->ok = api_model_open(recovery->model, &recovery->engine, &recovery->scheduler);
    /* If the loop has ended, the process does, too, without this engine. */
    (void)http_post(recovery->server->http, opened, recovery);
    return NULL;
}

bool api_recover(struct api_server *server, struct api_model *model, api_resume_function resume)
{
    sigset_t all, before;
    if (atomic_load(&model->state) != API_MODEL_READY)
        return atomic_load(&model->state) == API_MODEL_LOADING;
    struct recovery *recovery = calloc(1, sizeof *recovery);
    if (!recovery)
        return false;
    *recovery = (struct recovery){.server = server,
        .model = model,
        .resume = resume,
        .engine = model->engine,
        .scheduler = model->scheduler,
        .before = model->past,
        .last = SALVO_SCHEDULER_COUNTERS_INIT};
    (void)salvo_scheduler_counters(model->scheduler, &recovery->last);
    api_counters_add(&model->past, &recovery->last);
    atomic_store(&model->loaded, 0);
    atomic_store(&model->state, API_MODEL_LOADING);
    model->failures++;
    model->engine = NULL;
    model->scheduler = NULL;
    for (uint32_t i = 0; i < model->slot_count; i++)
        model->slots[i].count = 0; /* their state is lost */
    sigfillset(&all);              /* signals belong to the loop */
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGSEGV);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    model->has_opener = pthread_create(&model->opener, NULL, reopen, recovery) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (model->has_opener)
        return true;
    model->engine = recovery->engine;
    model->scheduler = recovery->scheduler;
    model->past = recovery->before;
    atomic_store(&model->state, API_MODEL_READY);
    free(recovery);
    return false;
}
