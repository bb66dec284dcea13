/* Opening an executor: all plans are compiled and all memory is taken before a weight is touched. */
#include "backend/common/checks.h"
#include "backend/cpu/executor.h"

#include "base/memory.h"
#include "base/memory_gaps.h"

#include <stdio.h>
#include <string.h>

/* Sizes that the buffers of the work memory depend on. */
struct needs {
    size_t columns, q8_columns,
        float_columns; /* widest matmul input: any, of quantised weights, of float weights */
    size_t queries;    /* that attention works on at once */
    size_t query_elements, partials, kv_heads; /* of attention */
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
            size_t elements = at_once * op->attend.head_dim;
            size_t partials = op->attend.heads * pages * (op->attend.head_dim + 2);
            needs->queries = at_once > needs->queries ? at_once : needs->queries;
            needs->query_elements = elements > needs->query_elements ? elements : needs->query_elements;
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
    const size_t bytes = count * size, all = (bytes + 63) / 64 * 64 + MEMORY_GAP;
    uint8_t *piece = divider->memory ? divider->memory + divider->used : NULL;
    if (piece)
        memory_forbid(piece + bytes, all - bytes);
    divider->used += all;
    return piece;
}

static struct q8_panel divide_panel(struct divider *divider, size_t rows, size_t k)
{
    return (struct q8_panel){.values = divide(divider, rows * k, 2),
        .scales = divide(divider, rows * (k / 32), sizeof(float)),
        .sums = divide(divider, rows * (k / 32), sizeof(float)),
        .half_sums = divide(divider, rows * (k / 16), sizeof(float))};
}

static void divide_scratch(const struct executor *executor, const struct needs *needs,
    struct divider *divider, struct scratch *scratch)
{
    const size_t rows = (executor->options.batch + OCTET - 1) / OCTET * OCTET,
                 vocabulary = executor->program->vocabulary;
    scratch->private_buffers = divide(divider, executor->single.private_bytes, 1);
    for (int i = 0; i < MAX_PANELS; i++)
        scratch->x[i] = divide_panel(divider, 1, needs->q8_columns);
    for (int i = 0; i < 2; i++) {
        scratch->tiles[i].values = divide(divider, TILE_ROWS * K_PART, 1);
        scratch->tiles[i].scales = divide(divider, TILE_ROWS * K_PART / 16, sizeof(float));
        scratch->tiles[i].offsets = divide(divider, TILE_ROWS * K_PART / 16, sizeof(float));
        scratch->float_tiles[i] =
            divide(divider, needs->float_columns ? TILE_ROWS * K_PART : 0, sizeof(float));
        scratch->sums[i] = divide(divider, rows * TILE_ROWS, sizeof(float));
    }
    scratch->queries = divide(divider, needs->query_elements, sizeof(float));
    scratch->outputs = divide(divider, needs->query_elements, sizeof(float));
    scratch->scores = divide(divider, needs->queries * KV_TILE, sizeof(float));
    scratch->attend = divide(divider, needs->queries, sizeof *scratch->attend);
    scratch->results = divide(divider, needs->queries, sizeof *scratch->results);
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
    TRY(memory_map(divider.used, PAGES_NORMAL, &executor->work_memory));
    executor->work_bytes = divider.used;
    divider = (struct divider){.memory = executor->work_memory};
    divide_work_memory(executor, &needs, &divider);
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
    memory_unmap(executor->recurrent.memory, executor->recurrent.bytes);
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
    return fail(SALVO_ERROR_UNSUPPORTED, "instruction set '%s' is not to be had here; these are: %s",
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
    TRY(backend_complete_options(&executor->options));
    options = &executor->options;
    TRY(choose_kernels(executor));
    const struct lowering_options single = {{1, 1, 1}, .max_rounded = MAX_PANELS},
                                  batch = {{options->batch, options->slots, options->outputs},
                                      .max_rounded = MAX_PANELS};
    TRY(lower_program(program, &single, &executor->tables, &executor->single));
    TRY(lower_program(program, &batch, &executor->tables, &executor->batch));
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
