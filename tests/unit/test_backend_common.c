/* Values that all backends derive from steps, and KV pages between a backend's layout and the saved one. */
#include "cmocka_test.h"

#include "backend/common/barriers.h"
#include "backend/common/file_windows.h"
#include "backend/common/ropes.h"
#include "backend/common/state.h"
#include "backend/common/steps.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>

static void rows_follow_their_runs(void **state)
{
    (void)state;
    const struct run runs[] = {
        {.first = 7, .count = 2, .first_row = 3, .logits = LOGITS_LAST},
        {.first = 40, .count = 3, .first_row = 0, .logits = LOGITS_ALL},
        {.first = 0, .count = 1, .first_row = 5, .logits = LOGITS_NONE},
    };
    const struct row_place expected[] = {{1, 40}, {1, 41}, {1, 42}, {0, 7}, {0, 8}, {2, 0}};
    struct row_place rows[6];
    uint32_t outputs[6];
    step_place_rows(runs, 3, rows);
    assert_memory_equal(expected, rows, sizeof rows);
    assert_int_equal(4, step_output_rows(runs, 3, outputs));
    assert_memory_equal(((const uint32_t[]){4, 0, 1, 2}), outputs, 4 * sizeof *outputs);
}

static void pages_end_with_the_run(void **state)
{
    (void)state;
    const struct backend_options options = {.context = 1000};
    assert_int_equal(1, run_page_count(&options, &(struct run){.first = 255, .count = 1}, 1));
    assert_int_equal(2, run_page_count(&options, &(struct run){.first = 255, .count = 1}, 2));
    assert_int_equal(1, run_page_count(&options, &(struct run){.first = 255, .count = 1, .limit = 256}, 2));
    assert_int_equal(2, run_page_count(&options, &(struct run){.first = 0, .count = 300, .limit = 10}, 1));
    assert_int_equal(4, run_page_count(&options, &(struct run){.first = 900, .count = 1}, UINT32_MAX));
}

/* A session may have an id that was sampled after its last position. */
static void slots_have_one_token_more_than_the_context(void **state)
{
    (void)state;
    const struct backend_options options = {.context = 100};
    assert_int_equal(0, slot_tokens_at(&options, 0));
    assert_int_equal(202, slot_tokens_at(&options, 2));
}

static void only_plain_samplers_take_the_largest(void **state)
{
    (void)state;
    const float bias = 0;
    struct sampler_settings settings = {.repeat_penalty = 1, .repeat_last_n = 64};
    assert_true(sampler_is_argmax(&settings));
    settings.presence_penalty = 0.5F;
    assert_true(sampler_penalises(&settings));
    assert_false(sampler_is_argmax(&settings));
    settings.repeat_last_n = 0; /* no id is penalised */
    assert_true(sampler_is_argmax(&settings));
    settings.bias = &bias;
    assert_false(sampler_is_argmax(&settings));
    settings = (struct sampler_settings){.repeat_penalty = 1, .temperature = 1};
    assert_false(sampler_is_argmax(&settings));
}

/* Fractions are multiples of 2^-32; a top_p of 1 is off, a min_p of 1 needs 33 bits. */
static void devices_get_fractions_as_integers(void **state)
{
    (void)state;
    struct sampler_settings settings = {.temperature = 0.5F,
        .top_p = 0.75F,
        .min_p = 1,
        .repeat_penalty = 4,
        .repeat_last_n = 9,
        .seed = UINT64_C(0x123456789)};
    struct device_sampler got = sampler_for_device(&settings);
    assert_int_equal(0xC0000000, got.top_p);
    assert_false(got.top_p_off || got.is_argmax);
    assert_int_equal(0, got.min_p_low);
    assert_int_equal(1, got.min_p_high);
    assert_true(got.inverse_temperature == 2 && got.inverse_repeat == 0.25F);
    assert_int_equal(9, got.recent);
    assert_int_equal(0x23456789, got.seed_low);
    assert_int_equal(1, got.seed_high);
    settings.top_p = settings.repeat_penalty = 1;
    got = sampler_for_device(&settings);
    assert_true(got.top_p_off && got.top_p == 0 && got.recent == 0);
}

