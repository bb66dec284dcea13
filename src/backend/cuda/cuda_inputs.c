/*
 * The inputs of matmuls, as the tables of a phase describe them: which are simple enough that each warp loads
 * and rounds its own columns.
 */
#include "backend/cuda/cuda_phase.h"

const struct cuda_row_op *cuda_op_at(const struct cuda_inputs *inputs, uint32_t place)
{
    const struct cuda_row_op *found = NULL;
    for (uint32_t i = 0; i < inputs->op_count; i++) {
        if (inputs->ops[i].out == place)
            found = &inputs->ops[i];
    }
    return found;
}

uint64_t cuda_load_at(const struct cuda_inputs *inputs, uint32_t place)
{
    for (uint32_t i = 0; i < inputs->load_count; i++) {
        if (inputs->loads[i].place == place)
            return inputs->loads[i].from;
    }
    return 0;
}

/* A vector as it was loaded, or after a norm of all its columns. */
static bool describe_norm(const struct cuda_inputs *inputs, uint32_t place, struct cuda_vector *out)
{
    const struct cuda_row_op *op = cuda_op_at(inputs, place);
    if (op) {
        bool is_norm = (op->kind == OP_RMS_NORM || op->kind == OP_LAYER_NORM) && op->group == op->columns &&
                       op->weight && (op->kind == OP_RMS_NORM || op->bias);
        if (!is_norm || op->in[0] == place || cuda_op_at(inputs, op->in[0]))
            return false;
        out->norm = op->kind == OP_RMS_NORM ? CUDA_NORM_RMS : CUDA_NORM_LAYER;
        out->weight = op->weight;
        out->bias = op->bias;
        out->epsilon = op->value;
        place = op->in[0];
    }
    out->from = cuda_load_at(inputs, place);
    return out->from != 0;
}

/* False: it is another kind of input, for which packed inputs have to be prepared. */
bool cuda_describe_vector(
    const struct cuda_inputs *inputs, const struct cuda_round *round, struct cuda_vector *out)
{
    *out = (struct cuda_vector){
        .columns = round->columns, .rounding = round->rounding, .packed_input = round->packed_input};
    const struct cuda_row_op *op = cuda_op_at(inputs, round->place);
    if (round->columns % 4)
        return false;
    if (!op || op->kind != OP_LERP)
        return describe_norm(inputs, round->place, out);
    const struct cuda_row_op *shift = cuda_op_at(inputs, op->in[1]);
    if (!op->weight || !shift || shift->kind != OP_TOKEN_SHIFT || shift->in[0] != op->in[0])
        return false;
    out->lerp = op->weight;
    out->state = shift->state;
    return describe_norm(inputs, op->in[0], out) && out->norm == CUDA_NORM_LAYER;
}

/* The warps take what both matrices need of one vector. In pieces each matrix has its own rounding of it. */
static bool share_input(
    const struct cuda_inputs *inputs, const struct cuda_matmul *gate, const struct cuda_matmul *up)
{
    if (inputs->in_pieces)
        return inputs->rounds[gate->round].place == inputs->rounds[up->round].place;
    return gate->round == up->round && gate->matrix.parts_per_round == up->matrix.parts_per_round;
}

bool cuda_inputs_are_simple(const struct cuda_inputs *inputs)
{
    uint32_t shifts = 0, mixed = 0;
    for (uint32_t i = 1; inputs->has_glu && i < inputs->matmul_count; i += 2) {
        if (!share_input(inputs, &inputs->matmuls[i - 1], &inputs->matmuls[i]))
            return false;
    }
    for (uint32_t i = 0; i < inputs->matmul_count; i++) {
        struct cuda_vector vector;
        const struct cuda_matmul *matmul = &inputs->matmuls[i];
        if (cuda_describe_vector(inputs, &inputs->rounds[matmul->round], &vector) &&
            vector.norm == CUDA_NORM_LAYER && matmul->matrix.part_groups > CUDA_MIXED_GROUPS &&
            !inputs->in_pieces)
            return false;
    }
    for (uint32_t i = 0; i < inputs->round_count; i++) {
        struct cuda_vector vector;
        if (!cuda_describe_vector(inputs, &inputs->rounds[i], &vector))
            return false;
        mixed += vector.lerp != 0;
    }
    for (uint32_t i = 0; i < inputs->op_count; i++)
        shifts += inputs->ops[i].kind == OP_TOKEN_SHIFT;
    return shifts == 0 || (shifts == 1 && mixed > 0);
}
