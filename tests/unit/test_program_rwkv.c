/* The ops of recurrent models: how they print, what they read and write, and every way to use them wrongly.
 */
#include "cmocka_test.h"
#include "gguf_model.h"
#include "program/program.h"

#include <math.h>
#include <string.h>

enum { WIDTH = 32, HEAD = 8, VOCABULARY = 40 };

struct parts {
    struct builder builder;
    buffer_id table, square, vector, narrow_vector, stack;
    buffer_id x, y, z, narrow, empty, o, logits;
    buffer_id shift, wkv;
};

static void make_file(struct gguf_model *model)
{
    *model = (struct gguf_model){0};
    model_tensor(model, TYPE_Q8_0, WIDTH, VOCABULARY, "table");
    model_tensor(model, TYPE_F32, WIDTH, WIDTH, "square");
    model_tensor(model, TYPE_F32, WIDTH, 0, "vector");
    model_tensor(model, TYPE_F32, HEAD, 0, "narrow_vector");
    model_tensor(model, TYPE_F32, WIDTH, 6, "stack");
}

static void make_parts(struct parts *p, const struct gguf *gguf)
{
    struct builder *b = &p->builder;
    assert_int_equal(builder_open(b, gguf), SALVO_OK);
    p->table = builder_weight(b, VOCABULARY, WIDTH, "table");
    p->square = builder_weight(b, WIDTH, WIDTH, "square");
    p->vector = builder_weight(b, 1, WIDTH, "vector");
    p->narrow_vector = builder_weight(b, 1, HEAD, "narrow_vector");
    p->stack = builder_weight(b, 6, WIDTH, "stack");
    p->x = builder_scratch(b, ROWS_TOKENS, WIDTH, "x");
    p->y = builder_scratch(b, ROWS_TOKENS, WIDTH, "y");
    p->z = builder_scratch(b, ROWS_TOKENS, WIDTH, "z");
    p->narrow = builder_scratch(b, ROWS_TOKENS, HEAD, "narrow");
    p->empty = builder_scratch(b, ROWS_TOKENS, WIDTH, "empty");
    p->o = builder_scratch(b, ROWS_OUTPUTS, WIDTH, "o");
    p->logits = builder_scratch(b, ROWS_OUTPUTS, VOCABULARY, "logits");
    p->shift = builder_recurrent(b, WIDTH, "shift.%d", 0);
    p->wkv = builder_recurrent(b, WIDTH * HEAD, "wkv.%d", 0);
    build_embed(b, p->x, p->table, 1);
    build_embed(b, p->y, p->table, 1);
    build_select_rows(b, p->o, p->x);
    assert_int_equal(b->status, SALVO_OK);
}

static struct wkv7_inputs all_inputs(buffer_id buffer)
{
    return (struct wkv7_inputs){buffer, buffer, buffer, buffer, buffer, buffer};
}

/* Each does one thing wrong. The text is what the message must say, after the file's name. */
struct mistake {
    void (*make)(struct parts *p);
    const char *text;
};

#define MISTAKE(name, ...)               \
    static void name(struct parts *p)    \
    {                                    \
        struct builder *b = &p->builder; \
        __VA_ARGS__;                     \
    }

