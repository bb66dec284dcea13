#include "grammar/expr_memo.h"

#include <string.h>

struct memo_entry {
    const void *result; /* NULL: free */
    struct salvo_text source;
    uint64_t hash;
    enum memo_kind kind;
};

static uint64_t hash_source(enum memo_kind kind, struct salvo_text source)
{
    uint64_t hash = (uint64_t)kind + UINT64_C(0xCBF29CE484222325);
    for (size_t i = 0; i < source.size; i++)
        hash = (hash ^ (unsigned char)source.data[i]) * UINT64_C(0x100000001B3);
    return hash ^ hash >> 29;
}

/* The entry of a source, or the free one where it belongs. */
static struct memo_entry *find_entry(
    struct memo_entry *entries, size_t mask, uint64_t hash, enum memo_kind kind, struct salvo_text source)
{
    size_t at = (size_t)hash & mask;
    for (; entries[at].result; at = (at + 1) & mask) {
        const struct memo_entry *entry = &entries[at];
        if (entry->hash == hash && entry->kind == kind && entry->source.size == source.size &&
            (source.size == 0 || memcmp(entry->source.data, source.data, source.size) == 0))
            break;
    }
    return &entries[at];
}

const void *memo_find(const struct expr_pool *pool, enum memo_kind kind, struct salvo_text source)
{
    if (!pool->memo)
        return NULL;
    return find_entry(pool->memo, pool->memo_mask, hash_source(kind, source), kind, source)->result;
}

static void grow(struct expr_pool *pool)
{
    const struct memo_entry *old = pool->memo;
    const size_t old_size = old ? pool->memo_mask + 1 : 0, size = old ? old_size * 2 : 64;
    struct memo_entry *entries = expr_pool_new(pool, size * sizeof *entries);
    if (!entries)
        return;
    for (size_t i = 0; i < old_size; i++) {
        if (old[i].result)
            *find_entry(entries, size - 1, old[i].hash, old[i].kind, old[i].source) = old[i];
    }
    pool->memo = entries;
    pool->memo_mask = size - 1;
}

void memo_keep(struct expr_pool *pool, enum memo_kind kind, struct salvo_text source, const void *result)
{
    if (result && (!pool->memo || pool->memo_count * 2 > pool->memo_mask))
        grow(pool);
    char *copy = result ? expr_pool_new(pool, source.size + 1) : NULL;
    if (!copy)
        return;
    if (source.size)
        memcpy(copy, source.data, source.size);
    const uint64_t hash = hash_source(kind, source);
    *find_entry(pool->memo, pool->memo_mask, hash, kind, source) =
        (struct memo_entry){result, {copy, source.size}, hash, kind};
    pool->memo_count++;
}
