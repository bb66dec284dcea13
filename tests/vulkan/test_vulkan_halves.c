/* Cooperative matrices multiply f16 values: results agree with the CPU also for values beyond the f16 range
 * and for NaN. */
#include "vulkan_test.h"

#include "backend/vulkan/vulkan_format.h"
#include "gguf/gguf.h"
#include "model_write.h"
#include "quant/blocks.h"
#include "quant/half.h"
#include "quant/quant.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* vulkan_format_largest bounds a row by its scales, without reading every element. */
static void no_element_is_larger_than_its_scales_allow(void **state)
{
    (void)state;
    static const enum tensor_type types[] = {TYPE_Q4_0, TYPE_Q4_1, TYPE_Q5_0, TYPE_Q5_1, TYPE_Q8_0, TYPE_Q2_K,
        TYPE_Q3_K, TYPE_Q4_K, TYPE_Q5_K, TYPE_Q6_K, TYPE_IQ4_NL, TYPE_IQ4_XS, TYPE_MXFP4};
    enum { COLUMNS = 512, ROUNDS = 200 };
    static _Alignas(16) uint8_t blocks[COLUMNS * 2];
    static float values[COLUMNS];
    uint32_t seed = 1;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        int finite = 0;
        for (int round = 0; round < ROUNDS; round++) {
            float largest = 0;
            for (size_t j = 0; j < sizeof blocks; j++) {
                seed = seed * 1664525 + 1013904223;
                blocks[j] = (uint8_t)(seed >> 24 & 0xbf); /* halves are finite without this bit */
            }
            dequantize(types[i], blocks, COLUMNS, values);
            for (int j = 0; j < COLUMNS; j++)
                largest = fabsf(values[j]) > largest ? fabsf(values[j]) : largest;
            const float bound = vulkan_format_largest(types[i], blocks, COLUMNS);
            finite += isfinite(bound);
            assert_true(largest > 0 && largest <= bound);
        }
        assert_int_equal(ROUNDS, finite);
    }
}

/* A larger bound would make weights smaller than they need to be. */
static void a_block_of_the_largest_codes_reaches_the_bound(void **state)
{
    (void)state;
    struct block_mxfp4 block;
    float values[32];
    memset(&block, 0x77, sizeof block);
    block.exponent = 130;
    dequantize(TYPE_MXFP4, &block, 32, values);
    assert_true(values[0] == vulkan_format_largest(TYPE_MXFP4, (const uint8_t *)&block, 32));
}

static float *floats_of(uint8_t *bytes, const struct gguf *gguf, const char *name, size_t *out_count)
{
    const struct gguf_tensor *tensor = gguf_find_tensor(gguf, name);
    assert_non_null(tensor);
    assert_int_equal(TYPE_F32, tensor->type);
    *out_count = tensor->elements;
    return (float *)(void *)(bytes + tensor->offset);
}

/* Rows of a first layer far beyond what halves hold, and a matrix of which every element is. */
static void enlarge(const char *from, const char *to)
{
    static const char *const norms[] = {"blk.0.attn_norm.weight", "blk.0.ffn_norm.weight"};
    struct gguf *gguf;
    ASSERT_OK(gguf_open(from, &gguf));
    const size_t size = gguf_file_size(gguf);
    uint8_t *bytes = malloc(size);
    FILE *file = fopen(from, "rb");
    assert_non_null(file);
    assert_int_equal(1, fread(bytes, size, 1, file));
    fclose(file);
    for (size_t i = 0; i < 2; i++) {
        size_t count;
        float *values = floats_of(bytes, gguf, norms[i], &count);
        for (size_t j = 0; j < count; j++)
            values[j] *= 1e6f;
    }
    const struct gguf_tensor *up = gguf_find_tensor(gguf, "blk.0.ffn_up.weight");
    assert_non_null(up);
    assert_int_equal(TYPE_Q8_0, up->type);
    for (uint64_t at = up->offset; at < up->offset + up->size; at += 34) { /* a half, then 32 bytes */
        uint16_t scale;
        memcpy(&scale, bytes + at, sizeof scale);
        scale = f16_from_f32(f16_to_f32(scale) * 0x1p22f);
        assert_true((scale & 0x7fff) < 0x7c00 && f16_to_f32(scale) * 127 > 65504);
        memcpy(bytes + at, &scale, sizeof scale);
    }
    file = fopen(to, "wb");
    assert_non_null(file);
    assert_int_equal(1, fwrite(bytes, size, 1, file));
    fclose(file);
    free(bytes);
    gguf_close(gguf);
}

