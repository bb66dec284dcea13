#include "base/team.h"

#include "base/cpu.h"
#include "base/memory.h"
#include "base/thread.h"
#include "base/wait_word.h"

#include <stdalign.h>
#include <string.h>

#if defined(__linux__)
#include <sched.h>
#endif

struct phase {
    alignas(64) atomic_uint next; /* task */
    alignas(64) atomic_uint done;
    uint32_t tasks;
};

struct member {
    struct team *team;
    pthread_t thread;
    uint32_t index;
};

/*
 * `gate` admits workers to a job: bit 0 is set while the job is open, the bits above count the workers
 * inside. A worker that sleeps through a job never enters it. The next job starts when the last worker has
 * left.
 */
struct team {
    struct phase *phases;
    struct member *members; /* [threads - 1] */
    uint32_t threads, started, spins, most_phases;
    bool pins;
    struct team_job job;
    alignas(64) atomic_uint gate;
    alignas(64) atomic_uint generation; /* changes with every job; workers wait for it */
    alignas(64) atomic_uint sleepers;   /* on any word of the team */
    atomic_bool leaving;
};

static void pause_or_sleep(struct team *team, atomic_uint *word, unsigned value, uint32_t *spun)
{
    if (++*spun < team->spins) {
        spin_pause();
        return;
    }
    /* The thread that changes the word reads `sleepers` afterwards. Both accesses are sequentially
     * consistent: either it sees this sleeper, or this thread sees the new value. */
    atomic_fetch_add(&team->sleepers, 1);
    if (atomic_load(word) == value)
        wait_word_sleep(word, value);
    atomic_fetch_sub(&team->sleepers, 1);
}

static void wake_sleepers(struct team *team, atomic_uint *word)
{
    if (atomic_load(&team->sleepers))
        wait_word_wake(word);
}

static void walk_phase(struct team *team, uint32_t index, uint32_t thread)
{
    const struct team_job *job = &team->job;
    struct phase *phase = &team->phases[index];
    const uint32_t tasks = phase->tasks;
    uint32_t finished = 0;
    while (atomic_load_explicit(&phase->next, memory_order_relaxed) < tasks) {
        uint32_t task = atomic_fetch_add_explicit(&phase->next, 1, memory_order_relaxed);
        if (task >= tasks)
            break;
        if (finished == 0 && job->enter)
            job->enter(job->context, index, thread);
        job->work(job->context, index, task, thread);
        finished++;
    }
    if (finished && atomic_fetch_add(&phase->done, finished) + finished == tasks)
        wake_sleepers(team, &phase->done);

    uint32_t spun = 0;
    for (;;) {
        unsigned done = atomic_load_explicit(&phase->done, memory_order_acquire);
        if (done == tasks)
            return;
        pause_or_sleep(team, &phase->done, done, &spun);
    }
}

static void walk(struct team *team, uint32_t thread)
{
    for (uint32_t i = 0; i < team->job.phase_count; i++) {
        if (team->phases[i].tasks)
            walk_phase(team, i, thread);
    }
}

static bool enter_gate(struct team *team)
{
    unsigned gate = atomic_load(&team->gate);
    while (gate & 1) {
        if (atomic_compare_exchange_weak(&team->gate, &gate, gate + 2))
            return true;
    }
    return false;
}

static void leave_gate(struct team *team)
{
    if (atomic_fetch_sub(&team->gate, 2) == 2)
        wake_sleepers(team, &team->gate);
}

static void *worker(void *argument)
{
    struct member *member = argument;
    struct team *team = member->team;
    unsigned seen = 0;
    uint32_t spun = 0;
    while (!atomic_load(&team->leaving)) {
        unsigned generation = atomic_load(&team->generation);
        if (generation == seen) {
            pause_or_sleep(team, &team->generation, generation, &spun);
            continue;
        }
        seen = generation;
        spun = 0;
        if (enter_gate(team)) {
            walk(team, member->index);
            leave_gate(team);
        }
    }
    return NULL;
}

#if defined(__linux__)
typedef cpu_set_t core_set;

static void pin_to_core(pthread_t thread, uint32_t index)
{
    core_set allowed, one;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    index %= (uint32_t)CPU_COUNT(&allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed) || index-- > 0)
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        pthread_setaffinity_np(thread, sizeof one, &one);
        return;
    }
}

