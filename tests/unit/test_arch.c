/* Architectures: programs of correct files, and error messages for wrong ones. */
#include "cmocka_test.h"

#include "arch/arch.h"
#include "base/memory.h"
#include "gguf_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LAYERS = 7, WIDTH = 32, HEAD_DIM = 8, FEED_FORWARD = 40, VOCABULARY = 48 };

static struct program *build(struct gguf_model *file, uint32_t context)
{
    struct program *program;
    if (arch_build_for(model_open(file), context, &program) != SALVO_OK) {
        print_error("%s\n", salvo_error());
        assert_true(false);
    }
    return program;
}

static void close_both(struct program *program, struct gguf_model *file)
{
    program_close(program);
    model_close(file);
}

/* The nth op of a kind. */
static const struct op *find_op(const struct program *program, enum op_kind kind, uint32_t nth)
{
    for (uint32_t i = 0; i < program->op_count; i++) {
        if (program->ops[i].kind == kind && nth-- == 0)
            return &program->ops[i];
    }
    return NULL;
}

static uint32_t count_ops(const struct program *program, enum op_kind kind)
{
    uint32_t count = 0;
    while (find_op(program, kind, count))
        count++;
    return count;
}

static const char *name_of(const struct program *program, buffer_id id)
{
    return id == NO_BUFFER ? "none" : program->buffers[id].name;
}

/* ---- Right files ---- */

static void a_layer_of_llama_is_this_list(void **state)
{
    (void)state;
    static const char *const expected[] = {
        "x [T][32] f32 = embed token_embd.weight [48][32] Q8_0, tokens",
        "h [T][32] f32 = rms_norm x, blk.0.attn_norm.weight [32] F32, epsilon 1e-05",
        "q [T][32] f32 = matmul blk.0.attn_q.weight [32][32] Q4_0, h, rounding q8",
        "k [T][16] f32 = matmul blk.0.attn_k.weight [16][32] Q4_0, h, rounding q8",
        "v [T][16] f32 = matmul blk.0.attn_v.weight [16][32] F16, h, rounding f16",
        "q [T][32] f32 = rope q, heads 4 of 8, rope 0",
        "k [T][16] f32 = rope k, heads 2 of 8, rope 0",
        "kv.0.k, kv.0.v = kv_append k, v, heads 2 of 8",
        "attended [T][32] f32 = attend q, kv.0.k, kv.0.v, heads 4 of 8 on 2, scale 0.353553",
        "x [T][32] f32 += matmul blk.0.attn_output.weight [32][32] Q4_0, attended, rounding q8",
        "h [T][32] f32 = rms_norm x, blk.0.ffn_norm.weight [32] F32, epsilon 1e-05",
        "gate [T][40] f32 = matmul blk.0.ffn_gate.weight [40][32] Q4_0, h, rounding q8",
        "up [T][40] f32 = matmul blk.0.ffn_up.weight [40][32] Q4_0, h, rounding q8",
        "activated [T][40] f32 = glu gate, up, activation silu",
        "x [T][32] f32 += matmul blk.0.ffn_down.weight [32][40] F32, activated, rounding f32",
        "h [T][32] f32 = rms_norm x, blk.1.attn_norm.weight [32] F32, epsilon 1e-05",
    };
    static const char *const end[] = {
        "last [O][32] f32 = select_rows x",
        "normed [O][32] f32 = rms_norm last, output_norm.weight [32] F32, epsilon 1e-05",
        "logits [O][48] f32 = matmul token_embd.weight [48][32] Q8_0, normed, rounding q8, fine",
        "tokens = sample logits",
    };
    struct gguf_model file;
    char text[256];
    model_make_llama(&file, "llama", LAYERS);
    struct program *program = build(&file, 0);
    for (uint32_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        program_describe_op(program, i, text, sizeof text);
        assert_string_equal(text, expected[i]);
    }
    for (uint32_t i = 0; i < 4; i++) {
        program_describe_op(program, program->op_count - 4 + i, text, sizeof text);
        assert_string_equal(text, end[i]);
    }
    assert_int_equal(program->op_count, 1 + 14 * LAYERS + 4);
    assert_int_equal(program->layers, LAYERS);
    assert_int_equal(program->vocabulary, VOCABULARY);
    assert_int_equal(program->trained_context, 512);
    assert_false(program->ropes[0].halves);
    assert_int_equal(program->ropes[0].dimensions, HEAD_DIM);
    close_both(program, &file);
}

