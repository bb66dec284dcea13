/* Turns the groups of a plan into dispatches: shader, bindings, number of workgroups. */
#include "backend/vulkan/vulkan_executor.h"

#include "base/memory.h"

#include <assert.h>
#include <string.h>

enum { TAKE_THREADS = 128, EMBED_THREADS = 256, SAMPLE_THREADS = 256 };

/* ---- Taking a step ---- */

static uint32_t capacity_of(const struct compiling *compiling, enum row_kind rows)
{
    return compiling->plan->lowered.capacity[rows];
}

static struct embed_token embed_token_of(const struct compiling *compiling, const struct op *op)
{
    const struct executor *executor = compiling->executor;
    const struct program_buffer *weight = &executor->program->buffers[op->inputs[0]];
    const struct weight_slice *slice = &executor->weights[op->inputs[0]].slices[0];
    return (struct embed_token){
        .to = vulkan_arena_at(compiling, op->out),
        .rows = slice->rows,
        .columns = (uint32_t)weight->columns,
        .type = weight->type,
        .codes = slice->codes,
        .high = slice->high,
        .scales = slice->scales,
        .scale = op->embed.scale,
    };
}

static enum salvo_status compile_take(struct compiling *compiling)
{
    enum salvo_status status = SALVO_OK;
    struct executor *executor = compiling->executor;
    const struct backend_options *options = &executor->options;
    const struct op *first = executor->program->ops;
    const bool embeds = vulkan_fuses_embed(compiling, first);
    struct {
        struct take_arguments take;
        struct embed_token token;
    } arguments = {.take = {
                       .entry_words = executor->step_entry_words,
                       .words_at = executor->step_words_at,
                       .outputs_at = executor->step_words_at + options->batch * ROW_WORDS,
                       .pages_at = executor->step_words_at + options->batch * ROW_WORDS + options->outputs,
                       .pages_stride = executor->state.pages_per_slot,
                       .context = options->context,
                       .slots = options->slots,
                   }};
    struct pipeline_constants constants = {.threads = TAKE_THREADS};
    struct dispatch *dispatch;
    uint32_t pipeline;
    if (embeds) {
        arguments.token = embed_token_of(compiling, first);
        constants = (struct pipeline_constants){
            .threads = EMBED_THREADS, .types = UINT64_C(1) << arguments.token.type};
    }
    TRY(vulkan_pipeline(
        &executor->pipelines, embeds ? SHADER_TAKE_EMBED : SHADER_TAKE, constants, &pipeline));
    TRY(vulkan_add_dispatch(
        compiling, 0, pipeline, &arguments, embeds ? sizeof arguments : sizeof arguments.take, &dispatch));
    vulkan_bind(dispatch, BIND_RING_STATE, &executor->ring_state, true);
    vulkan_bind(dispatch, BIND_RING, &executor->ring, false);
    vulkan_bind(dispatch, BIND_TOKENS, &executor->tokens, true);
    vulkan_bind(dispatch, BIND_HOST_TOKENS, &executor->host_tokens, false);
    vulkan_bind(dispatch, BIND_STEP_WORDS, &executor->step, true);
    if (embeds)
        vulkan_bind(dispatch, BIND_WEIGHTS,
            &executor->weight_buffers[executor->weights[first->inputs[0]].slices[0].buffer], false);
cleanup:
    return status;
}

/* ---- Sampling ---- */

