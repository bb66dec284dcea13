/*
 * Memory that is handed out in pieces has a gap behind each piece where the address sanitizer looks on, which
 * reports whoever touches it. Without the sanitizer there are no gaps.
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

/* Before memory with gaps goes back: other memory may come to lie there. */
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