static void biases_and_own_output_are_used_where_they_are(void **state)
{
    (void)state;
    struct gguf_model file;
    model_make_llama(&file, "llama", LAYERS);
    model_tensor(&file, TYPE_F16, WIDTH, VOCABULARY, "output.weight");
    model_tensor(&file, TYPE_F32, VOCABULARY, 0, "output.bias");
    model_tensor(&file, TYPE_F32, WIDTH, 0, "blk.0.attn_q.bias");
    model_tensor(&file, TYPE_BF16, WIDTH, 0, "blk.0.attn_output.bias");
    model_tensor(&file, TYPE_F16, WIDTH, 0, "blk.0.ffn_down.bias");
    model_tensor(&file, TYPE_F32, FEED_FORWARD, 0, "blk.0.ffn_up.bias");
    const uint32_t same[LAYERS] = {2, 2, 2, 2, 2, 2, 2};
    model_set_items(&file, "llama.attention.head_count_kv", same, LAYERS);
    model_set_empty_texts(&file, "tokenizer.ggml.tokens", VOCABULARY);
    struct program *program = build(&file, 0);
    static const char *const biases[] = {"blk.0.attn_q.bias", "none", "none", "blk.0.attn_output.bias",
        "none", "blk.0.ffn_up.bias", "blk.0.ffn_down.bias"};
    for (uint32_t i = 0; i < 7; i++)
        assert_string_equal(name_of(program, find_op(program, OP_MATMUL, i)->inputs[2]), biases[i]);
    const struct op *output = find_op(program, OP_MATMUL, 7 * LAYERS);
    assert_string_equal(name_of(program, output->inputs[0]), "output.weight");
    assert_string_equal(name_of(program, output->inputs[2]), "output.bias");
    close_both(program, &file);
}

static void qwen2_has_biases(void **state)
{
    (void)state;
    struct gguf_model file;
    model_make_llama(&file, "qwen2", LAYERS);
    for (unsigned i = 0; i < LAYERS; i++) {
        model_tensor(&file, TYPE_F32, WIDTH, 0, "blk.%u.attn_q.bias", i);
        model_tensor(&file, TYPE_F32, WIDTH / 2, 0, "blk.%u.attn_k.bias", i);
        model_tensor(&file, TYPE_F32, WIDTH / 2, 0, "blk.%u.attn_v.bias", i);
    }
    struct program *program = build(&file, 0);
    assert_true(program->ropes[0].halves);
    assert_string_equal(name_of(program, find_op(program, OP_MATMUL, 1)->inputs[2]), "blk.0.attn_k.bias");
    close_both(program, &file);

    struct program *none;
    model_remove_tensor(&file, "blk.3.attn_v.bias");
    assert_int_equal(arch_build(model_open(&file), &none), SALVO_ERROR_FORMAT);
    assert_string_equal(salvo_error(), "test.gguf: tensor 'blk.3.attn_v.bias' is missing");
    model_close(&file);
}

/* Heads of 16, which is more than width / heads, with norms of q and k. */
static void widen_heads(struct gguf_model *file, const char *architecture, uint32_t layers)
{
    char key[64];
    snprintf(key, sizeof key, "%s.attention.key_length", architecture);
    model_set_u32(file, key, 16);
    snprintf(key, sizeof key, "%s.attention.value_length", architecture);
    model_set_u32(file, key, 16);
    for (uint32_t i = 0; i < layers; i++) {
        model_tensor(file, TYPE_Q4_0, WIDTH, 64, "blk.%u.attn_q.weight", i);
        model_tensor(file, TYPE_Q4_0, WIDTH, 32, "blk.%u.attn_k.weight", i);
        model_tensor(file, TYPE_Q4_0, WIDTH, 32, "blk.%u.attn_v.weight", i);
        model_tensor(file, TYPE_Q4_0, 64, WIDTH, "blk.%u.attn_output.weight", i);
        model_tensor(file, TYPE_F32, 16, 0, "blk.%u.attn_q_norm.weight", i);
        model_tensor(file, TYPE_F32, 16, 0, "blk.%u.attn_k_norm.weight", i);
    }
}

