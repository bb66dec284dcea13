/* The scheduler: which waiting request gets a session, and when. */
#include "cmocka_test.h"
#include "scheduler_fixture.h"

#include <pthread.h>
#include <salvo/memory.h>
#include <stdlib.h>
#include <string.h>

enum { LONG_CONTEXT = 700, REPEATED = 20, MOST_OVERTAKEN = 16, MOST_PLAYERS = REPEATED + 3 };

/* Requests of one scheduler, and the order in which they ended. */
struct company {
    struct salvo_scheduler *scheduler;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint32_t count, ended;
    uint32_t session; /* of the next request, as in struct salvo_request */
    bool may_go_on;
    struct player {
        struct company *company;
        uint64_t handle;
        uint32_t place, tokens, cached; /* place: ends before this one */
        bool has_ended, holds;          /* holds: stops the scheduler with its first token until may_go_on */
        enum salvo_status status;
        int32_t ids[3]; /* the first tokens */
    } players[MOST_PLAYERS];
};

static void on_event(void *user, const struct salvo_event *event)
{
    struct player *player = user;
    struct company *company = player->company;
    pthread_mutex_lock(&company->mutex);
    if (event->kind == SALVO_EVENT_TOKEN) {
        if (player->tokens < 3)
            player->ids[player->tokens] = event->id;
        player->tokens++;
        pthread_cond_broadcast(&company->changed);
        while (player->holds && !company->may_go_on)
            pthread_cond_wait(&company->changed, &company->mutex);
    } else {
        player->place = company->ended++;
        player->has_ended = true;
        player->status = event->status;
        player->cached = event->cached_tokens;
    }
    pthread_cond_broadcast(&company->changed);
    pthread_mutex_unlock(&company->mutex);
}

static void company_open(struct company *company, const struct fixture *fixture)
{
    *company = (struct company){0};
    pthread_mutex_init(&company->mutex, NULL);
    pthread_cond_init(&company->changed, NULL);
    ASSERT_OK(salvo_scheduler_open(fixture->engine, NULL, &company->scheduler));
}

static void company_close(struct company *company)
{
    salvo_scheduler_close(company->scheduler);
    pthread_mutex_destroy(&company->mutex);
    pthread_cond_destroy(&company->changed);
}

static struct player *submit(
    struct company *company, const int32_t *ids, uint32_t count, uint32_t tokens, bool holds)
{
    const struct salvo_sampler greedy = SALVO_SAMPLER_INIT;
    struct player *player = &company->players[company->count++];
    struct salvo_request request = SALVO_REQUEST_INIT;
    assert_true(company->count <= MOST_PLAYERS);
    *player = (struct player){.company = company, .holds = holds};
    request.ids = ids;
    request.count = count;
    request.sampler = &greedy;
    request.max_tokens = tokens;
    request.ignore_end = 1;
    request.session = company->session;
    request.event = on_event;
    request.user = player;
    ASSERT_OK(salvo_scheduler_submit(company->scheduler, &request, &player->handle));
    return player;
}

/* Waits for a token or, with `until_end`, for the end. */
static void wait_for(struct player *player, bool until_end)
{
    struct company *company = player->company;
    pthread_mutex_lock(&company->mutex);
    while (!player->has_ended && (until_end || !player->tokens))
        pthread_cond_wait(&company->changed, &company->mutex);
    pthread_mutex_unlock(&company->mutex);
}

/* If several requests wait for one session, a request with a cached prompt overtakes earlier ones, but not
 * too many of them. */
static void cached_prompts_are_preferred(void **state)
{
    (void)state;
    const char *path = made_model("llama-tiny", "Q8_0");
    struct fixture fixture = scheduler_open_engine(path, false, LONG_CONTEXT, SALVO_KV_MEMORY_MOST);
    int32_t *known = some_ids(2 * PAGE, fixture.vocabulary, 1),
            *other = some_ids(2 * PAGE, fixture.vocabulary, 2);
    struct company company;
    company_open(&company, &fixture);
    struct player *seed = submit(&company, known, 2 * PAGE, 1, false);
    wait_for(seed, true);
    assert_int_equal(0, seed->cached);
    company.session = 1;
    wait_for(submit(&company, other + PAGE, 1, 1, true), false);
    struct player *first = submit(&company, other, 2 * PAGE, 1, false), *repeated[REPEATED];
    for (uint32_t i = 0; i < REPEATED; i++)
        repeated[i] = submit(&company, known, 2 * PAGE, 1, false);
    pthread_mutex_lock(&company.mutex);
    company.may_go_on = true;
    pthread_cond_broadcast(&company.changed);
    pthread_mutex_unlock(&company.mutex);
    wait_for(first, true);
    for (uint32_t i = 0; i < REPEATED; i++) {
        wait_for(repeated[i], true);
        assert_int_equal(SALVO_OK, repeated[i]->status);
        assert_true(repeated[i]->cached >= PAGE);
        assert_int_equal(i < MOST_OVERTAKEN, repeated[i]->place < first->place);
        if (i)
            assert_true(repeated[i - 1]->place < repeated[i]->place);
    }
    assert_int_equal(0, first->cached);
    company_close(&company);
    free(known);
    free(other);
    fixture_close(&fixture);
}

