/* Engines for tests of the scheduler: a Llama and an RWKV-7 model, on the CPU or an asynchronous device. */
#ifndef SCHEDULER_FIXTURE_H
#define SCHEDULER_FIXTURE_H

#include "engine_fixture.h"

#include <salvo/scheduler.h>

enum { PAGE = 256, SESSIONS = 3, CONTEXT = 160, BATCH = 40, MOST_TOKENS = 40, SCHEDULER_MODELS = 2 };

/* Number 0 is a Llama, 1 an RWKV-7 model; valid until the next call. */
const char *scheduler_model_path(size_t index);

/* An engine without open sessions. `kv_memory` other than 0 also switches the prefix cache on. */
struct fixture scheduler_open_engine(const char *path, bool is_busy, uint32_t context, size_t kv_memory);

/* The bytes of one KV page; 1 for a model without KV caches. */
size_t scheduler_page_bytes(const struct fixture *fixture);

struct salvo_scheduler_counters scheduler_counters_now(const struct salvo_scheduler *scheduler);

#endif
