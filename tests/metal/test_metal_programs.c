/* Every format of weights, every op and odd shapes, group by group against the CPU. */
#include "backend/metal/metal_shared.h"
#include "metal/find_fake_metal.h"

/* After `count` ids, of which the last is a step of its own. */
static void verify(const char *shape, const char *mix, enum salvo_kv_type kv_type, uint32_t count)
{
    int32_t *ids = some_ids(count, 64, 5);
    assert_true(verify_against_cpu("metal", made_model(shape, mix), kv_type, ids, count).outputs > 20);
    free(ids);
}

static void every_format_agrees_with_the_cpu(void **state)
{
    (void)state;
    static const char *const mixes[] = {"F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K",
        "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4"};
    for (size_t i = 0; i < sizeof mixes / sizeof *mixes; i++)
        verify("llama-mini", mixes[i], SALVO_KV_AUTO, 11); /* 10 rows: simdgroup matrices */
}

/* A threadgroup takes up to eight rows of x. */
static void few_rows_agree_with_the_cpu(void **state)
{
    (void)state;
    verify("llama-mini", "Q4_K", SALVO_KV_AUTO, 9);
    verify("llama-odd", "F16", SALVO_KV_AUTO, 3);
    verify("llama-long", "F16", SALVO_KV_AUTO, 3);
}

/* Rows and columns of x that are no multiples of a tile, in several tiles. */
static void many_rows_agree_with_the_cpu(void **state)
{
    (void)state;
    verify("llama-odd", "F16", SALVO_KV_F16, 36);
}

/* The last token's attention is shared by several threadgroups, of which the last has fewer positions. */
static void split_attention_agrees_with_the_cpu(void **state)
{
    (void)state;
    const int records = fake_metal()->records_races;
    fake_metal()->records_races = 0; /* test_metal checks these dispatches for races */
    verify("llama-long", "F32", SALVO_KV_F16, METAL_SPLIT_POSITIONS + 30);
    fake_metal()->records_races = records;
}

static void odd_shapes_agree_with_the_cpu(void **state)
{
    (void)state;
    verify("llama-odd", "F32", SALVO_KV_AUTO, 12);
    verify("llama-odd", "Q4_0", SALVO_KV_F16, 12);
    verify("llama-64to1", "F32", SALVO_KV_AUTO, 3); /* 32 threads share a row, also in attention */
}

/* Norms behind the layers, a window, and scores and logits with a limit. */
static void windows_and_caps_agree_with_the_cpu(void **state)
{
    (void)state;
    verify("gemma2-tiny", "F32", SALVO_KV_AUTO, 12);
}

static void bytes_in_the_cache_agree_with_the_cpu(void **state)
{
    (void)state;
    verify("llama-tiny", "F32", SALVO_KV_Q8_0, 12);
    verify("llama-64to1", "F32", SALVO_KV_Q8_0, 3); /* heads of fewer elements than a scale has */
    verify("llama-mini", "F32", SALVO_KV_Q8_0, 3);  /* of two scales */
}

static void recurrences_agree_with_the_cpu(void **state)
{
    (void)state;
    verify("rwkv7-tiny", "F32", SALVO_KV_AUTO, 12);
    verify("arwkv7-tiny", "Q8_0", SALVO_KV_AUTO, 5);
}

/* Every value of a function constant that the host gives a kernel. */
struct variants {
    const char *kernel;
    unsigned constant, values[16], count;
};

#define TYPES                                                                                      \
    {METAL_F32, METAL_F16, METAL_BF16, METAL_Q4_0, METAL_Q4_1, METAL_Q5_0, METAL_Q5_1, METAL_Q8_0, \
        METAL_Q2_K, METAL_Q3_K, METAL_Q4_K, METAL_Q5_K, METAL_Q6_K, METAL_IQ4_NL, METAL_IQ4_XS,    \
        METAL_MXFP4},                                                                              \
        16

