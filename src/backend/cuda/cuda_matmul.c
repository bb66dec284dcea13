/*
 * Matmuls: the parameters of one, for one token and for many; and the phases of a group of them for one
 * token, whose rows are divided among the blocks.
 */
#include "backend/cuda/cuda_phase.h"
#include "backend/cuda/cuda_weight_tiles.h"
#include "base/memory.h"

#include <string.h>

static const struct op *matmul_of(
    const struct phase_builder *builder, const struct group *group, uint32_t index)
{
    return &builder->program->ops[group->first_op + group->ops_before + index];
}

struct cuda_matmul cuda_matmul_of(const struct phase_builder *builder, const struct group *group,
    const struct op *op, const struct cuda_matrix *matrix, cuda_address out)
{
    const struct op *last = &builder->program->ops[group->first_op + group->op_count - 1];
    return (struct cuda_matmul){
        .matrix = *matrix,
        .bias = phase_vector(builder, op->inputs[2]),
        .out = out,
        .activation = op->matmul.activation,
        .accumulate = op->matmul.accumulate,
        .cap = last->kind == OP_SOFTCAP ? last->softcap.cap : 0,
    };
}

/* ---- Tile rows of blocks ---- */

static uint32_t tile_rows_of(const struct phase_builder *builder, const struct op *matmul)
{
    const uint64_t rows = builder->program->buffers[matmul->inputs[0]].rows;
    return (uint32_t)((rows + CUDA_TILE_ROWS - 1) / CUDA_TILE_ROWS);
}

/* The matrix of a matmul: with the shape of its first use, or with a new one. */
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

/* The least cost per block at which all tile rows of matmuls first .. end - 1 can be distributed, each block
 * with tile rows of one matrix. Wide types have fewer tile rows per block. */
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

/* ---- Phases ---- */

/* Tile rows of a matrix that a block multiplies at once, of `tile_rows` in all: as many as the memory of
 * partial sums holds. A block with more multiplies them in slices. */
static uint32_t tile_rows_of_slice(const struct phase_builder *builder, uint32_t tile_rows)
{
    const uint32_t most = cuda_partial_limit(builder->executor) / (CUDA_TILE_ROWS * (uint32_t)sizeof(float)),
                   slices = (tile_rows + most - 1) / most;
    return builder->executor->fit == CUDA_FIT_ROOMY ? tile_rows : (tile_rows + slices - 1) / slices;
}

/* `count` owners of a matmul, or all that are left, from `first_owner` on. */
static struct placed_matmul slice_of(const struct placed_matmul *whole, uint32_t first_owner, uint32_t count)
{
    struct placed_matmul slice = *whole;
    struct cuda_matrix *matrix = &slice.matmul.matrix;
    const uint32_t owners = matrix->owners - first_owner,
                   first_row = first_owner * matrix->tile_rows_per_block * CUDA_TILE_ROWS;
    matrix->base += first_owner * cuda_owner_bytes(matrix);
    matrix->rows -= first_row;
    matrix->tile_rows -= first_row / CUDA_TILE_ROWS;
    matrix->owners = owners < count ? owners : count;
    slice.matmul.bias = cuda_row_address(slice.matmul.bias, first_row);
    slice.matmul.out = cuda_row_address(slice.matmul.out, first_row);
    slice.before = cuda_row_address(slice.before, first_row);
    return slice;
}

/* Adds a matmul as slices of `width` owners each. */
static void add_slices(struct phase_builder *builder, const struct placed_matmul *whole, uint32_t width)
{
    for (uint32_t first = 0; first < whole->whole.owners; first += width) {
        if (builder->matmul_count == MOST_MATMULS) {
            builder->overflows = true;
            return;
        }
        builder->matmuls[builder->matmul_count++] =
            first == 0 && width >= whole->whole.owners ? *whole : slice_of(whole, first, width);
    }
}

/* Each slice of a gate is followed by the slice of the up matrix that it is multiplied with. */
static void pair_slices(struct phase_builder *builder)
{
    const uint32_t slices = builder->matmul_count / 2;
    struct placed_matmul matmuls[MOST_MATMULS];
    memcpy(matmuls, builder->matmuls, sizeof matmuls);
    for (uint32_t i = 0; i < 2 * slices; i++)
        builder->matmuls[i] = matmuls[i / 2 + i % 2 * slices];
}

