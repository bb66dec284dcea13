/* The number of tokens per submission, chosen from the times of earlier submissions. Systems reset a GPU that
 * is busy with one submission for seconds, and a display on the same GPU freezes meanwhile. */
#ifndef COMMON_PACE_H
#define COMMON_PACE_H

#include <stdint.h>

enum { PACE_CHUNK_STEP = 16 };

struct pace {
    uint64_t target_ns; /* time that a submission should take; 0: no limit */
    uint64_t token_ns;  /* of one decoded token, from the last submission; 0: not measured yet */
    uint32_t batch;
    /* Tokens of a prompt per submission: a multiple of PACE_CHUNK_STEP or the batch, so that the remainder of
     * a prompt does not depend on the device's speed. */
    uint32_t chunk;
};

/* `first_chunk`: tokens of a prompt before anything is measured. */
void pace_open(struct pace *pace, uint64_t target_ns, uint32_t batch, uint32_t first_chunk);

/* Record the time of a submission: of decoded tokens, or of a chunk of a prompt. */
void pace_note_tokens(struct pace *pace, uint64_t spent_ns, uint32_t tokens);
void pace_note_chunk(struct pace *pace, uint64_t spent_ns, uint32_t tokens);

/* Most tokens that one submission should decode, at least 1. */
uint32_t pace_tokens(const struct pace *pace);

#endif
