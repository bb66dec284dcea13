/*
 * uniqueItems: an array has no two equal items, which no context-free grammar can say. So the text since the
 * beginning of such an array is kept, with the items of every open one. Where an item ends, the parser asks
 * whether an equal one is before it, and then leaves out the nodes that demand unique items.
 *
 * A place tells where in a JSON value a text ends. Places are values, and what they refer to only grows: to
 * try bytes and go back is to restore a place and three sizes.
 */
#ifndef GRAMMAR_UNIQUE_H
#define GRAMMAR_UNIQUE_H

#include "base/buffer.h"

#include <salvo/salvo.h>
#include <stdint.h>

enum unique_kind { UNIQUE_OUTSIDE, UNIQUE_ARRAY, UNIQUE_OBJECT };

struct unique_place {
    uint8_t kind; /* enum unique_kind: outside of all arrays with unique items, or directly in what */
    bool unique;  /* an array with unique items */
    bool begun;   /* the current item has begun at `start` */
    bool in_string, escape; /* within a string; behind a backslash */
    uint32_t start;
    uint32_t last;      /* the last complete item of the array, index + 1; 0: none */
    uint32_t enclosing; /* the place around this array or object, index + 1 */
};

struct unique_item {
    uint32_t start, end; /* in the text */
    uint32_t previous;   /* of the same array, index + 1 */
    uint64_t hash;       /* equal for equal values */
};

/* The state that a matcher restores when it goes back. */
struct unique_step {
    struct unique_place place;
    size_t text_size, frame_count, item_count;
};

/* The text of a matcher, as far as it is within arrays with unique items. Zeroed, it is empty. */
struct unique_text {
    struct buffer text;
    struct unique_place place, *frames; /* `frames`: places around open arrays and objects */
    struct unique_item *items;
    struct unique_step *steps; /* after each step of the matcher */
    size_t frame_count, frame_capacity, item_count, item_capacity, step_count, step_capacity;
};

void unique_free(struct unique_text *text);
enum salvo_status unique_copy(const struct unique_text *from, struct unique_text *out);

/* Ends a step, and goes back to the end of the first `count` ones; unique_return drops what is not kept. */
enum salvo_status unique_keep(struct unique_text *text);
void unique_go_back(struct unique_text *text, size_t count);
void unique_return(struct unique_text *text);

/* Appends a byte that the grammar allows. `opens`: it opens an array with unique items. */
enum salvo_status unique_push(struct unique_text *text, unsigned char byte, bool opens);

/* Whether a byte ends an item of an array with unique items. */
static inline bool unique_ends_item(const struct unique_place *place, unsigned char byte)
{
    return place->kind == UNIQUE_ARRAY && place->unique && place->begun && !place->in_string &&
           (byte == ',' || byte == ']');
}

/* Whether the current item, which is complete, is equal to one before it. */
enum salvo_status unique_is_repeated(const struct unique_text *text, bool *out);

static inline bool unique_is_space(unsigned byte)
{
    return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

enum { UNIQUE_MOST_COMPARED = 256 };

/* The items of the current array that begin with what there is of the current one, behind that beginning.
 * *out_all: these are all. Long items are not looked at, nor arrays with more than UNIQUE_MOST_COMPARED, so
 * that it does not depend on the bytes of an item whether its array is looked at. */
size_t unique_begun_alike(
    const struct unique_text *text, struct salvo_text out[UNIQUE_MOST_COMPARED], bool *out_all);

#endif
