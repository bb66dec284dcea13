/* The team of threads: every task once, phases in order, with fewer and with more threads than cores. */
#include "cmocka_test.h"

#include "base/cpu.h"
#include "base/team.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

enum { PHASES = 40, MOST_TASKS = 30 };

struct record {
    atomic_uint runs[PHASES][MOST_TASKS];
    atomic_uint done_before; /* tasks of all earlier phases */
    atomic_bool out_of_order;
    atomic_bool worked_without_entering;
    unsigned plain[PHASES][MOST_TASKS]; /* written in one phase, read in the next: a race if phases overlap */
    uint32_t tasks[PHASES];
    uint32_t entered[TEAM_MAX_THREADS]; /* phase + 1 */
};

static void enter(void *context, uint32_t phase, uint32_t thread)
{
    struct record *record = context;
    record->entered[thread] = phase + 1;
}

static void work(void *context, uint32_t phase, uint32_t task, uint32_t thread)
{
    struct record *record = context;
    unsigned expected = 0;
    for (uint32_t i = 0; i < phase; i++)
        expected += record->tasks[i];
    if (atomic_load(&record->done_before) < expected)
        atomic_store(&record->out_of_order, true);
    if (record->entered[thread] != phase + 1)
        atomic_store(&record->worked_without_entering, true);
    unsigned sum = 1;
    for (uint32_t i = 0; phase && i < record->tasks[phase - 1]; i++)
        sum += record->plain[phase - 1][i];
    record->plain[phase][task] = sum;
    atomic_fetch_add(&record->runs[phase][task], 1);
    atomic_fetch_add(&record->done_before, 1);
}

static void check_team(uint32_t threads, bool pin)
{
    static struct record record;
    struct team *team;
    assert_int_equal(team_open(threads, pin, PHASES, &team), SALVO_OK);
    assert_int_equal(team_threads(team), threads);
    for (uint32_t job = 0; job < 50; job++) {
        memset(&record, 0, sizeof record);
        for (uint32_t i = 0; i < PHASES; i++)
            record.tasks[i] = (job * 7 + i * 13) % MOST_TASKS; /* some have none */
        const struct team_job all = {
            .context = &record, .tasks = record.tasks, .phase_count = PHASES, .enter = enter, .work = work};
        if (job % 2 == 0) {
            team_run(team, &all);
        } else {
            team_begin(team, &all);
            team_finish(team);
        }
        assert_false(atomic_load(&record.out_of_order));
        assert_false(atomic_load(&record.worked_without_entering));
        for (uint32_t i = 0; i < PHASES; i++) {
            for (uint32_t j = 0; j < record.tasks[i]; j++)
                assert_int_equal(atomic_load(&record.runs[i][j]), 1);
        }
    }
    team_close(team);
}

static void every_task_runs_once_and_phases_keep_their_order(void **state)
{
    (void)state;
    static const uint32_t threads[] = {1, 2, 3, 8, 64};
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++)
        check_team(threads[i], false);
    check_team(2, true);
}

#if defined(__linux__)
static cpu_set_t cores_of_caller(void)
{
    cpu_set_t cores;
    assert_int_equal(sched_getaffinity(0, sizeof cores, &cores), 0);
    return cores;
}

static void note_cores(void *context, uint32_t phase, uint32_t task, uint32_t thread)
{
    (void)phase;
    (void)task;
    if (thread == 0)
        *(cpu_set_t *)context = cores_of_caller();
}

/* A team of one has the caller's thread only: it stays on one core while it works, and nowhere else. */
static void the_thread_of_the_caller_is_not_left_pinned(void **state)
{
    (void)state;
    const cpu_set_t before = cores_of_caller();
    const uint32_t tasks[] = {1};
    cpu_set_t during = before, after;
    struct team *team;
    assert_int_equal(team_open(1, true, 1, &team), SALVO_OK);
    after = cores_of_caller();
    assert_true(CPU_EQUAL(&before, &after));
    team_run(
        team, &(struct team_job){.context = &during, .tasks = tasks, .phase_count = 1, .work = note_cores});
    assert_int_equal(CPU_COUNT(&during), 1);
    after = cores_of_caller();
    assert_true(CPU_EQUAL(&before, &after));
    team_close(team);
}
#endif