/* Two prompts of three pages where four are free: the second waits, so that nothing is computed twice. */
static void a_prompt_waits_for_its_pages(void **state)
{
    (void)state;
    enum { LONG = 2 * PAGE + 50, PAGES = 4 };
    const char *path = made_model("llama-tiny", "Q8_0");
    struct fixture fixture = scheduler_open_engine(path, false, LONG_CONTEXT, 0);
    ASSERT_OK(salvo_session_open(fixture.engine, &fixture.session));
    const size_t kv_memory = PAGES * scheduler_page_bytes(&fixture);
    fixture_close(&fixture);
    fixture = scheduler_open_engine(path, false, LONG_CONTEXT, kv_memory);
    int32_t *prompts[] = {some_ids(LONG, fixture.vocabulary, 1), some_ids(LONG, fixture.vocabulary, 2)};
    struct company company;
    company_open(&company, &fixture);
    struct player *first = submit(&company, prompts[0], LONG, 20, false),
                  *second = submit(&company, prompts[1], LONG, 20, false),
                  *small = submit(&company, prompts[0], 5, 20, false);
    wait_for(first, true);
    wait_for(second, true);
    wait_for(small, true);
    assert_int_equal(SALVO_OK, first->status);
    assert_int_equal(SALVO_OK, second->status);
    assert_int_equal(SALVO_OK, small->status);
    assert_true(first->place < second->place);
    const struct salvo_scheduler_counters counters = scheduler_counters_now(company.scheduler);
    assert_int_equal(2 * LONG + 5, counters.prompt_tokens + counters.cached_tokens);
    company_close(&company);
    struct salvo_memory memory = SALVO_MEMORY_INIT;
    ASSERT_OK(salvo_engine_memory(fixture.engine, &memory));
    assert_int_equal(PAGES, memory.pages);
    assert_int_equal(0, memory.used_pages);
    free(prompts[0]);
    free(prompts[1]);
    fixture_close(&fixture);
}

/* A recurrent model keeps states at the ends of pages and before the last token of a prompt. */
static void recurrent_prompts_are_found_again(void **state)
{
    (void)state;
    enum { SHORT = 30, LONG = 2 * PAGE + 50 };
    for (int is_busy = 0; is_busy < 2; is_busy++) {
        struct fixture fixture = scheduler_open_engine(
            made_model("rwkv7-tiny", "Q8_0"), is_busy, LONG_CONTEXT, SALVO_KV_MEMORY_MOST);
        int32_t *ids = some_ids(LONG, fixture.vocabulary, 1), last[2][3] = {{0}};
        struct company company;
        company_open(&company, &fixture);
        const uint32_t counts[] = {SHORT, LONG, SHORT, LONG, 2 * PAGE + 20},
                       cached[] = {0, SHORT - 1, SHORT - 1, LONG - 1, 2 * PAGE};
        for (size_t i = 0; i < 5; i++) {
            struct player *player = submit(&company, ids, counts[i], 3, false);
            wait_for(player, true);
            assert_int_equal(SALVO_OK, player->status);
            assert_int_equal(cached[i], player->cached);
            assert_int_equal(3, player->tokens);
            if (i < 2)
                memcpy(last[i], player->ids, sizeof last[i]);
            else if (i < 4)
                assert_memory_equal(last[i - 2], player->ids, sizeof last[i - 2]);
        }
        company_close(&company);
        free(ids);
        fixture_close(&fixture);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cached_prompts_are_preferred),
        cmocka_unit_test(a_prompt_waits_for_its_pages),
        cmocka_unit_test(recurrent_prompts_are_found_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
