/*
 * The CUDA backend from end to end on a driver without a GPU, whose kernels run on the emulator: tables,
 * graphs, loading, steps, states. The CPU is the reference.
 */
#include "backend/common/debug.h"
#include "backend/cuda/cuda_batch.h"
#include "batch_schedule.h"
#include "cmocka_test.h"
#include "copy_checks.h"
#include "cuda/emulated_sessions.h"
#include "cuda/fake_device.h"
#include "cuda/find_fake_cuda.h"
#include "cuda/verify_on_cuda.h"
#include "embed_checks.h"
#include "engine/session.h"
#include "engine/session_pages.h"
#include "engine_fixture.h"
#include "gguf/gguf.h"
#include "mask_checks.h"
#include "repeat_checks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void groups_and_models(void **state)
{
    (void)state;
    verify_on_cuda("llama-odd", "F32", SALVO_KV_AUTO, 6);
    verify_on_cuda("llama-tiny", "Q4_0", SALVO_KV_AUTO, 6);
    verify_on_cuda("llama-256", "Q4_K_M", SALVO_KV_Q8_0, 6);
    verify_on_cuda("llama-256", "Q2_K", SALVO_KV_F32, 6);
    verify_on_cuda("rwkv7-tiny", "F16", SALVO_KV_AUTO, 6);
    verify_on_cuda("rwkv7-256", "Q3_K_M", SALVO_KV_AUTO, 6);
    verify_on_cuda("arwkv7-tiny", "Q8_0", SALVO_KV_AUTO, 6);
}

/* ---- The first positions, where activations have two terms: both backends are next to exact ---- */

enum { EARLY = 4 };
struct early_logits {
    uint32_t vocabulary;
    float logits[EARLY][MOST_VOCABULARY];
};

static bool keep_early(void *user, uint32_t position, const float *logits)
{
    struct early_logits *kept = user;
    memcpy(kept->logits[position], logits, kept->vocabulary * sizeof *logits);
    return true;
}

/* Feeds `part` ids at a time; without ids, pseudo-random ones. */
static struct early_logits *early_logits(const char *path, const char *backend, const int32_t given[EARLY],
    uint32_t part, enum activation_rounding rounding)
{
    struct fixture fixture =
        fixture_open(path, (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options),
                               .backend = backend,
                               .context = 32,
                               .batch = 32,
                               .threads = 1});
    struct early_logits *kept = test_calloc(1, sizeof *kept);
    int32_t *ids = some_ids(EARLY, fixture.vocabulary, 3);
    if (rounding != ACTIVATIONS_AS_USUAL)
        fixture.engine->backend->set_rounding(fixture.engine->executor, rounding);
    if (given)
        memcpy(ids, given, EARLY * sizeof *ids);
    kept->vocabulary = fixture.vocabulary;
    assert_true(kept->vocabulary <= MOST_VOCABULARY);
    for (uint32_t i = 0; i < EARLY; i += part)
        ASSERT_OK(salvo_session_eval(fixture.session, ids + i, part, keep_early, kept));
    free(ids);
    fixture_close(&fixture);
    return kept;
}

/* Relative distance of the logits from the CPU's logits. */
static double early_error(
    const char *path, const char *backend, uint32_t part, enum activation_rounding rounding)
{
    struct early_logits *ours = early_logits(path, backend, NULL, part, rounding),
                        *theirs = early_logits(path, "cpu", NULL, EARLY, ACTIVATIONS_AS_USUAL);
    double distance = 0, size = 0;
    for (uint32_t i = 0; i < EARLY; i++) {
        for (uint32_t j = 0; j < ours->vocabulary; j++) {
            const double a = (double)ours->logits[i][j], b = (double)theirs->logits[i][j];
            distance += (a - b) * (a - b);
            size += b * b;
        }
    }
    test_free(ours);
    test_free(theirs);
    assert_true(size > 0);
    return sqrt(distance / size);
}

