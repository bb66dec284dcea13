/*
 * Many tokens: the beginning and the end of a step, and everything that is done row by row.
 *
 *   salvo_begin(machine)                     1 block of BEGIN_THREADS
 *   salvo_angles(machine)                    a block of ANGLES_THREADS for each row
 *   salvo_rows(machine, table, inputs)       a block of ROWS_THREADS for each row
 *   salvo_few_rows(machine, table, inputs)   a block of FEW_ROWS_THREADS for each row
 *   salvo_end(machine)                       1 block of END_THREADS
 *
 * Shared memory of salvo_rows and salvo_few_rows is the row table, then the places of a row's vectors.
 *
 * A run that does not begin at its slot's next position has no rows: its count becomes 0 in the device's copy
 * of the step. When the host has cancelled, no run has any.
 */
#include "backend/cuda/cuda_batch.h"
#include "backend/cuda/kernels/common/rows.cuh"
#include "backend/cuda/kernels/common/step_take.cuh"
#include "backend/cuda/kernels/common/tensor_cores.cuh"
#include "backend/cuda/kernels/prefill/rounding.cuh"

/* ---- The beginning ---- */

extern "C" __global__ void __launch_bounds__(BEGIN_THREADS) salvo_begin(const cuda_machine *given)
{
    const cuda_machine &machine = *given;
    wait_for_last_launch();
    (void)take_step<BEGIN_THREADS>(machine); /* without rows the launches that follow do nothing */
    cuda_step *step = (cuda_step *)machine.step;
    if (threadIdx.x == 0)
        __stcg(&step->cancelled, load_relaxed_system((const uint32_t *)machine.cancel));
    __syncthreads();
    const bool cancelled = __ldcg(&step->cancelled) != 0;
    for (uint32_t i = threadIdx.x; i < __ldcg(&step->run_count); i += BEGIN_THREADS) {
        cuda_run *run = (cuda_run *)(machine.step + machine.runs_at) + i;
        if (cancelled || !run_is_live(machine, i)) {
            __stcg(&run->count, 0u);
            __stcg(&run->logits, (uint32_t)LOGITS_NONE);
        }
    }
    __syncthreads();
    if (threadIdx.x == 0 && cancelled)
        step->token_count = step->output_count = 0;
    __threadfence(); /* the launches that follow read the step before they wait */
}

extern "C" __global__ void __launch_bounds__(ANGLES_THREADS) salvo_angles(const cuda_machine *machine)
{
    invite_next_launch();
    const cuda_row *rows = (const cuda_row *)(machine->step + machine->rows_at);
    const uint64_t at = (uint64_t)blockIdx.x * machine->rope_count * machine->rope_pairs;
    wait_for_last_launch();
    if (blockIdx.x < __ldcg(&((const cuda_step *)machine->step)->token_count))
        prepare_ropes(*machine, __ldcg(&rows[blockIdx.x].position), (float *)machine->cosines + at,
            (float *)machine->sines + at, threadIdx.x, ANGLES_THREADS);
}

/* ---- Rows ---- */

/* Row `row` of its kind; false if it does not exist or is not live. */
KERNEL_INLINE bool find_row(const cuda_machine &machine, uint32_t kind, uint32_t row, row_context &out)
{
    const cuda_step *step = (const cuda_step *)machine.step;
    const cuda_row *rows = (const cuda_row *)(machine.step + machine.rows_at);
    const cuda_run *runs = (const cuda_run *)(machine.step + machine.runs_at);
    const uint32_t live = __ldcg(kind == ROWS_OUTPUTS ? &step->output_count
                                 : kind == ROWS_RUNS  ? &step->run_count
                                                      : &step->token_count);
    uint4 place = {};
    uint32_t token_row = row;
    if (kind == ROWS_TOKENS)
        place =
            __ldcg((const uint4 *)(rows + row)); /* run, slot, position; there is room for all, live or not */
    if (row >= live)
        return false;
    if (kind != ROWS_TOKENS) {
        token_row = kind == ROWS_OUTPUTS ? __ldcg((const uint32_t *)(machine.step + machine.outputs_at) + row)
                                         : __ldcg(&runs[row].first_row);
        place = __ldcg((const uint4 *)(rows + token_row));
    }
    const cuda_run *run = runs + place.x;
    const uint64_t angles = (uint64_t)token_row * machine.rope_count * machine.rope_pairs;
    out = {};
    out.row = row;
    out.slot = place.y;
    out.position = place.z;
    out.run_first_row = __ldcg(&run->first_row);
    out.run_count = __ldcg(&run->count);
    out.run_first = __ldcg(&run->first);
    out.version = __ldcg(&((const cuda_slot *)machine.slot_states)[place.y].version);
    out.id = __ldcg((const int32_t *)machine.tokens + (uint64_t)place.y * (machine.context + 1) + place.z);
    out.pages =
        (const uint32_t *)(machine.step + machine.pages_at) + (uint64_t)place.x * machine.pages_per_slot;
    out.cosines = (const float *)machine.cosines + angles;
    out.sines = (const float *)machine.sines + angles;
    out.keeps = true;
    return out.run_count != 0;
}

/* A vector in shared memory to its row of a packed input; columns beyond the last are zeros. */
template <int THREADS>
KERNEL_INLINE void round_row(const cuda_round &round, const cuda_packed_input &packed_input,
    const float *vectors, uint32_t row, bool fine)
{
    const float *x = vectors + round.place;
    const uint64_t columns = packed_input.columns, first = row * columns;
    for (uint32_t i = threadIdx.x * 4; i < columns; i += THREADS * 4) {
        float4 four;
        four.x = i < round.columns ? x[i] : 0;
        four.y = i + 1 < round.columns ? x[i + 1] : 0;
        four.z = i + 2 < round.columns ? x[i + 2] : 0;
        four.w = i + 3 < round.columns ? x[i + 3] : 0;
        if (round.rounding == ROUNDING_F32) {
            __stcg((float4 *)((float *)packed_input.values + first + i), four);
        } else if (round.rounding == ROUNDING_F16) {
            store_halves(packed_input, row, i, four);
        } else {
            store_rounded(packed_input, first + i, round_columns_of_row(four, fine), fine);
        }
    }
}

