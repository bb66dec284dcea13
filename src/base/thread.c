#include "base/thread.h"

#include <signal.h>
#include <stddef.h>

/* A new thread inherits the mask of its creator. Blocking signals in the thread itself would be too late
 * for a signal that arrives before its first instruction. */
bool thread_start(pthread_t *out, void *(*function)(void *), void *argument)
{
    static const int faults[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    const bool started = pthread_create(out, NULL, function, argument) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}
