/* Steps in flight: the versions of recurrent state that they read, write and commit, on a device whose
 * results the test sets. */
#include "cmocka_test.h"

#include "backend/common/step_queue.h"

#include "base/memory.h"
#include "gguf/gguf_internal.h"

enum { ENTRIES = 4, SLOTS = 2 };

struct executor {
    struct arena tables;
    struct gguf gguf;
    struct program program;
    struct backend_options options;
    struct state_layout state;
    struct backend_counters counters;
    struct step_queue queue;
    struct run_result results[ENTRIES][SLOTS]; /* of the ticket % ENTRIES */
    uint32_t awaited;
    uint32_t waited; /* microseconds */
    int32_t ids[SLOTS][101];
    uint32_t shown; /* ids that each wait shows */
    uint64_t cancelled;
    bool fails, hangs; /* hangs: until it is cancelled */
};

static enum salvo_status await(
    struct executor *executor, struct pending_step *pending, uint32_t microseconds, bool *out_done)
{
    int32_t *next = executor->ids[pending->runs[0].slot] + pending->runs[0].first + 1;
    for (uint32_t i = 0; i < executor->shown; i++) {
        while (*next != -1)
            next++;
        *next = 7;
    }
    executor->awaited++;
    executor->waited += microseconds;
    *out_done = !executor->hangs;
    return executor->fails ? fail(SALVO_ERROR_DEVICE, "it fell off the bus") : SALVO_OK;
}

static void cancel(struct executor *executor, const struct pending_step *pending)
{
    executor->cancelled = pending->ticket;
    executor->hangs = false;
}

static void collect(struct executor *executor, struct pending_step *pending)
{
    for (uint32_t i = 0; i < pending->run_count; i++)
        pending->results[i] = executor->results[pending->ticket % ENTRIES][i];
}

static struct executor device;
static const uint32_t pages[] = {0};

static int32_t *ids_of(const struct executor *executor, uint32_t slot)
{
    assert_ptr_equal(&device, executor);
    return device.ids[slot];
}

static const int32_t ids[] = {1, 2, 3, 4};

static int set_up(void **state)
{
    (void)state;
    device = (struct executor){.options = {.slots = SLOTS, .context = 100, .batch = 4, .outputs = 4},
        .program = {.gguf = &device.gguf, .vocabulary = 8},
        .state = {.recurrent_elements = 1, .pages = 1}};
    device.queue = (struct step_queue){.program = &device.program,
        .options = &device.options,
        .state = &device.state,
        .counters = &device.counters,
        .device_name = "the device",
        .entries = ENTRIES,
        .versions = 4,
        .most_repeats = 8,
        .timeout_seconds = 2,
        .shows_ids = true,
        .device = {.await = await, .cancel = cancel, .collect = collect, .ids = ids_of},
        .executor = &device};
    return step_queue_open(&device.queue, &device.tables) == SALVO_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    arena_free(&device.tables);
    return 0;
}

/* Submits a step with this run, whose result will be `result`. */
static struct pending_run submit_run(
    struct run run, uint32_t repeat, const volatile bool *cancel, struct run_result result)
{
    run.count = 1;
    run.pages = pages;
    run.logits = LOGITS_LAST;
    const struct step step = {
        .runs = &run, .run_count = 1, .token_count = 1, .ids = ids, .repeat = repeat, .cancel = cancel};
    assert_int_equal(SALVO_OK, step_queue_make_room(&device.queue, &step));
    const struct pending_step *pending = step_queue_add(&device.queue, &step);
    device.results[pending->ticket % ENTRIES][0] = result;
    return pending->runs[0];
}

/* A run of ids of the host, at the first position. */
static struct pending_run submit(
    uint32_t slot, uint32_t repeat, const volatile bool *cancel, struct run_result result)
{
    return submit_run((struct run){.slot = slot}, repeat, cancel, result);
}

