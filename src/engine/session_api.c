/*
 * The public functions on sessions. Each checks its arguments and enters the engine, then calls the function
 * of the same name without `salvo_`. New public functions on sessions belong here.
 */
#include "base/memory.h"
#include "engine/arguments.h"
#include "engine/session.h"
#include "engine/session_pages.h"
#include "engine/session_publish.h"

#include <salvo/memory.h>

/* Completes the steps in flight: steps of batches, and steps of generation if a callback calls back into the
 * library. Nothing else may run on the device while a function works. */
static enum salvo_status engine_enter(struct salvo_engine *engine)
{
    const enum salvo_status status = ahead_settle(engine);
    return status == SALVO_OK ? batch_settle(engine) : status;
}

#define ENTER(session)                                                     \
    do {                                                                   \
        REQUIRE(session);                                                  \
        const enum salvo_status entered = engine_enter((session)->engine); \
        if (entered != SALVO_OK)                                           \
            return entered;                                                \
    } while (0)

/* ---- Opening and settings ---- */

enum salvo_status salvo_session_open(struct salvo_engine *engine, struct salvo_session **out)
{
    REQUIRE(out);
    *out = NULL;
    REQUIRE(engine);
    return session_open(engine, out);
}

void salvo_session_close(struct salvo_session *session)
{
    if (!session)
        return;
    (void)engine_enter(session->engine);
    batch_forget(session);
    session_publish(session);
    session_drop_pages(session);
    snapshots_forget(session);
    session->is_open = false;
}

enum salvo_status salvo_session_set_sampler(
    struct salvo_session *session, const struct salvo_sampler *sampler)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_sampler settings = SALVO_SAMPLER_INIT;
    ENTER(session);
    if (sampler)
        TRY(options_read("salvo_sampler", sampler, sizeof settings, &settings));
    else
        TRY(salvo_sampler_default(session->engine->model, &settings));
    TRY(session_set_sampler(session, &settings));
cleanup:
    return status;
}

enum salvo_status salvo_session_get_sampler(const struct salvo_session *session, struct salvo_sampler *out)
{
    REQUIRE(session);
    REQUIRE(out);
    const struct salvo_sampler sampler = session_get_sampler(session);
    return result_write("salvo_sampler", &sampler, sizeof sampler, out);
}

enum salvo_status salvo_session_set_bias(struct salvo_session *session, int32_t id, float bias)
{
    ENTER(session);
    return session_set_bias(session, id, bias);
}

uint32_t salvo_session_position(const struct salvo_session *session)
{
    return session ? session->position : 0;
}

const int32_t *salvo_session_tokens(const struct salvo_session *session)
{
    return session ? session->tokens : NULL;
}

void salvo_session_cancel(struct salvo_session *session)
{
    if (session)
        session_cancel(session);
}

/* ---- Tokens ---- */

enum salvo_status salvo_session_feed(struct salvo_session *session, const int32_t *ids, size_t count)
{
    ENTER(session);
    return session_feed(session, ids, count);
}

enum salvo_status salvo_session_prefill_cached(
    struct salvo_session *session, const int32_t *ids, size_t count, uint32_t *out_cached)
{
    REQUIRE(out_cached);
    *out_cached = 0;
    REQUIRE(ids);
    ENTER(session);
    return session_prefill_cached(session, ids, count, out_cached);
}

enum salvo_status salvo_session_eval(
    struct salvo_session *session, const int32_t *ids, size_t count, salvo_logits_function row, void *user)
{
    ENTER(session);
    return session_eval(session, ids, count, row, user);
}

enum salvo_status salvo_session_next(struct salvo_session *session, int32_t *out_id)
{
    REQUIRE(out_id);
    *out_id = -1;
    ENTER(session);
    return session_next(session, out_id);
}

enum salvo_status salvo_engine_next(
    struct salvo_session *const *sessions, size_t count, int32_t *out_ids, enum salvo_status *out_statuses)
{
    if (count == 0)
        return SALVO_OK;
    REQUIRE(sessions);
    REQUIRE(out_ids);
    REQUIRE(out_statuses);
    for (size_t i = 0; i < count; i++) {
        out_ids[i] = -1;
        out_statuses[i] = SALVO_ERROR_ARGUMENT;
    }
    ENTER(sessions[0]);
    return sessions_next(sessions, count, out_ids, out_statuses);
}

enum salvo_status salvo_engine_submit(struct salvo_engine *engine, const struct salvo_run *runs, size_t count,
    size_t run_size, uint64_t *out_step)
{
    enum salvo_status status = SALVO_OK;
    void *copy = NULL;
    const void *known;
    REQUIRE(out_step);
    *out_step = 0;
    REQUIRE(engine);
    TRY(ahead_settle(engine));
    TRY(items_read("salvo_run", runs, count, run_size, sizeof *runs, &copy, &known));
    TRY(batch_submit(engine, known, count, out_step));
cleanup:
    memory_free(copy);
    return status;
}

enum salvo_status salvo_engine_mask_open(
    struct salvo_engine *engine, const uint32_t *mask, uint32_t *out_number)
{
    REQUIRE(out_number);
    *out_number = 0;
    REQUIRE(engine);
    REQUIRE(mask);
    const enum salvo_status status = ahead_settle(engine);
    return status == SALVO_OK ? masks_open_one(engine, mask, out_number) : status;
}

