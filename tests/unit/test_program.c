/* Programs: what the builder refuses and how it says so, what it makes of a right one, how that prints. */
#include "cmocka_test.h"

#include "base/memory.h"
#include "gguf_model.h"
#include "program/program.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = 32, VOCABULARY = 48 };

/* A builder with one buffer of every sort; `x` and `o` have been written, the others not. */
struct parts {
    struct builder builder;
    buffer_id table, square, wide, norm, head_norm, bias, fused;
    buffer_id x, y, narrow, o, logits;
    buffer_id keys, values;
    uint32_t rope;
};

static const double frequencies[8] = {1, 0.5, 0.25, 0.125, 0.1, 0.05, 0.02, 0.01};

static void make_file(struct gguf_model *model)
{
    *model = (struct gguf_model){0};
    model_tensor(model, TYPE_Q8_0, WIDTH, VOCABULARY, "table");
    model_tensor(model, TYPE_Q4_0, WIDTH, WIDTH, "square");
    model_tensor(model, TYPE_F16, WIDTH, 64, "wide");
    model_tensor(model, TYPE_BF16, WIDTH, 0, "norm");
    model_tensor(model, TYPE_F32, 8, 0, "head_norm");
    model_tensor(model, TYPE_F32, WIDTH, 0, "bias");
    model_tensor(model, TYPE_Q4_0, WIDTH, 96, "fused");
    model_tensor(model, TYPE_I32, WIDTH, 0, "integers");
    model_tensor(model, 77, WIDTH, 0, "mystery");
    /* 2 x 3 matrices of two rows, and the same rows as a stack of vectors. */
    static const uint64_t shapes[2][4] = {{WIDTH, 2, 1, 3}, {WIDTH, 1, 2, 3}};
    for (int i = 0; i < 2; i++) {
        struct model_tensor *deep = model_tensor(model, TYPE_F32, WIDTH, 2, i ? "stack" : "deep");
        deep->dimensions = 4;
        memcpy(deep->shape, shapes[i], sizeof deep->shape);
    }
}

static void make_parts(struct parts *parts, const struct gguf *gguf)
{
    struct builder *builder = &parts->builder;
    assert_int_equal(builder_open(builder, gguf), SALVO_OK);
    parts->table = builder_weight(builder, VOCABULARY, WIDTH, "table");
    parts->square = builder_weight(builder, WIDTH, WIDTH, "square");
    parts->wide = builder_weight(builder, 64, WIDTH, "wide");
    parts->norm = builder_weight(builder, 1, WIDTH, "norm");
    parts->head_norm = builder_weight(builder, 1, 8, "head_norm");
    parts->bias = builder_weight(builder, 1, WIDTH, "bias");
    parts->fused = builder_weight(builder, 96, WIDTH, "fused");
    parts->x = builder_scratch(builder, ROWS_TOKENS, WIDTH, "x");
    parts->y = builder_scratch(builder, ROWS_TOKENS, WIDTH, "y");
    parts->narrow = builder_scratch(builder, ROWS_TOKENS, 12, "narrow");
    parts->o = builder_scratch(builder, ROWS_OUTPUTS, WIDTH, "o");
    parts->logits = builder_scratch(builder, ROWS_OUTPUTS, VOCABULARY, "logits");
    parts->keys = builder_cache(builder, TYPE_F16, WIDTH, "kv.%d.k", 0);
    parts->values = builder_cache(builder, TYPE_F16, WIDTH, "kv.%d.v", 0);
    parts->rope = builder_rope(builder, 8, false, 1, frequencies);
    build_embed(builder, parts->x, parts->table, 1);
    build_select_rows(builder, parts->o, parts->x);
    assert_int_equal(builder->status, SALVO_OK);
}

static void append(struct parts *p)
{
    build_kv_append(&p->builder, p->keys, p->values, p->x, p->x, 8);
}

static void attend(struct parts *p, uint32_t head_dim, float scale, float cap)
{
    append(p);
    build_attend(&p->builder, p->y, p->x, p->keys, p->values,
        (struct attend_options){.head_dim = head_dim, .scale = scale, .cap = cap});
}

static void finish(struct parts *p)
{
    build_matmul(&p->builder, p->logits, p->table, p->o, NO_BUFFER, false);
    build_sample(&p->builder, p->logits);
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
        (void)b;                         \
        __VA_ARGS__;                     \
    }

