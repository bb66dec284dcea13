/*
 * A map from byte strings to 32-bit values: open addressing, built once and then read. Keys are not copied;
 * they stay in the caller's memory, usually the mapped file. The hash has no secret seed, so a hostile file
 * can choose colliding keys: probing is bounded, and string_map_add fails when it reaches the bound.
 */
#ifndef BASE_STRING_MAP_H
#define BASE_STRING_MAP_H

#include "base/status.h"

struct string_map_slot {
    const char *key; /* NULL: free */
    uint32_t size, value;
};

struct string_map {
    struct string_map_slot *slots; /* [mask + 1] */
    size_t mask, used;
};

/* Room for `count` keys. */
enum salvo_status string_map_open(struct string_map *map, size_t count);
void string_map_close(struct string_map *map);

/* Adds a key unless it exists; *out_value is the existing value, otherwise `value`. */
enum salvo_status string_map_add(
    struct string_map *map, const char *key, size_t size, uint32_t value, uint32_t *out_value);

/* UINT32_MAX when absent. */
uint32_t string_map_find(const struct string_map *map, const char *key, size_t size);

#endif