static enum salvo_status compile_sample(struct compiling *compiling, uint32_t index)
{
    enum salvo_status status = SALVO_OK;
    struct executor *executor = compiling->executor;
    const struct op *op = &executor->program->ops[compiling->plan->lowered.groups[index].first_op];
    const uint32_t outputs = capacity_of(compiling, ROWS_OUTPUTS);
    const struct sample_arguments arguments = {vulkan_arena_at(compiling, op->inputs[0]),
        executor->program->vocabulary, capacity_of(compiling, ROWS_TOKENS) == 1};
    const struct pipeline_constants constants = {.threads = SAMPLE_THREADS};
    struct dispatch *dispatch;
    uint32_t pipeline;
    TRY(vulkan_pipeline(&executor->pipelines, SHADER_ARGMAX, constants, &pipeline));
    TRY(vulkan_add_dispatch(compiling, index, pipeline, &arguments, sizeof arguments, &dispatch));
    dispatch->bindings[BIND_ARENA].writes = false;
    vulkan_bind(dispatch, BIND_PARTIALS, &executor->partials, true);
    dispatch->groups[0] = ARGMAX_BLOCKS;
    dispatch->groups[1] = outputs;
    TRY(vulkan_pipeline(&executor->pipelines, SHADER_SAMPLE, constants, &pipeline));
    TRY(vulkan_add_dispatch(compiling, index, pipeline, &arguments, sizeof arguments, &dispatch));
    dispatch->bindings[BIND_ARENA].writes = false;
    vulkan_bind(dispatch, BIND_PARTIALS, &executor->partials, false);
    vulkan_bind(dispatch, BIND_TOKENS, &executor->tokens, true);
    vulkan_bind(dispatch, BIND_HOST_TOKENS, &executor->host_tokens, true);
    vulkan_bind(dispatch, BIND_RING, &executor->outcomes, true);
    vulkan_bind(dispatch, BIND_SAMPLE_SCRATCH, &executor->sample_scratch, true);
    vulkan_bind(dispatch, BIND_BIAS, &executor->bias, false);
    vulkan_bind(dispatch, BIND_MASKS, &executor->masks, false);
    vulkan_bind(dispatch, BIND_LOGPROBS, &executor->logprobs, true);
    vulkan_bind(dispatch, BIND_RING_STATE, &executor->ring_state, true);
    dispatch->groups[0] = outputs < SAMPLE_GROUPS ? outputs : SAMPLE_GROUPS;
cleanup:
    return status;
}

/* ---- Plans ---- */

/* Devices guarantee only 65535 workgroups per dimension: heads and batches can be more. */
static enum salvo_status check_dispatches(const struct compiling *compiling)
{
    const struct vulkan_physical *physical = compiling->executor->device.physical;
    for (uint32_t i = 0; i < compiling->plan->dispatch_count; i++) {
        const struct dispatch *dispatch = &compiling->plan->dispatches[i];
        for (int j = 0; j < 3; j++) {
            const uint32_t most = physical->limits.maxComputeWorkGroupCount[j];
            if (dispatch->groups[j] > most) {
                return fail(SALVO_ERROR_UNSUPPORTED,
                    "group %u of the program for %u tokens needs %u workgroups in a row; %s takes %u",
                    dispatch->group, compiling->plan->lowered.capacity[ROWS_TOKENS], dispatch->groups[j],
                    physical->name, most);
            }
        }
    }
    return SALVO_OK;
}

enum salvo_status vulkan_plan_compile(struct compiling *compiling)
{
    enum salvo_status status = SALVO_OK;
    const struct plan *plan = &compiling->plan->lowered;
    TRY(compile_take(compiling));
    for (uint32_t i = 0; i < plan->group_count; i++) {
        const struct group *group = &plan->groups[i];
        switch (group->kind) {
        case GROUP_ROWS:
            TRY(vulkan_compile_rows(compiling, i, group->first_op, group->op_count,
                group->rounded_count && group->rounding == ROUNDING_Q8 ? group->rounded_inputs[0]
                                                                       : NO_BUFFER));
            break;
        case GROUP_MATMUL:
            TRY(plan->capacity[ROWS_TOKENS] == 1 ? vulkan_compile_matvec(compiling, i)
                                                 : vulkan_compile_matmul(compiling, i));
            break;
        case GROUP_ATTEND:
        case GROUP_PROJECT_ATTEND:
            TRY(vulkan_compile_attend(compiling, i));
            break;
        case GROUP_WKV7:
            TRY(vulkan_compile_wkv7(compiling, i));
            break;
        case GROUP_SAMPLE:
            TRY(compile_sample(compiling, i));
            break;
        }
    }
    TRY(check_dispatches(compiling));
    TRY(vulkan_plan_prepare(compiling->executor, compiling->plan));
cleanup:
    return status;
}