/* Weights and other buffers */
MISTAKE(missing_weight, builder_weight(b, 1, 1, "absent.%d", 7))
MISTAKE(wrong_columns, builder_weight(b, WIDTH, 64, "square"))
MISTAKE(wrong_rows, builder_weight(b, 33, WIDTH, "square"))
MISTAKE(matrix_as_vector, builder_weight(b, 1, WIDTH, "square"))
MISTAKE(optional_of_wrong_shape, builder_optional_weight(b, 2, WIDTH, "bias"))
MISTAKE(deep_as_matrix, builder_weight(b, 2, WIDTH, "deep"))
MISTAKE(deep_as_long_matrix, builder_weight(b, 6, WIDTH, "deep"))
MISTAKE(half_of_a_stack, builder_weight(b, 2, WIDTH, "stack"))
MISTAKE(integer_weight, builder_weight(b, 1, WIDTH, "integers"))
MISTAKE(unknown_weight, builder_weight(b, 1, WIDTH, "mystery"))
MISTAKE(no_rows, builder_weight(b, 0, WIDTH, "square"))
MISTAKE(long_name, builder_weight(b, 1, 1, "%0200d", 1))
MISTAKE(part_beyond, builder_weight_part(b, p->fused, 64, 33))
MISTAKE(part_far_beyond, builder_weight_part(b, p->fused, UINT64_MAX, 2))
MISTAKE(part_of_nothing, builder_weight_part(b, p->fused, 96, 0))
MISTAKE(part_of_scratch, builder_weight_part(b, p->x, 0, 1))
MISTAKE(part_of_no_buffer, builder_weight_part(b, 999, 0, 1))
MISTAKE(empty_scratch, builder_scratch(b, ROWS_TOKENS, 0, "empty"))
MISTAKE(huge_scratch, builder_scratch(b, ROWS_TOKENS, UINT64_MAX, "huge"))
MISTAKE(nameless_scratch, builder_scratch(b, ROWS_TOKENS, 1, ""))
MISTAKE(two_of_a_name, builder_scratch(b, ROWS_TOKENS, 1, "x"))
MISTAKE(unknown_rows, builder_scratch(b, (enum row_kind)9, 1, "odd"))
MISTAKE(odd_rope, builder_rope(b, 7, false, 1, frequencies))
MISTAKE(empty_rope, builder_rope(b, 0, false, 1, frequencies))
MISTAKE(rope_of_nan, builder_rope(b, 4, false, 1, (const double[]){1, NAN}))
MISTAKE(rope_magnitude, builder_rope(b, 8, false, 0, frequencies))

/* embed */
MISTAKE(embed_of_scratch, build_embed(b, p->y, p->x, 1))
MISTAKE(embed_into_weight, build_embed(b, p->square, p->table, 1))
MISTAKE(embed_width, build_embed(b, p->narrow, p->table, 1))
MISTAKE(embed_rows, build_embed(b, p->o, p->table, 1))
MISTAKE(embed_nan, build_embed(b, p->y, p->table, NAN))
MISTAKE(embed_other_vocabulary, build_embed(b, p->y, p->wide, 1))
MISTAKE(embed_nothing, build_embed(b, NO_BUFFER, p->table, 1))
MISTAKE(embed_beyond, build_embed(b, 1000, p->table, 1))
MISTAKE(embed_negative, build_embed(b, -7, p->table, 1))

/* rms_norm */
MISTAKE(norm_unwritten, build_rms_norm(b, p->x, p->y, p->norm, 1e-5f))
MISTAKE(norm_shapes, build_rms_norm(b, p->narrow, p->x, p->norm, 1e-5f))
MISTAKE(norm_rows, build_rms_norm(b, p->o, p->x, p->norm, 1e-5f))
MISTAKE(norm_matrix, build_rms_norm(b, p->y, p->x, p->square, 1e-5f))
MISTAKE(norm_scratch_weight, build_rms_norm(b, p->y, p->x, p->x, 1e-5f))
MISTAKE(norm_epsilon, build_rms_norm(b, p->y, p->x, p->norm, -1))
static void norm_group(struct parts *p)
{
    buffer_id twelve = builder_scratch(&p->builder, ROWS_TOKENS, 12, "twelve");
    build_embed(&p->builder, p->narrow, p->table, 1); /* refused: 12 columns */
    build_rms_norm(&p->builder, twelve, p->narrow, p->head_norm, 1e-5f);
}

