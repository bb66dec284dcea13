/* salvo: functions for debugging and measuring. They may change between minor versions. */
#ifndef SALVO_DEBUG_H
#define SALVO_DEBUG_H

#include <salvo/salvo.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Counters ---- */

/* Totals since the engine was opened. */
struct salvo_counters {
    size_t size;
    uint64_t submissions;            /* to the device */
    uint64_t tokens;                 /* computed, prompts included */
    uint64_t dispatches, barriers;   /* inside the submissions; 0 where the backend has none */
    uint64_t bytes_read_back;        /* from the device */
    uint64_t allocations_after_load; /* on the host and on the device; stays 0 */
    double idle_seconds; /* of the device between submissions, while salvo_engine_measure_idle is on */
    uint64_t waits;      /* submissions that began after all earlier ones were done */
};
#define SALVO_COUNTERS_INIT                                   \
    {                                                         \
        sizeof(struct salvo_counters), 0, 0, 0, 0, 0, 0, 0, 0 \
    }

SALVO_API enum salvo_status salvo_engine_counters(
    const struct salvo_engine *engine, struct salvo_counters *out);

/* Switches the measurement of idle_seconds on or off; it costs a little time. SALVO_ERROR_UNSUPPORTED if the
 * device cannot measure it. */
SALVO_API enum salvo_status salvo_engine_measure_idle(struct salvo_engine *engine, bool on);

/* ---- Programs and profiles ---- */

/* Prints the program and the plans it was lowered to, line by line. */
typedef void (*salvo_line_function)(void *user, const char *line);
SALVO_API enum salvo_status salvo_engine_print(
    const struct salvo_engine *engine, salvo_line_function line, void *user);

/* One phase of a plan. The library's own struct: it may grow. */
struct salvo_profile_phase {
    const char *kind;       /* "matmul", "attend", ... */
    const char *operations; /* with the names of tensors */
    double seconds;
    uint64_t bytes; /* of weights and state that it reads */
};

/*
 * Times the phases of a step with `count` tokens, `repetitions` times each, and passes them to `function` in
 * order; the session is not changed. SALVO_ERROR_UNSUPPORTED if the backend has no profile.
 */
typedef void (*salvo_profile_function)(void *user, const struct salvo_profile_phase *phase);
SALVO_API enum salvo_status salvo_session_profile(struct salvo_session *session, const int32_t *ids,
    uint32_t count, uint32_t repetitions, salvo_profile_function function, void *user);

/* ---- Verifying a backend ---- */

struct salvo_verify_options {
    size_t size;
    /* "cpu", or with an instruction set "cpu:neon-i8mm"; NULL: as "auto" for an engine. */
    const char *backend;
    const char *against; /* NULL: "cpu:scalar", the reference */
    uint32_t device, threads;
    uint32_t kv_type;   /* enum salvo_kv_type */
    const int32_t *ids; /* NULL: a fixed sequence */
    size_t count;
};
#define SALVO_VERIFY_OPTIONS_INIT                                \
    {                                                            \
        sizeof(struct salvo_verify_options), 0, 0, 0, 0, 0, 0, 0 \
    }

/* One output of one group of operations, computed by both sides from the same inputs. The library's own
 * struct: it may grow. */
struct salvo_verify_output {
    const char *operation, *buffer; /* the operation that wrote it, and its name */
    uint32_t group, rows, columns;
    uint32_t decode;      /* 1: in the plan for one token */
    uint64_t not_finite;  /* elements that are NaN, or infinite on one side only: must be 0 */
    double error;         /* the largest max |got - expected| / max |expected| of a row */
    double tolerance;     /* the largest error allowed */
    uint32_t row, column; /* of the largest error */
    float got, expected;  /* there */
    double norm, expected_norm;
};

struct salvo_verify_result {
    size_t size;
    uint32_t passed;          /* 1: everything below is within its tolerance */
    uint32_t outputs, failed; /* compared, and out of tolerance */

    /* The whole model, each side on its own. */
    uint32_t positions, same_argmax;
    double mean_divergence, largest_divergence; /* Kullback-Leibler, of `backend` from `against` */

    /* If mean_divergence is above 1e-3: the mean divergence of each side from the CPU backend with two-term
     * int8 activations. `backend` passes if its divergence is at most 1.25 times the divergence of `against`.
     */
    double from_finest, against_from_finest;
};
#define SALVO_VERIFY_RESULT_INIT                                      \
    {                                                                 \
        sizeof(struct salvo_verify_result), 0, 0, 0, 0, 0, 0, 0, 0, 0 \
    }

/* Compares two backends or instruction sets. Passes all outputs to `output`, which may be NULL: outputs with
 * the most elements that are not finite first, the others by falling error / tolerance. */
typedef void (*salvo_verify_function)(void *user, const struct salvo_verify_output *output);
SALVO_API enum salvo_status salvo_verify(struct salvo_model *model,
    const struct salvo_verify_options *options, salvo_verify_function output, void *user,
    struct salvo_verify_result *out);

#ifdef __cplusplus
}
#endif

#endif
