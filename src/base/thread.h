/* Threads of the library. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/*
 * Starts a thread that blocks all signals except its own faults: signals belong to the program's threads,
 * which may wait for them. False when the system cannot create the thread.
 */
bool thread_start(pthread_t *out, void *(*function)(void *), void *argument);

#endif
