/* The inside of a JSON string, byte by byte: any text in every legal spelling. It is the language of
 * layout->character, repeated. */
#ifndef GRAMMAR_JSON_TEXT_H
#define GRAMMAR_JSON_TEXT_H

#include <stdbool.h>

enum json_text_state {
    TEXT_DEAD,
    TEXT_BODY, /* between characters */
    TEXT_ESCAPE,
    TEXT_HEX_4, /* \u: four digits are missing, then fewer */
    TEXT_HEX_3,
    TEXT_HEX_2,
    TEXT_HEX_1,
    TEXT_HEX_D,  /* \ud: perhaps a surrogate */
    TEXT_HIGH_2, /* the first of two surrogates: two digits are missing, then fewer */
    TEXT_HIGH_1,
    TEXT_LOW, /* the second surrogate must follow: its backslash, then its other parts */
    TEXT_LOW_U,
    TEXT_LOW_D,
    TEXT_LOW_4,
    TEXT_MORE_1, /* UTF-8: bytes that are missing */
    TEXT_MORE_2,
    TEXT_MORE_3,
    TEXT_AFTER_E0,
    TEXT_AFTER_ED,
    TEXT_AFTER_F0,
    TEXT_AFTER_F4,
    TEXT_STATES
};

enum json_text_state json_text_next(enum json_text_state state, unsigned byte);

/* Whether a byte leads to other states than the byte before it: the first of a kind. */
bool json_text_kind_begins(unsigned byte);

#endif
