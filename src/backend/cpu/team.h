/*
 * A team of threads that walks through the phases of a job together. It is woken once per job and released
 * once; inside, phases follow each other without a system call as long as nobody has to wait long.
 *
 * A phase is over when all its tasks are done, not when all threads have arrived: threads take tasks one by
 * one, and a thread that the system has put to sleep between two tasks holds nobody up. So more threads than
 * cores cost little.
 */
#ifndef CPU_TEAM_H
#define CPU_TEAM_H

#include "base/status.h"

enum { TEAM_MAX_THREADS = 256 };

struct team;

struct team_job {
    void *context;
    const uint32_t *tasks; /* [phase_count]: how many tasks each phase has; 0 skips it */
    uint32_t phase_count;
    /* Called once per thread and phase, before the thread's first task of it; may be NULL. */
    void (*enter)(void *context, uint32_t phase, uint32_t thread);
    void (*work)(void *context, uint32_t phase, uint32_t task, uint32_t thread);
};

/* `threads` 1 to 256, the caller included. `most_phases` bounds the jobs it will get. */
enum salvo_status team_open(uint32_t threads, bool pin, uint32_t most_phases, struct team **out);
void team_close(struct team *team);
uint32_t team_threads(const struct team *team);

/* Runs a job; the calling thread is thread 0. Returns when every phase is done. */
void team_run(struct team *team, const struct team_job *job);

#endif
