/*
 * The work of each phase (struct cuda_phase_parts) is divided among the blocks, as records. Matmuls whose
 * input only passes a norm, perhaps mixed with that of the token before, load it from memory themselves.
 */
#include "backend/cuda/cuda_phase.h"
#include "base/memory.h"

#include <string.h>

static const struct cuda_phase *phase_at(const struct cuda_tables *tables, uint32_t index)
{
    return (const struct cuda_phase *)(const void *)(tables->phases + (size_t)index * tables->phase_bytes);
}

/* ---- Lists ---- */

struct record_list {
    struct cuda_tables *tables;
    uint32_t blocks, block, phase;
    uint32_t partial_half;  /* bytes */
    bool attend_own_memory; /* attention has shared memory of its own */
    const struct executor *executor;
    bool keeps; /* the next that mixes keeps the state of this phase */
};

static enum salvo_status add(struct record_list *list, enum cuda_record_kind kind, struct cuda_record **out)
{
    enum salvo_status status = SALVO_OK;
    struct cuda_tables *tables = list->tables;
    *out = NULL;
    if (tables->record_count == tables->record_capacity) {
        uint32_t capacity = tables->record_capacity ? tables->record_capacity * 2 : 1024;
        TRY(RESIZE(&tables->records, capacity));
        tables->record_capacity = capacity;
    }
    *out = &tables->records[tables->record_count++];
    memset(*out, 0, sizeof **out);
    (*out)->kind = kind;
    (*out)->phase = list->phase;
    /* Matmuls, and attention with memory of its own, use other memory than the record before; the other kinds
     * use memory that a matmul may still need. */
    const bool follows_attention = tables->record_count > 1 && (*out)[-1].kind == CUDA_RECORD_ATTEND;
    (*out)->wait_distance =
        kind == CUDA_RECORD_ATTEND && list->attend_own_memory && !follows_attention ? 2 : 1;
cleanup:
    return status;
}

static enum salvo_status add_heads(struct record_list *list, const struct cuda_phase_parts *parts)
{
    enum salvo_status status = SALVO_OK;
    struct cuda_record *record;
    for (uint32_t i = list->blocks - 1 - list->block; i < parts->wkv7_heads; i += list->blocks) {
        TRY(add(list, CUDA_RECORD_WKV7, &record));
        record->index = i;
        if (parts->has_head) {
            record->kind = CUDA_RECORD_WKV7_HEAD;
            record->wkv7 = parts->head;
            cuda_advance_wkv7(&record->wkv7, i);
        }
    }
cleanup:
    return status;
}

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

static uint32_t flags_of(const struct cuda_matmul_record *record, const struct cuda_phase_matmul *matmul,
    bool has_glu, bool takes_input, bool tagged)
{
    const bool by_finisher = record->rows <= CUDA_FINISHED_ROWS && !record->is_wide;
    bool defers = takes_input && !record->groups_at_once && record->vector.norm == CUDA_NORM_RMS &&
                  record->vector.rounding == ROUNDING_Q8;
    return (tagged ? MATMUL_TAGGED : 0) | (matmul->is_plain ? MATMUL_PLAIN : 0) |
           (matmul->before ? MATMUL_ADDS : 0) | (has_glu ? MATMUL_GLU : 0) | (defers ? MATMUL_DEFERS : 0) |
           (record->bias || record->up_bias || record->activation != ACTIVATION_NONE || record->cap > 0
                   ? MATMUL_SPECIAL
                   : 0) |
           (by_finisher ? MATMUL_FINISHER : 0);
}

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

