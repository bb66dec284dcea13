/* The functions behind the public functions on sessions. session_api.c has checked the arguments and
 * completed steps in flight. The parameters are the same as in the public functions. */
#ifndef ENGINE_SESSION_H
#define ENGINE_SESSION_H

#include "engine/engine.h"

enum salvo_status session_open(struct salvo_engine *engine, struct salvo_session **out);
enum salvo_status session_set_sampler(struct salvo_session *session, const struct salvo_sampler *sampler);
struct salvo_sampler session_get_sampler(const struct salvo_session *session);
enum salvo_status session_set_bias(struct salvo_session *session, int32_t id, float bias);
void session_cancel(struct salvo_session *session);

enum salvo_status session_feed(struct salvo_session *session, const int32_t *ids, size_t count);
enum salvo_status session_prefill_cached(
    struct salvo_session *session, const int32_t *ids, size_t count, uint32_t *out_cached);
enum salvo_status session_eval(
    struct salvo_session *session, const int32_t *ids, size_t count, salvo_logits_function row, void *user);

/* Appends and computes `count` tokens and passes, for each, the log-probabilities of the id after it and of
 * the `top_count` most likely ones. `ids` has one more id, which is not appended. */
typedef void (*session_score_function)(void *user, const struct sampling_logprob *logprobs);
enum salvo_status session_score(struct salvo_session *session, const int32_t *ids, size_t count,
    uint32_t top_count, session_score_function score, void *user);

enum salvo_status session_next(struct salvo_session *session, int32_t *out_id);
enum salvo_status sessions_next(
    struct salvo_session *const *sessions, size_t count, int32_t *out_ids, enum salvo_status *out_statuses);
const float *session_logits(const struct salvo_session *session);
enum salvo_status session_generate(struct salvo_session *session,
    const struct salvo_generate_options *options, struct salvo_generate_result *out);

enum salvo_status session_profile(struct salvo_session *session, const int32_t *ids, uint32_t count,
    uint32_t repetitions, salvo_profile_function function, void *user);
enum salvo_status engine_measure_idle(struct salvo_engine *engine, bool on);

enum salvo_status session_rollback(struct salvo_session *session, uint32_t position);
enum salvo_status session_mark(struct salvo_session *session);
size_t session_state_size(const struct salvo_session *session);
enum salvo_status session_state_save(struct salvo_session *session, void *out, size_t size);
enum salvo_status session_state_restore(struct salvo_session *session, const void *state, size_t size);
enum salvo_status session_copy(struct salvo_session *to, struct salvo_session *from);

/* `messages`: NULL for a state alone. */
enum salvo_status session_write(
    struct salvo_session *session, const struct salvo_messages *messages, struct salvo_file *file);
enum salvo_status session_save_file(
    struct salvo_session *session, const struct salvo_messages *messages, const char *path);
enum salvo_status session_load_file(
    struct salvo_session *session, const char *path, struct salvo_messages **out_messages);

#endif
