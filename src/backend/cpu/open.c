/* Opens an executor: lowers the plans and allocates memory before any weight is read. */
#include "backend/cpu/executor.h"

#include "base/memory.h"
#include "base/memory_gaps.h"

#include <stdio.h>
#include <string.h>

/* Sizes of the work memory's buffers. */
struct needs {
    size_t columns, q8_columns,
        float_columns; /* widest input of any matmul, of quantised and of float weights */
    size_t queries;    /* queries that attention computes at once */
    size_t query_elements, partials, kv_heads; /* of attention */
};

static void add_up_needs(const struct executor *executor, struct needs *needs)
{
    const struct program *program = executor->program;
    const size_t pages = (executor->options.context + PAGE_POSITIONS - 1) / PAGE_POSITIONS;
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
            size_t elements = at_once * op->attend.head_dim;
            size_t partials = op->attend.heads * pages * (op->attend.head_dim + 2);
            needs->queries = at_once > needs->queries ? at_once : needs->queries;
            needs->query_elements = elements > needs->query_elements ? elements : needs->query_elements;
            needs->partials = partials > needs->partials ? partials : needs->partials;
            needs->kv_heads = op->attend.kv_heads > needs->kv_heads ? op->attend.kv_heads : needs->kv_heads;
        }
    }
}

/* Allocates consecutive parts of the work memory; without memory it only counts bytes. */
struct work_layout {
    uint8_t *memory;
    size_t used;
};

static void *take(struct work_layout *layout, size_t count, size_t size)
{
    const size_t bytes = count * size, all = (bytes + 63) / 64 * 64 + MEMORY_GAP;
    uint8_t *piece = layout->memory ? layout->memory + layout->used : NULL;
    if (piece)
        memory_forbid(piece + bytes, all - bytes);
    layout->used += all;
    return piece;
}

static struct q8_tile take_q8_tile(struct work_layout *layout, size_t rows, size_t k)
{
    return (struct q8_tile){.values = take(layout, rows * k, 2),
        .scales = take(layout, rows * (k / 32), sizeof(float)),
        .sums = take(layout, rows * (k / 32), sizeof(float)),
        .half_sums = take(layout, rows * (k / 16), sizeof(float)),
        .corrections = take(layout, rows * (k / 32), sizeof(int32_t)),
        .half_corrections = take(layout, rows * (k / 16), sizeof(int32_t))};
}

static void take_scratch(const struct executor *executor, const struct needs *needs,
    struct work_layout *layout, struct scratch *scratch)
{
    const size_t rows = (executor->options.batch + WIDE_TOKENS - 1) / WIDE_TOKENS * WIDE_TOKENS,
                 vocabulary = executor->program->vocabulary;
    scratch->private_buffers = take(layout, executor->single.private_bytes, 1);
    for (int i = 0; i < MAX_Q8_INPUTS; i++)
        scratch->x[i] = take_q8_tile(layout, 1, needs->q8_columns);
    for (int i = 0; i < 2; i++) {
        scratch->tiles[i].values = take(layout, UNPACKED_ELEMENTS, 1);
        scratch->tiles[i].scales = take(layout, UNPACKED_ELEMENTS / 16, sizeof(float));
        scratch->tiles[i].offsets = take(layout, UNPACKED_ELEMENTS / 16, sizeof(float));
        scratch->float_tiles[i] = take(layout, needs->float_columns ? TILE_ROWS * K_PART : 0, sizeof(float));
        scratch->sums[i] = take(layout, rows * TILES_TOGETHER * TILE_ROWS, sizeof(float));
    }
    scratch->queries = take(layout, needs->query_elements, sizeof(float));
    scratch->outputs = take(layout, needs->query_elements, sizeof(float));
    scratch->scores = take(layout, needs->queries * PAGE_POSITIONS, sizeof(float));
    scratch->attend = take(layout, needs->queries, sizeof *scratch->attend);
    scratch->results = take(layout, needs->queries, sizeof *scratch->results);
    scratch->candidates = take(layout, vocabulary, sizeof *scratch->candidates);
    scratch->logits = take(layout, vocabulary, sizeof(float));
}

