/*
 * An engine: a program on a device, a pool of sessions and one of KV pages. All memory is allocated when it
 * is opened.
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "backend/backend.h"
#include "engine/ahead.h"
#include "engine/batch.h"
#include "engine/last_norm.h"
#include "engine/masks.h"
#include "engine/model.h"
#include "engine/prefix_cache.h"
#include "engine/snapshots.h"

#include <salvo/debug.h>

struct salvo_session {
    struct salvo_engine *engine;
    uint32_t slot;
    bool is_open;
    volatile bool cancelled; /* set and cleared atomically; cleared by the call that it stops */
    volatile bool stop;      /* the device's cancel flag: `cancelled`, or tokens in flight are not needed */
    uint32_t *pages;         /* KV pages of positions 256 i .. 256 i + 255; NO_PAGE from `page_count` on */
    uint32_t page_count;

    /*
     * tokens[0 .. position) are the session's; the first `computed` of them are in the device's state. The
     * others are computed before anything new: the last token, if it was sampled or must run again because
     * the id sampled after it is lost; and after a rollback to a snapshot, the tokens since the snapshot.
     */
    int32_t *tokens; /* [context] */
    uint32_t position, computed;
    struct snapshots snapshots;
    int32_t pending; /* sampled after the last token, not yet appended; -1: none */

    /* While decoding ahead: tokens[.. known) are ids sampled already, the pending one and more; `computed`
     * may then exceed `position`. Otherwise 0. */
    uint32_t known;

    uint64_t logits_step; /* the engine's step that has its logits, in `logits_row` */
    uint32_t logits_row;
    struct sampler_settings sampler;
    float *bias; /* [vocabulary], sampler.bias points to it; NULL: no bias was ever set */
    struct batch_session batch;
};

struct salvo_engine {
    struct salvo_model *model;
    const struct backend *backend;
    struct program *program;
    struct executor *executor;
    struct backend_options options;
    struct salvo_engine_info info;
    uint64_t model_hash;  /* computed when a state is first saved or restored; 0 before */
    uint64_t layout_hash; /* of the state's layout: a saved state with the same hash fits */
    bool has_recurrent_state, has_caches;
    struct last_norm last_norm;
    struct page_pool page_pool;
    struct page_pool state_pool; /* kept states, in addition to the states of the slots */
    uint32_t snapshots_each;     /* kept states for each session; */
    uint32_t cached_states;      /* kept states for the prefix cache */
    struct prefix_cache prefix_cache;

    struct salvo_session *sessions; /* [slots] */
    uint32_t *pages;                /* [slots][pages of a context]: page tables */
    int32_t *tokens;                /* [slots][context] */

    /* The running or last step. */
    struct run *runs;           /* [slots] */
    struct run_result *results; /* [slots] */
    int32_t *ids;               /* [batch] */
    uint64_t steps;
    uint64_t waits; /* submissions that began when no other was in flight */
    struct ahead ahead;
    struct batch batch;
    struct masks masks;
    int32_t end_ids[MAX_STOP_IDS]; /* end tokens of the vocabulary, valid if `knows_end_ids` */
    uint32_t end_id_count;
    bool knows_end_ids;
    uint64_t allocations;   /* memory allocations while steps ran */
    uint64_t bias_versions; /* last bias version used */
};

/* SALVO_ERROR_CANCELLED if the session was cancelled; that clears the cancellation. */
enum salvo_status session_check_cancel(struct salvo_session *session);

/* Whether the session was cancelled; clears the cancellation. */
bool session_take_cancel(struct salvo_session *session);

/* Size and checksum of the saved state that begins with these bytes, unchecked. Zeros: not a state. */
struct state_extent {
    uint64_t size, checksum;
};

struct state_extent session_state_extent(const void *data, size_t size);

/* The checksum of a state of `size` bytes, at least a header. */
uint64_t session_state_checksum(const void *data, size_t size);

/* A run of the session's next `count` tokens. */
struct run session_run(
    const struct salvo_session *session, uint32_t count, uint32_t first_row, enum run_logits logits);

/* Whether a step is needed before an id is pending; fails if none can be computed. */
enum salvo_status session_check_next(const struct salvo_session *session, bool *out_needs_step);

/* Computes all tokens but the last. */
enum salvo_status session_prepare_last(struct salvo_session *session);

/* Computes all tokens; the pending id stays. */
enum salvo_status session_catch_up(struct salvo_session *session);

/* Checks new tokens and stores them at position `at`, without changing the session's position. */
enum salvo_status session_stage(struct salvo_session *session, uint32_t at, const int32_t *ids, size_t count);

/* The error of a step that was cancelled. */
enum salvo_status session_cancelled(struct salvo_session *session);

/* Sets the device's cancel flag, in addition to a cancellation by the user. */
void session_stop_device(struct salvo_session *session, bool stop);

/* Appends the pending id. */
int32_t session_take(struct salvo_session *session);

#endif