static void qwen3_norms_heads(void **state)
{
    (void)state;
    struct gguf_model file;
    model_make_llama(&file, "qwen3", LAYERS);
    widen_heads(&file, "qwen3", LAYERS);
    struct program *program = build(&file, 0);
    const struct op *norm = find_op(program, OP_RMS_NORM, 1);
    assert_string_equal(name_of(program, norm->out), "q");
    assert_int_equal(norm->rms_norm.group, 16);
    assert_int_equal(find_op(program, OP_ATTEND, 0)->attend.heads, 4);
    assert_true(find_op(program, OP_ATTEND, 0)->attend.scale == 0.25f);
    close_both(program, &file);
}

static void smollm3_does_not_rotate_every_fourth_layer(void **state)
{
    (void)state;
    struct gguf_model file;
    model_make_llama(&file, "smollm3", LAYERS);
    struct program *program = build(&file, 0);
    assert_int_equal(count_ops(program, OP_ROPE), 2 * (LAYERS - 1));
    assert_false(program->ropes[0].halves);
    for (uint32_t i = 1; i < program->op_count; i++) { /* keys of layer 3 go into the cache as they come */
        if (program->ops[i].kind == OP_KV_APPEND) {
            assert_int_equal(program->ops[i - 1].kind,
                strcmp(name_of(program, program->ops[i].kv_append.key_state), "kv.3.k") ? OP_ROPE
                                                                                        : OP_MATMUL);
        }
    }
    close_both(program, &file);
}

static void phi3_has_fused_matrices(void **state)
{
    (void)state;
    struct gguf_model file;
    model_make_llama(&file, "phi3", LAYERS);
    model_set_u32(&file, "phi3.attention.sliding_window", 300);
    model_set_u32(&file, "phi3.rope.dimension_count", 6);
    model_set_text(&file, "phi3.rope.scaling.type", "longrope");
    model_set_u32(&file, "phi3.rope.scaling.original_context_length", 256);
    model_set_f32(&file, "phi3.rope.scaling.attn_factor", 1.25f);
    model_tensor(&file, TYPE_F32, 3, 0, "rope_factors_long.weight")->fill = 4;
    model_tensor(&file, TYPE_F32, 3, 0, "rope_factors_short.weight")->fill = 2;
    for (unsigned i = 0; i < LAYERS; i++) {
        char name[64];
        const char *const gone[] = {"attn_q", "attn_k", "attn_v", "ffn_gate"};
        for (size_t j = 0; j < 4; j++) {
            snprintf(name, sizeof name, "blk.%u.%s.weight", i, gone[j]);
            model_remove_tensor(&file, name);
        }
        model_tensor(&file, TYPE_Q4_0, WIDTH, 64, "blk.%u.attn_qkv.weight", i);
        model_tensor(&file, TYPE_Q4_0, WIDTH, 2 * FEED_FORWARD, "blk.%u.ffn_up.weight", i);
    }
    struct program *program = build(&file, 0);
    static const char *const weights[] = {"blk.0.attn_qkv.weight[0:32]", "blk.0.attn_qkv.weight[32:48]",
        "blk.0.attn_qkv.weight[48:64]", "blk.0.attn_output.weight", "blk.0.ffn_up.weight[0:40]",
        "blk.0.ffn_up.weight[40:80]"};
    for (uint32_t i = 0; i < sizeof weights / sizeof *weights; i++)
        assert_string_equal(name_of(program, find_op(program, OP_MATMUL, i)->inputs[0]), weights[i]);
    for (uint32_t i = 0; i < LAYERS; i++)
        assert_int_equal(find_op(program, OP_ATTEND, i)->attend.window, 300);
    assert_int_equal(program->ropes[0].dimensions, 6);
    assert_true(program->ropes[0].magnitude == 1.25f);
    assert_true(program->ropes[0].frequencies[0] == 0.25); /* 512 positions are more than 256 */
    close_both(program, &file);

    program = build(&file, 256);
    assert_true(program->ropes[0].frequencies[0] == 0.5);
    close_both(program, &file);

    struct program *none;
    model_tensor(&file, TYPE_F32, 64, 0, "blk.0.attn_qkv.bias");
    assert_int_equal(arch_build(model_open(&file), &none), SALVO_ERROR_UNSUPPORTED);
    assert_non_null(strstr(salvo_error(), "blk.0.attn_qkv.bias"));
    model_close(&file);
}

