/* Runs a step: checks it, lays out its rows, and runs the groups of its plan on the team. */
#include "backend/cpu/executor.h"

#include "backend/common/checks.h"

#include <string.h>

enum salvo_status step_check(const struct executor *executor, const struct step *step)
{
    return backend_check_step(&executor->options, executor->state.pages, executor->program->vocabulary, step);
}

/* Finds the run and position of each row. */
void step_lay_out_rows(struct executor *executor)
{
    const uint32_t runs = executor->live[ROWS_RUNS], tokens = executor->live[ROWS_TOKENS];
    step_place_rows(executor->runs, runs, executor->rows);
    executor->live[ROWS_OUTPUTS] = step_output_rows(executor->runs, runs, executor->output_rows);
    executor->early_end = 0;
    for (uint32_t row = 0; row < tokens; row++) {
        if (executor->rounding == ACTIVATIONS_FINEST || executor->rows[row].position < EARLY_POSITIONS)
            executor->early_end = row + 1;
    }
}

static uint32_t tasks_of(struct executor *executor, const struct group *group)
{
    switch (group->kind) {
    case GROUP_ROWS:
        return rows_tasks(executor, group);
    case GROUP_MATMUL:
        return matmul_tasks(executor, group);
    case GROUP_ATTEND:
        return attend_tasks(executor, group);
    case GROUP_WKV7:
        return wkv7_tasks(executor, group);
    case GROUP_PROJECT_ATTEND: /* never requested */
    case GROUP_SAMPLE:
        break;
    }
    return executor->live[ROWS_OUTPUTS];
}

static void enter_group(struct executor *executor, const struct group *group, uint32_t thread)
{
    if (group->kind == GROUP_MATMUL)
        matmul_enter(executor, group, thread);
}

static void work_on_group(
    struct executor *executor, const struct group *group, uint32_t task, uint32_t thread)
{
    if (step_is_cancelled(executor->step->cancel))
        return; /* the whole step fails */
    switch (group->kind) {
    case GROUP_ROWS:
        rows_work(executor, group, task, thread);
        break;
    case GROUP_MATMUL:
        matmul_work(executor, group, task, thread);
        break;
    case GROUP_ATTEND:
        attend_work(executor, group, task, thread);
        break;
    case GROUP_WKV7:
        wkv7_work(executor, group, task);
        break;
    case GROUP_SAMPLE:
        sample_work(executor, group, task, thread);
        break;
    case GROUP_PROJECT_ATTEND:
        break;
    }
}

static void enter_phase(void *context, uint32_t phase, uint32_t thread)
{
    struct executor *executor = context;
    enter_group(executor, &executor->plan->groups[executor->first_group + phase], thread);
}

static void work_on_phase(void *context, uint32_t phase, uint32_t task, uint32_t thread)
{
    struct executor *executor = context;
    work_on_group(executor, &executor->plan->groups[executor->first_group + phase], task, thread);
}

void step_run_groups(struct executor *executor, uint32_t first, uint32_t count)
{
    executor->first_group = first;
    for (uint32_t i = 0; i < count; i++)
        executor->tasks[i] = tasks_of(executor, &executor->plan->groups[first + i]);
    team_run(executor->team, &(struct team_job){.context = executor,
                                 .tasks = executor->tasks,
                                 .phase_count = count,
                                 .enter = enter_phase,
                                 .work = work_on_phase});
}

/* Copies the step's runs, and the host's ids to the token buffer that `embed` reads. */
void step_take(struct executor *executor, const struct step *step)
{
    executor->step = step;
    if (!step->samples_only) /* the logits are where the last step's plan has put them */
        executor->plan = step->token_count == 1 ? &executor->single : &executor->batch;
    executor->live[ROWS_TOKENS] = step->token_count;
    executor->live[ROWS_RUNS] = step->run_count;
    for (uint32_t i = 0; i < step->run_count; i++) {
        const struct run *run = &step->runs[i];
        executor->runs[i] = *run;
        executor->run_numbers[i] = i;
        executor->results[i] = (struct run_result){0};
        if (run->source == SOURCE_IDS)
            memcpy(executor->tokens + slot_tokens_at(&executor->options, run->slot) + run->first,
                step->ids + run->first_row, run->count * sizeof *step->ids);
    }
    recurrent_pool_begin(executor);
}

