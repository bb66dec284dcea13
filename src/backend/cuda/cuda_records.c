/* Records: the share of each block in a phase. Records are added phase by phase, for all blocks; when the
 * plan is complete, they are sorted into the order in which the blocks read them. Matmuls whose input is a
 * vector or its norm, optionally mixed with the previous token, load it from memory themselves. */
#include "backend/cuda/cuda_phase.h"
#include "base/memory.h"

#include <string.h>

static enum salvo_status add(
    struct phase_builder *builder, uint32_t block, enum cuda_record_kind kind, struct cuda_record **out)
{
    enum salvo_status status = SALVO_OK;
    *out = NULL;
    TRY(GROW(&builder->records, builder->record_count, &builder->record_capacity));
    struct block_record *added = &builder->records[builder->record_count++];
    memset(added, 0, sizeof *added);
    added->block = block;
    added->record.kind = kind;
    added->record.phase = builder->plan->tables.phase_count;
    *out = &added->record;
cleanup:
    return status;
}

/* ---- Matmuls ---- */

static struct cuda_share share_of(const struct cuda_matrix *matrix)
{
    return (struct cuda_share){
        .type = matrix->type,
        .parts = matrix->parts,
        .tile_rows = matrix->tile_rows_per_block,
        .parts_per_pass = matrix->parts_per_pass,
        .part_groups = matrix->part_groups,
        .tile_rows_per_pass = matrix->tile_rows_per_pass,
        .parts_reciprocal = matrix->parts_reciprocal,
        .tile_rows_per_chunk = matrix->tile_rows_per_chunk,
    };
}

static uint32_t partial_bytes(const struct cuda_share *share)
{
    return share->tile_rows * share->parts_per_pass * CUDA_TILE_ROWS * (uint32_t)sizeof(float);
}

/* Without MATMUL_FINISHER. */
static uint32_t flags_of(const struct phase_builder *builder, const struct cuda_matmul_record *record,
    const struct placed_matmul *matmul, bool has_glu)
{
    const bool defers = builder->simple && !record->groups_at_once && record->vector.norm == CUDA_NORM_RMS &&
                        record->vector.rounding == ROUNDING_Q8;
    return (builder->plan == &builder->executor->single ? MATMUL_TAGGED : 0) |
           (matmul->is_plain ? MATMUL_PLAIN : 0) | (matmul->before ? MATMUL_ADDS : 0) |
           (has_glu ? MATMUL_GLU : 0) | (defers ? MATMUL_DEFERS : 0) |
           (record->bias || record->up_bias || record->activation != ACTIVATION_NONE || record->cap > 0
                   ? MATMUL_SPECIAL
                   : 0);
}

/* The number of a block among the owners of a matmul's matrix. */
static uint32_t owner_of(
    const struct phase_builder *builder, const struct placed_matmul *matmul, uint32_t block)
{
    const uint32_t blocks = builder->executor->blocks;
    return (block + blocks - matmul->first_block) % blocks;
}