enum salvo_status salvo_engine_mask_close(struct salvo_engine *engine, uint32_t number)
{
    REQUIRE(engine);
    const enum salvo_status status = engine_enter(engine);
    return status == SALVO_OK ? masks_close_one(engine, number) : status;
}

enum salvo_status salvo_engine_wait(struct salvo_engine *engine, uint64_t number,
    struct salvo_run_result *results, size_t count, size_t result_size)
{
    enum salvo_status status = SALVO_OK;
    const struct batch_step *step;
    REQUIRE(engine);
    REQUIRE(results);
    if (result_size == 0)
        TRY(fail(SALVO_ERROR_ARGUMENT, "the size of a result is 0; it is sizeof(struct salvo_run_result)"));
    TRY(batch_wait(engine, number, count, &step));
    for (uint32_t i = 0; i < step->run_count; i++)
        item_write(&step->runs[i].result, sizeof step->runs[i].result, results, result_size, i);
    batch_release(engine, number);
cleanup:
    return status;
}

void salvo_engine_cancel(struct salvo_engine *engine, uint64_t handle)
{
    if (engine)
        batch_cancel(engine, handle);
}

const float *salvo_session_logits(const struct salvo_session *session)
{
    return session ? session_logits(session) : NULL;
}

enum salvo_status salvo_session_generate(struct salvo_session *session,
    const struct salvo_generate_options *given, struct salvo_generate_result *out)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_generate_options options;
    struct salvo_generate_result result = SALVO_GENERATE_RESULT_INIT;
    if (out)
        TRY(result_write("salvo_generate_result", &result, sizeof result, out));
    ENTER(session);
    TRY(options_read("salvo_generate_options", given, sizeof options, &options));
    status = session_generate(session, &options, &result);
    if (out)
        (void)result_write("salvo_generate_result", &result, sizeof result, out);
cleanup:
    return status;
}

enum salvo_status salvo_session_profile(struct salvo_session *session, const int32_t *ids, uint32_t count,
    uint32_t repetitions, salvo_profile_function function, void *user)
{
    REQUIRE(ids);
    REQUIRE(function);
    ENTER(session);
    return session_profile(session, ids, count, repetitions, function, user);
}

enum salvo_status salvo_engine_measure_idle(struct salvo_engine *engine, bool on)
{
    REQUIRE(engine);
    const enum salvo_status status = engine_enter(engine);
    return status == SALVO_OK ? engine_measure_idle(engine, on) : status;
}

/* ---- State ---- */

enum salvo_status salvo_session_rollback(struct salvo_session *session, uint32_t position)
{
    ENTER(session);
    return session_rollback(session, position);
}

enum salvo_status salvo_session_mark(struct salvo_session *session)
{
    ENTER(session);
    return session_mark(session);
}

size_t salvo_session_state_size(const struct salvo_session *session)
{
    if (!session)
        return 0;
    (void)engine_enter(session->engine);
    return session_state_size(session);
}

enum salvo_status salvo_session_state_save(struct salvo_session *session, void *out, size_t size)
{
    REQUIRE(out);
    ENTER(session);
    return session_state_save(session, out, size);
}

enum salvo_status salvo_session_state_restore(struct salvo_session *session, const void *state, size_t size)
{
    REQUIRE(state);
    ENTER(session);
    return session_state_restore(session, state, size);
}

enum salvo_status salvo_session_copy(struct salvo_session *to, struct salvo_session *from)
{
    ENTER(from);
    ENTER(to);
    return session_copy(to, from);
}

/* ---- Files ---- */

enum salvo_status salvo_session_state_write(struct salvo_session *session, struct salvo_file *file)
{
    REQUIRE(file);
    ENTER(session);
    return session_write(session, NULL, file);
}

enum salvo_status salvo_session_state_save_file(struct salvo_session *session, const char *path)
{
    REQUIRE(path);
    ENTER(session);
    return session_save_file(session, NULL, path);
}

/* To `file`, or to a new file at `path`. */
static enum salvo_status write_chat(struct salvo_session *session, const struct salvo_message *messages,
    size_t count, size_t message_size, struct salvo_file *file, const char *path)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_message *copy = NULL;
    struct salvo_messages list = {.count = count};
    TRY(messages_read(messages, count, message_size, &copy, &list.items));
    TRY(file ? session_write(session, &list, file) : session_save_file(session, &list, path));
cleanup:
    salvo_free(copy);
    return status;
}

enum salvo_status salvo_session_chat_write(struct salvo_session *session,
    const struct salvo_message *messages, size_t count, size_t message_size, struct salvo_file *file)
{
    REQUIRE(file);
    ENTER(session);
    return write_chat(session, messages, count, message_size, file, NULL);
}

enum salvo_status salvo_session_chat_save_file(struct salvo_session *session,
    const struct salvo_message *messages, size_t count, size_t message_size, const char *path)
{
    REQUIRE(path);
    ENTER(session);
    return write_chat(session, messages, count, message_size, NULL, path);
}

enum salvo_status salvo_session_state_load_file(struct salvo_session *session, const char *path)
{
    REQUIRE(path);
    ENTER(session);
    return session_load_file(session, path, NULL);
}

enum salvo_status salvo_session_chat_load_file(
    struct salvo_session *session, const char *path, struct salvo_messages **out)
{
    REQUIRE(out);
    *out = NULL;
    REQUIRE(path);
    ENTER(session);
    return session_load_file(session, path, out);
}
