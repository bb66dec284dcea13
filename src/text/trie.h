/* Maps byte strings to numbers and finds the strings that a text begins with. Immutable once built. */
#ifndef TEXT_TRIE_H
#define TEXT_TRIE_H

#include "base/status.h"

struct trie_entry {
    struct salvo_text key;
    int32_t value;
};

struct trie_node {
    uint32_t children; /* index of the first; they follow each other, ordered by label */
    uint32_t child_count;
    int32_t value; /* -1: no key ends here */
};

struct trie {
    struct trie_node *nodes; /* [0] is the root; NULL for an empty trie */
    uint8_t *labels;         /* of the same nodes: the byte that leads to each */
};

enum { TRIE_ROOT = 0 };

/* Reorders `entries`. Empty keys are left out; of equal keys the lowest value counts. */
enum salvo_status trie_open(struct trie *trie, struct trie_entry *entries, size_t count);
void trie_close(struct trie *trie);

/* The child of `node` under `byte`; TRIE_ROOT when there is none. */
uint32_t trie_step(const struct trie *trie, uint32_t node, char byte);

/*
 * The longest key that `text` begins with and that is at most `limit` long: its size and value; size 0 for
 * none.
 */
size_t trie_longest(const struct trie *trie, const char *text, size_t limit, int32_t *out_value);

#endif