/* `keeps`: no record of the phase keeps the state of its token_shift yet. */
static enum salvo_status add_matmul(struct phase_builder *builder, uint32_t block,
    const struct placed_matmul *matmul, const struct placed_matmul *up, bool *keeps)
{
    enum salvo_status status = SALVO_OK;
    const struct cuda_matrix *matrix = &matmul->matmul.matrix;
    const uint32_t owner = owner_of(builder, matmul, block);
    const uint32_t each = matrix->tile_rows_per_block * CUDA_TILE_ROWS, first = owner * each;
    struct cuda_record *record;
    if (owner >= matrix->owners)
        return SALVO_OK;
    TRY(add(builder, block, builder->groups_at_once ? CUDA_RECORD_PIECES : CUDA_RECORD_MATMUL, &record));
    struct cuda_matmul_record *out = &record->matmul;
    out->vector = builder->vectors[matmul->round];
    if (!builder->simple)
        out->vector.from = 0;
    out->vector.keeps = out->vector.lerp && *keeps;
    *keeps = *keeps && !out->vector.keeps;
    out->shares[0] = share_of(matrix);
    if (up) {
        out->shares[1] = share_of(&up->matmul.matrix);
        out->up_packed_input = builder->vectors[up->round].packed_input;
        out->up_rounding = builder->vectors[up->round].rounding;
    }
    out->out = cuda_row_address(matmul->matmul.out, first);
    out->before = cuda_row_address(matmul->before, first);
    out->bias = cuda_row_address(matmul->matmul.bias, first);
    out->up_bias = up ? cuda_row_address(up->matmul.bias, first) : 0;
    out->rows = first >= matrix->rows ? 0 : matrix->rows - first < each ? matrix->rows - first : each;
    out->activation = matmul->matmul.activation;
    out->glu = builder->glu;
    out->cap = matmul->matmul.cap;
    out->per_column = 1.0f / (float)out->vector.columns;
    out->up_partials = out->shares[0].tile_rows * out->shares[0].parts_per_pass * CUDA_TILE_ROWS;
    out->groups_at_once = builder->groups_at_once;
    out->flags = flags_of(builder, out, matmul, up != NULL);
    record->index = matmul->is_fine;
cleanup:
    return status;
}

static bool has_matmul(const struct phase_builder *builder, uint32_t block)
{
    bool found = false;
    for (uint32_t i = 0; i < builder->matmul_count; i++)
        found = found ||
                owner_of(builder, &builder->matmuls[i], block) < builder->matmuls[i].matmul.matrix.owners;
    return found;
}

enum salvo_status cuda_records_matmuls(struct phase_builder *builder)
{
    enum salvo_status status = SALVO_OK;
    const uint32_t each = builder->glu != ACTIVATION_NONE ? 2 : 1;
    uint32_t row_table = 0;
    bool keeps = true;
    struct cuda_record *record;
    phase_place_inputs(builder);
    if (!builder->simple)
        TRY(phase_add_table(builder, &row_table));
    for (uint32_t block = 0; block < builder->executor->blocks; block++) {
        if (!builder->simple && (has_matmul(builder, block) || block == 0)) { /* block 0 keeps states */
            TRY(add(builder, block, CUDA_RECORD_PREPARE, &record));
            record->row_table = row_table;
        }
        for (uint32_t i = 0; i < builder->matmul_count; i += each)
            TRY(add_matmul(
                builder, block, &builder->matmuls[i], each == 2 ? &builder->matmuls[i + 1] : NULL, &keeps));
    }
cleanup:
    return status;
}

/* ---- Other groups ---- */

/* The table of an embedding that is the phase's only op, if its record can describe it. */
static const struct cuda_matrix *embedding_of(
    const struct phase_builder *builder, uint32_t first, uint32_t end)
{
    enum { MOST_TILE_ROWS = 1 << 16 }; /* that a reciprocal divides exactly */
    const struct op *op = &builder->program->ops[first];
    if (builder->plan != &builder->executor->single || end - first != 1 || op->kind != OP_EMBED ||
        builder->table.store_count != 1)
        return NULL;
    const struct cuda_matrix *table = &builder->executor->weights[op->inputs[0]].matrix;
    return table->tile_rows <= MOST_TILE_ROWS && table->tile_rows_per_block > 1 ? table : NULL;
}

/* Row ops run on the first block. An embedding alone, with which every token begins, is a record of its own,
 * without a row table. It runs on the middle block, because the first block ends the previous token last. */
static enum salvo_status add_rows(struct phase_builder *builder, uint32_t first, uint32_t end)
{
    enum salvo_status status = SALVO_OK;
    const struct cuda_matrix *table = embedding_of(builder, first, end);
    struct cuda_record *record;
    if (table) {
        TRY(add(builder, builder->executor->blocks / 2, CUDA_RECORD_EMBED, &record));
        record->embed = (struct cuda_embed_record){
            .table = *table,
            .out = builder->stores[0].to,
            .owner_reciprocal = (uint32_t)(UINT64_C(0x100000000) / table->tile_rows_per_block) + 1,
            .scale = builder->program->ops[first].embed.scale,
        };
    } else {
        TRY(add(builder, 0, CUDA_RECORD_ROWS, &record));
        TRY(phase_add_table(builder, &record->row_table));
    }
cleanup:
    return status;
}

