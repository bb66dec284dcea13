/* The ops that most models are made of, each checked against the buffers it names. build_recurrent_ops.c has
 * the others. */
#include "program/op_checks.h"

void build_embed(struct builder *builder, buffer_id out, buffer_id table, float scale)
{
    struct check check = {builder, OP_EMBED};
    const struct program_buffer *weight = op_find(check, "table", table, BUFFER_WEIGHT);
    const struct program_buffer *target = op_find_target(check, out);
    op_require_columns(check, weight, target);
    op_require_rows(check, target, ROWS_TOKENS);
    op_require_positive(check, "scale", scale);
    if (builder->status != SALVO_OK)
        return;
    uint32_t *vocabulary = &builder->program->vocabulary;
    op_require(check, *vocabulary == 0 || *vocabulary == weight->rows,
        "table '%s' has %" PRIu64 " rows, the vocabulary has %u", weight->name, weight->rows, *vocabulary);
    *vocabulary = (uint32_t)weight->rows;
    op_add(check, (struct op){.rows = ROWS_TOKENS,
                      .out = out,
                      .inputs = INPUTS(table, builder->program->tokens),
                      .embed = {scale}});
}

void build_rms_norm(struct builder *builder, buffer_id out, buffer_id x, buffer_id weight, float epsilon)
{
    struct check check = {builder, OP_RMS_NORM};
    const struct program_buffer *source = op_find_source(check, "x", x);
    const struct program_buffer *vector = op_find_vector(check, "weight", weight);
    const struct program_buffer *target = op_find_target(check, out);
    op_require_same_shape(check, source, target);
    op_require(check, vector->columns > 0 && source->columns % vector->columns == 0,
        "'%s' has %" PRIu64 " columns, which is no multiple of the %" PRIu64 " of '%s'", source->name,
        source->columns, vector->columns, vector->name);
    op_require_not_negative(check, "epsilon", epsilon);
    op_add(check, (struct op){.rows = source->row_kind,
                      .out = out,
                      .inputs = INPUTS(x, weight),
                      .rms_norm = {(uint32_t)vector->columns, epsilon}});
}

/* Integer kernels take bytes, float kernels the activations as they are. */
static enum rounding choose_rounding(enum tensor_type weight)
{
    if (weight == TYPE_F16)
        return ROUNDING_F16;
    return weight == TYPE_F32 || weight == TYPE_BF16 ? ROUNDING_F32 : ROUNDING_Q8;
}

static void build_any_matmul(struct builder *builder, buffer_id out, buffer_id weight, buffer_id x,
    buffer_id bias, bool accumulate, enum activation activation)
{
    struct check check = {builder, OP_MATMUL};
    const struct program_buffer *matrix = op_find(check, "weight", weight, BUFFER_WEIGHT);
    const struct program_buffer *source = op_find_source(check, "x", x);
    const struct program_buffer *target =
        accumulate ? op_find_source(check, "out", out) : op_find_target(check, out);
    op_require_columns(check, matrix, source);
    op_require_equal(check, "rows", matrix, matrix->rows, "columns", target, target->columns);
    op_require_same_rows(check, source, target);
    op_require_apart(check, source, out, x);
    if (bias != NO_BUFFER) {
        const struct program_buffer *vector = op_find_vector(check, "bias", bias);
        op_require_columns(check, vector, target);
    }
    op_require(check,
        activation == ACTIVATION_NONE || (activation > ACTIVATION_GELU && activation < ACTIVATION_COUNT),
        "activation %d is none of a matmul", (int)activation);
    const enum rounding rounding = choose_rounding(matrix->type);
    /* Few rows get logits, and nothing behind them smooths out an error. */
    const bool fine = rounding == ROUNDING_Q8 && (builder->round_finely || source->row_kind == ROWS_OUTPUTS);
    op_add(check, (struct op){.rows = source->row_kind,
                      .out = out,
                      .inputs = INPUTS(weight, x, bias),
                      .matmul = {accumulate, rounding, fine, activation}});
}

