/* An engine: a program on a device, and a fixed pool of sessions. Everything it needs is allocated when it is
 * opened. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "backend/backend.h"
#include "engine/model.h"

struct salvo_session {
    struct salvo_engine *engine;
    uint32_t slot;
    bool is_open;
    volatile bool cancelled; /* only by atomic loads and stores; taken by the call that it stops */
    uint32_t *pages;         /* KV pages of the slot, in order */

    /*
     * tokens[0 .. position) are the session's. All of them are in the device's state, except perhaps the
     * last: one that was sampled, or that has to run again because what was sampled after it is gone.
     */
    int32_t *tokens; /* [context] */
    uint32_t position, computed;
    int32_t pending; /* sampled after the last token and not taken yet; -1: none */

    uint64_t logits_step; /* the engine's step that left its logits, in `logits_row` */
    uint32_t logits_row;
    struct sampler_settings sampler;
    float *bias; /* [vocabulary], what sampler.bias points at; NULL until one is set */
};

struct salvo_engine {
    struct salvo_model *model;
    const struct backend *backend;
    struct program *program;
    struct executor *executor;
    struct backend_options options;
    uint64_t fingerprint; /* of model and state layout: states fit where it is equal */
    bool has_folded_state;

    struct salvo_session *sessions; /* [slots] */
    uint32_t *pages;                /* [slots][pages of a slot] */
    int32_t *tokens;                /* [slots][context] */

    /* Of the step that runs or ran last. */
    struct run *runs;           /* [slots] */
    struct run_result *results; /* [slots] */
    int32_t *ids;               /* [slots]: last tokens of several sessions */
    uint64_t steps;
    uint64_t allocations; /* made while steps ran */
};

/* One submission: hands `step` over and waits. Its results are then in engine->results. */
enum salvo_status engine_run(struct salvo_engine *engine, const struct step *step);

/* Whether the session was cancelled; the cancel is then used up. */
bool session_take_cancel(struct salvo_session *session);

/* Computes what is needed so that an id is pending. Fails with SALVO_ERROR_CONTEXT when there is no room for
 * it.
 */
enum salvo_status session_sample(struct salvo_session *session);

/* Appends the pending id. */
int32_t session_take(struct salvo_session *session);

#endif
