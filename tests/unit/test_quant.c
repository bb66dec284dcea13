#include "cmocka_test.h"

#include "quant/blocks.h"
#include "quant/half.h"
#include "quant/quant.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const enum tensor_type all_types[] = {TYPE_F32, TYPE_F16, TYPE_BF16, TYPE_Q4_0, TYPE_Q4_1, TYPE_Q5_0,
    TYPE_Q5_1, TYPE_Q8_0, TYPE_Q2_K, TYPE_Q3_K, TYPE_Q4_K, TYPE_Q5_K, TYPE_Q6_K, TYPE_IQ4_NL, TYPE_IQ4_XS,
    TYPE_MXFP4};

enum { TYPES = sizeof all_types / sizeof *all_types, FIRST_BLOCK_TYPE = 3, COUNT = 1024 };

/* Aligned as the functions ask, large enough for COUNT elements of any type. */
static uint32_t storage[COUNT];
static float values[COUNT], result[COUNT];

static void there_and_back(enum tensor_type type)
{
    memset(storage, 0xee, sizeof storage);
    memset(result, 0xee, sizeof result);
    quantize(type, values, COUNT, storage);
    dequantize(type, storage, COUNT, result);
}

static uint32_t random_state;

static uint32_t random_bits(void)
{
    random_state = random_state * 1664525 + 1013904223;
    return random_state >> 8;
}

static float random_between(float low, float high)
{
    return low + (high - low) * (float)random_bits() / 0x1p24f;
}

static void fill(float low, float high)
{
    random_state = 1;
    for (int i = 0; i < COUNT; i++)
        values[i] = random_between(low, high);
}

static double relative_error(void)
{
    double error = 0, square = 0;
    for (int i = 0; i < COUNT; i++) {
        error += pow((double)result[i] - values[i], 2);
        square += pow(values[i], 2);
    }
    return sqrt(error / square);
}

static void only_known_formats_pass(void **state)
{
    (void)state;
    for (int i = 0; i < TYPES; i++)
        assert_int_equal(quant_check(all_types[i]), SALVO_OK);
    assert_int_equal(quant_check(TYPE_I32), SALVO_ERROR_UNSUPPORTED);
    assert_non_null(strstr(salvo_error(), "I32"));
    assert_int_equal(quant_check(4), SALVO_ERROR_UNSUPPORTED);
    assert_int_equal(quant_check(UINT32_MAX), SALVO_ERROR_UNSUPPORTED);
    assert_non_null(strstr(salvo_error(), "4294967295"));
}

static void blocks_have_the_sizes_of_the_type_table(void **state)
{
    (void)state;
    const size_t sizes[TYPES] = {4, 2, 2, sizeof(struct block_q4_0), sizeof(struct block_q4_1),
        sizeof(struct block_q5_0), sizeof(struct block_q5_1), sizeof(struct block_q8_0),
        sizeof(struct block_q2_k), sizeof(struct block_q3_k), sizeof(struct block_q4_k),
        sizeof(struct block_q5_k), sizeof(struct block_q6_k), sizeof(struct block_iq4_nl),
        sizeof(struct block_iq4_xs), sizeof(struct block_mxfp4)};
    for (int i = 0; i < TYPES; i++)
        assert_int_equal(tensor_type_info(all_types[i])->block_bytes, sizes[i]);
}

/* Every code of a block by hand, from the sentence in blocks.h. */
static void values_follow_the_layout(void **state)
{
    (void)state;
    struct block_q5_1 q5_1 = {.scale = f16_from_f32(0.5f), .min = f16_from_f32(-3)};
    q5_1.nibbles[3] = 0x92;
    q5_1.high[0] = 1 << 3;
    dequantize(TYPE_Q5_1, &q5_1, 32, result);
    assert_true(result[3] == 0.5f * 18 - 3);
    assert_true(result[19] == 0.5f * 9 - 3);
    assert_true(result[0] == -3);

    struct block_q4_k q4_k = {.scale = f16_from_f32(0.25f), .min = f16_from_f32(2)};
    q4_k.groups[1] = 0x80 | 33;  /* group 1: scale 33; group 5: upper bits 2 */
    q4_k.groups[5] = 0x40 | 7;   /* group 1: min 7; group 5: upper bits 1 */
    q4_k.groups[9] = 0x53;       /* group 5: scale 2 * 16 + 3, min 1 * 16 + 5 */
    q4_k.nibbles[4] = 0xb0;      /* element 36, in group 1 */
    q4_k.nibbles[64 + 4] = 0xc0; /* element 164, in group 5 */
    dequantize(TYPE_Q4_K, &q4_k, 256, result);
    assert_true(result[36] == 0.25f * 33 * 11 - 2 * 7);
    assert_true(result[164] == 0.25f * 35 * 12 - 2 * 21);

    struct block_q6_k q6_k = {.scale = f16_from_f32(0.125f)};
    q6_k.nibbles[64 + 5] = 0x70; /* element 128 + 64 + 5: low bits 7 */
    q6_k.pairs[32 + 5] = 0x20;   /* and upper bits 2, in the third pair */
    q6_k.groups[12] = -100;
    dequantize(TYPE_Q6_K, &q6_k, 256, result);
    assert_true(result[197] == 0.125f * -100 * (2 * 16 + 7 - 32));

    struct block_mxfp4 mxfp4 = {.exponent = 127, .nibbles = {0x5f}};
    dequantize(TYPE_MXFP4, &mxfp4, 32, result);
    assert_true(result[0] == -6);
    assert_true(result[16] == 3);
}

