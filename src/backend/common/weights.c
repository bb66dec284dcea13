#include "backend/common/weights.h"

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

size_t weight_row_bytes(const struct program_buffer *weight)
{
    const struct tensor_type_info *type = tensor_type_info(weight->type);
    return weight->columns / type->block_elements * type->block_bytes;
}

const uint8_t *weight_rows(const struct program_buffer *weight)
{
    return weight->tensor->data + weight->first_row * weight_row_bytes(weight);
}