void build_matmul(
    struct builder *builder, buffer_id out, buffer_id weight, buffer_id x, buffer_id bias, bool accumulate)
{
    build_any_matmul(builder, out, weight, x, bias, accumulate, ACTIVATION_NONE);
}

void build_activated_matmul(struct builder *builder, buffer_id out, buffer_id weight, buffer_id x,
    buffer_id bias, enum activation activation)
{
    build_any_matmul(builder, out, weight, x, bias, false, activation);
}

void build_rope(struct builder *builder, buffer_id x, uint32_t head_dim, uint32_t rope)
{
    struct check check = {builder, OP_ROPE};
    const struct program_buffer *source = op_find_source(check, "x", x);
    op_require_rows(check, source, ROWS_TOKENS);
    uint32_t heads = op_count_heads(check, source, head_dim);
    if (builder->status != SALVO_OK)
        return;
    const struct program *program = builder->program;
    op_require(
        check, rope < program->rope_count, "rope %u is not there, there are %u", rope, program->rope_count);
    if (builder->status == SALVO_OK) {
        op_require(check, program->ropes[rope].dimensions <= head_dim,
            "rope %u rotates %u columns of each head, heads of '%s' have %u", rope,
            program->ropes[rope].dimensions, source->name, head_dim);
    }
    op_add(check,
        (struct op){.rows = ROWS_TOKENS, .out = x, .inputs = INPUTS(x), .rope = {heads, head_dim, rope}});
}

void build_kv_append(struct builder *builder, buffer_id key_state, buffer_id value_state, buffer_id k,
    buffer_id v, uint32_t head_dim)
{
    struct check check = {builder, OP_KV_APPEND};
    const struct program_buffer *key = op_find_source(check, "k", k), *value = op_find_source(check, "v", v);
    const struct program_buffer *keys = op_find(check, "key state", key_state, BUFFER_CACHE);
    const struct program_buffer *values = op_find(check, "value state", value_state, BUFFER_CACHE);
    op_require_rows(check, key, ROWS_TOKENS);
    op_require_same_shape(check, key, value);
    op_require_columns(check, key, keys);
    op_require_columns(check, value, values);
    op_require(check, key_state != value_state, "'%s' cannot hold both keys and values", keys->name);
    uint32_t kv_heads = op_count_heads(check, key, head_dim);
    if (builder->status != SALVO_OK)
        return;
    op_require(check, key_state != builder->program->tokens && value_state != builder->program->tokens,
        "the tokens cannot hold keys or values");
    op_require(
        check, !builder_has_written(builder, key_state), "'%s' is written twice in a step", keys->name);
    op_require(
        check, !builder_has_written(builder, value_state), "'%s' is written twice in a step", values->name);
    op_add(check, (struct op){.rows = ROWS_TOKENS,
                      .out = NO_BUFFER,
                      .inputs = INPUTS(k, v),
                      .kv_append = {key_state, value_state, kv_heads, head_dim}});
}

/* Keys or values that were appended in this step: a row attends to its own position too. */
static const struct program_buffer *find_appended(struct check check, const char *role, buffer_id state)
{
    const struct program_buffer *buffer = op_find(check, role, state, BUFFER_CACHE);
    if (check.builder->status == SALVO_OK)
        op_require(check, builder_has_written(check.builder, state),
            "%s '%s' is read before kv_append writes it", role, buffer->name);
    return buffer;
}