MISTAKE(norm_of_nothing, build_layer_norm(b, p->y, p->empty, p->vector, p->vector, WIDTH, 0))
MISTAKE(norm_to_outputs, build_layer_norm(b, p->o, p->x, p->vector, p->vector, WIDTH, 0))
MISTAKE(norm_without_bias, build_layer_norm(b, p->y, p->x, p->vector, NO_BUFFER, WIDTH, 0))
MISTAKE(norm_narrow_weight, build_layer_norm(b, p->y, p->x, p->narrow_vector, p->vector, HEAD, 0))
MISTAKE(norm_stacked_weight, build_layer_norm(b, p->y, p->x, p->stack, p->vector, WIDTH, 0))
MISTAKE(norm_odd_group, build_layer_norm(b, p->y, p->x, p->vector, p->vector, 5, 0))
MISTAKE(norm_group_zero, build_layer_norm(b, p->y, p->x, p->vector, p->vector, 0, 0))
MISTAKE(norm_epsilon, build_layer_norm(b, p->y, p->x, p->vector, p->vector, WIDTH, -1))
MISTAKE(l2_narrow, build_l2_norm(b, p->narrow, p->x, p->vector, HEAD, 1e-12f))
MISTAKE(l2_weight, build_l2_norm(b, p->y, p->x, p->narrow_vector, HEAD, 1e-12f))
MISTAKE(l2_group, build_l2_norm(b, p->y, p->x, NO_BUFFER, 7, 1e-12f))
MISTAKE(l2_epsilon, build_l2_norm(b, p->y, p->x, NO_BUFFER, HEAD, 0))
MISTAKE(shift_in_place, build_token_shift(b, p->x, p->x, p->shift))
MISTAKE(shift_of_outputs, build_token_shift(b, p->y, p->o, p->shift))
MISTAKE(shift_narrow, build_token_shift(b, p->narrow, p->x, p->shift))
MISTAKE(shift_large_state, build_token_shift(b, p->y, p->x, p->wkv))
MISTAKE(shift_scratch_state, build_token_shift(b, p->y, p->x, p->z))
MISTAKE(shift_no_state, build_token_shift(b, p->y, p->x, NO_BUFFER))
MISTAKE(shift_twice, build_token_shift(b, p->y, p->x, p->shift); build_token_shift(b, p->z, p->x, p->shift))
MISTAKE(lerp_of_nothing, build_lerp(b, p->z, p->x, p->empty, p->vector))
MISTAKE(lerp_narrow, build_lerp(b, p->narrow, p->x, p->y, p->vector))
MISTAKE(lerp_weight, build_lerp(b, p->z, p->x, p->y, p->narrow_vector))
MISTAKE(lerp_empty_weight, build_lerp(b, p->z, p->x, p->y, p->empty))
MISTAKE(lerp_no_weight, build_lerp(b, p->z, p->x, p->y, NO_BUFFER))
MISTAKE(lerp_unknown_weight, build_lerp(b, p->z, p->x, p->y, 999))
MISTAKE(mul_rows, build_mul(b, p->z, p->x, p->o))
MISTAKE(mul_out, build_mul(b, p->narrow, p->x, p->y))
MISTAKE(key_rate, build_rwkv_key(b, p->z, p->x, p->empty, p->vector))
MISTAKE(key_weight, build_rwkv_key(b, p->z, p->x, p->y, p->stack))
MISTAKE(key_out, build_rwkv_key(b, p->narrow, p->x, p->y, p->vector))
MISTAKE(wkv_in_place, build_wkv7(b, p->x, all_inputs(p->x), p->wkv, HEAD))
MISTAKE(wkv_of_nothing, build_wkv7(b, p->z, all_inputs(p->empty), p->wkv, HEAD))
MISTAKE(wkv_outputs, build_wkv7(b, p->o, all_inputs(p->x), p->wkv, HEAD))
MISTAKE(wkv_head, build_wkv7(b, p->z, all_inputs(p->x), p->wkv, 12))
MISTAKE(wkv_head_zero, build_wkv7(b, p->z, all_inputs(p->x), p->wkv, 0))
MISTAKE(wkv_large_head, build_wkv7(b, p->z, all_inputs(p->x), p->wkv, 16))
MISTAKE(wkv_small_state, build_wkv7(b, p->z, all_inputs(p->x), p->shift, HEAD))
MISTAKE(wkv_twice, build_wkv7(b, p->z, all_inputs(p->x), p->wkv, HEAD);
        build_wkv7(b, p->empty, all_inputs(p->x), p->wkv, HEAD))
MISTAKE(bonus_over_v, build_rwkv_bonus(b, p->y, p->x, p->x, p->x, p->y, p->vector, HEAD))
MISTAKE(bonus_weight, build_rwkv_bonus(b, p->z, p->x, p->x, p->x, p->y, p->narrow_vector, HEAD))
MISTAKE(bonus_head, build_rwkv_bonus(b, p->z, p->x, p->x, p->x, p->y, p->vector, 24))
MISTAKE(silu_matmul, build_activated_matmul(b, p->z, p->square, p->x, NO_BUFFER, ACTIVATION_SILU))
MISTAKE(unknown_matmul, build_activated_matmul(b, p->z, p->square, p->x, NO_BUFFER, ACTIVATION_COUNT))
MISTAKE(empty_state, builder_recurrent(b, 0, "nothing"))
MISTAKE(two_states, builder_recurrent(b, 1, "shift.0"))