template <int THREADS>
KERNEL_INLINE void work_row(
    const cuda_machine *given, const cuda_row_table *given_table, const cuda_packed_input *packed_inputs)
{
    DYNAMIC_SHARED(shared);
    __shared__ cuda_machine machine;
    __shared__ __align__(16) float scratch[2 * THREADS / 32];
    /* Tables are constant: they are loaded before the data of the row. */
    invite_next_launch();
    for (uint32_t i = threadIdx.x; i < sizeof machine / 4; i += THREADS)
        ((uint32_t *)&machine)[i] = __ldg((const uint32_t *)given + i);
    const uint32_t size = __ldg(&given_table->size);
    for (uint32_t i = threadIdx.x; i < size / 4; i += THREADS)
        ((uint32_t *)shared)[i] = __ldg((const uint32_t *)given_table + i);
    __syncthreads();
    const cuda_row_table *table = (const cuda_row_table *)shared;
    float *vectors = (float *)(shared + (size + 15) / 16 * 16);
    const cuda_row_op *ops = (const cuda_row_op *)(shared + table->ops_at);
    const cuda_round *rounds = (const cuda_round *)(shared + table->rounds_at);

    row_context row = {};
    const bool is_live = find_row(machine, table->rows, blockIdx.x, row);
    wait_for_last_launch();
    if (!is_live)
        return;
    load_vectors<THREADS>(
        machine, (const cuda_load *)(shared + table->loads_at), table->load_count, vectors, row);
    __syncthreads();
    row_worker<THREADS> worker = {machine, vectors, scratch, 0, row};
    worker.run_all(ops, table->op_count);
    __syncthreads();
    store_vectors<THREADS>((const cuda_store *)(shared + table->stores_at), table->store_count, vectors, row);
    for (uint32_t i = 0; i < table->round_count; i++)
        round_row<THREADS>(rounds[i], packed_inputs[rounds[i].packed_input], vectors, row.row,
            rounds[i].fine || (table->rows == ROWS_TOKENS && row.position < EARLY_POSITIONS));
}

#define DEFINE_ROWS(name, threads)                                                                        \
    extern "C" __global__ void __launch_bounds__(threads) name(                                           \
        const cuda_machine *machine, const cuda_row_table *table, const cuda_packed_input *packed_inputs) \
    {                                                                                                     \
        work_row<threads>(machine, table, packed_inputs);                                                 \
    }

DEFINE_ROWS(salvo_rows, ROWS_THREADS)
DEFINE_ROWS(salvo_few_rows, FEW_ROWS_THREADS)

/* ---- The end ---- */

/* The sampled id of a run, or one of the negative codes in sample_plan.h. */
KERNEL_INLINE int32_t sampled_id(const cuda_machine &machine, const cuda_run *run)
{
    const uint64_t bytes = cuda_sample_row_bytes(machine.vocabulary);
    return __ldcg(&((const cuda_sample_row *)(machine.sampling + __ldcg(&run->output) * bytes))->id);
}

KERNEL_INLINE void finish_run(const cuda_machine &machine, uint32_t index)
{
    const cuda_step *step = (const cuda_step *)machine.step;
    const cuda_run *run = (const cuda_run *)(machine.step + machine.runs_at) + index;
    const uint32_t count = __ldcg(&run->count), first = __ldcg(&run->first),
                   stops = __ldcg(&step->stop_count), stop_mask = __ldcg(&run->stop_mask);
    const bool samples = count && __ldcg(&run->logits) == LOGITS_LAST;
    const int32_t id = samples ? sampled_id(machine, run) : CUDA_SAMPLE_NOT_ASKED;
    bool ended = false;
    for (uint32_t i = 0; i < stops; i++)
        ended |= id >= 0 && stop_mask >> i & 1 && __ldcg(&step->stop_ids[i]) == id;
    volatile cuda_result *result =
        (volatile cuda_result *)machine.results + (uint64_t)entry_of(machine) * machine.slots + index;
    const bool failed = samples && id < 0;
    result->sampled = id >= 0;
    result->ended = ended;
    result->failed = failed ? 1 : __ldcg(&step->cancelled) ? 2 : 0;
    result->number = result_number(machine, failed, first + count - 1);
    if (count && !failed) {
        cuda_slot *slot = (cuda_slot *)machine.slot_states + __ldcg(&run->slot);
        slot->next = first + count;
        slot->ended = ended;
        if (!__ldcg(&step->samples_only))
            slot->version ^= 1;
    }
}

/* An empty kernel of the decode kernel's size: tests whether a cooperative launch of that size is possible.
 */
extern "C" __global__ void salvo_probe(const cuda_machine *) {}

extern "C" __global__ void __launch_bounds__(END_THREADS) salvo_end(const cuda_machine *given)
{
    const cuda_machine &machine = *given;
    invite_next_launch();
    wait_for_last_launch();
    const bool failed = has_failed(machine);
    const uint32_t runs = failed ? 0 : __ldcg(&((const cuda_step *)machine.step)->run_count);
    for (uint32_t i = threadIdx.x; i < runs; i += END_THREADS)
        finish_run(machine, i);
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0 && !failed)
        publish_done(machine);
}