static void take_work_memory(struct executor *executor, const struct needs *needs, struct work_layout *layout)
{
    const struct backend_options *options = &executor->options;
    const size_t rows = (options->batch + WIDE_TOKENS - 1) / WIDE_TOKENS * WIDE_TOKENS;
    const size_t arena = executor->single.arena_bytes > executor->batch.arena_bytes
                             ? executor->single.arena_bytes
                             : executor->batch.arena_bytes;
    const uint32_t groups = executor->single.group_count > executor->batch.group_count
                                ? executor->single.group_count
                                : executor->batch.group_count;
    executor->arena = take(layout, arena, 1);
    executor->x = take_q8_tile(layout, rows, needs->q8_columns);
    executor->float_x = take(layout, rows * needs->float_columns, sizeof(float));
    executor->tokens = take(layout, (size_t)options->slots * (options->context + 1), sizeof(int32_t));
    executor->cosines = take(
        layout, (size_t)options->batch * executor->program->rope_count * executor->rope_pairs, sizeof(float));
    executor->sines = take(
        layout, (size_t)options->batch * executor->program->rope_count * executor->rope_pairs, sizeof(float));
    executor->partials = take(layout, needs->partials, sizeof(float));
    executor->page_counts = take(layout, needs->kv_heads, sizeof *executor->page_counts);
    executor->runs = take(layout, options->slots, sizeof *executor->runs);
    executor->rows = take(layout, options->batch, sizeof *executor->rows);
    executor->output_rows = take(layout, options->outputs, sizeof *executor->output_rows);
    executor->tasks = take(layout, groups, sizeof *executor->tasks);
    executor->results = take(layout, options->slots, sizeof *executor->results);
    executor->run_numbers = take(layout, options->slots, sizeof *executor->run_numbers);
    executor->logprobs = take(layout, options->outputs, sizeof *executor->logprobs);
    for (uint32_t i = 0; i < options->threads; i++) {
        struct scratch *scratch = executor->scratch ? &executor->scratch[i] : &(struct scratch){0};
        take_scratch(executor, needs, layout, scratch);
    }
}

static enum salvo_status open_work_memory(struct executor *executor)
{
    enum salvo_status status = SALVO_OK;
    struct needs needs;
    struct work_layout layout = {0};
    for (uint32_t i = 0; i < executor->program->rope_count; i++) {
        uint32_t pairs = executor->program->ropes[i].dimensions / 2;
        executor->rope_pairs = pairs > executor->rope_pairs ? pairs : executor->rope_pairs;
    }
    add_up_needs(executor, &needs);
    take_work_memory(executor, &needs, &layout);
    TRY(ARENA_NEW(&executor->tables, &executor->scratch, executor->options.threads));
    TRY(memory_map(layout.used, PAGES_NORMAL, &executor->work_memory));
    executor->work_bytes = layout.used;
    layout = (struct work_layout){.memory = executor->work_memory};
    take_work_memory(executor, &needs, &layout);
cleanup:
    return status;
}

void executor_close(struct executor *executor)
{
    if (!executor)
        return;
    team_close(executor->team);
    memory_unmap(executor->weight_memory, executor->weight_bytes);
    memory_unmap(executor->state_memory, executor->state_bytes);
    memory_unmap(executor->recurrent.memory, executor->recurrent.bytes + executor->recurrent.kept_bytes);
    memory_unmap(executor->work_memory, executor->work_bytes);
    if (executor->debug_offsets)
        memory_unmap(executor->arena, executor->debug_bytes);
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
    return fail(SALVO_ERROR_ARGUMENT, "instruction set '%s' is not available on this CPU; available: %s",
        executor->options.isa, names);
}

enum salvo_status executor_open(
    const struct program *program, const struct backend_options *options, struct executor **out)
{
    enum salvo_status status = SALVO_OK;
    struct executor *executor = NULL;
    *out = NULL;
    TRY(NEW(&executor, 1));
    executor->program = program;
    executor->options = *options;
    TRY(choose_kernels(executor));
    TRY(lower_single_and_batch(program, options,
        (struct lowering_options){.max_rounded = MAX_Q8_INPUTS, .max_batch_inputs = 1}, &executor->tables,
        &executor->single, &executor->batch));
    TRY(team_open(options->threads, options->pin, 2 * program->op_count, &executor->team));
    executor->options.threads = team_threads(executor->team);
    TRY(kv_pool_open(executor));
    TRY(recurrent_pool_open(executor));
    TRY(open_work_memory(executor));
    TRY(load_weights(executor));
    *out = executor;
cleanup:
    if (status != SALVO_OK)
        executor_close(executor);
    return status;
}
