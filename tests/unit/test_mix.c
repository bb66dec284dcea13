#include "cmocka_test.h"

#include "quant/mix.h"

#include <string.h>

static const struct mix_model wide = {"llama", 32, 32, 8, false}; /* four heads share their keys and values */
static const struct mix_model plain = {"llama", 32, 32, 32, true};
static const struct mix_model mixtral = {"llama", 32, 32, 8, false, 8};
static const struct mix_model experts = {"qwen3moe", 32, 32, 8, false, 128};

static uint32_t chosen(
    const char *mix_name, const struct mix_model *model, const char *tensor, uint64_t columns, uint64_t rows)
{
    const struct mix *mix;
    assert_int_equal(mix_find(mix_name, &mix), SALVO_OK);
    struct mix_tensor description = {tensor, columns, rows, TYPE_F32, strstr(tensor, "_exps") != NULL};
    return mix_choose(mix, model, &description);
}

static void names_are_found_in_any_case(void **state)
{
    (void)state;
    const struct mix *mix;
    assert_int_equal(mix_find("q4_k_m", &mix), SALVO_OK);
    assert_string_equal(mix_name(mix), "Q4_K_M");
    assert_int_equal(mix_file_type(mix), 15);
    assert_int_equal(mix_find("Q4_K_XXL", &mix), SALVO_ERROR_ARGUMENT);
    assert_null(mix);
    assert_non_null(strstr(salvo_error(), "'Q4_K_XXL'"));
    assert_non_null(strstr(salvo_error(), " IQ4_XS"));
}

static void a_type_alone_is_its_medium_mix(void **state)
{
    (void)state;
    const char *const names[][2] = {{"Q3_K", "Q3_K_M"}, {"q4_k", "Q4_K_M"}, {"Q5_K", "Q5_K_M"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct mix *mix;
        assert_int_equal(mix_find(names[i][0], &mix), SALVO_OK);
        assert_string_equal(mix_name(mix), names[i][1]);
    }
}

static void a_pure_mix_has_exactly_one_type(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t type;
    } cases[] = {{"F32", TYPE_F32}, {"F16", TYPE_F16}, {"BF16", TYPE_BF16}, {"Q4_0", TYPE_Q4_0},
        {"Q4_1", TYPE_Q4_1}, {"Q5_0", TYPE_Q5_0}, {"Q5_1", TYPE_Q5_1}, {"Q8_0", TYPE_Q8_0},
        {"Q2_K", TYPE_Q2_K}, {"Q3_K", TYPE_Q3_K}, {"Q4_K", TYPE_Q4_K}, {"Q5_K", TYPE_Q5_K},
        {"Q6_K", TYPE_Q6_K}, {"IQ4_NL", TYPE_IQ4_NL}, {"IQ4_XS", TYPE_IQ4_XS}, {"MXFP4", TYPE_MXFP4}};
    const char *const tensors[] = {"output.weight", "token_embd.weight", "blk.0.ffn_down.weight"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct mix *mix;
        assert_int_equal(mix_find(cases[i].name, &mix), SALVO_OK);
        for (size_t j = 0; j < sizeof tensors / sizeof *tensors; j++)
            assert_int_equal(
                mix_choose_pure(mix, &(struct mix_tensor){tensors[j], 4096, 64, TYPE_F32}), cases[i].type);
    }
}

static void sensitive_tensors_get_more_bits(void **state)
{
    (void)state;
    assert_int_equal(chosen("Q4_K_M", &wide, "blk.0.ffn_down.weight", 4096, 4096), TYPE_Q6_K);
    assert_int_equal(chosen("Q4_K_M", &wide, "blk.4.ffn_down.weight", 4096, 4096), TYPE_Q4_K);
    assert_int_equal(chosen("Q4_K_M", &wide, "blk.6.attn_v.weight", 4096, 1024), TYPE_Q6_K);
    assert_int_equal(chosen("Q4_K_M", &wide, "blk.28.attn_v.weight", 4096, 1024), TYPE_Q6_K);
    assert_int_equal(chosen("Q4_K_M", &wide, "blk.28.attn_q.weight", 4096, 4096), TYPE_Q4_K);
    assert_int_equal(chosen("Q4_K_S", &wide, "blk.3.attn_v.weight", 4096, 1024), TYPE_Q5_K);
    assert_int_equal(chosen("Q4_K_S", &wide, "blk.4.attn_v.weight", 4096, 1024), TYPE_Q4_K);
    assert_int_equal(chosen("Q2_K", &wide, "blk.9.attn_v.weight", 4096, 1024), TYPE_Q4_K);
    assert_int_equal(chosen("Q2_K", &plain, "blk.9.attn_v.weight", 4096, 4096), TYPE_Q3_K);
    assert_int_equal(chosen("Q3_K_L", &plain, "blk.9.attn_output.weight", 4096, 4096), TYPE_Q5_K);
    assert_int_equal(chosen("Q4_0", &plain, "blk.0.ffn_down.weight", 4096, 4096), TYPE_Q4_0);
}

static void the_output_matrix_has_six_bits(void **state)
{
    (void)state;
    assert_int_equal(chosen("Q4_0", &wide, "output.weight", 4096, 32000), TYPE_Q6_K);
    assert_int_equal(chosen("Q4_0", &wide, "token_embd.weight", 4096, 32000), TYPE_Q4_0);
    assert_int_equal(chosen("Q4_0", &plain, "token_embd.weight", 4096, 32000), TYPE_Q6_K);
    assert_int_equal(chosen("Q8_0", &plain, "token_embd.weight", 4096, 32000), TYPE_Q8_0);
    assert_int_equal(chosen("F16", &plain, "token_embd.weight", 4096, 32000), TYPE_F16);
}

