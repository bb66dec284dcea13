/*
 * Lowers the groups of a plan for one token to phases. cuda_tables_build is called several times: without
 * addresses, for the shapes of matrices and the sizes of memory, and then with the addresses.
 */
#include "backend/cuda/cuda_phase.h"
#include "backend/cuda/cuda_weight_tiles.h"
#include "backend/cuda/sample_plan.h"
#include "base/memory.h"

#include <string.h>

/* ---- Matmuls ---- */

static const struct op *matmul_of(
    const struct phase_builder *builder, const struct group *group, uint32_t index)
{
    return &builder->program->ops[group->first_op + group->inner + index];
}

static const struct op *softcap_of(const struct phase_builder *builder, const struct group *group)
{
    const struct op *op = &builder->program->ops[group->first_op + group->op_count - 1];
    return op->kind == OP_SOFTCAP ? op : NULL;
}

static uint32_t tile_rows_of(const struct phase_builder *builder, const struct op *matmul)
{
    const uint64_t rows = builder->program->buffers[matmul->inputs[0]].rows;
    return (uint32_t)((rows + CUDA_TILE_ROWS - 1) / CUDA_TILE_ROWS);
}

/* The matrix of a matmul: the shape that it got where it was first used, or a new one. */
static struct cuda_matrix shape_matrix(
    const struct phase_builder *builder, buffer_id buffer, uint32_t tile_rows_per_block)
{
    const struct program_buffer *weight = &builder->program->buffers[buffer];
    const struct cuda_matrix *known = &builder->executor->weights[buffer].matrix;
    return known->tile_rows
               ? *known
               : cuda_matrix_shape_within(weight->type, (uint32_t)weight->rows, (uint32_t)weight->columns,
                     tile_rows_per_block, cuda_matrix_limits(builder->executor));
}

/* The cost of a tile row: its bytes, and an amount for every weight tile. */
static uint64_t tile_row_cost(const struct phase_builder *builder, const struct op *matmul)
{
    enum { TILE_COST = 512 };
    const struct cuda_matrix matrix = shape_matrix(builder, matmul->inputs[0], 1);
    return (uint64_t)matrix.parts * (matrix.tile_bytes + TILE_COST);
}

static uint32_t tile_rows_within(const struct phase_builder *builder, const struct op *matmul, uint64_t limit)
{
    const uint64_t tile_rows = limit / tile_row_cost(builder, matmul);
    const uint32_t all = tile_rows_of(builder, matmul);
    return tile_rows < 1 ? 1 : tile_rows > all ? all : (uint32_t)tile_rows;
}

/* The least cost of a block within which all tile rows of matmuls first .. end - 1 are shared out, each
 * block with tile rows of one matrix: some may be of wide types, and fewer of theirs do. */
static uint64_t cost_of_block(
    const struct phase_builder *builder, const struct group *group, uint32_t first, uint32_t end)
{
    const uint32_t blocks = builder->executor->blocks;
    uint64_t all = 0, most = 1;
    for (uint32_t i = first; i < end; i++) {
        const struct op *op = matmul_of(builder, group, i);
        const uint64_t cost = tile_row_cost(builder, op) * tile_rows_of(builder, op);
        all += cost;
        most = cost > most ? cost : most;
    }
    uint64_t limit = all / blocks + 1;
    for (; limit < most; limit += limit / 32 + 1) {
        uint64_t owners = 0;
        for (uint32_t i = first; i < end; i++) {
            const struct op *op = matmul_of(builder, group, i);
            const uint32_t each = tile_rows_within(builder, op, limit);
            owners += (tile_rows_of(builder, op) + each - 1) / each;
        }
        if (owners <= blocks)
            break;
    }
    return limit;
}

/* Tile rows of a matrix that a block multiplies at once, of `tile_rows` in all: as many as the memory of
 * partial sums holds. A block with more multiplies them in slices. */
static uint32_t tile_rows_of_slice(const struct phase_builder *builder, uint32_t tile_rows)
{
    const uint32_t most = cuda_partial_limit(builder->executor) / (CUDA_TILE_ROWS * (uint32_t)sizeof(float)),
                   slices = (tile_rows + most - 1) / most;
    return builder->executor->fit == CUDA_FIT_ROOMY ? tile_rows : (tile_rows + slices - 1) / slices;
}