static void early_positions(void **state)
{
    (void)state;
    static const char *const shapes[] = {"llama-256", "rwkv7-256"}, *const mixes[] = {"Q4_0", "Q2_K"};
    for (size_t i = 0; i < 2; i++) {
        for (size_t j = 0; j < 2; j++) {
            const char *path = made_model(shapes[i], mixes[j]);
            assert_true(early_error(path, "cuda", 1, ACTIVATIONS_AS_USUAL) < 3e-4);
            assert_true(early_error(path, "cuda", EARLY, ACTIVATIONS_AS_USUAL) < 3e-4);
            /* Halves are nearer than one term of int8, the rounding of all later positions. */
            setenv("SALVO_FAKE_WARPGROUPS", "1", 1);
            const double halves = early_error(path, "cuda", EARLY, ACTIVATIONS_AS_USUAL);
            unsetenv("SALVO_FAKE_WARPGROUPS");
            const double int8 = early_error(path, "cpu", EARLY, ACTIVATIONS_PLAIN);
            if (!(halves < int8 / 2))
                fail_msg("%s: %g by halves, %g by int8", path, halves, int8);
        }
    }
}

/* ---- Steps ---- */

/* The next ids of a session, with one submission per token. */
static void take_one_by_one(struct salvo_session *session, uint32_t count, int32_t *out)
{
    for (uint32_t i = 0; i < count; i++)
        ASSERT_OK(salvo_session_next(session, &out[i]));
}

/* With blocks that are not all resident a token is a graph of launches. */
static void submitting(const char *shape, bool resident)
{
    enum { COUNT = 9 };
    const char *path = made_model_with_vocabulary(shape, "Q8_0");
    int32_t plain[COUNT], *ids;
    struct salvo_generate_result result = SALVO_GENERATE_RESULT_INIT;
    struct salvo_sampler sampler;
    fake->resident = resident;
    struct fixture fixture = fixture_open(path, on_cuda);
    ids = some_ids(11, fixture.vocabulary, 4);
    sampler = default_sampler(fixture.model);
    sampler.repeat_penalty = 1.2f;
    sampler.seed = 9;
    ASSERT_OK(salvo_session_set_sampler(fixture.session, &sampler));
    ASSERT_OK(salvo_session_set_bias(fixture.session, 7, 0.5f));
    ASSERT_OK(salvo_session_feed(fixture.session, ids, 11));
    take_one_by_one(fixture.session, COUNT, plain);

    /* The same by generating, where tokens are decoded ahead. */
    struct salvo_counters before = counters_of(fixture.engine);
    ASSERT_OK(salvo_session_rollback(fixture.session, 11));
    ASSERT_OK(salvo_session_generate(fixture.session,
        &(struct salvo_generate_options){
            .size = sizeof(struct salvo_generate_options), .max_tokens = COUNT, .ignore_end = true},
        &result));
    assert_int_equal(COUNT, result.tokens);
    assert_memory_equal(plain, salvo_session_tokens(fixture.session) + 11, sizeof plain);

    struct salvo_counters after = counters_of(fixture.engine);
    assert_true(after.bytes_read_back - before.bytes_read_back <= 16 * (after.tokens - before.tokens));
    assert_int_equal(0, after.allocations_after_load);
    free(ids);
    fixture_close(&fixture);
    fake->resident = true;
}

static void submissions(void **state)
{
    (void)state;
    submitting("llama-tiny", true);
    submitting("rwkv7-tiny", true);
    submitting("llama-tiny", false);
    submitting("rwkv7-tiny", false);
}

/* Ids of the largest logits: without barriers, and by the stages of sampling where blocks are not resident.
 */
