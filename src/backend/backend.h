/*
 * The one interface between the engine and a device. A backend compiles a program once, for a few capacities,
 * loads the weights once, and then runs steps: one submission each.
 */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include "program/program.h"
#include "program/sampling.h"
#include "program/step.h"

#include <salvo/debug.h>

/* The engine has checked that slots, context, batch and outputs are not 0. */
struct backend_options {
    uint32_t device;          /* number within the backend */
    uint32_t slots;           /* sessions that can exist at once */
    uint32_t context;         /* most positions of each slot */
    uint32_t pages;           /* KV pages of all slots; 0: as many as their contexts need */
    uint32_t states;          /* kept states, in addition to the states of the slots */
    uint32_t batch;           /* largest T: tokens of a prefill chunk */
    uint32_t outputs;         /* largest O: rows of logits of one step; at least `slots` */
    enum tensor_type kv_type; /* TYPE_F16, TYPE_F32 or TYPE_Q8_0 */
    uint32_t threads;         /* CPU; 0: one per physical core */
    bool pin;                 /* CPU: keep each thread on its core */
    const char *isa;          /* CPU: force an instruction set; NULL: the best */

    /* Called while weights are loaded, with the bytes done and to do; may be NULL. */
    void (*progress)(void *user, uint64_t done, uint64_t total);
    void *progress_user;
};

struct backend_counters {
    uint64_t submissions, tokens;  /* tokens: rows computed */
    uint64_t dispatches, barriers; /* inside submissions; 0 where there are none to count */
    uint64_t bytes_read_back;
    uint64_t creations_after_load; /* of memory and objects on the device */
    double idle_seconds;           /* of the device between submissions, while it was measured */
    uint64_t weight_bytes, state_bytes, scratch_bytes;
};

struct state_layout; /* common/state.h */

/* Properties of an open executor; the strings live as long as it does. */
struct backend_info {
    uint32_t threads; /* 0 on a GPU */
    const char *isa;  /* "neon-i8mm"; "" on a GPU */

    /* Number of submissions that may be in flight. 0 or 1: submit returns when the step is done, and the
     * backend has no `progress`. */
    uint32_t in_flight;
    uint32_t ahead;      /* default number of tokens that one submission decodes; 0 counts as 1 */
    uint32_t most_ahead; /* largest number of tokens that one submission can decode now; 0: no limit */

    /* Activations of several tokens are always rounded as finely as ACTIVATIONS_FINEST. */
    bool fine_batches;
    bool fine_singles; /* the same for activations of a single token */

    const struct state_layout *state;
    uint64_t memory_free;    /* of the device, before the executor was opened; 0: it uses main memory */
    double bytes_per_second; /* read bandwidth of the device's memory; 0: not known */
};

/* Receives one phase of salvo_session_profile. */
typedef void (*backend_profile_function)(void *user, const struct salvo_profile_phase *phase);

/* A program on a device: its plans, weights, state pool and team of threads or queue. Used by one thread at a
 * time. */
struct executor;
struct plan; /* common/lowering.h */

enum activation_rounding {
    ACTIVATIONS_AS_USUAL, /* rounding of the program, but finer at the first positions and for fine matmuls */
    ACTIVATIONS_PLAIN,    /* rounding of the program */
    ACTIVATIONS_FINEST,   /* two int8 terms everywhere: almost no rounding error */
};

/*
 * The state of slots in the backend's memory. common/state.h is the engine's side: it saves, restores and
 * copies states with these functions. Recurrent states are numbered: first the slots' states, from `slots` on
 * the kept states.
 */
struct backend_state {
    /* Around calls of the functions below: `begin` waits until no step is in flight, `end` until they are
     * done, unless `status` is an error, which it returns. NULL: the backend needs neither. */
    enum salvo_status (*begin)(struct executor *executor);
    enum salvo_status (*end)(struct executor *executor, enum salvo_status status);

    /* Moves the first `count` positions of page `page` of a KV cache to `saved`, or back when `restores`. */
    enum salvo_status (*move_page)(struct executor *executor, buffer_id buffer, uint32_t page, uint32_t count,
        uint8_t *saved, bool restores);

    /* The same for the recurrent states of a slot, buffer after buffer, as they are after `positions`. It is
     * also called when the program has none. */
    enum salvo_status (*move_recurrent)(
        struct executor *executor, uint32_t number, uint32_t positions, uint8_t *saved, bool restores);

    /* Within the device: a page of one KV cache; recurrent states. */
    enum salvo_status (*copy_page)(struct executor *executor, buffer_id buffer, uint32_t to, uint32_t from);
    enum salvo_status (*copy_recurrent)(struct executor *executor, uint32_t to, uint32_t from);

    /* Sets the first ids of a slot; `count` is not 0. */
    enum salvo_status (*write_tokens)(
        struct executor *executor, uint32_t slot, const int32_t *ids, uint32_t count);
};

/* Measurements; NULL where a backend has none. */
struct backend_profile {
    /* Times the phases of a step of one token, which is not committed. */
    enum salvo_status (*time_phases)(struct executor *executor, const struct step *step, uint32_t repetitions,
        backend_profile_function function, void *user);

