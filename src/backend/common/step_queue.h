/*
 * Steps in flight on a GPU whose state the host commits (Vulkan, Metal): their tickets, their results, and
 * the versions of recurrent state that they read and write. Steps are complete in the order of their tickets.
 */
#ifndef COMMON_STEP_QUEUE_H
#define COMMON_STEP_QUEUE_H

#include "backend/backend.h"
#include "backend/common/pace.h"
#include "backend/common/state.h"
#include "backend/common/steps.h"

enum { QUEUE_MAX_ENTRIES = 4, QUEUE_MAX_VERSIONS = 4 };

/* A run of a submitted step: its slot, positions and versions of recurrent state. */
struct pending_run {
    uint32_t slot, first, count;
    uint32_t tokens; /* that it decodes unless it is stopped */
    bool samples;    /* an id, unless it fails or does nothing */
    uint8_t read_version, write_version, next_version;
};

/* Initialisers of the members that struct step_run of Vulkan and struct step_run of Metal have in common. */
#define RUN_FOR_DEVICE(run, pending)                                                                        \
    .slot = (run)->slot, .first = (run)->first, .count = (run)->count, .first_row = (run)->first_row,       \
    .logits = (run)->logits, .source = (run)->source, .limit = (run)->limit, .stop_mask = (run)->stop_mask, \
    .read_version = (pending)->read_version, .write_version = (pending)->write_version,                     \
    .next_version = (pending)->next_version, .next_id = (run)->next_id,                                     \
    .settings = sampler_for_device(&(run)->sampler)

/* A submitted step, and its results when it is complete. */
struct pending_step {
    uint64_t ticket;
    uint32_t run_count, token_count, repeat;
    bool samples_only;
    const volatile bool *cancel;
    struct pending_run *runs;   /* [slots] */
    struct run_result *results; /* [slots] */
    enum salvo_status status;
};

/* The versions of a slot's recurrent state, and the positions behind them: the committed one, and the one
 * that the submitted steps end with if nothing stops them. */
struct recurrent_slot {
    uint8_t committed, current;
    uint32_t committed_end, end;
    uint64_t ignored; /* tickets up to this one do not commit, because a step before them failed */
};

/* Functions of the backend. */
struct step_queue_device {
    /* Waits until the device has ended the step, for some microseconds at most. */
    enum salvo_status (*await)(
        struct executor *executor, struct pending_step *pending, uint32_t microseconds, bool *out_done);
    /* Passes a cancellation on to the device, which then ends a step that repeats. */
    void (*cancel)(struct executor *executor, const struct pending_step *pending);
    /* Fills pending->results. */
    void (*collect)(struct executor *executor, struct pending_step *pending);
    /* The ids of a slot in memory that the host reads while the device writes; NULL: there is none. */
    int32_t *(*ids)(const struct executor *executor, uint32_t slot);
};

struct step_queue {
    const struct program *program;
    const struct backend_options *options;
    const struct state_layout *state;
    struct backend_counters *counters;
    const char *device_name;
    uint32_t entries;         /* steps whose results are kept: one more than may be in flight */
    uint32_t versions;        /* of each slot's recurrent state */
    uint32_t most_repeats;    /* tokens of one step */
    uint32_t timeout_seconds; /* a step that takes longer is lost */
    bool shows_ids; /* the host sees each id when it is sampled, not only when its step is complete */
    struct step_queue_device device;
    struct executor *executor;

    struct pending_step pending[QUEUE_MAX_ENTRIES];
    struct recurrent_slot *slots;  /* [slots] */
    uint64_t submitted, completed; /* tickets */
    bool is_lost;                  /* the device failed: nothing is submitted any more */
};

/* The members before `pending` are set. */
enum salvo_status step_queue_open(struct step_queue *queue, struct arena *tables);

struct pending_step *step_queue_at(struct step_queue *queue, uint64_t ticket);

enum salvo_status step_queue_check_device(const struct step_queue *queue);

/* Checks a step, and waits until an entry and versions of recurrent state are free for it. */
enum salvo_status step_queue_make_room(struct step_queue *queue, const struct step *step);

/* Adds a step, after step_queue_make_room, with the next ticket, and puts its ids where the host reads them.
 */
struct pending_step *step_queue_add(struct step_queue *queue, const struct step *step);

/* The debug path: the caller runs the step that was added last, with no other in flight, and commits it. */
void step_queue_run_last(struct step_queue *queue);
enum salvo_status step_queue_commit_last(struct step_queue *queue);

/* Waits for the steps up to `ticket`; for all steps. */
enum salvo_status step_queue_complete(struct step_queue *queue, uint64_t ticket);
enum salvo_status step_queue_complete_all(struct step_queue *queue);

/* backend.wait; backend.progress. */
enum salvo_status step_queue_wait(struct step_queue *queue, uint64_t ticket, struct run_result *results);
enum salvo_status step_queue_progress(
    struct step_queue *queue, uint64_t ticket, uint32_t seen, uint32_t *out_sampled, bool *out_done);

/* The place of the recurrent state of a slot among all versions of all slots, or of a kept state (numbers
 * from `slots` on) among the kept states. */
uint64_t step_queue_recurrent_place(const struct step_queue *queue, uint32_t number);

/* Records the time that a complete step took. */
void pending_step_note_time(const struct pending_step *pending, struct pace *pace, uint64_t spent_ns);

#endif
