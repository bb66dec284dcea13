/* Shared memory of the decode kernel: its size and the places of its parts. */
#include "backend/cuda/cuda_executor.h"
#include "backend/cuda/cuda_weight_tiles.h"
#include "backend/cuda/sample_plan.h"

/* The part of a multiprocessor's memory that is not shared memory is its L1 cache, which polls, norms and
 * attention need. */
enum { MOST_SHARED_BYTES = 195 * 1024 };

uint32_t cuda_decode_shared(const struct executor *executor)
{
    const uint32_t bytes = (uint32_t)executor->device->shared_bytes;
    return (bytes < MOST_SHARED_BYTES ? bytes : MOST_SHARED_BYTES) / 128 * 128;
}

static uint32_t chunk_bytes(const struct executor *executor)
{
    return cuda_decode_shared(executor) / (executor->fit == CUDA_FIT_TIGHTEST ? 10 : 5);
}

uint32_t cuda_partial_limit(const struct executor *executor)
{
    return cuda_decode_shared(executor) / 8;
}

/* Rounds no larger than a chunk leave room for two of them. */
struct cuda_limits cuda_matrix_limits(const struct executor *executor)
{
    const uint32_t chunk = chunk_bytes(executor);
    const bool tight = executor->fit != CUDA_FIT_ROOMY && chunk < CUDA_PASS_BYTES;
    return (struct cuda_limits){
        cuda_partial_limit(executor), tight ? chunk : (uint32_t)CUDA_PASS_BYTES, chunk};
}

/* Shared memory of attention: enough for room_of_lanes and for room_of_tiles, with as many heads as a task
 * may have, and the widest heads of the program. */
static uint32_t attend_bytes(const struct program *program)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < program->op_count; i++) {
        const struct op *op = &program->ops[i];
        if (op->kind == OP_ATTEND && op->attend.head_dim > most)
            most = op->attend.head_dim;
    }
    const uint32_t sums = 4 * CUDA_WARPS, queries = CUDA_TILE_HEADS * (most + 32), own = 2 * most;
    return most ? ((sums + queries + own + 2 * CUDA_WARPS * most) * (uint32_t)sizeof(float) + 127) / 128 * 128
                : 0;
}

/* If shared memory is small, attention uses the memory of partial sums. */
bool cuda_attend_has_own_memory(const struct executor *executor)
{
    return executor->fit == CUDA_FIT_ROOMY && cuda_decode_shared(executor) >= CUDA_MUCH_SHARED;
}

static uint32_t page_table_bytes(const struct executor *executor)
{
    const uint64_t bytes = (executor->state.pages_per_slot * (uint64_t)sizeof(uint32_t) + 127) / 128 * 128;
    return cuda_attend_has_own_memory(executor) && bytes <= CUDA_PAGE_TABLE_LIMIT ? (uint32_t)bytes : 0;
}

uint32_t cuda_attention_bytes(const struct executor *executor)
{
    return cuda_attend_has_own_memory(executor) ? attend_bytes(executor->program) + page_table_bytes(executor)
                                                : 0;
}

uint32_t cuda_shared_limit(const struct executor *executor)
{
    const uint32_t row_table = CUDA_ROW_TABLE_LIMIT / 2;
    const uint32_t angles =
        2 * executor->program->rope_count * executor->rope_pairs * (uint32_t)sizeof(float);
    const uint32_t kept = CUDA_SHARED_HEAD + CUDA_RECORD_BUFFERS * (uint32_t)sizeof(struct cuda_record) +
                          row_table + angles + 256 + 2 * chunk_bytes(executor) +
                          cuda_attention_bytes(executor);
    return cuda_decode_shared(executor) - kept;
}

/* Attention and sampling run when no matmul does, and may use the memory of packed inputs and partial sums,
 * which therefore have at least this many bytes together. */
uint32_t cuda_overlay_floor(const struct executor *executor)
{
    const uint32_t attend = cuda_attend_has_own_memory(executor) ? 0 : attend_bytes(executor->program);
    return attend > CUDA_SAMPLE_SHARED ? attend : (uint32_t)CUDA_SAMPLE_SHARED;
}

uint32_t cuda_partial_floor(const struct executor *executor)
{
    const uint32_t wkv7 = 2 * CUDA_WORKERS * sizeof(float);
    uint32_t bytes = executor->fit == CUDA_FIT_ROOMY ? cuda_overlay_floor(executor) : 0;
    for (uint32_t i = 0; i < executor->program->op_count; i++) {
        if (executor->program->ops[i].kind == OP_WKV7 && wkv7 > bytes)
            bytes = wkv7;
    }
    return bytes;
}

static uint32_t vector_bytes(const struct cuda_tables *tables)
{
    return (tables->most_vector_bytes + 127) / 128 * 128;
}

uint32_t cuda_partial_bytes(const struct executor *executor, const struct cuda_tables *tables)
{
    const uint32_t vectors = vector_bytes(tables), all = cuda_overlay_floor(executor),
                   most = tables->most_partials * (uint32_t)sizeof(float);
    uint32_t bytes = cuda_partial_floor(executor);
    bytes = most > bytes ? most : bytes;
    bytes = vectors + bytes < all ? all - vectors : bytes;
    return (bytes + 255) / 256 * 256;
}

enum salvo_status cuda_layout_shared(
    const struct executor *executor, const struct cuda_tables *tables, struct cuda_machine *machine)
{
    const uint32_t partials = cuda_partial_bytes(executor, tables);
    const uint32_t angles =
        2 * executor->program->rope_count * executor->rope_pairs * (uint32_t)sizeof(float);
    machine->angles_at = CUDA_SHARED_HEAD +
                         (CUDA_RECORD_BUFFERS * (uint32_t)sizeof(struct cuda_record) + 127) / 128 * 128 +
                         tables->row_table_bytes;
    machine->vectors_at = machine->angles_at + (angles + 127) / 128 * 128;
    machine->packed_inputs_at = machine->vectors_at; /* each phase's behind its own vectors */
    machine->partials_at = machine->vectors_at + vector_bytes(tables);
    machine->own_packed_input_bytes = tables->most_vector_bytes / CUDA_WARPS / 16 * 16;
    machine->half_of_partials = partials / 2;
    machine->attend_own_memory = cuda_attend_has_own_memory(executor);
    machine->attend_at = machine->attend_own_memory        ? machine->partials_at + partials
                         : executor->fit == CUDA_FIT_ROOMY ? machine->partials_at
                                                           : machine->vectors_at;
    if (page_table_bytes(executor))
        machine->page_table_at = machine->attend_at + attend_bytes(executor->program);
    machine->weight_ring_at = machine->partials_at + partials + cuda_attention_bytes(executor);
    machine->shared_bytes = cuda_decode_shared(executor);
    /* One chunk is copied while another is multiplied; with smaller ones that is possible in less memory. */
    const uint32_t chunks = executor->fit == CUDA_FIT_TIGHT ? 2 : 1,
                   needed = machine->weight_ring_at + chunks * tables->most_chunk_bytes;
    if (needed > machine->shared_bytes) {
        return fail(SALVO_ERROR_UNSUPPORTED,
            "the shared memory of %s, %d bytes a block, is too small: %u are needed", executor->context.name,
            executor->device->shared_bytes, needed);
    }
    machine->weight_ring_bytes = machine->shared_bytes - machine->weight_ring_at;
    return SALVO_OK;
}