enum salvo_status cuda_records_rows(struct phase_builder *builder, uint32_t first, uint32_t end)
{
    enum salvo_status status = SALVO_OK;
    while (first < end) {
        uint32_t part;
        TRY(phase_begin_rows(builder, first, end, &part));
        TRY(add_rows(builder, first, part));
        TRY(phase_end(builder));
        first = part;
    }
cleanup:
    return status;
}

enum salvo_status cuda_records_attend(struct phase_builder *builder, const struct cuda_attend *attend)
{
    enum salvo_status status = SALVO_OK;
    struct cuda_record *record;
    for (uint32_t block = 0; block < builder->executor->blocks; block++) {
        TRY(add(builder, block, CUDA_RECORD_ATTEND, &record));
        record->attend = *attend;
    }
cleanup:
    return status;
}

enum salvo_status cuda_records_wkv7(struct phase_builder *builder, const struct cuda_wkv7_record *head)
{
    enum salvo_status status = SALVO_OK;
    const uint32_t blocks = builder->executor->blocks;
    uint32_t row_table = 0;
    struct cuda_record *record;
    if (!head)
        TRY(phase_add_table(builder, &row_table));
    for (uint32_t block = 0; block < blocks; block++) {
        for (uint32_t i = blocks - 1 - block; i < builder->wkv7.heads; i += blocks) {
            TRY(add(builder, block, head ? CUDA_RECORD_WKV7_HEAD : CUDA_RECORD_WKV7, &record));
            record->index = i;
            if (head) {
                record->wkv7 = *head;
                cuda_advance_wkv7(&record->wkv7, i);
            } else {
                record->row_table = row_table;
            }
        }
    }
cleanup:
    return status;
}

enum salvo_status cuda_records_sample(struct phase_builder *builder, uint32_t stage)
{
    enum salvo_status status = SALVO_OK;
    struct cuda_record *record;
    for (uint32_t block = 0; block < builder->executor->blocks; block++) {
        TRY(add(builder, block, CUDA_RECORD_SAMPLE, &record));
        record->index = stage;
    }
    TRY(cuda_records_meet(builder, builder->plan->tables.phase_count, stage));
cleanup:
    return status;
}

enum salvo_status cuda_records_meet(struct phase_builder *builder, uint32_t phase, uint32_t stage)
{
    enum salvo_status status = SALVO_OK;
    struct cuda_record *record;
    for (uint32_t block = 0; block < builder->executor->blocks; block++) {
        TRY(add(builder, block, CUDA_RECORD_MEET, &record));
        record->phase = phase;
        record->index = stage;
    }
cleanup:
    return status;
}

/* ---- Members that depend on the other records ---- */

static bool is_one_pass(const struct cuda_share *share)
{
    return share->part_groups == 1 && share->tile_rows_per_chunk >= share->tile_rows;
}

static bool is_short(const struct cuda_matmul_record *record)
{
    const struct cuda_share *share = &record->shares[0], *up = &record->shares[1];
    if (!(record->flags & MATMUL_TAGGED) || !(record->flags & MATMUL_FINISHER) || !record->vector.from ||
        record->vector.rounding != ROUNDING_Q8 || !is_one_pass(share))
        return false;
    return !(record->flags & MATMUL_GLU) ||
           (up->type == share->type && up->tile_rows == share->tile_rows && is_one_pass(up));
}