/* Partial sums of a phase: the two matmuls of a glu need theirs at the same time; in other phases a block has
 * one matmul at a time. */
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
    uint32_t blocks = builder->executor->blocks, next_block = 0;
    /* Both matmuls of a glu are multiplied by the same blocks. */
    const uint64_t limit = cost_of_block(builder, group, first, group->glu ? first + 1 : end);
    for (uint32_t i = first; i < end; i++) {
        const struct op *op = matmul_of(builder, group, i);
        const uint32_t tile_rows =
            tile_rows_within(builder, matmul_of(builder, group, group->glu ? first : i), limit);
        const struct cuda_matrix matrix =
            shape_matrix(builder, op->inputs[0], tile_rows_of_slice(builder, tile_rows));
        const buffer_id out = group->glu ? matmul_of(builder, group, 2)->out : op->out;
        const bool is_fine = op->matmul.fine || phase_is_finer(builder, group->first_op);
        struct placed_matmul matmul = {
            .matmul = cuda_matmul_of(builder, group, op, &matrix, 0),
            .round = phase_round(builder, op->inputs[1], op->matmul.rounding, is_fine),
            .is_fine = is_fine,
            .first_block = next_block % blocks,
            .weight = op->inputs[0],
            .whole = matrix,
        };
        if (!group->glu || i == first) {
            matmul.before = op->matmul.accumulate ? phase_address(builder, out) : 0;
            matmul.matmul.out = phase_writes(builder, out);
            matmul.is_plain = out == builder->program->logits;
        }
        const bool sliced =
            builder->executor->fit != CUDA_FIT_ROOMY && tile_rows > matrix.tile_rows_per_block;
        const uint32_t width =
            sliced ? (tile_rows_of(builder, op) + tile_rows - 1) / tile_rows : matrix.owners;
        add_slices(builder, &matmul, width);
        if (!group->glu)
            next_block += width;
        add_partials(
            builder, group, (uint64_t)matrix.tile_rows_per_block * matrix.parts_per_pass * CUDA_TILE_ROWS);
    }
    if (group->glu) {
        builder->glu = matmul_of(builder, group, 2)->glu.activation;
        pair_slices(builder);
    }
}

/* Keeps the shapes of the matrices of a phase that is final. */
static enum salvo_status add_streams(struct phase_builder *builder)
{
    enum salvo_status status = SALVO_OK;
    struct cuda_tables *tables = &builder->plan->tables;
    for (uint32_t i = 0; i < builder->matmul_count; i++) {
        TRY(GROW(&tables->streams, tables->stream_count, &tables->stream_capacity));
        struct cuda_stream *stream = &tables->streams[tables->stream_count++];
        const struct placed_matmul *matmul = &builder->matmuls[i];
        builder->executor->weights[matmul->weight].matrix = matmul->whole;
        *stream = cuda_matrix_stream(&matmul->matmul.matrix, matmul->first_block);
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
        phase_begin(builder, group->rows);
        builder->groups_at_once = pieces[piece];
        builder->inputs = (struct matmul_inputs){.x = NO_BUFFER, .normed = NO_BUFFER};
        builder->inputs_known = !inside || group_matmul_inputs(builder->program, group, &builder->inputs);
        for (uint32_t i = 0; inside && i < group->ops_before; i++)
            phase_add_op(builder, &builder->program->ops[group->first_op + i], false);
        add_matmuls(builder, group, first, end);
        if (phase_fits(builder))
            return true;
    }
    return false;
}

/* All matmuls and the row ops before them in one phase, if they fit; otherwise the row ops get a phase of
 * their own, and the matmuls as many phases as necessary. */
enum salvo_status cuda_matmuls_build(struct phase_builder *builder, const struct group *group)
{
    enum salvo_status status = SALVO_OK;
    uint32_t first = 0;
    bool inside = true;
    if (!try_matmuls(builder, group, true, 0, group->matmuls) && group->ops_before) {
        inside = false;
        TRY(cuda_records_rows(builder, group->first_op, group->first_op + group->ops_before));
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
        TRY(cuda_records_matmuls(builder));
        TRY(phase_end(builder));
        first = end;
    }
cleanup:
    return status;
}
