#include "base/string_map.h"

#include "base/checksum.h"
#include "base/memory.h"

#include <string.h>

enum salvo_status string_map_open(struct string_map *map, size_t count)
{
    *map = (struct string_map){0};
    size_t size = 16;
    while (size / 2 < count) {
        if (size > SIZE_MAX / 4)
            return fail(SALVO_ERROR_MEMORY, "out of memory: a table of %zu keys was requested", count);
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
    size_t index = checksum64(key, size) & map->mask;
    /* Half of the slots are free: without deliberate collisions no key comes near this many steps. */
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
        return fail(
            SALVO_ERROR_FORMAT, "a table of %zu keys is full or has too many hash collisions", map->used);
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