static void choose_greedily(const char *shape, bool resident, int blocks, int shared_bytes, int32_t out[6])
{
    struct salvo_generate_result result = SALVO_GENERATE_RESULT_INIT;
    struct salvo_sampler sampler;
    fake->resident = resident;
    set_fake_device(shared_bytes, blocks);
    struct fixture fixture = fixture_open(made_model_with_vocabulary(shape, "Q8_0"), on_cuda);
    int32_t *ids = some_ids(5, fixture.vocabulary, 8);
    sampler = default_sampler(fixture.model);
    sampler.temperature = 0;
    ASSERT_OK(salvo_session_set_sampler(fixture.session, &sampler));
    ASSERT_OK(salvo_session_feed(fixture.session, ids, 5));
    ASSERT_OK(salvo_session_generate(fixture.session,
        &(struct salvo_generate_options){
            .size = sizeof(struct salvo_generate_options), .max_tokens = 6, .ignore_end = true},
        &result));
    assert_int_equal(6, result.tokens);
    memcpy(out, salvo_session_tokens(fixture.session) + 5, 6 * sizeof *out);
    free(ids);
    fixture_close(&fixture);
    fake->resident = true;
    set_fake_device(FAKE_SHARED, FAKE_MULTIPROCESSORS);
}

/* With many blocks some have almost no work. */
static void greedy(void **state)
{
    (void)state;
    static const char *const shapes[] = {"llama-tiny", "rwkv7-tiny"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        int32_t expected[6], ids[6];
        choose_greedily(shapes[i], false, 3, FAKE_SHARED, expected);
        choose_greedily(shapes[i], true, 3, FAKE_SHARED, ids);
        assert_memory_equal(expected, ids, sizeof ids);
        choose_greedily(shapes[i], true, 30, FAKE_SHARED, ids);
        assert_memory_equal(expected, ids, sizeof ids);
        choose_greedily(shapes[i], true, 3, LITTLE_SHARED, ids); /* attention has no room of its own */
        assert_memory_equal(expected, ids, sizeof ids);
    }
}

/* Two sessions in one step, which need not begin together. */
static void share_steps(const char *shape)
{
    struct fixture fixture = fixture_open(made_model(shape, "Q8_0"), on_cuda);
    struct salvo_session *both[2] = {fixture.session};
    int32_t *ids = some_ids(20, fixture.vocabulary, 5), alone[2][4], together[2];
    enum salvo_status statuses[2];
    ASSERT_OK(salvo_session_open(fixture.engine, &both[1]));
    for (int i = 0; i < 2; i++) {
        set_greedy(both[i]);
        ASSERT_OK(salvo_session_feed(both[i], ids + i * 7, 5 + (size_t)i * 8));
        take_one_by_one(both[i], 4, alone[i]);
        ASSERT_OK(salvo_session_rollback(both[i], 5 + (uint32_t)i * 8));
    }
    for (int step = 0; step < 4; step++) {
        ASSERT_OK(salvo_engine_next(both, 2, together, statuses));
        for (int i = 0; i < 2; i++) {
            ASSERT_OK(statuses[i]);
            assert_int_equal(alone[i][step], together[i]);
        }
    }
    free(ids);
    fixture_close(&fixture);
}

/* Decoding beside parts of prompts, with steps submitted before the results of the last are known. */
static void mixtures(void **state)
{
    (void)state;
    static const char *const shapes[] = {"llama-tiny", "rwkv7-tiny"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const char *path = made_model(shapes[i], "F32");
        struct fixture fixture = fixture_open(path, on_cuda);
        struct schedule_report report = {0};
        salvo_session_close(fixture.session);
        fixture.session = NULL;
        run_schedule(path, fixture.engine,
            &(struct schedule){
                .seed = 2, .requests = 3, .most_prompt = 8, .most_tokens = 4, .batch = 16, .cancel = true},
            &report);
        assert_true(report.mixed_steps > 0);
        fixture_close(&fixture);
    }
}

