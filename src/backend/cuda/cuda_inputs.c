/* The inputs of matmuls of one token, described from the ops of their group. */
#include "backend/cuda/cuda_phase.h"

/* The row in memory, or its norm. Without addresses (cuda_open.c) nothing can be described. */
static bool describe_norm(const struct phase_builder *builder, buffer_id buffer, struct cuda_vector *out)
{
    const struct matmul_inputs *inputs = &builder->inputs;
    const bool is_normed = inputs->x != NO_BUFFER && buffer == inputs->normed;
    const struct op *norm = is_normed ? inputs->norm : NULL;
    if (inputs->shift && buffer == inputs->shift->out)
        return false;
    if (norm) {
        if (norm->out == norm->inputs[0])
            return false;
        out->norm = norm->kind == OP_RMS_NORM ? CUDA_NORM_RMS : CUDA_NORM_LAYER;
        out->weight = phase_vector(builder, norm->inputs[1]);
        out->bias = norm->kind == OP_LAYER_NORM ? phase_vector(builder, norm->inputs[2]) : 0;
        out->epsilon = norm->rms_norm.epsilon;
    }
    out->from = phase_address(builder, is_normed ? inputs->x : buffer);
    return out->from && (!norm || (out->weight && (norm->kind == OP_RMS_NORM || out->bias)));
}

/* False: another kind of input, which a separate record packs. */
static bool describe_vector(const struct phase_builder *builder, uint32_t index, struct cuda_vector *out)
{
    const struct cuda_round *round = &builder->rounds[index];
    const struct matmul_inputs *inputs = &builder->inputs;
    const buffer_id buffer = builder->rounded[index];
    *out = (struct cuda_vector){
        .columns = round->columns, .rounding = round->rounding, .packed_input = round->packed_input};
    if (!builder->inputs_known || round->columns % 4)
        return false;
    const struct op *lerp = matmul_inputs_lerp(inputs, buffer);
    if (!lerp)
        return describe_norm(builder, buffer, out);
    out->lerp = phase_vector(builder, lerp->inputs[2]);
    out->state = builder->executor->state.recurrent_offsets[inputs->shift->token_shift.state];
    return out->lerp && describe_norm(builder, inputs->normed, out) && out->norm == CUDA_NORM_LAYER;
}

/* The warps load the columns that both matrices need of one vector. In pieces each matrix has its own
 * rounding of it. */
static bool share_input(
    const struct phase_builder *builder, const struct placed_matmul *gate, const struct placed_matmul *up)
{
    if (builder->groups_at_once)
        return builder->rounds[gate->round].place == builder->rounds[up->round].place;
    return gate->round == up->round && gate->matmul.matrix.parts_per_pass == up->matmul.matrix.parts_per_pass;
}

static bool fits_registers(const struct phase_builder *builder, const struct cuda_vector *vectors)
{
    for (uint32_t i = 0; i < builder->matmul_count && !builder->groups_at_once; i++) {
        const struct placed_matmul *matmul = &builder->matmuls[i];
        if (vectors[matmul->round].norm == CUDA_NORM_LAYER &&
            matmul->matmul.matrix.part_groups > CUDA_MIXED_GROUPS)
            return false;
    }
    return true;
}

bool cuda_describe_inputs(const struct phase_builder *builder, struct cuda_vector vectors[MOST_ROUNDS])
{
    const struct placed_matmul *matmuls = builder->matmuls;
    bool simple = true, mixed = false;
    for (uint32_t i = 0; i < builder->table.round_count; i++) {
        simple = describe_vector(builder, i, &vectors[i]) && simple;
        mixed = mixed || vectors[i].lerp;
    }
    for (uint32_t i = 1; builder->glu != ACTIVATION_NONE && i < builder->matmul_count; i += 2)
        simple = simple && share_input(builder, &matmuls[i - 1], &matmuls[i]);
    return simple && fits_registers(builder, vectors) && (!builder->inputs.shift || mixed);
}
