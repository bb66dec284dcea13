/* Embeddings by the scheduler, beside answers, in little memory, cancelled and refused. */
#include "cmocka_test.h"
#include "scheduler_fixture.h"

#include <salvo/embed.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXTS = 12, ANSWERS = 3, ANSWER_TOKENS = 10, LONGEST = CONTEXT };

static const size_t counts[TEXTS] = {1, LONGEST, 2, 5, 41, 40, 39, 1, 100, 3, LONGEST, 7};

/* Requests whose ends are counted. */
struct ends {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint32_t count;
};

struct wish {
    struct ends *ends;
    struct salvo_request request;
    struct salvo_embed_options options;
    uint32_t status, tokens;
    float *embedding; /* [width] */
    int32_t ids[ANSWER_TOKENS];
    char message[256];
};

static void take_event(void *user, const struct salvo_event *event)
{
    struct wish *wish = user;
    if (event->kind == SALVO_EVENT_TOKEN)
        wish->ids[wish->tokens++] = event->id;
    if (event->kind != SALVO_EVENT_END)
        return;
    wish->status = event->status;
    snprintf(wish->message, sizeof wish->message, "%s", event->message);
    assert_int_equal(event->status == SALVO_OK && wish->request.embed, event->embedding != NULL);
    if (event->embedding)
        memcpy(wish->embedding, event->embedding, event->width * sizeof *event->embedding);
    pthread_mutex_lock(&wish->ends->mutex);
    wish->ends->count++;
    pthread_cond_signal(&wish->ends->changed);
    pthread_mutex_unlock(&wish->ends->mutex);
}

static const struct salvo_sampler greedy = SALVO_SAMPLER_INIT;

static void wish_open(struct wish *wish, struct ends *ends, const int32_t *ids, size_t count, uint32_t width)
{
    *wish = (struct wish){.ends = ends, .request = SALVO_REQUEST_INIT, .options = SALVO_EMBED_OPTIONS_INIT};
    wish->embedding = calloc(width, sizeof *wish->embedding);
    assert_non_null(wish->embedding);
    wish->request.ids = ids;
    wish->request.count = count;
    wish->request.embed = &wish->options;
    wish->request.event = take_event;
    wish->request.user = wish;
}

static void wait_for_ends(struct ends *ends, uint32_t count)
{
    pthread_mutex_lock(&ends->mutex);
    while (ends->count < count)
        pthread_cond_wait(&ends->changed, &ends->mutex);
    pthread_mutex_unlock(&ends->mutex);
}

/* Texts and answers at once; embeddings have the bits that they have alone, answers the ids. */
static void check_mixture(size_t model, bool is_busy, uint64_t kv_memory)
{
    struct ends ends = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    struct fixture fixture = scheduler_open_engine(scheduler_model_path(model), is_busy, CONTEXT, kv_memory);
    const uint32_t width = salvo_engine_width(fixture.engine);
    int32_t *ids = some_ids(LONGEST + TEXTS, fixture.vocabulary, 8), expected_ids[ANSWERS][ANSWER_TOKENS];
    struct wish wishes[TEXTS + ANSWERS];
    float *expected = calloc(TEXTS * width, sizeof *expected);
    struct salvo_session *session;
    struct salvo_scheduler *scheduler;
    uint64_t handle;
    ASSERT_OK(salvo_session_open(fixture.engine, &session));
    for (uint32_t i = 0; i < TEXTS; i++) {
        wish_open(&wishes[i], &ends, ids + i, counts[i], width);
        wishes[i].options.pooling = i % 2 ? SALVO_POOLING_MEAN : SALVO_POOLING_LAST;
        ASSERT_OK(salvo_session_embed(
            session, ids + i, counts[i], &wishes[i].options, expected + (size_t)i * width));
    }
    for (uint32_t i = 0; i < ANSWERS; i++) {
        struct wish *wish = &wishes[TEXTS + i];
        ASSERT_OK(salvo_session_rollback(session, 0));
        set_greedy(session);
        int32_t *answer = continuation(session, ids + i, 20, ANSWER_TOKENS);
        memcpy(expected_ids[i], answer, sizeof expected_ids[i]);
        free(answer);
        wish_open(wish, &ends, ids + i, 20, width);
        wish->request.embed = NULL;
        wish->request.sampler = &greedy;
        wish->request.max_tokens = ANSWER_TOKENS;
        wish->request.ignore_end = 1;
    }
    salvo_session_close(session);
    ASSERT_OK(salvo_scheduler_open(fixture.engine, NULL, &scheduler));
    for (uint32_t i = 0; i < TEXTS + ANSWERS; i++) /* answers among the texts */
        ASSERT_OK(salvo_scheduler_submit(scheduler, &wishes[(i * 4) % (TEXTS + ANSWERS)].request, &handle));
    wait_for_ends(&ends, TEXTS + ANSWERS);
    for (uint32_t i = 0; i < TEXTS + ANSWERS; i++) {
        if (wishes[i].status != SALVO_OK)
            fail_msg("request %u: %s", i, wishes[i].message);
        if (i < TEXTS)
            assert_memory_equal(expected + (size_t)i * width, wishes[i].embedding, width * sizeof *expected);
        else
            assert_memory_equal(expected_ids[i - TEXTS], wishes[i].ids, sizeof wishes[i].ids);
        free(wishes[i].embedding);
    }
    salvo_scheduler_close(scheduler);
    free(expected);
    free(ids);
    fixture_close(&fixture);
}

