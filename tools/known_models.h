/* Models that `salvo pull` knows by name; the README has the same list. */
#ifndef TOOLS_KNOWN_MODELS_H
#define TOOLS_KNOWN_MODELS_H

#include <stddef.h>

struct known_model {
    const char *name;
    const char *source; /* hf:ORG/REPO/FILE.gguf */
    const char *sha256; /* NULL: as the hub says */
    const char *about;  /* download size, memory with a context of 8192 tokens, licence */
};

/* The first one is the default model; a NULL name ends the list. */
extern const struct known_model known_models[];

/* NULL if there is no such name; case is ignored. */
const struct known_model *known_model_find(const char *name);

#endif
