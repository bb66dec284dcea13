/* The CPU backend: opening an executor and running steps on it. */
#include "backend/cpu/executor.h"

#include "base/cpu.h"
#include "base/memory.h"
#include "program/placement.h"

#include <inttypes.h>
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

/* ---- Opening ---- */

/* Sizes that the buffers of the work memory depend on. */
struct needs {
    size_t columns, q8_columns,
        float_columns;                  /* widest matmul input: any, of quantised weights, of float weights */
    size_t queries, partials, kv_heads; /* of attention, in elements */
};

static void add_up_needs(const struct executor *executor, struct needs *needs)
{
    const struct program *program = executor->program;
    const size_t pages = (executor->options.context + KV_TILE - 1) / KV_TILE;
    *needs = (struct needs){0};
    for (uint32_t i = 0; i < program->op_count; i++) {
        const struct op *op = &program->ops[i];
        if (op->kind == OP_MATMUL) {
            size_t columns = program->buffers[op->inputs[0]].columns;
            size_t *most = op->matmul.rounding == ROUNDING_Q8 ? &needs->q8_columns : &needs->float_columns;
            *most = columns > *most ? columns : *most;
            needs->columns = columns > needs->columns ? columns : needs->columns;
        }
        if (op->kind == OP_ATTEND) {
            size_t each = op->attend.heads / op->attend.kv_heads;
            size_t at_once = each > ATTEND_QUERIES ? each : ATTEND_QUERIES;
            size_t queries = at_once * op->attend.head_dim;
            size_t partials = op->attend.heads * pages * (op->attend.head_dim + 2);
            needs->queries = queries > needs->queries ? queries : needs->queries;
            needs->partials = partials > needs->partials ? partials : needs->partials;
            needs->kv_heads = op->attend.kv_heads > needs->kv_heads ? op->attend.kv_heads : needs->kv_heads;
        }
    }
}

/* Hands out pieces of the work memory; without memory it only counts. */
struct divider {
    uint8_t *memory;
    size_t used;
};

static void *divide(struct divider *divider, size_t count, size_t size)
{
    void *piece = divider->memory ? divider->memory + divider->used : NULL;
    divider->used += (count * size + 63) / 64 * 64;
    return piece;
}

static struct q8_panel divide_panel(struct divider *divider, size_t rows, size_t k)
{
    return (struct q8_panel){divide(divider, rows * k, 1), divide(divider, rows * (k / 32), sizeof(float)),
        divide(divider, rows * (k / 32), sizeof(float)), divide(divider, rows * (k / 16), sizeof(float))};
}

static void divide_scratch(const struct executor *executor, const struct needs *needs,
    struct divider *divider, struct scratch *scratch)
{
    enum { PART = 2048 }; /* of K, unpacked at a time */
    const size_t rows = (executor->options.batch + OCTET - 1) / OCTET * OCTET,
                 vocabulary = executor->program->vocabulary;
    scratch->private_buffers = divide(divider, executor->single.private_bytes, 1);
    scratch->x = divide_panel(divider, 1, needs->q8_columns);
    for (int i = 0; i < 2; i++) {
        scratch->tiles[i].values = divide(divider, TILE_ROWS * PART, 1);
        scratch->tiles[i].scales = divide(divider, TILE_ROWS * PART / 16, sizeof(float));
        scratch->tiles[i].offsets = divide(divider, TILE_ROWS * PART / 16, sizeof(float));
        scratch->float_tiles[i] = divide(divider, needs->float_columns ? TILE_ROWS * PART : 0, sizeof(float));
        scratch->sums[i] = divide(divider, rows * TILE_ROWS, sizeof(float));
    }
    scratch->queries = divide(divider, needs->queries, sizeof(float));
    scratch->outputs = divide(divider, needs->queries, sizeof(float));
    scratch->scores =
        divide(divider, needs->queries * KV_TILE / 8, sizeof(float)); /* head_dim is at least 8 */
    scratch->attend = divide(divider, needs->queries / 8, sizeof *scratch->attend);
    scratch->candidates = divide(divider, vocabulary, sizeof *scratch->candidates);
    scratch->logits = divide(divider, vocabulary, sizeof(float));
}

