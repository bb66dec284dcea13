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
    fake_metal()->records_races = 0; /* test_metal checks these dispatches for races */
    verify("llama-tiny", "F32", SALVO_KV_F16, METAL_SPLIT_POSITIONS + 30);
    fake_metal()->records_races = 1;
}

static void odd_shapes_agree_with_the_cpu(void **state)
{
    (void)state;
    verify("llama-odd", "F32", SALVO_KV_AUTO, 12);
    verify("llama-odd", "Q4_0", SALVO_KV_F16, 12);
}

static void bytes_in_the_cache_agree_with_the_cpu(void **state)
{
    (void)state;
    verify("llama-tiny", "F32", SALVO_KV_Q8_0, 12);
}

static void recurrences_agree_with_the_cpu(void **state)
{
    (void)state;
    verify("rwkv7-tiny", "F32", SALVO_KV_AUTO, 12);
    verify("arwkv7-tiny", "Q8_0", SALVO_KV_AUTO, 5);
}

/* By this program alone, so that a kernel without a test is noticed. */
static void every_kernel_has_run(void **state)
{
    (void)state;
    if (fake_metal()->idle_kernel)
        fail_msg("%s has not run", fake_metal()->idle_kernel);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_agrees_with_the_cpu),
        cmocka_unit_test(few_rows_agree_with_the_cpu),
        cmocka_unit_test(many_rows_agree_with_the_cpu),
        cmocka_unit_test(split_attention_agrees_with_the_cpu),
        cmocka_unit_test(odd_shapes_agree_with_the_cpu),
        cmocka_unit_test(bytes_in_the_cache_agree_with_the_cpu),
        cmocka_unit_test(recurrences_agree_with_the_cpu),
        cmocka_unit_test(every_kernel_has_run),
        cmocka_unit_test(nothing_is_left_and_no_rule_was_broken),
    };
    return RUN_CHOSEN_TESTS(tests, NULL);
}
