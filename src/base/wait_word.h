/* Sleeping until a word changes: the slow half of every wait that spins first. */
#ifndef BASE_WAIT_WORD_H
#define BASE_WAIT_WORD_H

#include <stdatomic.h>
#include <stdint.h>

/* Sleeps while *word is `value`; may also return for no reason. */
void wait_word_sleep(atomic_uint *word, unsigned value);

/* Wakes all who sleep on `word`, after it was changed. */
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