static void divide_work_memory(struct executor *executor, const struct needs *needs, struct divider *divider)
{
    const struct backend_options *options = &executor->options;
    const size_t rows = (options->batch + OCTET - 1) / OCTET * OCTET;
    const size_t arena = executor->single.arena_bytes > executor->batch.arena_bytes
                             ? executor->single.arena_bytes
                             : executor->batch.arena_bytes;
    const uint32_t groups = executor->single.group_count > executor->batch.group_count
                                ? executor->single.group_count
                                : executor->batch.group_count;
    executor->arena = divide(divider, arena, 1);
    executor->x = divide_panel(divider, rows, needs->q8_columns);
    executor->float_x = divide(divider, rows * needs->float_columns, sizeof(float));
    executor->tokens = divide(divider, (size_t)options->slots * (options->context + 1), sizeof(int32_t));
    executor->cosines = divide(divider,
        (size_t)options->batch * executor->program->rope_count * executor->rope_pairs, sizeof(float));
    executor->sines = divide(divider,
        (size_t)options->batch * executor->program->rope_count * executor->rope_pairs, sizeof(float));
    executor->partials = divide(divider, needs->partials, sizeof(float));
    executor->page_counts = divide(divider, needs->kv_heads, sizeof *executor->page_counts);
    executor->runs = divide(divider, options->slots, sizeof *executor->runs);
    executor->rows = divide(divider, options->batch, sizeof *executor->rows);
    executor->output_rows = divide(divider, options->outputs, sizeof *executor->output_rows);
    executor->tasks = divide(divider, groups, sizeof *executor->tasks);
    executor->results = divide(divider, options->slots, sizeof *executor->results);
    for (uint32_t i = 0; i < options->threads; i++) {
        struct scratch *scratch = executor->scratch ? &executor->scratch[i] : &(struct scratch){0};
        divide_scratch(executor, needs, divider, scratch);
    }
}

static enum salvo_status open_work_memory(struct executor *executor)
{
    enum salvo_status status = SALVO_OK;
    struct needs needs;
    struct divider divider = {0};
    for (uint32_t i = 0; i < executor->program->rope_count; i++) {
        uint32_t pairs = executor->program->ropes[i].dimensions / 2;
        executor->rope_pairs = pairs > executor->rope_pairs ? pairs : executor->rope_pairs;
    }
    add_up_needs(executor, &needs);
    divide_work_memory(executor, &needs, &divider);
    TRY(ARENA_NEW(&executor->tables, &executor->scratch, executor->options.threads));
    TRY(memory_map(divider.used, &executor->work_memory));
    executor->work_bytes = divider.used;
    divider = (struct divider){.memory = executor->work_memory};
    divide_work_memory(executor, &needs, &divider);
cleanup:
    return status;
}

static void close_executor(struct executor *executor)
{
    if (!executor)
        return;
    team_close(executor->team);
    memory_unmap(executor->weight_memory, executor->weight_bytes);
    memory_unmap(executor->state_memory, executor->state_bytes);
    memory_unmap(executor->work_memory, executor->work_bytes);
    memory_unmap(executor->debug_memory, executor->debug_bytes);
    memory_free(executor->debug_offsets);
    arena_free(&executor->tables);
    memory_free(executor);
}

static enum salvo_status choose_kernels(struct executor *executor)
{
    executor->kernels = cpu_kernels_find(executor->options.isa);
    if (executor->kernels)
        return SALVO_OK;
    char names[256] = "";
    for (size_t i = 0; i < cpu_kernels_count(); i++) {
        bool usable;
        const struct cpu_kernels *kernels = cpu_kernels_at(i, &usable);
        size_t used = strlen(names);
        if (usable)
            snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", kernels->name);
    }
    return fail(SALVO_ERROR_UNSUPPORTED, "instruction set '%s' is not to be had here; these are: %s",
        executor->options.isa, names);
}