/* matmul */
MISTAKE(matmul_inputs, build_matmul(b, p->y, p->table, p->logits, NO_BUFFER, false))
MISTAKE(matmul_columns, build_matmul(b, p->y, p->square, p->narrow, NO_BUFFER, false))
MISTAKE(matmul_outputs, build_matmul(b, p->narrow, p->square, p->x, NO_BUFFER, false))
MISTAKE(matmul_rows, build_matmul(b, p->o, p->square, p->x, NO_BUFFER, false))
MISTAKE(matmul_in_place, build_matmul(b, p->x, p->square, p->x, NO_BUFFER, false))
MISTAKE(matmul_into_weight, build_matmul(b, p->wide, p->square, p->x, NO_BUFFER, false))
MISTAKE(matmul_into_state, build_matmul(b, p->keys, p->square, p->x, NO_BUFFER, false))
MISTAKE(matmul_accumulate, build_matmul(b, p->y, p->square, p->x, NO_BUFFER, true))
MISTAKE(matmul_bias, build_matmul(b, p->y, p->square, p->x, p->head_norm, false))
MISTAKE(matmul_bias_matrix, build_matmul(b, p->y, p->square, p->x, p->square, false))
MISTAKE(matmul_no_weight, build_matmul(b, p->y, NO_BUFFER, p->x, NO_BUFFER, false))

/* rope, attention */
MISTAKE(rope_unwritten, build_rope(b, p->y, 8, p->rope))
MISTAKE(rope_rows, build_rope(b, p->o, 8, p->rope))
MISTAKE(rope_head_zero, build_rope(b, p->x, 0, p->rope))
MISTAKE(rope_head_odd, build_rope(b, p->x, 12, p->rope))
MISTAKE(rope_head_no_divisor, build_rope(b, p->x, 24, p->rope))
MISTAKE(rope_absent, build_rope(b, p->x, 8, 5))
MISTAKE(rope_next, build_rope(b, p->x, 8, 1))
MISTAKE(rope_too_wide, build_rope(b, p->x, 8, builder_rope(b, 16, true, 1, frequencies)))
MISTAKE(append_width, build_kv_append(b, p->keys, builder_cache(b, TYPE_F16, 16, "v"), p->x, p->x, 8))
MISTAKE(append_rows, build_kv_append(b, p->keys, p->values, p->o, p->o, 8))
MISTAKE(append_same, build_kv_append(b, p->keys, p->keys, p->x, p->x, 8))
MISTAKE(append_scratch, build_kv_append(b, p->x, p->values, p->x, p->x, 8))
MISTAKE(append_unwritten, build_kv_append(b, p->keys, p->values, p->x, p->y, 8))
MISTAKE(append_head, build_kv_append(b, p->keys, p->values, p->x, p->x, 64))
MISTAKE(append_twice, append(p); append(p))
MISTAKE(
    attend_unwritten, build_attend(b, p->y, p->x, p->keys, p->values, (struct attend_options){8, 0, 1, 0}))
MISTAKE(attend_in_place, append(p);
        build_attend(b, p->x, p->x, p->keys, p->values, (struct attend_options){8, 0, 1, 0}))
MISTAKE(attend_same, append(p);
        build_attend(b, p->y, p->x, p->keys, p->keys, (struct attend_options){8, 0, 1, 0}))
MISTAKE(attend_head, attend(p, 20, 1, 0))
MISTAKE(attend_scale, attend(p, 8, 0, 0))
MISTAKE(attend_nan, attend(p, 8, NAN, 0))
MISTAKE(attend_cap, attend(p, 8, 1, -1))
static void attend_groups(struct parts *p) /* 4 heads on 3 */
{
    struct builder *b = &p->builder;
    buffer_id k = builder_scratch(b, ROWS_TOKENS, 24, "k");
    buffer_id keys = builder_cache(b, TYPE_F16, 24, "keys"),
              values = builder_cache(b, TYPE_F16, 24, "values");
    build_matmul(b, k, builder_weight_part(b, p->fused, 0, 24), p->x, NO_BUFFER, false);
    build_kv_append(b, keys, values, k, k, 8);
    build_attend(b, p->y, p->x, keys, values, (struct attend_options){8, 0, 1, 0});
}