void build_attend(struct builder *builder, buffer_id out, buffer_id q, buffer_id key_state,
    buffer_id value_state, struct attend_options options)
{
    struct check check = {builder, OP_ATTEND};
    const struct program_buffer *query = op_find_source(check, "q", q), *target = op_find_target(check, out);
    const struct program_buffer *keys = find_appended(check, "key state", key_state);
    const struct program_buffer *values = find_appended(check, "value state", value_state);
    op_require_rows(check, query, ROWS_TOKENS);
    op_require_same_shape(check, query, target);
    op_require_apart(check, query, out, q);
    op_require_columns(check, keys, values);
    op_require(check, key_state != value_state, "'%s' cannot hold both keys and values", keys->name);
    uint32_t heads = op_count_heads(check, query, options.head_dim);
    uint32_t kv_heads = op_count_heads(check, keys, options.head_dim);
    op_require(check, kv_heads > 0 && heads % kv_heads == 0,
        "'%s' has %u heads, which is no multiple of the %u of '%s'", query->name, heads, kv_heads,
        keys->name);
    op_require_positive(check, "scale", options.scale);
    op_require_not_negative(check, "cap", options.cap);
    op_add(check, (struct op){.rows = ROWS_TOKENS,
                      .out = out,
                      .inputs = INPUTS(q),
                      .attend = {key_state, value_state, heads, kv_heads, options.head_dim, options.window,
                          options.scale, options.cap}});
}

void build_glu(
    struct builder *builder, buffer_id out, buffer_id gate, buffer_id up, enum activation activation)
{
    struct check check = {builder, OP_GLU};
    const struct program_buffer *gates = op_find_source(check, "gate", gate);
    const struct program_buffer *ups = op_find_source(check, "up", up), *target = op_find_target(check, out);
    op_require_same_shape(check, gates, ups);
    op_require_same_shape(check, gates, target);
    op_require_apart(check, gates, out, gate);
    op_require_apart(check, ups, out, up);
    op_require(check, (unsigned)activation <= ACTIVATION_GELU, "activation %d is not known", (int)activation);
    op_add(check,
        (struct op){.rows = gates->row_kind, .out = out, .inputs = INPUTS(gate, up), .glu = {activation}});
}

void build_add(struct builder *builder, buffer_id out, buffer_id x)
{
    struct check check = {builder, OP_ADD};
    const struct program_buffer *source = op_find_source(check, "x", x);
    const struct program_buffer *target = op_find_source(check, "out", out);
    op_require_same_shape(check, source, target);
    op_require(check, out != x, "'%s' is added to itself", source->name);
    op_add(check, (struct op){.rows = source->row_kind, .out = out, .inputs = INPUTS(x)});
}

void build_select_rows(struct builder *builder, buffer_id out, buffer_id x)
{
    struct check check = {builder, OP_SELECT_ROWS};
    const struct program_buffer *source = op_find_source(check, "x", x), *target = op_find_target(check, out);
    op_require_columns(check, source, target);
    op_require_rows(check, source, ROWS_TOKENS);
    op_require_rows(check, target, ROWS_OUTPUTS);
    op_add(check, (struct op){.rows = ROWS_OUTPUTS, .out = out, .inputs = INPUTS(x)});
}

void build_softcap(struct builder *builder, buffer_id x, float cap)
{
    struct check check = {builder, OP_SOFTCAP};
    const struct program_buffer *source = op_find_source(check, "x", x);
    op_require_positive(check, "cap", cap);
    op_add(check, (struct op){.rows = source->row_kind, .out = x, .inputs = INPUTS(x), .softcap = {cap}});
}

void build_sample(struct builder *builder, buffer_id logits)
{
    struct check check = {builder, OP_SAMPLE};
    const struct program_buffer *source = op_find_source(check, "logits", logits);
    op_require_rows(check, source, ROWS_OUTPUTS);
    if (builder->status != SALVO_OK)
        return;
    struct program *program = builder->program;
    op_require(check, program->vocabulary == 0 || program->vocabulary == source->columns,
        "logits '%s' has %" PRIu64 " columns, the vocabulary has %u", source->name, source->columns,
        program->vocabulary);
    op_add(check, (struct op){.rows = ROWS_OUTPUTS, .out = program->tokens, .inputs = INPUTS(logits)});
    program->logits = logits;
    program->vocabulary = (uint32_t)source->columns;
}