static void zeros_stay_zero(void **state)
{
    (void)state;
    memset(values, 0, sizeof values);
    values[7] = -0.0f;
    for (int i = 0; i < TYPES; i++) {
        there_and_back(all_types[i]);
        for (int j = 0; j < COUNT; j++)
            assert_true(result[j] == 0);
    }
}

static void a_constant_keeps_its_value(void **state)
{
    (void)state;
    const float constants[] = {1, -1, 0.02f, -300, 6e-5f};
    for (int c = 0; c < 5; c++) {
        for (int i = 0; i < TYPES; i++) {
            for (int j = 0; j < COUNT; j++)
                values[j] = constants[c];
            there_and_back(all_types[i]);
            double tolerance = all_types[i] == TYPE_MXFP4 ? 0.34 : 0.04; /* 4 or 6 times a power of two */
            assert_true(relative_error() < tolerance);
        }
    }
}

/* Values that a format represents exactly are kept: the search must find the scale they were made with. */
static void values_on_the_grid_return_unchanged(void **state)
{
    (void)state;
    const struct {
        enum tensor_type type;
        int lowest, highest;
        float offset;
    } grids[] = {{TYPE_Q4_0, -8, 7, 0}, {TYPE_Q5_0, -16, 15, 0}, {TYPE_Q8_0, -127, 127, 0},
        {TYPE_Q4_1, 0, 15, 5}, {TYPE_Q5_1, 0, 31, -4.5f}, {TYPE_Q3_K, -4, 3, 0}, {TYPE_Q6_K, -32, 31, 0},
        {TYPE_Q4_K, 0, 15, 0}, {TYPE_Q5_K, 0, 31, 0}, {TYPE_Q2_K, 0, 3, 0}};
    for (size_t grid = 0; grid < sizeof grids / sizeof *grids; grid++) {
        int steps = grids[grid].highest - grids[grid].lowest + 1;
        random_state = 7;
        for (int i = 0; i < COUNT; i++) {
            int code = i % 16 == 0   ? grids[grid].lowest
                       : i % 16 == 1 ? grids[grid].highest
                                     : (int)(random_bits() % (uint32_t)steps) + grids[grid].lowest;
            values[i] = 0.25f * (float)code + grids[grid].offset;
        }
        there_and_back(grids[grid].type);
        for (int i = 0; i < COUNT; i++)
            assert_true(fabsf(result[i] - values[i]) <= 0.25f / 64);
    }
}

static void error_is_what_the_bits_allow(void **state)
{
    (void)state;
    const double limits[TYPES] = {
        0, 0.0005, 0.004, 0.11, 0.11, 0.055, 0.055, 0.007, 0.35, 0.2, 0.1, 0.05, 0.025, 0.12, 0.12, 0.15};
    for (int power = -3; power < 4; power++) {
        float scale = powf(10, (float)power);
        fill(-scale, scale);
        for (int i = 0; i < TYPES; i++) {
            there_and_back(all_types[i]);
            assert_true(relative_error() <= limits[i]);
        }
    }
}

static void a_small_spread_around_a_large_mean_survives(void **state)
{
    (void)state;
    fill(1000, 1001);
    there_and_back(TYPE_Q4_1);
    for (int i = 0; i < COUNT; i++)
        assert_true(fabsf(result[i] - values[i]) < 0.3f); /* the minimum itself is rounded to 0.5 */
}

static void anything_becomes_finite(void **state)
{
    (void)state;
    const float odd[] = {NAN, -NAN, INFINITY, -INFINITY, FLT_MAX, -FLT_MAX, FLT_MIN, FLT_TRUE_MIN, 1e-30f,
        -1e30f, 65504, 1e5f, 6e-8f, -0.0f, 1, 3e-39f};
    for (uint32_t mask = 1; mask < 1 << 16; mask += 1021) {
        random_state = mask;
        for (int i = 0; i < COUNT; i++) {
            uint32_t choice = random_bits() % 16;
            values[i] = mask >> choice & 1 ? odd[choice] : random_between(-1, 1);
        }
        for (int i = FIRST_BLOCK_TYPE; i < TYPES; i++) {
            there_and_back(all_types[i]);
            for (int j = 0; j < COUNT; j++)
                assert_true(isfinite(result[j]));
        }
    }
}

