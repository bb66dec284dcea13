/*
 * Lowers the groups of a plan for one token to records. cuda_tables_build is called several times: without
 * addresses, for the shapes of matrices and the sizes of memory, and then with the addresses.
 */
#include "backend/cuda/cuda_phase.h"
#include "backend/cuda/sample_plan.h"
#include "base/memory.h"

#include <string.h>

/* ---- Attention, recurrence, sampling ---- */

static bool have_equal_angles(const struct program *program, const struct op *a, const struct op *b)
{
    const struct rope *first = &program->ropes[a->rope.rope], *second = &program->ropes[b->rope.rope];
    return first->halves == second->halves && first->dimensions == second->dimensions;
}

static enum salvo_status sync_grid_after_last_phase(struct phase_builder *builder)
{
    return cuda_records_meet(builder, builder->plan->tables.phase_count - 1, 0);
}

static enum salvo_status lower_attend(struct phase_builder *builder, const struct group *group)
{
    enum salvo_status status = SALVO_OK;
    const struct op *ops = &builder->program->ops[group->first_op], *op = ops + group->ops_before;
    bool inside = group->ops_before == 3 && have_equal_angles(builder->program, &ops[0], &ops[1]);
    if (group->ops_before && !inside)
        TRY(cuda_records_rows(builder, group->first_op, group->first_op + group->ops_before));
    phase_begin(builder, group->rows);
    struct cuda_attend attend = cuda_attend_of(builder, op);
    attend.partials = phase_tagged_words(
        builder, (uint64_t)attend.heads * attend.splits * (attend.head_dim + 2) * sizeof(uint64_t));
    if (inside) {
        const struct rope *rope = &builder->program->ropes[ops[0].rope.rope];
        attend.rope_q = ops[0].rope.rope;
        attend.rope_k = ops[1].rope.rope;
        attend.halves = rope->halves;
        attend.dimensions = rope->dimensions;
        attend.k = phase_address(builder, ops[2].inputs[0]);
        attend.v = phase_address(builder, ops[2].inputs[1]);
        attend.appends = 1;
    } else {
        TRY(sync_grid_after_last_phase(builder)); /* keys and values in the cache are not tagged words */
    }
    TRY(cuda_records_attend(builder, &attend));
    TRY(phase_end(builder));
cleanup:
    return status;
}

static enum salvo_status lower_wkv7(struct phase_builder *builder, const struct group *group)
{
    enum salvo_status status = SALVO_OK;
    const struct op *op = &builder->program->ops[group->first_op + group->ops_before];
    phase_begin(builder, group->rows);
    builder->head_dim = op->wkv7.head_dim;
    for (uint32_t i = 0; i < group->ops_before; i++)
        phase_add_op(builder, &builder->program->ops[group->first_op + i], false);
    builder->wkv7 = (struct cuda_wkv7){
        .state = builder->executor->state.recurrent_offsets[op->wkv7.state],
        .heads = op->wkv7.heads,
        .head_dim = op->wkv7.head_dim,
    };
    for (int i = 0; i < 6; i++)
        builder->wkv7.places[i] = phase_input(builder, op->inputs[i]);
    builder->wkv7.out_place = phase_output(builder, op->out);
    for (uint32_t i = 0; i < group->ops_after; i++)
        phase_add_op(builder, op + 1 + i, true);
    phase_store_outputs(builder, group->first_op, group->first_op + group->op_count);
    struct cuda_wkv7_record head;
    const bool has_head = cuda_describe_wkv7(builder, group, &head);
    if (!phase_fits(builder))
        TRY(fail(SALVO_ERROR_UNSUPPORTED, "the ops around '%s' do not fit one phase",
            builder->program->buffers[op->wkv7.state].name));
    TRY(cuda_records_wkv7(builder, has_head ? &head : NULL));
    TRY(phase_end(builder));
cleanup:
    return status;
}

static enum salvo_status lower_sample(struct phase_builder *builder)
{
    enum salvo_status status = SALVO_OK;
    TRY(sync_grid_after_last_phase(builder)); /* logits and results of sampling stages are not tagged words */
    for (uint32_t stage = 0; stage < CUDA_SAMPLE_STAGES; stage++) {
        phase_begin(builder, ROWS_OUTPUTS);
        TRY(cuda_records_sample(builder, stage));
        TRY(phase_end(builder));
    }
cleanup:
    return status;
}

