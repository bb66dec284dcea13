/* The build_ functions of ops that most models use. op_check compares operands with op_table.c; each function
 * adds the checks that are its own. build_recurrent_ops.c has the ops of recurrent models. */
#include "program/op_checks.h"

void build_embed(struct builder *builder, buffer_id out, buffer_id table, float scale)
{
    struct op op = {.kind = OP_EMBED, .out = out, .inputs = INPUTS(table), .embed = {scale}};
    if (!op_check(builder, &op))
        return;
    const struct program_buffer *weight = &builder->program->buffers[table];
    uint32_t *vocabulary = &builder->program->vocabulary;
    op_require_columns(builder, &op, table, out);
    op_require(builder, &op, *vocabulary == 0 || *vocabulary == weight->rows,
        "table '%s' has %" PRIu64 " rows, the vocabulary has %u", weight->name, weight->rows, *vocabulary);
    op_append(builder, &op);
    *vocabulary = (uint32_t)weight->rows;
}

void build_rms_norm(struct builder *builder, buffer_id out, buffer_id x, buffer_id weight, float epsilon)
{
    struct op op = {.kind = OP_RMS_NORM, .out = out, .inputs = INPUTS(x, weight)};
    if (!op_check(builder, &op))
        return;
    op.rms_norm.group = (uint32_t)builder->program->buffers[weight].columns;
    op.rms_norm.epsilon = epsilon;
    op_append(builder, &op);
}

/* Integer kernels take int8 activations, float kernels the activations as they are. */
static enum rounding choose_rounding(enum tensor_type weight)
{
    if (weight == TYPE_F16)
        return ROUNDING_F16;
    return weight == TYPE_F32 || weight == TYPE_BF16 ? ROUNDING_F32 : ROUNDING_Q8;
}

static void build_any_matmul(struct builder *builder, buffer_id out, buffer_id weight, buffer_id x,
    buffer_id bias, bool accumulate, enum activation activation)
{
    struct op op = {.kind = OP_MATMUL,
        .out = out,
        .inputs = INPUTS(weight, x, bias),
        .matmul = {.accumulate = accumulate, .activation = activation}};
    if (!op_check(builder, &op))
        return;
    const struct program_buffer *matrix = &builder->program->buffers[weight];
    op_require_columns(builder, &op, weight, x);
    op_require_equal(
        builder, &op, "rows", weight, matrix->rows, "columns", out, builder->program->buffers[out].columns);
    if (bias != NO_BUFFER)
        op_require_columns(builder, &op, bias, out);
    op_require(builder, &op,
        activation == ACTIVATION_NONE || (activation > ACTIVATION_GELU && activation < ACTIVATION_COUNT),
        "activation %d is not valid for matmul", (int)activation);
    op.matmul.rounding = choose_rounding(matrix->type);
    /* Few rows get logits, and no later op averages their errors out. */
    op.matmul.fine = op.matmul.rounding == ROUNDING_Q8 && (builder->round_finely || op.rows == ROWS_OUTPUTS);
    op_append(builder, &op);
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
    struct op op = {.kind = OP_ROPE, .inputs = INPUTS(x), .rope = {.head_dim = head_dim, .rope = rope}};
    if (!op_check(builder, &op))
        return;
    const struct program *program = builder->program;
    op.rope.heads = op_count_heads(builder, &op, x, head_dim);
    op_require(builder, &op, rope < program->rope_count, "rope %u does not exist, the program has %u", rope,
        program->rope_count);
    if (builder->status == SALVO_OK) {
        op_require(builder, &op, program->ropes[rope].dimensions <= head_dim,
            "rope %u rotates %u columns of each head, heads of '%s' have %u", rope,
            program->ropes[rope].dimensions, program->buffers[x].name, head_dim);
    }
    op_append(builder, &op);
}

void build_kv_append(struct builder *builder, buffer_id key_state, buffer_id value_state, buffer_id k,
    buffer_id v, uint32_t head_dim)
{
    struct op op = {.kind = OP_KV_APPEND,
        .inputs = INPUTS(k, v),
        .kv_append = {.key_state = key_state, .value_state = value_state, .head_dim = head_dim}};
    if (!op_check(builder, &op))
        return;
    op_require_state(builder, &op, 0, builder->program->buffers[k].columns);
    op_require_state(builder, &op, 1, builder->program->buffers[v].columns);
    op.kv_append.kv_heads = op_count_heads(builder, &op, k, head_dim);
    op_append(builder, &op);
}

void build_attend(struct builder *builder, buffer_id out, buffer_id q, buffer_id key_state,
    buffer_id value_state, struct attend_options options)
{
    struct op op = {.kind = OP_ATTEND,
        .out = out,
        .inputs = INPUTS(q),
        .attend = {.key_state = key_state,
            .value_state = value_state,
            .head_dim = options.head_dim,
            .window = options.window,
            .scale = options.scale,
            .cap = options.cap}};
    if (!op_check(builder, &op))
        return;
    const struct program_buffer *buffers = builder->program->buffers;
    op_require_columns(builder, &op, key_state, value_state);
    const uint32_t heads = op.attend.heads = op_count_heads(builder, &op, q, options.head_dim);
    const uint32_t kv_heads = op.attend.kv_heads = op_count_heads(builder, &op, key_state, options.head_dim);
    op_require(builder, &op, heads % kv_heads == 0,
        "'%s' has %u heads, which is not a multiple of the %u heads of '%s'", buffers[q].name, heads,
        kv_heads, buffers[key_state].name);
    op_append(builder, &op);
}

void build_glu(
    struct builder *builder, buffer_id out, buffer_id gate, buffer_id up, enum activation activation)
{
    struct op op = {.kind = OP_GLU, .out = out, .inputs = INPUTS(gate, up), .glu = {activation}};
    if (!op_check(builder, &op))
        return;
    op_require(builder, &op, (unsigned)activation <= ACTIVATION_GELU, "activation %d is not valid for glu",
        (int)activation);
    op_append(builder, &op);
}

void build_add(struct builder *builder, buffer_id out, buffer_id x)
{
    op_add(builder, (struct op){.kind = OP_ADD, .out = out, .inputs = INPUTS(x)});
}

void build_select_rows(struct builder *builder, buffer_id out, buffer_id x)
{
    op_add(builder, (struct op){.kind = OP_SELECT_ROWS, .out = out, .inputs = INPUTS(x)});
    builder->program->hidden = x;
}

void build_softcap(struct builder *builder, buffer_id x, float cap)
{
    op_add(builder, (struct op){.kind = OP_SOFTCAP, .inputs = INPUTS(x), .softcap = {cap}});
}

void build_sample(struct builder *builder, buffer_id logits)
{
    struct op op = {.kind = OP_SAMPLE, .inputs = INPUTS(logits)};
    if (!op_check(builder, &op))
        return;
    struct program *program = builder->program;
    const struct program_buffer *source = &program->buffers[logits];
    op_require(builder, &op, program->vocabulary == 0 || program->vocabulary == source->columns,
        "logits '%s' has %" PRIu64 " columns, the vocabulary has %u", source->name, source->columns,
        program->vocabulary);
    op_append(builder, &op);
    program->logits = logits;
    program->vocabulary = (uint32_t)source->columns;
}