static void make_gemma(struct gguf_model *file, const char *architecture, uint32_t layers)
{
    model_make_llama(file, architecture, layers);
    for (uint32_t i = 0; i < layers; i++) {
        model_tensor(file, TYPE_F32, WIDTH, 0, "blk.%u.post_attention_norm.weight", i);
        model_tensor(file, TYPE_F32, WIDTH, 0, "blk.%u.post_ffw_norm.weight", i);
    }
}

static void gemma2_caps_norms_and_alternates(void **state)
{
    (void)state;
    struct gguf_model file;
    make_gemma(&file, "gemma2", LAYERS);
    struct program *program = build(&file, 0);
    assert_true(program->ops[0].embed.scale == sqrtf(WIDTH));
    assert_int_equal(count_ops(program, OP_ADD), 2 * LAYERS);
    assert_string_equal(
        name_of(program, find_op(program, OP_RMS_NORM, 1)->inputs[1]), "blk.0.post_attention_norm.weight");
    assert_string_equal(
        name_of(program, find_op(program, OP_RMS_NORM, 3)->inputs[1]), "blk.0.post_ffw_norm.weight");
    assert_int_equal(find_op(program, OP_GLU, 0)->glu.activation, ACTIVATION_GELU);
    for (uint32_t i = 0; i < LAYERS; i++) {
        const struct op *attend = find_op(program, OP_ATTEND, i);
        assert_int_equal(attend->attend.window, i % 2 ? 0 : 4096);
        assert_true(attend->attend.cap == 50);
    }
    assert_true(find_op(program, OP_SOFTCAP, 0)->softcap.cap == 30);
    assert_int_equal(program->rope_count, 1);
    close_both(program, &file);
}

static void gemma3_has_local_and_global_layers(void **state)
{
    (void)state;
    struct gguf_model file;
    make_gemma(&file, "gemma3", LAYERS);
    widen_heads(&file, "gemma3", LAYERS);
    model_set_u32(&file, "gemma3.attention.sliding_window", 64);
    model_set_f32(&file, "gemma3.rope.freq_base", 1e6f);
    model_set_f32(&file, "gemma3.rope.scaling.factor", 8);
    struct program *program = build(&file, 0);
    for (uint32_t i = 0; i < LAYERS; i++) {
        bool global = i == 5;
        assert_int_equal(find_op(program, OP_ATTEND, i)->attend.window, global ? 0 : 64);
        assert_true(find_op(program, OP_ATTEND, i)->attend.cap == 0);
        assert_int_equal(find_op(program, OP_ROPE, 2 * i)->rope.rope, global ? 0 : 1);
    }
    assert_int_equal(count_ops(program, OP_SOFTCAP), 0);
    assert_true(program->ropes[0].frequencies[0] == 0.125);
    assert_true(program->ropes[1].frequencies[0] == 1);
    assert_true(fabs(program->ropes[0].frequencies[1] * 8 - pow(1e6, -0.125)) < 1e-12);
    assert_true(fabs(program->ropes[1].frequencies[2] - 0.1) < 1e-12);
    close_both(program, &file);
}

/* The model of 62 layers scales scores by width / heads, whatever the size of its heads. */
static void the_largest_gemma_scales_otherwise(void **state)
{
    (void)state;
    struct gguf_model file;
    for (uint32_t layers = 61; layers <= 62; layers++) {
        make_gemma(&file, "gemma3", layers);
        widen_heads(&file, "gemma3", layers);
        struct program *program = build(&file, 0);
        assert_true(find_op(program, OP_ATTEND, 0)->attend.scale == 1 / sqrtf(layers == 62 ? 8 : 16));
        close_both(program, &file);
    }
    model_set_f32(&file, "gemma3.attention.scale", 0.5f); /* the file has the last word */
    struct program *program = build(&file, 0);
    assert_true(find_op(program, OP_ATTEND, 0)->attend.scale == 0.5f);
    close_both(program, &file);
}

/* ---- Angles ---- */