static enum salvo_status lower_group(struct phase_builder *builder, const struct group *group)
{
    switch (group->kind) {
    case GROUP_ROWS:
        return cuda_records_rows(builder, group->first_op, group->first_op + group->op_count);
    case GROUP_MATMUL:
        return cuda_matmuls_build(builder, group);
    case GROUP_ATTEND:
        return lower_attend(builder, group);
    case GROUP_WKV7:
        return lower_wkv7(builder, group);
    case GROUP_PROJECT_ATTEND: /* not asked for */
    case GROUP_SAMPLE:
        break;
    }
    return lower_sample(builder);
}

/* ---- A plan ---- */

void cuda_tables_free(struct cuda_tables *tables)
{
    memory_free(tables->row_tables);
    memory_free(tables->stream_starts);
    memory_free(tables->streams);
    memory_free(tables->records);
    memory_free(tables->record_starts);
    memory_free(tables->packed_inputs);
    memory_free(tables->nodes);
    memory_free(tables->first_phase);
    *tables = (struct cuda_tables){0};
}

/* The distance of row tables is the size of the largest. */
static void close_ranks(struct cuda_tables *tables)
{
    const size_t stride = (tables->row_table_bytes + 127) / 128 * 128;
    for (size_t i = 1; i < tables->row_table_count; i++)
        memmove(tables->row_tables + i * stride, tables->row_tables + i * CUDA_ROW_TABLE_LIMIT, stride);
    tables->row_table_bytes = (uint32_t)stride;
}

/* The number of keys that one thread has: CUDA_WORKERS / head_dim threads share the keys of one value. */
static uint32_t keys_of_thread(uint32_t head_dim)
{
    const uint32_t parts = CUDA_WORKERS / head_dim;
    return parts ? (head_dim + parts - 1) / parts : head_dim;
}

/* Before any phase: all phases have the shared memory that the largest heads need, and would be refused for
 * it. */
static enum salvo_status check_heads(const struct program *program)
{
    for (uint32_t i = 0; i < program->op_count; i++) {
        const struct op *op = &program->ops[i];
        if (op->kind == OP_ATTEND && op->attend.head_dim > CUDA_MOST_HEAD_DIM) {
            return fail(SALVO_ERROR_UNSUPPORTED, "heads of %u elements: the CUDA kernels take at most %d",
                op->attend.head_dim, CUDA_MOST_HEAD_DIM);
        }
        if (op->kind == OP_WKV7 && keys_of_thread(op->wkv7.head_dim) > CUDA_MOST_WKV7_KEYS) {
            uint32_t most = op->wkv7.head_dim;
            while (keys_of_thread(most) > CUDA_MOST_WKV7_KEYS)
                most--;
            return fail(SALVO_ERROR_UNSUPPORTED,
                "recurrent heads of %u elements: the CUDA kernels take at most %u", op->wkv7.head_dim, most);
        }
    }
    return SALVO_OK;
}

enum salvo_status cuda_tables_build(struct executor *executor, struct cuda_plan *plan)
{
    enum salvo_status status = SALVO_OK;
    struct phase_builder *builder = NULL;
    cuda_tables_free(&plan->tables);
    TRY(check_heads(executor->program));
    TRY(NEW(&builder, 1));
    *builder = (struct phase_builder){.executor = executor, .plan = plan, .program = executor->program};
    TRY(NEW(&builder->place_of, executor->program->buffer_count));
    TRY(NEW(&builder->tagged_address, executor->program->buffer_count));
    TRY(NEW(&plan->tables.first_phase, (size_t)plan->plan.group_count + 1));
    if (plan->plan.capacity[ROWS_TOKENS] == 1) {
        for (uint32_t i = 0; i < plan->plan.group_count; i++) {
            plan->tables.first_phase[i] = plan->tables.phase_count;
            TRY(lower_group(builder, &plan->plan.groups[i]));
        }
        plan->tables.first_phase[plan->plan.group_count] = plan->tables.phase_count;
        TRY(cuda_records_finish(builder));
    } else {
        TRY(cuda_nodes_build(builder));
    }
    close_ranks(&plan->tables);
cleanup:
    if (builder) {
        memory_free(builder->place_of);
        memory_free(builder->tagged_address);
        memory_free(builder->records);
    }
    memory_free(builder);
    return status;
}

/* ---- To the device ---- */