static void numbers_beyond_halves_agree_with_the_cpu(void **state)
{
    (void)state;
    struct salvo_model *model;
    struct salvo_verify_result result = SALVO_VERIFY_RESULT_INIT;
    char path[] = "/tmp/salvo-large-XXXXXX";
    const int handle = mkstemp(path);
    assert_true(handle >= 0);
    enlarge(made_model("llama-tiny", "Q8_0"), path);
    ASSERT_OK(salvo_model_open(path, &model));
    ASSERT_OK(salvo_verify(model,
        &(struct salvo_verify_options){.size = sizeof(struct salvo_verify_options),
            .backend = "vulkan",
            .against = "cpu",
            .threads = 2,
            .kv_type = SALVO_KV_F32},
        NULL, NULL, &result));
    salvo_model_close(model);
    close(handle);
    unlink(path);
    assert_true(result.outputs > 20);
    assert_int_equal(0, result.failed);
}

static bool is_all_nan(void *user, uint32_t position, const float *logits)
{
    unsigned *count = user;
    (void)position;
    for (uint32_t i = 0; i < 64; i++)
        *count += isnan(logits[i]) != 0;
    return true;
}

/* tanh of a score or a logit that is NaN: min() and max() of a device may drop it. */
static void softcaps_keep_nan(void **state)
{
    (void)state;
    static const char *const names[] = {"blk.0.attn_q.weight", "output_norm.weight"};
    static const int32_t ids[] = {1, 2, 3, 4};
    struct model_shape shape = smallest_llama(64, 8);
    shape.attention_cap = 2;
    shape.output_cap = 3;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[] = "/tmp/salvo-nan-XXXXXX";
        struct gguf *gguf;
        const float nan = NAN;
        unsigned count = 0;
        const int handle = mkstemp(path);
        assert_true(handle >= 0);
        ASSERT_OK(model_write(&shape, &model_mixes[0], path, 1));
        ASSERT_OK(gguf_open(path, &gguf));
        const struct gguf_tensor *tensor = gguf_find_tensor(gguf, names[i]);
        assert_non_null(tensor);
        FILE *file = fopen(path, "r+b");
        assert_non_null(file);
        assert_int_equal(0, fseek(file, (long)tensor->offset, SEEK_SET));
        assert_int_equal(1, fwrite(&nan, sizeof nan, 1, file));
        fclose(file);
        gguf_close(gguf);

        struct fixture fixture = fixture_open(
            path, (struct salvo_engine_options){
                      .size = sizeof(struct salvo_engine_options), .backend = "vulkan", .context = 8});
        ASSERT_OK(
            salvo_session_eval(fixture.session, ids, 1, is_all_nan, &count)); /* the plan for one token */
        ASSERT_OK(salvo_session_eval(fixture.session, ids + 1, 3, is_all_nan, &count));
        fixture_close(&fixture);
        close(handle);
        unlink(path);
        assert_int_equal(4 * 64, count);
    }
}

/* Guards the tests above: they must run on cooperative matrices. */
static void matrices_are_cooperative(void **state)
{
    (void)state;
    assert_true(vulkan_device_at(0)->features.coop_matrix);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_element_is_larger_than_its_scales_allow),
        cmocka_unit_test(a_block_of_the_largest_codes_reaches_the_bound),
        cmocka_unit_test(matrices_are_cooperative),
        cmocka_unit_test(numbers_beyond_halves_agree_with_the_cpu),
        cmocka_unit_test(softcaps_keep_nan),
        cmocka_unit_test(no_validation_messages),
    };
    return RUN_VULKAN_TESTS(tests);
}
