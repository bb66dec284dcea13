#include "base/checksum.h"

#include <string.h>

/* Eight bytes per round, multiply and fold: fast on the short keys of string maps, which use it as well. */
uint64_t checksum64(const void *data, size_t size)
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