/* `half`: bytes of half of the memory of partial sums. */
static void complete_matmul(struct cuda_record *record, uint32_t half)
{
    struct cuda_matmul_record *matmul = &record->matmul;
    matmul->is_wide = partial_bytes(&matmul->shares[0]) + partial_bytes(&matmul->shares[1]) > half;
    matmul->flags |= matmul->rows <= CUDA_FINISHED_ROWS && !matmul->is_wide ? MATMUL_FINISHER : 0;
    record->wait_distance = matmul->is_wide ? 1 : 2;
    if (record->kind == CUDA_RECORD_MATMUL && is_short(matmul))
        record->kind = matmul->vector.norm == CUDA_NORM_LAYER ? CUDA_RECORD_SHORT_MIXED : CUDA_RECORD_SHORT;
}

static bool have_equal_tasks(const struct cuda_attend *a, const struct cuda_attend *b)
{
    return a->heads == b->heads && a->kv_heads == b->kv_heads && a->window == b->window &&
           a->splits == b->splits && a->tiled == b->tiled && a->appends == b->appends;
}

/* Among the `count` records of a block: the number of the first phase whose tasks are the same, from 1; and
 * the caches of the next attention, if it is alike. After the last one follows the first, of the next token.
 */
static void complete_attend(struct cuda_record *records, uint32_t count, uint32_t index)
{
    struct cuda_attend *attend = &records[index].attend;
    uint32_t first = 0, next = index;
    while (records[first].kind != CUDA_RECORD_ATTEND || !have_equal_tasks(&records[first].attend, attend))
        first++;
    do {
        next = next + 1 < count ? next + 1 : 0;
    } while (records[next].kind != CUDA_RECORD_ATTEND);
    const struct cuda_attend *other = &records[next].attend;
    records[index].index = records[first].phase + 1;
    if (have_equal_tasks(other, attend) && other->head_dim == attend->head_dim) {
        attend->next_keys = other->keys;
        attend->next_values = other->values;
    }
}

/* Matmuls, and attention with its own memory, use other memory than the record before; the other kinds use
 * memory that a matmul may still need. */
static void complete_block(const struct phase_builder *builder, struct cuda_record *records, uint32_t count)
{
    const struct executor *executor = builder->executor;
    const uint32_t half = cuda_partial_bytes(executor, &builder->plan->tables) / 2;
    const bool own_memory = cuda_attend_has_own_memory(executor);
    for (uint32_t i = 0; i < count; i++) {
        const bool follows_attention = i > 0 && records[i - 1].kind == CUDA_RECORD_ATTEND;
        records[i].wait_distance = 1;
        if (records[i].kind <= CUDA_RECORD_MATMUL) {
            complete_matmul(&records[i], half);
        } else if (records[i].kind == CUDA_RECORD_ATTEND) {
            records[i].wait_distance = own_memory && !follows_attention ? 2 : 1;
            complete_attend(records, count, i);
        }
    }
}

enum salvo_status cuda_records_finish(struct phase_builder *builder)
{
    enum salvo_status status = SALVO_OK;
    struct cuda_tables *tables = &builder->plan->tables;
    const uint32_t blocks = builder->executor->blocks, phases = tables->phase_count;
    TRY(NEW(&tables->records, builder->record_count));
    TRY(NEW(&tables->record_starts, (size_t)blocks * (phases + 1)));
    uint32_t *starts = tables->record_starts;
    tables->record_count = builder->record_count;
    /* A counting sort: `starts` has the counts, then the ends, then the starts. */
    for (uint32_t i = 0; i < builder->record_count; i++)
        starts[(size_t)builder->records[i].block * (phases + 1) + builder->records[i].record.phase]++;
    for (size_t i = 1; i < (size_t)blocks * (phases + 1); i++)
        starts[i] += starts[i - 1];
    for (uint32_t i = builder->record_count; i-- > 0;) {
        const struct block_record *record = &builder->records[i];
        tables->records[--starts[(size_t)record->block * (phases + 1) + record->record.phase]] =
            record->record;
    }
    for (uint32_t block = 0; block < blocks; block++) {
        const uint32_t *own = starts + (size_t)block * (phases + 1);
        complete_block(builder, tables->records + own[0], own[phases] - own[0]);
    }
cleanup:
    return status;
}
