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

/* Threads beyond this number share counters of finished tasks. */
enum { MOST_COUNTERS = 16, TAKEN_BITS = 24 };

/* Part of the tasks of a phase: those that one thread takes unless it is late. */
struct share {
    alignas(64) _Atomic uint64_t taken; /* number of the phase << TAKEN_BITS | tasks taken in it */
};

struct counter {
    alignas(64) _Atomic uint64_t finished; /* tasks since the team was opened */
};

struct member {
    struct team *team;
    pthread_t thread;
    uint32_t index;
};

/*
 * Who takes a task or reports it finished writes to a cache line that, as a rule, no other thread writes to:
 * 16 threads that add to one counter would take microseconds for it, as long as a small phase.
 *
 * `gate` admits workers to a job: bit 0 is set while the job is open, the bits above count the workers
 * inside. A worker that sleeps through a job never enters it. The next job starts when the last worker has
 * left.
 */
struct team {
    struct share *shares;   /* [threads] */
    struct member *members; /* [threads - 1] */
    uint32_t *tasks;        /* [most_phases]: those of the job */
    uint32_t threads, counter_count, started;
    uint32_t patience,
        spins; /* looks at a phase before a thread takes the tasks of others; before it sleeps */
    bool pins;
    struct team_job job;
    uint64_t first_phase, first_task; /* phases and tasks of all jobs before */
    struct counter counters[MOST_COUNTERS];
    alignas(64) atomic_uint gate;
    alignas(64) atomic_uint generation; /* changes with every job; workers wait for it */
    alignas(64) atomic_uint ended;      /* changes when a phase has ended while a thread slept */
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

/* A phase as the threads inside see it. */
struct phase {
    uint32_t index, tasks;
    uint64_t number; /* since the team was opened */
    uint64_t end;    /* finished tasks since then that end the phase */
};

/* No task of a later phase begins before the end of this one, so a sum from different moments will do. */
static bool has_ended(struct team *team, const struct phase *phase)
{
    uint64_t finished = 0;
    for (uint32_t i = 0; i < team->counter_count; i++)
        finished += atomic_load(&team->counters[i].finished);
    return finished >= phase->end;
}

static uint32_t share_begin(const struct team *team, const struct phase *phase, uint32_t thread)
{
    return (uint32_t)((uint64_t)phase->tasks * thread / team->threads);
}

/* Takes a task from the share of a thread, which may not have come to this phase yet. */
static bool take_task(struct team *team, const struct phase *phase, uint32_t owner, uint32_t *out_task)
{
    const uint32_t begin = share_begin(team, phase, owner), end = share_begin(team, phase, owner + 1);
    _Atomic uint64_t *taken = &team->shares[owner].taken;
    if (begin == end)
        return false;
    const uint64_t none = phase->number << TAKEN_BITS;
    uint64_t before = atomic_load_explicit(taken, memory_order_relaxed);
    for (;;) {
        const uint64_t now = (int64_t)(before - none) < 0 ? none : before; /* behind the earlier phases */
        if (now - none >= end - begin) /* all are taken, or the share is in a later phase */
            return false;
        *out_task = begin + (uint32_t)(now - none);
        if (atomic_compare_exchange_weak_explicit(
                taken, &before, now + 1, memory_order_relaxed, memory_order_relaxed))
            return true;
    }
}

static void work_on_share(
    struct team *team, const struct phase *phase, uint32_t owner, uint32_t thread, bool *entered)
{
    const struct team_job *job = &team->job;
    uint32_t task, finished = 0;
    while (take_task(team, phase, owner, &task)) {
        if (!*entered && job->enter)
            job->enter(job->context, phase->index, thread);
        *entered = true;
        job->work(job->context, phase->index, task, thread);
        finished++;
    }
    if (finished == 0)
        return;
    atomic_fetch_add(&team->counters[thread % team->counter_count].finished, finished);
    if (atomic_load(&team->sleepers) && has_ended(team, phase)) {
        atomic_fetch_add(&team->ended, 1);
        wait_word_wake(&team->ended);
    }
}

static void sleep_until_end(struct team *team, const struct phase *phase)
{
    atomic_fetch_add(&team->sleepers, 1);
    const unsigned ended = atomic_load(&team->ended);
    if (!has_ended(team, phase))
        wait_word_sleep(&team->ended, ended);
    atomic_fetch_sub(&team->sleepers, 1);
}

static void walk_phase(struct team *team, const struct phase *phase, uint32_t thread)
{
    bool entered = false;
    work_on_share(team, phase, thread, thread, &entered);
    for (uint32_t spun = 0; !has_ended(team, phase); spun++) {
        if (spun == team->patience) {
            for (uint32_t i = 1; i < team->threads; i++)
                work_on_share(team, phase, (thread + i) % team->threads, thread, &entered);
        } else if (spun < team->spins) {
            spin_pause();
        } else {
            sleep_until_end(team, phase);
        }
    }
}

static void walk(struct team *team, uint32_t thread)
{
    struct phase phase = {.end = team->first_task};
    for (uint32_t i = 0; i < team->job.phase_count; i++) {
        phase.index = i;
        phase.tasks = team->tasks[i];
        phase.number = team->first_phase + i;
        phase.end += phase.tasks;
        if (phase.tasks)
            walk_phase(team, &phase, thread);
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
    /* Workers still inside the last job read team->job and team->tasks. */
    uint32_t spun = 0;
    for (unsigned gate; (gate = atomic_load(&team->gate)) != 0;)
        pause_or_sleep(team, &team->gate, gate, &spun);

    team->first_phase += team->job.phase_count;
    for (uint32_t i = 0; i < team->job.phase_count; i++)
        team->first_task += team->tasks[i];
    memcpy(team->tasks, job->tasks, job->phase_count * sizeof *job->tasks);
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
    team->threads = threads;
    TRY(memory_map(threads * sizeof *team->shares, PAGES_NORMAL, &team->shares));
    TRY(NEW(&team->members, threads));
    TRY(NEW(&team->tasks, most_phases));
    team->counter_count = threads < MOST_COUNTERS ? threads : MOST_COUNTERS;
    team->pins = pin;
    /* With more threads than cores, a spinning thread can take the core of the thread that it waits for, and
     * the owner of a share may be a while in coming. */
    const bool has_cores = threads <= cpu_physical_cores();
    team->spins = has_cores ? 4000 : 50;
    team->patience = has_cores ? 20 : 0;
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
    memory_free(team->tasks);
    memory_unmap(team->shares, team->threads * sizeof *team->shares);
    memory_unmap(team, sizeof *team);
}

uint32_t team_threads(const struct team *team)
{
    return team->threads;
}