/* Whether a run continues after a token of a step that repeats. */
static bool continues(const struct executor *executor, const struct run *run, struct run_result *result)
{
    const struct step *step = executor->step;
    const int32_t *tokens = executor->tokens + slot_tokens_at(&executor->options, run->slot);
    for (uint32_t i = 0; i < step->stop_count; i++)
        result->ended |=
            !result->failed && run->stop_mask >> i & 1 && tokens[run->first + 1] == step->stop_ids[i];
    return !result->ended && !result->failed && run->first + 1 < executor->options.context &&
           (!run->limit || run->first + 1 < run->limit);
}

/* Removes the runs that have ended and advances the others; false: none is left. */
static bool advance(struct executor *executor)
{
    const uint32_t runs = executor->live[ROWS_RUNS];
    uint32_t left = 0;
    for (uint32_t i = 0; i < runs; i++) {
        struct run run = executor->runs[i];
        const uint32_t number = executor->run_numbers[i];
        if (!continues(executor, &run, &executor->results[number]))
            continue;
        run.first++;
        run.first_row = left;
        executor->runs[left] = run;
        executor->run_numbers[left++] = number;
    }
    executor->live[ROWS_RUNS] = executor->live[ROWS_TOKENS] = left;
    executor->plan = left == 1 ? &executor->single : &executor->batch;
    return left > 0;
}

/* After a cancellation: the running repetition counts for no run. */
static void drop_repetition(struct executor *executor, uint32_t complete)
{
    for (uint32_t i = 0; i < executor->live[ROWS_RUNS]; i++)
        executor->results[executor->run_numbers[i]] = (struct run_result){.sampled = complete};
}

/* The last group of the plan chooses ids from the logits that are there. */
static void sample_only(struct executor *executor)
{
    step_lay_out_rows(executor);
    step_run_groups(executor, executor->plan->group_count - 1, 1);
}

enum salvo_status step_submit(struct executor *executor, const struct step *step, uint64_t *out_ticket)
{
    enum salvo_status status = SALVO_OK;
    *out_ticket = 0;
    TRY(step_check(executor, step));
    step_take(executor, step);
    executor->counters.submissions++;
    executor->result_count = step->run_count;
    const uint32_t repeats = step->samples_only ? 0 : step_repeats(step);
    if (step->samples_only)
        sample_only(executor);
    for (uint32_t i = 0; i < repeats; i++) {
        step_lay_out_rows(executor);
        step_run_groups(executor, 0, executor->plan->group_count);
        executor->counters.tokens += executor->live[ROWS_TOKENS];
        if (step_is_cancelled(step->cancel)) {
            attend_reset_pages(executor);
            if (i == 0)
                TRY(fail(SALVO_ERROR_CANCELLED, "cancelled"));
            drop_repetition(executor, i);
            break;
        }
        recurrent_pool_advance(executor);
        if (repeats == 1 || !advance(executor))
            break;
    }
    TRY(gguf_check(executor->program->gguf));
    recurrent_pool_commit(executor);
    *out_ticket = ++executor->tickets;
cleanup:
    return status;
}

/* A step is complete when submit returns: the calling thread is one of the team. */
enum salvo_status step_wait(struct executor *executor, uint64_t ticket, struct run_result *results)
{
    enum salvo_status status = backend_check_ticket(ticket, executor->tickets, 1);
    if (status == SALVO_OK)
        memcpy(results, executor->results, executor->result_count * sizeof *results);
    return status;
}