static enum salvo_status add_matmul(struct record_list *list, const struct cuda_phase *phase,
    const struct cuda_phase_matmul *matmul, const struct cuda_phase_matmul *up, bool tagged)
{
    enum salvo_status status = SALVO_OK;
    const struct cuda_matrix *matrix = &matmul->matmul.matrix;
    const struct cuda_phase_parts *parts = &list->tables->phase_parts[list->phase];
    const uint32_t owner = (list->block + list->blocks - matmul->first_block) % list->blocks;
    const uint32_t each = matrix->tile_rows_per_block * CUDA_TILE_ROWS, first = owner * each;
    struct cuda_record *record;
    if (owner >= matrix->owners)
        return SALVO_OK;
    TRY(add(list, CUDA_RECORD_MATMUL, &record));
    struct cuda_matmul_record *out = &record->matmul;
    out->vector = parts->vectors[matmul->round];
    if (!parts->simple)
        out->vector.from = 0;
    out->vector.keeps = out->vector.lerp && list->keeps;
    list->keeps = list->keeps && !out->vector.keeps;
    out->shares[0] = share_of(matrix);
    if (up) {
        out->shares[1] = share_of(&up->matmul.matrix);
        out->up_packed_input = parts->vectors[up->round].packed_input;
        out->up_rounding = parts->vectors[up->round].rounding;
    }
    out->is_wide = partial_bytes(&out->shares[0]) + partial_bytes(&out->shares[1]) > list->partial_half;
    out->out = cuda_row_address(matmul->matmul.out, first);
    out->before = cuda_row_address(matmul->before, first);
    out->bias = cuda_row_address(matmul->matmul.bias, first);
    out->up_bias = up ? cuda_row_address(up->matmul.bias, first) : 0;
    out->rows = first >= matrix->rows ? 0 : matrix->rows - first < each ? matrix->rows - first : each;
    out->activation = matmul->matmul.activation;
    out->glu = phase->glu;
    out->cap = matmul->matmul.cap;
    out->per_column = 1.0f / (float)out->vector.columns;
    out->up_partials = out->shares[0].tile_rows * out->shares[0].parts_per_pass * CUDA_TILE_ROWS;
    out->groups_at_once = phase->groups_at_once;
    out->flags = flags_of(out, matmul, up != NULL, parts->simple, tagged);
    record->wait_distance = out->is_wide ? 1 : 2;
    record->index = matmul->is_fine;
    if (out->groups_at_once)
        record->kind = CUDA_RECORD_PIECES;
    else if (is_short(out))
        record->kind = out->vector.norm == CUDA_NORM_LAYER ? CUDA_RECORD_SHORT_MIXED : CUDA_RECORD_SHORT;
cleanup:
    return status;
}

static bool joins(const struct record_list *list, const struct cuda_phase *phase)
{
    const struct cuda_phase_matmul *matmuls = list->tables->phase_parts[list->phase].matmuls;
    bool found = false;
    for (uint32_t i = 0; i < phase->matmul_count; i++)
        found = found || (list->block + list->blocks - matmuls[i].first_block) % list->blocks <
                             matmuls[i].matmul.matrix.owners;
    return found;
}

static enum salvo_status add_matmuls(struct record_list *list, const struct cuda_phase *phase, bool tagged)
{
    enum salvo_status status = SALVO_OK;
    const struct cuda_phase_parts *parts = &list->tables->phase_parts[list->phase];
    const struct cuda_phase_matmul *matmuls = parts->matmuls;
    struct cuda_record *record;
    if (!parts->simple && (joins(list, phase) || list->block == 0)) /* block 0 keeps states */
        TRY(add(list, CUDA_RECORD_PREPARE, &record));
    const uint32_t each = phase->glu != ACTIVATION_NONE ? 2 : 1;
    for (uint32_t i = 0; i < phase->matmul_count; i += each)
        TRY(add_matmul(list, phase, &matmuls[i], each == 2 ? &matmuls[i + 1] : NULL, tagged));
cleanup:
    return status;
}

/* Attentions of one shape have the same tasks: the number of the first such phase, from 1. */
static uint32_t shape_of_tasks(const struct cuda_tables *tables, const struct cuda_attend *attend)
{
    for (uint32_t i = 0;; i++) {
        const struct cuda_attend *other = &tables->phase_parts[i].attend;
        if (phase_at(tables, i)->kind == CUDA_PHASE_ATTEND && other->heads == attend->heads &&
            other->kv_heads == attend->kv_heads && other->window == attend->window &&
            other->splits == attend->splits && other->tiled == attend->tiled &&
            other->appends == attend->appends)
            return i + 1;
    }
}

/* The attention after that of phase `index`; the last one is followed by the first, of the next token. */
static const struct cuda_attend *next_attend(const struct cuda_tables *tables, uint32_t index)
{
    do {
        index = index + 1 < tables->phase_count ? index + 1 : 0;
    } while (phase_at(tables, index)->kind != CUDA_PHASE_ATTEND);
    return &tables->phase_parts[index].attend;
}