/* the others */
MISTAKE(glu_unwritten, build_glu(b, p->y, p->x, p->y, ACTIVATION_SILU))
MISTAKE(glu_in_place, build_glu(b, p->x, p->x, p->x, ACTIVATION_SILU))
MISTAKE(glu_shapes, build_glu(b, p->narrow, p->x, p->x, ACTIVATION_SILU))
MISTAKE(glu_activation, build_glu(b, p->y, p->x, p->x, (enum activation)12))
MISTAKE(add_itself, build_add(b, p->x, p->x))
MISTAKE(add_unwritten, build_add(b, p->y, p->x))
MISTAKE(add_rows, build_add(b, p->o, p->x))
MISTAKE(select_rows, build_select_rows(b, p->y, p->x))
MISTAKE(select_outputs, build_select_rows(b, p->o, p->o))
MISTAKE(select_width, build_select_rows(b, p->logits, p->x))
MISTAKE(softcap_zero, build_softcap(b, p->x, 0))
MISTAKE(softcap_unwritten, build_softcap(b, p->y, 30))
MISTAKE(sample_unwritten, build_sample(b, p->logits))
MISTAKE(sample_nothing, build_sample(b, NO_BUFFER))
MISTAKE(sample_tokens, build_sample(b, p->x))
MISTAKE(sample_other_vocabulary, build_sample(b, p->o))
MISTAKE(sample_twice, finish(p); build_sample(b, p->logits))
MISTAKE(op_after_sample, finish(p); build_softcap(b, p->logits, 30))
MISTAKE(nothing_to_sample, (void)0)
MISTAKE(own_words, builder_refuse(b, SALVO_ERROR_FORMAT, "key '%s' is %d", "layers", -1))