/* A run of the device's own ids at a position of slot 0, which samples `sampled` of `repeat`. */
static struct pending_run submit_behind(uint32_t first, uint32_t repeat, uint32_t sampled)
{
    return submit_run((struct run){.first = first, .source = SOURCE_LAST}, repeat, NULL,
        (struct run_result){.sampled = sampled});
}

static const struct run_result one = {.sampled = 1};

static void wait_for(uint64_t ticket, enum salvo_status expected)
{
    struct run_result result;
    assert_int_equal(expected, step_queue_wait(&device.queue, ticket, &result));
    if (expected == SALVO_OK)
        assert_int_equal(device.results[ticket % ENTRIES][0].sampled, result.sampled);
}

/* Steps of one slot form a chain; none writes a version that another in flight reads or may commit. */
static void a_step_continues_the_one_before_it(void **state)
{
    (void)state;
    const struct pending_run first = submit(0, 1, NULL, one), second = submit(0, 1, NULL, one);
    assert_int_equal(0, first.read_version);
    assert_int_equal(first.write_version, second.read_version);
    assert_true(second.write_version != 0 && second.write_version != first.write_version);
    assert_int_equal(0, submit(1, 1, NULL, one).read_version); /* another slot */
    assert_int_equal(0, device.awaited);
    assert_int_equal(0, step_queue_recurrent_place(&device.queue, 0));
    wait_for(1, SALVO_OK);
    assert_int_equal(first.write_version, step_queue_recurrent_place(&device.queue, 0));
    wait_for(2, SALVO_OK);
    assert_int_equal(second.write_version, step_queue_recurrent_place(&device.queue, 0));
    assert_int_equal(4, step_queue_recurrent_place(&device.queue, 1)); /* not complete yet */
    assert_int_equal(3, step_queue_recurrent_place(&device.queue, SLOTS + 3));
    assert_int_equal(2, device.counters.tokens);
}

static void the_oldest_step_is_awaited_when_no_entry_is_free(void **state)
{
    (void)state;
    device.state.recurrent_elements = 0;
    for (uint32_t i = 0; i < ENTRIES - 1; i++)
        (void)submit(0, 1, NULL, one);
    assert_int_equal(0, device.awaited);
    (void)submit(0, 1, NULL, one);
    assert_int_equal(1, device.awaited);
    wait_for(1, SALVO_OK);
    wait_for(5, SALVO_ERROR_ARGUMENT);
    wait_for(0, SALVO_ERROR_ARGUMENT);
}

/* Repetitions alternate between two versions, so the number of tokens says which one is current. */
static void a_step_that_repeats_commits_the_version_of_its_last_token(void **state)
{
    (void)state;
    const struct pending_run even = submit(0, 8, NULL, (struct run_result){.sampled = 4});
    const struct pending_run single = submit(0, 1, NULL, one);
    assert_int_equal(1, device.awaited); /* before the second one its version was not known */
    assert_int_equal(even.next_version, single.read_version);
    const struct pending_run odd = submit(0, 8, NULL, (struct run_result){.sampled = 3});
    wait_for(3, SALVO_OK);
    assert_int_equal(odd.write_version, step_queue_recurrent_place(&device.queue, 0));
    assert_int_equal(8, device.counters.tokens);
}

static void expect_sampled(uint64_t ticket, uint32_t expected)
{
    struct run_result result;
    assert_int_equal(SALVO_OK, step_queue_wait(&device.queue, ticket, &result));
    assert_int_equal(expected, result.sampled);
}

static void assert_unused(uint8_t version, struct pending_run run)
{
    assert_true(version != run.read_version && version != run.write_version && version != run.next_version);
}

/* The version that a step which repeats ends with is known before it ends: a step behind it does nothing
 * otherwise. */
