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
    double *times;     /* [tokens]: when each came */
    uint32_t count;    /* that have come */
    uint32_t together; /* of these, before all streams had their first */
};

/* A scheduler is needed for one set of streams after another. */
struct streams {
    struct salvo_scheduler *scheduler;
    struct stream *items;
    uint32_t count;
    struct stream_state *state; /* during a run */
};

/* Room for `count` streams with these lengths; the prompts are parts of `ids`, [prompt + count]. False: out
 * of memory. */
bool streams_open(struct streams *streams, struct salvo_scheduler *scheduler, uint32_t count,
    const int32_t *ids, uint32_t prompt, uint32_t tokens);
void streams_close(struct streams *streams);

/*
 * Submits all at once, between two steps. A stream that has its first token pauses until all have one; then
 * all decode together. Returns when all have ended. false: one failed, for the reason in `message`.
 */
bool streams_run_together(struct streams *streams, char *message, size_t size);

#endif