/* A matmul of the owners from `first_owner` on, `count` at most. */
static struct cuda_matmul slice_of(const struct cuda_matmul *whole, uint32_t first_owner, uint32_t count)
{
    struct cuda_matmul slice = *whole;
    const uint32_t owners = whole->matrix.owners - first_owner,
                   first_row = first_owner * whole->matrix.tile_rows_per_block * CUDA_TILE_ROWS;
    slice.matrix.base += first_owner * cuda_owner_bytes(&whole->matrix);
    slice.matrix.rows -= first_row;
    slice.matrix.tile_rows -= first_row / CUDA_TILE_ROWS;
    slice.matrix.owners = owners < count ? owners : count;
    slice.bias = cuda_row_address(whole->bias, first_row);
    slice.out = cuda_row_address(whole->out, first_row);
    slice.before = cuda_row_address(whole->before, first_row);
    return slice;
}

/* Adds a matmul of the weight `buffer` whose slices have `width` owners each. */
static void add_slices(
    struct phase_builder *builder, buffer_id buffer, const struct cuda_matmul *whole, uint32_t width)
{
    for (uint32_t first = 0; first < whole->matrix.owners; first += width) {
        if (builder->phase.matmul_count == MOST_MATMULS) {
            builder->overflows = true;
            return;
        }
        builder->multiplied[builder->phase.matmul_count].buffer = buffer;
        builder->multiplied[builder->phase.matmul_count].matrix = whole->matrix;
        builder->matmuls[builder->phase.matmul_count++] =
            first == 0 && width >= whole->matrix.owners ? *whole : slice_of(whole, first, width);
    }
}

/* Each slice of a gate is multiplied with the slice beside it. */
static void pair_slices(struct phase_builder *builder)
{
    const uint32_t slices = builder->phase.matmul_count / 2;
    struct cuda_matmul matmuls[MOST_MATMULS];
    struct cuda_multiplied multiplied[MOST_MATMULS];
    memcpy(matmuls, builder->matmuls, sizeof matmuls);
    memcpy(multiplied, builder->multiplied, sizeof multiplied);
    for (uint32_t i = 0; i < 2 * slices; i++) {
        builder->matmuls[i] = matmuls[i / 2 + i % 2 * slices];
        builder->multiplied[i] = multiplied[i / 2 + i % 2 * slices];
    }
}

/* Partial sums of a phase: a glu's two matmuls have theirs at once; of others each block has one at a time.
 */
static void add_partials(struct phase_builder *builder, const struct group *group, uint64_t floats)
{
    if (builder->executor->fit == CUDA_FIT_ROOMY || group->glu)
        builder->partials += floats;
    else if (floats > builder->partials)
        builder->partials = floats;
}

/* Adds matmuls first .. end - 1 of the group, which share the blocks. */
static void add_matmuls(
    struct phase_builder *builder, const struct group *group, uint32_t first, uint32_t end)
{
    const struct op *softcap = softcap_of(builder, group);
    uint32_t blocks = builder->executor->blocks, next_block = 0;
    /* Both matmuls of a glu are multiplied by the same blocks. */
    const uint64_t limit = cost_of_block(builder, group, first, group->glu ? first + 1 : end);
    for (uint32_t i = first; i < end; i++) {
        const struct op *op = matmul_of(builder, group, i);
        const uint32_t tile_rows =
            tile_rows_within(builder, matmul_of(builder, group, group->glu ? first : i), limit);
        const struct cuda_matrix matrix =
            shape_matrix(builder, op->inputs[0], tile_rows_of_slice(builder, tile_rows));
        struct cuda_matmul matmul = {
            .matrix = matrix,
            .bias = phase_vector(builder, op->inputs[2]),
            .round = phase_round(builder, op->inputs[1], op->matmul.rounding,
                op->matmul.fine || phase_is_finer(builder, group->first_op)),
            .activation = op->matmul.activation,
            .first_block = next_block % blocks,
            .cap = softcap ? softcap->softcap.cap : 0,
        };
        const buffer_id out = group->glu ? matmul_of(builder, group, 2)->out : op->out;
        if (!group->glu || i == first) {
            matmul.before = op->matmul.accumulate ? phase_address(builder, out) : 0;
            matmul.out = phase_writes(builder, out);
            matmul.is_plain = out == builder->program->logits;
        }
        const bool sliced =
            builder->executor->fit != CUDA_FIT_ROOMY && tile_rows > matrix.tile_rows_per_block;
        const uint32_t width =
            sliced ? (tile_rows_of(builder, op) + tile_rows - 1) / tile_rows : matrix.owners;
        add_slices(builder, op->inputs[0], &matmul, width);
        if (!group->glu)
            next_block += width;
        add_partials(
            builder, group, (uint64_t)matrix.tile_rows_per_block * matrix.parts_per_round * CUDA_TILE_ROWS);
    }
    if (group->glu) {
        builder->phase.glu = matmul_of(builder, group, 2)->glu.activation;
        pair_slices(builder);
    }
}