static void a_step_behind_one_that_repeats_is_in_flight_too(void **state)
{
    (void)state;
    for (uint32_t repeat = 2, first = 0; repeat <= 5; repeat++, first += 10) {
        const uint8_t before = (uint8_t)step_queue_recurrent_place(&device.queue, 0);
        const struct pending_run run =
            submit_run((struct run){.first = first}, repeat, NULL, (struct run_result){.sampled = repeat});
        const struct pending_run behind = submit_behind(first + repeat, 3, 3);
        assert_int_equal(0, device.awaited);
        assert_int_equal(before, run.read_version);
        assert_int_equal(repeat % 2 ? run.write_version : run.next_version, behind.read_version);
        assert_unused(behind.write_version, run);
        assert_true(behind.next_version != behind.read_version);
        assert_true(behind.next_version != behind.write_version);
        wait_for(device.queue.submitted - 1, SALVO_OK);
        assert_int_equal(behind.read_version, step_queue_recurrent_place(&device.queue, 0));
        wait_for(device.queue.submitted, SALVO_OK);
        assert_int_equal(behind.write_version, step_queue_recurrent_place(&device.queue, 0));
        device.awaited = 0;
    }
}

/* Its limit or the end of the context ends a run before the others of its step. */
static void a_run_with_a_limit_is_continued_from_there(void **state)
{
    (void)state;
    const struct run_result three = {.sampled = 3};
    const struct pending_run limited = submit_run((struct run){.limit = 3}, 8, NULL, three);
    assert_int_equal(limited.write_version, submit_behind(3, 1, 1).read_version);
    assert_int_equal(0, device.awaited);
    wait_for(2, SALVO_OK);
    device.awaited = 0;
    const struct pending_run last = submit_run((struct run){.first = 97}, 8, NULL, three);
    assert_int_equal(3, last.tokens);
    assert_int_equal(3, submit_run((struct run){.first = 97, .limit = 5000}, 8, NULL, three).tokens);
    wait_for(4, SALVO_OK);
}

/* Steps that do not continue the last one's tokens wait until their number is known. */
static void a_step_that_continues_elsewhere_waits(void **state)
{
    (void)state;
    (void)submit(0, 4, NULL, (struct run_result){.sampled = 4});
    (void)submit(1, 4, NULL, (struct run_result){.sampled = 4});
    assert_int_equal(0, device.awaited);
    (void)submit_behind(3, 4, 0);
    assert_int_equal(1, device.awaited);
    (void)submit(1, 1, NULL, one);
    assert_int_equal(2, device.awaited);
    wait_for(4, SALVO_OK);
}

/* A step that continues a state that does not exist leaves the step before it as it is. */
static void a_step_that_continues_nothing_is_ignored_alone(void **state)
{
    (void)state;
    const struct pending_run first = submit(0, 1, NULL, one);
    (void)submit_behind(9, 1, 1);
    wait_for(1, SALVO_OK);
    expect_sampled(2, 0);
    assert_int_equal(first.write_version, step_queue_recurrent_place(&device.queue, 0));
    assert_int_equal(first.write_version, submit(0, 1, NULL, one).read_version);
}

/* The device skips a step behind a stop id, also one that samples nothing. */
static void a_step_behind_a_stop_id_does_not_commit(void **state)
{
    (void)state;
    const struct pending_run first = submit(0, 1, NULL, (struct run_result){.sampled = 1, .ended = true});
    struct run run = {.first = 1, .count = 1, .source = SOURCE_LAST, .logits = LOGITS_ALL, .pages = pages};
    const struct step step = {.runs = &run, .run_count = 1, .token_count = 1, .ids = ids, .repeat = 1};
    assert_int_equal(SALVO_OK, step_queue_make_room(&device.queue, &step));
    device.results[step_queue_add(&device.queue, &step)->ticket % ENTRIES][0] = (struct run_result){0};
    wait_for(1, SALVO_OK);
    wait_for(2, SALVO_OK);
    assert_int_equal(first.write_version, step_queue_recurrent_place(&device.queue, 0));
    assert_int_equal(first.write_version, submit(0, 1, NULL, one).read_version);
}

