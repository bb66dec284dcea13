/* Checks of embeddings for engines on any backend. */
#ifndef TESTS_EMBED_CHECKS_H
#define TESTS_EMBED_CHECKS_H

#include "engine_fixture.h"

/* Embeddings of texts of one and of several tokens, one after the other and together, on `backend` and on the
 * CPU: the largest difference, relative to the length of an embedding. */
double embedding_difference(const char *path, const char *backend);

#endif