static void fill_in_defaults(struct backend_options *options)
{
    options->threads = options->threads ? options->threads : cpu_physical_cores();
    if (options->outputs == 0) {
        options->outputs = options->batch < 64 ? options->batch : 64;
        options->outputs = options->outputs < options->slots ? options->slots : options->outputs;
    }
}

static enum salvo_status open_executor(
    const struct program *program, const struct backend_options *options, struct executor **out)
{
    enum salvo_status status = SALVO_OK;
    struct executor *executor = NULL;
    *out = NULL;
    TRY(NEW(&executor, 1));
    executor->program = program;
    executor->options = *options;
    fill_in_defaults(&executor->options);
    options = &executor->options;
    if (!options->slots || !options->context || !options->batch)
        TRY(fail(SALVO_ERROR_ARGUMENT, "%u sessions of %u tokens in chunks of %u: none may be 0",
            options->slots, options->context, options->batch));
    TRY(choose_kernels(executor));
    TRY(lower_program(executor, (const uint32_t[]){1, 1, 1}, &executor->single));
    TRY(lower_program(
        executor, (const uint32_t[]){options->batch, options->slots, options->outputs}, &executor->batch));
    TRY(team_open(options->threads, options->pin, 2 * program->op_count, &executor->team));
    TRY(kv_pool_open(executor));
    TRY(open_work_memory(executor));
    TRY(load_weights(executor));
    executor->allocations_at_load = memory_count();
    *out = executor;
cleanup:
    if (status != SALVO_OK)
        close_executor(executor);
    return status;
}

static struct backend_info info(const struct executor *executor)
{
    return (struct backend_info){.threads = executor->options.threads, .isa = executor->kernels->name};
}

/* ---- A step ---- */

static enum salvo_status check_run(const struct executor *executor, const struct step *step, uint32_t index)
{
    const struct run *run = &step->runs[index];
    const struct backend_options *options = &executor->options;
    if (run->slot >= options->slots || run->count == 0 || run->first > options->context ||
        run->count > options->context - run->first || run->first_row > step->token_count ||
        run->count > step->token_count - run->first_row)
        return fail(SALVO_ERROR_ARGUMENT,
            "run %u: slot %u of %u, positions %u + %u of %u, rows %u + %u of %u", index, run->slot,
            options->slots, run->first, run->count, options->context, run->first_row, run->count,
            step->token_count);
    for (uint32_t i = 0; i < index; i++) {
        if (step->runs[i].slot == run->slot)
            return fail(
                SALVO_ERROR_ARGUMENT, "slot %u is in runs %u and %u of one step", run->slot, i, index);
    }
    for (uint32_t i = 0; i <= (run->first + run->count - 1) / KV_TILE; i++) {
        if (run->pages[i] >= executor->pages)
            return fail(SALVO_ERROR_ARGUMENT, "run %u: page %u of %u", index, run->pages[i], executor->pages);
    }
    for (uint32_t i = 0; run->source == SOURCE_IDS && i < run->count; i++) {
        int32_t id = step->ids[run->first_row + i];
        if (id < 0 || (uint32_t)id >= executor->program->vocabulary)
            return fail(SALVO_ERROR_ARGUMENT, "token id %" PRId32 " is outside the vocabulary of %u", id,
                executor->program->vocabulary);
    }
    return SALVO_OK;
}

