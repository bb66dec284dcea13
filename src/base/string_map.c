#include "base/string_map.h"

#include "base/memory.h"

#include <string.h>

/* Eight bytes a round, multiply and fold: enough mixing for tables and quick on short keys. */
uint64_t hash_bytes(const void *data, size_t size)
{
    const unsigned char *bytes = data;
    const uint64_t prime = 0x9e3779b97f4a7c15u;
    uint64_t hash = size * prime;
    while (size >= 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        hash = (hash ^ word) * prime;
        hash ^= hash >> 32;
        bytes += 8;
        size -= 8;
    }
    if (size) {
        uint64_t word = 0;
        memcpy(&word, bytes, size);
        hash = (hash ^ word) * prime;
        hash ^= hash >> 32;
    }
    return hash ^ hash >> 29;
}

enum salvo_status string_map_open(struct string_map *map, size_t count)
{
    *map = (struct string_map){0};
    size_t size = 16;
    while (size / 2 < count) {
        if (size > SIZE_MAX / 4)
            return fail(SALVO_ERROR_MEMORY, "out of memory: a table of %zu keys was asked for", count);
        size *= 2;
    }
    enum salvo_status status = NEW(&map->slots, size);
    if (status == SALVO_OK)
        map->mask = size - 1;
    return status;
}

void string_map_close(struct string_map *map)
{
    memory_free(map->slots);
    *map = (struct string_map){0};
}

static struct string_map_slot *find_slot(const struct string_map *map, const char *key, size_t size)
{
    size_t index = hash_bytes(key, size) & map->mask;
    /* Half of the slots are free and the hash is good: an honest file never comes near this many steps. */
    for (size_t step = 0; step < 256 && step <= map->mask; step++) {
        struct string_map_slot *slot = &map->slots[index];
        if (!slot->key || (slot->size == size && memcmp(slot->key, key, size) == 0))
            return slot;
        index = (index + 1) & map->mask;
    }
    return NULL;
}

enum salvo_status string_map_add(
    struct string_map *map, const char *key, size_t size, uint32_t value, uint32_t *out_value)
{
    struct string_map_slot *slot = size <= UINT32_MAX ? find_slot(map, key, size) : NULL;
    if (!slot || (!slot->key && map->used > map->mask / 2))
        return fail(SALVO_ERROR_FORMAT, "%zu keys could not be told apart in a table", map->used);
    if (!slot->key) {
        *slot = (struct string_map_slot){key, (uint32_t)size, value};
        map->used++;
    }
    *out_value = slot->value;
    return SALVO_OK;
}

uint32_t string_map_find(const struct string_map *map, const char *key, size_t size)
{
    if (!map->slots)
        return UINT32_MAX;
    const struct string_map_slot *slot = find_slot(map, key, size);
    return slot && slot->key ? slot->value : UINT32_MAX;
}
