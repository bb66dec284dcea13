/* Steps on the device: taken out of the ring that the host fills, and their results published to the host. */
#ifndef CUDA_STEP_TAKE_CUH
#define CUDA_STEP_TAKE_CUH

#include "backend/cuda/kernels/common/waiting.cuh"
#include "backend/cuda/sample_plan.h"
#include "program/step.h"

/* The entry that the next submission takes. */
KERNEL_INLINE const cuda_step *step_in_ring(const cuda_machine &machine)
{
    const uint32_t sequence = __ldcg((const uint32_t *)machine.sequence);
    return (const cuda_step *)(machine.step_ring +
                               (uint64_t)(sequence % machine.step_ring_entries) * machine.step_bytes);
}

/*
 * Copies bytes first .. first + count - 1, both multiples of 16. The first 16 bytes go to warp `warp`, so
 * that several calls have their loads in flight at once. The host wrote the entry before it launched the
 * kernel, so ordinary loads suffice; system-scope loads would cross the bus one thread at a time.
 */
template <int THREADS>
KERNEL_INLINE void copy_entry(uint64_t from, uint64_t to, uint32_t first, uint32_t count, uint32_t warp)
{
    const uint32_t thread = (threadIdx.x + THREADS - warp * 32) % THREADS;
    for (uint32_t i = first + thread * 16; i < first + (count + 15) / 16 * 16; i += THREADS * 16)
        __stcg((uint4 *)(to + i), __ldcg((const uint4 *)(from + i)));
}

KERNEL_INLINE uint32_t now_in_ticks()
{
    return (uint32_t)(now_in_ns() / CUDA_TICK_NS);
}

/* cuda_result.number: the position where a run failed, or the ticks that it took. */
KERNEL_INLINE uint32_t result_number(const cuda_machine &machine, bool failed, uint32_t position)
{
    return failed ? position : now_in_ticks() - __ldcg(&((const cuda_step *)machine.step)->began);
}

/* Angles of a position, [ropes][rope_pairs], in double: a position times a frequency loses precision in
 * float. */
KERNEL_INLINE void prepare_ropes(const cuda_machine &machine, uint32_t position, float *cosines, float *sines,
    uint32_t thread, uint32_t threads)
{
    const cuda_rope *ropes = (const cuda_rope *)machine.ropes;
    for (uint32_t i = thread; i < machine.rope_count * machine.rope_pairs; i += threads) {
        const cuda_rope &rope = ropes[i / machine.rope_pairs];
        const uint32_t pair = i % machine.rope_pairs;
        if (pair >= rope.dimensions / 2)
            continue;
        double sine, cosine;
        sincos(position * ((const double *)rope.frequencies)[pair], &sine, &cosine);
        cosines[i] = (float)cosine * rope.magnitude;
        sines[i] = (float)sine * rope.magnitude;
    }
}

/* One block takes the next entry: copies the runs, rows, output rows, ids and page tables in use, and puts
 * the host's ids where `embed` reads them. Returns false when an earlier launch failed (the entry was that
 * launch's), or when the entry names another plan or sequence number; the step then has neither runs nor
 * rows. */
template <int THREADS> KERNEL_INLINE bool take_step(const cuda_machine &machine)
{
    const bool failed = has_failed(machine);
    const cuda_step *entry = step_in_ring(machine);
    const uint64_t from = (uint64_t)entry, to = machine.step;
    cuda_step *step = (cuda_step *)to;
    copy_entry<THREADS>(from, to, 0, sizeof(cuda_step), 0);
    const bool leaves = sync_any<THREADS>(failed);
    const bool fits = __ldcg(&step->plan) == machine.plan &&
                      __ldcg(&step->sequence) == __ldcg((const uint32_t *)machine.sequence);
    if (leaves || !fits) {
        sync_threads<THREADS>();
        if (threadIdx.x == 0) {
            step->run_count = step->token_count = step->output_count = 0;
            if (!leaves)
                report_failure(&machine, CUDA_ERROR_STEP);
        }
        return false;
    }
    if (threadIdx.x == 0)
        __stcg(&step->began, now_in_ticks());
    const uint32_t runs = __ldcg(&step->run_count), rows = __ldcg(&step->token_count),
                   outputs = __ldcg(&step->output_count);
    copy_entry<THREADS>(from, to, machine.runs_at, runs * sizeof(cuda_run), 0);
    copy_entry<THREADS>(from, to, machine.rows_at, rows * sizeof(cuda_row), 1);
    copy_entry<THREADS>(from, to, machine.outputs_at, outputs * sizeof(uint32_t), 2);
    copy_entry<THREADS>(from, to, machine.ids_at, rows * sizeof(int32_t), 3);
    copy_entry<THREADS>(from, to, machine.pages_at, runs * machine.pages_per_slot * sizeof(uint32_t), 4);
    sync_threads<THREADS>();
    for (uint32_t i = threadIdx.x; i < rows; i += THREADS) {
        const uint4 row = __ldcg((const uint4 *)(to + machine.rows_at) + i); /* run, slot, position */
        if (__ldcg(&((const cuda_run *)(to + machine.runs_at) + row.x)->source) == SOURCE_IDS)
            __stcg((int32_t *)machine.tokens + (uint64_t)row.y * (machine.context + 1) + row.z,
                __ldcg((const int32_t *)(to + machine.ids_at) + i));
    }
    for (uint32_t i = threadIdx.x; i < runs; i += THREADS) {
        const cuda_run *run = (const cuda_run *)(to + machine.runs_at) + i;
        if (__ldcg(&run->source) == SOURCE_IDS) {
            cuda_slot *state = (cuda_slot *)machine.slot_states + __ldcg(&run->slot);
            state->next = __ldcg(&run->first);
            state->ended = 0;
        }
    }
    return true;
}

