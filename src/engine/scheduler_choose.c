/*
 * Masks and the choices that need them. On a device that works by itself, a request with masks has two steps
 * for each token: one that computes the token, and one behind it that only chooses the next. The mask of the
 * latter depends on the token that is being computed, and is made meanwhile.
 */
#include "engine/scheduler.h"

bool scheduler_fill_mask(struct salvo_scheduler *scheduler, struct request *request)
{
    if (!request->mask)
        return true;
    if (request->mask(request->user, request_answer(request), request->tokens, request->mask_bits,
            (scheduler->engine->program->vocabulary + 31) / 32))
        return true;
    scheduler_end(scheduler, request, SALVO_OK, SALVO_FINISH_CALLBACK, -1, NULL);
    return false;
}

void scheduler_describe_choice(struct planned_run *planned, struct salvo_run *run)
{
    const struct request *request = planned->request;
    run->stop_ids = request->stop_ids;
    run->stop_id_count = request->stop_count;
    run->mask = request->mask_bits;
    run->tokens = planned->chooses;
    run->chosen_ids = planned->ids;
    if (!request->has_logprobs)
        return;
    run->logprobs = planned->logprobs;
    run->top_ids = planned->top_ids;
    run->top_count = request->top_count;
}

/* Whether a token is to be chosen: the answer may have ended, and the next tokens may be forced. After a run
 * that found no memory the session has fewer tokens than the answer, and the run behind it fails as well. */
static bool needs_choice(struct salvo_scheduler *scheduler, struct request *request)
{
    if (request->is_starved)
        return false;
    if (!request->is_over)
        scheduler_force(scheduler, request);
    return !request->is_over && request->fed == request->known && scheduler_fill_mask(scheduler, request);
}

void scheduler_choose(struct salvo_scheduler *scheduler, struct planned_step *step)
{
    uint32_t count = 0;
    step->held = 0;
    for (uint32_t i = 0; i < step->count; i++) {
        struct planned_run *planned = &step->runs[i];
        if (!planned->holds)
            continue;
        planned->is_choice = needs_choice(scheduler, planned->request);
        if (!planned->is_choice) {
            planned->request->choosing -= planned->chooses;
            continue;
        }
        scheduler->runs[count] =
            (struct salvo_run){.session = planned->request->session, .want = SALVO_WANT_ID};
        scheduler_describe_choice(planned, &scheduler->runs[count++]);
        planned->request->runs++;
    }
    if (count == 0)
        return;
    const enum salvo_status status = salvo_engine_submit(
        scheduler->engine, scheduler->runs, count, sizeof *scheduler->runs, &step->choice_ticket);
    if (status == SALVO_OK)
        step->choice_count = count;
    for (uint32_t i = 0; status != SALVO_OK && i < step->count; i++) { /* which cannot be */
        struct planned_run *planned = &step->runs[i];
        if (!planned->is_choice)
            continue;
        planned->is_choice = false;
        planned->request->runs--;
        planned->request->choosing -= planned->chooses;
        scheduler_end(scheduler, planned->request, status, SALVO_FINISH_CANCELLED, -1, NULL);
    }
}