static const struct mistake mistakes[] = {
    {missing_weight, "tensor 'absent.7' is missing"},
    {wrong_columns, "tensor 'square' has the shape 32 x 32, it must be 64 x 32"},
    {wrong_rows, "tensor 'square' has the shape 32 x 32, it must be 32 x 33"},
    {matrix_as_vector, "tensor 'square' has the shape 32 x 32, it must be 32"},
    {optional_of_wrong_shape, "tensor 'bias' has the shape 32, it must be 32 x 2"},
    {deep_as_matrix, "tensor 'deep' has the shape 32 x 2 x 1 x 3, it must be 32 x 2"},
    {deep_as_long_matrix, "tensor 'deep' has the shape 32 x 2 x 1 x 3, it must be 32 x 6"},
    {half_of_a_stack, "tensor 'stack' has the shape 32 x 1 x 2 x 3, it must be 32 x 2"},
    {integer_weight, "tensor 'integers': tensor type I32"},
    {unknown_weight, "tensor 'mystery': tensor type 77"},
    {no_rows, "'square' has 0 rows, it must have 1 to"},
    {long_name, "a buffer's name has 200 bytes"},
    {part_beyond, "33 rows from row 64 of 'fused' were requested, it has 96"},
    {part_far_beyond, "rows from row 18446744073709551615 of 'fused'"},
    {part_of_nothing, "0 rows from row 96 of 'fused'"},
    {part_of_scratch, "buffer 'x' is not a weight"},
    {part_of_no_buffer, "a part of buffer 999 was requested"},
    {empty_scratch, "buffer 'empty' has 0 columns"},
    {huge_scratch, "buffer 'huge' has 18446744073709551615 columns"},
    {nameless_scratch, "a buffer's name has 0 bytes"},
    {two_of_a_name, "two buffers are named 'x'"},
    {unknown_rows, "buffer 'odd' has row kind 9"},
    {odd_rope, "a rope rotates 7 columns"},
    {empty_rope, "a rope rotates 0 columns"},
    {rope_of_nan, "frequency nan for pair 1 of 2"},
    {rope_magnitude, "magnitude 0"},

    {embed_of_scratch, "op 2, embed: table 'x' is scratch, it must be a weight"},
    {embed_into_weight, "op 2, embed: out 'square' is a weight, it must be scratch"},
    {embed_width, "embed: 'table' has 32 columns and 'narrow' has 12 columns"},
    {embed_rows, "embed: 'o' has rows of outputs, it must have rows of tokens"},
    {embed_nan, "embed: scale is nan"},
    {embed_other_vocabulary, "embed: table 'wide' has 64 rows, the vocabulary has 48"},
    {embed_nothing, "embed: out is missing"},
    {embed_beyond, "embed: out is buffer 1000, the program has 15 buffers"},
    {embed_negative, "embed: out is buffer -7"},

    {norm_unwritten, "rms_norm: x 'y' is read before any op writes it"},
    {norm_shapes, "rms_norm: 'x' has 32 columns and 'narrow' has 12 columns"},
    {norm_rows, "rms_norm: 'x' has rows of tokens and 'o' has rows of outputs"},
    {norm_matrix, "rms_norm: weight 'square' has 32 rows, it must be a vector"},
    {norm_scratch_weight, "rms_norm: weight 'x' is scratch"},
    {norm_epsilon, "rms_norm: epsilon is -1"},
    {norm_group, "embed: 'table' has 32 columns and 'narrow' has 12 columns"},

    {matmul_inputs, "matmul: x 'logits' is read before any op writes it"},
    {matmul_columns, "matmul: x 'narrow' is read before any op writes it"},
    {matmul_outputs, "matmul: 'square' has 32 rows and 'narrow' has 12 columns"},
    {matmul_rows, "matmul: 'x' has rows of tokens and 'o' has rows of outputs"},
    {matmul_in_place, "matmul: 'x' is both read and written"},
    {matmul_into_weight, "matmul: out 'wide' is a weight"},
    {matmul_into_state, "matmul: out 'kv.0.k' is a cache"},
    {matmul_accumulate, "matmul: out 'y' is read before any op writes it"},
    {matmul_bias, "matmul: 'head_norm' has 8 columns and 'y' has 32 columns"},
    {matmul_bias_matrix, "matmul: bias 'square' has 32 rows"},
    {matmul_no_weight, "matmul: weight is missing"},

    {rope_unwritten, "rope: x 'y' is read before"},
    {rope_rows, "rope: 'o' has rows of outputs, it must have rows of tokens"},
    {rope_head_zero, "rope: head_dim is 0"},
    {rope_head_odd, "rope: head_dim is 12, it must be a multiple of 8"},
    {rope_head_no_divisor, "rope: 'x' has 32 columns, which is not a multiple of head_dim 24"},
    {rope_absent, "rope: rope 5 does not exist, the program has 1"},
    {rope_next, "rope: rope 1 does not exist, the program has 1"},
    {rope_too_wide, "rope: rope 1 rotates 16 columns of each head, heads of 'x' have 8"},
    {append_width, "kv_append: value cache 'v' has 16 columns, it must have 32"},
    {append_rows, "kv_append: 'o' has rows of outputs"},
    {append_same, "kv_append: 'kv.0.k' cannot be both the key cache and the value cache"},
    {append_scratch, "kv_append: key cache 'x' is scratch, it must be a cache"},
    {append_unwritten, "kv_append: v 'y' is read before"},
    {append_head, "kv_append: 'x' has 32 columns, which is not a multiple of head_dim 64"},
    {append_twice, "kv_append: 'kv.0.k' is written twice"},
    {attend_unwritten, "attend: key cache 'kv.0.k' is read before kv_append writes it"},
    {attend_in_place, "attend: 'x' is both read and written"},
    {attend_same, "attend: 'kv.0.k' cannot be both"},
    {attend_head, "attend: head_dim is 20"},
    {attend_scale, "attend: scale is 0, it must be positive"},
    {attend_nan, "attend: scale is nan"},
    {attend_cap, "attend: cap is -1"},
    {attend_groups, "attend: 'x' has 4 heads, which is not a multiple of the 3 heads of 'keys'"},

    {glu_unwritten, "glu: up 'y' is read before"},
    {glu_in_place, "glu: 'x' is both read and written"},
    {glu_shapes, "glu: 'x' has 32 columns and 'narrow' has 12 columns"},
    {glu_activation, "glu: activation 12 is not valid for glu"},
    {add_itself, "add: 'x' is both read and written, add cannot work in place"},
    {add_unwritten, "add: out 'y' is read before"},
    {add_rows, "add: 'x' has rows of tokens and 'o' has rows of outputs"},
    {select_rows, "select_rows: 'y' has rows of tokens, it must have rows of outputs"},
    {select_outputs, "select_rows: 'o' has rows of outputs, it must have rows of tokens"},
    {select_width, "select_rows: 'x' has 32 columns and 'logits' has 48 columns"},
    {softcap_zero, "softcap: cap is 0"},
    {softcap_unwritten, "softcap: x 'y' is read before"},
    {sample_unwritten, "sample: logits 'logits' is read before"},
    {sample_nothing, "sample: logits is missing"},
    {sample_tokens, "sample: 'x' has rows of tokens, it must have rows of outputs"},
    {sample_other_vocabulary, "sample: logits 'o' has 32 columns, the vocabulary has 48"},
    {sample_twice, "sample: the program has a sample op already"},
    {op_after_sample, "softcap: sample must be the last op"},
    {nothing_to_sample, "the program has no sample op"},
    {own_words, "key 'layers' is -1"},
};