static void angles_follow_base_factors_and_scaling(void **state)
{
    (void)state;
    struct gguf_model file;
    model_make_llama(&file, "llama", LAYERS);
    model_set_f32(&file, "llama.rope.freq_base", 500000);
    model_tensor(&file, TYPE_F32, 4, 0, "rope_freqs.weight")->fill = 2;
    model_set_f32(&file, "llama.rope.scale_linear", 4); /* the older name of the factor */
    struct program *program = build(&file, 0);
    for (uint32_t i = 0; i < 4; i++)
        assert_true(fabs(program->ropes[0].frequencies[i] - pow(500000, -0.25 * i) / 8) < 1e-15);
    assert_true(program->ropes[0].magnitude == 1);
    close_both(program, &file);

    model_set_text(&file, "llama.rope.scaling.type", "none");
    program = build(&file, 0);
    assert_true(program->ropes[0].frequencies[0] == 0.5);
    close_both(program, &file);
}

/* Computed without the code, for dimensions 8, base 10000, factor 4, first context 512: pairs that turn 32
 * times and once within 512 positions are 0.405 and 1.91, so that the mixture runs from pair 0 to pair 2. */
static void yarn_keeps_high_frequencies(void **state)
{
    (void)state;
    struct gguf_model file;
    model_make_llama(&file, "llama", LAYERS);
    model_set_text(&file, "llama.rope.scaling.type", "yarn");
    model_set_f32(&file, "llama.rope.scaling.factor", 4);
    model_set_u32(&file, "llama.rope.scaling.original_context_length", 512);
    struct program *program = build(&file, 0);
    static const double expected[] = {1, 0.1 * (0.5 + 0.5 / 4), 0.01 / 4, 0.001 / 4};
    for (uint32_t i = 0; i < 4; i++)
        assert_true(fabs(program->ropes[0].frequencies[i] - expected[i]) < 1e-9);
    assert_true(fabs((double)program->ropes[0].magnitude - (1 + 0.1 * log(4))) < 1e-6);
    close_both(program, &file);
}

/* ---- Wrong files ---- */

struct wrong {
    const char *key; /* set to `number`, or unset if that is UINT32_MAX; or NULL */
    uint32_t number;
    const char *tensor; /* removed, or given the shape columns x rows */
    uint64_t columns, rows;
    const char *text; /* what the message says */
};