    /* Starts or stops counting the device's idle time between submissions. */
    enum salvo_status (*measure_idle)(struct executor *executor, bool on);
};

/* The debug path: a step whose groups run one by one. common/debug.h is the engine's side of it. */
struct backend_debug {
    /* The plan that runs steps of so many tokens. */
    const struct plan *(*plan)(const struct executor *executor, uint32_t tokens);

    /* Takes a step. Its scratch buffers are at `offsets`, [buffers], which outlive the step, in memory of
     * `bytes` bytes that the host can read and write. */
    enum salvo_status (*begin)(struct executor *executor, const struct step *step, const size_t *offsets,
        size_t bytes, uint8_t **out_memory);

    /* Runs the next group of the plan, and commits the step after the last. */
    enum salvo_status (*run)(struct executor *executor, uint32_t group);

    /* Frees everything; may be called when no step has begun. */
    void (*end)(struct executor *executor);
};

struct backend {
    const char *name;
    uint32_t (*device_count)(void);
    struct salvo_device (*device)(uint32_t number);
    const char *(*why_none)(void); /* why there is no device; NULL for backends that always have one */

    /* Why an existing device cannot be used; the function returns NULL beyond the last such device. */
    const char *(*unusable)(uint32_t index);
    bool (*auto_skips)(void); /* true: the user must name the backend, `auto` skips it; NULL: false */

    /* Compiles all plans, then loads the weights. The program outlives the executor. */
    enum salvo_status (*open)(
        const struct program *program, const struct backend_options *options, struct executor **out);
    void (*close)(struct executor *executor);

    struct backend_info (*info)(const struct executor *executor);

    /* Whether activations are rounded as ACTIVATIONS_AS_USUAL, or finer; if not, as ACTIVATIONS_PLAIN. */
    bool rounds_finely;

    /* Sets the rounding of activations, for comparisons with another backend. NULL: it cannot be changed. */
    void (*set_rounding)(struct executor *executor, enum activation_rounding rounding);

    /*
     * Starts a step and returns its ticket. The step is copied; only its cancel word is read afterwards.
     * Fails without effect if the step is not valid. A step may be submitted before earlier ones are done. A
     * run from SOURCE_LAST whose slot is not at the run's first position, because the step before it ended
     * early, computes and samples nothing.
     */
    enum salvo_status (*submit)(struct executor *executor, const struct step *step, uint64_t *out_ticket);

    /*
     * Waits for a step and returns its results, [run_count]. A failed step has committed nothing. A step that
     * repeats has committed the tokens that were complete when it was cancelled or when all logits of a run
     * were NaN; SALVO_ERROR_CANCELLED means that none were.
     */
    enum salvo_status (*wait)(struct executor *executor, uint64_t ticket, struct run_result *results);

    /* Puts mask number `number`, 1 to RESIDENT_MASKS, [step_mask_words], on the device; no step in flight
     * reads the one that it replaces. NULL: runs read `mask` of their settings, whatever its number. */
    enum salvo_status (*set_mask)(struct executor *executor, uint32_t number, const uint32_t *mask);

    /* Number of prompt tokens to submit at once: less than the batch if a batch would exceed the time limit
     * of the device's watchdog. NULL: the batch. */
    uint32_t (*chunk)(const struct executor *executor);

    /* Waits until the step, which has one run, has sampled more than `seen` ids or is done, and returns their
     * number. These ids can be read from `tokens` while the device continues. */
    enum salvo_status (*progress)(
        struct executor *executor, uint64_t ticket, uint32_t seen, uint32_t *out_sampled, bool *out_done);

    /* After a wait: row `row` of the O logits rows of the last step, [vocabulary], valid until the next
     * submit. Returns NULL if the device fails. */
    const float *(*logits)(struct executor *executor, uint32_t row);

    /* After a wait: copies `count` hidden rows (struct program) of the last step, from row `row` of its T
     * rows on, to `out`, [count][width]. The step had `keeps_hidden`. */
    enum salvo_status (*hidden)(struct executor *executor, uint32_t row, uint32_t count, float *out);

    /* After a wait: the log-probabilities of row `row` of the O logits rows of the last step, whose run asked
     * for them, [1 + top_count], valid until the next submit. NULL: the backend does not compute them, and no
     * run may ask for them. */
    const struct sampling_logprob *(*logprobs)(struct executor *executor, uint32_t row);

    /* The ids of a slot, [context + 1]; read-only. It contains the ids that `wait` or `progress` has
     * reported. */
    const int32_t *(*tokens)(struct executor *executor, uint32_t slot);

    struct backend_counters (*counters)(const struct executor *executor);

    /* The lowered plans, a line per group, and the layouts chosen for weights. */
    void (*print)(const struct executor *executor, void (*line)(void *user, const char *text), void *user);

    const struct backend_state *state;
    struct backend_profile profile;
    struct backend_debug debug;
};

extern const struct backend cpu_backend, cuda_backend; /* cuda: where SALVO_CUDA is defined */
extern const struct backend metal_backend;
extern const struct backend vulkan_backend; /* where SALVO_VULKAN is defined */

#endif
