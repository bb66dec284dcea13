/*
 * The time of each phase of a step. For one token, the decode kernel is launched for the first phase, the
 * first two, and so on; the time that a phase adds includes its barrier, and weights of later phases are
 * loaded meanwhile as in a real step. For many tokens, graphs of the first launch, the first two, and so on
 * are launched, without the launches that take and end the step.
 */
#include "backend/common/fusion.h"
#include "backend/cuda/cuda_executor.h"
#include "backend/cuda/cuda_weight_tiles.h"

#include <stdio.h>
#include <string.h>

enum { LAUNCHES = 8 };

static uint64_t attend_bytes(const struct cuda_attend *attend, uint32_t position)
{
    const uint64_t element = attend->kv_type == TYPE_F32 ? 4 : attend->kv_type == TYPE_F16 ? 2 : 1;
    uint64_t positions = (uint64_t)position + 1;
    positions = attend->window && positions > attend->window ? attend->window : positions;
    return 2 * positions * attend->kv_heads * attend->head_dim * element;
}

static uint64_t wkv7_bytes(uint32_t heads, uint32_t head_dim)
{
    return 2 * (uint64_t)heads * head_dim * head_dim * sizeof(float);
}

/* Weights and state that a phase of a group reads. */
static uint64_t bytes_of(
    const struct executor *executor, const struct group *group, uint32_t phase, uint32_t position)
{
    const struct cuda_tables *tables = &executor->single.tables;
    const uint32_t *starts = tables->record_starts; /* of block 0 */
    const struct op *op = group_op(executor->program, group);
    uint64_t bytes = 0;
    for (uint32_t i = tables->stream_starts[phase]; i < tables->stream_starts[phase + 1]; i++)
        bytes += tables->streams[i].owners * tables->streams[i].owner_bytes;
    for (uint32_t i = starts[phase]; i < starts[phase + 1]; i++) {
        if (tables->records[i].kind == CUDA_RECORD_ATTEND)
            bytes += attend_bytes(&tables->records[i].attend, position);
    }
    return group->kind == GROUP_WKV7 ? wkv7_bytes(op->wkv7.heads, op->wkv7.head_dim) : bytes;
}

/* The same of a launch of many tokens; of attention what the last of them reads. */
static uint64_t bytes_of_node(const struct cuda_node *node, const struct step *step)
{
    uint64_t bytes = 0;
    if (node->kind == CUDA_NODE_GEMM) {
        for (uint32_t i = 0; i < node->gemm.count; i++)
            bytes += cuda_matrix_bytes(&node->gemm.matmuls[i].matrix);
    } else if (node->kind == CUDA_NODE_ATTEND) {
        bytes = attend_bytes(&node->flash.attend, step->runs[0].first + step->runs[0].count - 1);
    } else if (node->kind == CUDA_NODE_WKV7) {
        bytes = wkv7_bytes(node->wkv7.heads, node->wkv7.head_dim);
    }
    return bytes;
}

/* The object of a measurement: a graph or, without one, the first `end` phases. */
struct trial {
    const struct cuda_plan *plan;
    cuda_graph_exec graph;
    uint32_t end;
    bool is_long; /* the step has a long context */
};

static enum salvo_status launch_trial(struct executor *executor, const struct trial *trial)
{
    if (trial->graph)
        return CUDA_CALL(&executor->context, graph_launch, (trial->graph, executor->queue));
    return cuda_launch_phases(executor, trial->plan, 0, trial->end, CUDA_COUNT_TOKEN);
}

/* Seconds of one launch: the shortest of some averages. */
static enum salvo_status time_trial(struct executor *executor, const cuda_event events[2],
    const struct trial *trial, uint32_t repetitions, double *out)
{
    enum salvo_status status = SALVO_OK;
    struct cuda_context *context = &executor->context;
    *out = 0;
    TRY(cuda_tagged_words_clear(executor)); /* words of phases that earlier measurements did not run */
    for (uint32_t i = 0; i < repetitions; i++) {
        float elapsed;
        TRY(CUDA_CALL(context, event_record, (events[0], executor->queue)));
        for (int j = 0; j < LAUNCHES; j++)
            TRY(launch_trial(executor, trial));
        TRY(CUDA_CALL(context, event_record, (events[1], executor->queue)));
        TRY(CUDA_CALL(context, event_wait, (events[1])));
        TRY(CUDA_CALL(context, event_elapsed, (&elapsed, events[0], events[1])));
        double seconds = (double)elapsed * 1e-3 / LAUNCHES;
        *out = i == 0 || seconds < *out ? seconds : *out;
    }
cleanup:
    return status;
}