/* Ropes and their frequencies, as one piece of memory that begins at `base`; its size, without memory. */
static uint64_t write_ropes(const struct program *program, cuda_address base, uint8_t *memory)
{
    uint64_t used = program->rope_count * sizeof(struct cuda_rope);
    for (uint32_t i = 0; i < program->rope_count; i++) {
        const struct rope *rope = &program->ropes[i];
        const struct cuda_rope written = {base + used, rope->dimensions, rope->magnitude};
        const size_t bytes = rope->dimensions / 2 * sizeof *rope->frequencies;
        if (memory) {
            memcpy(memory + i * sizeof written, &written, sizeof written);
            memcpy(memory + used, rope->frequencies, bytes);
        }
        used += bytes;
    }
    return used;
}

static void write_matrices(const struct executor *executor, uint8_t *memory)
{
    for (uint32_t i = 0; i < executor->program->buffer_count; i++) {
        const struct cuda_weight *weight = &executor->weights[i];
        if (executor->weight_uses[i] & WEIGHT_LOOKED_UP)
            memcpy(memory + weight->matrix_index * sizeof weight->matrix, &weight->matrix,
                sizeof weight->matrix);
    }
}

/* Writes the machine and all its tables, one piece of memory at `base`; its size, without memory. */
static uint64_t write_tables(
    const struct executor *executor, struct cuda_plan *plan, struct cuda_machine *machine, uint8_t *memory)
{
    const struct program *program = executor->program;
    struct cuda_tables *tables = &plan->tables;
    struct cuda_region region = {.base = tables->memory};
    const size_t row_tables = (size_t)tables->row_table_count * tables->row_table_bytes,
                 streams = tables->stream_count * sizeof *tables->streams,
                 packed_inputs = tables->packed_input_count * sizeof *tables->packed_inputs,
                 records = tables->record_count * sizeof *tables->records,
                 stream_starts = records ? (tables->phase_count + 1) * sizeof(uint32_t) : 0,
                 starts = executor->blocks * stream_starts;
    tables->machine = cuda_region_take(&region, sizeof *machine);
    tables->row_tables_at = machine->row_tables = cuda_region_take(&region, row_tables);
    machine->streams = cuda_region_take(&region, streams);
    machine->records = cuda_region_take(&region, records);
    machine->record_starts = cuda_region_take(&region, starts + stream_starts);
    tables->packed_inputs_at = cuda_region_take(&region, packed_inputs);
    machine->matrices = cuda_region_take(&region, executor->matrix_count * sizeof(struct cuda_matrix));
    machine->ropes = cuda_region_take(&region, write_ropes(program, 0, NULL));
    machine->phase_count = tables->phase_count;
    machine->sample_phase = tables->phase_count - CUDA_SAMPLE_STAGES; /* they are the last */
    machine->row_table_bytes = tables->row_table_bytes;
    machine->tagged = plan == &executor->single;
    machine->plan = plan->plan.capacity[ROWS_TOKENS];
    machine->logits = plan->scratch.arena + plan->scratch.offsets[program->logits];
    if (!memory)
        return region.used;
    memcpy(memory, machine, sizeof *machine);
    if (row_tables)
        memcpy(memory + (machine->row_tables - region.base), tables->row_tables, row_tables);
    if (streams)
        memcpy(memory + (machine->streams - region.base), tables->streams, streams);
    if (records) {
        memcpy(memory + (machine->records - region.base), tables->records, records);
        memcpy(memory + (machine->record_starts - region.base), tables->record_starts, starts);
        memcpy(
            memory + (machine->record_starts - region.base) + starts, tables->stream_starts, stream_starts);
    }
    if (packed_inputs)
        memcpy(memory + (tables->packed_inputs_at - region.base), tables->packed_inputs, packed_inputs);
    write_matrices(executor, memory + (machine->matrices - region.base));
    write_ropes(program, machine->ropes, memory + (machine->ropes - region.base));
    return region.used;
}

enum salvo_status cuda_tables_upload(struct executor *executor, struct cuda_plan *plan)
{
    enum salvo_status status = SALVO_OK;
    struct cuda_machine machine = executor->machine;
    uint8_t *memory = NULL;
    if (plan->plan.capacity[ROWS_TOKENS] == 1)
        TRY(cuda_layout_shared(executor, &plan->tables, &machine));
    plan->tables.bytes = write_tables(executor, plan, &machine, NULL);
    TRY(cuda_memory_new(executor, "tables", plan->tables.bytes, &plan->tables.memory));
    TRY(NEW(&memory, (size_t)plan->tables.bytes));
    plan->tables.shared_bytes = machine.shared_bytes;
    write_tables(executor, plan, &machine, memory);
    TRY(cuda_copy_in(executor, plan->tables.memory, memory, (size_t)plan->tables.bytes));
    TRY(cuda_queue_wait(executor));
cleanup:
    memory_free(memory);
    return status;
}