static enum salvo_status check_step(const struct executor *executor, const struct step *step)
{
    enum salvo_status status = SALVO_OK;
    uint32_t tokens = 0, outputs = 0;
    if (step->run_count == 0 || step->run_count > executor->options.slots ||
        step->token_count > executor->options.batch)
        TRY(fail(SALVO_ERROR_ARGUMENT, "a step of %u runs and %u tokens: at most %u and %u are possible",
            step->run_count, step->token_count, executor->options.slots, executor->options.batch));
    for (uint32_t i = 0; i < step->run_count; i++) {
        TRY(check_run(executor, step, i));
        tokens += step->runs[i].count;
        outputs +=
            step->runs[i].logits == LOGITS_ALL ? step->runs[i].count : step->runs[i].logits == LOGITS_LAST;
        if (step->repeat > 1 && (step->runs[i].count != 1 || step->runs[i].logits != LOGITS_LAST))
            TRY(fail(SALVO_ERROR_ARGUMENT, "run %u has %u tokens in a step that repeats: it must have 1", i,
                step->runs[i].count));
    }
    if (tokens != step->token_count || outputs > executor->options.outputs)
        TRY(fail(SALVO_ERROR_ARGUMENT,
            "a step of %u tokens whose runs have %u, with logits for %u rows of at most %u",
            step->token_count, tokens, outputs, executor->options.outputs));
cleanup:
    return status;
}

/* Live rows, and where each of them is. */
static void lay_out_rows(struct executor *executor)
{
    uint32_t outputs = 0;
    executor->live[ROWS_TOKENS] = 0;
    executor->live[ROWS_RUNS] = executor->step->run_count;
    for (uint32_t i = 0; i < executor->step->run_count; i++) {
        const struct run *run = &executor->runs[i];
        for (uint32_t j = 0; j < run->count; j++) {
            const uint32_t row = run->first_row + j;
            executor->rows[row] = (struct row_info){.run = i, .position = run->first + j};
            if (run->logits == LOGITS_ALL || (run->logits == LOGITS_LAST && j + 1 == run->count))
                executor->output_rows[outputs++] = row;
        }
        executor->live[ROWS_TOKENS] += run->count;
    }
    executor->live[ROWS_OUTPUTS] = outputs;
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
    if (executor->step->cancel && *executor->step->cancel)
        return; /* the step fails as a whole */
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
    case GROUP_SAMPLE:
        sample_work(executor, group, task, thread);
        break;
    }
}

static void enter_phase(void *context, uint32_t phase, uint32_t thread)
{
    struct executor *executor = context;
    enter_group(executor, &executor->plan->groups[phase], thread);
}

static void work_on_phase(void *context, uint32_t phase, uint32_t task, uint32_t thread)
{
    struct executor *executor = context;
    work_on_group(executor, &executor->plan->groups[phase], task, thread);
}

static void run_once(struct executor *executor)
{
    lay_out_rows(executor);
    for (uint32_t i = 0; i < executor->plan->group_count; i++)
        executor->tasks[i] = tasks_of(executor, &executor->plan->groups[i]);
    team_run(executor->team, &(struct team_job){.context = executor,
                                 .tasks = executor->tasks,
                                 .phase_count = executor->plan->group_count,
                                 .enter = enter_phase,
                                 .work = work_on_phase});
    executor->counters.tokens += executor->live[ROWS_TOKENS];
}

/* Copies the step's runs and puts the host's ids where `embed` reads them. */
static void take_step(struct executor *executor, const struct step *step)
{
    executor->step = step;
    executor->plan = step->token_count == 1 ? &executor->single : &executor->batch;
    for (uint32_t i = 0; i < step->run_count; i++) {
        const struct run *run = &step->runs[i];
        executor->runs[i] = *run;
        executor->results[i] = (struct run_result){0};
        if (run->source == SOURCE_IDS)
            memcpy(executor->tokens + (size_t)run->slot * (executor->options.context + 1) + run->first,
                step->ids + run->first_row, run->count * sizeof *step->ids);
    }
}

/* After a decode step: whether any run goes on; those that ended stay where they are. */
static bool advance(struct executor *executor)
{
    const struct step *step = executor->step;
    for (uint32_t i = 0; i < step->run_count; i++) {
        struct run *run = &executor->runs[i];
        struct run_result *result = &executor->results[i];
        const int32_t *tokens = executor->tokens + (size_t)run->slot * (executor->options.context + 1);
        for (uint32_t j = 0; j < step->stop_count; j++)
            result->ended |= !result->failed && tokens[run->first + 1] == step->stop_ids[j];
        if (result->ended || result->failed || run->first + 1 >= executor->options.context ||
            (run->limit && run->first + 1 >= run->limit))
            return false; /* runs of one step go on together; the host sorts out who continues */
        run->first++;
    }
    return true;
}

