/* Keys and values for verify, read through a saved state, whose layout is the same for every backend. */
#include "backend/common/state.h"
#include "base/memory.h"
#include "engine/verify.h"
#include "quant/quant.h"

#include <string.h>

/* The offset of a cache in a state of `positions`: caches are in the order of the program. */
static size_t offset_in_state(
    const struct salvo_engine *engine, buffer_id id, uint32_t positions, size_t element)
{
    const struct program *program = engine->program;
    size_t offset = 0;
    for (buffer_id i = 0; i < id; i++) {
        if (program->buffers[i].kind == BUFFER_CACHE && i != program->tokens)
            offset += positions * program->buffers[i].columns * element;
    }
    return offset;
}

bool verify_state_is_readable(const struct salvo_engine *engine, buffer_id id)
{
    const struct program *program = engine->program;
    enum tensor_type type = engine->options.kv_type;
    return program->buffers[id].kind == BUFFER_CACHE && id != program->tokens &&
           (type == TYPE_F16 || type == TYPE_F32);
}

enum salvo_status verify_read_state(
    const struct salvo_engine *engine, const struct run *run, buffer_id id, float **out)
{
    enum salvo_status status = SALVO_OK;
    enum tensor_type type = engine->options.kv_type;
    const uint32_t positions = run->first + run->count;
    const size_t element = tensor_type_info(type)->block_bytes,
                 columns = engine->program->buffers[id].columns;
    uint8_t *state = NULL;
    float *rows = NULL;
    TRY(NEW(&state, state_size(engine->backend, engine->executor, positions)));
    TRY(NEW(&rows, run->count * columns));
    TRY(state_save(engine->backend, engine->executor, run->slot, run->pages, positions, state));
    dequantize(type, state + offset_in_state(engine, id, positions, element) + run->first * columns * element,
        run->count * columns, rows);
    *out = rows;
    rows = NULL;
cleanup:
    memory_free(state);
    memory_free(rows);
    return status;
}
