/* A model that the server offers: its file, the engine and the scheduler. */
#ifndef SERVER_API_MODEL_H
#define SERVER_API_MODEL_H

#include "api_request.h"

#include <salvo/scheduler.h>
#include <salvo/tools.h>

#include <pthread.h>
#include <stdatomic.h>

enum api_model_state { API_MODEL_LOADING, API_MODEL_READY, API_MODEL_FAILED };

struct api_choice;

/* The tokens that the last request of a session has computed. */
struct api_slot {
    int32_t *ids; /* freed by free() */
    size_t count;
};

struct api_model {
    const char *id; /* the name that requests use */
    struct salvo_model *model;
    struct salvo_template *chat;
    struct salvo_text template_text; /* of an option; empty: the model's own */
    struct salvo_tool_form *form;
    struct api_defaults defaults;
    const struct salvo_engine_options *options;
    /* Set when the state is ready; later the loop alone changes them. */
    struct salvo_engine *engine;
    struct salvo_scheduler *scheduler;
    struct api_slot *slots;
    uint32_t slot_count;
    atomic_int state;              /* enum api_model_state */
    atomic_ullong loaded, to_load; /* bytes of weights */
    char message[320];             /* why loading failed */
    /* Sums over finished requests, of the loop thread. */
    double prompt_seconds, answer_seconds;
    /* Sums of the schedulers before this one, of the loop thread; the members that are no sums are 0. */
    struct salvo_scheduler_counters past;

    /* Used by the loop thread alone; see api_recovery.h. */
    unsigned failures; /* of the device */
    struct api_choice *parked;
    pthread_t opener;
    bool has_opener;
};

/* Opens engine and scheduler; blocks, and sets the state at the end. */
void api_model_load(struct api_model *model);
/* Opens both; blocks. False: `message` tells why. */
bool api_model_open(
    struct api_model *model, struct salvo_engine **out_engine, struct salvo_scheduler **out_scheduler);
void api_model_close(struct api_model *model); /* engine, scheduler and slots */

/* Sums since the start, and how it is now. On the loop. */
struct salvo_scheduler_counters api_model_counters(const struct api_model *model);
/* Adds the sums of `more`. */
void api_counters_add(struct salvo_scheduler_counters *sums, const struct salvo_scheduler_counters *more);

/* The bytes of a token as part of an answer: none for a control token. *out is freed by salvo_free. */
bool api_token_bytes(struct salvo_model *model, int32_t id, char **out, size_t *out_size);

#endif
