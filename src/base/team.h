/*
 * A team of threads that runs the phases of a job in order. Threads are woken once per job; phases follow
 * each other without a system call unless a thread waits long.
 *
 * A phase ends when all its tasks are done, not when all threads have arrived: each thread takes the tasks of
 * its share, adjacent ones, one by one, and soon after those that another thread has not begun. A thread that
 * the system suspends between two tasks does not delay the others. More threads than cores cost little.
 */
#ifndef BASE_TEAM_H
#define BASE_TEAM_H

#include "base/status.h"

enum { TEAM_MAX_THREADS = 256 };

struct team;

struct team_job {
    void *context;
    const uint32_t *tasks; /* [phase_count]: tasks of each phase, at most 2^24; 0 skips it */
    uint32_t phase_count;
    /* Called once per thread and phase, before the thread's first task of it; may be NULL. */
    void (*enter)(void *context, uint32_t phase, uint32_t thread);
    void (*work)(void *context, uint32_t phase, uint32_t task, uint32_t thread);
};

/* `threads` includes the caller's: at most 256; 0: one per physical core. `most_phases` bounds the phases of
 * a job. */
enum salvo_status team_open(uint32_t threads, bool pin, uint32_t most_phases, struct team **out);
void team_close(struct team *team); /* after the workers have finished the job they are in */
uint32_t team_threads(const struct team *team);

/* Runs a job; the calling thread is thread 0. Returns when every phase is done. */
void team_run(struct team *team, const struct team_job *job);

/* The same in two halves: the workers begin, and the caller joins them later. `job` is copied. */
void team_begin(struct team *team, const struct team_job *job);
void team_finish(struct team *team);

#endif
