/* A model is a checked GGUF file, what its metadata says in common words, and its tokenizer once somebody
 * needs it. */
#ifndef ENGINE_MODEL_H
#define ENGINE_MODEL_H

#include "gguf/gguf.h"
#include "text/tokenizer.h"

const struct gguf *model_gguf(const struct salvo_model *model);

/* The sampler that the model's family is used with. */
struct salvo_sampler model_sampler(const struct salvo_model *model);

/* Tells models apart: of the metadata, the tensor directory, and some bytes of every tensor. */
uint64_t model_hash(const struct salvo_model *model);

/* Opens the tokenizer on first use, from any thread; a vocabulary that is missing or not supported fails
 * here. */
enum salvo_status model_tokenizer(struct salvo_model *model, const struct tokenizer **out);

#endif