static const struct wrong wrongs[] = {
    {"general.architecture", UINT32_MAX, NULL, 0, 0, "key 'general.architecture' is missing"},
    {"general.architecture", 5, NULL, 0, 0, "key 'general.architecture' has type U32"},
    {"llama.block_count", UINT32_MAX, NULL, 0, 0, "key 'llama.block_count' is missing"},
    {"llama.block_count", 0, NULL, 0, 0, "key 'llama.block_count' is 0, it must be from 1 to 1024"},
    {"llama.block_count", 100000, NULL, 0, 0, "key 'llama.block_count' is 100000, it must be from 1 to 1024"},
    {"llama.block_count", 8, NULL, 0, 0, "tensor 'blk.7.attn_norm.weight' is missing"},
    {"llama.embedding_length", UINT32_MAX, NULL, 0, 0, "key 'llama.embedding_length' is missing"},
    {"llama.embedding_length", 0, NULL, 0, 0, "key 'llama.embedding_length' is 0"},
    {"llama.embedding_length", 64, NULL, 0, 0,
        "tensor 'token_embd.weight' has the shape 32 x 48, it must be 64 x 48"},
    {"llama.embedding_length", 33, NULL, 0, 0, "'llama.embedding_length' is 33, which is not a multiple of"},
    {"llama.feed_forward_length", UINT32_MAX, NULL, 0, 0, "key 'llama.feed_forward_length' is missing"},
    {"llama.feed_forward_length", 39, NULL, 0, 0,
        "tensor 'blk.0.ffn_gate.weight' has the shape 32 x 40, it must be 32 x 39"},
    {"llama.attention.head_count", UINT32_MAX, NULL, 0, 0, "key 'llama.attention.head_count' is missing"},
    {"llama.attention.head_count", 0, NULL, 0, 0, "key 'llama.attention.head_count' is 0"},
    {"llama.attention.head_count", 8, NULL, 0, 0, "heads of 4 elements are not supported"},
    {"llama.attention.head_count_kv", 0, NULL, 0, 0, "key 'llama.attention.head_count_kv' is 0"},
    {"llama.attention.head_count_kv", 3, NULL, 0, 0,
        "'llama.attention.head_count' is 4, which is not a multiple of"},
    {"llama.attention.head_count_kv", UINT32_MAX, NULL, 0, 0,
        "tensor 'blk.0.attn_k.weight' has the shape 32 x 16, it must be 32 x 32"},
    {"llama.attention.key_length", 16, NULL, 0, 0,
        "tensor 'blk.0.attn_q.weight' has the shape 32 x 32, it must be 32 x 64"},
    {"llama.attention.value_length", 16, NULL, 0, 0, "heads with keys of 8 and values of 16 elements"},
    {"llama.attention.layer_norm_rms_epsilon", UINT32_MAX, NULL, 0, 0,
        "key 'llama.attention.layer_norm_rms_epsilon' is missing"},
    {"llama.expert_count", 8, NULL, 0, 0,
        "mixture-of-experts models are not supported ('llama.expert_count' is 8)"},
    {"llama.rope.dimension_count", 7, NULL, 0, 0, "key 'llama.rope.dimension_count' is 7, it must be even"},
    {"llama.rope.dimension_count", 10, NULL, 0, 0,
        "key 'llama.rope.dimension_count' is 10, it must be from 2 to 8"},
    {"llama.rope.freq_base", 0, NULL, 0, 0, "key 'llama.rope.freq_base' is 0"},
    {"llama.vocab_size", 49, NULL, 0, 0,
        "the vocabulary has 49 tokens, tensor 'token_embd.weight' has 48 rows"},
    {NULL, 0, "token_embd.weight", 0, 0, "tensor 'token_embd.weight' is missing"},
    {NULL, 0, "token_embd.weight", 64, 48,
        "tensor 'token_embd.weight' has the shape 64 x 48, it must be 32 x 48"},
    {NULL, 0, "output_norm.weight", 0, 0, "tensor 'output_norm.weight' is missing"},
    {NULL, 0, "output_norm.weight", 31, 0, "tensor 'output_norm.weight' has the shape 31, it must be 32"},
    {NULL, 0, "output.weight", 32, 47, "tensor 'output.weight' has the shape 32 x 47, it must be 32 x 48"},
    {NULL, 0, "blk.6.attn_norm.weight", 0, 0, "tensor 'blk.6.attn_norm.weight' is missing"},
    {NULL, 0, "blk.2.attn_q.weight", 0, 0, "tensor 'blk.2.attn_q.weight' is missing"},
    {NULL, 0, "blk.2.attn_k.weight", 0, 0, "tensor 'blk.2.attn_k.weight' is missing"},
    {NULL, 0, "blk.2.attn_v.weight", 32, 17,
        "tensor 'blk.2.attn_v.weight' has the shape 32 x 17, it must be 32 x 16"},
    {NULL, 0, "blk.2.attn_output.weight", 0, 0, "tensor 'blk.2.attn_output.weight' is missing"},
    {NULL, 0, "blk.2.attn_output.bias", 31, 0,
        "tensor 'blk.2.attn_output.bias' has the shape 31, it must be 32"},
    {NULL, 0, "blk.2.ffn_norm.weight", 0, 0, "tensor 'blk.2.ffn_norm.weight' is missing"},
    {NULL, 0, "blk.2.ffn_gate.weight", 0, 0, "tensor 'blk.2.ffn_gate.weight' is missing"},
    {NULL, 0, "blk.2.ffn_up.weight", 0, 0, "tensor 'blk.2.ffn_up.weight' is missing"},
    {NULL, 0, "blk.2.ffn_down.weight", 0, 0, "tensor 'blk.2.ffn_down.weight' is missing"},
    {NULL, 0, "rope_freqs.weight", 3, 0, "tensor 'rope_freqs.weight' has the shape 3, it must be 4"},
};

static void expect_refusal(struct gguf_model *file, const char *text)
{
    struct program *program;
    enum salvo_status status = arch_build(model_open(file), &program);
    assert_null(program);
    if (status == SALVO_OK || !strstr(salvo_error(), text) ||
        strncmp(salvo_error(), "test.gguf: ", 11) != 0) {
        print_error("expected: %s\ngot: %s\n", text, status ? salvo_error() : "success");
        assert_true(false);
    }
    model_close(file);
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        const struct wrong *wrong = &wrongs[i];
        struct gguf_model file;
        model_make_llama(&file, "llama", LAYERS);
        if (wrong->key && wrong->number == UINT32_MAX)
            model_unset(&file, wrong->key);
        else if (wrong->key)
            model_set_u32(&file, wrong->key, wrong->number);
        if (wrong->tensor && wrong->columns)
            model_tensor(&file, TYPE_F32, wrong->columns, wrong->rows, "%s", wrong->tensor);
        else if (wrong->tensor)
            model_remove_tensor(&file, wrong->tensor);
        expect_refusal(&file, wrong->text);
    }
}