/* Steps behind one that stopped early have no results, even if the device reports ids of them, and the steps
 * that continue them have none either. */
static void steps_behind_one_that_stopped_early_have_no_results(void **state)
{
    (void)state;
    for (uint32_t sampled = 1; sampled < 4; sampled++) {
        const uint64_t before = device.queue.submitted;
        const struct run_result early = {.sampled = sampled, .ended = sampled == 1, .failed = sampled > 1};
        const struct pending_run stopped = submit(0, 4, NULL, early);
        (void)submit_behind(4, 4, 4);
        wait_for(before + 1, SALVO_OK);
        const uint64_t place = step_queue_recurrent_place(&device.queue, 0);
        assert_int_equal(sampled % 2 ? stopped.write_version : stopped.next_version, place);
        const struct pending_run later = submit_behind(8, 4, 4);
        assert_true(later.write_version != place);
        expect_sampled(before + 2, 0);
        expect_sampled(before + 3, 0);
        assert_int_equal(place, step_queue_recurrent_place(&device.queue, 0));
        assert_int_equal(place, submit(0, 1, NULL, one).read_version);
        wait_for(before + 4, SALVO_OK);
        assert_true(place != step_queue_recurrent_place(&device.queue, 0));
    }
}

/* A step of one token is cancelled after the device has computed it and the one behind it. The next step
 * begins with ids of the host while that one is still in flight. */
static void steps_behind_a_cancelled_one_have_no_results(void **state)
{
    (void)state;
    const volatile bool cancel = true;
    (void)submit(0, 1, &cancel, one);
    const struct pending_run behind = submit_behind(1, 4, 4);
    assert_unused(0, behind); /* the state that the first one leaves */
    wait_for(1, SALVO_ERROR_CANCELLED);
    const struct pending_run again = submit(0, 1, NULL, one);
    assert_int_equal(0, again.read_version);
    expect_sampled(2, 0);
    wait_for(3, SALVO_OK);
    assert_int_equal(again.write_version, step_queue_recurrent_place(&device.queue, 0));
}

/* A cancelled step that is ignored does not take those behind it with it that do not continue it. */
static void a_step_that_begins_anew_is_not_ignored(void **state)
{
    (void)state;
    const volatile bool cancel = true;
    (void)submit(0, 1, &cancel, one);
    (void)submit_behind(1, 1, 1);
    wait_for(1, SALVO_ERROR_CANCELLED);
    const struct pending_run again = submit(0, 1, NULL, one), behind = submit_behind(1, 1, 1);
    assert_int_equal(0, again.read_version);
    assert_int_equal(again.write_version, behind.read_version);
    expect_sampled(4, 1);
    assert_int_equal(behind.write_version, step_queue_recurrent_place(&device.queue, 0));
}

/* Ids alone need no state. */
static void results_without_recurrent_state_stay(void **state)
{
    (void)state;
    const volatile bool cancel = true;
    device.state.recurrent_elements = 0;
    (void)submit(0, 1, &cancel, one);
    (void)submit_behind(1, 4, 4);
    wait_for(1, SALVO_ERROR_CANCELLED);
    expect_sampled(2, 4);
}

/* Steps behind a step that did nothing were computed from a state that does not exist. */
static void steps_behind_one_that_did_nothing_do_not_commit(void **state)
{
    (void)state;
    const struct pending_run first = submit(0, 1, NULL, one);
    (void)submit(0, 1, NULL, (struct run_result){0});
    (void)submit(0, 1, NULL, one);
    expect_sampled(3, 0);
    assert_int_equal(first.write_version, step_queue_recurrent_place(&device.queue, 0));
    assert_int_equal(first.write_version, submit(0, 1, NULL, one).read_version);
    wait_for(4, SALVO_OK);
    assert_true(step_queue_recurrent_place(&device.queue, 0) != first.write_version);
}

