#include "api_workers.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

struct api_workers {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct api_work *first, **last;
    bool closing;
    unsigned count;
    pthread_t threads[];
};

static void *work(void *argument)
{
    struct api_workers *workers = argument;
    pthread_mutex_lock(&workers->lock);
    for (;;) {
        while (!workers->first && !workers->closing)
            pthread_cond_wait(&workers->wake, &workers->lock);
        if (workers->closing)
            break;
        struct api_work *item = workers->first;
        workers->first = item->next;
        if (!workers->first)
            workers->last = &workers->first;
        pthread_mutex_unlock(&workers->lock);
        item->run(item);
        pthread_mutex_lock(&workers->lock);
    }
    pthread_mutex_unlock(&workers->lock);
    return NULL;
}

struct api_workers *api_workers_open(unsigned count)
{
    struct api_workers *workers = calloc(1, sizeof *workers + count * sizeof *workers->threads);
    sigset_t all, before;
    if (!workers)
        return NULL;
    pthread_mutex_init(&workers->lock, NULL);
    pthread_cond_init(&workers->wake, NULL);
    workers->last = &workers->first;
    /* Signals belong to the loop. */
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGSEGV);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (
        workers->count < count && pthread_create(&workers->threads[workers->count], NULL, work, workers) == 0)
        workers->count++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (workers->count == 0) {
        api_workers_close(workers);
        return NULL;
    }
    return workers;
}

void api_workers_add(struct api_workers *workers, struct api_work *item)
{
    item->next = NULL;
    pthread_mutex_lock(&workers->lock);
    *workers->last = item;
    workers->last = &item->next;
    pthread_cond_signal(&workers->wake);
    pthread_mutex_unlock(&workers->lock);
}

void api_workers_close(struct api_workers *workers)
{
    if (!workers)
        return;
    pthread_mutex_lock(&workers->lock);
    workers->closing = true;
    pthread_cond_broadcast(&workers->wake);
    pthread_mutex_unlock(&workers->lock);
    for (unsigned i = 0; i < workers->count; i++)
        pthread_join(workers->threads[i], NULL);
    pthread_cond_destroy(&workers->wake);
    pthread_mutex_destroy(&workers->lock);
    free(workers);
}