static const struct mistake mistakes[] = {
    {norm_of_nothing, "op 3, layer_norm: x 'empty' is read before any op writes it"},
    {norm_to_outputs, "op 3, layer_norm: 'x' has rows of tokens and 'o' has rows of outputs"},
    {norm_without_bias, "op 3, layer_norm: bias is missing"},
    {norm_narrow_weight, "'narrow_vector' has 8 columns and 'x' has 32 columns, they must be equal"},
    {norm_stacked_weight, "weight 'stack' has 6 rows, it must be a vector"},
    {norm_odd_group, "'x' has 32 columns, which is not a multiple of the group of 5"},
    {norm_group_zero, "'x' has 32 columns, which is not a multiple of the group of 0"},
    {norm_epsilon, "epsilon is -1, it must be 0 or more"},
    {l2_narrow, "op 3, l2_norm: 'x' has 32 columns and 'narrow' has 8 columns, they must be equal"},
    {l2_weight, "'narrow_vector' has 8 columns and 'x' has 32 columns, they must be equal"},
    {l2_group, "'x' has 32 columns, which is not a multiple of the group of 7"},
    {l2_epsilon, "epsilon is 0, it must be positive"},
    {shift_in_place, "op 3, token_shift: 'x' is both read and written, token_shift cannot work in place"},
    {shift_of_outputs, "'o' has rows of outputs, it must have rows of tokens"},
    {shift_narrow, "'x' has 32 columns and 'narrow' has 8 columns, they must be equal"},
    {shift_large_state, "state 'wkv.0' has 256 columns, it must have 32"},
    {shift_scratch_state, "state 'z' is scratch, it must be recurrent state"},
    {shift_no_state, "state is missing"},
    {shift_twice, "op 4, token_shift: 'shift.0' is written twice in a step"},
    {lerp_of_nothing, "op 3, lerp: y 'empty' is read before any op writes it"},
    {lerp_narrow, "'x' has 32 columns and 'narrow' has 8 columns, they must be equal"},
    {lerp_weight, "'narrow_vector' has 8 columns and 'x' has 32 columns, they must be equal"},
    {lerp_empty_weight, "weight 'empty' is read before any op writes it"},
    {lerp_no_weight, "weight is missing"},
    {lerp_unknown_weight, "weight is buffer 999, the program has 15 buffers"},
    {mul_rows, "op 3, mul: 'x' has rows of tokens and 'o' has rows of outputs"},
    {mul_out, "'x' has 32 columns and 'narrow' has 8 columns, they must be equal"},
    {key_rate, "op 3, rwkv_key: a 'empty' is read before any op writes it"},
    {key_weight, "weight 'stack' has 6 rows, it must be a vector"},
    {key_out, "'x' has 32 columns and 'narrow' has 8 columns, they must be equal"},
    {wkv_in_place, "op 3, wkv7: 'x' is both read and written, wkv7 cannot work in place"},
    {wkv_of_nothing, "r 'empty' is read before any op writes it"},
    {wkv_outputs, "'o' has rows of outputs, it must have rows of tokens"},
    {wkv_head, "head_dim is 12, it must be a multiple of 8"},
    {wkv_head_zero, "head_dim is 0, it must be a multiple of 8"},
    {wkv_large_head, "state 'wkv.0' has 256 columns, it must have 512"},
    {wkv_small_state, "state 'shift.0' has 32 columns, it must have 256"},
    {wkv_twice, "op 4, wkv7: 'wkv.0' is written twice in a step"},
    {bonus_over_v, "op 3, rwkv_bonus: 'y' is both read and written"},
    {bonus_weight, "'narrow_vector' has 8 columns and 'x' has 32 columns, they must be equal"},
    {bonus_head, "'x' has 32 columns, which is not a multiple of head_dim 24"},
    {silu_matmul, "op 3, matmul: activation 1 is not valid for matmul"},
    {unknown_matmul, "op 3, matmul: activation 7 is not valid for matmul"},
    {empty_state, "buffer 'nothing' has 0 columns, it must have 1 to"},
    {two_states, "two buffers are named 'shift.0'"},
};

static void every_mistake_is_refused_and_named(void **state)
{
    (void)state;
    struct gguf_model file;
    make_file(&file);
    const struct gguf *gguf = model_open(&file);
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        struct parts p;
        struct program *program;
        make_parts(&p, gguf);
        mistakes[i].make(&p);
        assert_int_not_equal(builder_finish(&p.builder, &program), SALVO_OK);
        assert_null(program);
        if (!strstr(salvo_error(), mistakes[i].text))
            fail_msg("'%s' does not say '%s'", salvo_error(), mistakes[i].text);
    }
    model_close(&file);
}

