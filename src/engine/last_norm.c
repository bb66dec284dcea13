#include "engine/last_norm.h"

#include "backend/common/weights.h"
#include "base/memory.h"
#include "quant/quant.h"

#include <math.h>

static enum salvo_status read_vector(const struct program *program, buffer_id id, float **out)
{
    enum salvo_status status = SALVO_OK;
    const struct program_buffer *buffer = &program->buffers[id];
    TRY(NEW(out, buffer->columns));
    dequantize(buffer->type, weight_rows(buffer), buffer->columns, *out);
cleanup:
    return status;
}

/* The norm of the rows that select_rows keeps; NULL: there is none. */
static const struct op *find_norm(const struct program *program)
{
    buffer_id selected = NO_BUFFER;
    for (uint32_t i = 0; i < program->op_count; i++) {
        const struct op *op = &program->ops[i];
        if (op->kind == OP_SELECT_ROWS)
            selected = op->out;
        else if ((op->kind == OP_RMS_NORM || op->kind == OP_LAYER_NORM) && selected != NO_BUFFER &&
                 op->inputs[0] == selected)
            return op;
    }
    return NULL;
}

enum salvo_status last_norm_open(struct last_norm *norm, const struct program *program)
{
    enum salvo_status status = SALVO_OK;
    const struct op *op = find_norm(program);
    *norm = (struct last_norm){0};
    if (program->hidden != NO_BUFFER)
        norm->width = (uint32_t)program->buffers[program->hidden].columns;
    if (!op)
        goto cleanup;
    norm->centers = op->kind == OP_LAYER_NORM;
    norm->group = norm->centers ? op->layer_norm.group : op->rms_norm.group;
    norm->epsilon = norm->centers ? op->layer_norm.epsilon : op->rms_norm.epsilon;
    TRY(read_vector(program, op->inputs[1], &norm->weight));
    if (norm->centers)
        TRY(read_vector(program, op->inputs[2], &norm->bias));
cleanup:
    if (status != SALVO_OK)
        last_norm_close(norm);
    return status;
}

void last_norm_close(struct last_norm *norm)
{
    memory_free(norm->weight);
    memory_free(norm->bias);
    *norm = (struct last_norm){0};
}

static double mean_of(const float *row, uint32_t count)
{
    double sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += (double)row[i];
    return sum / count;
}

void last_norm_apply(const struct last_norm *norm, float *row)
{
    for (uint32_t first = 0; norm->group && first < norm->width; first += norm->group) {
        float *group = row + first;
        const float *weight = norm->weight + (norm->centers ? first : 0);
        const double mean = norm->centers ? mean_of(group, norm->group) : 0;
        double squares = 0;
        for (uint32_t i = 0; i < norm->group; i++)
            squares += ((double)group[i] - mean) * ((double)group[i] - mean);
        const double scale = 1 / sqrt(squares / norm->group + (double)norm->epsilon);
        for (uint32_t i = 0; i < norm->group; i++) {
            group[i] = (float)(((double)group[i] - mean) * scale * (double)weight[i] +
                               (norm->bias ? (double)norm->bias[first + i] : 0));
        }
    }
}
