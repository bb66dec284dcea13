/*
 * Architectures: each reads a file's metadata and tensors and writes the program that they mean. A new one is
 * a new file with a table like llama_archs, and a line in arch.c.
 */
#ifndef ARCH_ARCH_H
#define ARCH_ARCH_H

#include "program/program.h"

struct arch {
    const char *name; /* general.architecture of its files; NULL ends a table */
    enum salvo_status (*build)(
        const struct arch *arch, const struct gguf *gguf, uint32_t context, struct program **out);
    const void *traits; /* what `build` has to know of this one among its kin */

    bool is_recurrent;                   /* a session does not grow with its tokens */
    const struct salvo_sampler *sampler; /* how the family is sampled; NULL: as most are */
};

extern const struct arch llama_archs[]; /* Llama and its many relatives */
extern const struct arch rwkv7_archs[]; /* RWKV-7, recurrent */

/* The architecture of a file; NULL when it has none that is known. */
const struct arch *arch_of(const struct gguf *gguf);

/* The program of a file that stays open as long as it. An architecture that is not known is an error that
 * lists those that are. */
enum salvo_status arch_build(const struct gguf *gguf, struct program **out);

/* As arch_build for sessions of at most `context` positions (0: as long as the model was trained for): some
 * models rotate by other angles once they go beyond what they saw first. */
enum salvo_status arch_build_for(const struct gguf *gguf, uint32_t context, struct program **out);

#endif