static void every_mistake_is_refused_and_named(void **state)
{
    (void)state;
    struct gguf_model file;
    make_file(&file);
    const struct gguf *gguf = model_open(&file);
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        struct parts parts;
        struct program *program;
        make_parts(&parts, gguf);
        mistakes[i].make(&parts);
        if (mistakes[i].make != nothing_to_sample) { /* what follows changes nothing */
            finish(&parts);
            builder_weight(&parts.builder, 3, 3, "another mistake");
            builder_refuse(&parts.builder, SALVO_ERROR_IO, "and one more");
        }
        assert_int_not_equal(builder_finish(&parts.builder, &program), SALVO_OK);
        assert_null(program);
        if (!strstr(salvo_error(), mistakes[i].text) || strncmp(salvo_error(), "test.gguf: ", 11) != 0) {
            print_error("expected: %s\ngot: %s\n", mistakes[i].text, salvo_error());
            assert_true(false);
        }
    }
    model_close(&file);
}

/* One layer of everything. */
static struct program *make_program(const struct gguf *gguf)
{
    struct parts p;
    struct program *program;
    make_parts(&p, gguf);
    struct builder *b = &p.builder;
    buffer_id gate = builder_scratch(b, ROWS_TOKENS, 48, "gate"),
              up = builder_scratch(b, ROWS_TOKENS, 48, "up");
    buffer_id both = builder_scratch(b, ROWS_TOKENS, 48, "both");
    build_rms_norm(b, p.y, p.x, p.norm, 1e-5f);
    build_rms_norm(b, p.y, p.y, p.head_norm, 1e-6f);
    build_rope(b, p.y, 8, p.rope);
    build_kv_append(b, p.keys, p.values, p.x, p.x, 8);
    build_attend(b, p.x, p.y, p.keys, p.values,
        (struct attend_options){.head_dim = 8, .window = 256, .scale = 0.25f, .cap = 50});
    build_matmul(b, p.y, p.square, p.x, p.bias, false);
    build_matmul(b, p.x, p.square, p.y, NO_BUFFER, true);
    build_add(b, p.x, p.y);
    build_matmul(b, gate, builder_weight_part(b, p.fused, 0, 48), p.x, NO_BUFFER, false);
    build_matmul(b, up, builder_weight_part(b, p.fused, 48, 48), p.x, NO_BUFFER, false);
    build_glu(b, both, gate, up, ACTIVATION_GELU);
    build_select_rows(b, p.o, p.x);
    build_matmul(b, p.logits, p.table, p.o, NO_BUFFER, false);
    build_softcap(b, p.logits, 30);
    build_sample(b, p.logits);
    assert_int_equal(builder_finish(b, &program), SALVO_OK);
    return program;
}