/* The caller's thread is pinned only while it works for the team. */
static bool pin_caller(core_set *out_before)
{
    if (sched_getaffinity(0, sizeof *out_before, out_before) != 0)
        return false;
    pin_to_core(pthread_self(), 0);
    return true;
}

static void unpin_caller(const core_set *before)
{
    sched_setaffinity(0, sizeof *before, before);
}
#else
typedef char core_set;

static void pin_to_core(pthread_t thread, uint32_t index)
{
    (void)thread;
    (void)index;
}

static bool pin_caller(core_set *out_before)
{
    (void)out_before;
    return false;
}

static void unpin_caller(const core_set *before)
{
    (void)before;
}
#endif

void team_begin(struct team *team, const struct team_job *job)
{
    /* Workers still inside the last job read team->job and team->phases. */
    uint32_t spun = 0;
    for (unsigned gate; (gate = atomic_load(&team->gate)) != 0;)
        pause_or_sleep(team, &team->gate, gate, &spun);

    for (uint32_t i = 0; i < job->phase_count; i++) {
        team->phases[i].tasks = job->tasks[i];
        atomic_store_explicit(&team->phases[i].next, 0, memory_order_relaxed);
        atomic_store_explicit(&team->phases[i].done, 0, memory_order_relaxed);
    }
    team->job = *job;
    atomic_store(&team->gate, 1);
    atomic_fetch_add(&team->generation, 1);
    wake_sleepers(team, &team->generation);
}

void team_finish(struct team *team)
{
    core_set before;
    const bool pinned = team->pins && pin_caller(&before);
    walk(team, 0);
    if (pinned)
        unpin_caller(&before);
    atomic_fetch_and(&team->gate, ~1U);
}

void team_run(struct team *team, const struct team_job *job)
{
    team_begin(team, job);
    team_finish(team);
}

static uint32_t default_threads(void)
{
    const uint32_t cores = cpu_physical_cores();
    return cores < TEAM_MAX_THREADS ? cores : TEAM_MAX_THREADS;
}

enum salvo_status team_open(uint32_t threads, bool pin, uint32_t most_phases, struct team **out)
{
    enum salvo_status status = SALVO_OK;
    struct team *team = NULL;
    *out = NULL;
    threads = threads ? threads : default_threads();
    if (threads > TEAM_MAX_THREADS)
        TRY(fail(SALVO_ERROR_ARGUMENT, "%u threads requested; the maximum is %d", threads, TEAM_MAX_THREADS));
    TRY(memory_map(sizeof *team, PAGES_NORMAL, &team)); /* a mapping satisfies the alignment of the members */
    TRY(memory_map(most_phases * sizeof *team->phases, PAGES_NORMAL, &team->phases));
    team->most_phases = most_phases;
    TRY(NEW(&team->members, threads));
    team->threads = threads;
    team->pins = pin;
    /* With more threads than cores, a spinning thread can take the core of the thread that it waits for. */
    team->spins = threads <= cpu_physical_cores() ? 4000 : 50;
    for (uint32_t i = 1; i < threads; i++) {
        struct member *member = &team->members[i - 1];
        *member = (struct member){.team = team, .index = i};
        if (!thread_start(&member->thread, worker, member))
            TRY(fail(SALVO_ERROR_MEMORY, "cannot start thread %u of %u", i + 1, threads));
        team->started++;
        if (pin)
            pin_to_core(member->thread, i);
    }
    *out = team;
cleanup:
    if (status != SALVO_OK)
        team_close(team);
    return status;
}

void team_close(struct team *team)
{
    if (!team)
        return;
    atomic_store(&team->leaving, true);
    atomic_fetch_add(&team->generation, 1);
    wait_word_wake(&team->generation);
    for (uint32_t i = 0; i < team->started; i++)
        pthread_join(team->members[i].thread, NULL);
    memory_free(team->members);
    memory_unmap(team->phases, team->most_phases * sizeof *team->phases);
    memory_unmap(team, sizeof *team);
}

uint32_t team_threads(const struct team *team)
{
    return team->threads;
}
