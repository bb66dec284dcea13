#include "backend/vulkan/vulkan_pipelines.h"
#include "base/atomic_file.h"
#include "base/checksum.h"
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* Drivers trust the cache data, so the file has a header that identifies and checks it. */
struct cache_header {
    uint64_t magic, size, hash;
};

#define CACHE_MAGIC UINT64_C(0x31656863614376) /* "vCache1" */

enum { MAX_CACHE_BYTES = 256 << 20 };

/* False if neither XDG_CACHE_HOME nor HOME is set. */
static bool cache_path(const struct vulkan_physical *physical, char *path, size_t size)
{
    const char *folder = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int used = folder && *folder ? snprintf(path, size, "%s", folder)
               : home && *home   ? snprintf(path, size, "%s/.cache", home)
                                 : -1;
    if (used < 0 || (size_t)used + 64 > size)
        return false;
    (void)mkdir(path, 0700);
    used += snprintf(path + used, size - (size_t)used, "/salvo");
    (void)mkdir(path, 0700);
    used += snprintf(path + used, size - (size_t)used, "/vulkan-");
    for (size_t i = 0; i < VK_UUID_SIZE; i++)
        used += snprintf(path + used, size - (size_t)used, "%02x", physical->cache_key[i]);
    return true;
}

void vulkan_cache_load(const struct vulkan_physical *physical, uint8_t **out_data, size_t *out_size)
{
    char path[4096];
    struct cache_header header;
    uint8_t *data = NULL;
    *out_data = NULL;
    *out_size = 0;
    FILE *file = cache_path(physical, path, sizeof path) ? fopen(path, "rb") : NULL;
    if (!file)
        return;
    if (fread(&header, sizeof header, 1, file) == 1 && header.magic == CACHE_MAGIC && header.size > 0 &&
        header.size <= MAX_CACHE_BYTES && NEW(&data, header.size) == SALVO_OK &&
        fread(data, header.size, 1, file) == 1 && checksum64(data, header.size) == header.hash) {
        *out_data = data;
        *out_size = header.size;
        data = NULL;
    }
    memory_free(data);
    fclose(file);
}

void vulkan_cache_store(const struct vulkan_physical *physical, const uint8_t *data, size_t size)
{
    char path[4096];
    uint8_t *old = NULL;
    size_t old_size = 0;
    struct atomic_file file;
    const struct cache_header header = {CACHE_MAGIC, size, checksum64(data, size)};
    vulkan_cache_load(physical, &old, &old_size);
    const bool is_new = !old || old_size != size || checksum64(old, old_size) != header.hash;
    memory_free(old);
    if (!is_new || size > MAX_CACHE_BYTES || !cache_path(physical, path, sizeof path) ||
        atomic_file_open(path, &file) != SALVO_OK)
        return;
    if (atomic_file_write(&file, &header, sizeof header) != SALVO_OK ||
        atomic_file_write(&file, data, size) != SALVO_OK || atomic_file_commit(&file) != SALVO_OK)
        atomic_file_abandon(&file);
}
