#include "engine/scheduler.h"

#include "base/memory.h"

/* Somebody may wait for the next token: the step is then short. */
static uint32_t most_tokens(const struct salvo_scheduler *scheduler)
{
    const struct salvo_engine *engine = scheduler->engine;
    uint32_t most = engine->backend->chunk ? engine->backend->chunk(engine->executor) : engine->options.batch;
    const uint32_t limit = prompt_pace_limit(&scheduler->pace, 1);
    for (uint32_t i = 0; i < scheduler->slots; i++) {
        const struct request *request = scheduler->running[i];
        if (request && !request->pool.width && limit < most)
            most = limit;
    }
    return most;
}

/* Adds the next part of a text to the step. */
static void add_text(struct salvo_scheduler *scheduler, struct request *request, uint32_t index,
    uint32_t *tokens, uint32_t most)
{
    const uint32_t left = request->known - request->fed, room = most - *tokens;
    if (request->fed == 0)
        request->pool.rows = 0; /* it may have been put back */
    request->is_starved = false;
    scheduler->runs[index] = (struct salvo_run){
        .session = request->session,
        .ids = request->ids + request->fed,
        .count = left < room ? left : room,
        .want = SALVO_WANT_NOTHING,
        .hidden = scheduler->hidden_rows + (size_t)*tokens * request->pool.width,
    };
    *tokens += (uint32_t)scheduler->runs[index].count;
}

static void take_rows(struct salvo_scheduler *scheduler, struct request *request, const struct salvo_run *run,
    const struct salvo_run_result *result)
{
    if (result->status == SALVO_ERROR_MEMORY) {
        scheduler_starve(scheduler, request, result->message);
        return;
    }
    if (result->status != SALVO_OK) {
        scheduler_end(scheduler, request, result->status, SALVO_FINISH_CANCELLED, -1, result->message);
        return;
    }
    request->starved_alone = false;
    pool_add(&request->pool, run->hidden, (uint32_t)run->count);
    request->fed += (uint32_t)run->count;
    if (request->fed == request->known)
        scheduler_end(scheduler, request, pool_finish(&request->pool, request->embedding),
            SALVO_FINISH_LENGTH, -1, NULL);
}

static uint32_t plan(struct salvo_scheduler *scheduler, uint32_t *out_tokens)
{
    const uint32_t most = most_tokens(scheduler), first = scheduler->next_embedding_slot;
    uint32_t count = 0;
    *out_tokens = 0;
    for (uint32_t i = 0; i < scheduler->slots && *out_tokens < most; i++) {
        const uint32_t slot = (first + i) % scheduler->slots;
        struct request *request = scheduler->running[slot];
        if (!request_may_run(scheduler, request) || !request->pool.width)
            continue;
        if (!scheduler->hidden_rows && NEW(&scheduler->hidden_rows, (size_t)scheduler->engine->options.batch *
                                                                        request->pool.width) != SALVO_OK) {
            scheduler_end(scheduler, request, SALVO_ERROR_MEMORY, SALVO_FINISH_CANCELLED, -1, NULL);
            continue;
        }
        add_text(scheduler, request, count++, out_tokens, most);
        scheduler->next_embedding_slot = slot + 1;
    }
    return count;
}

bool scheduler_embed(struct salvo_scheduler *scheduler)
{
    uint32_t tokens;
    const uint32_t count = plan(scheduler, &tokens);
    uint64_t step;
    if (!count)
        return false;
    enum salvo_status status =
        salvo_engine_submit(scheduler->engine, scheduler->runs, count, sizeof *scheduler->runs, &step);
    if (status == SALVO_OK)
        status =
            salvo_engine_wait(scheduler->engine, step, scheduler->results, count, sizeof *scheduler->results);
    for (uint32_t i = 0; i < count; i++) {
        const struct salvo_run *run = &scheduler->runs[i];
        if (status != SALVO_OK)
            scheduler->results[i] = (struct salvo_run_result){.status = status, .message = salvo_error()};
        take_rows(scheduler, scheduler->running[run->session->slot], run, &scheduler->results[i]);
    }
    pthread_mutex_lock(&scheduler->mutex);
    scheduler->counters.steps++;
    scheduler->counters.prompt_tokens += tokens;
    pthread_mutex_unlock(&scheduler->mutex);
    return true;
}
