/* RWKV-7 and ARWKV-7: what they make of right files, and how they name what is wrong with others. */
#include "arch/arch.h"
#include "cmocka_test.h"
#include "gguf_model.h"

#include <stdio.h>
#include <string.h>

enum { LAYERS = 3, WIDTH = 32, HEAD = 8, FEED_FORWARD = 40, VOCABULARY = 48, RANK = 8, VALUE_RANK = 4 };

static void add_tensor(
    struct gguf_model *file, uint32_t layer, const char *name, uint64_t columns, uint64_t rows)
{
    model_tensor(file, TYPE_F32, columns, rows, "blk.%u.%s", layer, name);
}

static void add_low_rank(struct gguf_model *file, uint32_t layer, char letter, uint64_t rank)
{
    model_tensor(file, TYPE_F32, WIDTH, 0, "blk.%u.time_mix_%c0.weight", layer, letter);
    model_tensor(file, TYPE_F32, WIDTH, rank, "blk.%u.time_mix_%c1.weight", layer, letter);
    model_tensor(file, TYPE_F32, rank, WIDTH, "blk.%u.time_mix_%c2.weight", layer, letter);
}

static void add_layer(struct gguf_model *file, uint32_t layer, bool like_llama)
{
    static const char *const vectors[] = {"attn_norm.weight", "time_mix_ln.weight", "time_mix_ln.bias",
        "time_mix_k_k.weight", "time_mix_k_a.weight", "time_mix_r_k.weight"};
    static const char *const squares[] = {"time_mix_receptance.weight", "time_mix_key.weight",
        "time_mix_value.weight", "time_mix_output.weight"};
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        add_tensor(file, layer, vectors[i], WIDTH, 0);
    for (size_t i = 0; i < sizeof squares / sizeof *squares; i++)
        add_tensor(file, layer, squares[i], WIDTH, WIDTH);
    add_low_rank(file, layer, 'w', RANK);
    add_low_rank(file, layer, 'a', RANK);
    add_low_rank(file, layer, 'v', layer ? VALUE_RANK : RANK); /* as real files have it */
    add_tensor(file, layer, "time_mix_g1.weight", WIDTH, RANK);
    add_tensor(file, layer, "time_mix_g2.weight", RANK, WIDTH);
    add_tensor(file, layer, "time_mix_lerp_fused.weight", WIDTH, 6);
    if (like_llama) {
        add_tensor(file, layer, "ffn_norm.weight", WIDTH, 0);
        add_tensor(file, layer, "ffn_gate.weight", WIDTH, FEED_FORWARD);
        add_tensor(file, layer, "ffn_up.weight", WIDTH, FEED_FORWARD);
        add_tensor(file, layer, "ffn_down.weight", FEED_FORWARD, WIDTH);
    } else {
        add_tensor(file, layer, "attn_norm.bias", WIDTH, 0);
        add_tensor(file, layer, "attn_norm_2.weight", WIDTH, 0);
        add_tensor(file, layer, "attn_norm_2.bias", WIDTH, 0);
        add_tensor(file, layer, "channel_mix_lerp_k.weight", WIDTH, 0);
        add_tensor(file, layer, "channel_mix_key.weight", WIDTH, FEED_FORWARD);
        add_tensor(file, layer, "channel_mix_value.weight", FEED_FORWARD, WIDTH);
    }
}

static void set_number(struct gguf_model *file, const char *arch, const char *key, uint32_t value)
{
    char full[128];
    snprintf(full, sizeof full, "%s.%s", arch, key);
    model_set_u32(file, full, value);
}