/* For a phase that stays: its matrices keep their shapes. */
static enum salvo_status add_streams(struct phase_builder *builder)
{
    enum salvo_status status = SALVO_OK;
    struct cuda_tables *tables = &builder->plan->tables;
    const uint32_t count = builder->phase.matmul_count;
    if (tables->stream_count + count > tables->stream_capacity) {
        uint32_t capacity = (tables->stream_count + count) * 2;
        TRY(RESIZE(&tables->streams, capacity));
        tables->stream_capacity = capacity;
    }
    builder->phase.stream_first = tables->stream_count;
    builder->phase.stream_count = count;
    for (uint32_t i = 0; i < count; i++) {
        struct cuda_stream *stream = &tables->streams[tables->stream_count++];
        builder->executor->weights[builder->multiplied[i].buffer].matrix = builder->multiplied[i].matrix;
        *stream = cuda_matrix_stream(&builder->matmuls[i].matrix, builder->matmuls[i].first_block);
        if (stream->chunk_bytes > tables->most_chunk_bytes)
            tables->most_chunk_bytes = stream->chunk_bytes;
    }
cleanup:
    return status;
}

/* Whether matmuls first .. end - 1 fit one phase, with the whole of their inputs or in pieces. */
static bool try_matmuls(
    struct phase_builder *builder, const struct group *group, bool inside, uint32_t first, uint32_t end)
{
    static const uint32_t pieces[] = {0, 4, 2, 1}; /* part groups at once; 0: all */
    const size_t count = builder->executor->fit == CUDA_FIT_ROOMY ? 1 : sizeof pieces / sizeof *pieces;
    for (size_t piece = 0; piece < count; piece++) {
        phase_begin(builder, CUDA_PHASE_MATMUL, group->rows);
        builder->phase.groups_at_once = pieces[piece];
        builder->inputs = (struct matmul_inputs){.x = NO_BUFFER, .normed = NO_BUFFER};
        builder->inputs_known = !inside || group_matmul_inputs(builder->program, group, &builder->inputs);
        for (uint32_t i = 0; inside && i < group->inner; i++)
            phase_add_op(builder, &builder->program->ops[group->first_op + i], false);
        add_matmuls(builder, group, first, end);
        if (phase_fits(builder))
            return true;
    }
    return false;
}

/* All matmuls with the row ops before them in one phase, if they fit; else the row ops get one of their own,
 * and the matmuls as many as they need. */
static enum salvo_status lower_matmuls(struct phase_builder *builder, const struct group *group)
{
    enum salvo_status status = SALVO_OK;
    uint32_t first = 0;
    bool inside = true;
    if (!try_matmuls(builder, group, true, 0, group->matmuls) && group->inner) {
        inside = false;
        TRY(phase_build_rows(builder, group->first_op, group->first_op + group->inner));
    }
    while (first < group->matmuls) {
        uint32_t end = group->matmuls;
        bool fits = try_matmuls(builder, group, inside, first, end);
        while (!fits && end > first + 1 && !group->glu)
            fits = try_matmuls(builder, group, inside, first, --end);
        if (!fits) {
            TRY(fail(SALVO_ERROR_UNSUPPORTED,
                "the shared memory of %s, %d bytes a block, is too small for '%s' with rows of %llu elements",
                builder->executor->context.name, builder->executor->device->shared_bytes,
                builder->program->buffers[matmul_of(builder, group, first)->inputs[0]].name,
                (unsigned long long)builder->program->buffers[matmul_of(builder, group, first)->inputs[0]]
                    .columns));
        }
        TRY(add_streams(builder));
        TRY(phase_end(builder));
        first = end;
    }
cleanup:
    return status;
}

