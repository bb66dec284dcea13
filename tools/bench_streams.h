/* Requests of a benchmark, and when each of their tokens came. */
#ifndef TOOLS_BENCH_STREAMS_H
#define TOOLS_BENCH_STREAMS_H

#include <salvo/scheduler.h>

struct streams;

struct stream {
    struct streams *all;
    const int32_t *ids;
    uint32_t prompt, tokens; /* lengths of prompt and answer */
    uint64_t handle;
    double submitted;
    double *times;     /* [tokens]: arrival time of each token */
    uint32_t count;    /* tokens that have arrived */
    uint32_t together; /* tokens that arrived before all streams had their first token */
};

struct streams {
    struct salvo_scheduler *scheduler;
    struct stream *items;
    uint32_t count;

    /* streams_run_together: another prompt that arrives when the first stream has decoded `rest` tokens
     * together with the others. Its first token ends the run. A prompt of 0: none. */
    struct stream arriving;
    uint32_t rest;

    struct stream_state *state; /* during a run */
};

/* Room for `count` streams with these lengths; the prompts are parts of `ids`, [prompt + count]. False: out
 * of memory. */
bool streams_open(struct streams *streams, struct salvo_scheduler *scheduler, uint32_t count,
    const int32_t *ids, uint32_t prompt, uint32_t tokens);
void streams_close(struct streams *streams);

/* Sets the prompt that arrives. False: out of memory. */
bool streams_set_arriving(struct streams *streams, const int32_t *ids, uint32_t prompt, uint32_t rest);

/*
 * Submits all at once, between two steps. A stream that has its first token pauses until all have one; then
 * all decode together. Returns when all have ended. false: one failed, for the reason in `message`.
 */
bool streams_run_together(struct streams *streams, char *message, size_t size);

/* Submits one after the other, `per_second` on average with random gaps (exponential, the same for the same
 * seed). A stream's `submitted` is when it was to arrive. Otherwise as above. */
bool streams_run_arriving(
    struct streams *streams, double per_second, uint64_t seed, char *message, size_t size);

#endif