static void runs_of_several_tokens(void **state)
{
    (void)state;
    static const char *const shapes[] = {"llama-tiny", "rwkv7-tiny"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct salvo_engine_options options = on_cuda;
        options.sessions = 5;
        options.context = REPEAT_CONTEXT;
        struct fixture fixture = fixture_open(made_model(shapes[i], "F32"), options);
        check_repeats(&fixture);
        fixture_close(&fixture);
    }
}

/* Two runs, each token of which takes an entry of the ring, and the ring has eight. */
static void more_tokens_than_entries(void **state)
{
    (void)state;
    enum { PROMPT = 5, TOKENS = 10 };
    struct fixture fixture = fixture_open(made_model("llama-tiny", "F32"), on_cuda);
    struct salvo_session *both[2] = {fixture.session};
    int32_t *ids = some_ids(2 * PROMPT, fixture.vocabulary, 8), *expected[2], chosen[2][TOKENS];
    struct salvo_run runs[2];
    struct salvo_run_result results[2];
    uint64_t step;
    ASSERT_OK(salvo_session_open(fixture.engine, &both[1]));
    for (int i = 0; i < 2; i++) {
        set_greedy(both[i]);
        expected[i] = continuation(both[i], ids + i * PROMPT, PROMPT, TOKENS + 1);
        ASSERT_OK(salvo_session_rollback(both[i], 0));
        ASSERT_OK(salvo_session_feed(both[i], ids + i * PROMPT, PROMPT));
        runs[i] = (struct salvo_run){.session = both[i], .tokens = TOKENS, .chosen_ids = chosen[i]};
    }
    ASSERT_OK(salvo_engine_submit(fixture.engine, runs, 2, sizeof *runs, &step));
    ASSERT_OK(salvo_engine_wait(fixture.engine, step, results, 2, sizeof *results));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(TOKENS, results[i].id_count);
        assert_memory_equal(expected[i] + 1, chosen[i], sizeof chosen[i]);
        free(expected[i]);
    }
    free(ids);
    fixture_close(&fixture);
}

/* A step that only chooses leaves the recurrent state as it is. */
static void choices_behind_recurrent_tokens(void **state)
{
    (void)state;
    enum { PROMPT = 6, TOKENS = 5 };
    struct fixture fixture = fixture_open(made_model("rwkv7-tiny", "F32"), on_cuda);
    int32_t *ids = some_ids(PROMPT, fixture.vocabulary, 8);
    set_greedy(fixture.session);
    int32_t *expected = continuation(fixture.session, ids, PROMPT, TOKENS);
    ASSERT_OK(salvo_session_rollback(fixture.session, 0));
    ASSERT_OK(salvo_session_feed(fixture.session, ids, PROMPT - 1));
    for (int i = 0; i < TOKENS; i++) {
        const struct salvo_run runs[2] = {
            {.session = fixture.session, .ids = ids + PROMPT - 1, .count = i == 0, .want = SALVO_WANT_LATER},
            {.session = fixture.session}};
        struct salvo_run_result result;
        uint64_t steps[2];
        for (int j = 0; j < 2; j++)
            ASSERT_OK(salvo_engine_submit(fixture.engine, &runs[j], 1, sizeof *runs, &steps[j]));
        for (int j = 0; j < 2; j++)
            ASSERT_OK(salvo_engine_wait(fixture.engine, steps[j], &result, 1, sizeof result));
        assert_int_equal(expected[i], result.id);
    }
    free(expected);
    free(ids);
    fixture_close(&fixture);
}