static void ops_print_as_one_line(void **state)
{
    (void)state;
    static const char *const expected[] = {
        "x [T][32] f32 = embed table [48][32] Q8_0, tokens",
        "o [O][32] f32 = select_rows x",
        "y [T][32] f32 = rms_norm x, norm [32] BF16, epsilon 1e-05",
        "y [T][32] f32 = rms_norm y, head_norm [8] F32, per 8, epsilon 1e-06",
        "y [T][32] f32 = rope y, heads 4 of 8, rope 0",
        "kv.0.k, kv.0.v = kv_append x, x, heads 4 of 8",
        "x [T][32] f32 = attend y, kv.0.k, kv.0.v, heads 4 of 8 on 4, scale 0.25, cap 50, window 256",
        "y [T][32] f32 = matmul square [32][32] Q4_0, x, bias [32] F32, rounding q8",
        "x [T][32] f32 += matmul square [32][32] Q4_0, y, rounding q8",
        "x [T][32] f32 += add y",
        "gate [T][48] f32 = matmul fused[0:48] [48][32] Q4_0, x, rounding q8",
        "up [T][48] f32 = matmul fused[48:96] [48][32] Q4_0, x, rounding q8",
        "both [T][48] f32 = glu gate, up, activation gelu",
        "o [O][32] f32 = select_rows x",
        "logits [O][48] f32 = matmul table [48][32] Q8_0, o, rounding q8, fine",
        "logits [O][48] f32 = softcap logits, cap 30",
        "tokens = sample logits",
    };
    struct gguf_model file;
    make_file(&file);
    struct program *program = make_program(model_open(&file));
    assert_int_equal(program->op_count, sizeof expected / sizeof *expected);
    for (uint32_t i = 0; i < program->op_count; i++) {
        char text[256], cut[16];
        program_describe_op(program, i, text, sizeof text);
        assert_string_equal(text, expected[i]);
        program_describe_op(program, i, cut, sizeof cut);
        assert_int_equal(strlen(cut), sizeof cut - 1);
        assert_memory_equal(cut, text, sizeof cut - 1);
    }
    program_close(program);
    model_close(&file);
}

static void count_line(void *user, const char *text)
{
    assert_non_null(text);
    assert_null(strchr(text, '\n'));
    ++*(uint32_t *)user;
}

static void a_program_prints_buffers_ropes_and_ops(void **state)
{
    (void)state;
    struct gguf_model file;
    make_file(&file);
    struct program *program = make_program(model_open(&file));
    uint32_t lines = 0;
    program_print(program, count_line, &lines);
    assert_int_equal(lines, 1 + program->buffer_count + program->rope_count + program->op_count);
    program_close(program);
    model_close(&file);
}

static void weights_are_shared_and_cut_without_a_copy(void **state)
{
    (void)state;
    struct gguf_model file;
    struct parts p;
    struct program *program;
    make_file(&file);
    make_parts(&p, model_open(&file));
    struct builder *b = &p.builder;
    assert_int_equal(builder_weight(b, WIDTH, WIDTH, "square"), p.square);
    assert_int_equal(builder_optional_weight(b, 1, 1, "absent"), NO_BUFFER);
    assert_true(builder_weight(b, 6, WIDTH, "stack") != NO_BUFFER);
    buffer_id part = builder_weight_part(b, p.fused, 32, 40), inner = builder_weight_part(b, part, 8, 8);
    assert_int_equal(builder_weight_part(b, p.fused, 32, 40), part);
    assert_int_equal(builder_weight_part(b, p.fused, 0, 96), p.fused);
    assert_int_equal(b->status, SALVO_OK);
    const struct program_buffer *buffers = b->program->buffers;
    assert_int_equal(buffers[part].first_row, 32);
    assert_int_equal(buffers[part].rows, 40);
    assert_int_equal(buffers[inner].first_row, 40);
    assert_int_equal(buffers[inner].rows, 8);
    assert_int_equal(buffers[inner].columns, WIDTH);
    assert_string_equal(buffers[inner].name, "fused[40:48]");
    assert_ptr_equal(buffers[inner].tensor, gguf_find_tensor(file.gguf, "fused"));
    finish(&p);
    assert_int_equal(builder_finish(b, &program), SALVO_OK);
    assert_int_equal(program->vocabulary, VOCABULARY);
    program_close(program);
    model_close(&file);
}

