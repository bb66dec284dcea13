/* Threads for work that would block the loop: parsing, templates, tokenizing. */
#ifndef SERVER_API_WORKERS_H
#define SERVER_API_WORKERS_H

#include <stdbool.h>

struct api_workers;

struct api_work {
    struct api_work *next;
    void (*run)(struct api_work *work);
};

/* NULL if the system cannot create the threads. */
struct api_workers *api_workers_open(unsigned count);
/* The oldest work is done first. */
void api_workers_add(struct api_workers *workers, struct api_work *item);
/* Ends the threads after the work that they do now; the rest stays undone. */
void api_workers_close(struct api_workers *workers);

#endif
