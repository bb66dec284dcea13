/* A copy of a GGUF file with the vocabulary of sample_bpe, for models whose texts are tested. */
#ifndef TESTS_VOCABULARY_COPY_H
#define TESTS_VOCABULARY_COPY_H

#include "base/status.h"

enum salvo_status copy_with_vocabulary(const char *plain_path, const char *path);

#endif