static void wrong_values_of_other_types_are_named(void **state)
{
    (void)state;
    struct gguf_model file;
    model_make_llama(&file, "llama", LAYERS);
    model_set_f32(&file, "llama.attention.layer_norm_rms_epsilon", NAN);
    expect_refusal(&file, "key 'llama.attention.layer_norm_rms_epsilon' is nan");

    static const struct {
        const char *key;
        float value;
        const char *text;
    } too_large[] = {
        {"llama.attention.scale", 1e38f,
            "key 'llama.attention.scale' is 1e+38, it must be from 1e-09 to 1e+09"},
        {"llama.attn_logit_softcapping", 1e38f,
            "key 'llama.attn_logit_softcapping' is 1e+38, it must be from 0"},
        {"llama.final_logit_softcapping", 1e38f,
            "key 'llama.final_logit_softcapping' is 1e+38, it must be from 0"},
        {"llama.rope.scaling.attn_factor", 1e20f,
            "key 'llama.rope.scaling.attn_factor' is 1e+20, it must be"},
    };
    for (size_t i = 0; i < sizeof too_large / sizeof *too_large; i++) {
        model_make_llama(&file, "llama", LAYERS);
        model_set_f32(&file, too_large[i].key, too_large[i].value);
        expect_refusal(&file, too_large[i].text);
    }

    model_make_llama(&file, "llama", LAYERS);
    model_set_f32(&file, "llama.rope.freq_base", INFINITY);
    expect_refusal(&file, "key 'llama.rope.freq_base' is inf");

    model_make_llama(&file, "llama", LAYERS);
    model_set_text(&file, "llama.block_count", "seven");
    expect_refusal(&file, "key 'llama.block_count' has type STRING");

    model_make_llama(&file, "llama", LAYERS);
    model_set_text(&file, "llama.rope.scaling.type", "su");
    expect_refusal(&file, "key 'llama.rope.scaling.type' is 'su', supported: none, linear, yarn, longrope");

    model_make_llama(&file, "llama", LAYERS);
    model_set_items(&file, "llama.attention.head_count_kv", (const uint32_t[]){2, 2, 1}, 3);
    expect_refusal(&file, "key 'llama.attention.head_count_kv' differs between layers (2 and 1)");

    model_make_llama(&file, "llama", LAYERS);
    model_set_items(&file, "llama.attention.head_count_kv", NULL, 0);
    expect_refusal(&file, "key 'llama.attention.head_count_kv' is an empty array");

    model_make_llama(&file, "llama", LAYERS);
    model_set_empty_texts(&file, "llama.attention.head_count", 2);
    expect_refusal(&file, "key 'llama.attention.head_count' has an item that is not a number");

    model_make_llama(&file, "llama", LAYERS);
    model_set_empty_texts(&file, "tokenizer.ggml.tokens", VOCABULARY - 1);
    expect_refusal(&file, "the vocabulary has 47 tokens");

    model_make_llama(&file, "llama", LAYERS);
    model_tensor(&file, TYPE_F32, 4, 0, "rope_freqs.weight")->fill = 0;
    expect_refusal(&file, "tensor 'rope_freqs.weight' has 0 at element 0, it must be positive");

    model_make_llama(&file, "llama", LAYERS);
    model_tensor(&file, 77, WIDTH, WIDTH, "blk.4.attn_q.weight");
    expect_refusal(&file, "tensor 'blk.4.attn_q.weight': tensor type 77 is unknown");

    model_make_llama(&file, "llama", LAYERS);
    model_set_text(&file, "llama.rope.scaling.type", "yarn");
    model_unset(&file, "llama.context_length");
    expect_refusal(&file, "key 'llama.rope.scaling.original_context_length' is missing");
}

static void an_unknown_architecture_lists_those_known(void **state)
{
    (void)state;
    struct gguf_model file;
    struct program *program;
    model_make_llama(&file, "gpt2", LAYERS);
    assert_int_equal(arch_build(model_open(&file), &program), SALVO_ERROR_UNSUPPORTED);
    assert_non_null(strstr(salvo_error(), "test.gguf: architecture 'gpt2' is not supported"));
    for (const struct arch *arch = llama_archs; arch->name; arch++)
        assert_non_null(strstr(salvo_error(), arch->name));
    model_close(&file);
}

