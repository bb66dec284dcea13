/* Addresses that a phase reads and writes. */
#include "backend/cuda/cuda_phase.h"

/* Only values between the phases of a single token are tagged words; the logits have other readers. */
static bool is_tagged(const struct phase_builder *builder, buffer_id buffer)
{
    return builder->plan == &builder->executor->single && buffer != builder->program->logits;
}

cuda_address phase_address(const struct phase_builder *builder, buffer_id buffer)
{
    const struct cuda_scratch *scratch = &builder->plan->scratch;
    const struct plan *plan = &builder->plan->plan;
    if (is_tagged(builder, buffer))
        return builder->tagged_address[buffer];
    return plan->is_private[buffer] ? scratch->spilled + plan->offsets[buffer]
                                    : scratch->arena + scratch->offsets[buffer];
}

bool phase_is_read_in_place(const struct phase_builder *builder, enum rounding rounding, buffer_id rows)
{
    return rounding == ROUNDING_F32 && builder->program->buffers[rows].columns % 4 == 0;
}

static bool has_attention(const struct phase_builder *builder, uint32_t first_op, uint32_t end)
{
    while (first_op < end && builder->program->ops[first_op].kind != OP_ATTEND)
        first_op++;
    return first_op < end;
}

bool phase_is_finer(const struct phase_builder *builder, uint32_t first_op)
{
    const uint32_t end = builder->program->op_count;
    if (builder->plan == &builder->executor->debug) /* verify compares it with the program's result */
        return false;
    return builder->plan == &builder->executor->single
               ? has_attention(builder, 0, end)
               : has_attention(builder, 0, first_op) && !has_attention(builder, first_op, end);
}

cuda_address phase_tagged_words(struct phase_builder *builder, uint64_t bytes)
{
    const cuda_address words = builder->plan->scratch.tagged_words + builder->tagged_bytes;
    builder->tagged_bytes += (bytes + 127) / 128 * 128;
    return words;
}

cuda_address phase_writes(struct phase_builder *builder, buffer_id buffer)
{
    if (!is_tagged(builder, buffer))
        return phase_address(builder, buffer);
    if (builder->written_count == MOST_WRITTEN) {
        builder->overflows = true;
        return 0;
    }
    const cuda_address words =
        phase_tagged_words(builder, builder->program->buffers[buffer].columns * sizeof(uint32_t));
    builder->written[builder->written_count].buffer = buffer;
    builder->written[builder->written_count++].tagged_words = words;
    return words;
}

cuda_address phase_vector(const struct phase_builder *builder, buffer_id weight)
{
    return weight == NO_BUFFER ? 0 : builder->executor->weights[weight].vector;
}