/* A graph of the first `end` launches, without the very first, which takes the step. */
static enum salvo_status time_nodes(struct executor *executor, const cuda_event events[2], struct trial trial,
    uint32_t repetitions, double *out)
{
    enum salvo_status status = SALVO_OK;
    struct cuda_context *context = &executor->context;
    cuda_graph graph = NULL;
    enum salvo_status launched = SALVO_OK;
    *out = 0;
    TRY(CUDA_CALL(context, capture_begin, (executor->queue, CUDA_CAPTURE_RELAXED)));
    for (uint32_t i = 1; i < trial.end && launched == SALVO_OK; i++)
        launched = cuda_launch_node(executor, trial.plan, i, trial.is_long);
    const enum salvo_status ended = CUDA_CALL(context, capture_end, (executor->queue, &graph));
    TRY(launched);
    TRY(ended);
    TRY(CUDA_CALL(context, graph_instantiate, (&trial.graph, graph, 0)));
    TRY(CUDA_CALL(context, graph_upload, (trial.graph, executor->queue)));
    TRY(time_trial(executor, events, &trial, repetitions, out));
cleanup:
    if (graph)
        (void)context->driver->graph_free(graph);
    if (trial.graph)
        (void)context->driver->graph_exec_free(trial.graph);
    return status;
}

/* Takes the step, which the measured launches read. */
static enum salvo_status take_step(
    struct executor *executor, const struct cuda_plan *plan, const struct step *step)
{
    enum salvo_status status = SALVO_OK;
    TRY(cuda_entries_finish(executor, executor->entries));
    TRY(cuda_step_write(executor, step));
    if (plan->tables.node_count)
        TRY(cuda_launch_node(executor, plan, 0, false));
    else
        TRY(cuda_launch_phases(executor, plan, 0, 1, CUDA_TAKE_STEP));
cleanup:
    return status;
}

static enum salvo_status profile(struct executor *executor, const struct step *step, uint32_t repetitions,
    backend_profile_function function, void *user)
{
    enum salvo_status status = SALVO_OK, forgotten;
    const struct cuda_plan *cuda_plan = cuda_plan_for(executor, step->token_count);
    const struct cuda_tables *tables = &cuda_plan->tables;
    const struct plan *plan = &cuda_plan->plan;
    struct cuda_context *context = &executor->context;
    cuda_event events[2] = {NULL, NULL};
    double before = 0;
    for (int i = 0; i < 2; i++)
        TRY(CUDA_CALL(context, event_new, (&events[i], 0)));
    TRY(take_step(executor, cuda_plan, step));
    for (uint32_t group = 0; group < plan->group_count; group++) {
        char text[512];
        lower_describe_ops(executor->program, plan, group, text, sizeof text);
        const size_t length = strlen(text);
        for (uint32_t i = tables->first_phase[group]; i < tables->first_phase[group + 1]; i++) {
            const bool many = tables->node_count != 0;
            if (many) /* groups may have several launches */
                snprintf(text + length, sizeof text - length, " (%s)", tables->nodes[i].launch.kernel);
            const struct trial trial = {
                .plan = cuda_plan, .end = i + 1, .is_long = cuda_step_is_long(executor, step, 0)};
            double until;
            TRY(many ? time_nodes(executor, events, trial, repetitions, &until)
                     : time_trial(executor, events, &trial, repetitions, &until));
            struct salvo_profile_phase phase = {.kind = group_kind_name(plan->groups[group].kind),
                .operations = text,
                .seconds = until > before ? until - before : 0,
                .bytes = many ? bytes_of_node(&tables->nodes[i], step)
                              : bytes_of(executor, &plan->groups[group], i, step->runs[0].first)};
            function(user, &phase);
            before = until > before ? until : before;
        }
    }
    TRY(cuda_queue_check(executor));
cleanup:
    forgotten = cuda_tagged_words_clear(executor);
    status = status == SALVO_OK ? forgotten : status;
    for (int i = 0; i < 2; i++) {
        if (events[i])
            (void)context->driver->event_free(events[i]);
    }
    return status;
}

enum salvo_status cuda_profile(struct executor *executor, const struct step *step, uint32_t repetitions,
    backend_profile_function function, void *user)
{
    enum salvo_status status = SALVO_OK;
    TRY(cuda_step_check(executor, step));
    TRY(cuda_context_enter(&executor->context));
    status = profile(executor, step, repetitions, function, user);
    cuda_context_leave(&executor->context);
cleanup:
    return status;
}