static void wait_for_caller(void *context, uint32_t phase, uint32_t task, uint32_t thread)
{
    (void)phase;
    (void)task;
    atomic_uint *began = context;
    if (thread == 0)
        return;
    atomic_fetch_add(began, 1);
    while (atomic_load(began) == 1)
        sched_yield();
}

/* A worker is inside the job before the caller joins. */
static void workers_begin_without_the_caller(void **state)
{
    (void)state;
    const uint32_t tasks[] = {2};
    atomic_uint began = 0;
    struct team *team;
    assert_int_equal(team_open(2, false, 1, &team), SALVO_OK);
    team_begin(team,
        &(struct team_job){.context = &began, .tasks = tasks, .phase_count = 1, .work = wait_for_caller});
    while (atomic_load(&began) == 0)
        sched_yield();
    atomic_fetch_add(&began, 1);
    team_finish(team);
    assert_true(atomic_load(&began) >= 2);
    team_close(team);
}

static void wait_for_the_other_tasks(void *context, uint32_t phase, uint32_t task, uint32_t thread)
{
    (void)phase;
    (void)thread;
    atomic_uint *others = context;
    if (task > 0)
        atomic_fetch_add(others, 1);
    while (task == 0 && atomic_load(others) < 3)
        sched_yield();
}

/* The thread of the first task comes to no other task of its share before they are done. */
static void tasks_of_a_late_thread_are_taken_by_others(void **state)
{
    (void)state;
    const uint32_t tasks[] = {4};
    atomic_uint others = 0;
    struct team *team;
    assert_int_equal(team_open(2, false, 1, &team), SALVO_OK);
    team_run(
        team, &(struct team_job){
                  .context = &others, .tasks = tasks, .phase_count = 1, .work = wait_for_the_other_tasks});
    assert_int_equal(atomic_load(&others), 3);
    team_close(team);
}

/* A job that the caller never joins ends with the team; its tasks run once or not at all. */
static void a_team_can_be_closed_inside_a_job(void **state)
{
    (void)state;
    static struct record record;
    for (uint32_t threads = 1; threads <= 3; threads++) {
        struct team *team;
        memset(&record, 0, sizeof record);
        record.tasks[0] = MOST_TASKS;
        assert_int_equal(team_open(threads, false, 1, &team), SALVO_OK);
        team_begin(team,
            &(struct team_job){
                .context = &record, .tasks = record.tasks, .phase_count = 1, .enter = enter, .work = work});
        team_close(team);
        for (uint32_t i = 0; i < MOST_TASKS; i++)
            assert_true(atomic_load(&record.runs[0][i]) <= (threads > 1));
    }
}

static void numbers_of_threads_are_checked(void **state)
{
    (void)state;
    const uint32_t cores = cpu_physical_cores();
    struct team *team;
    assert_int_equal(team_open(0, false, 1, &team), SALVO_OK);
    assert_int_equal(team_threads(team), cores < TEAM_MAX_THREADS ? cores : TEAM_MAX_THREADS);
    team_close(team);
    assert_int_equal(team_open(257, false, 1, &team), SALVO_ERROR_ARGUMENT);
    assert_null(team);
    assert_string_equal(salvo_error(), "257 threads requested; the maximum is 256");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#if defined(__linux__)
        cmocka_unit_test(the_thread_of_the_caller_is_not_left_pinned), /* first: others pin, too */
#endif
        cmocka_unit_test(every_task_runs_once_and_phases_keep_their_order),
        cmocka_unit_test(workers_begin_without_the_caller),
        cmocka_unit_test(tasks_of_a_late_thread_are_taken_by_others),
        cmocka_unit_test(a_team_can_be_closed_inside_a_job),
        cmocka_unit_test(numbers_of_threads_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
