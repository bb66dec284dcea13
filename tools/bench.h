/* The parts of `salvo bench` that its tests share. */
#ifndef TOOLS_BENCH_H
#define TOOLS_BENCH_H

#include "engine_flags.h"

struct json_writer;

extern struct bench_options {
    struct count_list prompts, tokens, depths, sessions; /* prompts: empty if not given */
    uint32_t repetitions, ahead;
    float rate;                  /* requests a second that arrive; 0: all at once */
    uint32_t requests, arriving; /* number of these; tokens of a prompt that arrives while others decode */
    bool profile;
} bench_options;

/* Random ids: the speed does not depend on them. */
void bench_fill_ids(int32_t *ids, size_t count, uint32_t vocabulary);

/* Opens model and engine, with a context of `needed` tokens unless -c gives more. EXIT_DONE, or an exit
 * status after an error message. */
int bench_load(struct loaded *loaded, uint32_t sessions, uint64_t needed);

/* One line about model and device. */
void bench_print_model(const struct loaded *loaded);

/* Begins the document and the array `key`, and ends both. */
void bench_begin_json(struct json_writer *json, const struct loaded *loaded, const char *key);
void bench_end_json(struct json_writer *json);

void bench_print_memory(void);

/* `salvo bench --sessions`; bench_sessions.c. */
int bench_run_sessions(void);

#endif