static void a_cancelled_step_keeps_its_complete_tokens(void **state)
{
    (void)state;
    const volatile bool cancel = true;
    uint32_t sampled;
    bool done;
    const struct pending_run kept = submit(0, 8, &cancel, (struct run_result){.sampled = 2});
    wait_for(1, SALVO_OK);
    assert_int_equal(kept.next_version, step_queue_recurrent_place(&device.queue, 0));
    (void)submit(0, 8, &cancel, (struct run_result){0});
    wait_for(2, SALVO_ERROR_CANCELLED);
    assert_int_equal(kept.next_version, step_queue_recurrent_place(&device.queue, 0));
    (void)submit(0, 1, &cancel, one);
    assert_int_equal(SALVO_OK, step_queue_progress(&device.queue, 3, 0, &sampled, &done));
    assert_true(done);
    assert_int_equal(0, sampled);
    assert_int_equal(kept.next_version, step_queue_recurrent_place(&device.queue, 0));
}

static void a_lost_device_takes_no_steps(void **state)
{
    (void)state;
    const struct run run = {.slot = 1, .count = 1, .pages = pages, .logits = LOGITS_LAST};
    const struct step step = {.runs = &run, .run_count = 1, .token_count = 1, .ids = ids};
    (void)submit(0, 1, NULL, one);
    (void)submit(0, 1, NULL, one);
    device.fails = true;
    wait_for(1, SALVO_ERROR_DEVICE);
    assert_int_equal(SALVO_ERROR_DEVICE, step_queue_make_room(&device.queue, &step));
    wait_for(2, SALVO_ERROR_DEVICE);
    assert_int_equal(1, device.awaited);
    assert_int_equal(SALVO_ERROR_DEVICE, step_queue_complete_all(&device.queue));
    assert_int_equal(0, step_queue_recurrent_place(&device.queue, 0));
}

static void a_wait_passes_a_cancellation_on(void **state)
{
    (void)state;
    const volatile bool cancelled = true;
    (void)submit(0, 8, &cancelled, (struct run_result){.sampled = 1});
    device.hangs = true;
    wait_for(1, SALVO_OK);
    assert_int_equal(1, device.cancelled);
}

static void a_device_that_does_not_answer_is_lost(void **state)
{
    (void)state;
    (void)submit(0, 1, NULL, one);
    device.hangs = true;
    wait_for(1, SALVO_ERROR_DEVICE);
    assert_string_equal("the device did not answer for 2 s", salvo_error());
    assert_int_equal(2000000, device.waited);
    assert_int_equal(0, device.cancelled);
    assert_int_equal(SALVO_ERROR_DEVICE, step_queue_check_device(&device.queue));
}

static uint32_t progress_beyond(uint32_t seen, bool expect_done)
{
    uint32_t sampled;
    bool done;
    assert_int_equal(SALVO_OK, step_queue_progress(&device.queue, 1, seen, &sampled, &done));
    assert_int_equal(expect_done, done);
    return sampled;
}

/* The device shows two ids per wait, then has ended; beyond the marked ones there is nothing to see. */
static void ids_are_seen_while_their_step_runs(void **state)
{
    (void)state;
    device.state.recurrent_elements = 0;
    for (uint32_t i = 0; i <= 100; i++)
        device.ids[1][i] = 5;
    (void)submit(1, 4, NULL, (struct run_result){.sampled = 4});
    const int32_t placed[] = {1, -1, -1, -1, -1, 5};
    assert_memory_equal(placed, device.ids[1], sizeof placed);
    device.hangs = true;
    device.shown = 2;
    assert_int_equal(2, progress_beyond(0, false));
    assert_int_equal(1, device.awaited);
    assert_int_equal(2, progress_beyond(1, false)); /* without a wait */
    assert_int_equal(1, device.awaited);
    assert_int_equal(4, progress_beyond(2, false));
    assert_int_equal(2, device.awaited);
    device.hangs = false;
    device.shown = 0;
    assert_int_equal(4, progress_beyond(4, true));
    assert_int_equal(4, progress_beyond(0, true)); /* it is complete */
}

