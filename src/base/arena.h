/* Many small allocations with one lifetime. A zeroed arena is empty and ready. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include "base/status.h"

struct arena_block;

struct arena {
    struct arena_block *blocks; /* newest first */
};

/* ARENA_NEW(arena, &pointer, count): zeroed, aligned for any type; freed with the arena. */
#define ARENA_NEW(arena, out, count) arena_new((arena), (out), (count), sizeof **(out))

enum salvo_status arena_new(struct arena *arena, void *out_pointer, size_t count, size_t size);
enum salvo_status arena_copy_bytes(
    struct arena *arena, const void *data, size_t size, char **out); /* adds a NUL */
void arena_free(struct arena *arena);

#endif