static enum salvo_status submit(struct executor *executor, const struct step *step, uint64_t *out_ticket)
{
    enum salvo_status status = SALVO_OK;
    *out_ticket = 0;
    TRY(check_step(executor, step));
    take_step(executor, step);
    executor->counters.submissions++;
    const uint32_t repeats = step->repeat ? step->repeat : 1;
    for (uint32_t i = 0; i < repeats; i++) {
        run_once(executor);
        if (step->cancel && *step->cancel)
            TRY(fail(SALVO_ERROR_CANCELLED, "cancelled"));
        if (repeats == 1 || !advance(executor))
            break;
    }
    TRY(gguf_check(executor->program->gguf));
    *out_ticket = ++executor->tickets;
cleanup:
    return status;
}

/* A step is done when submit returns: the caller's thread is one of the team. */
static enum salvo_status wait_for(struct executor *executor, uint64_t ticket, struct run_result *results)
{
    if (ticket == 0 || ticket != executor->tickets)
        return fail(SALVO_ERROR_ARGUMENT, "ticket %" PRIu64 " is not that of the last step, %" PRIu64, ticket,
            executor->tickets);
    memcpy(results, executor->results, executor->live[ROWS_RUNS] * sizeof *results);
    return SALVO_OK;
}

static const float *logits(struct executor *executor, uint32_t row)
{
    return row_of(executor, executor->program->logits, row, 0);
}

static const int32_t *tokens_of(struct executor *executor, uint32_t slot)
{
    return executor->tokens + (size_t)slot * (executor->options.context + 1);
}

/* ---- State ---- */

static size_t state_size(const struct executor *executor, uint32_t positions)
{
    return positions * (sizeof(int32_t) + kv_pool_position_bytes(executor));
}

static enum salvo_status check_positions(const struct executor *executor, uint32_t slot, uint32_t positions)
{
    if (slot >= executor->options.slots || positions > executor->options.context)
        return fail(SALVO_ERROR_ARGUMENT, "slot %u of %u, %u positions of %u", slot, executor->options.slots,
            positions, executor->options.context);
    return SALVO_OK;
}

static enum salvo_status state_save(
    struct executor *executor, uint32_t slot, const uint32_t *pages, uint32_t positions, uint8_t *out)
{
    enum salvo_status status = check_positions(executor, slot, positions);
    if (status == SALVO_OK) {
        memcpy(out, tokens_of(executor, slot), positions * sizeof(int32_t));
        kv_pool_copy_out(executor, pages, positions, out + positions * sizeof(int32_t));
    }
    return status;
}

static enum salvo_status state_restore(
    struct executor *executor, uint32_t slot, const uint32_t *pages, uint32_t positions, const uint8_t *data)
{
    enum salvo_status status = check_positions(executor, slot, positions);
    if (status == SALVO_OK) {
        memcpy(executor->tokens + (size_t)slot * (executor->options.context + 1), data,
            positions * sizeof(int32_t));
        kv_pool_copy_in(executor, pages, positions, data + positions * sizeof(int32_t));
    }
    return status;
}

static struct backend_counters counters(const struct executor *executor)
{
    struct backend_counters result = executor->counters;
    result.allocations_after_load = memory_count() - executor->allocations_at_load;
    result.weight_bytes = executor->weight_bytes;
    result.state_bytes = executor->state_bytes;
    result.scratch_bytes = executor->work_bytes;
    return result;
}

