/*
 * A step: everything that changes between submissions, as small plain data, so that a plan is built once.
 */
#ifndef PROGRAM_STEP_H
#define PROGRAM_STEP_H

#include "program/op.h"

enum {
    PAGE_POSITIONS = 256, /* positions of one KV page */
    MAX_STOP_IDS = 32,
    MAX_TOP_LOGPROBS = 20,
    RESIDENT_MASKS = 64,
};

enum run_source {
    SOURCE_IDS,  /* ids from the host, at step.ids[first_row ..] */
    SOURCE_LAST, /* the slot's own ids at these positions: the last sampled id */
};

enum run_logits {
    LOGITS_NONE, /* a chunk of a prompt before the last chunk */
    LOGITS_LAST, /* logits of the last row, and an id sampled from them */
    LOGITS_ALL,  /* logits of every row; nothing is sampled */
};

/* Sampler settings; sampling.h defines each. */
struct sampler_settings {
    float temperature;                                         /* 0: the largest logit */
    uint32_t top_k;                                            /* 0: off */
    float top_p;                                               /* 1: off */
    float min_p;                                               /* 0: off */
    float repeat_penalty, presence_penalty, frequency_penalty; /* 1, 0, 0: off */
    uint32_t repeat_last_n;                                    /* number of last ids that penalties count */
    uint64_t seed;
    const uint32_t *mask; /* [ceil(vocabulary / 32)]: bit i % 32 of word i / 32 allows id i; NULL: all ids */
    /* 0, or the number, from 1 on, that set_mask of the backend gave to `mask` */
    uint32_t mask_number;
    const float *bias;     /* [vocabulary] added to the logits, or NULL */
    uint64_t bias_version; /* changes when the contents of `bias` change */
};

struct run {
    uint32_t slot;
    uint32_t first; /* position of its first token */
    uint32_t count;
    uint32_t first_row; /* among the T rows of the step */
    enum run_source source;
    enum run_logits logits;
    const uint32_t *pages; /* KV page of positions 256 i .. 256 i + 255, for all positions up to the last */
    struct sampler_settings sampler;
    uint32_t limit;      /* with repetition: the run ends once this many positions are filled; 0: none */
    uint32_t stop_mask;  /* bit i: sampling step.stop_ids[i] ends the run */
    uint32_t logits_row; /* with step.samples_only: among the O rows of the last step */
    /* Log-probabilities of an id and of the `top_count` largest logits. LOGITS_LAST: of the sampled id.
     * LOGITS_ALL: for each row, of the id after it; `next_id` is the one after the last row. */
    bool has_logprobs;
    uint32_t top_count;
    int32_t next_id;
};

struct step {
    const struct run *runs;
    uint32_t run_count, token_count; /* live R and T */
    const int32_t *ids;              /* [token_count], for SOURCE_IDS runs */
    const int32_t *stop_ids;         /* [stop_count], at most MAX_STOP_IDS; each run has a mask of its own */
    uint32_t stop_count;
    /* Tokens that each run decodes with one submission; every run then has one token and LOGITS_LAST. 0
     * counts as 1. A run ends at a stop id, at its limit, at the end of the context and where no id can be
     * chosen; the others continue. */
    uint32_t repeat;
    /* Computes no token: each run, of one token with LOGITS_LAST, chooses an id from logits that the last
     * step has left. `first` is the position of the token that they belong to, the last one of its slot; a
     * run whose slot has not reached it does nothing. Recurrent state stays as it is. */
    bool samples_only;
    bool keeps_hidden;           /* the hidden rows of the step are read afterwards */
    const volatile bool *cancel; /* read between tokens and phases, by atomic loads; may be NULL */
};

/* The result of a step, for each run in order. */
struct run_result {
    /* The number of sampled ids, which are in the slot's tokens from position first + count on. */
    uint32_t sampled;
    bool ended;  /* by a stop id */
    bool failed; /* its logits were all NaN at position `failed_position`, which is not committed */
    uint32_t failed_position;
};

#endif
