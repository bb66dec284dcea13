/*
 * The states of a parser for any context-free grammar, left-recursive and ambiguous ones too: Earley's
 * algorithm over the nodes of a network, byte by byte.
 *
 * A state is a set of items: a node, and the state in which the node's rule was called. Equal sets are one
 * state, and transitions are kept. So a state number is all a matcher needs, the inside of a string is one
 * state however long the string, and repeated bytes cost a table lookup. A state refers only to older ones.
 *
 * The caller locks. Memory is bounded: a function that needs more than the limit fails, and states_collect
 * drops the states that no matcher needs.
 */
#ifndef GRAMMAR_STATES_H
#define GRAMMAR_STATES_H

#include "grammar/network.h"

enum { STATE_DEAD = 0, STATE_FIRST = 1, STATES_MOST_EFFORT = 3000000 };

struct item {
    uint32_t node, origin;
};

/* A call of `rule` that goes on at `item` when the rule is matched. */
struct call {
    uint32_t rule;
    struct item item;
};

struct parser_state {
    uint32_t hash;
    uint32_t kernel_count, call_count, read_count;
    bool complete;   /* the text so far matches */
    uint32_t ahead;  /* within a JSON string: any text of this many characters may follow; 0: not any text */
    bool other_text; /* some longer texts may follow, too */
    bool free;       /* before a trigger: any token may follow */
    bool marked;     /* for states_collect */
    struct item *kernel; /* identifies the state; sorted */
    struct item *reads;  /* items that read a byte */
    struct call *calls;  /* sorted by rule */
    uint32_t *next;      /* for each class of bytes: state + 1; 0: not known yet */
    uint32_t *mask;      /* the tokens that may follow; NULL: not known yet */
};

struct states {
    const struct network *network;
    struct parser_state **list; /* [0], the dead state, is NULL */
    uint32_t count, capacity;
    uint32_t *slots, slot_mask; /* hash table of the states: number; 0: free */
    size_t bytes, limit;
    size_t bytes_needed; /* after the last collection */
    size_t mask_bytes;   /* of one mask */
    size_t effort;       /* items made since the caller set it to 0; beyond STATES_MOST_EFFORT steps fail */
    uint64_t attempts;   /* items that were made or that were there already, of all states */

    /* While a state is made: its items, and a hash table of them. */
    struct item *items;
    size_t item_count, item_capacity;
    uint32_t *item_slots; /* index + 1; valid if its stamp is the current one */
    uint32_t *item_stamps;
    size_t item_mask;
    uint32_t *node_stamps, stamp; /* nodes that the new state has predicted */
    struct call *calls;
    size_t call_count, call_capacity;
    uint32_t *todo; /* nodes to predict */
    size_t todo_count;
};

/* `limit`: bytes of all states. */
enum salvo_status states_open(
    const struct network *network, size_t limit, size_t mask_bytes, struct states *out);
void states_close(struct states *states);

/* The state after one more byte, STATE_DEAD if the byte cannot follow. */
enum salvo_status states_compute(struct states *states, uint32_t state, unsigned class, uint32_t *out);

static inline enum salvo_status states_step(
    struct states *states, uint32_t state, unsigned class, uint32_t *out)
{
    uint32_t known = states->list[state]->next[class];
    if (known) {
        *out = known - 1;
        return SALVO_OK;
    }
    return states_compute(states, state, class, out);
}

/* Whether a node of an array with unique items reads the class in a state; and the state after the class
 * without these nodes, which is not kept. */
bool states_read_unique(const struct states *states, uint32_t state, unsigned class);
enum salvo_status states_step_repeated(struct states *states, uint32_t state, unsigned class, uint32_t *out);

/* The states after every byte. Classes that the same items read are computed once. */
enum salvo_status states_compute_all(struct states *states, uint32_t state);

/* Room for the mask of a state, zeroed: its `mask` is set. */
enum salvo_status states_new_mask(struct states *states, uint32_t state);

/* Whether it is time to collect: not again before there are many new ones. */
static inline bool states_are_many(const struct states *states)
{
    return states->bytes > states->limit / 4 * 3 && states->bytes - states->bytes_needed > states->limit / 16;
}

/* A matcher needs fewer states than before: a collection may drop some. */
static inline void states_release(struct states *states)
{
    states->bytes_needed = 0;
}

/* Drops all states except the first and the states that `mark` has passed to states_mark. *out_numbers, freed
 * by the caller, has the new number of each old state. */
void states_mark(struct states *states, uint32_t state);
enum salvo_status states_collect(struct states *states, uint32_t **out_numbers);

#endif