/* Each change of a session's bias reaches the device, not only the first. */
static void biases_that_change(void **state)
{
    (void)state;
    struct fixture fixture = fixture_open(made_model("llama-tiny", "F32"), on_cuda);
    set_greedy(fixture.session);
    ASSERT_OK(salvo_session_feed(fixture.session, (const int32_t[]){1, 2}, 2));
    for (int32_t id = 5; id < 8; id++) {
        int32_t chosen = -1;
        ASSERT_OK(salvo_session_next(fixture.session, &chosen)); /* chosen before the bias was set */
        ASSERT_OK(salvo_session_set_bias(fixture.session, id, 1e4f * (float)id));
        ASSERT_OK(salvo_session_feed(fixture.session, &chosen, 1));
        ASSERT_OK(salvo_session_next(fixture.session, &chosen));
        assert_int_equal(id, chosen);
    }
    fixture_close(&fixture);
}

static void embeddings(void **state)
{
    (void)state;
    assert_true(embedding_difference(made_model("llama-tiny", "F32"), "cuda") < 1e-3);
    assert_true(embedding_difference(made_model("rwkv7-tiny", "F32"), "cuda") < 1e-3);
}

static void copies(void **state)
{
    (void)state;
    static const char *const shapes[] = {"llama-tiny", "rwkv7-tiny"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct salvo_engine_options options = on_cuda;
        options.sessions = 3;
        options.prefix_cache = 1;
        struct fixture fixture = fixture_open(made_model(shapes[i], "F32"), options);
        check_copies(&fixture);
        fixture_close(&fixture);
    }
}

static void masks_and_logprobs(void **state)
{
    (void)state;
    const char *const models[] = {made_model("llama-tiny", "F32"), made_model("rwkv7-tiny", "F32"),
        made_model_of("llama-mini", "F32", 3), made_model_of("llama-mini", "F32", 33)};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct salvo_engine_options options = on_cuda;
        options.sessions = 3;
        struct fixture fixture = fixture_open(models[i], options);
        check_masks(&fixture);
        fixture_close(&fixture);
    }
}

static void sessions(void **state)
{
    (void)state;
    share_steps("llama-tiny");
    share_steps("rwkv7-tiny");
}

/* ---- States ---- */

/* A state that one backend has saved is continued by the other, beyond the end of a page. CUDA computes
 * 20 of its ids. */
static void move_state(const char *shape, enum salvo_kv_type kv_type, bool to_cuda)
{
    enum { ON_CPU = 238 };
    const char *path = made_model(shape, "F32");
    struct salvo_engine_options from = on_cuda, to = on_cuda;
    from.kv_type = to.kv_type = kv_type;
    *(to_cuda ? &from.backend : &to.backend) = "cpu";
    struct fixture first = fixture_open(path, from), second = fixture_open(path, to);
    int32_t *ids = some_ids(260, first.vocabulary, 6);
    feed_on_the_cpu(path, from, first.session, ids, ON_CPU);
    ASSERT_OK(salvo_session_feed(first.session, ids + ON_CPU, 258 - ON_CPU));
    size_t size = salvo_session_state_size(first.session);
    uint8_t *saved = malloc(size), *again = malloc(size);
    ASSERT_OK(salvo_session_state_save(first.session, saved, size));
    ASSERT_OK(salvo_session_state_restore(second.session, saved, size));
    assert_int_equal(size, salvo_session_state_size(second.session));
    ASSERT_OK(salvo_session_state_save(second.session, again, size));
    assert_memory_equal(saved, again, size);

    ASSERT_OK(salvo_session_feed(first.session, ids + 258, 2));
    ASSERT_OK(salvo_session_feed(second.session, ids + 258, 2));
    float *logits = malloc(first.vocabulary * sizeof *logits);
    memcpy(logits, salvo_session_logits(first.session), first.vocabulary * sizeof *logits);
    assert_true(largest_difference(logits, salvo_session_logits(second.session), first.vocabulary) < 0.01f);
    free(logits);
    free(saved);
    free(again);
    free(ids);
    fixture_close(&first);
    fixture_close(&second);
}

static void states(void **state)
{
    (void)state;
    for (int to_cuda = 0; to_cuda < 2; to_cuda++) {
        move_state("llama-tiny", SALVO_KV_F16, to_cuda);
        move_state("llama-tiny", SALVO_KV_Q8_0, to_cuda);
        move_state("rwkv7-tiny", SALVO_KV_AUTO, to_cuda);
    }
}

