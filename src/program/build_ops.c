/*
 * The ops of a program, each checked against the buffers it names. Every check refuses at most once and
 * leaves the builder stopped, so that the functions read as lists of what must hold; buffers that could not
 * be found are stood in for by an empty one.
 */
#include "program/builder.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

/* The op that is being built. */
struct check {
    struct builder *builder;
    enum op_kind kind;
};

static const char *const kind_names[] = {
    [BUFFER_WEIGHT] = "weight",
    [BUFFER_POSITIONAL] = "positional state",
    [BUFFER_FOLDED] = "folded state",
    [BUFFER_SCRATCH] = "scratch",
};

static const char *const row_names[ROW_KIND_COUNT] = {
    [ROWS_TOKENS] = "tokens", [ROWS_RUNS] = "runs", [ROWS_OUTPUTS] = "outputs"};

static void require(struct check check, bool condition, const char *format, ...) PRINTF_LIKE(3, 4);
static void require(struct check check, bool condition, const char *format, ...)
{
    if (condition || check.builder->status != SALVO_OK)
        return;
    char message[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    builder_refuse(check.builder, SALVO_ERROR_ARGUMENT, "op %u, %s: %s", check.builder->program->op_count,
        op_infos[check.kind].name, message);
}

/* A buffer of a certain kind; `role` says what it is to the op. */
static const struct program_buffer *find(
    struct check check, const char *role, buffer_id id, enum buffer_kind kind)
{
    static const struct program_buffer nothing = {.name = ""};
    const struct builder *builder = check.builder;
    if (builder->status != SALVO_OK)
        return &nothing;
    const struct program *program = builder->program;
    require(check, id != NO_BUFFER, "%s is missing", role);
    require(check, id >= 0 && (uint32_t)id < program->buffer_count, "%s is buffer %d, there are %u buffers",
        role, id, program->buffer_count);
    if (builder->status != SALVO_OK)
        return &nothing;
    const struct program_buffer *buffer = &program->buffers[id];
    require(check, buffer->kind == kind, "%s '%s' is %s, it must be %s", role, buffer->name,
        kind_names[buffer->kind], kind_names[kind]);
    return builder->status == SALVO_OK ? buffer : &nothing;
}

/* Scratch that the op reads, so something must be in it. */
static const struct program_buffer *find_source(struct check check, const char *role, buffer_id id)
{
    const struct program_buffer *buffer = find(check, role, id, BUFFER_SCRATCH);
    if (check.builder->status == SALVO_OK)
        require(check, builder_has_written(check.builder, id), "%s '%s' is read before any op writes it",
            role, buffer->name);
    return buffer;
}

static const struct program_buffer *find_target(struct check check, buffer_id id)
{
    return find(check, "out", id, BUFFER_SCRATCH);
}

static const struct program_buffer *find_vector(struct check check, const char *role, buffer_id id)
{
    const struct program_buffer *vector = find(check, role, id, BUFFER_WEIGHT);
    require(check, vector->rows == 1, "%s '%s' has %" PRIu64 " rows, it must be a vector", role, vector->name,
        vector->rows);
    return vector;
}

static void require_equal(struct check check, const char *a_what, const struct program_buffer *a,
    uint64_t a_number, const char *b_what, const struct program_buffer *b, uint64_t b_number)
{
    require(check, a_number == b_number,
        "'%s' has %" PRIu64 " %s and '%s' has %" PRIu64 " %s, they must be equal", a->name, a_number, a_what,
        b->name, b_number, b_what);
}

static void require_rows(struct check check, const struct program_buffer *buffer, enum row_kind rows)
{
    require(check, buffer->row_kind == rows, "'%s' has rows of %s, it must have rows of %s", buffer->name,
        row_names[buffer->row_kind], row_names[rows]);
}

static void require_same_rows(
    struct check check, const struct program_buffer *a, const struct program_buffer *b)
{
    require(check, a->row_kind == b->row_kind, "'%s' has rows of %s and '%s' has rows of %s", a->name,
        row_names[a->row_kind], b->name, row_names[b->row_kind]);
}

static void require_same_shape(
    struct check check, const struct program_buffer *a, const struct program_buffer *b)
{
    require_equal(check, "columns", a, a->columns, "columns", b, b->columns);
    require_same_rows(check, a, b);
}

static void require_apart(
    struct check check, const struct program_buffer *buffer, buffer_id out, buffer_id input)
{
    require(
        check, out != input, "'%s' is both read and written, this op does not work in place", buffer->name);
}

static void require_positive(struct check check, const char *what, float value)
{
    require(check, isfinite(value) && value > 0, "%s is %g, it must be positive", what, (double)value);
}

static void require_not_negative(struct check check, const char *what, float value)
{
    require(check, isfinite(value) && value >= 0, "%s is %g, it must be 0 or more", what, (double)value);
}

/* How many heads a row has. */
static uint32_t count_heads(struct check check, const struct program_buffer *buffer, uint32_t head_dim)
{
    require(check, head_dim > 0 && head_dim % 8 == 0, "head_dim is %u, it must be a multiple of 8", head_dim);
    if (!head_dim)
        return 1;
    require(check, buffer->columns % head_dim == 0,
        "'%s' has %" PRIu64 " columns, which is no multiple of the head_dim %u", buffer->name,
        buffer->columns, head_dim);
    return (uint32_t)(buffer->columns / head_dim);
}

/* The op's last check: `sample` ends a program. */
static void add(struct check check, struct op op)
{
    if (check.builder->status == SALVO_OK)
        require(check, check.builder->program->logits == NO_BUFFER, "%s",
            check.kind == OP_SAMPLE ? "there is a sample op already" : "sample was the last op");
    op.kind = check.kind;
    builder_add_op(check.builder, &op);
}

void build_embed(struct builder *builder, buffer_id out, buffer_id table, float scale)
{
    struct check check = {builder, OP_EMBED};
    const struct program_buffer *weight = find(check, "table", table, BUFFER_WEIGHT);
    const struct program_buffer *target = find_target(check, out);
    require_equal(check, "columns", weight, weight->columns, "columns", target, target->columns);
    require_rows(check, target, ROWS_TOKENS);
    require_positive(check, "scale", scale);
    if (builder->status != SALVO_OK)
        return;
    uint32_t *vocabulary = &builder->program->vocabulary;
    require(check, *vocabulary == 0 || *vocabulary == weight->rows,
        "table '%s' has %" PRIu64 " rows, the vocabulary has %u", weight->name, weight->rows, *vocabulary);
    *vocabulary = (uint32_t)weight->rows;
    add(check, (struct op){.rows = ROWS_TOKENS,
                   .out = out,
                   .inputs = {table, builder->program->tokens, NO_BUFFER},
                   .embed = {scale}});
}

void build_rms_norm(struct builder *builder, buffer_id out, buffer_id x, buffer_id weight, float epsilon)
{
    struct check check = {builder, OP_RMS_NORM};
    const struct program_buffer *source = find_source(check, "x", x);
    const struct program_buffer *vector = find_vector(check, "weight", weight);
    const struct program_buffer *target = find_target(check, out);
    require_same_shape(check, source, target);
    require(check, vector->columns > 0 && source->columns % vector->columns == 0,
        "'%s' has %" PRIu64 " columns, which is no multiple of the %" PRIu64 " of '%s'", source->name,
        source->columns, vector->columns, vector->name);
    require_not_negative(check, "epsilon", epsilon);
    add(check, (struct op){.rows = source->row_kind,
                   .out = out,
                   .inputs = {x, weight, NO_BUFFER},
                   .rms_norm = {(uint32_t)vector->columns, epsilon}});
}

/* Integer kernels take bytes, float kernels the activations as they are. */
static enum rounding choose_rounding(enum tensor_type weight)
{
    return weight == TYPE_F32 || weight == TYPE_F16 || weight == TYPE_BF16 ? ROUNDING_F32 : ROUNDING_Q8;
}

void build_matmul(
    struct builder *builder, buffer_id out, buffer_id weight, buffer_id x, buffer_id bias, bool accumulate)
{
    struct check check = {builder, OP_MATMUL};
    const struct program_buffer *matrix = find(check, "weight", weight, BUFFER_WEIGHT);
    const struct program_buffer *source = find_source(check, "x", x);
    const struct program_buffer *target =
        accumulate ? find_source(check, "out", out) : find_target(check, out);
    require_equal(check, "columns", matrix, matrix->columns, "columns", source, source->columns);
    require_equal(check, "rows", matrix, matrix->rows, "columns", target, target->columns);
    require_same_rows(check, source, target);
    require_apart(check, source, out, x);
    if (bias != NO_BUFFER) {
        const struct program_buffer *vector = find_vector(check, "bias", bias);
        require_equal(check, "columns", vector, vector->columns, "columns", target, target->columns);
    }
    add(check, (struct op){.rows = source->row_kind,
                   .out = out,
                   .inputs = {weight, x, bias},
                   .matmul = {accumulate, choose_rounding(matrix->type)}});
}

void build_rope(struct builder *builder, buffer_id x, uint32_t head_dim, uint32_t rope)
{
    struct check check = {builder, OP_ROPE};
    const struct program_buffer *source = find_source(check, "x", x);
    require_rows(check, source, ROWS_TOKENS);
    uint32_t heads = count_heads(check, source, head_dim);
    if (builder->status != SALVO_OK)
        return;
    const struct program *program = builder->program;
    require(
        check, rope < program->rope_count, "rope %u is not there, there are %u", rope, program->rope_count);
    if (builder->status == SALVO_OK)
        require(check, program->ropes[rope].dimensions <= head_dim,
            "rope %u rotates %u columns of each head, heads of '%s' have %u", rope,
            program->ropes[rope].dimensions, source->name, head_dim);
    add(check, (struct op){.rows = ROWS_TOKENS,
                   .out = x,
                   .inputs = {x, NO_BUFFER, NO_BUFFER},
                   .rope = {heads, head_dim, rope}});
}

void build_kv_append(struct builder *builder, buffer_id key_state, buffer_id value_state, buffer_id k,
    buffer_id v, uint32_t head_dim)
{
    struct check check = {builder, OP_KV_APPEND};
    const struct program_buffer *key = find_source(check, "k", k), *value = find_source(check, "v", v);
    const struct program_buffer *keys = find(check, "key state", key_state, BUFFER_POSITIONAL);
    const struct program_buffer *values = find(check, "value state", value_state, BUFFER_POSITIONAL);
    require_rows(check, key, ROWS_TOKENS);
    require_same_shape(check, key, value);
    require_equal(check, "columns", key, key->columns, "columns", keys, keys->columns);
    require_equal(check, "columns", value, value->columns, "columns", values, values->columns);
    require(check, key_state != value_state, "'%s' cannot hold both keys and values", keys->name);
    uint32_t kv_heads = count_heads(check, key, head_dim);
    if (builder->status != SALVO_OK)
        return;
    require(check, key_state != builder->program->tokens && value_state != builder->program->tokens,
        "the tokens cannot hold keys or values");
    require(check, !builder_has_written(builder, key_state), "'%s' is written twice in a step", keys->name);
    require(
        check, !builder_has_written(builder, value_state), "'%s' is written twice in a step", values->name);
    add(check, (struct op){.rows = ROWS_TOKENS,
                   .out = NO_BUFFER,
                   .inputs = {k, v, NO_BUFFER},
                   .kv_append = {key_state, value_state, kv_heads, head_dim}});
}

/* Keys or values that were appended in this step: a row attends to its own position too. */
static const struct program_buffer *find_appended(struct check check, const char *role, buffer_id state)
{
    const struct program_buffer *buffer = find(check, role, state, BUFFER_POSITIONAL);
    if (check.builder->status == SALVO_OK)
        require(check, builder_has_written(check.builder, state),
            "%s '%s' is read before kv_append writes it", role, buffer->name);
    return buffer;
}

void build_attend(struct builder *builder, buffer_id out, buffer_id q, buffer_id key_state,
    buffer_id value_state, struct attend_options options)
{
    struct check check = {builder, OP_ATTEND};
    const struct program_buffer *query = find_source(check, "q", q), *target = find_target(check, out);
    const struct program_buffer *keys = find_appended(check, "key state", key_state);
    const struct program_buffer *values = find_appended(check, "value state", value_state);
    require_rows(check, query, ROWS_TOKENS);
    require_same_shape(check, query, target);
    require_apart(check, query, out, q);
    require_equal(check, "columns", keys, keys->columns, "columns", values, values->columns);
    require(check, key_state != value_state, "'%s' cannot hold both keys and values", keys->name);
    uint32_t heads = count_heads(check, query, options.head_dim);
    uint32_t kv_heads = count_heads(check, keys, options.head_dim);
    require(check, kv_heads > 0 && heads % kv_heads == 0,
        "'%s' has %u heads, which is no multiple of the %u of '%s'", query->name, heads, kv_heads,
        keys->name);
    require_positive(check, "scale", options.scale);
    require_not_negative(check, "cap", options.cap);
    add(check, (struct op){.rows = ROWS_TOKENS,
                   .out = out,
                   .inputs = {q, NO_BUFFER, NO_BUFFER},
                   .attend = {key_state, value_state, heads, kv_heads, options.head_dim, options.window,
                       options.scale, options.cap}});
}

void build_glu(
    struct builder *builder, buffer_id out, buffer_id gate, buffer_id up, enum activation activation)
{
    struct check check = {builder, OP_GLU};
    const struct program_buffer *gates = find_source(check, "gate", gate);
    const struct program_buffer *ups = find_source(check, "up", up), *target = find_target(check, out);
    require_same_shape(check, gates, ups);
    require_same_shape(check, gates, target);
    require_apart(check, gates, out, gate);
    require_apart(check, ups, out, up);
    require(check, (unsigned)activation <= ACTIVATION_GELU, "activation %d is not known", (int)activation);
    add(check,
        (struct op){
            .rows = gates->row_kind, .out = out, .inputs = {gate, up, NO_BUFFER}, .glu = {activation}});
}

void build_add(struct builder *builder, buffer_id out, buffer_id x)
{
    struct check check = {builder, OP_ADD};
    const struct program_buffer *source = find_source(check, "x", x);
    const struct program_buffer *target = find_source(check, "out", out);
    require_same_shape(check, source, target);
    require(check, out != x, "'%s' is added to itself", source->name);
    add(check, (struct op){.rows = source->row_kind, .out = out, .inputs = {x, NO_BUFFER, NO_BUFFER}});
}

void build_select_rows(struct builder *builder, buffer_id out, buffer_id x)
{
    struct check check = {builder, OP_SELECT_ROWS};
    const struct program_buffer *source = find_source(check, "x", x), *target = find_target(check, out);
    require_equal(check, "columns", source, source->columns, "columns", target, target->columns);
    require_rows(check, source, ROWS_TOKENS);
    require_rows(check, target, ROWS_OUTPUTS);
    add(check, (struct op){.rows = ROWS_OUTPUTS, .out = out, .inputs = {x, NO_BUFFER, NO_BUFFER}});
}

void build_softcap(struct builder *builder, buffer_id x, float cap)
{
    struct check check = {builder, OP_SOFTCAP};
    const struct program_buffer *source = find_source(check, "x", x);
    require_positive(check, "cap", cap);
    add(check,
        (struct op){
            .rows = source->row_kind, .out = x, .inputs = {x, NO_BUFFER, NO_BUFFER}, .softcap = {cap}});
}

void build_sample(struct builder *builder, buffer_id logits)
{
    struct check check = {builder, OP_SAMPLE};
    const struct program_buffer *source = find_source(check, "logits", logits);
    require_rows(check, source, ROWS_OUTPUTS);
    if (builder->status != SALVO_OK)
        return;
    struct program *program = builder->program;
    require(check, program->vocabulary == 0 || program->vocabulary == source->columns,
        "logits '%s' has %" PRIu64 " columns, the vocabulary has %u", source->name, source->columns,
        program->vocabulary);
    add(check,
        (struct op){.rows = ROWS_OUTPUTS, .out = program->tokens, .inputs = {logits, NO_BUFFER, NO_BUFFER}});
    program->logits = logits;
    program->vocabulary = (uint32_t)source->columns;
}
