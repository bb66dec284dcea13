/* Comparison of two engines. */
#ifndef ENGINE_VERIFY_H
#define ENGINE_VERIFY_H

#include "engine/engine.h"

struct verify_pair {
    struct salvo_engine *ours, *theirs; /* `theirs` is the reference */
};

/* An output and the memory of its text. */
struct verify_record {
    struct salvo_verify_output output;
    char operation[160];
};

struct verify_list {
    struct verify_record *records;
    size_t count, capacity;
};

void verify_list_free(struct verify_list *list);

/* The rows that a run appended to a cache, [count][columns]; the caller frees them. */
bool verify_state_is_readable(const struct salvo_engine *engine, buffer_id id);
enum salvo_status verify_read_state(
    const struct salvo_engine *engine, const struct run *run, buffer_id id, float **out);

/*
 * Runs one step on both sides, group by group, on the debug path. Before each group `ours` gets the inputs of
 * `theirs`; outputs that later ops read are compared and added to the list.
 */
enum salvo_status verify_step(
    const struct verify_pair *pair, const struct step *step, struct verify_list *list);

/* The distance of `ours` from `theirs` over some positions. */
struct verify_distance {
    uint32_t same_argmax;
    double divergences, largest; /* KL divergence: the sum and the largest */
};

/* Runs `count` ids on each side in a session of its own and compares the logits. */
enum salvo_status verify_run_free(
    const struct verify_pair *pair, const int32_t *ids, uint32_t count, struct verify_distance *out);

#endif
