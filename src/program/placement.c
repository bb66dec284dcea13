#include "program/placement.h"

#include "base/checked.h"
#include "base/memory.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A block of the arena: the memory of one scratch buffer. */
struct block {
    buffer_id buffer;
    size_t size, offset;
    uint32_t first_group, last_group;
    bool *is_live; /* [groups]: whether its value is needed */
};

static size_t end_of(const struct block *block)
{
    return block->offset + block->size;
}

static enum salvo_status compute_size(
    const struct program_buffer *buffer, const uint32_t capacities[ROW_KIND_COUNT], size_t *out)
{
    uint64_t size;
    *out = 0;
    if (!checked_mul_u64(buffer->columns, capacities[buffer->row_kind], &size) ||
        !checked_mul_u64(size, sizeof(float), &size) ||
        !checked_align_u64(size, PLACEMENT_ALIGNMENT, &size) || size > SIZE_MAX)
        return fail(SALVO_ERROR_MEMORY, "buffer '%s' of %" PRIu32 " rows of %" PRIu64 " columns is too large",
            buffer->name, capacities[buffer->row_kind], buffer->columns);
    *out = (size_t)size;
    return SALVO_OK;
}

static void mark_live(struct block *block, uint32_t from, uint32_t to)
{
    for (uint32_t group = from; group <= to; group++)
        block->is_live[group] = true;
    if (from < block->first_group)
        block->first_group = from;
    if (to > block->last_group)
        block->last_group = to;
}

/*
 * Marks the groups in which each block holds a value that is still needed. `block_of_buffer` is UINT32_MAX
 * for buffers without a block; `written_at` [blocks] is scratch.
 */
static void compute_lives(const struct program *program, const uint32_t *group_of_op,
    const uint32_t *block_of_buffer, struct block *blocks, uint32_t *written_at)
{
    buffer_id used[OP_MAX_BUFFERS];
    for (uint32_t op = 0; op < program->op_count; op++) {
        uint32_t group = group_of_op[op], count = op_reads(program, op, used);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t block = block_of_buffer[used[i]];
            if (block != UINT32_MAX)
                mark_live(&blocks[block], written_at[block], group);
        }
        count = op_writes(program, op, used);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t block = block_of_buffer[used[i]];
            if (block == UINT32_MAX)
                continue;
            mark_live(&blocks[block], group, group);
            written_at[block] = group;
        }
    }
    if (program->hidden != NO_BUFFER && program->op_count) { /* read after the step */
        const uint32_t block = block_of_buffer[program->hidden];
        mark_live(&blocks[block], written_at[block], group_of_op[program->op_count - 1]);
    }
}

static bool lifetimes_overlap(const struct block *a, const struct block *b)
{
    uint32_t from = a->first_group > b->first_group ? a->first_group : b->first_group;
    uint32_t to = a->last_group < b->last_group ? a->last_group : b->last_group;
    for (uint32_t group = from; group <= to; group++) {
        if (a->is_live[group] && b->is_live[group])
            return true;
    }
    return false;
}

/* Gives `block` the lowest free offset: 0, or the end of a block that is placed already. */
static enum salvo_status find_place(
    struct block *block, const struct block *const *placed, uint32_t placed_count, bool share)
{
    block->offset = 0;
    for (uint32_t i = 0; i < placed_count;) {
        size_t end;
        if (!checked_add(block->offset, block->size, &end))
            return fail(SALVO_ERROR_MEMORY, "scratch memory of more than %zu bytes is needed", SIZE_MAX);
        bool overlaps = placed[i]->offset < end && block->offset < end_of(placed[i]);
        if (overlaps && (!share || lifetimes_overlap(block, placed[i]))) {
            block->offset = end_of(placed[i]);
            i = 0; /* moved: it may overlap earlier ones now */
        } else {
            i++;
        }
    }
    return SALVO_OK;
}

/* Largest first, which wastes the least memory; equal sizes in the order of the program. */
static int compare_blocks(const void *left, const void *right)
{
    const struct block *a = *(const struct block *const *)left, *b = *(const struct block *const *)right;
    if (a->size != b->size)
        return a->size < b->size ? 1 : -1;
    return a->buffer < b->buffer ? -1 : 1;
}

enum salvo_status placement_compute(const struct program *program, const uint32_t capacities[ROW_KIND_COUNT],
    const uint32_t *group_of_op, bool share, size_t *offsets, size_t *out_total)
{
    enum salvo_status status = SALVO_OK;
    struct arena arena = {0};
    const uint32_t group_count = program->op_count ? group_of_op[program->op_count - 1] + 1 : 0;
    uint32_t *block_of_buffer, *written_at, block_count = 0, placed_count = 0;
    struct block *blocks, **order;
    *out_total = 0;

    TRY(ARENA_NEW(&arena, &blocks, program->buffer_count));
    TRY(ARENA_NEW(&arena, &order, program->buffer_count));
    TRY(ARENA_NEW(&arena, &block_of_buffer, program->buffer_count));
    TRY(ARENA_NEW(&arena, &written_at, program->buffer_count));
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        offsets[i] = SIZE_MAX;
        block_of_buffer[i] = UINT32_MAX;
        if (program->buffers[i].kind != BUFFER_SCRATCH)
            continue;
        struct block *block = &blocks[block_count];
        *block = (struct block){.buffer = (buffer_id)i, .first_group = UINT32_MAX};
        TRY(compute_size(&program->buffers[i], capacities, &block->size));
        TRY(ARENA_NEW(&arena, &block->is_live, group_count));
        block_of_buffer[i] = block_count;
        order[block_count++] = block;
    }
    compute_lives(program, group_of_op, block_of_buffer, blocks, written_at);

    qsort(order, block_count, sizeof *order, compare_blocks);
    for (uint32_t i = 0; i < block_count; i++) {
        struct block *block = order[i];
        if (block->first_group == UINT32_MAX)
            continue; /* no op uses it */
        TRY(find_place(block, (const struct block *const *)order, placed_count, share));
        offsets[block->buffer] = block->offset;
        if (end_of(block) > *out_total)
            *out_total = end_of(block);
        order[placed_count++] = block;
    }

cleanup:
    arena_free(&arena);
    return status;
}
