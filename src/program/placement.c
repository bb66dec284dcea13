#include "program/placement.h"

#include "base/checked.h"
#include "base/memory.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* One scratch buffer that wants a place. */
struct tenant {
    buffer_id buffer;
    size_t size, offset;
    uint32_t first_group, last_group;
    bool *lives; /* [groups] */
};

static size_t end_of(const struct tenant *tenant)
{
    return tenant->offset + tenant->size;
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

static void live(struct tenant *tenant, uint32_t from, uint32_t to)
{
    for (uint32_t group = from; group <= to; group++)
        tenant->lives[group] = true;
    if (from < tenant->first_group)
        tenant->first_group = from;
    if (to > tenant->last_group)
        tenant->last_group = to;
}

/*
 * Marks the groups in which the buffer of each tenant holds something that is still needed.
 * `tenant_of_buffer` is UINT32_MAX for buffers that are none; `written_at` [tenants] is scratch.
 */
static void compute_lives(const struct program *program, const uint32_t *group_of_op,
    const uint32_t *tenant_of_buffer, struct tenant *tenants, uint32_t *written_at)
{
    buffer_id used[OP_MAX_BUFFERS];
    for (uint32_t op = 0; op < program->op_count; op++) {
        uint32_t group = group_of_op[op], count = op_reads(program, op, used);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t tenant = tenant_of_buffer[used[i]];
            if (tenant != UINT32_MAX)
                live(&tenants[tenant], written_at[tenant], group);
        }
        count = op_writes(program, op, used);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t tenant = tenant_of_buffer[used[i]];
            if (tenant == UINT32_MAX)
                continue;
            live(&tenants[tenant], group, group);
            written_at[tenant] = group;
        }
    }
}

static bool meet(const struct tenant *a, const struct tenant *b)
{
    uint32_t from = a->first_group > b->first_group ? a->first_group : b->first_group;
    uint32_t to = a->last_group < b->last_group ? a->last_group : b->last_group;
    for (uint32_t group = from; group <= to; group++) {
        if (a->lives[group] && b->lives[group])
            return true;
    }
    return false;
}

/* The lowest place for `tenant` beside those placed already: 0, or right after one of them. */
static enum salvo_status find_place(
    struct tenant *tenant, const struct tenant *const *placed, uint32_t placed_count, bool share)
{
    tenant->offset = 0;
    for (uint32_t i = 0; i < placed_count;) {
        size_t end;
        if (!checked_add(tenant->offset, tenant->size, &end))
            return fail(SALVO_ERROR_MEMORY, "scratch memory of more than %zu bytes is needed", SIZE_MAX);
        bool overlaps = placed[i]->offset < end && tenant->offset < end_of(placed[i]);
        if (overlaps && (!share || meet(tenant, placed[i]))) {
            tenant->offset = end_of(placed[i]);
            i = 0; /* moved: those before may be in the way now */
        } else {
            i++;
        }
    }
    return SALVO_OK;
}

/* Largest first, which wastes least; among equals in the order of the program. */
static int compare_tenants(const void *left, const void *right)
{
    const struct tenant *a = *(const struct tenant *const *)left, *b = *(const struct tenant *const *)right;
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
    uint32_t *tenant_of_buffer, *written_at, tenant_count = 0, placed_count = 0;
    struct tenant *tenants, **order;
    *out_total = 0;

    TRY(ARENA_NEW(&arena, &tenants, program->buffer_count));
    TRY(ARENA_NEW(&arena, &order, program->buffer_count));
    TRY(ARENA_NEW(&arena, &tenant_of_buffer, program->buffer_count));
    TRY(ARENA_NEW(&arena, &written_at, program->buffer_count));
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        offsets[i] = SIZE_MAX;
        tenant_of_buffer[i] = UINT32_MAX;
        if (program->buffers[i].kind != BUFFER_SCRATCH)
            continue;
        struct tenant *tenant = &tenants[tenant_count];
        *tenant = (struct tenant){.buffer = (buffer_id)i, .first_group = UINT32_MAX};
        TRY(compute_size(&program->buffers[i], capacities, &tenant->size));
        TRY(ARENA_NEW(&arena, &tenant->lives, group_count));
        tenant_of_buffer[i] = tenant_count;
        order[tenant_count++] = tenant;
    }
    compute_lives(program, group_of_op, tenant_of_buffer, tenants, written_at);

    qsort(order, tenant_count, sizeof *order, compare_tenants);
    for (uint32_t i = 0; i < tenant_count; i++) {
        struct tenant *tenant = order[i];
        if (tenant->first_group == UINT32_MAX)
            continue; /* no op uses it */
        TRY(find_place(tenant, (const struct tenant *const *)order, placed_count, share));
        offsets[tenant->buffer] = tenant->offset;
        if (end_of(tenant) > *out_total)
            *out_total = end_of(tenant);
        order[placed_count++] = tenant;
    }

cleanup:
    arena_free(&arena);
    return status;
}
