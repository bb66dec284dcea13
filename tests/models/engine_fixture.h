/* Small models made on the spot, engines on them, and logits computed in different ways. Every failure fails
 * the test. */
#ifndef TESTS_ENGINE_FIXTURE_H
#define TESTS_ENGINE_FIXTURE_H

#include <salvo/debug.h>

/* A model of a shape and mix that make-model knows, in a folder that is removed at the end of the program. */
const char *made_model(const char *shape, const char *mix);

/* The same with so many ids. */
const char *made_model_of(const char *shape, const char *mix, uint32_t vocabulary);

/* The same with a vocabulary of single bytes and a few words, as text_sample.h has it. */
const char *made_model_with_vocabulary(const char *shape, const char *mix);
void write_model_with_vocabulary(const char *shape, const char *mix, const char *path);

struct fixture {
    struct salvo_model *model;
    struct salvo_engine *engine;
    struct salvo_session *session;
    uint32_t vocabulary;
};

struct fixture fixture_open(const char *path, struct salvo_engine_options options);
void fixture_close(struct fixture *fixture);

/* Opens an engine once for each allocation that opening makes; that allocation fails. Without it opening
 * fails with SALVO_ERROR_MEMORY, or succeeds. Returns how often it fails; `out_count`: all allocations. */
uint64_t opening_failures(const char *path, const struct salvo_engine_options *options, uint64_t *out_count);

/* The state of a session, to be freed. */
uint8_t *saved_state(struct salvo_session *session, size_t *out_size);

/* Bytes that the keys and values of `positions` positions add to a saved state. The session is empty. */
size_t saved_kv_size(const struct fixture *fixture, uint32_t positions);

/* [count] pseudo-random ids; the same for the same `seed`. */
int32_t *some_ids(uint32_t count, uint32_t vocabulary, uint64_t seed);

/* Logits after each id, [count][vocabulary]: all at once, or by feeding chunks of the given size, of which
 * only the last row of each chunk is filled and the rest stays 0. To be freed. */
float *logits_at_once(const struct fixture *fixture, const int32_t *ids, uint32_t count);
float *logits_by_chunks(const struct fixture *fixture, const int32_t *ids, uint32_t count, uint32_t chunk);

/* Feeds ids and takes `count` more, to be freed. */
int32_t *continuation(struct salvo_session *session, const int32_t *ids, uint32_t id_count, uint32_t count);

/* `salvo verify` of a model on a backend against the CPU, which must pass. The last of the `count` ids is a
 * step of its own; NULL: the ids that verify takes. */
struct salvo_verify_result verify_against_cpu(
    const char *backend, const char *path, enum salvo_kv_type kv_type, const int32_t *ids, size_t count);

/* KL divergence of `q` from `p`, rows of logits, in double precision. */
double divergence_of(const float *p, const float *q, uint32_t vocabulary);

/* Writes a copy of the model at `path` in another format; `out` receives the path of the copy. */
void quantized_copy(const char *path, const char *type, char *out, size_t size);

void write_file(const char *path, const void *bytes, size_t size);

struct salvo_counters counters_of(const struct salvo_engine *engine);
struct salvo_sampler default_sampler(const struct salvo_model *model);
void set_greedy(struct salvo_session *session);

#define ASSERT_OK(call)                                 \
    do {                                                \
        if ((call) != SALVO_OK) {                       \
            print_message("%s\n", salvo_error());       \
            _assert_true(0, #call, __FILE__, __LINE__); \
        }                                               \
    } while (0)

#endif
