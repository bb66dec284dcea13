#include "backend/common/weights.h"

#include "quant/quant.h"

static uint8_t use_of_input(const struct op *op, int input)
{
    const enum operand_kind kind = op_infos[op->kind].inputs[input].kind;
    if (kind == OPERAND_MATRIX)
        return WEIGHT_MULTIPLIED;
    return kind == OPERAND_TABLE ? WEIGHT_LOOKED_UP : WEIGHT_VECTOR;
}

void weight_uses(const struct program *program, uint8_t *uses)
{
    for (uint32_t i = 0; i < program->op_count; i++) {
        const struct op *op = &program->ops[i];
        for (int j = 0; j < OP_MAX_INPUTS; j++) {
            const buffer_id input = op->inputs[j];
            if (input != NO_BUFFER && program->buffers[input].kind == BUFFER_WEIGHT)
                uses[input] |= use_of_input(op, j);
        }
    }
}

uint64_t weight_vectors_place(
    const struct program *program, const uint8_t *uses, uint32_t alignment, uint32_t *offsets)
{
    uint64_t floats = 0;
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        const struct program_buffer *weight = &program->buffers[i];
        offsets[i] = uses[i] & WEIGHT_VECTOR ? (uint32_t)floats : NO_VECTOR;
        if (uses[i] & WEIGHT_VECTOR)
            floats += (weight->rows * weight->columns + alignment - 1) / alignment * alignment;
    }
    return floats;
}

void weight_vectors_read(const struct program *program, const uint32_t *offsets, float *out)
{
    for (uint32_t i = 0; i < program->buffer_count; i++) {
        const struct program_buffer *weight = &program->buffers[i];
        if (offsets[i] != NO_VECTOR)
            dequantize(weight->type, weight_rows(weight), weight->rows * weight->columns, out + offsets[i]);
    }
}

size_t weight_row_bytes(const struct program_buffer *weight)
{
    const struct tensor_type_info *type = tensor_type_info(weight->type);
    return weight->columns / type->block_elements * type->block_bytes;
}

const uint8_t *weight_rows(const struct program_buffer *weight)
{
    return weight->tensor->data + weight->first_row * weight_row_bytes(weight);
}