/* Two entries of a rope's table are the angle of any position: 700 = 2 * 256 + 188. */
static void two_entries_of_a_rope_table_are_any_position(void **state)
{
    (void)state;
    double frequencies[] = {1, 0.01}, one[] = {0.5};
    struct rope ropes[] = {{.dimensions = 4, .magnitude = 2, .frequencies = frequencies},
        {.dimensions = 2, .magnitude = 1, .frequencies = one}};
    const struct program program = {.ropes = ropes, .rope_count = 2};
    float tables[(256 + 3) * (4 + 2)];
    uint32_t offsets[2];
    assert_int_equal(sizeof tables / sizeof *tables, rope_tables_size(&program, 700));
    rope_tables_fill(&program, 700, offsets, tables);
    assert_int_equal(0, offsets[0]);
    assert_int_equal((256 + 3) * 4, offsets[1]);
    for (int i = 0; i < 2; i++) {
        const float *low = tables + (size_t)188 * 4 + 2 * i, *high = tables + (size_t)(256 + 2) * 4 + 2 * i;
        const double cosine = (double)low[0] * (double)high[0] - (double)low[1] * (double)high[1],
                     sine = (double)low[0] * (double)high[1] + (double)low[1] * (double)high[0];
        assert_true(fabs(cosine - 2 * cos(700 * frequencies[i])) < 1e-6);
        assert_true(fabs(sine - 2 * sin(700 * frequencies[i])) < 1e-6);
    }
}

enum { HEADS = 2, HEAD_DIM = 34, SCALES = 2, COUNT = 3, HEAD_BYTES = HEAD_DIM + SCALES * 2 };

/* Bytes of the page are their own offsets, so that each saved byte says where it came from. */
static void pages_are_saved_position_by_position(void **state)
{
    (void)state;
    struct kv_cache cache = {
        .heads = HEADS, .head_dim = HEAD_DIM, .is_key = true, .element_bytes = 1, .scales = SCALES};
    /* Positions innermost, as the CPU has its keys; 4 positions a page are enough here. */
    cache.page = (struct kv_page_layout){.head_bytes = 4 * HEAD_BYTES,
        .position_step = 1,
        .element_step = 4,
        .scales_at = (size_t)4 * HEAD_DIM,
        .scale_position_step = 2,
        .scale_step = 8};
    uint16_t page[HEADS * 2 * HEAD_BYTES], restored[HEADS * 2 * HEAD_BYTES];
    uint8_t *bytes = (uint8_t *)page, saved[COUNT * HEADS * HEAD_BYTES];
    assert_int_equal(HEAD_BYTES, kv_head_bytes(&cache));
    assert_int_equal(sizeof page, kv_page_bytes(&cache));
    for (size_t i = 0; i < sizeof page; i++)
        bytes[i] = (uint8_t)(i * 7 + i / 251);
    kv_page_copy(&cache, bytes, COUNT, saved, false);
    for (size_t position = 0; position < COUNT; position++) {
        for (size_t head = 0; head < HEADS; head++) {
            const uint8_t *at = saved + (position * HEADS + head) * HEAD_BYTES,
                          *from = bytes + head * cache.page.head_bytes;
            for (size_t i = 0; i < HEAD_DIM; i++)
                assert_int_equal(from[i * 4 + position], at[i]);
            for (size_t i = 0; i < SCALES; i++)
                assert_memory_equal(from + 4 * HEAD_DIM + (i * 4 + position) * 2, at + HEAD_DIM + i * 2, 2);
        }
    }
    /* The positions that were not saved stay as they are. */
    memset(restored, 0xEE, sizeof restored);
    kv_page_copy(&cache, (uint8_t *)restored, COUNT, saved, true);
    for (size_t i = 0; i < sizeof page; i++) {
        const size_t in_head = i % cache.page.head_bytes, of_scales = in_head - cache.page.scales_at;
        const size_t position = in_head < cache.page.scales_at ? in_head % 4 : of_scales / 2 % 4;
        assert_int_equal(position < COUNT ? bytes[i] : 0xEE, ((uint8_t *)restored)[i]);
    }
}