static void ids_are_not_looked_for_where_they_are_not_shown(void **state)
{
    (void)state;
    device.queue.shows_ids = false;
    (void)submit(1, 4, NULL, (struct run_result){.sampled = 3});
    device.shown = 1;
    assert_int_equal(3, progress_beyond(0, true));
}

/* A device that fails or is cancelled while the host checks for ids. */
static void looking_for_ids_ends(void **state)
{
    (void)state;
    const volatile bool cancelled = true;
    uint32_t sampled;
    bool done;
    (void)submit(0, 8, &cancelled, (struct run_result){.sampled = 1});
    device.hangs = true;
    assert_int_equal(1, progress_beyond(0, true));
    assert_int_equal(1, device.cancelled);
    (void)submit(0, 8, NULL, one);
    device.fails = true;
    assert_int_equal(SALVO_ERROR_DEVICE, step_queue_progress(&device.queue, 2, 0, &sampled, &done));
    device.awaited = 0;
    assert_int_equal(SALVO_ERROR_DEVICE, step_queue_progress(&device.queue, 2, 0, &sampled, &done));
    assert_int_equal(0, device.awaited);
}

static void a_step_repeats_a_limited_number_of_times(void **state)
{
    (void)state;
    const struct run run = {.count = 1, .pages = pages, .logits = LOGITS_LAST};
    const struct step step = {.runs = &run, .run_count = 1, .token_count = 1, .ids = ids, .repeat = 9};
    assert_int_equal(SALVO_ERROR_ARGUMENT, step_queue_make_room(&device.queue, &step));
}

static void the_debug_path_runs_a_step_itself(void **state)
{
    (void)state;
    const struct pending_run run = submit(0, 1, NULL, one);
    step_queue_run_last(&device.queue);
    assert_int_equal(SALVO_OK, step_queue_complete_all(&device.queue));
    assert_int_equal(0, device.awaited);
    assert_int_equal(0, step_queue_recurrent_place(&device.queue, 0));
    assert_int_equal(SALVO_OK, step_queue_commit_last(&device.queue));
    assert_int_equal(run.write_version, step_queue_recurrent_place(&device.queue, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_step_continues_the_one_before_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_oldest_step_is_awaited_when_no_entry_is_free, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            a_step_that_repeats_commits_the_version_of_its_last_token, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_step_behind_one_that_repeats_is_in_flight_too, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_run_with_a_limit_is_continued_from_there, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_step_that_continues_elsewhere_waits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_step_that_continues_nothing_is_ignored_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_step_behind_a_stop_id_does_not_commit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            steps_behind_one_that_stopped_early_have_no_results, set_up, tear_down),
        cmocka_unit_test_setup_teardown(steps_behind_a_cancelled_one_have_no_results, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_step_that_begins_anew_is_not_ignored, set_up, tear_down),
        cmocka_unit_test_setup_teardown(results_without_recurrent_state_stay, set_up, tear_down),
        cmocka_unit_test_setup_teardown(steps_behind_one_that_did_nothing_do_not_commit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_cancelled_step_keeps_its_complete_tokens, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_lost_device_takes_no_steps, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_wait_passes_a_cancellation_on, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_device_that_does_not_answer_is_lost, set_up, tear_down),
        cmocka_unit_test_setup_teardown(ids_are_seen_while_their_step_runs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(ids_are_not_looked_for_where_they_are_not_shown, set_up, tear_down),
        cmocka_unit_test_setup_teardown(looking_for_ids_ends, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_step_repeats_a_limited_number_of_times, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_debug_path_runs_a_step_itself, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
