/* A model: a checked GGUF file, its common metadata, and its tokenizer, opened on first use. */
#ifndef ENGINE_MODEL_H
#define ENGINE_MODEL_H

#include "gguf/gguf.h"
#include "text/tokenizer.h"

const struct gguf *model_gguf(const struct salvo_model *model);

/* The default sampler of the model's family. */
struct salvo_sampler model_sampler(const struct salvo_model *model);

/* A hash that identifies the model: of the metadata, the tensor directory, and some bytes of every tensor. */
uint64_t model_hash(const struct salvo_model *model);

/* Opens the tokenizer on first use, from any thread. Fails if the vocabulary is missing or not supported. */
enum salvo_status model_tokenizer(struct salvo_model *model, const struct tokenizer **out);

struct token_trie;

/* The vocabulary as a trie for grammars, made on first use, from any thread. */
enum salvo_status model_token_trie(struct salvo_model *model, const struct token_trie **out);

#endif
