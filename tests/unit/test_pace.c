/* How many tokens go into one submission, from what submissions before took. */
#include "backend/common/pace.h"
#include "cmocka_test.h"

enum { MS = 1000000 };

static void tokens(void **state)
{
    (void)state;
    struct pace pace;
    pace_open(&pace, 100 * MS, 512, 64);
    assert_int_equal(1, pace_tokens(&pace)); /* nothing is known yet */
    pace_note_tokens(&pace, 0, 0);
    assert_int_equal(1, pace_tokens(&pace));
    pace_note_tokens(&pace, 30 * MS, 3);
    assert_int_equal(9, pace_tokens(&pace)); /* a little less than 100 / 10 */
    pace_note_tokens(&pace, 300 * MS, 1);
    assert_int_equal(1, pace_tokens(&pace));
    pace_note_tokens(&pace, 0, 8); /* a clock that stands still */
    assert_int_equal(100 * MS, pace_tokens(&pace));
    pace_open(&pace, 0, 512, 64);
    pace_note_tokens(&pace, 300 * MS, 1);
    assert_int_equal(UINT32_MAX, pace_tokens(&pace));
}

static void chunks(void **state)
{
    (void)state;
    struct pace pace;
    pace_open(&pace, 100 * MS, 512, 64);
    assert_int_equal(64, pace.chunk);
    pace_note_chunk(&pace, 50 * MS, 64); /* 128 would take 100 ms */
    assert_int_equal(112, pace.chunk);
    pace_note_chunk(&pace, 90 * MS, 32); /* few tokens say nothing against a chunk that was found */
    assert_int_equal(112, pace.chunk);
    pace_note_chunk(&pace, 101 * MS, 32); /* unless they take too long themselves */
    assert_int_equal(16, pace.chunk);
    pace_note_chunk(&pace, 1000 * MS, 16); /* there is no smaller one */
    assert_int_equal(16, pace.chunk);
    pace_note_chunk(&pace, 1000 * MS, 15); /* not a whole chunk */
    assert_int_equal(16, pace.chunk);
    pace_note_chunk(&pace, 1 * MS, 16);
    assert_int_equal(512, pace.chunk);
    pace_open(&pace, 100 * MS, 40, 64);
    assert_int_equal(40, pace.chunk);
    pace_open(&pace, 0, 512, 64);
    pace_note_chunk(&pace, 10000u * (uint64_t)MS, 512);
    assert_int_equal(512, pace.chunk);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens),
        cmocka_unit_test(chunks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