/* Pages have 256 bytes and windows at most 1024: weights 1 and 2 share one, weight 0 is behind them, weight 3
 * in another file; weight 4 is not chosen. */
static void windows_contain_the_chosen_weights(void **state)
{
    (void)state;
    static const uint8_t file[8192];
    const uint8_t *page = file + (256 - (uintptr_t)file % 256);
    const struct gguf_tensor tensors[] = {{.data = page + 1100}, {.data = page + 300}, {.data = page + 700},
        {.data = page + 1500, .part = 1}, {.data = page + 5000}};
    struct program_buffer buffers[5];
    const struct program program = {.buffers = buffers, .buffer_count = 5};
    const bool chosen[] = {true, true, true, true, false};
    struct file_window *windows;
    uint32_t count;
    for (size_t i = 0; i < 5; i++)
        buffers[i] =
            (struct program_buffer){.type = TYPE_F32, .rows = 2, .columns = 40, .tensor = &tensors[i]};
    buffers[1].first_row = 1; /* of its tensor: begins at 460 */
    assert_int_equal(SALVO_OK, file_windows_find(&program, chosen, 256, 1024, &windows, &count));
    assert_int_equal(3, count);
    assert_ptr_equal(page + 256, windows[0].begin);
    assert_int_equal(768, windows[0].size);
    assert_ptr_equal(page + 1024, windows[1].begin);
    assert_int_equal(512, windows[1].size);
    assert_ptr_equal(page + 1280, windows[2].begin);
    assert_int_equal(1, windows[2].part);
    assert_true(file_window_contains(&windows[0], &buffers[1]));
    assert_true(file_window_contains(&windows[0], &buffers[2]));
    assert_false(file_window_contains(&windows[0], &buffers[0]));
    assert_true(file_window_contains(&windows[1], &buffers[0]));
    assert_false(file_window_contains(&windows[1], &buffers[3]));
    memory_free(windows);
}

static struct dispatch_uses listed_uses(const void *plan, uint32_t dispatch)
{
    return (struct dispatch_uses){(const struct memory_use *)plan + (size_t)2 * dispatch, 2};
}

/* Two ranges for each dispatch. The search looks back to the last barrier, not beyond it. */
static void dispatches_that_write_used_memory_wait(void **state)
{
    (void)state;
    const char a = 0, b = 0;
    const struct memory_use plan[][2] = {
        {{&a, 0, 64, false}, {&a, 64, 64, true}},
        {{&a, 0, 64, false}, {&a, 128, UINT64_MAX, true}}, /* only reads what the first reads */
        {{&b, 64, 64, true}, {&a, 0, 8, false}},           /* other memory */
        {{&a, 120, 16, false}, {&b, 0, 64, true}},         /* reads what both wrote */
        {{&a, 0, 64, false}, {&a, 64, 64, false}},         /* reads what was written before the barrier */
        {{&a, 135, 1, true}, {&b, 64, 64, false}},         /* writes what is read */
        {{&a, 136, 1, true}, {&b, 64, 64, false}},         /* next to it */
        {{&a, UINT64_MAX - 1, UINT64_MAX, true}, {&a, 64, 0, false}}, /* far behind it */
        {{&a, UINT64_MAX, 1, true}, {&a, 0, 0, true}},
    };
    const bool expected[] = {false, false, false, true, false, true, false, false, true};
    bool waits[9];
    assert_int_equal(3, find_barriers(plan, 9, listed_uses, waits));
    assert_memory_equal(expected, waits, sizeof waits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_follow_their_runs),
        cmocka_unit_test(pages_end_with_the_run),
        cmocka_unit_test(slots_have_one_token_more_than_the_context),
        cmocka_unit_test(only_plain_samplers_take_the_largest),
        cmocka_unit_test(devices_get_fractions_as_integers),
        cmocka_unit_test(two_entries_of_a_rope_table_are_any_position),
        cmocka_unit_test(pages_are_saved_position_by_position),
        cmocka_unit_test(windows_contain_the_chosen_weights),
        cmocka_unit_test(dispatches_that_write_used_memory_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