/* Codes of -128 would overflow the products of integer kernels, also where the scale cannot grow any further.
 */
static void bytes_go_from_minus_127(void **state)
{
    (void)state;
    const float extremes[] = {-1, -65504, -1e7f, -1e9f, -FLT_MAX};
    for (size_t i = 0; i < sizeof extremes / sizeof *extremes; i++) {
        struct block_q8_0 block;
        float row[32];
        for (int j = 0; j < 32; j++)
            row[j] = j % 3 ? extremes[i] : extremes[i] / 2;
        quantize(TYPE_Q8_0, row, 32, &block);
        for (int j = 0; j < 32; j++)
            assert_in_range(block.codes[j] + 127, 0, 127);
        assert_int_equal(block.codes[1], -127);
    }
}

static void one_nan_does_not_harm_its_neighbours(void **state)
{
    (void)state;
    fill(-1, 1);
    for (int i = 0; i < COUNT; i += 32)
        values[i] = NAN;
    for (int i = FIRST_BLOCK_TYPE; i < TYPES; i++) {
        there_and_back(all_types[i]);
        for (int j = 0; j < COUNT; j++)
            assert_true(j % 32 == 0 ? fabsf(result[j]) < 0.3f : fabsf(result[j] - values[j]) < 0.45f);
    }
}

static void tiny_values_vanish_or_are_kept_but_never_grow(void **state)
{
    (void)state;
    for (int power = -10; power > -145; power -= 3) {
        float scale = ldexpf(1, power);
        fill(-scale, scale);
        for (int i = FIRST_BLOCK_TYPE; i < TYPES; i++) {
            there_and_back(all_types[i]);
            for (int j = 0; j < COUNT; j++)
                assert_true(fabsf(result[j]) <= 2 * scale + 2 * 0x1p-24f);
        }
    }
}

static void blocks_do_not_depend_on_each_other(void **state)
{
    (void)state;
    static uint32_t pieces[COUNT];
    fill(-2, 3);
    for (int i = 0; i < TYPES; i++) {
        const struct tensor_type_info *info = tensor_type_info(all_types[i]);
        quantize(all_types[i], values, COUNT, storage);
        size_t size = COUNT / info->block_elements * info->block_bytes, quarter = size / 4;
        for (size_t part = 0; part < 4; part++)
            quantize(
                all_types[i], values + part * (COUNT / 4), COUNT / 4, (uint8_t *)pieces + part * quarter);
        assert_memory_equal(storage, pieces, size);
    }
}

static void nothing_is_written_for_no_elements(void **state)
{
    (void)state;
    for (int i = 0; i < TYPES; i++) {
        quantize(all_types[i], values, 0, NULL);
        dequantize(all_types[i], NULL, 0, NULL);
    }
}

/* The bytes are the same on every machine, for every compiler: this is their hash on the first one. */
static void bytes_are_the_same_everywhere(void **state)
{
    (void)state;
    uint64_t hash = UINT64_C(14695981039346656037);
    fill(-1, 1);
    for (int i = 0; i < TYPES; i++) {
        const struct tensor_type_info *info = tensor_type_info(all_types[i]);
        quantize(all_types[i], values, COUNT, storage);
        for (size_t j = 0; j < COUNT / info->block_elements * info->block_bytes; j++)
            hash = (hash ^ ((uint8_t *)storage)[j]) * UINT64_C(1099511628211);
    }
    assert_int_equal(hash, UINT64_C(0x54aa16a62b5a28ea));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_known_formats_pass),
        cmocka_unit_test(blocks_have_the_sizes_of_the_type_table),
        cmocka_unit_test(values_follow_the_layout),
        cmocka_unit_test(zeros_stay_zero),
        cmocka_unit_test(a_constant_keeps_its_value),
        cmocka_unit_test(values_on_the_grid_return_unchanged),
        cmocka_unit_test(error_is_what_the_bits_allow),
        cmocka_unit_test(a_small_spread_around_a_large_mean_survives),
        cmocka_unit_test(anything_becomes_finite),
        cmocka_unit_test(bytes_go_from_minus_127),
        cmocka_unit_test(one_nan_does_not_harm_its_neighbours),
        cmocka_unit_test(tiny_values_vanish_or_are_kept_but_never_grow),
        cmocka_unit_test(blocks_do_not_depend_on_each_other),
        cmocka_unit_test(nothing_is_written_for_no_elements),
        cmocka_unit_test(bytes_are_the_same_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
