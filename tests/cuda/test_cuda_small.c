/*
 * Small models on small devices, on a driver without a GPU: rows that do not fit shared memory, and blocks
 * that cannot all be resident. The CPU is the reference.
 */
#include "cmocka_test.h"
#include "cuda/fake_device.h"
#include "cuda/find_fake_cuda.h"
#include "cuda/verify_on_cuda.h"
#include "engine_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void verify(const char *shape, const char *mix, bool in_pieces)
{
    const unsigned long before = fake->pieces;
    verify_on_cuda(shape, mix, SALVO_KV_AUTO, 4);
    assert_int_equal(in_pieces, fake->pieces > before);
}

static void inputs_in_pieces(void **state)
{
    (void)state;
    set_fake_device(LITTLE_SHARED, FAKE_MULTIPROCESSORS);
    verify("llama-tiny", "Q4_0", false);
    verify("llama-wide", "Q4_0", true);
    verify("llama-wide", "F16", true);
    verify("llama-tall", "Q4_K_M", true);
    verify("rwkv7-tiny", "Q4_0", false);
    verify("rwkv7-wide", "Q4_0", true);
    verify("rwkv7-wide", "F16", true);
}

/* Ids that a model generates with samplers that need scratch memory. */
static void take_ids(const char *path, const char *backend, float temperature, int32_t out[4])
{
    struct fixture fixture =
        fixture_open(path, (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options),
                               .backend = backend,
                               .context = 64,
                               .batch = 16,
                               .threads = 1});
    int32_t *ids = some_ids(5, fixture.vocabulary, 7);
    struct salvo_sampler sampler = default_sampler(fixture.model);
    struct salvo_generate_result result = SALVO_GENERATE_RESULT_INIT;
    sampler.temperature = temperature;
    sampler.top_k = 5;
    sampler.repeat_penalty = 1.1f;
    sampler.seed = 3;
    ASSERT_OK(salvo_session_set_sampler(fixture.session, &sampler));
    ASSERT_OK(salvo_session_feed(fixture.session, ids, 5));
    ASSERT_OK(salvo_session_generate(fixture.session,
        &(struct salvo_generate_options){
            .size = sizeof(struct salvo_generate_options), .max_tokens = 4, .ignore_end = true},
        &result));
    assert_int_equal(4, result.tokens);
    memcpy(out, salvo_session_tokens(fixture.session) + 5, 4 * sizeof *out);
    free(ids);
    fixture_close(&fixture);
}

/* The largest logit's id is the CPU's. Among ids of nearly equal logits others may be chosen: there the
 * reference is a device with room for everything. */
static void sampling(void **state)
{
    (void)state;
    static const char *const shapes[] = {"llama-wide", "rwkv7-wide"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const char *path = made_model_with_vocabulary(shapes[i], "Q8_0");
        for (int hot = 0; hot < 2; hot++) {
            int32_t little[4], expected[4];
            const float temperature = hot ? 0.8f : 0;
            const unsigned long before = fake->pieces;
            set_fake_device(LITTLE_SHARED, FAKE_MULTIPROCESSORS);
            take_ids(path, "cuda", temperature, little);
            assert_true(fake->pieces > before);
            set_fake_device(FAKE_SHARED, 12);
            take_ids(path, hot ? "cuda" : "cpu", temperature, expected);
            assert_memory_equal(expected, little, sizeof expected);
        }
    }
}

/* ---- Blocks that cannot all be resident ---- */

static char said[256];

static void keep_line(void *user, enum salvo_log_level level, const char *text)
{
    (void)user;
    if (level == SALVO_LOG_INFO)
        snprintf(said, sizeof said, "%s", text);
}

static void blocks_not_resident(void **state)
{
    (void)state;
    static const char *const shapes[] = {"llama-tiny", "rwkv7-tiny"};
    set_fake_device(FAKE_SHARED, FAKE_MULTIPROCESSORS);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const char *path = made_model_with_vocabulary(shapes[i], "Q8_0");
        for (int hot = 0; hot < 2; hot++) {
            int32_t together[4], apart[4];
            const float temperature = hot ? 0.8f : 0;
            take_ids(path, "cuda", temperature, together);
            *said = 0;
            salvo_log_set(keep_line, NULL);
            fake->resident = false;
            take_ids(path, "cuda", temperature, apart);
            fake->resident = true;
            salvo_log_set(NULL, NULL);
            assert_memory_equal(together, apart, sizeof apart);
            assert_non_null(strstr(said, "3 blocks of"));
        }
        fake->resident = false;
        verify(shapes[i], "Q4_0", false);
        fake->resident = true;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_not_resident),
        cmocka_unit_test(inputs_in_pieces),
        cmocka_unit_test(sampling),
    };
    return cmocka_run_group_tests(tests, find_fake, NULL);
}
