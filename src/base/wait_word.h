/* Sleeping until a word changes, for waits that spin first. */
#ifndef BASE_WAIT_WORD_H
#define BASE_WAIT_WORD_H

#include <stdatomic.h>
#include <stdint.h>

/* Sleeps while *word is `value`; spurious wakeups are possible. */
void wait_word_sleep(atomic_uint *word, unsigned value);

/* Wakes all sleepers of `word`, after it was changed. */
void wait_word_wake(atomic_uint *word);

/* Tells the processor that this thread is spinning. */
static inline void spin_pause(void)
{
#if defined(__aarch64__)
    __asm__ __volatile__("isb" ::: "memory");
#elif defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

#endif
