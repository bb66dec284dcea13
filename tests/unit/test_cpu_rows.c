/* Where the rows of a step are, and how finely each is rounded: by its position alone. */
#include "cmocka_test.h"

#include "backend/cpu/executor.h"

enum { ROWS = 24, COLUMNS = 64 };

struct layout {
    struct executor executor;
    struct run runs[3];
    struct row_place rows[ROWS];
    uint32_t output_rows[ROWS];
    struct step step;
};

/* Runs that begin before, at and beyond the early positions. */
static void lay_out(struct layout *layout)
{
    *layout = (struct layout){
        .runs = {{.slot = 2, .first = 2, .count = 6, .first_row = 0, .logits = LOGITS_LAST},
            {.slot = 0, .first = EARLY_POSITIONS, .count = 7, .first_row = 6, .logits = LOGITS_NONE},
            {.slot = 1, .first = 0, .count = 5, .first_row = 13, .logits = LOGITS_ALL}}};
    layout->step = (struct step){.runs = layout->runs, .run_count = 3, .token_count = 18};
    layout->executor.runs = layout->runs;
    layout->executor.rows = layout->rows;
    layout->executor.output_rows = layout->output_rows;
    layout->executor.step = &layout->step;
    layout->executor.live[ROWS_RUNS] = 3;
    layout->executor.live[ROWS_TOKENS] = 18;
    step_lay_out_rows(&layout->executor);
}

static void rows_are_where_their_runs_put_them(void **state)
{
    (void)state;
    static struct layout layout;
    lay_out(&layout);
    const struct executor *executor = &layout.executor;
    assert_int_equal(executor->live[ROWS_OUTPUTS], 6);
    assert_int_equal(executor->output_rows[0], 5); /* the last of the first run */
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(executor->output_rows[1 + i], 13 + i);
    assert_int_equal(executor->early_end, 17); /* after position 3 of the last run */
    for (uint32_t run = 0, row = 0; run < 3; run++) {
        for (uint32_t i = 0; i < layout.runs[run].count; i++, row++) {
            assert_int_equal(executor->rows[row].run, run);
            assert_int_equal(executor->rows[row].position, layout.runs[run].first + i);
        }
    }
}

static void early_rows_have_two_digits(void **state)
{
    (void)state;
    static struct layout layout;
    lay_out(&layout);
    struct executor *executor = &layout.executor;
    for (uint32_t row = 0; row < 18; row++) {
        const unsigned early = layout.rows[row].position < 4 ? 2 : 1;
        assert_int_equal(row_terms(executor, false, ROWS_TOKENS, row), early);
        assert_int_equal(row_terms(executor, true, ROWS_TOKENS, row), 2);
    }
    for (uint32_t output = 0; output < 6; output++) {
        const uint32_t position = layout.rows[layout.output_rows[output]].position;
        assert_int_equal(row_terms(executor, false, ROWS_OUTPUTS, output), position < 4 ? 2 : 1);
    }
    assert_int_equal(row_terms(executor, false, ROWS_RUNS, 0), 1);

    executor->rounding = ACTIVATIONS_PLAIN;
    assert_int_equal(row_terms(executor, true, ROWS_TOKENS, 0), 1);
    executor->rounding = ACTIVATIONS_FINEST;
    assert_int_equal(row_terms(executor, false, ROWS_TOKENS, 12), 2);
}

/* Rows that are multiplied together have as many terms as the finest of them. */
static void tiles_have_room_for_the_finest_row(void **state)
{
    (void)state;
    static struct layout layout;
    static int8_t values[ROWS * COLUMNS * 2];
    static float scales[ROWS * COLUMNS], sums[ROWS * COLUMNS];
    static int32_t corrections[ROWS * COLUMNS];
    lay_out(&layout);
    struct executor *executor = &layout.executor;
    executor->kernels = &(const struct cpu_kernels){.tile_tokens = QUAD};
    executor->x.values = values;
    executor->x.scales = scales;
    executor->x.sums = executor->x.half_sums = sums;
    executor->x.corrections = executor->x.half_corrections = corrections;
    static const unsigned expected[] = {2, 1, 1, 2, 2}; /* of rows 0, 4, 8, 12, 16 */
    for (uint32_t quad = 0; quad < 5; quad++) {
        struct q8_tile q8 = tokens_tile(executor, false, ROWS_TOKENS, quad * QUAD, COLUMNS, 0);
        assert_int_equal(q8.terms, expected[quad]);
        assert_ptr_equal(q8.values, values + (size_t)quad * QUAD * COLUMNS * 2);
        q8 = tokens_tile(executor, false, ROWS_TOKENS, quad * QUAD, COLUMNS, 32);
        assert_ptr_equal(q8.values, values + (size_t)quad * QUAD * COLUMNS * 2 + 32 * QUAD * expected[quad]);
        assert_ptr_equal(q8.scales, scales + ((size_t)quad * QUAD * COLUMNS + 32 * QUAD) / 32);
        assert_int_equal(tokens_tile(executor, true, ROWS_TOKENS, quad * QUAD, COLUMNS, 0).terms, 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_where_their_runs_put_them),
        cmocka_unit_test(early_rows_have_two_digits),
        cmocka_unit_test(tiles_have_room_for_the_finest_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
