/* Threads of the library. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/*
 * Starts a thread that takes no signals except faults of its own. Signals belong to the program's threads,
 * which may be waiting for them. False when the system refuses a thread.
 */
bool thread_start(pthread_t *out, void *(*function)(void *), void *argument);

#endif