/* ---- Attention, recurrence, sampling ---- */

static bool have_equal_angles(const struct program *program, const struct op *a, const struct op *b)
{
    const struct rope *first = &program->ropes[a->rope.rope], *second = &program->ropes[b->rope.rope];
    return first->halves == second->halves && first->dimensions == second->dimensions;
}

static void meet_after_last_phase(struct phase_builder *builder)
{
    struct cuda_tables *tables = &builder->plan->tables;
    ((struct cuda_phase *)(void *)(tables->phases + (size_t)(tables->phase_count - 1) * CUDA_PHASE_LIMIT))
        ->meets = 1;
}

static enum salvo_status lower_attend(struct phase_builder *builder, const struct group *group)
{
    enum salvo_status status = SALVO_OK;
    const struct op *ops = &builder->program->ops[group->first_op], *attend = ops + group->inner;
    bool inside = group->inner == 3 && have_equal_angles(builder->program, &ops[0], &ops[1]);
    if (attend->attend.head_dim > CUDA_MOST_HEAD_DIM)
        TRY(fail(SALVO_ERROR_UNSUPPORTED, "heads of %u elements: the CUDA kernels take at most %d",
            attend->attend.head_dim, CUDA_MOST_HEAD_DIM));
    if (group->inner && !inside)
        TRY(phase_build_rows(builder, group->first_op, group->first_op + group->inner));
    phase_begin(builder, CUDA_PHASE_ATTEND, group->rows);
    builder->attend = cuda_attend_of(builder, attend);
    builder->attend.partials =
        phase_tagged_words(builder, (uint64_t)attend->attend.heads * builder->attend.splits *
                                        (attend->attend.head_dim + 2) * sizeof(uint64_t));
    if (inside) {
        const struct rope *rope = &builder->program->ropes[ops[0].rope.rope];
        builder->attend.rope_q = ops[0].rope.rope;
        builder->attend.rope_k = ops[1].rope.rope;
        builder->attend.halves = rope->halves;
        builder->attend.dimensions = rope->dimensions;
        builder->attend.k = phase_address(builder, ops[2].inputs[0]);
        builder->attend.v = phase_address(builder, ops[2].inputs[1]);
        builder->attend.appends = 1;
    } else {
        meet_after_last_phase(builder); /* keys and values in the cache are not tagged words */
    }
    TRY(phase_end(builder));
cleanup:
    return status;
}

/* Keys of a head that each thread has: those whose values are divided among all threads. */
static uint32_t keys_of_thread(uint32_t head_dim)
{
    const uint32_t parts = CUDA_WORKERS / head_dim;
    return parts ? (head_dim + parts - 1) / parts : head_dim;
}

static enum salvo_status lower_wkv7(struct phase_builder *builder, const struct group *group)
{
    const struct op *op = &builder->program->ops[group->first_op + group->inner];
    if (keys_of_thread(op->wkv7.head_dim) > CUDA_MOST_WKV7_KEYS) {
        uint32_t most = op->wkv7.head_dim;
        while (keys_of_thread(most) > CUDA_MOST_WKV7_KEYS)
            most--;
        return fail(SALVO_ERROR_UNSUPPORTED,
            "recurrent heads of %u elements: the CUDA kernels take at most %u", op->wkv7.head_dim, most);
    }
    phase_begin(builder, CUDA_PHASE_WKV7, group->rows);
    builder->head_dim = op->wkv7.head_dim;
    for (uint32_t i = 0; i < group->inner; i++)
        phase_add_op(builder, &builder->program->ops[group->first_op + i], false);
    builder->wkv7 = (struct cuda_wkv7){
        .state = builder->executor->state.recurrent_offsets[op->wkv7.state],
        .heads = op->wkv7.heads,
        .head_dim = op->wkv7.head_dim,
    };
    for (int i = 0; i < 6; i++)
        builder->wkv7.places[i] = phase_input(builder, op->inputs[i]);
    builder->wkv7.out_place = phase_output(builder, op->out);
    for (uint32_t i = 0; i < group->outer; i++)
        phase_add_op(builder, op + 1 + i, true);
    phase_store_outputs(builder, group->first_op, group->first_op + group->op_count);
    cuda_describe_wkv7(builder, group, &builder->parts);
    if (!phase_fits(builder))
        return fail(SALVO_ERROR_UNSUPPORTED, "the ops around '%s' do not fit one phase",
            builder->program->buffers[op->wkv7.state].name);
    return phase_end(builder);
}

