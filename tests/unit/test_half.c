#include "cmocka_test.h"

#include "quant/half.h"

#include <math.h>

/* The value of a half, from its definition and without bit tricks. */
static double value_by_definition(uint16_t half)
{
    int sign = half & 0x8000 ? -1 : 1, exponent = half >> 10 & 31, mantissa = half & 1023;
    if (exponent == 31)
        return mantissa ? NAN : sign * (double)INFINITY;
    return sign * ldexp(exponent ? 1024 + mantissa : mantissa, (exponent ? exponent : 1) - 25);
}

static void every_half_has_its_value_and_returns(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        uint16_t half = (uint16_t)bits;
        volatile float value = f16_to_f32(half); /* there and straight back again may be recurrent away */
        assert_int_equal(f32_bits(value), f32_bits(f16_to_f32_portable(half)));
        if (isnan(value)) {
            assert_true(isnan(value_by_definition(half)));
            assert_int_equal(f16_from_f32(value), half | 0x200); /* made quiet */
        } else {
            assert_true(value == value_by_definition(half));
            assert_int_equal(f16_from_f32(value), half);
        }
    }
}

/* Between two neighbouring halves: below the middle, on it, above it. */
static void rounding_goes_to_the_nearest_and_then_to_even(void **state)
{
    (void)state;
    for (uint16_t half = 0; half < 0x7bff; half++) {
        uint16_t next = half + 1, even = half % 2 ? next : half;
        float middle = (float)((value_by_definition(half) + value_by_definition(next)) / 2);
        assert_int_equal(f16_from_f32(middle), even);
        assert_int_equal(f16_from_f32(-middle), 0x8000 | even);
        assert_int_equal(f16_from_f32(nextafterf(middle, 0)), half);
        assert_int_equal(f16_from_f32(nextafterf(middle, INFINITY)), next);
    }
    assert_int_equal(f16_from_f32(nextafterf(65520, 0)), 0x7bff);
    assert_int_equal(f16_from_f32(65520), 0x7c00);
    assert_int_equal(f16_from_f32(-INFINITY), 0xfc00);
}

static void hardware_and_portable_code_agree(void **state)
{
    (void)state;
    for (uint64_t bits = 0; bits < UINT64_C(1) << 32;
         bits += 9973) { /* a prime: all exponents, many mantissas */
        float value = f32_from_bits((uint32_t)bits);
        assert_int_equal(f16_from_f32(value), f16_from_f32_portable(value));
    }
}

static void bf16_rounds_to_even_and_keeps_nan(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        uint16_t half = (uint16_t)bits;
        float value = bf16_to_f32(half);
        assert_int_equal(bf16_from_f32(value), isnan(value) ? half | 0x40 : half);
    }
    assert_int_equal(bf16_from_f32(f32_from_bits(0x3f808000)), 0x3f80);
    assert_int_equal(bf16_from_f32(f32_from_bits(0x3f808001)), 0x3f81);
    assert_int_equal(bf16_from_f32(f32_from_bits(0x3f818000)), 0x3f82);
    assert_int_equal(bf16_from_f32(f32_from_bits(0x7f7fffff)), 0x7f80);
    assert_int_equal(bf16_from_f32(f32_from_bits(0x7f800001)), 0x7fc0);
    assert_int_equal(bf16_from_f32(f32_from_bits(0x00000001)), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_has_its_value_and_returns),
        cmocka_unit_test(rounding_goes_to_the_nearest_and_then_to_even),
        cmocka_unit_test(hardware_and_portable_code_agree),
        cmocka_unit_test(bf16_rounds_to_even_and_keeps_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
