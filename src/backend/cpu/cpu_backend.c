/* The functions of struct backend: devices, state, counters, printing, and the debug path. */
#include "backend/common/print.h"
#include "backend/cpu/executor.h"

#include "base/cpu.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

static uint32_t device_count(void)
{
    return 1;
}

static struct salvo_device device(uint32_t number)
{
    return (struct salvo_device){
        .backend = "cpu",
        .number = number,
        .name = cpu_name(),
        .features = cpu_feature_names(),
        .cores = cpu_physical_cores(),
        .memory = cpu_memory_bytes(),
    };
}

static struct backend_info info(const struct executor *executor)
{
    return (struct backend_info){.threads = executor->options.threads,
        .isa = executor->kernels->name,
        .in_flight = 1,
        .ahead = 1,
        .state = &executor->state};
}

static const float *logits(struct executor *executor, uint32_t row)
{
    return row_of(executor, executor->program->logits, row, 0);
}

static enum salvo_status hidden(struct executor *executor, uint32_t row, uint32_t count, float *out)
{
    const uint64_t columns = executor->program->buffers[executor->program->hidden].columns;
    memcpy(out, row_of(executor, executor->program->hidden, row, 0), count * columns * sizeof *out);
    return SALVO_OK;
}

static const struct sampling_logprob *logprobs(struct executor *executor, uint32_t row)
{
    return executor->logprobs[row];
}

static const int32_t *tokens_of(struct executor *executor, uint32_t slot)
{
    return executor->tokens + slot_tokens_at(&executor->options, slot);
}

/* ---- State ---- */

static enum salvo_status write_tokens(
    struct executor *executor, uint32_t slot, const int32_t *ids, uint32_t count)
{
    memcpy(executor->tokens + slot_tokens_at(&executor->options, slot), ids, count * sizeof *ids);
    return SALVO_OK;
}

static const struct backend_state state = {.move_page = kv_pool_move_page,
    .move_recurrent = recurrent_pool_move,
    .copy_page = kv_pool_copy_page,
    .copy_recurrent = recurrent_pool_copy,
    .write_tokens = write_tokens};

static struct backend_counters counters(const struct executor *executor)
{
    struct backend_counters result = executor->counters;
    result.weight_bytes = executor->weight_bytes;
    result.state_bytes = executor->state_bytes + executor->recurrent.bytes;
    result.scratch_bytes = executor->work_bytes;
    return result;
}

static void print_plans(
    const struct executor *executor, void (*line)(void *user, const char *text), void *user)
{
    char text[512];
    const struct printer printer = {line, user};
    snprintf(text, sizeof text, "cpu %s, %u threads, weights packed in tiles of 8 rows: %zu bytes",
        executor->kernels->name, executor->options.threads, executor->weight_bytes);
    line(user, text);
    print_plan(printer, executor->program, &executor->single, "");
    print_plan(printer, executor->program, &executor->batch, "");
}

/* ---- The debug path ---- */

static void set_rounding(struct executor *executor, enum activation_rounding rounding)
{
    executor->rounding = rounding;
}

static const struct plan *debug_plan(const struct executor *executor, uint32_t tokens)
{
    return tokens == 1 ? &executor->single : &executor->batch;
}

static void debug_end(struct executor *executor)
{
    if (!executor->debug_offsets)
        return;
    memory_unmap(executor->arena, executor->debug_bytes);
    executor->debug_offsets = NULL;
    executor->arena = executor->fast_arena;
}

static enum salvo_status debug_begin(struct executor *executor, const struct step *step,
    const size_t *offsets, size_t bytes, uint8_t **out_memory)
{
    enum salvo_status status = SALVO_OK;
    debug_end(executor);
    TRY(step_check(executor, step));
    TRY(memory_map(bytes, PAGES_NORMAL, out_memory));
    executor->fast_arena = executor->arena;
    executor->arena = *out_memory;
    executor->debug_offsets = offsets;
    executor->debug_bytes = bytes;
    step_take(executor, step);
    step_lay_out_rows(executor);
cleanup:
    return status;
}

static enum salvo_status debug_run(struct executor *executor, uint32_t group)
{
    step_run_groups(executor, group, 1);
    if (group + 1 == executor->plan->group_count) { /* the step is complete */
        recurrent_pool_advance(executor);
        recurrent_pool_commit(executor);
    }
    return gguf_check(executor->program->gguf);
}

const struct backend cpu_backend = {
    .name = "cpu",
    .device_count = device_count,
    .device = device,
    .open = executor_open,
    .close = executor_close,
    .info = info,
    .rounds_finely = true,
    .set_rounding = set_rounding,
    .submit = step_submit,
    .wait = step_wait,
    .logits = logits,
    .hidden = hidden,
    .logprobs = logprobs,
    .tokens = tokens_of,
    .counters = counters,
    .print = print_plans,
    .state = &state,
    .debug = {.plan = debug_plan, .begin = debug_begin, .run = debug_run, .end = debug_end},
};
