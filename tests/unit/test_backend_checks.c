/* Steps that every backend refuses: beyond its slots, positions, rows, pages or vocabulary. */
#include "cmocka_test.h"

#include "backend/common/checks.h"

#include <stdio.h>
#include <string.h>

enum { SLOTS = 3, CONTEXT = 600, BATCH = 16, OUTPUTS = 4, PAGES = 9, VOCABULARY = 50 };

static const struct backend_options options = {
    .slots = SLOTS, .context = CONTEXT, .batch = BATCH, .outputs = OUTPUTS};

/* Two runs: three tokens of a prompt in slot 0, and one token of slot 2 with its last logits. */
struct sample {
    uint32_t pages[3];
    int32_t ids[BATCH];
    struct run runs[SLOTS + 1];
    struct step step;
};

static void make_step(struct sample *sample)
{
    *sample = (struct sample){.pages = {0, 4, PAGES - 1}, .ids = {0, 1, VOCABULARY - 1, 7}};
    sample->runs[0] = (struct run){.slot = 0, .first = 0, .count = 3, .first_row = 0, .pages = sample->pages};
    sample->runs[1] = (struct run){
        .slot = 2, .first = 300, .count = 1, .first_row = 3, .logits = LOGITS_LAST, .pages = sample->pages};
    sample->step = (struct step){.runs = sample->runs, .run_count = 2, .token_count = 4, .ids = sample->ids};
}

static enum salvo_status check(const struct sample *sample)
{
    return backend_check_step(&options, PAGES, VOCABULARY, &sample->step);
}

static void what_just_fits_is_taken(void **state)
{
    (void)state;
    struct sample s;
    make_step(&s);
    assert_int_equal(SALVO_OK, check(&s));
    s.runs[0].first = CONTEXT - 3; /* up to the last position, which is on the last page */
    assert_int_equal(SALVO_OK, check(&s));
    s.runs[0].logits = LOGITS_ALL; /* 3 rows and 1 */
    assert_int_equal(SALVO_OK, check(&s));
    s.runs[0].has_logprobs = true;
    s.runs[0].next_id = VOCABULARY - 1;
    assert_int_equal(SALVO_OK, check(&s));
    s.ids[3] = VOCABULARY;
    s.runs[1].source = SOURCE_LAST; /* its ids are not looked at */
    assert_int_equal(SALVO_OK, check(&s));

    make_step(&s);
    s.runs[0].count = BATCH - 1;
    s.runs[1].first_row = BATCH - 1;
    s.step.token_count = BATCH;
    assert_int_equal(SALVO_OK, check(&s));

    make_step(&s);
    s.runs[0].count = s.step.token_count = 1;
    s.runs[0].logits = LOGITS_LAST;
    s.step.run_count = 1;
    s.step.repeat = 100;
    assert_int_equal(SALVO_OK, check(&s));

    /* A page beyond the last position is not looked at. */
    s.runs[0].first = 255;
    s.pages[1] = PAGES;
    assert_int_equal(SALVO_OK, check(&s));
    s.runs[0].first = 256;
    assert_int_equal(SALVO_ERROR_ARGUMENT, check(&s));
    assert_non_null(strstr(salvo_error(), "run 0: page 9 of 9"));
}

#define REFUSED(words, ...)                                                                          \
    do {                                                                                             \
        struct sample s;                                                                             \
        make_step(&s);                                                                               \
        __VA_ARGS__;                                                                                 \
        if (check(&s) != SALVO_ERROR_ARGUMENT || !strstr(salvo_error(), words))                      \
            fail_msg("%s: the error is '%s', it must say '%s'", #__VA_ARGS__, salvo_error(), words); \
    } while (0)

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    REFUSED("run 0 is scored", s.runs[0].logits = LOGITS_ALL, s.runs[0].has_logprobs = true,
        s.runs[0].next_id = VOCABULARY);
    REFUSED("run 0 is scored", s.runs[0].logits = LOGITS_ALL, s.runs[0].has_logprobs = true,
        s.runs[0].next_id = -1);
    REFUSED("run 1 is scored", s.runs[1].logits = LOGITS_ALL, s.runs[1].has_logprobs = true,
        s.runs[1].source = SOURCE_LAST);
    REFUSED("0 runs", s.step.run_count = 0);
    REFUSED("4 runs", s.step.run_count = SLOTS + 1);
    REFUSED("17 tokens", s.step.token_count = BATCH + 1);
    REFUSED("run 1: slot 3 of 3", s.runs[1].slot = SLOTS);
    REFUSED("run 1: slot 2 of 3, positions 300 + 0", s.runs[1].count = 0);
    REFUSED("positions 601 + 1 of 600", s.runs[1].first = CONTEXT + 1);
    REFUSED("positions 600 + 1 of 600", s.runs[1].first = CONTEXT);
    REFUSED("positions 598 + 3 of 600", s.runs[0].first = CONTEXT - 2);
    REFUSED("positions 4294967295 + 3", s.runs[0].first = UINT32_MAX);
    REFUSED("positions 1 + 4294967295", s.runs[0].first = 1, s.runs[0].count = UINT32_MAX);
    REFUSED("rows 5 + 1 of 4", s.runs[1].first_row = 5);
    REFUSED("rows 4 + 1 of 4", s.runs[1].first_row = 4);
    REFUSED("rows 4294967295 + 1", s.runs[1].first_row = UINT32_MAX);
    REFUSED("slot 2 is in runs 0 and 1", s.runs[0].slot = 2);
    REFUSED("run 0: page 9 of 9", s.pages[0] = PAGES);
    REFUSED("run 1: page 4294967295 of 9", s.pages[1] = UINT32_MAX);
    REFUSED("token id -1", s.ids[0] = -1);
    REFUSED("token id 50", s.ids[2] = VOCABULARY);
    REFUSED("token id 50", s.ids[3] = VOCABULARY);
    REFUSED("runs have 3", s.runs[0].count = 2);
    REFUSED("runs have 4", s.step.token_count = 5);
    REFUSED("logits for 5 rows of at most 4", s.runs[0].count = 4, s.runs[1].first_row = 4,
        s.step.token_count = 5, s.runs[0].logits = LOGITS_ALL);
    REFUSED("a step that repeats", s.step.repeat = 2);
    REFUSED("run 1 has 1 tokens in a step that repeats", s.step.repeat = 2, s.runs[0].count = 1,
        s.runs[0].logits = LOGITS_LAST, s.runs[1].first_row = 1, s.step.token_count = 2,
        s.runs[1].logits = LOGITS_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_just_fits_is_taken),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