static void print_plans(
    const struct executor *executor, void (*line)(void *user, const char *text), void *user)
{
    char text[512];
    const struct plan *const plans[] = {&executor->single, &executor->batch};
    snprintf(text, sizeof text, "cpu %s, %u threads, weights packed in tiles of 8 rows: %zu bytes",
        executor->kernels->name, executor->options.threads, executor->weight_bytes);
    line(user, text);
    for (size_t i = 0; i < 2; i++) {
        snprintf(text, sizeof text, "plan for %u tokens: %u groups, scratch %zu bytes",
            plans[i]->capacity[ROWS_TOKENS], plans[i]->group_count, plans[i]->arena_bytes);
        line(user, text);
        for (uint32_t j = 0; j < plans[i]->group_count; j++) {
            lower_describe(executor, plans[i], j, text, sizeof text);
            line(user, text);
        }
    }
}

/* ---- The debug path ---- */

static uint32_t group_count(const struct executor *executor, const struct step *step)
{
    return (step->token_count == 1 ? &executor->single : &executor->batch)->group_count;
}

static void debug_end(struct executor *executor)
{
    if (!executor->debug_offsets)
        return;
    memory_unmap(executor->debug_memory, executor->debug_bytes);
    memory_free(executor->debug_offsets);
    executor->debug_offsets = NULL;
    executor->debug_memory = NULL;
    executor->arena = executor->fast_arena;
}

static enum salvo_status debug_begin(struct executor *executor, const struct step *step)
{
    enum salvo_status status = SALVO_OK;
    debug_end(executor);
    TRY(check_step(executor, step));
    take_step(executor, step);
    lay_out_rows(executor);
    TRY(NEW(&executor->debug_offsets, executor->program->buffer_count));
    TRY(placement_compute(executor->program, executor->plan->capacity, executor->plan->group_of_op, false,
        executor->debug_offsets, &executor->debug_bytes));
    TRY(memory_map(executor->debug_bytes, &executor->debug_memory));
    executor->fast_arena = executor->arena;
    executor->arena = executor->debug_memory;
cleanup:
    if (status != SALVO_OK) {
        memory_free(executor->debug_offsets);
        executor->debug_offsets = NULL;
    }
    return status;
}

static void enter_debug_phase(void *context, uint32_t phase, uint32_t thread)
{
    struct executor *executor = context;
    enter_group(executor, &executor->plan->groups[executor->debug_group + phase], thread);
}

static void work_on_debug_phase(void *context, uint32_t phase, uint32_t task, uint32_t thread)
{
    struct executor *executor = context;
    work_on_group(executor, &executor->plan->groups[executor->debug_group + phase], task, thread);
}

static enum salvo_status debug_run(struct executor *executor, uint32_t group)
{
    executor->debug_group = group;
    executor->tasks[0] = tasks_of(executor, &executor->plan->groups[group]);
    team_run(executor->team, &(struct team_job){.context = executor,
                                 .tasks = executor->tasks,
                                 .phase_count = 1,
                                 .enter = enter_debug_phase,
                                 .work = work_on_debug_phase});
    return gguf_check(executor->program->gguf);
}

static void debug_group(
    const struct executor *executor, uint32_t group, uint32_t *out_first_op, uint32_t *out_op_count)
{
    *out_first_op = executor->plan->groups[group].first_op;
    *out_op_count = executor->plan->groups[group].op_count;
}

static float *debug_buffer(struct executor *executor, buffer_id buffer)
{
    return executor->plan->is_private[buffer] ? NULL : row_of(executor, buffer, 0, 0);
}

const struct backend cpu_backend = {
    .name = "cpu",
    .device_count = device_count,
    .device = device,
    .open = open_executor,
    .close = close_executor,
    .info = info,
    .submit = submit,
    .wait = wait_for,
    .logits = logits,
    .tokens = tokens_of,
    .state_size = state_size,
    .state_save = state_save,
    .state_restore = state_restore,
    .counters = counters,
    .print = print_plans,
    .group_count = group_count,
    .debug_begin = debug_begin,
    .debug_run = debug_run,
    .debug_group = debug_group,
    .debug_buffer = debug_buffer,
    .debug_end = debug_end,
};