static void make_file(struct gguf_model *file, const char *arch)
{
    const bool like_llama = strcmp(arch, "arwkv7") == 0;
    char epsilon[128];
    *file = (struct gguf_model){0};
    model_set_text(file, "general.architecture", arch);
    set_number(file, arch, "block_count", LAYERS);
    set_number(file, arch, "embedding_length", WIDTH);
    set_number(file, arch, "feed_forward_length", FEED_FORWARD);
    set_number(file, arch, "wkv.head_size", HEAD);
    set_number(file, arch, "attention.decay_lora_rank", RANK);
    set_number(file, arch, "attention.iclr_lora_rank", RANK);
    set_number(file, arch, "attention.value_residual_mix_lora_rank", VALUE_RANK);
    set_number(file, arch, "attention.gate_lora_rank", RANK);
    snprintf(epsilon, sizeof epsilon, "%s.attention.layer_norm_%sepsilon", arch, like_llama ? "rms_" : "");
    model_set_f32(file, epsilon, 1e-5f);
    model_tensor(file, TYPE_F32, WIDTH, VOCABULARY, "token_embd.weight");
    model_tensor(file, TYPE_F32, WIDTH, VOCABULARY, "output.weight");
    model_tensor(file, TYPE_F32, WIDTH, 0, "output_norm.weight");
    if (!like_llama) {
        model_tensor(file, TYPE_F32, WIDTH, 0, "output_norm.bias");
        model_tensor(file, TYPE_F32, WIDTH, 0, "token_embd_norm.weight");
        model_tensor(file, TYPE_F32, WIDTH, 0, "token_embd_norm.bias");
    }
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        add_layer(file, layer, like_llama);
}

/* ---- Right files ---- */

/* Names of the ops of one layer from its first norm on. */
static void assert_ops(const struct program *program, uint32_t first, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        assert_string_equal(names[i], op_infos[program->ops[first + i].kind].name);
}

static void a_layer_is_this_list(void **state)
{
    (void)state;
    static const char *const first[] = {"embed", "layer_norm", "layer_norm", "token_shift", "lerp", "lerp",
        "lerp", "lerp", "lerp", "lerp", "matmul", "matmul", "matmul", "matmul", "matmul", "matmul", "matmul",
        "matmul", "matmul", "l2_norm", "rwkv_key", "wkv7", "layer_norm", "rwkv_bonus", "mul", "matmul",
        "layer_norm", "token_shift", "lerp", "matmul", "matmul"};
    static const char *const second[] = {"layer_norm", "token_shift", "lerp", "lerp", "lerp", "lerp", "lerp",
        "lerp", "matmul", "matmul", "matmul", "matmul", "matmul", "matmul", "matmul", "matmul", "matmul",
        "matmul", "matmul", "lerp", "l2_norm"};
    enum { FIRST = sizeof first / sizeof *first };
    struct gguf_model file;
    struct program *program;
    make_file(&file, "rwkv7");
    assert_int_equal(SALVO_OK, arch_build(model_open(&file), &program));
    assert_ops(program, 0, first, FIRST);
    assert_ops(program, FIRST, second, sizeof second / sizeof *second);
    uint64_t recurrent = 0;
    for (uint32_t i = 0; i < program->buffer_count; i++)
        recurrent += program->buffers[i].kind == BUFFER_RECURRENT ? program->buffers[i].columns : 0;
    assert_int_equal(LAYERS * (2 * WIDTH + WIDTH * HEAD), recurrent);
    program_close(program);
    model_close(&file);
}

static void arwkv7_has_the_feed_forward_of_llama(void **state)
{
    (void)state;
    struct gguf_model file;
    struct program *program;
    make_file(&file, "arwkv7");
    assert_int_equal(SALVO_OK, arch_build(model_open(&file), &program));
    static const char *const end[] = {
        "rms_norm", "matmul", "matmul", "glu", "matmul", "select_rows", "rms_norm", "matmul", "sample"};
    enum { END = sizeof end / sizeof *end };
    assert_ops(program, program->op_count - END, end, END);
    assert_int_equal(OP_RMS_NORM, program->ops[1].kind);
    program_close(program);
    model_close(&file);
}

/* The first layer's tensors for the value residual are ignored, and may be absent. */
static void the_first_layer_needs_no_value_residual(void **state)
{
    (void)state;
    struct gguf_model file;
    struct program *program;
    make_file(&file, "rwkv7");
    model_remove_tensor(&file, "blk.0.time_mix_v0.weight");
    model_remove_tensor(&file, "blk.0.time_mix_v1.weight");
    model_remove_tensor(&file, "blk.0.time_mix_v2.weight");
    assert_int_equal(SALVO_OK, arch_build(model_open(&file), &program));
    program_close(program);
    model_close(&file);
}

