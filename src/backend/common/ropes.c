#include "backend/common/ropes.h"

#include <math.h>

enum { LOW_POSITIONS = 256 };

static uint32_t row_count(uint32_t context)
{
    return LOW_POSITIONS + context / LOW_POSITIONS + 1;
}

size_t rope_tables_size(const struct program *program, uint32_t context)
{
    size_t floats = 0;
    for (uint32_t i = 0; i < program->rope_count; i++)
        floats += (size_t)row_count(context) * program->ropes[i].dimensions;
    return floats;
}

void rope_tables_fill(const struct program *program, uint32_t context, uint32_t *offsets, float *tables)
{
    size_t place = 0;
    for (uint32_t i = 0; i < program->rope_count; i++) {
        const struct rope *rope = &program->ropes[i];
        offsets[i] = (uint32_t)place;
        for (uint32_t row = 0; row < row_count(context); row++) {
            const bool is_low = row < LOW_POSITIONS;
            const double position = is_low ? row : (double)(row - LOW_POSITIONS) * LOW_POSITIONS;
            const double magnitude = is_low ? 1 : (double)rope->magnitude;
            for (uint32_t j = 0; j < rope->dimensions / 2; j++) {
                tables[place++] = (float)(cos(position * rope->frequencies[j]) * magnitude);
                tables[place++] = (float)(sin(position * rope->frequencies[j]) * magnitude);
            }
        }
    }
}
