#include "arch/rope_scaling.h"

#include "base/memory.h"
#include "quant/quant.h"

#include <float.h>
#include <math.h>
#include <string.h>

static bool is_text(struct salvo_text text, const char *expected)
{
    return text.size == strlen(expected) && !memcmp(text.data, expected, text.size);
}

static struct salvo_text as_text(const char *text)
{
    return (struct salvo_text){text, strlen(text)};
}

struct rope_scaling rope_scaling_read(
    struct arch_metadata *metadata, uint32_t head_dim, bool halves, uint32_t trained_context)
{
    struct rope_scaling scaling = {.halves = halves};
    scaling.dimensions = metadata_u32_or(metadata, "rope.dimension_count", head_dim, 2, head_dim);
    scaling.base = metadata_f32_or(metadata, "rope.freq_base", 10000, 1, FLT_MAX);
    scaling.attention_factor = metadata_f32_or(metadata, "rope.scaling.attn_factor", 1, 1e-6f, 1e6f);
    scaling.beta_fast = metadata_f32_or(metadata, "rope.scaling.yarn_beta_fast", 32, 1e-6f, FLT_MAX);
    scaling.beta_slow = metadata_f32_or(metadata, "rope.scaling.yarn_beta_slow", 1, 1e-6f, FLT_MAX);
    scaling.first_context =
        metadata_u32_or(metadata, "rope.scaling.original_context_length", trained_context, 0, UINT32_MAX);
    if (scaling.dimensions % 2)
        metadata_refuse(metadata, SALVO_ERROR_FORMAT, "key '%s.rope.dimension_count' is %u, it must be even",
            metadata->arch, scaling.dimensions);

    const char *key = metadata_has(metadata, "rope.scaling.factor")
                          ? "rope.scaling.factor"
                          : "rope.scale_linear"; /* the older name */
    scaling.factor = metadata_f32_or(metadata, key, 0, 0, FLT_MAX);
    struct salvo_text type = metadata_text_or(metadata, "rope.scaling.type", as_text("linear"));
    if (is_text(type, "none"))
        scaling.factor = 0;
    else if (is_text(type, "yarn"))
        scaling.yarn = true;
    else if (!is_text(type, "linear") && !is_text(type, "longrope")) {
        metadata_refuse(metadata, SALVO_ERROR_UNSUPPORTED,
            "key '%s.rope.scaling.type' is '%.*s', supported: none, linear, yarn, longrope", metadata->arch,
            type.size < 64 ? (int)type.size : 64, type.data);
    }
    if (scaling.factor == 0)
        scaling.factor = 1;
    if (scaling.yarn && !scaling.first_context) {
        metadata_refuse(metadata, SALVO_ERROR_FORMAT,
            "key '%s.rope.scaling.original_context_length' is missing, YaRN scaling needs it",
            metadata->arch);
    }
    return scaling;
}

/* The pair that makes `turns` turns within the original context. */
static double pair_of_turns(const struct rope_scaling *scaling, double turns)
{
    const double two_pi = 6.283185307179586;
    return scaling->dimensions * log(scaling->first_context / (turns * two_pi)) /
           (2 * log((double)scaling->base));
}

/* The share of its original frequency that pair i keeps under YaRN: 1 for high frequencies, 0 for low
 * ones. */
static double kept_share(const struct rope_scaling *scaling, uint32_t pair)
{
    double low = fmax(0, floor(pair_of_turns(scaling, scaling->beta_fast)));
    double high = fmin(scaling->dimensions - 1, ceil(pair_of_turns(scaling, scaling->beta_slow)));
    return 1 - fmin(1, fmax(0, (pair - low) / fmax(0.001, high - low)));
}

static double frequency(const struct rope_scaling *scaling, uint32_t pair, double factor)
{
    double own = pow(scaling->base, -2.0 * pair / scaling->dimensions) / factor;
    double stretched = own / scaling->factor;
    if (!scaling->yarn)
        return stretched;
    double share = kept_share(scaling, pair);
    return stretched * (1 - share) + own * share;
}

/* YaRN raises attention scores to compensate for the larger number of keys. */
static float magnitude(const struct rope_scaling *scaling)
{
    double yarn = scaling->yarn && scaling->factor > 1 ? 1 + 0.1 * log((double)scaling->factor) : 1;
    return (float)(scaling->attention_factor * yarn);
}

/* A vector of the file as floats; `vector` exists. */
static enum salvo_status read_factors(
    struct builder *builder, buffer_id vector, struct arena *arena, float **out)
{
    const struct program_buffer *buffer = &builder->program->buffers[vector];
    size_t count = (size_t)buffer->columns;
    enum salvo_status status = ARENA_NEW(arena, out, count);
    if (status != SALVO_OK)
        return status;
    dequantize(buffer->type, buffer->tensor->data, count, *out);
    for (size_t i = 0; i < count; i++) {
        if (!(isfinite((*out)[i]) && (*out)[i] > 0))
            return fail(SALVO_ERROR_FORMAT, "%s: tensor '%s' has %g at element %zu, it must be positive",
                gguf_path(builder->program->gguf), buffer->name, (double)(*out)[i], i);
    }
    return SALVO_OK;
}

static buffer_id choose_factors(const struct rope_scaling *scaling, uint32_t context, struct builder *builder)
{
    uint32_t pairs = scaling->dimensions / 2;
    buffer_id always = builder_optional_weight(builder, 1, pairs, "rope_freqs.weight");
    buffer_id lengthy = builder_optional_weight(builder, 1, pairs, "rope_factors_long.weight");
    buffer_id brief = builder_optional_weight(builder, 1, pairs, "rope_factors_short.weight");
    if (always != NO_BUFFER)
        return always;
    return context > scaling->first_context ? lengthy : brief;
}

uint32_t rope_scaling_build(const struct rope_scaling *scaling, uint32_t context, struct builder *builder)
{
    enum salvo_status status = SALVO_OK;
    struct arena arena = {0};
    uint32_t rope = 0, pairs = scaling->dimensions / 2;
    float *factors = NULL;
    double *frequencies;

    buffer_id chosen = choose_factors(scaling, context, builder);
    TRY(builder->status);
    if (chosen != NO_BUFFER)
        TRY(read_factors(builder, chosen, &arena, &factors));
    TRY(ARENA_NEW(&arena, &frequencies, pairs));
    for (uint32_t i = 0; i < pairs; i++)
        frequencies[i] = frequency(scaling, i, factors ? factors[i] : 1);
    rope = builder_rope(builder, scaling->dimensions, scaling->halves, magnitude(scaling), frequencies);

cleanup:
    if (builder->status == SALVO_OK)
        builder->status = status;
    arena_free(&arena);
    return rope;
}
