#include "base/wait_word.h"

#if defined(__linux__)

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

void wait_word_sleep(atomic_uint *word, unsigned value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

void wait_word_wake(atomic_uint *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

#else

#include <pthread.h>

/* Without futexes all sleepers share one condition variable; sleeping is rare. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

void wait_word_sleep(atomic_uint *word, unsigned value)
{
    pthread_mutex_lock(&lock);
    if (atomic_load(word) == value)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

void wait_word_wake(atomic_uint *word)
{
    (void)word;
    pthread_mutex_lock(&lock);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

#endif