/* ---- Tokens that were not computed whole: their partial results are never read ---- */

enum {
    TAGS = 6,    /* of tagged words, before they repeat */
    TOKENS = 26, /* and calls of a profile, more than its first launches of one phase */
};

/* An action that does not change a session, before its token number `index`. */
typedef void (*disturbance)(struct salvo_session *session, uint32_t index, const int32_t *id);

static float *disturbed_logits(const struct fixture *fixture, const int32_t *ids, disturbance disturb)
{
    float *rows = test_calloc(TOKENS, fixture->vocabulary * sizeof *rows);
    ASSERT_OK(salvo_session_rollback(fixture->session, 0));
    for (uint32_t i = 0; i < TOKENS; i++) {
        disturb(fixture->session, i, ids + i);
        ASSERT_OK(salvo_session_feed(fixture->session, ids + i, 1));
        memcpy(rows + (size_t)i * fixture->vocabulary, salvo_session_logits(fixture->session),
            fixture->vocabulary * sizeof *rows);
    }
    return rows;
}

/* The same bits as without. */
static void compare_disturbed(const char *shape, disturbance disturb)
{
    struct fixture fixture = fixture_open(made_model(shape, "Q8_0"), on_cuda);
    int32_t *ids = some_ids(TOKENS, fixture.vocabulary, 9), expected[TAGS], next[TAGS];
    set_greedy(fixture.session);
    float *plain = logits_by_chunks(&fixture, ids, TOKENS, 1);
    take_one_by_one(fixture.session, TAGS, expected);
    float *disturbed = disturbed_logits(&fixture, ids, disturb);
    for (uint32_t i = 0; i < TOKENS; i++) {
        const size_t first = (size_t)i * fixture.vocabulary;
        if (memcmp(plain + first, disturbed + first, fixture.vocabulary * sizeof *plain) != 0)
            fail_msg("%s: token %u has other logits", shape, i);
    }
    take_one_by_one(fixture.session, TAGS, next);
    assert_memory_equal(expected, next, sizeof next);
    test_free(disturbed);
    free(plain);
    free(ids);
    fixture_close(&fixture);
}

static void profile_once(struct salvo_session *session, uint32_t index, const int32_t *id)
{
    uint32_t phases = 0;
    if (index != 3)
        return;
    ASSERT_OK(salvo_session_profile(session, id, 1, 1, count_phase, &phases));
    assert_true(phases > 10);
}

/* Takes a while: of one shape alone. */
static void after_a_profile(void **state)
{
    (void)state;
    compare_disturbed("llama-tiny", profile_once);
}

/* A step with another id than the next one, so that no leftover result is right by chance. The number of
 * calls varies, so that in some cases the tag of the last whole token repeats: words of phases that were not
 * launched still have it. */
static void profile_that_fails(struct salvo_session *session, uint32_t index, const int32_t *id)
{
    const int32_t other = *id > 0 ? *id - 1 : 1;
    uint32_t phases = 0;
    fake->code = 2;
    fake->fail_at = fake->calls + 1 + index;
    assert_int_equal(SALVO_ERROR_MEMORY, salvo_session_profile(session, &other, 1, 1, count_phase, &phases));
    fake->fail_at = 0;
    assert_true(phases < 3);
}

static void after_profiles_that_failed(void **state)
{
    (void)state;
    compare_disturbed("llama-tiny", profile_that_fails);
    compare_disturbed("rwkv7-tiny", profile_that_fails);
}

/* At another place each time; in some tokens as often as necessary for the tag of the last whole token to
 * repeat. */