static const struct variants variants[] = {
    {"matmul", METAL_CONSTANT_KIND, TYPES},
    {"matmul_tiles", METAL_CONSTANT_KIND, TYPES},
    {"embed", METAL_CONSTANT_KIND, {METAL_F32, METAL_F16, METAL_BF16, METAL_Q8_0}, 4},
    {"attend", METAL_CONSTANT_KIND, TYPES},
    {"matmul", METAL_CONSTANT_LANES, {4, 8, 16, 32}, 4},
    {"matmul", METAL_CONSTANT_TOKENS, {1, METAL_MATMUL_TOKENS}, 2},
    {"matmul", METAL_CONSTANT_ROUNDS, {0, 1}, 2},
    {"matmul_tiles", METAL_CONSTANT_ROUNDS, {0, 1}, 2},
    {"matmul", METAL_CONSTANT_NORMS, {0, 1}, 2},
    {"matmul", METAL_CONSTANT_GATES, {0, 1}, 2},
    {"matmul", METAL_CONSTANT_ROWS, {1, 2, METAL_MATMUL_ROWS}, 3},
    {"matmul", METAL_CONSTANT_SIMDGROUPS, {METAL_MATMUL_SIMDGROUPS, 4}, 2},
    {"matmul", METAL_CONSTANT_SUMS, {1, METAL_MATMUL_SUMS}, 2},
    {"append", METAL_CONSTANT_CACHE, {METAL_F32, METAL_F16, METAL_Q8_0}, 3},
    {"attend", METAL_CONSTANT_CACHE, {METAL_F32, METAL_F16, METAL_Q8_0}, 3},
    {"attend", METAL_CONSTANT_PARTS, {0, METAL_PARTS}, 2},
    {"attend", METAL_CONSTANT_ROTATES, {0, 1}, 2},
    {"attend", METAL_CONSTANT_PROJECTS, {0, 1}, 2},
    {"attend", METAL_CONSTANT_ROUNDS, {0, 1}, 2},
    {"attend", METAL_CONSTANT_LANES, {4, 8, 16, 32}, 4},
    {"attend", METAL_CONSTANT_SUMS, {1, METAL_MATMUL_SUMS}, 2},
    {"normalise", METAL_CONSTANT_KIND, {METAL_RMS_NORM, METAL_LAYER_NORM, METAL_L2_NORM}, 3},
    {"each_column", METAL_CONSTANT_KIND,
        {METAL_GLU, METAL_ADD, METAL_MUL, METAL_LERP, METAL_RWKV_KEY, METAL_SELECT_ROWS, METAL_SOFTCAP}, 7},
};

/* By this program alone, so that a kernel or a variant of it without a test is noticed, also with sanitizers.
 */
static void every_kernel_has_run(void **state)
{
    (void)state;
    unsigned missing = 0;
    if (fake_metal()->idle_kernel)
        fail_msg("%s has not run", fake_metal()->idle_kernel);
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        const struct variants *each = &variants[i];
        for (unsigned j = 0; j < each->count; j++) {
            if (fake_metal()->has_run(each->kernel, each->constant, each->values[j]))
                continue;
            print_error("%s with function constant %u of %u has not run\n", each->kernel, each->constant,
                each->values[j]);
            missing++;
        }
    }
    assert_int_equal(0, missing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_agrees_with_the_cpu),
        cmocka_unit_test(few_rows_agree_with_the_cpu),
        cmocka_unit_test(many_rows_agree_with_the_cpu),
        cmocka_unit_test(split_attention_agrees_with_the_cpu),
        cmocka_unit_test(odd_shapes_agree_with_the_cpu),
        cmocka_unit_test(windows_and_caps_agree_with_the_cpu),
        cmocka_unit_test(bytes_in_the_cache_agree_with_the_cpu),
        cmocka_unit_test(recurrences_agree_with_the_cpu),
        cmocka_unit_test(every_kernel_has_run),
        cmocka_unit_test(nothing_is_left_and_no_rule_was_broken),
    };
    return RUN_CHOSEN_TESTS(tests, NULL);
}