/* Whether a run starts at its slot's next position, or, where it only samples, ends there; and the slot has
 * not ended. */
KERNEL_INLINE bool run_is_live(const cuda_machine &machine, uint32_t index)
{
    const cuda_run *run = (const cuda_run *)(machine.step + machine.runs_at) + index;
    const cuda_slot *state = (const cuda_slot *)machine.slot_states + __ldcg(&run->slot);
    const uint32_t begin = __ldcg(&run->first) + __ldcg(&((const cuda_step *)machine.step)->samples_only);
    return __ldcg(&state->next) == begin && !__ldcg(&state->ended);
}

/* ---- One token after the other ---- */

struct token_count {
    uint32_t sampled;
    bool ended, failed, cancelled;
};

/* Limits of a step that decide whether another token follows. */
struct token_rules {
    uint32_t limit, stop_count;
    bool samples;
};

/* The end of a token, computed by every block with the same result; true when another token follows. */
KERNEL_INLINE bool finish_token(const cuda_machine &machine, const token_rules &rules, uint32_t position,
    uint32_t done, uint32_t repeat, int32_t id, token_count &count)
{
    const cuda_step *step = (const cuda_step *)machine.step;
    if (count.cancelled || !rules.samples)
        return false;
    count.failed = id < 0;
    if (count.failed)
        return false;
    count.sampled = done;
    for (uint32_t i = 0; i < rules.stop_count; i++)
        count.ended |= __ldcg(&step->stop_ids[i]) == id;
    return !count.ended && done < repeat && position + 1 < machine.context &&
           (rules.limit == 0 || position + 1 < rules.limit);
}

KERNEL_INLINE uint32_t entry_of(const cuda_machine &machine)
{
    return __ldcg((const uint32_t *)machine.sequence) % machine.step_ring_entries;
}

/* Publishes the number of sampled ids; the ids are in the host's tokens already. A step with a single token
 * needs only `done`. */
KERNEL_INLINE void publish_progress(const cuda_machine &machine, const token_count &count)
{
    if (__ldcg(&((const cuda_step *)machine.step)->repeat) > 1)
        store_release_system((uint32_t *)machine.progress + entry_of(machine), count.sampled);
}

/* The end of a submission: `done` is written last. */
KERNEL_INLINE void publish_done(const cuda_machine &machine)
{
    uint32_t *sequence = (uint32_t *)machine.sequence;
    const uint32_t ticket = __ldcg(sequence) + 1;
    uint32_t *done = (uint32_t *)machine.done + (ticket - 1) % machine.step_ring_entries;
    __stcg(sequence, ticket);
    __threadfence_system();
    store_release_system(done, ticket);
}

/* The result of a step with one run, which began at `version` of the recurrent states. A failed or cancelled
 * step leaves the slot as it was before. */
KERNEL_INLINE void finish_step_of_one(
    const cuda_machine &machine, uint32_t slot, uint32_t first, uint32_t version, const token_count &count)
{
    cuda_slot *state = (cuda_slot *)machine.slot_states + slot;
    const cuda_run *run = (const cuda_run *)(machine.step + machine.runs_at);
    const bool samples = __ldcg(&run->logits) == LOGITS_LAST;
    const uint32_t computed = samples ? count.sampled : count.cancelled || !run_is_live(machine, 0) ? 0 : 1;
    volatile cuda_result *result =
        (volatile cuda_result *)machine.results + (uint64_t)entry_of(machine) * machine.slots;
    result->sampled = count.sampled;
    result->ended = count.ended;
    result->failed = count.failed ? 1 : count.cancelled ? 2 : 0;
    result->number = result_number(machine, count.failed, first + count.sampled);
    if (computed) {
        state->next = first + computed;
        state->ended = count.ended;
        state->version = (version + computed) % 2;
    }
    publish_done(machine);
}

#endif