static void step_that_is_given_up(struct salvo_session *session, uint32_t index, const int32_t *id)
{
    for (uint32_t i = 0; i < (index % 12 == 0 ? TAGS - 1 : index % 4 == 1); i++) {
        fake_stall(1, index % 3, 1 + fake->rounds * (index % 8) / 12);
        assert_int_equal(SALVO_ERROR_DEVICE, salvo_session_feed(session, id, 1));
        assert_non_null(strstr(salvo_error(), "a wait on the device took too long"));
        assert_int_equal(index, salvo_session_position(session));
    }
}

static void after_steps_that_were_given_up(void **state)
{
    (void)state;
    compare_disturbed("llama-tiny", step_that_is_given_up);
    compare_disturbed("rwkv7-tiny", step_that_is_given_up);
}

/* ---- NaN and infinity ---- */

/* Changes the file of a model in F32: the row that is looked up for `id` has `bits` in it. */
static void put_into_row(const char *path, int32_t id, uint32_t bits)
{
    struct gguf *gguf;
    ASSERT_OK(gguf_open(path, &gguf));
    const struct gguf_tensor *table = gguf_find_tensor(gguf, "token_embd.weight");
    assert_non_null(table);
    const uint64_t at = table->offset + ((uint64_t)id * table->shape[0] + 3) * sizeof bits;
    gguf_close(gguf);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(0, fseek(file, (long)at, SEEK_SET));
    assert_int_equal(1, fwrite(&bits, sizeof bits, 1, file));
    assert_int_equal(0, fclose(file));
}

/* After a token with such a row all logits are NaN, as on the CPU. */
static void compare_with_bits(const char *path, uint32_t bits)
{
    enum { ID = 9 };
    static const int32_t ids[EARLY] = {5, 4, ID, 7};
    put_into_row(path, ID, bits);
    struct early_logits *ours = early_logits(path, "cuda", ids, 1, ACTIVATIONS_AS_USUAL),
                        *theirs = early_logits(path, "cpu", ids, 1, ACTIVATIONS_AS_USUAL);
    for (uint32_t i = 0; i < EARLY; i++) {
        for (uint32_t j = 0; j < ours->vocabulary; j++) {
            const float a = ours->logits[i][j], b = theirs->logits[i][j];
            /* Where the table is the output matrix, too, ID's own logit has them in any case. */
            const bool is_number = i < 2 && (j != ID || isfinite(b));
            if (isfinite(a) != is_number || isfinite(b) != is_number)
                fail_msg(
                    "%08x, position %u: logit %u is %g, on the CPU %g", bits, i, j, (double)a, (double)b);
        }
    }
    test_free(ours);
    test_free(theirs);
}

/* NaNs that rounding alone would make zeros and infinity, then infinities. No other test has these models. */
static void not_numbers(void **state)
{
    (void)state;
    static const uint32_t bits[] = {0x7fffffff, 0xffffffff, 0x7f800001, 0x7f800000, 0xff800000};
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) {
        compare_with_bits(made_model("llama-128", "F32"), bits[i]);
        compare_with_bits(made_model("rwkv7-256", "F32"), bits[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_and_models),
        cmocka_unit_test(early_positions),
        LONG_TEST(submissions),
        cmocka_unit_test(greedy),
        cmocka_unit_test(sessions),
        cmocka_unit_test(mixtures),
        cmocka_unit_test(runs_of_several_tokens),
        cmocka_unit_test(more_tokens_than_entries),
        cmocka_unit_test(choices_behind_recurrent_tokens),
        cmocka_unit_test(biases_that_change),
        cmocka_unit_test(copies),
        cmocka_unit_test(masks_and_logprobs),
        cmocka_unit_test(embeddings),
        LONG_TEST(states),
        cmocka_unit_test(after_a_profile),
        cmocka_unit_test(after_profiles_that_failed),
        LONG_TEST(after_steps_that_were_given_up),
        cmocka_unit_test(not_numbers),
    };
    return RUN_CHOSEN_TESTS(tests, find_fake);
}
