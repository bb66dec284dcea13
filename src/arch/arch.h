/*
 * Architectures: each reads a file's metadata and tensors and writes the model's program. A new one is a new
 * file with a table like llama_archs, and a line in arch.c.
 */
#ifndef ARCH_ARCH_H
#define ARCH_ARCH_H

#include "program/program.h"

struct arch {
    const char *name; /* general.architecture of its files; NULL ends a table */
    enum salvo_status (*build)(
        const struct arch *arch, const struct gguf *gguf, uint32_t context, struct program **out);
    const void *traits; /* how this architecture differs from others of its family, for `build` */

    bool is_recurrent;                   /* the size of a session does not depend on its tokens */
    const struct salvo_sampler *sampler; /* default sampler; NULL: the library's */
};

extern const struct arch llama_archs[]; /* Llama family */
extern const struct arch rwkv7_archs[]; /* RWKV-7, recurrent */

/* The architecture of a file; NULL when it is unknown. */
const struct arch *arch_of(const struct gguf *gguf);

/* The program of a file, which must stay open as long as the program. The error for an unknown
 * architecture lists the supported ones. */
enum salvo_status arch_build(const struct gguf *gguf, struct program **out);

/* As arch_build, for sessions of at most `context` positions (0: the trained context): some models use
 * other rope frequencies beyond their original context. */
enum salvo_status arch_build_for(const struct gguf *gguf, uint32_t context, struct program **out);

#endif