/* Bytes of KV memory for one session, which all share. */
static uint64_t little_memory(size_t model)
{
    struct fixture fixture = scheduler_open_engine(scheduler_model_path(model), false, CONTEXT, 0);
    const uint64_t bytes = salvo_engine_info(fixture.engine)->state_bytes / SESSIONS;
    fixture_close(&fixture);
    return bytes;
}

static void embeddings_and_answers_share_an_engine(void **state)
{
    (void)state;
    for (size_t model = 0; model < SCHEDULER_MODELS; model++) {
        check_mixture(model, false, 0);
        check_mixture(model, true, 0);
        check_mixture(model, false, little_memory(model)); /* and a prefix cache */
    }
}

static void embeddings_are_cancelled_and_refused(void **state)
{
    (void)state;
    struct ends ends = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    struct fixture fixture = scheduler_open_engine(made_model("llama-tiny", "Q8_0"), false, CONTEXT, 0);
    int32_t *ids = some_ids(CONTEXT + 1, fixture.vocabulary, 2);
    struct wish wishes[TEXTS];
    struct salvo_scheduler *scheduler;
    uint64_t handle;
    ASSERT_OK(salvo_scheduler_open(fixture.engine, NULL, &scheduler));
    for (uint32_t i = 0; i < TEXTS; i++) {
        wish_open(&wishes[i], &ends, ids, CONTEXT, salvo_engine_width(fixture.engine));
        ASSERT_OK(salvo_scheduler_submit(scheduler, &wishes[i].request, &handle));
        if (i % 2)
            salvo_scheduler_cancel(scheduler, handle);
    }
    wait_for_ends(&ends, TEXTS);
    for (uint32_t i = 0; i < TEXTS; i++)
        assert_true(wishes[i].status == SALVO_OK || (i % 2 && wishes[i].status == SALVO_ERROR_CANCELLED));
    struct salvo_request request = wishes[0].request;
    request.count = CONTEXT + 1;
    assert_int_equal(SALVO_ERROR_CONTEXT, salvo_scheduler_submit(scheduler, &request, &handle));
    assert_non_null(strstr(salvo_error(), "161 tokens does not fit into the context of 160"));
    request.count = 0;
    assert_int_equal(SALVO_ERROR_ARGUMENT, salvo_scheduler_submit(scheduler, &request, &handle));
    request.count = 1;
    wishes[0].options.pooling = 9;
    assert_int_equal(SALVO_ERROR_ARGUMENT, salvo_scheduler_submit(scheduler, &request, &handle));
    for (uint32_t i = 0; i < TEXTS; i++)
        free(wishes[i].embedding);
    salvo_scheduler_close(scheduler);
    free(ids);
    fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embeddings_and_answers_share_an_engine),
        cmocka_unit_test(embeddings_are_cancelled_and_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
