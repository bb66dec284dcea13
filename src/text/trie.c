#include "text/trie.h"

#include "base/checked.h"
#include "base/memory.h"
#include "base/text_order.h"

#include <stdlib.h>
#include <string.h>

static int compare_entries(const void *left_pointer, const void *right_pointer)
{
    const struct trie_entry *left = left_pointer, *right = right_pointer;
    const int order = text_compare(left->key, right->key);
    return order ? order : left->value < right->value ? -1 : left->value > right->value;
}

/* The entries below a node while its level is being built: entries [first, last) share the node's path. */
struct node_range {
    size_t first, last;
    size_t depth;
};

enum salvo_status trie_open(struct trie *trie, struct trie_entry *entries, size_t count)
{
    enum salvo_status status = SALVO_OK;
    struct node_range *ranges = NULL;
    size_t node_count = 1;
    *trie = (struct trie){0};

    qsort(entries, count, sizeof *entries, compare_entries);
    struct salvo_text previous = {0};
    for (size_t i = 0; i < count; i++) {
        if (!checked_add(node_count, entries[i].key.size - text_common_prefix(previous, entries[i].key),
                &node_count) ||
            node_count > UINT32_MAX)
            TRY(fail(SALVO_ERROR_UNSUPPORTED, "the vocabulary has more than %u bytes of text", UINT32_MAX));
        previous = entries[i].key;
    }
    if (node_count == 1)
        goto cleanup;

    TRY(NEW(&trie->nodes, node_count));
    TRY(NEW(&trie->labels, node_count));
    TRY(NEW(&ranges, node_count));

    /* Breadth first, so that the children of a node are neighbours. */
    ranges[0] = (struct node_range){0, count, 0};
    uint32_t made = 1;
    for (uint32_t node = 0; node < made; node++) {
        struct node_range range = ranges[node];
        size_t at = range.first;
        trie->nodes[node] = (struct trie_node){.children = made, .value = -1};
        for (; at < range.last && entries[at].key.size == range.depth; at++) {
            if (range.depth && trie->nodes[node].value < 0)
                trie->nodes[node].value = entries[at].value;
        }
        while (at < range.last) {
            char label = entries[at].key.data[range.depth];
            size_t first = at;
            while (at < range.last && entries[at].key.data[range.depth] == label)
                at++;
            trie->labels[made] = (uint8_t)label;
            ranges[made++] = (struct node_range){first, at, range.depth + 1};
        }
        trie->nodes[node].child_count = made - trie->nodes[node].children;
    }

cleanup:
    memory_free(ranges);
    if (status != SALVO_OK)
        trie_close(trie);
    return status;
}

void trie_close(struct trie *trie)
{
    memory_free(trie->nodes);
    memory_free(trie->labels);
    *trie = (struct trie){0};
}

uint32_t trie_step(const struct trie *trie, uint32_t node, char byte)
{
    const struct trie_node *parent = &trie->nodes[node];
    const uint8_t *labels = trie->labels + parent->children;
    const uint8_t *found = memchr(labels, (unsigned char)byte, parent->child_count);
    return found ? parent->children + (uint32_t)(found - labels) : TRIE_ROOT;
}

size_t trie_longest(const struct trie *trie, const char *text, size_t limit, int32_t *out_value)
{
    size_t longest = 0;
    if (!trie->nodes)
        return 0;
    uint32_t node = TRIE_ROOT;
    for (size_t i = 0; i < limit; i++) {
        node = trie_step(trie, node, text[i]);
        if (node == TRIE_ROOT)
            break;
        if (trie->nodes[node].value >= 0) {
            longest = i + 1;
            *out_value = trie->nodes[node].value;
        }
    }
    return longest;
}
