#include "base/arena.h"

#include "base/checked.h"
#include "base/memory.h"

#include <stdalign.h>
#include <string.h>

struct arena_block {
    struct arena_block *next;
    size_t used, size; /* of data */
    alignas(max_align_t) unsigned char data[];
};

static const size_t block_size = 64 * 1024;

static enum salvo_status add_block(struct arena *arena, size_t bytes)
{
    enum salvo_status status = SALVO_OK;
    struct arena_block *block = NULL;
    size_t data_size = bytes > block_size ? bytes : block_size, total = 0;
    if (!checked_add(data_size, sizeof *block, &total))
        TRY(fail(SALVO_ERROR_MEMORY, "out of memory: %zu bytes were requested", bytes));
    TRY(memory_new(&block, 1, total));
    block->size = data_size;
    block->next = arena->blocks;
    arena->blocks = block;
cleanup:
    return status;
}

enum salvo_status arena_new(struct arena *arena, void *out_pointer, size_t count, size_t size)
{
    enum salvo_status status = SALVO_OK;
    void *memory = NULL;
    const size_t alignment = alignof(max_align_t);
    size_t bytes, total = 0;
    if (!checked_mul(count, size, &bytes) || !checked_add(bytes, alignment - 1, &total))
        TRY(fail(SALVO_ERROR_MEMORY, "out of memory: %zu elements of %zu bytes were requested", count, size));
    bytes = total & ~(alignment - 1);
    if (!arena->blocks || arena->blocks->size - arena->blocks->used < bytes)
        TRY(add_block(arena, bytes));
    memory = arena->blocks->data + arena->blocks->used;
    arena->blocks->used += bytes;

cleanup:
    memcpy(out_pointer, &memory, sizeof memory);
    return status;
}

enum salvo_status arena_copy_bytes(struct arena *arena, const void *data, size_t size, char **out)
{
    size_t total;
    *out = NULL;
    if (!checked_add(size, 1, &total))
        return fail(SALVO_ERROR_MEMORY, "out of memory: %zu bytes were requested", size);
    enum salvo_status status = ARENA_NEW(arena, out, total);
    if (status == SALVO_OK && size)
        memcpy(*out, data, size);
    return status;
}

void arena_free(struct arena *arena)
{
    while (arena->blocks) {
        struct arena_block *next = arena->blocks->next;
        memory_free(arena->blocks);
        arena->blocks = next;
    }
}
