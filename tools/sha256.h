/* SHA-256 (FIPS 180-4). */
#ifndef TOOLS_SHA256_H
#define TOOLS_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHA256_TEXT = 65 }; /* 64 hexadecimal digits and NUL */

struct sha256 {
    uint32_t state[8];
    uint64_t size; /* bytes so far */
    unsigned char block[64];
};

/* 64 hexadecimal digits in lower case. */
bool sha256_is_valid(const char *text, size_t size);

void sha256_begin(struct sha256 *hash);
void sha256_add(struct sha256 *hash, const void *data, size_t size);
void sha256_end(struct sha256 *hash, char out[SHA256_TEXT]);

#endif
