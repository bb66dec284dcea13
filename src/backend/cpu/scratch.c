#include "backend/cpu/executor.h"

float *row_of(const struct executor *executor, buffer_id buffer, uint32_t row, uint32_t thread)
{
    const struct plan *plan = executor->plan;
    const size_t row_bytes = executor->program->buffers[buffer].columns * sizeof(float);
    uint8_t *memory;
    if (plan->is_private[buffer]) {
        memory = executor->scratch[thread].private_buffers + plan->offsets[buffer];
    } else {
        const size_t *offsets = executor->debug_offsets ? executor->debug_offsets : plan->offsets;
        memory = executor->arena + offsets[buffer] + row * row_bytes;
    }
    return (float *)(void *)memory;
}