static void rows_that_are_not_whole_blocks_fall_back(void **state)
{
    (void)state;
    assert_int_equal(chosen("Q4_K_M", &plain, "blk.4.attn_q.weight", 576, 576), TYPE_Q5_0);
    assert_int_equal(chosen("Q5_K_S", &plain, "blk.4.attn_q.weight", 576, 576), TYPE_Q5_1);
    assert_int_equal(chosen("Q6_K", &plain, "blk.4.attn_q.weight", 576, 576), TYPE_Q8_0);
    assert_int_equal(chosen("Q2_K", &plain, "blk.4.attn_q.weight", 576, 576), TYPE_Q4_0);
    assert_int_equal(chosen("IQ4_XS", &plain, "blk.4.attn_q.weight", 576, 576), TYPE_IQ4_NL);
    assert_int_equal(chosen("Q4_0", &plain, "token_embd.weight", 576, 49152), TYPE_Q8_0);
    assert_int_equal(chosen("Q4_0", &plain, "blk.4.attn_q.weight", 50, 50), TYPE_F16);
}

/* The choices of llama.cpp (llama-quant.cpp), in the order value, key, attention output, experts' down. */
static void mixtures_of_experts(void **state)
{
    (void)state;
    static const char *const tensors[] = {"blk.4.attn_v.weight", "blk.4.attn_k.weight",
        "blk.4.attn_output.weight", "blk.4.ffn_down_exps.weight"};
    static const struct {
        const char *mix;
        const struct mix_model *model;
        uint32_t types[4];
    } cases[] = {
        {"Q4_K_M", &mixtral, {TYPE_Q8_0, TYPE_Q8_0, TYPE_Q5_K, TYPE_Q4_K}},
        {"Q3_K_S", &mixtral, {TYPE_Q8_0, TYPE_Q8_0, TYPE_Q5_K, TYPE_Q3_K}},
        {"Q3_K_L", &mixtral, {TYPE_Q8_0, TYPE_Q8_0, TYPE_Q3_K, TYPE_Q5_K}},
        {"Q2_K", &mixtral, {TYPE_Q8_0, TYPE_Q8_0, TYPE_Q5_K, TYPE_Q3_K}},
        {"Q2_K_S", &mixtral, {TYPE_Q8_0, TYPE_Q8_0, TYPE_Q2_K, TYPE_Q2_K}},
        {"IQ4_XS", &mixtral, {TYPE_Q8_0, TYPE_Q8_0, TYPE_Q5_K, TYPE_IQ4_XS}},
        {"Q5_K_M", &mixtral, {TYPE_Q8_0, TYPE_Q8_0, TYPE_Q5_K, TYPE_Q5_K}},
        {"Q6_K", &mixtral, {TYPE_Q8_0, TYPE_Q8_0, TYPE_Q6_K, TYPE_Q6_K}},
        {"Q4_0", &mixtral, {TYPE_Q8_0, TYPE_Q8_0, TYPE_Q4_0, TYPE_Q4_0}},
        {"MXFP4", &mixtral, {TYPE_Q8_0, TYPE_Q8_0, TYPE_Q8_0, TYPE_MXFP4}},
        {"MXFP4", &experts, {TYPE_Q8_0, TYPE_Q8_0, TYPE_Q8_0, TYPE_MXFP4}},
        {"Q4_K_M", &experts, {TYPE_Q4_K, TYPE_Q4_K, TYPE_Q4_K, TYPE_Q4_K}},
        {"Q3_K_M", &experts, {TYPE_Q4_K, TYPE_Q3_K, TYPE_Q4_K, TYPE_Q4_K}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t j = 0; j < 4; j++)
            assert_int_equal(chosen(cases[i].mix, cases[i].model, tensors[j], 4096, 1024), cases[i].types[j]);
    assert_int_equal(chosen("MXFP4", &experts, "output.weight", 4096, 32000), TYPE_Q8_0);
    assert_int_equal(chosen("MXFP4", &experts, "token_embd.weight", 4096, 32000), TYPE_Q8_0);
    assert_int_equal(chosen("Q4_K_M", &mixtral, "blk.4.ffn_gate_inp.weight", 4096, 8), TYPE_F32);
}

static void small_and_delicate_tensors_stay(void **state)
{
    (void)state;
    const char *const names[] = {"blk.0.attn_norm.weight", "blk.0.time_mix_w1.weight",
        "blk.0.time_mix_g2.weight", "blk.0.time_mix_lerp_fused.weight", "blk.0.attn_q.bias", "x"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(chosen("Q4_K_M", &wide, names[i], 4096, 64), TYPE_F32);
    assert_int_equal(chosen("Q4_K_M", &wide, "blk.0.attn_q.weight", 4096, 1), TYPE_F32);
    assert_int_equal(chosen("Q4_K_M", &wide, "blk.0.time_mix_key.weight", 4096, 4096), TYPE_Q4_K);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_found_in_any_case),
        cmocka_unit_test(a_type_alone_is_its_medium_mix),
        cmocka_unit_test(a_pure_mix_has_exactly_one_type),
        cmocka_unit_test(sensitive_tensors_get_more_bits),
        cmocka_unit_test(the_output_matrix_has_six_bits),
        cmocka_unit_test(rows_that_are_not_whole_blocks_fall_back),
        cmocka_unit_test(mixtures_of_experts),
        cmocka_unit_test(small_and_delicate_tensors_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
