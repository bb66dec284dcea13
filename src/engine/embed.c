/* The functions of salvo/embed.h. */
#include <salvo/embed.h>

#include "base/memory.h"
#include "engine/arguments.h"
#include "engine/pooling.h"
#include "engine/session.h"

#include <inttypes.h>
#include <stdio.h>

uint32_t salvo_engine_width(const struct salvo_engine *engine)
{
    return engine ? engine->last_norm.width : 0;
}

struct texts {
    const int32_t *const *ids;
    const size_t *counts;
    size_t count;
    float *out;
};

/* A session and the text that it computes. */
struct worker {
    struct salvo_session *session;
    bool is_busy;
    bool waits; /* there was no memory for its text, which begins again when another one has ended */
    size_t text, fed;
    struct pool pool;
};

/* Texts on their way. */
struct embedding {
    struct salvo_engine *engine;
    struct texts texts;
    size_t next_text, done;
    size_t worker_count;
    struct worker *workers; /* [worker_count] */
    double *sums;           /* [worker_count][width] */
    struct salvo_run *runs; /* [worker_count], as the next two */
    struct salvo_run_result *results;
    size_t *worker_of_run;
    size_t run_count;
    bool is_alone; /* the only text that holds memory */
    float *rows;   /* [tokens of a step][width] */
};

/* Puts the text's number in front of the message of the last error. */
static enum salvo_status name_text(const struct texts *texts, size_t text, enum salvo_status status)
{
    char message[256];
    if (texts->count == 1)
        return status;
    snprintf(message, sizeof message, "%s", salvo_error());
    return fail(status, "text %zu: %s", text + 1, message);
}

static enum salvo_status check_text(const struct salvo_engine *engine, const int32_t *ids, size_t count)
{
    const uint32_t vocabulary = engine->program->vocabulary;
    if (count == 0)
        return fail(SALVO_ERROR_ARGUMENT, "the text has no tokens");
    if (!ids)
        return fail(SALVO_ERROR_ARGUMENT, "the list of %zu tokens is NULL", count);
    if (count > engine->options.context)
        return fail(SALVO_ERROR_CONTEXT, "the text has %zu tokens, the context %" PRIu32, count,
            engine->options.context);
    for (size_t i = 0; i < count; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= vocabulary)
            return fail(SALVO_ERROR_ARGUMENT, "token id %" PRId32 " is outside the vocabulary of %" PRIu32,
                ids[i], vocabulary);
    }
    return SALVO_OK;
}

static uint32_t most_tokens(const struct salvo_engine *engine)
{
    return engine->backend->chunk ? engine->backend->chunk(engine->executor) : engine->options.batch;
}

static enum salvo_status embedding_open(struct embedding *embedding, struct salvo_session *const *sessions,
    const struct salvo_embed_options *options)
{
    enum salvo_status status = SALVO_OK;
    const uint32_t width = embedding->engine->last_norm.width;
    const size_t count = embedding->worker_count;
    TRY(NEW(&embedding->workers, count));
    TRY(NEW(&embedding->sums, count * width));
    TRY(NEW(&embedding->runs, count));
    TRY(NEW(&embedding->results, count));
    TRY(NEW(&embedding->worker_of_run, count));
    TRY(NEW(&embedding->rows, (size_t)embedding->engine->options.batch * width));
    for (size_t i = 0; i < count; i++) {
        embedding->workers[i] = (struct worker){
            .session = sessions[i],
            .pool = {.options = *options, .width = width, .sums = embedding->sums + i * width},
        };
        TRY(salvo_session_rollback(sessions[i], 0));
    }
cleanup:
    return status;
}

static void embedding_close(struct embedding *embedding)
{
    memory_free(embedding->workers);
    memory_free(embedding->sums);
    memory_free(embedding->runs);
    memory_free(embedding->results);
    memory_free(embedding->worker_of_run);
    memory_free(embedding->rows);
}

static void plan_worker(struct embedding *embedding, size_t index, size_t *tokens, size_t most)
{
    struct worker *worker = &embedding->workers[index];
    if (!worker->is_busy && embedding->next_text < embedding->texts.count) {
        worker->is_busy = true;
        worker->text = embedding->next_text++;
        worker->fed = 0;
        worker->pool.rows = 0;
    }
    if (!worker->is_busy || worker->waits || *tokens == most)
        return;
    const size_t left = embedding->texts.counts[worker->text] - worker->fed, room = most - *tokens;
    struct salvo_run *run = &embedding->runs[embedding->run_count];
    *run = (struct salvo_run){
        .session = worker->session,
        .ids = embedding->texts.ids[worker->text] + worker->fed,
        .count = left < room ? left : room,
        .want = SALVO_WANT_NOTHING,
        .hidden = embedding->rows + *tokens * worker->pool.width,
    };
    *tokens += run->count;
    embedding->worker_of_run[embedding->run_count++] = index;
}

