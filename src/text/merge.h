/*
 * The merge loop of BPE and SentencePiece. A word is a chain of symbols; the pair of neighbours with the
 * lowest rank is merged until no pair can be, the leftmost first among equals. A heap of pairs makes this O(n
 * log n).
 */
#ifndef TEXT_MERGE_H
#define TEXT_MERGE_H

#include "base/status.h"

enum { MERGE_NONE = -1 };

struct merge_result {
    uint32_t rank; /* MERGE_NEVER: the two do not merge */
    int32_t symbol;
};

#define MERGE_NEVER UINT32_MAX

/* The merge of two neighbours. `joined` is their concatenated text. */
typedef struct merge_result (*merge_function)(
    const void *context, int32_t left, int32_t right, struct salvo_text joined);

struct merge_symbol {
    int32_t id; /* from the merge function; MERGE_NONE for a character without a token */
    uint32_t begin;
    uint32_t previous, next;
    struct merge_result with_next;
};

/* Working memory, kept from word to word. All zeros is ready. */
struct merger {
    struct merge_symbol *symbols;
    size_t count, capacity;
    uint64_t *heap; /* rank and left symbol, in this order of importance */
    size_t heap_count, heap_capacity;
    struct salvo_text word;
};

void merger_free(struct merger *merger);

/* Begins a word of at most UINT32_MAX / 2 bytes, and so at most as many symbols. */
enum salvo_status merger_begin(struct merger *merger, struct salvo_text word);

/* Adds the next character, which begins at that byte of the word and reaches to the next one. */
void merger_add(struct merger *merger, int32_t id, size_t begin);

void merger_run(struct merger *merger, merge_function merge, const void *context);

/* Iterates over the remaining symbols: start with *position = 0; false at the end. */
bool merger_next(
    const struct merger *merger, uint32_t *position, int32_t *out_id, struct salvo_text *out_text);

#endif
