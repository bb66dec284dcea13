/*
 * Under the address sanitizer, memory that is divided into pieces has a forbidden gap after each piece.
 * Without the sanitizer there are no gaps.
 */
#ifndef BASE_MEMORY_GAPS_H
#define BASE_MEMORY_GAPS_H

#include <stddef.h>

#ifdef __has_feature /* clang */
#if __has_feature(address_sanitizer)
#define MEMORY_HAS_GAPS
#endif
#elif defined __SANITIZE_ADDRESS__ /* gcc */
#define MEMORY_HAS_GAPS
#endif

#ifdef MEMORY_HAS_GAPS

#include <sanitizer/asan_interface.h>

enum { MEMORY_GAP = 64 };

static inline void memory_forbid(const void *memory, size_t size)
{
    __asan_poison_memory_region(memory, size);
}

/* Call before memory with gaps is freed: its addresses may be reused. */
static inline void memory_allow(const void *memory, size_t size)
{
    __asan_unpoison_memory_region(memory, size);
}

#else

enum { MEMORY_GAP = 0 };

static inline void memory_forbid(const void *memory, size_t size)
{
    (void)memory;
    (void)size;
}

static inline void memory_allow(const void *memory, size_t size)
{
    (void)memory;
    (void)size;
}

#endif
#endif