static enum salvo_status lower_sample(struct phase_builder *builder)
{
    enum salvo_status status = SALVO_OK;
    meet_after_last_phase(builder); /* logits and results of sampling stages are not tagged words */
    for (uint32_t stage = 0; stage < CUDA_SAMPLE_STAGES; stage++) {
        phase_begin(builder, CUDA_PHASE_SAMPLE, ROWS_OUTPUTS);
        builder->phase.stage = stage;
        builder->phase.meets = 1;
        TRY(phase_end(builder));
    }
cleanup:
    return status;
}

static enum salvo_status lower_group(struct phase_builder *builder, const struct group *group)
{
    switch (group->kind) {
    case GROUP_ROWS:
        return phase_build_rows(builder, group->first_op, group->first_op + group->op_count);
    case GROUP_MATMUL:
        return lower_matmuls(builder, group);
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
    memory_free(tables->phases);
    memory_free(tables->phase_places);
    memory_free(tables->phase_parts);
    memory_free(tables->streams);
    memory_free(tables->records);
    memory_free(tables->record_starts);
    memory_free(tables->packed_inputs);
    memory_free(tables->nodes);
    memory_free(tables->first_phase);
    *tables = (struct cuda_tables){0};
}

/* Phases lie as close as the largest lets them. */
static void close_ranks(struct cuda_tables *tables)
{
    const size_t stride = (tables->phase_bytes + 127) / 128 * 128;
    for (size_t i = 1; i < tables->phase_count; i++)
        memmove(tables->phases + i * stride, tables->phases + i * CUDA_PHASE_LIMIT, stride);
    tables->phase_bytes = (uint32_t)stride;
}

enum salvo_status cuda_tables_build(struct executor *executor, struct cuda_plan *plan)
{
    enum salvo_status status = SALVO_OK;
    struct phase_builder *builder = NULL;
    cuda_tables_free(&plan->tables);
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
    } else {
        TRY(cuda_nodes_build(builder));
    }
    close_ranks(&plan->tables);
    if (plan->plan.capacity[ROWS_TOKENS] == 1)
        TRY(cuda_records_build(executor, plan));
cleanup:
    if (builder) {
        memory_free(builder->place_of);
        memory_free(builder->tagged_address);
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
    const size_t phases = (size_t)tables->phase_count * tables->phase_bytes,
                 streams = tables->stream_count * sizeof *tables->streams,
                 packed_inputs = tables->packed_input_count * sizeof *tables->packed_inputs,
                 records = tables->record_count * sizeof *tables->records,
                 starts = records ? executor->blocks * (tables->phase_count + 1) * sizeof(uint32_t) : 0;
    tables->machine = cuda_region_take(&region, sizeof *machine);
    tables->phases_at = machine->phases = cuda_region_take(&region, phases);
    machine->streams = cuda_region_take(&region, streams);
    machine->records = cuda_region_take(&region, records);
    machine->record_starts = cuda_region_take(&region, starts);
    tables->packed_inputs_at = cuda_region_take(&region, packed_inputs);
    machine->matrices = cuda_region_take(&region, executor->matrix_count * sizeof(struct cuda_matrix));
    machine->ropes = cuda_region_take(&region, write_ropes(program, 0, NULL));
    machine->phase_count = tables->phase_count;
    machine->sample_phase = tables->phase_count - CUDA_SAMPLE_STAGES; /* they are the last */
    machine->phase_bytes = tables->phase_bytes;
    machine->tagged = plan == &executor->single;
    machine->plan = plan->plan.capacity[ROWS_TOKENS];
    machine->logits = plan->scratch.arena + plan->scratch.offsets[program->logits];
    if (!memory)
        return region.used;
    memcpy(memory, machine, sizeof *machine);
    memcpy(memory + (machine->phases - region.base), tables->phases, phases);
    if (streams)
        memcpy(memory + (machine->streams - region.base), tables->streams, streams);
    if (records) {
        memcpy(memory + (machine->records - region.base), tables->records, records);
        memcpy(memory + (machine->record_starts - region.base), tables->record_starts, starts);
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
