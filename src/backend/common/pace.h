/*
 * How many tokens go into one submission, by how long those before them took. Systems reset a GPU that works
 * on one for seconds, and a display that shares it stands still for so long.
 */
#ifndef COMMON_PACE_H
#define COMMON_PACE_H

#include <stdint.h>

enum { PACE_CHUNK_STEP = 16 };

struct pace {
    uint64_t target_ns; /* that a submission is to take; 0: there is no limit */
    uint64_t token_ns;  /* of the last tokens that came one after the other; 0: not known yet */
    uint32_t batch;
    uint32_t chunk; /* tokens of a prompt: a multiple of PACE_CHUNK_STEP or the batch, so that the remainder
                       of a prompt does not depend on how fast the device was */
};

/* `first_chunk`: as long as nothing is known. */
void pace_open(struct pace *pace, uint64_t target_ns, uint32_t batch, uint32_t first_chunk);

/* Take the time of a submission: of tokens one after the other, or of a chunk of a prompt. */
void pace_note_tokens(struct pace *pace, uint64_t spent_ns, uint32_t tokens);
void pace_note_chunk(struct pace *pace, uint64_t spent_ns, uint32_t tokens);

/* Tokens one after the other in one submission, at most; at least 1. */
uint32_t pace_tokens(const struct pace *pace);

#endif
