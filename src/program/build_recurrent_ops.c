/* The ops of recurrent models, each checked against the buffers it names. */
#include "program/op_checks.h"

/* A group must divide the columns. */
static void require_groups(struct check check, const struct program_buffer *buffer, uint32_t group)
{
    op_require(check, group > 0 && buffer->columns % group == 0,
        "'%s' has %" PRIu64 " columns, which is no multiple of the group of %u", buffer->name,
        buffer->columns, group);
}

/* A vector with an element for each column of `buffer`. */
static void require_vector(
    struct check check, const char *role, buffer_id id, const struct program_buffer *buffer)
{
    op_require_columns(check, op_find_vector(check, role, id), buffer);
}

void build_layer_norm(struct builder *builder, buffer_id out, buffer_id x, buffer_id weight, buffer_id bias,
    uint32_t group, float epsilon)
{
    struct check check = {builder, OP_LAYER_NORM};
    const struct program_buffer *source = op_find_source(check, "x", x);
    op_require_same_shape(check, source, op_find_target(check, out));
    require_vector(check, "weight", weight, source);
    require_vector(check, "bias", bias, source);
    require_groups(check, source, group);
    op_require_not_negative(check, "epsilon", epsilon);
    op_add(check, (struct op){.rows = source->row_kind,
                      .out = out,
                      .inputs = INPUTS(x, weight, bias),
                      .layer_norm = {group, epsilon}});
}

void build_l2_norm(
    struct builder *builder, buffer_id out, buffer_id x, buffer_id weight, uint32_t group, float epsilon)
{
    struct check check = {builder, OP_L2_NORM};
    const struct program_buffer *source = op_find_source(check, "x", x);
    op_require_same_shape(check, source, op_find_target(check, out));
    if (weight != NO_BUFFER)
        require_vector(check, "weight", weight, source);
    require_groups(check, source, group);
    op_require_positive(check, "epsilon", epsilon); /* else a group of zeros would be NaN */
    op_add(check,
        (struct op){
            .rows = source->row_kind, .out = out, .inputs = INPUTS(x, weight), .l2_norm = {group, epsilon}});
}

/* Recurrent state of this size that no op so far folds into. */
static void require_fresh_state(struct check check, buffer_id id, uint64_t columns)
{
    const struct program_buffer *state = op_find(check, "state", id, BUFFER_RECURRENT);
    op_require(check, state->columns == columns, "state '%s' has %" PRIu64 " elements, it must have %" PRIu64,
        state->name, state->columns, columns);
    if (check.builder->status == SALVO_OK)
        op_require(
            check, !builder_has_written(check.builder, id), "'%s' is written twice in a step", state->name);
}

void build_token_shift(struct builder *builder, buffer_id out, buffer_id x, buffer_id state)
{
    struct check check = {builder, OP_TOKEN_SHIFT};
    const struct program_buffer *source = op_find_source(check, "x", x);
    op_require_rows(check, source, ROWS_TOKENS);
    op_require_same_shape(check, source, op_find_target(check, out));
    op_require_apart(check, source, out, x);
    require_fresh_state(check, state, source->columns);
    op_add(check,
        (struct op){.rows = ROWS_TOKENS, .out = out, .inputs = INPUTS(x), .token_shift = {.state = state}});
}

void build_lerp(struct builder *builder, buffer_id out, buffer_id x, buffer_id y, buffer_id weight)
{
    struct check check = {builder, OP_LERP};
    const struct program_buffer *source = op_find_source(check, "x", x);
    op_require_same_shape(check, source, op_find_source(check, "y", y));
    op_require_same_shape(check, source, op_find_target(check, out));
    const struct program *program = builder->program;
    bool is_scratch = builder->status == SALVO_OK && weight >= 0 &&
                      (uint32_t)weight < program->buffer_count &&
                      program->buffers[weight].kind == BUFFER_SCRATCH;
    if (is_scratch)
        op_require_same_shape(check, source, op_find_source(check, "weight", weight));
    else
        require_vector(check, "weight", weight, source);
    op_add(check, (struct op){.rows = source->row_kind, .out = out, .inputs = INPUTS(x, y, weight)});
}

void build_mul(struct builder *builder, buffer_id out, buffer_id x, buffer_id y)
{
    struct check check = {builder, OP_MUL};
    const struct program_buffer *source = op_find_source(check, "x", x);
    op_require_same_shape(check, source, op_find_source(check, "y", y));
    op_require_same_shape(check, source, op_find_target(check, out));
    op_add(check, (struct op){.rows = source->row_kind, .out = out, .inputs = INPUTS(x, y)});
}

void build_rwkv_key(struct builder *builder, buffer_id out, buffer_id k, buffer_id a, buffer_id weight)
{
    struct check check = {builder, OP_RWKV_KEY};
    const struct program_buffer *keys = op_find_source(check, "k", k);
    op_require_same_shape(check, keys, op_find_source(check, "a", a));
    op_require_same_shape(check, keys, op_find_target(check, out));
    require_vector(check, "weight", weight, keys);
    op_add(check, (struct op){.rows = keys->row_kind, .out = out, .inputs = INPUTS(k, a, weight)});
}

void build_wkv7(
    struct builder *builder, buffer_id out, struct wkv7_inputs inputs, buffer_id state, uint32_t head_dim)
{
    struct check check = {builder, OP_WKV7};
    const struct {
        const char *role;
        buffer_id id;
    } sources[] = {{"r", inputs.r}, {"w", inputs.w}, {"k", inputs.k}, {"v", inputs.v}, {"kk", inputs.kk},
        {"a", inputs.a}};
    const struct program_buffer *target = op_find_target(check, out);
    op_require_rows(check, target, ROWS_TOKENS);
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        const struct program_buffer *source = op_find_source(check, sources[i].role, sources[i].id);
        op_require_same_shape(check, source, target);
        op_require_apart(check, source, out, sources[i].id);
    }
    uint32_t heads = op_count_heads(check, target, head_dim);
    require_fresh_state(check, state, (uint64_t)heads * head_dim * head_dim);
    op_add(check, (struct op){.rows = ROWS_TOKENS,
                      .out = out,
                      .inputs = INPUTS(inputs.r, inputs.w, inputs.k, inputs.v, inputs.kk, inputs.a),
                      .wkv7 = {state, heads, head_dim}});
}

void build_rwkv_bonus(struct builder *builder, buffer_id out, buffer_id x, buffer_id r, buffer_id k,
    buffer_id v, buffer_id weight, uint32_t head_dim)
{
    struct check check = {builder, OP_RWKV_BONUS};
    const struct program_buffer *source = op_find_source(check, "x", x);
    op_require_same_shape(check, source, op_find_source(check, "r", r));
    op_require_same_shape(check, source, op_find_source(check, "k", k));
    op_require_same_shape(check, source, op_find_source(check, "v", v));
    op_require_same_shape(check, source, op_find_target(check, out));
    require_vector(check, "weight", weight, source);
    (void)op_count_heads(check, source, head_dim);
    op_require(check, out != r && out != k && out != v, "'%s' is both read and written",
        builder->status == SALVO_OK ? builder->program->buffers[out].name : "");
    op_add(check, (struct op){.rows = source->row_kind,
                      .out = out,
                      .inputs = INPUTS(x, r, k, v, weight),
                      .rwkv_bonus = {head_dim}});
}
