#include "program/op_table.h"

#define ROWS(name)                        name, OPERAND_ROWS, 0
#define ROWS_IN_PLACE(name)               name, OPERAND_ROWS, OPERAND_IN_PLACE
#define VECTOR(name)                      name, OPERAND_VECTOR, 0
#define SHOWN(name, kind, member, hidden) name, PARAMETER_##kind, offsetof(struct op, member), hidden
#define PARAMETER(name, kind, member)     SHOWN(name, kind, member, HIDDEN_NEVER), false
#define UNLESS_ZERO(name, kind, member)   SHOWN(name, kind, member, HIDDEN_AT_ZERO), false
#define UNLESS_ONE(name, kind, member)    SHOWN(name, kind, member, HIDDEN_AT_ONE), false
#define JOINED(name, member)              SHOWN(name, NUMBER, member, HIDDEN_NEVER), true

const struct op_info op_infos[OP_KIND_COUNT] = {
    [OP_EMBED] = {.name = "embed",
        .rows = OP_ROWS_TOKENS,
        .inputs = {{"table", OPERAND_TABLE, 0}, {"tokens", OPERAND_TOKENS, 0}},
        .parameters = {{UNLESS_ONE("scale", POSITIVE, embed.scale)}}},
    [OP_RMS_NORM] = {.name = "rms_norm",
        .tolerance = 1e-5F,
        .inputs = {{ROWS_IN_PLACE("x")}, {"weight", OPERAND_VECTOR, OPERAND_OTHER_COLUMNS}},
        .parameters = {{PARAMETER("per", GROUP, rms_norm.group)},
            {PARAMETER("epsilon", NOT_NEGATIVE, rms_norm.epsilon)}}},
    [OP_LAYER_NORM] = {.name = "layer_norm",
        .tolerance = 1e-5F,
        .inputs = {{ROWS_IN_PLACE("x")}, {VECTOR("weight")}, {VECTOR("bias")}},
        .parameters = {{PARAMETER("per", GROUP, layer_norm.group)},
            {PARAMETER("epsilon", NOT_NEGATIVE, layer_norm.epsilon)}},
        .head_scope = HEAD_SCOPE_GROUP},
    [OP_L2_NORM] = {.name = "l2_norm",
        .tolerance = 1e-5F,
        .inputs = {{ROWS_IN_PLACE("x")}, {"weight", OPERAND_VECTOR, OPERAND_OPTIONAL}},
        /* With an epsilon of 0 a group of zeros would become NaN. */
        .parameters = {{PARAMETER("per", GROUP, l2_norm.group)},
            {PARAMETER("epsilon", POSITIVE, l2_norm.epsilon)}},
        .head_scope = HEAD_SCOPE_GROUP},
    [OP_MATMUL] = {.name = "matmul",
        .inputs = {{"weight", OPERAND_MATRIX, 0}, {"x", OPERAND_ROWS, OPERAND_OTHER_COLUMNS},
            {"bias", OPERAND_VECTOR, OPERAND_OPTIONAL | OPERAND_OTHER_COLUMNS}},
        .out = OUT_MATMUL,
        .parameters = {{PARAMETER("rounding", ROUNDING, matmul.rounding)},
            {UNLESS_ZERO("fine", FLAG, matmul.fine)},
            {UNLESS_ZERO("activation", ACTIVATION, matmul.activation)}},
        .has_own_phase = true},
    [OP_ROPE] = {.name = "rope",
        .tolerance = 1e-5F,
        .rows = OP_ROWS_TOKENS,
        .inputs = {{ROWS("x")}},
        .out = OUT_IN_PLACE,
        .parameters = {{PARAMETER("heads", NUMBER, rope.heads)}, {JOINED("of", rope.head_dim)},
            {PARAMETER("rope", NUMBER, rope.rope)}}},
    [OP_KV_APPEND] = {.name = "kv_append",
        .tolerance = 1.0F / 127, /* one rounding step of the coarsest cache */
        .rows = OP_ROWS_TOKENS,
        .inputs = {{ROWS("k")}, {ROWS("v")}},
        .out = OUT_NONE,
        .states = {{"key cache", STATE_APPENDED}, {"value cache", STATE_APPENDED}},
        .parameters = {{PARAMETER("heads", NUMBER, kv_append.kv_heads)}, {JOINED("of", kv_append.head_dim)}}},
    [OP_ATTEND] = {.name = "attend",
        .tolerance = 1e-4F,
        .rows = OP_ROWS_TOKENS,
        .inputs = {{ROWS("q")}},
        .states = {{"key cache", STATE_READ}, {"value cache", STATE_READ}},
        .parameters = {{PARAMETER("heads", NUMBER, attend.heads)}, {JOINED("of", attend.head_dim)},
            {JOINED("on", attend.kv_heads)}, {PARAMETER("scale", POSITIVE, attend.scale)},
            {UNLESS_ZERO("cap", NOT_NEGATIVE, attend.cap)}, {UNLESS_ZERO("window", NUMBER, attend.window)}},
        .has_own_phase = true},
    [OP_GLU] = {.name = "glu",
        .tolerance = 1e-5F,
        .inputs = {{ROWS("gate")}, {ROWS("up")}},
        .parameters = {{PARAMETER("activation", ACTIVATION, glu.activation)}}},
    [OP_ADD] = {.name = "add", .tolerance = 1e-6F, .inputs = {{ROWS("x")}}, .out = OUT_ADDED},
    [OP_MUL] = {.name = "mul",
        .tolerance = 1e-6F,
        .inputs = {{ROWS_IN_PLACE("x")}, {ROWS_IN_PLACE("y")}},
        .head_scope = HEAD_SCOPE_COLUMN},
    [OP_LERP] = {.name = "lerp",
        .tolerance = 1e-6F,
        .inputs = {{ROWS_IN_PLACE("x")}, {ROWS_IN_PLACE("y")},
            {"weight", OPERAND_VECTOR_OR_ROWS, OPERAND_IN_PLACE}},
        .head_scope = HEAD_SCOPE_COLUMN},
    [OP_TOKEN_SHIFT] = {.name = "token_shift",
        .rows = OP_ROWS_TOKENS,
        .inputs = {{ROWS("x")}},
        .states = {{"state", STATE_REPLACED}},
        .reads_previous_row = true},
    [OP_RWKV_KEY] = {.name = "rwkv_key",
        .tolerance = 1e-6F,
        .inputs = {{ROWS_IN_PLACE("k")}, {ROWS_IN_PLACE("a")}, {VECTOR("weight")}},
        .head_scope = HEAD_SCOPE_COLUMN},
    [OP_WKV7] = {.name = "wkv7",
        .tolerance = 1e-4F,
        .rows = OP_ROWS_TOKENS,
        .inputs = {{ROWS("r")}, {ROWS("w")}, {ROWS("k")}, {ROWS("v")}, {ROWS("kk")}, {ROWS("a")}},
        .states = {{"state", STATE_REPLACED}},
        .parameters = {{PARAMETER("heads", NUMBER, wkv7.heads)}, {JOINED("of", wkv7.head_dim)}},
        .has_own_phase = true},
    [OP_RWKV_BONUS] = {.name = "rwkv_bonus",
        .tolerance = 1e-5F,
        .inputs = {{ROWS_IN_PLACE("x")}, {ROWS("r")}, {ROWS("k")}, {ROWS("v")}, {VECTOR("weight")}},
        .parameters = {{PARAMETER("per", NUMBER, rwkv_bonus.head_dim)}},
        .head_scope = HEAD_SCOPE_HEAD},
    [OP_SELECT_ROWS] = {.name = "select_rows",
        .rows = OP_ROWS_OUTPUTS,
        .inputs = {{"x", OPERAND_ROWS, OPERAND_TOKEN_ROWS}}},
    [OP_SOFTCAP] = {.name = "softcap",
        .tolerance = 1e-5F,
        .inputs = {{ROWS("x")}},
        .out = OUT_IN_PLACE,
        .parameters = {{PARAMETER("cap", POSITIVE, softcap.cap)}}},
    [OP_SAMPLE] = {.name = "sample",
        .rows = OP_ROWS_OUTPUTS,
        .inputs = {{ROWS("logits")}},
        .out = OUT_TOKENS,
        .has_own_phase = true},
};

float op_tolerance(const struct op *op)
{
    static const float matmul[] = {
        [ROUNDING_F32] = 1e-4F,
        [ROUNDING_F16] = 5e-4F, /* the step of a half is 1e-3 of it: a value may be rounded the other way */
        [ROUNDING_Q8] = 2e-3F,
    };
    if (op->kind != OP_MATMUL)
        return op_infos[op->kind].tolerance;
    /* A square has twice the relative error of the number. */
    return matmul[op->matmul.rounding] * (op->matmul.activation == ACTIVATION_RELU_SQUARED ? 2.0F : 1.0F);
}

const char *rounding_name(enum rounding rounding)
{
    static const char *const names[] = {[ROUNDING_F32] = "f32", [ROUNDING_F16] = "f16", [ROUNDING_Q8] = "q8"};
    return names[rounding];
}

bool op_adds(const struct op *op)
{
    const enum out_kind out = op_infos[op->kind].out;
    return out == OUT_ADDED || (out == OUT_MATMUL && op->matmul.accumulate);
}
