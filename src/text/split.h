/*
 * Pre-tokenizers: they split text into words for byte-level BPE. A pre-tokenizer is published as a list of
 * regular expressions: the first splits the text into its matches and the gaps between them, the next splits
 * each of these pieces, and so on. Here every expression is a stage, a hand-written function.
 */
#ifndef TEXT_SPLIT_H
#define TEXT_SPLIT_H

#include "base/status.h"

/*
 * The size of the first piece of a text that is not empty: a match, or the text before the next match.
 */
typedef size_t (*split_stage)(const char *at, const char *end);

enum { SPLIT_MAX_STAGES = 6 };

struct pre_tokenizer {
    const char *name;
    const split_stage *stages; /* [SPLIT_MAX_STAGES]; NULL after the last */
    bool ignore_merges;        /* a word that is a token becomes that token, whatever the merges say */
    bool add_bos;              /* unless the metadata says otherwise */
    bool no_default_bos;
};

/* NULL when the name is not known. */
const struct pre_tokenizer *pre_tokenizer_find(const char *name, size_t size);

/* For tests: all of them, in no order. NULL beyond the last. */
const struct pre_tokenizer *pre_tokenizer_at(size_t index);

struct splitter {
    const split_stage *stages;
    size_t depth; /* number of stages */
    const char *at;
    const char *ends[SPLIT_MAX_STAGES + 1]; /* end of the text, then end of the current piece of each stage */
};

struct splitter splitter_begin(const struct pre_tokenizer *pre, const char *text, size_t size);

/* False at the end of the text. */
bool splitter_next(struct splitter *splitter, struct salvo_text *out_word);

#endif
