/*
 * Random schedules of batches: requests of different lengths share the sessions of an engine, in steps of
 * random runs, with cancels and waits at random moments. Each request must get exactly the ids that it gets
 * alone on the CPU.
 */
#ifndef TESTS_BATCH_SCHEDULE_H
#define TESTS_BATCH_SCHEDULE_H

#include "engine_fixture.h"

struct schedule {
    uint64_t seed;
    uint32_t requests, most_prompt, most_tokens;
    uint32_t batch;      /* tokens of a step */
    bool compare_logits; /* equal bits, also of ids chosen at random */
    bool cancel;         /* from this thread, between submit and wait */
};

/* Counts of a schedule, by which a test checks that it exercised the engine. */
struct schedule_report {
    uint32_t steps, mixed_steps; /* mixed: a run that decodes beside a part of a prompt */
    uint32_t most_open, cancelled, idle_runs;
    uint32_t longer_runs; /* of several tokens */
    uint64_t last_handle; /* of the runs submitted so far; another thread may read it atomically */
};

/* `engine` has the model at `path`; its sessions are closed. */
void run_schedule(const char *path, struct salvo_engine *engine, const struct schedule *schedule,
    struct schedule_report *report);

/* Short schedules with cancels, of seeds 1 to `seeds`. The engine of the fixture has three sessions; its
 * session is closed. */
struct schedule_report run_mixtures(const char *path, struct fixture *fixture, uint64_t seeds);

#endif
