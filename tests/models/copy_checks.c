#include "copy_checks.h"

#include "cmocka_test.h"

#include <salvo/memory.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT = 18, MORE = 3, SESSIONS = 3 };

/* Appends MORE ids; their logits, to be freed. */
static float *feed_more(struct salvo_session *session, const int32_t *ids, uint32_t vocabulary)
{
    const size_t bytes = vocabulary * sizeof(float);
    float *logits = malloc(bytes);
    ASSERT_OK(salvo_session_feed(session, ids, MORE));
    const float *row = salvo_session_logits(session);
    assert_non_null(row);
    assert_non_null(logits);
    memcpy(logits, row, bytes);
    return logits;
}

static void assert_near(const float *a, const float *b, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        assert_true(fabsf(a[i] - b[i]) < 0.01f);
}

/* Snapshots of recurrent states stay on the device. */
static void check_snapshots(const struct fixture *fixture, const int32_t *ids)
{
    struct salvo_memory memory = SALVO_MEMORY_INIT;
    struct salvo_session *session = fixture->session;
    ASSERT_OK(salvo_session_rollback(session, 0));
    ASSERT_OK(salvo_session_feed(session, ids, PROMPT));
    uint64_t before = counters_of(fixture->engine).bytes_read_back;
    ASSERT_OK(salvo_session_mark(session));
    ASSERT_OK(salvo_engine_memory(fixture->engine, &memory));
    assert_true(memory.used_states <= memory.kept_states);
    assert_int_equal(memory.state_bytes > 0, memory.used_states > 0);
    assert_int_equal(before, counters_of(fixture->engine).bytes_read_back);
    float *first = feed_more(session, ids + PROMPT, fixture->vocabulary);
    before = counters_of(fixture->engine).bytes_read_back;
    const uint64_t computed = counters_of(fixture->engine).tokens;
    ASSERT_OK(salvo_session_rollback(session, PROMPT));
    assert_int_equal(before, counters_of(fixture->engine).bytes_read_back);
    float *again = feed_more(session, ids + PROMPT, fixture->vocabulary);
    assert_int_equal(computed + MORE, counters_of(fixture->engine).tokens);
    assert_near(first, again, fixture->vocabulary);
    free(first);
    free(again);
}

void check_copies(struct fixture *fixture)
{
    struct salvo_session *sessions[SESSIONS] = {fixture->session};
    const uint32_t vocabulary = fixture->vocabulary;
    int32_t *ids = some_ids(PROMPT + SESSIONS * MORE, vocabulary, 61);
    const int32_t *const endings[] = {ids + PROMPT, ids + PROMPT + MORE};
    for (int i = 1; i < SESSIONS; i++)
        ASSERT_OK(salvo_session_open(fixture->engine, &sessions[i]));
    ASSERT_OK(salvo_session_feed(sessions[0], ids, PROMPT));
    ASSERT_OK(salvo_session_copy(sessions[1], sessions[0]));
    float *copied = feed_more(sessions[1], endings[1], vocabulary),
          *original = feed_more(sessions[0], endings[0], vocabulary);
    for (int i = 0; i < 2; i++) {
        ASSERT_OK(salvo_session_rollback(sessions[2], 0));
        ASSERT_OK(salvo_session_feed(sessions[2], ids, PROMPT));
        float *expected = feed_more(sessions[2], endings[i], vocabulary);
        assert_near(
            expected, i ? copied : original, vocabulary); /* chunks depend on timings: not equal bits */
        free(expected);
    }

    /* The same beginning again, found in the cache. */
    uint32_t cached;
    for (int i = 0; i < SESSIONS; i++)
        salvo_session_close(sessions[i]);
    fixture->session = NULL;
    ASSERT_OK(salvo_session_open(fixture->engine, &fixture->session));
    memcpy(ids + PROMPT, endings[1], MORE * sizeof *ids);
    ASSERT_OK(salvo_session_prefill_cached(fixture->session, ids, PROMPT + MORE, &cached));
    assert_true(cached >= PROMPT - 1 && cached < PROMPT + MORE);
    ASSERT_OK(salvo_session_feed(fixture->session, ids + cached, PROMPT + MORE - cached));
    assert_near(copied, salvo_session_logits(fixture->session), vocabulary);
    check_snapshots(fixture, ids);
    free(copied);
    free(original);
    free(ids);
}
