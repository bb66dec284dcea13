/* An engine: a program on a device, and a fixed pool of sessions. Everything it needs is allocated when it is
 * opened. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "backend/backend.h"
#include "engine/ahead.h"
#include "engine/batch.h"
#include "engine/model.h"
#include "engine/snapshots.h"

#include <salvo/debug.h>

struct salvo_session {
    struct salvo_engine *engine;
    uint32_t slot;
    bool is_open;
    volatile bool cancelled; /* only by atomic loads and stores; taken by the call that it stops */
    volatile bool stop;      /* what steps look at: cancelled, or what is in flight is not wanted any more */
    uint32_t *pages;         /* KV pages of the slot, in order */

    /*
     * tokens[0 .. position) are the session's, of which the first `computed` are in the device's state.
     * Others are computed before anything new: the last one, when it was sampled or has to run again because
     * what was sampled after it is gone, and those since the snapshot that a session has gone back to.
     */
    int32_t *tokens; /* [context] */
    uint32_t position, computed;
    struct snapshots snapshots;
    int32_t pending; /* sampled after the last token and not taken yet; -1: none */

    /* While it decodes ahead: tokens[.. known) are ids that were sampled already, the pending one and more;
     * `computed` may then lie beyond `position`. Otherwise 0. */
    uint32_t known;

    uint64_t logits_step; /* the engine's step that left its logits, in `logits_row` */
    uint32_t logits_row;
    struct sampler_settings sampler;
    float *bias; /* [vocabulary], what sampler.bias points at; NULL until one is set */
    struct batch_session batch;
};

struct salvo_engine {
    struct salvo_model *model;
    const struct backend *backend;
    struct program *program;
    struct executor *executor;
    struct backend_options options;
    struct salvo_engine_info info;
    uint64_t model_hash;  /* once a state was saved or restored; 0 before */
    uint64_t layout_hash; /* of the states that a session has: saved ones fit where it is equal */
    bool has_recurrent_state;

    struct salvo_session *sessions; /* [slots] */
    uint32_t *pages;                /* [slots][pages of a slot] */
    int32_t *tokens;                /* [slots][context] */
    uint8_t *snapshot_memory;
    size_t snapshot_bytes;

    /* Of the step that runs or ran last. */
    struct run *runs;           /* [slots] */
    struct run_result *results; /* [slots] */
    int32_t *ids;               /* [batch] */
    uint64_t steps;
    uint64_t waits; /* submissions before which everything else was over */
    struct ahead ahead;
    struct batch batch;
    int32_t end_ids[MAX_STOP_IDS]; /* of the vocabulary, once `knows_end_ids` */
    uint32_t end_id_count;
    bool knows_end_ids;
    uint64_t allocations;   /* made while steps ran */
    uint64_t bias_versions; /* given out so far */
};

/* One submission: hands `step` over and waits. Its results are then in engine->results. */
enum salvo_status engine_run(struct salvo_engine *engine, const struct step *step);

/* Whether the session was cancelled; the cancel is then used up. */
bool session_take_cancel(struct salvo_session *session);

/* What a state that begins these bytes says of itself, unchecked: its size and checksum. Zeros: there is
 * none.
 */
struct state_extent {
    uint64_t size, checksum;
};

struct state_extent session_state_extent(const void *data, size_t size);

/* The checksum that belongs into a state of `size` bytes, at least a header. */
uint64_t session_state_checksum(const void *data, size_t size);

/* A run of the session's next tokens to be computed. */
struct run session_run(
    const struct salvo_session *session, uint32_t count, uint32_t first_row, enum run_logits logits);

/* Whether a step is needed before a token can be taken; fails when none can be. */
enum salvo_status session_check_next(const struct salvo_session *session, bool *out_needs_step);

/* Computes all tokens but the last. */
enum salvo_status session_prepare_last(struct salvo_session *session);

/* Computes all tokens; the pending id stays. */
enum salvo_status session_catch_up(struct salvo_session *session);

/* Checks new tokens and puts them at position `at`, where they do not count yet. */
enum salvo_status session_stage(struct salvo_session *session, uint32_t at, const int32_t *ids, size_t count);

/* The two ways in which a step ends without an id. */
enum salvo_status session_cancelled(struct salvo_session *session);
enum salvo_status session_no_id(uint32_t position);

/* Whether the device is to leave what it does for the session, beside being told so by a cancel. */
void session_stop_device(struct salvo_session *session, bool stop);

/* Appends the pending id. */
int32_t session_take(struct salvo_session *session);

#endif