/* The table of an embedding that is alone in its phase; NULL for other phases. */
static const struct cuda_matrix *table_of_phase(
    const struct record_list *list, const struct cuda_phase_parts *parts)
{
    enum { MOST_TILE_ROWS = 1 << 16 }; /* that a reciprocal divides exactly */
    if (!parts->embed)
        return NULL;
    const struct cuda_matrix *table = &list->executor->weights[parts->embed->inputs[0]].matrix;
    return table->tile_rows <= MOST_TILE_ROWS && table->tile_rows_per_block > 1 ? table : NULL;
}

/* Row ops run on the first block. An embedding alone, with which every token begins, is a record of its own,
 * without phase tables. It runs on the middle block, because the first is the last to be done with the token
 * before. */
static enum salvo_status add_rows(struct record_list *list, const struct cuda_phase_parts *parts, bool tagged)
{
    enum salvo_status status = SALVO_OK;
    const struct cuda_matrix *table = tagged ? table_of_phase(list, parts) : NULL;
    struct cuda_record *record;
    if (list->block != (table ? list->blocks / 2 : 0))
        goto cleanup;
    TRY(add(list, table ? CUDA_RECORD_EMBED : CUDA_RECORD_ROWS, &record));
    if (table) {
        record->embed = (struct cuda_embed_record){
            .table = *table,
            .out = parts->embedded,
            .owner_reciprocal = (uint32_t)(UINT64_C(0x100000000) / table->tile_rows_per_block) + 1,
            .scale = parts->embed->embed.scale,
        };
    }
cleanup:
    return status;
}

static enum salvo_status add_phase(struct record_list *list, bool tagged)
{
    enum salvo_status status = SALVO_OK;
    const struct cuda_phase *phase = phase_at(list->tables, list->phase);
    const struct cuda_phase_parts *parts = &list->tables->phase_parts[list->phase];
    struct cuda_record *record;
    switch (phase->kind) {
    case CUDA_PHASE_MATMUL:
        TRY(add_matmuls(list, phase, tagged));
        break;
    case CUDA_PHASE_ATTEND: {
        const struct cuda_attend *attend = &parts->attend;
        TRY(add(list, CUDA_RECORD_ATTEND, &record));
        record->attend = *attend;
        record->index = shape_of_tasks(list->tables, attend);
        const struct cuda_attend *next = next_attend(list->tables, list->phase);
        if (shape_of_tasks(list->tables, next) == record->index && next->head_dim == attend->head_dim) {
            record->attend.next_keys = next->keys;
            record->attend.next_values = next->values;
        }
        break;
    }
    case CUDA_PHASE_WKV7:
        TRY(add_heads(list, parts));
        break;
    case CUDA_PHASE_SAMPLE:
        TRY(add(list, CUDA_RECORD_SAMPLE, &record));
        record->index = phase->stage;
        break;
    default:
        TRY(add_rows(list, parts, tagged));
    }
    if (phase->meets) {
        TRY(add(list, CUDA_RECORD_MEET, &record));
        record->index = phase->stage;
    }
cleanup:
    return status;
}

enum salvo_status cuda_records_build(const struct executor *executor, struct cuda_plan *plan)
{
    enum salvo_status status = SALVO_OK;
    struct cuda_tables *tables = &plan->tables;
    struct record_list list = {.tables = tables, .blocks = executor->blocks, .executor = executor};
    const uint32_t phases = tables->phase_count;
    list.partial_half = cuda_partial_bytes(executor, tables) / 2;
    list.attend_own_memory = cuda_attend_has_own_memory(executor);
    bool *kept = NULL;
    tables->record_count = 0;
    TRY(NEW(&kept, phases));
    TRY(NEW(&tables->record_starts, (size_t)list.blocks * (phases + 1)));
    for (; list.block < list.blocks; list.block++) {
        uint32_t *starts = tables->record_starts + (size_t)list.block * (phases + 1);
        for (list.phase = 0; list.phase < phases; list.phase++) {
            starts[list.phase] = tables->record_count;
            list.keeps = !kept[list.phase];
            TRY(add_phase(&list, plan == &executor->single));
            kept[list.phase] = !list.keeps;
        }
        starts[phases] = tables->record_count;
    }
cleanup:
    memory_free(kept);
    return status;
}
