/* Detects an answer that has become a cycle of tokens: small models repeat themselves until the context is
 * full. */
#ifndef TOOLS_LOOP_WATCH_H
#define TOOLS_LOOP_WATCH_H

#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>

enum { LOOP_WINDOW = 256, LOOP_LONGEST = 64 };

/* How a text ended: "loop" for a cycle of `length` tokens, else the name of `finish`. */
const char *finish_or_loop(uint32_t finish, uint32_t length);

/* The period of the last LOOP_WINDOW tokens, if it is at most LOOP_LONGEST; 0: none, or there are fewer
 * tokens. */
uint32_t find_loop(const int32_t *tokens, size_t count);

/* The last tokens of an answer. */
struct loop_watch {
    int32_t ids[2 * LOOP_WINDOW];
    size_t count;
};

/* Adds a token; returns the period as find_loop does. */
uint32_t loop_watch_add(struct loop_watch *watch, int32_t id);

/* Format of the warning; takes the period. */
#define LOOP_WARNING                                                                       \
    "the answer repeats itself and ends here: its last 256 tokens are a cycle of %" PRIu32 \
    "; --allow-loops continues it"

#endif
