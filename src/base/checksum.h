/* The checksum of saved sessions and cached pipelines. It is stored in files, so it must never change. */
#ifndef BASE_CHECKSUM_H
#define BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

uint64_t checksum64(const void *data, size_t size);

#endif