/* Every op once, as an architecture would use them. */
static struct program *make_program(struct parts *p, const struct gguf *gguf)
{
    struct program *program;
    make_parts(p, gguf);
    struct builder *b = &p->builder;
    build_layer_norm(b, p->y, p->x, p->vector, p->vector, WIDTH, 1e-5f);
    build_token_shift(b, p->z, p->y, p->shift);
    build_lerp(b, p->z, p->y, p->z, builder_weight_part(b, p->stack, 2, 1));
    build_activated_matmul(b, p->empty, p->square, p->z, p->vector, ACTIVATION_DECAY);
    build_l2_norm(b, p->z, p->y, p->vector, HEAD, 1e-12f);
    build_rwkv_key(b, p->y, p->y, p->empty, p->vector);
    buffer_id out = builder_scratch(b, ROWS_TOKENS, WIDTH, "out");
    build_wkv7(b, out, (struct wkv7_inputs){p->x, p->empty, p->y, p->x, p->z, p->empty}, p->wkv, HEAD);
    build_layer_norm(b, out, out, p->vector, p->vector, HEAD, 64e-5f);
    build_rwkv_bonus(b, out, out, p->x, p->y, p->x, p->vector, HEAD);
    build_mul(b, out, out, p->empty);
    build_lerp(b, out, out, p->x, p->empty);
    build_matmul(b, p->logits, p->table, p->o, NO_BUFFER, false);
    build_sample(b, p->logits);
    assert_int_equal(builder_finish(b, &program), SALVO_OK);
    return program;
}

static void ops_print_as_one_line(void **state)
{
    (void)state;
    static const char *const expected[] = {
        "y [T][32] f32 = layer_norm x, vector [32] F32, vector [32] F32, epsilon 1e-05",
        "z [T][32] f32 = token_shift y, shift.0",
        "z [T][32] f32 = lerp y, z, stack[2:3] [32] F32",
        "empty [T][32] f32 = matmul square [32][32] F32, z, vector [32] F32, rounding f32, activation decay",
        "z [T][32] f32 = l2_norm y, vector [32] F32, per 8, epsilon 1e-12",
        "y [T][32] f32 = rwkv_key y, empty, vector [32] F32",
        "out [T][32] f32 = wkv7 x, empty, y, x, z, empty, wkv.0, heads 4 of 8",
        "out [T][32] f32 = layer_norm out, vector [32] F32, vector [32] F32, per 8, epsilon 0.00064",
        "out [T][32] f32 = rwkv_bonus out, x, y, x, vector [32] F32, per 8",
        "out [T][32] f32 = mul out, empty",
        "out [T][32] f32 = lerp out, x, empty",
    };
    struct gguf_model file;
    struct parts p;
    make_file(&file);
    struct program *program = make_program(&p, model_open(&file));
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        char text[256];
        program_describe_op(program, (uint32_t)i + 3, text, sizeof text);
        assert_string_equal(text, expected[i]);
    }
    program_close(program);
    model_close(&file);
}

static void states_are_read_and_written(void **state)
{
    (void)state;
    struct gguf_model file;
    struct parts p;
    make_file(&file);
    struct program *program = make_program(&p, model_open(&file));
    uint32_t recurrent_ops = 0;
    for (uint32_t i = 0; i < program->op_count; i++) {
        const struct op *op = &program->ops[i];
        buffer_id buffers[OP_MAX_BUFFERS];
        const buffer_id recurrent =
            op->kind == OP_WKV7 || op->kind == OP_TOKEN_SHIFT ? op->states[0] : NO_BUFFER;
        uint32_t reads = op_reads(program, i, buffers);
        assert_true(reads <= OP_MAX_BUFFERS);
        if (recurrent == NO_BUFFER) {
            assert_int_equal(op_writes(program, i, buffers), 1);
            continue;
        }
        recurrent_ops++;
        assert_int_equal(program->buffers[recurrent].kind, BUFFER_RECURRENT);
        assert_true(buffer_is_among(recurrent, buffers, reads));
        assert_int_equal(op_writes(program, i, buffers), 2);
        assert_true(buffer_is_among(recurrent, buffers, 2) && buffer_is_among(op->out, buffers, 2));
    }
    assert_int_equal(recurrent_ops, 2);
    program_close(program);
    model_close(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mistake_is_refused_and_named),
        cmocka_unit_test(ops_print_as_one_line),
        cmocka_unit_test(states_are_read_and_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