/* The text ends, or is put back: the session gives up its tokens. */
static enum salvo_status finish_text(struct embedding *embedding, struct worker *worker)
{
    enum salvo_status status = SALVO_OK;
    TRY(pool_finish(&worker->pool, embedding->texts.out + worker->text * worker->pool.width));
    TRY(salvo_session_rollback(worker->session, 0));
    worker->is_busy = false;
    embedding->done++;
    for (size_t i = 0; i < embedding->worker_count; i++)
        embedding->workers[i].waits = false;
cleanup:
    return status;
}

static enum salvo_status put_back(struct worker *worker)
{
    worker->waits = true;
    worker->fed = 0;
    worker->pool.rows = 0;
    return salvo_session_rollback(worker->session, 0);
}

static enum salvo_status take_result(struct embedding *embedding, size_t index)
{
    enum salvo_status status = SALVO_OK;
    struct worker *worker = &embedding->workers[embedding->worker_of_run[index]];
    const struct salvo_run *run = &embedding->runs[index];
    const struct salvo_run_result *result = &embedding->results[index];
    if (result->status == SALVO_ERROR_MEMORY && !embedding->is_alone) {
        TRY(put_back(worker));
        goto cleanup;
    }
    if (result->status != SALVO_OK)
        TRY(fail((enum salvo_status)result->status, "%s", result->message));
    pool_add(&worker->pool, run->hidden, (uint32_t)run->count);
    worker->fed += run->count;
    if (worker->fed == embedding->texts.counts[worker->text])
        TRY(finish_text(embedding, worker));
cleanup:
    return status == SALVO_OK ? status : name_text(&embedding->texts, worker->text, status);
}

/* Chooses the runs of a step. If every text was put back, the first goes on alone. */
static void plan_step(struct embedding *embedding)
{
    const size_t most = most_tokens(embedding->engine);
    size_t tokens = 0, active = 0;
    embedding->run_count = 0;
    for (size_t i = 0; i < embedding->worker_count; i++)
        plan_worker(embedding, i, &tokens, most);
    for (size_t i = 0; !embedding->run_count; i++) {
        embedding->workers[i].waits = false;
        plan_worker(embedding, i, &tokens, most);
    }
    for (size_t i = 0; i < embedding->worker_count; i++)
        active += embedding->workers[i].is_busy && !embedding->workers[i].waits;
    embedding->is_alone = active == 1;
}

static enum salvo_status compute_step(struct embedding *embedding)
{
    enum salvo_status status = SALVO_OK;
    uint64_t step;
    for (size_t i = 0; i < embedding->worker_count; i++)
        TRY(session_check_cancel(embedding->workers[i].session));
    plan_step(embedding);
    TRY(salvo_engine_submit(
        embedding->engine, embedding->runs, embedding->run_count, sizeof *embedding->runs, &step));
    TRY(salvo_engine_wait(
        embedding->engine, step, embedding->results, embedding->run_count, sizeof *embedding->results));
    for (size_t i = 0; i < embedding->run_count; i++)
        TRY(take_result(embedding, i));
cleanup:
    return status;
}

static enum salvo_status embed(struct salvo_session *const *sessions, size_t session_count,
    const struct texts *texts, const struct salvo_embed_options *given)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_engine *engine = sessions[0]->engine;
    struct salvo_embed_options options;
    struct embedding embedding = {
        .engine = engine,
        .texts = *texts,
        .worker_count = session_count < texts->count ? session_count : texts->count,
    };
    TRY(batch_check_sessions(engine, sessions, session_count));
    TRY(options_read("salvo_embed_options", given, sizeof options, &options));
    TRY(pooling_resolve(engine->model, &options));
    for (size_t i = 0; i < texts->count; i++) {
        status = check_text(engine, texts->ids[i], texts->counts[i]);
        TRY(status == SALVO_OK ? status : name_text(texts, i, status));
    }
    TRY(embedding_open(&embedding, sessions, &options));
    while (embedding.done < texts->count)
        TRY(compute_step(&embedding));
cleanup:
    for (size_t i = 0; status != SALVO_OK && embedding.workers && i < embedding.worker_count; i++) {
        if (embedding.workers[i].is_busy)
            (void)salvo_session_rollback(embedding.workers[i].session, 0);
    }
    embedding_close(&embedding);
    return status;
}

enum salvo_status salvo_session_embed(struct salvo_session *session, const int32_t *ids, size_t count,
    const struct salvo_embed_options *options, float *out)
{
    REQUIRE(session);
    REQUIRE(out);
    return embed(&session, 1, &(struct texts){&ids, &count, 1, out}, options);
}

enum salvo_status salvo_engine_embed(struct salvo_session *const *sessions, size_t session_count,
    const int32_t *const *ids, const size_t *counts, size_t text_count,
    const struct salvo_embed_options *options, float *out)
{
    if (text_count == 0)
        return SALVO_OK;
    REQUIRE(session_count ? sessions : NULL);
    REQUIRE(sessions[0]);
    REQUIRE(ids);
    REQUIRE(counts);
    REQUIRE(out);
    return embed(sessions, session_count, &(struct texts){ids, counts, text_count, out}, options);
}