static char warning[256];

static void keep_warning(void *user, enum salvo_log_level level, const char *line)
{
    (void)user;
    if (level == SALVO_LOG_WARNING)
        snprintf(warning, sizeof warning, "%s", line);
}

static void tensors_that_nobody_uses_are_told(void **state)
{
    (void)state;
    struct gguf_model file;
    salvo_log_set(keep_warning, NULL);
    model_make_llama(&file, "llama", LAYERS);
    close_both(build(&file, 0), &file);
    assert_string_equal(warning, "");
    model_tensor(&file, TYPE_F32, HEAD_DIM, 0, "blk.0.attn_q_norm.weight");
    close_both(build(&file, 0), &file);
    assert_string_equal(warning, "test.gguf: 1 of its 66 tensors are not used by the architecture 'llama'");
    salvo_log_set(NULL, NULL);
}

/* Every allocation fails once; nothing leaks, nothing is half built. */
static void memory_may_run_out_anywhere(void **state)
{
    (void)state;
    struct gguf_model file;
    model_make_llama(&file, "llama", LAYERS);
    model_tensor(&file, TYPE_F32, 4, 0, "rope_freqs.weight");
    const struct gguf *gguf = model_open(&file);
    struct program *program = NULL;
    uint64_t failures = 0;
    for (;; failures++) {
        memory_fail_at(failures + 1);
        enum salvo_status status = arch_build(gguf, &program);
        memory_fail_at(0);
        if (status == SALVO_OK)
            break;
        assert_int_equal(status, SALVO_ERROR_MEMORY);
        assert_null(program);
    }
    assert_in_range(failures, 2, 100);
    close_both(program, &file);
}

/* ---- Real files, where they are ---- */

static void build_file(const char *path, uint32_t layers, uint32_t vocabulary)
{
    struct gguf *gguf;
    struct program *program;
    if (access(path, R_OK) != 0) {
        print_message("skipped: there is no %s\n", path);
        return;
    }
    assert_int_equal(gguf_open(path, &gguf), SALVO_OK);
    if (arch_build(gguf, &program) != SALVO_OK) {
        print_error("%s\n", salvo_error());
        assert_true(false);
    }
    assert_int_equal(program->layers, layers);
    assert_int_equal(program->vocabulary, vocabulary);
    assert_int_equal(program->op_count, 1 + 14 * layers + 4);
    program_close(program);
    gguf_close(gguf);
}

static void real_files_become_programs(void **state)
{
    (void)state;
    char path[4096];
    const char *data = getenv("SALVO_TEST_DATA"), *source = getenv("SALVO_SOURCE");
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (data)
        snprintf(path, sizeof path, "%s/mini/llama-mini-f32.gguf", data);
    else
        snprintf(path, sizeof path, "%s/../shared/data/mini/llama-mini-f32.gguf", source ? source : ".");
    build_file(path, 2, 320);
    snprintf(path, sizeof path, "%s%s/salvo/models/SmolLM2-135M-Instruct.Q4_1.gguf",
        cache  ? cache
        : home ? home
               : "",
        cache ? "" : "/.cache");
    build_file(path, 30, 49152);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layer_of_llama_is_this_list),
        cmocka_unit_test(biases_and_own_output_are_used_where_they_are),
        cmocka_unit_test(qwen2_has_biases),
        cmocka_unit_test(qwen3_norms_heads),
        cmocka_unit_test(smollm3_does_not_rotate_every_fourth_layer),
        cmocka_unit_test(phi3_has_fused_matrices),
        cmocka_unit_test(gemma2_caps_norms_and_alternates),
        cmocka_unit_test(gemma3_has_local_and_global_layers),
        cmocka_unit_test(the_largest_gemma_scales_otherwise),
        cmocka_unit_test(angles_follow_base_factors_and_scaling),
        cmocka_unit_test(yarn_keeps_high_frequencies),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(wrong_values_of_other_types_are_named),
        cmocka_unit_test(an_unknown_architecture_lists_those_known),
        cmocka_unit_test(tensors_that_nobody_uses_are_told),
        cmocka_unit_test(memory_may_run_out_anywhere),
        cmocka_unit_test(real_files_become_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
