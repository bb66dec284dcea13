/*
 * All heap memory of the library comes from here: tests make the nth allocation fail and count allocations
 * after a model is loaded.
 */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include "base/status.h"

/* NEW(&pointer, count): zeroed elements of the pointed-to type. A count of 0 gives NULL. */
#define NEW(out, count) memory_new((out), (count), sizeof **(out))

/* RESIZE(&pointer, count): as realloc; on failure the old memory stays. New elements are not zeroed. */
#define RESIZE(in_out, count) memory_resize((in_out), (count), sizeof **(in_out))

/* GROW(&pointer, count, &capacity): makes room for one more element than `count`. The capacity doubles. */
#define GROW(in_out, count, capacity) memory_grow((in_out), (count), (capacity), sizeof **(in_out))

enum salvo_status memory_new(void *out_pointer, size_t count, size_t size);
enum salvo_status memory_resize(void *in_out_pointer, size_t count, size_t size);
enum salvo_status memory_grow(void *in_out_pointer, size_t count, size_t *capacity, size_t size);
enum salvo_status memory_copy_string(const char *text, char **out);
void memory_free(void *pointer);

/*
 * Large zeroed memory from the system, page-aligned. Pages become resident when they are touched; huge pages,
 * if available, by 2 MB, which suits memory that is read from end to end.
 */
enum page_size { PAGES_NORMAL, PAGES_HUGE };
enum salvo_status memory_map(size_t size, enum page_size pages, void *out_pointer);
void memory_unmap(void *pointer, size_t size);

/* Allocations so far in this process. */
uint64_t memory_count(void);

/* For tests: the nth allocation from now on fails, once; 0 switches this off. */
void memory_fail_at(uint64_t nth);

#endif