static void the_gate_may_be_missing(void **state)
{
    (void)state;
    struct gguf_model file;
    struct program *program;
    make_file(&file, "arwkv7");
    model_unset(&file, "arwkv7.attention.gate_lora_rank");
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        add_tensor(&file, layer, "time_mix_lerp_fused.weight", WIDTH, 5);
    assert_int_equal(SALVO_OK, arch_build(model_open(&file), &program));
    for (uint32_t i = 0; i < program->op_count; i++)
        assert_int_not_equal(OP_MUL, program->ops[i].kind);
    program_close(program);
    model_close(&file);
}

/* ---- Wrong files ---- */

static void assert_refused(struct gguf_model *file, const char *words)
{
    struct program *program;
    assert_int_not_equal(SALVO_OK, arch_build(model_open(file), &program));
    assert_null(program);
    if (!strstr(salvo_error(), words))
        fail_msg("'%s' does not say '%s'", salvo_error(), words);
    model_close(file);
}

static void every_missing_key_is_named(void **state)
{
    (void)state;
    static const char *const keys[] = {"rwkv7.block_count", "rwkv7.embedding_length",
        "rwkv7.feed_forward_length", "rwkv7.wkv.head_size", "rwkv7.attention.decay_lora_rank",
        "rwkv7.attention.iclr_lora_rank", "rwkv7.attention.value_residual_mix_lora_rank",
        "rwkv7.attention.layer_norm_epsilon"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct gguf_model file;
        make_file(&file, "rwkv7");
        model_unset(&file, keys[i]);
        assert_refused(&file, keys[i]);
    }
}

static void every_missing_tensor_is_named(void **state)
{
    (void)state;
    struct gguf_model file, whole;
    make_file(&whole, "rwkv7");
    for (uint32_t i = 0; i < whole.tensor_count; i++) {
        const char *name = whole.tensors[i].name;
        if (strncmp(name, "blk.0.time_mix_v", 16) == 0 && name[16] >= '0' && name[16] <= '2')
            continue; /* not used */
        file = whole;
        model_remove_tensor(&file, name);
        assert_refused(&file, name);
    }
}

static void every_misshapen_tensor_is_named(void **state)
{
    (void)state;
    struct gguf_model file, whole;
    make_file(&whole, "rwkv7");
    for (uint32_t i = 0; i < whole.tensor_count; i++) {
        const char *name = whole.tensors[i].name;
        if (strncmp(name, "blk.0.time_mix_v", 16) == 0 && name[16] >= '0' && name[16] <= '2')
            continue;
        file = whole;
        model_tensor(&file, TYPE_F32, whole.tensors[i].shape[0] + 8,
            whole.tensors[i].dimensions > 1 ? whole.tensors[i].shape[1] : 0, "%s", name);
        assert_refused(&file, name);
    }
}

static void heads_must_fit(void **state)
{
    (void)state;
    struct gguf_model file;
    make_file(&file, "rwkv7");
    model_set_u32(&file, "rwkv7.wkv.head_size", 12);
    assert_refused(&file, "only multiples of 8 are supported");
    make_file(&file, "rwkv7");
    model_set_u32(&file, "rwkv7.wkv.head_size", 24);
    assert_refused(&file, "not a multiple of 'rwkv7.wkv.head_size', 24");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layer_is_this_list),
        cmocka_unit_test(arwkv7_has_the_feed_forward_of_llama),
        cmocka_unit_test(the_first_layer_needs_no_value_residual),
        cmocka_unit_test(the_gate_may_be_missing),
        cmocka_unit_test(every_missing_key_is_named),
        cmocka_unit_test(every_missing_tensor_is_named),
        cmocka_unit_test(every_misshapen_tensor_is_named),
        cmocka_unit_test(heads_must_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
