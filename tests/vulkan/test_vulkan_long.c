/* Long sessions, and a real model: SmolLM2 continues as its reference does, and what it chooses is what the
 * CPU chooses wherever that is not a matter of rounding. */
#include "vulkan_test.h"

#include "smollm2_continuations.h"
#include "unit/text_data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TURNS = LONG_RUN(400) };

/* The largest of a row, and how far the next is below it. */
static int32_t argmax_of(const float *logits, uint32_t count, float *out_margin)
{
    int32_t best = logits[1] > logits[0];
    float second = logits[!best];
    for (uint32_t i = 2; i < count; i++) {
        if (logits[i] > logits[best]) {
            second = logits[best];
            best = (int32_t)i;
        } else if (logits[i] > second) {
            second = logits[i];
        }
    }
    *out_margin = logits[best] - second;
    return best;
}

/* The likeliest ids after `places` are those of the CPU, which reads everything in one pass. Returns how many
 * of them have a margin. */
static uint32_t check_likeliest(const struct fixture *cpu, const int32_t *ids, uint32_t count,
    const uint32_t *places, const int32_t *likeliest, uint32_t place_count)
{
    uint32_t clear = 0;
    float *expected = logits_at_once(cpu, ids, count);
    for (uint32_t i = 0; i < place_count; i++) {
        float margin;
        const float *row = expected + (size_t)places[i] * cpu->vocabulary;
        const int32_t best = argmax_of(row, cpu->vocabulary, &margin);
        if (margin > 0.1f) {
            assert_int_equal(best, likeliest[i]);
            clear++;
        }
    }
    free(expected);
    return clear;
}

/*
 * Hundreds of turns in one session, which goes back to its beginning after each `stretch` of them. A turn is
 * an id that is given; now and then there are three, or the id that was chosen is taken: such turns are two
 * tokens, which cost software devices far more than one.
 */
static void check_turns(const char *shape, const char *mix, uint32_t stretch)
{
    enum { KEPT = 7, TAKES = 20, GIVES = 50, MOST = TURNS + TURNS / TAKES + TURNS / GIVES * 2 + 4 };
    const char *path = made_model(shape, mix);
    struct fixture fixture = fixture_open(
                       path, (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options),
                                 .backend = "vulkan",
                                 .context = MOST,
                                 .batch = 8}),
                   cpu = fixture_open(path,
                       (struct salvo_engine_options){
                           .size = sizeof(struct salvo_engine_options), .backend = "cpu", .context = MOST});
    int32_t *ids = some_ids(MOST, fixture.vocabulary, 17), *likeliest = calloc(stretch, sizeof *likeliest);
    uint32_t *places = calloc(stretch, sizeof *places), clear = 0;
    float margin;
    set_greedy(fixture.session);
    for (uint32_t i = 0; i < TURNS; i++) {
        uint32_t position = salvo_session_position(fixture.session);
        ASSERT_OK(salvo_session_feed(fixture.session, ids + position, i % GIVES == 0 ? 3 : 1));
        position = salvo_session_position(fixture.session);
        places[i % stretch] = position - 1;
        likeliest[i % stretch] =
            argmax_of(salvo_session_logits(fixture.session), fixture.vocabulary, &margin);
        if (i % TAKES == 0) {
            ASSERT_OK(salvo_session_next(fixture.session, &ids[position]));
            assert_int_equal(likeliest[i % stretch], ids[position]);
        }
        if (i % stretch != stretch - 1)
            continue;
        assert_memory_equal(ids, salvo_session_tokens(fixture.session), position * sizeof *ids);
        clear += check_likeliest(&cpu, ids, position, places, likeliest, stretch);
        if (i + 1 < TURNS)
            ASSERT_OK(salvo_session_rollback(fixture.session, KEPT));
    }
    assert_int_equal(0, counters_of(fixture.engine).allocations_after_load);
    print_message("%s %s: %u of %d turns have a margin over 0.1\n", shape, mix, clear, (int)TURNS);
    assert_true(clear > TURNS / 2);
    free(ids);
    free(likeliest);
    free(places);
    fixture_close(&fixture);
    fixture_close(&cpu);
}

static void hundreds_of_turns_are_one_pass(void **state)
{
    (void)state;
    check_turns("llama-tiny", "Q8_0", TURNS / 4); /* software devices are slow where the context is long */
    check_turns("rwkv7-tiny", "F32", TURNS);
}

/* ---- SmolLM2 ---- */

static void smollm2_continues_as_its_reference(void **state)
{
    (void)state;
    const char *path = default_model_path();
    if (!path)
        skip();
    check_smollm2_continuations(path,
        (struct salvo_engine_options){
            .size = sizeof(struct salvo_engine_options), .backend = "vulkan", .context = 64, .batch = 16});
}

/* Beside weights and state, with the usual context and batch. */
static void smollm2_takes_at_most_200_megabytes_more(void **state)
{
    (void)state;
    const char *path = default_model_path();
    if (!path)
        skip();
    struct fixture fixture = fixture_open(path,
        (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options), .backend = "vulkan"});
    const struct salvo_engine_info info = *salvo_engine_info(fixture.engine);
    print_message("weights %llu, state %llu, scratch %llu bytes\n", (unsigned long long)info.weight_bytes,
        (unsigned long long)info.state_bytes, (unsigned long long)info.scratch_bytes);
    assert_in_range(info.weight_bytes, 80000000, 120000000); /* the file has 98 MB */
    assert_in_range(info.scratch_bytes, 1, 200000000);
    assert_true(info.memory_free > 0);
    fixture_close(&fixture);
}

/* The device reads the ids that the CPU backend generated. */
static void smollm2_fed_the_cpus_ids_chooses_the_same(void **state)
{
    (void)state;
    enum { PROMPT = 4, COUNT = 32 };
    const int32_t prompt[PROMPT] = {504, 3575, 282, 4649};
    const char *path = default_model_path();
    uint32_t clear = 0;
    if (!path)
        skip();
    struct fixture cpu = fixture_open(path,
                       (struct salvo_engine_options){
                           .size = sizeof(struct salvo_engine_options), .backend = "cpu", .context = 64}),
                   fixture = fixture_open(
                       path, (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options),
                                 .backend = "vulkan",
                                 .context = 64,
                                 .batch = 16});
    set_greedy(cpu.session);
    free(continuation(cpu.session, prompt, PROMPT, COUNT - PROMPT));
    int32_t ids[COUNT];
    memcpy(ids, salvo_session_tokens(cpu.session), sizeof ids);
    float *expected = logits_at_once(&cpu, ids, COUNT), *got = logits_at_once(&fixture, ids, COUNT);
    for (uint32_t i = 0; i < COUNT; i++) {
        float margin, other;
        const size_t at = (size_t)i * cpu.vocabulary;
        const int32_t best = argmax_of(expected + at, cpu.vocabulary, &margin);
        if (margin > 0.1f) {
            assert_int_equal(best, argmax_of(got + at, cpu.vocabulary, &other));
            clear++;
        }
    }
    print_message("%u of %d positions have a margin over 0.1\n", clear, (int)COUNT);
    assert_true(clear >= COUNT / 2);
    free(expected);
    free(got);
    fixture_close(&cpu);
    fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hundreds_of_turns_are_one_pass),
        cmocka_unit_test(smollm2_continues_as_its_reference),
        cmocka_unit_test(smollm2_takes_at_most_200_megabytes_more),
        cmocka_unit_test(smollm2_fed_the_cpus_ids_chooses_the_same),
        cmocka_unit_test(no_validation_messages),
    };
    return RUN_VULKAN_TESTS(tests);
}
