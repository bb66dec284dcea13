#include "base/memory.h"

#include "base/checked.h"
#include "base/memory_gaps.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static atomic_uint_fast64_t allocations;
static atomic_uint_fast64_t allocation_to_fail;

uint64_t memory_count(void)
{
    return atomic_load_explicit(&allocations, memory_order_relaxed);
}

void memory_fail_at(uint64_t nth)
{
    atomic_store(&allocation_to_fail, nth ? memory_count() + nth : 0);
}

static bool must_fail(void)
{
    uint64_t number = atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed) + 1;
    return number == atomic_load_explicit(&allocation_to_fail, memory_order_relaxed);
}

static enum salvo_status fail_memory(size_t count, size_t size)
{
    return fail(SALVO_ERROR_MEMORY, "out of memory: %zu elements of %zu bytes were requested", count, size);
}

enum salvo_status memory_new(void *out_pointer, size_t count, size_t size)
{
    void *memory = NULL;
    if (count && size) {
        memory = must_fail() ? NULL : calloc(count, size);
        if (!memory) {
            memcpy(out_pointer, &memory, sizeof memory);
            return fail_memory(count, size);
        }
    }
    memcpy(out_pointer, &memory, sizeof memory);
    return SALVO_OK;
}

enum salvo_status memory_resize(void *in_out_pointer, size_t count, size_t size)
{
    void *memory;
    memcpy(&memory, in_out_pointer, sizeof memory);
    size_t bytes;
    if (!checked_mul(count, size, &bytes) || must_fail())
        return fail_memory(count, size);
    void *resized = realloc(memory, bytes ? bytes : 1);
    if (!resized)
        return fail_memory(count, size);
    memcpy(in_out_pointer, &resized, sizeof resized);
    // cppcheck-suppress memleak ; it went out through the pointer
    return SALVO_OK;
}

enum salvo_status memory_grow(void *in_out_pointer, size_t count, size_t *capacity, size_t size)
{
    enum { LEAST = 64 };
    if (count < *capacity)
        return SALVO_OK;
    const size_t grown = count < LEAST ? LEAST : 2 * count;
    const enum salvo_status status = memory_resize(in_out_pointer, grown, size);
    if (status == SALVO_OK)
        *capacity = grown;
    return status;
}

enum salvo_status memory_copy_string(const char *text, char **out)
{
    size_t size = strlen(text) + 1;
    enum salvo_status status = NEW(out, size);
    if (status == SALVO_OK)
        memcpy(*out, text, size);
    return status;
}

void memory_free(void *pointer)
{
    free(pointer);
}

enum salvo_status memory_map(size_t size, enum page_size pages, void *out_pointer)
{
    void *memory = NULL;
    enum salvo_status status = SALVO_OK;
    if (size) {
        memory = must_fail() ? MAP_FAILED
                             : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) {
            memory = NULL;
            status = fail(SALVO_ERROR_MEMORY, "out of memory: %zu bytes were requested", size);
        }
#ifdef MADV_HUGEPAGE
        if (memory)
            madvise(memory, size, pages == PAGES_HUGE ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
#else
        (void)pages;
#endif
    }
    memcpy(out_pointer, &memory, sizeof memory);
    return status;
}

void memory_unmap(void *pointer, size_t size)
{
    if (!pointer)
        return;
    memory_allow(pointer, size);
    munmap(pointer, size);
}