static void reads_and_writes_are_listed(void **state)
{
    (void)state;
    struct gguf_model file;
    make_file(&file);
    struct program *program = make_program(model_open(&file));
    buffer_id buffers[OP_MAX_BUFFERS];
    uint32_t kinds = 0;
    for (uint32_t i = 0; i < program->op_count; i++) {
        const struct op *op = &program->ops[i];
        kinds |= 1u << op->kind;
        switch (op->kind) {
        case OP_EMBED:
            assert_int_equal(op_reads(program, i, buffers), 2);
            assert_int_equal(buffers[1], program->tokens);
            break;
        case OP_KV_APPEND:
            assert_int_equal(op_reads(program, i, buffers), 1); /* k is v */
            assert_int_equal(op_writes(program, i, buffers), 2);
            assert_int_equal(buffers[0], op->kv_append.key_state);
            break;
        case OP_ATTEND:
            assert_int_equal(op_reads(program, i, buffers), 3);
            assert_int_equal(op_writes(program, i, buffers), 1);
            break;
        case OP_MATMUL:
            assert_int_equal(
                op_reads(program, i, buffers), 2 + op->matmul.accumulate + (op->inputs[2] != NO_BUFFER));
            assert_true(op_tolerance(&program->ops[i]) == 2e-3f);
            break;
        case OP_SAMPLE:
            assert_int_equal(op_writes(program, i, buffers), 1);
            assert_int_equal(buffers[0], program->tokens);
            assert_int_equal(op->inputs[0], program->logits);
            break;
        default:
            assert_int_equal(op_writes(program, i, buffers), 1);
            break;
        }
    }
    /* Logits are read by whoever asks for them, when all is done. */
    assert_true(value_is_read(program, program->logits, program->op_count));
    assert_false(value_is_read(program, program->ops[0].out, program->op_count));
    assert_true(value_is_read(program, program->ops[0].out, 1));
    /* A new kind belongs into make_program, or into the one of test_program_rwkv.c. */
    const uint32_t recurrent = 1u << OP_LAYER_NORM | 1u << OP_L2_NORM | 1u << OP_MUL | 1u << OP_LERP |
                               1u << OP_TOKEN_SHIFT | 1u << OP_RWKV_KEY | 1u << OP_WKV7 | 1u << OP_RWKV_BONUS;
    assert_int_equal(kinds, ((1u << OP_KIND_COUNT) - 1) & ~recurrent);
    program_close(program);
    model_close(&file);
}

/* Readers of the table stop at the first entry without a name. */
static void the_table_of_ops_has_no_gaps(void **state)
{
    (void)state;
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        const struct op_info *info = &op_infos[kind];
        assert_non_null(info->name);
        assert_non_null(info->inputs[0].name);
        for (int i = 0; i < OP_MAX_INPUTS; i++) {
            assert_int_equal(!info->inputs[i].name, info->inputs[i].kind == OPERAND_NONE);
            assert_true(i == 0 || info->inputs[i - 1].name || !info->inputs[i].name);
        }
        for (int i = 0; i < OP_MAX_STATES; i++) {
            assert_int_equal(!info->states[i].name, info->states[i].kind == STATE_NONE);
            assert_true(i == 0 || info->states[i - 1].name || !info->states[i].name);
        }
        for (int i = 0; i < OP_MAX_PARAMETERS; i++) {
            assert_true(!info->parameters[i].name || info->parameters[i].offset < sizeof(struct op));
            assert_true(i == 0 || info->parameters[i - 1].name || !info->parameters[i].name);
        }
        for (int i = 0; i < kind; i++)
            assert_string_not_equal(info->name, op_infos[i].name);
    }
}

static void half_weights_meet_halves(void **state)
{
    (void)state;
    struct gguf_model file;
    struct parts p;
    struct program *program;
    make_file(&file);
    make_parts(&p, model_open(&file));
    buffer_id wide = builder_scratch(&p.builder, ROWS_TOKENS, 64, "wide");
    build_matmul(&p.builder, wide, p.wide, p.x, NO_BUFFER, false);
    finish(&p);
    assert_int_equal(builder_finish(&p.builder, &program), SALVO_OK);
    assert_int_equal(program->ops[2].matmul.rounding, ROUNDING_F16);
    assert_true(op_tolerance(&program->ops[2]) == 5e-4f);
    assert_int_equal(program->ops[3].matmul.rounding, ROUNDING_Q8);
    assert_false(program->ops[2].matmul.fine);
    assert_true(program->ops[3].matmul.fine); /* logits */
    program_close(program);
    program_close(NULL);
    model_close(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mistake_is_refused_and_named),
        cmocka_unit_test(ops_print_as_one_line),
        cmocka_unit_test(a_program_prints_buffers_ropes_and_ops),
        cmocka_unit_test(weights_are_shared_and_cut_without_a_copy),
        cmocka_unit_test(reads_and_writes_are_listed),
        cmocka_unit_test(the_table_of_ops_has_no_gaps),
        cmocka_unit_test(half_weights_meet_halves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
