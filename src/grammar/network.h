/*
 * A grammar as a network of nodes. Each rule is a small nondeterministic automaton over bytes that may call
 * other rules; the parser (states.h) runs it.
 */
#ifndef GRAMMAR_NETWORK_H
#define GRAMMAR_NETWORK_H

#include "grammar/expr.h"

enum node_kind {
    NODE_SET,    /* reads a byte of the set `other`, goes to `next` */
    NODE_CALL,   /* matches the rule `other`, goes to `next` */
    NODE_SPLIT,  /* goes to `next` and to `other` without reading */
    NODE_ACCEPT, /* the end of the rule `other` */
};

struct node {
    uint8_t kind;      /* enum node_kind */
    bool dead;         /* no text leads from here to the end of the rule */
    bool empty;        /* the empty text leads from here to the end of the rule */
    bool any_text : 1; /* JSON: within a string, any text may follow */
    bool unique : 1;   /* NODE_SET: of an array with unique items; see unique.h */
    uint32_t next, other;
};

enum { NETWORK_MAX_NODES = 1 << 20 };

struct network {
    struct node *nodes;
    uint32_t node_count, node_capacity;
    uint32_t *starts; /* first node of each rule */
    uint32_t rule_count, rule_capacity;
    uint32_t root;                 /* the rule that texts must match */
    uint32_t character;            /* JSON Schema: the rule of one character of a string, + 1; 0: no JSON */
    bool unique;                   /* some nodes are */
    uint32_t free_first, free_end; /* nodes that read free text before a trigger */
    struct byte_set *sets;
    uint32_t set_count, set_capacity;
    uint32_t *set_slots, set_mask; /* hash table of the sets, index + 1 */

    uint32_t class_count;       /* bytes of a class are in the same sets */
    uint8_t class_of[256];      /* class of each byte */
    uint64_t (*set_classes)[4]; /* for each set the classes in it, a bit each */
};

/* Rule i is rules[i]; expr_rule refers to it by number. */
enum salvo_status network_build(
    const struct expr *const *rules, size_t count, uint32_t root, uint32_t character, struct network *out);
void network_free(struct network *network);

/* No text can match the root. */
static inline bool network_is_dead(const struct network *network)
{
    return network->nodes[network->starts[network->root]].dead;
}

static inline bool network_reads(const struct network *network, const struct node *node, unsigned class)
{
    return network->set_classes[node->other][class / 64] >> (class % 64) & 1;
}

#endif
