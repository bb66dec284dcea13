/* Finds the special tokens that are written out in a text. */
#ifndef TEXT_SPECIAL_H
#define TEXT_SPECIAL_H

#include "text/trie.h"
#include "text/vocabulary.h"

struct special_tokens {
    struct trie all;          /* control tokens and user-defined tokens */
    struct trie user_defined; /* these are found in any text, also when special tokens are not asked for */
};

struct special_match {
    size_t begin, end; /* in the text, with the blanks that the token takes along */
    int32_t id;
};

/* Blanks that a token takes along: a space or one of \t \n \v \f \r. */
static inline bool is_blank(char byte)
{
    return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

enum salvo_status special_tokens_open(struct special_tokens *special, const struct vocabulary *vocabulary);
void special_tokens_close(struct special_tokens *special);

/* Which special tokens are parsed in which part of the text. */
struct special_search {
    const struct special_tokens *special;
    const struct vocabulary *vocabulary;
    struct salvo_text text;
    bool control;      /* control tokens, too, not only user-defined tokens */
    const char *marks; /* NULL, or for each byte of the text 1 where no control token may be */
    const bool
        *guarded; /* NULL, or for each token whether it is kept from marked bytes like control tokens */
};

/*
 * Accepts the longest matches first, then shorter ones in the gaps; among equally long ones the leftmost.
 * *out is ordered by position, and to be freed.
 */
enum salvo_status special_tokens_find(
    const struct special_search *search, struct special_match **out, size_t *out_count);

#endif
