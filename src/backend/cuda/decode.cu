/*
 * The whole token in one launch: a kernel that stays on all multiprocessors and walks through the phases of a
 * plan, with a barrier after each, as often as tokens were asked for. Sixteen warps of a block compute; one
 * more brings the weights of the phases to come (stream.cuh).
 *
 * The same kernel runs a range of phases, for the debug path and for a graph of one node a phase.
 */
#include "backend/cuda/attend_one.cuh"
#include "backend/cuda/exchange.cuh"
#include "backend/cuda/matvec.cuh"
#include "backend/cuda/sample.cuh"
#include "backend/cuda/step_take.cuh"
#include "backend/cuda/wkv7_one.cuh"

enum decode_flags {
    DECODE_TAKES = 1,      /* the step out of the ring, at the beginning */
    DECODE_FINISHES = 2,   /* the token, at the end */
    DECODE_DEPENDENT = 4,  /* one phase of a graph: what runs before ends with a grid dependency */
    DECODE_DELAYS = 8,     /* random pauses, for tests */
    DECODE_CLUSTERED = 16, /* launched in clusters */
};

/* ---- Phases. Each is a function of its own that finds everything through shared memory (matvec.cuh says
 * why). ---- */

template <class T> KERNEL_INLINE const T *table_of(const cuda_phase *phase, uint32_t at)
{
    return (const T *)((const uint8_t *)phase + at);
}

/* Loads a phase's vectors, and does the row ops before its heavy op. */
__device__ __noinline__ void load_and_run_ops(uint32_t phase_at)
{
    DYNAMIC_SHARED(shared);
    shared_head &head = *(shared_head *)shared;
    const cuda_phase *phase = (const cuda_phase *)(shared + phase_at);
    float *vectors = (float *)(shared + head.machine.vectors_at);
    load_vectors<CUDA_WORKERS>(
        head.machine, table_of<cuda_load>(phase, phase->loads_at), phase->load_count, vectors, head.row);
    sync_threads<CUDA_WORKERS>();
    row_worker<CUDA_WORKERS> worker = {head.machine, vectors, head.sums, 0, head.row};
    const cuda_row_op *ops = table_of<cuda_row_op>(phase, phase->ops_at);
    worker.run_all(ops, phase->op_count);
    sync_threads<CUDA_WORKERS>();
}

/* By one block; in a cluster by each for itself. */
__device__ __noinline__ void run_rows(uint32_t phase_at, uint32_t block)
{
    DYNAMIC_SHARED(shared);
    shared_head &head = *(shared_head *)shared;
    const cuda_phase *phase = (const cuda_phase *)(shared + phase_at);
    if (block != 0 && phase->team == CUDA_TEAM_GRID)
        return;
    load_and_run_ops(phase_at);
    if (block == 0)
        store_vectors<CUDA_WORKERS>(table_of<cuda_store>(phase, phase->stores_at), phase->store_count,
            (const float *)(shared + head.machine.vectors_at), head.row);
}

/* One vector, which stays in registers until it is bytes. */
template <int PIECES> __device__ __noinline__ void prepare_bytes(uint32_t phase_at)
{
    DYNAMIC_SHARED(shared);
    shared_head &head = *(shared_head *)shared;
    const cuda_phase *phase = (const cuda_phase *)(shared + phase_at);
    const cuda_round &round = *table_of<cuda_round>(phase, phase->rounds_at);
    const cuda_row_op &norm = *table_of<cuda_row_op>(phase, phase->ops_at);
    const bool has_norm = phase->input == CUDA_INPUT_NORM;
    const float *from =
        phase->load_count ? (const float *)table_of<cuda_load>(phase, phase->loads_at)->from : nullptr;
    const float *vectors = (const float *)(shared + head.machine.vectors_at);
    round_from_registers<PIECES>(from, vectors + (has_norm ? norm.in[0] : round.place), round.columns,
        has_norm ? (const float *)norm.weight : nullptr, has_norm ? norm.value : 0, head.sums,
        shared + head.machine.panels_at + round.panel);
    sync_threads<CUDA_WORKERS>();
}

__device__ __noinline__ void prepare_any(uint32_t phase_at, uint32_t block)
{
    DYNAMIC_SHARED(shared);
    shared_head &head = *(shared_head *)shared;
    const cuda_phase *phase = (const cuda_phase *)(shared + phase_at);
    const float *vectors = (const float *)(shared + head.machine.vectors_at);
    load_and_run_ops(phase_at);
    round_vectors<CUDA_WORKERS>(table_of<cuda_round>(phase, phase->rounds_at), phase->round_count, vectors,
        shared + head.machine.panels_at);
    if (block == 0)
        store_vectors<CUDA_WORKERS>(
            table_of<cuda_store>(phase, phase->stores_at), phase->store_count, vectors, head.row);
    sync_threads<CUDA_WORKERS>();
}

/* The rows of one matmul that this block has summed, to where they belong. */
KERNEL_INLINE void finish_matmul(shared_head &head, const cuda_matmul &matmul, const cuda_matmul *up,
    uint32_t glu, uint32_t block, uint32_t blocks, float *vectors, const float *partials)
{
    const uint32_t owner = owner_of(block, matmul.first_block, blocks);
    if (owner >= matmul.matrix.owners)
        return;
    const uint32_t rows = matmul.matrix.tiles_per_block * CUDA_ITEM_ROWS, first = owner * rows;
    const float *bias = (const float *)matmul.bias, *up_bias = up ? (const float *)up->bias : nullptr;
    const bool in_place = matmul.out_place != CUDA_NONE;
    float *out = (float *)matmul.out, *place = vectors + (in_place ? matmul.out_place : 0);
    for (uint32_t i = threadIdx.x; i < rows && first + i < matmul.matrix.rows; i += CUDA_WORKERS) {
        const float before = !matmul.accumulate ? 0 : in_place ? place[first + i] : __ldcg(out + first + i);
        float sum = finish_sum(matmul, partials, i);
        sum = activated(matmul.activation, bias ? sum + bias[first + i] : sum);
        if (up) {
            const float other = finish_sum(*up, partials, i);
            sum = gated(glu, sum) * (up_bias ? other + up_bias[first + i] : other);
        }
        if (matmul.cap > 0)
            sum = matmul.cap * tanhf(sum / matmul.cap);
        if (matmul.accumulate)
            sum += before;
        if (in_place)
            place[first + i] = sum;
        if (out)
            __stcg(out + first + i, sum);
    }
}

/* A cluster: to all blocks, what finish_matmul has left in this one. */
KERNEL_INLINE void send_matmul(
    shared_head &head, const cuda_matmul &matmul, uint32_t block, uint32_t blocks, const float *vectors)
{
    const uint32_t owner = owner_of(block, matmul.first_block, blocks);
    const uint32_t rows = matmul.matrix.tiles_per_block * CUDA_ITEM_ROWS, first = owner * rows;
    if (owner < matmul.matrix.owners && matmul.out_place != CUDA_NONE && first < matmul.matrix.rows)
        exchange_send(
            head, head.exchanges, vectors + matmul.out_place + first, min(rows, matmul.matrix.rows - first));
}

__device__ __noinline__ void finish_matmuls(uint32_t phase_at, uint32_t block, uint32_t blocks)
{
    DYNAMIC_SHARED(shared);
    shared_head &head = *(shared_head *)shared;
    const cuda_phase *phase = (const cuda_phase *)(shared + phase_at);
    const cuda_matmul *matmuls = table_of<cuda_matmul>(phase, phase->matmuls_at);
    float *vectors = (float *)(shared + head.machine.vectors_at);
    const float *partials = (const float *)(shared + head.machine.partials_at);
    const bool has_glu = phase->glu != ACTIVATION_NONE;
    const uint32_t results = has_glu ? 1 : phase->matmul_count;
    sync_threads<CUDA_WORKERS>();
    for (uint32_t i = 0; i < results; i++)
        finish_matmul(
            head, matmuls[i], has_glu ? &matmuls[1] : nullptr, phase->glu, block, blocks, vectors, partials);
    if (phase->exchanges) {
        sync_threads<CUDA_WORKERS>();
        for (uint32_t i = 0; i < results; i++)
            send_matmul(head, matmuls[i], block, blocks, vectors);
    }
}

KERNEL_INLINE void run_matmuls(uint8_t *shared, uint32_t phase_at, uint32_t block, uint32_t blocks)
{
    const shared_head &head = *(const shared_head *)shared;
    const cuda_phase *phase = (const cuda_phase *)(shared + phase_at);
    if (phase->input == CUDA_INPUT_ANY)
        prepare_any(phase_at, block);
    else if (table_of<cuda_round>(phase, phase->rounds_at)->columns <= 4 * CUDA_WORKERS)
        prepare_bytes<1>(phase_at);
    else
        prepare_bytes<4>(phase_at);
    for (uint32_t i = 0; i < phase->matmul_count; i++) {
        const uint32_t at = phase_at + phase->matmuls_at + i * (uint32_t)sizeof(cuda_matmul);
        const cuda_matmul &matmul = *(const cuda_matmul *)(shared + at);
        if (owner_of(block, matmul.first_block, blocks) < matmul.matrix.owners)
            multiply_any(matmul.matrix.type, at + (uint32_t)offsetof(cuda_matmul, matrix),
                head.machine.panels_at + table_of<cuda_round>(phase, phase->rounds_at)[matmul.round].panel,
                head.machine.partials_at + matmul.partial * 4);
    }
    finish_matmuls(phase_at, block, blocks);
}

__device__ __noinline__ void run_attend(uint32_t phase_at, uint32_t block, uint32_t blocks)
{
    DYNAMIC_SHARED(shared);
    shared_head &head = *(shared_head *)shared;
    const cuda_phase *phase = (const cuda_phase *)(shared + phase_at);
    float *vectors = (float *)(shared + head.machine.vectors_at);
    if (phase->load_count) {
        load_vectors<CUDA_WORKERS>(
            head.machine, table_of<cuda_load>(phase, phase->loads_at), phase->load_count, vectors, head.row);
        sync_threads<CUDA_WORKERS>();
    }
    attend_one_token(shared, phase_at + phase->heavy_at, block, blocks);
}

/* The ops after a wkv7, on the columns of its head, and to where the head belongs; in a cluster to all
 * blocks. */
__device__ __noinline__ void finish_wkv7(uint32_t phase_at, uint32_t index)
{
    DYNAMIC_SHARED(shared);
    shared_head &head = *(shared_head *)shared;
    const cuda_phase *phase = (const cuda_phase *)(shared + phase_at);
    const cuda_wkv7 &wkv7 = *table_of<cuda_wkv7>(phase, phase->heavy_at);
    float *vectors = (float *)(shared + head.machine.vectors_at);
    row_worker<CUDA_WORKERS> worker = {head.machine, vectors, head.sums, 0, head.row};
    const cuda_row_op *ops = table_of<cuda_row_op>(phase, phase->outer_at);
    worker.run_all(ops, phase->outer_count);
    sync_threads<CUDA_WORKERS>();
    store_vectors<CUDA_WORKERS>(
        table_of<cuda_store>(phase, phase->stores_at), phase->store_count, vectors, head.row);
    if (wkv7.result_place != CUDA_NONE) {
        float *result = vectors + wkv7.result_place + index * wkv7.head_dim;
        for (uint32_t i = threadIdx.x; i < wkv7.head_dim; i += CUDA_WORKERS)
            result[i] = vectors[wkv7.out_place + i];
        sync_threads<CUDA_WORKERS>();
        exchange_send(head, head.exchanges, result, wkv7.head_dim);
    }
    sync_threads<CUDA_WORKERS>();
}

__device__ __noinline__ void run_wkv7_head(uint32_t phase_at, uint32_t index)
{
    DYNAMIC_SHARED(shared);
    shared_head &head = *(shared_head *)shared;
    const cuda_phase *phase = (const cuda_phase *)(shared + phase_at);
    wkv7_one_token(head.machine, *table_of<cuda_wkv7>(phase, phase->heavy_at), head.row, index,
        (float *)(shared + head.machine.vectors_at), (float *)(shared + head.machine.partials_at));
}

KERNEL_INLINE void run_wkv7(uint8_t *shared, uint32_t phase_at, uint32_t block, uint32_t blocks)
{
    shared_head &head = *(shared_head *)shared;
    const cuda_phase *phase = (const cuda_phase *)(shared + phase_at);
    const cuda_wkv7 &wkv7 = *table_of<cuda_wkv7>(phase, phase->heavy_at);
    for (uint32_t index = block; index < wkv7.heads; index += blocks) {
        if (threadIdx.x == 0) {
            head.row.first = index * wkv7.head_dim;
            head.row.count = wkv7.head_dim;
        }
        sync_threads<CUDA_WORKERS>();
        load_and_run_ops(phase_at);
        run_wkv7_head(phase_at, index);
        finish_wkv7(phase_at, index);
    }
    if (threadIdx.x == 0)
        head.row.first = head.row.count = 0;
}

KERNEL_INLINE void run_phase(uint8_t *shared, uint32_t phase_at, uint32_t block, uint32_t blocks)
{
    shared_head &head = *(shared_head *)shared;
    const cuda_phase *phase = (const cuda_phase *)(shared + phase_at);
    switch (phase->kind) {
    case CUDA_PHASE_ROWS:
        run_rows(phase_at, block);
        break;
    case CUDA_PHASE_MATMUL:
        run_matmuls(shared, phase_at, block, blocks);
        break;
    case CUDA_PHASE_ATTEND:
        run_attend(phase_at, block, blocks);
        break;
    case CUDA_PHASE_WKV7:
        run_wkv7(shared, phase_at, block, blocks);
        break;
    default:
        sample_stage(head.machine, phase->stage, block, blocks, threadIdx.x, CUDA_WORKERS,
            shared + head.machine.partials_at);
    }
}

/* ---- One phase after the other ---- */

KERNEL_INLINE uint32_t place_of_phase(const cuda_machine &machine, uint32_t index)
{
    return CUDA_SHARED_HEAD + index % 2 * machine.phase_bytes;
}

/* A phase on its way to shared memory while the one before it runs, 16 bytes a thread; finish_fetch before
 * the barrier that is in between. */
KERNEL_INLINE void start_fetch(uint8_t *shared, const cuda_machine &machine, uint32_t index)
{
    const uint32_t at = threadIdx.x * 16;
    if (at < machine.phase_bytes && index < machine.phase_count)
        start_copy_of_16((float *)(shared + place_of_phase(machine, index) + at),
            (const float *)(machine.phases + (uint64_t)index * machine.phase_bytes + at));
}

KERNEL_INLINE void finish_fetch()
{
    wait_for_copies();
}

/* All blocks meet; false when something gave up. */
__device__ __noinline__ bool meet()
{
    DYNAMIC_SHARED(shared);
    shared_head &head = *(shared_head *)shared;
    sync_threads<CUDA_WORKERS>();
    if (threadIdx.x == 0 && !meet_grid(head.machine, head.target, gridDim.x))
        head.failed = 1;
    sync_threads<CUDA_WORKERS>();
    return !head.failed;
}

/* After a phase, before one of team `next`: blocks of a cluster have what the others sent, all others meet.
 */
KERNEL_INLINE bool end_phase(shared_head &head, const cuda_phase *phase, bool joined, uint32_t next)
{
    if (joined && phase->exchanges) {
        const uint32_t number = head.exchanges;
        exchange_greet(head, number);
        if (!exchange_wait(head, number))
            head.failed = 1;
        sync_threads<CUDA_WORKERS>();
        if (threadIdx.x == 0)
            head.exchanges = number + 1;
    }
    if (phase->team == CUDA_TEAM_GRID || next == CUDA_TEAM_GRID)
        return meet();
    sync_threads<CUDA_WORKERS>();
    return !head.failed;
}

KERNEL_INLINE void pause(uint32_t delays, uint32_t phase)
{
    uint32_t hash = (delays + phase * 2654435761u) ^ blockIdx.x * 40503u;
    hash ^= hash >> 13;
    hash *= 0x5bd1e995u;
    if (delays)
        __nanosleep(hash >> 20);
}

/* Phases first .. end-1, with barriers between them; the first one is in shared memory. The last phase of a
 * token is one of the grid, and so is the barrier after it. */
__device__ __noinline__ bool run_phases(uint32_t first, uint32_t end, bool goes_on, uint32_t delays)
{
    DYNAMIC_SHARED(shared);
    shared_head &head = *(shared_head *)shared;
    for (uint32_t i = first; i < end; i++) {
        /* After the last one comes the first of the next token, if there is one. */
        const uint32_t phase_at = place_of_phase(head.machine, i), next = i + 1 < end ? i + 1
                                                                          : goes_on   ? first
                                                                                      : i;
        const cuda_phase *phase = (const cuda_phase *)(shared + phase_at);
        const bool apart =
            (next & 1) != (i & 1); /* an odd number of phases that begins again has no other place */
        if (apart)
            start_fetch(shared, head.machine, next);
        /* Stages of sampling that the settings do not need cost neither time nor a barrier. */
        const bool is_idle =
            phase->kind == CUDA_PHASE_SAMPLE && phase->stage > 0 && sample_is_finished(head.machine, 0);
        const bool clustered = phase->team == CUDA_TEAM_CLUSTER,
                   joined = !clustered || blockIdx.x < CUDA_CLUSTER;
        pause(delays, i);
        if (joined && phase->exchanges && threadIdx.x == 0)
            exchange_begin(head, head.exchanges, phase->exchange_bytes);
        if (joined && !is_idle)
            run_phase(shared, phase_at, clustered ? cluster_rank() : blockIdx.x,
                clustered ? CUDA_CLUSTER : gridDim.x);
        if (head.failed)
            return false;
        finish_fetch();
        const uint32_t next_team = i + 1 == end ? (uint32_t)CUDA_TEAM_GRID : phase->next_team;
        if (is_idle)
            sync_threads<CUDA_WORKERS>();
        else if ((i + 1 < end || goes_on) && !end_phase(head, phase, joined, next_team))
            return false;
        if (next != i && !apart) {
            start_fetch(shared, head.machine, next);
            finish_fetch();
            sync_threads<CUDA_WORKERS>();
        }
    }
    return true;
}

/* ---- The warp that copies weights ---- */

KERNEL_INLINE void copy_weights(stream_writer &writer, const cuda_machine &machine, uint32_t first_phase,
    uint32_t end_phase, uint32_t tokens)
{
    const cuda_stream *streams = (const cuda_stream *)machine.streams;
    const cuda_phase *first =
                         (const cuda_phase *)(machine.phases + (uint64_t)first_phase * machine.phase_bytes),
                     *last = (const cuda_phase *)(machine.phases +
                                                  (uint64_t)(end_phase - 1) * machine.phase_bytes);
    const uint32_t begin = first->stream_first, end = last->stream_first + last->stream_count;
    if (begin == end)
        return;
    cuda_stream next = streams[begin];
    for (uint32_t token = 0; token < tokens; token++) {
        for (uint32_t i = begin; i < end; i++) {
            const cuda_stream stream = next;
            next = streams[i + 1 < end ? i + 1 : begin];
            const bool clustered = stream.team == CUDA_TEAM_CLUSTER;
            const uint32_t owner = owner_of(clustered ? cluster_rank() : blockIdx.x, stream.first_block,
                clustered ? CUDA_CLUSTER : gridDim.x);
            if (owner >= stream.owners || (clustered && blockIdx.x >= CUDA_CLUSTER))
                continue;
            const uint8_t *from = (const uint8_t *)stream.base + owner * stream.owner_bytes;
            for (uint32_t group = 0; group < stream.groups; group++) {
                for (uint32_t at = 0; at < stream.group_bytes; at += stream.chunk_bytes) {
                    const uint32_t bytes = min(stream.chunk_bytes, stream.group_bytes - at);
                    if (!writer.copy(from + (uint64_t)group * stream.group_bytes + at, bytes))
                        return;
                }
            }
        }
    }
}

/* ---- The kernel ---- */

extern "C" __global__ void __launch_bounds__(CUDA_THREADS, 1) salvo_decode(
    const cuda_machine *__restrict__ given, uint32_t first_phase, uint32_t end_phase, uint32_t flags)
{
    DYNAMIC_SHARED(shared);
    shared_head &head = *(shared_head *)shared;
    const uint32_t block = blockIdx.x, blocks = gridDim.x;
    for (uint32_t i = threadIdx.x; i < sizeof head.machine / 4; i += CUDA_THREADS)
        ((uint32_t *)&head.machine)[i] = ((const uint32_t *)given)[i];
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < CUDA_CHUNKS; i++) {
            chunk_barrier_open(&head.full[i], FULL_ARRIVALS);
            chunk_barrier_open(&head.empty[i], CUDA_WARPS);
        }
        for (uint32_t i = 0; i < 2; i++)
            chunk_barrier_open(&head.exchange[i], 1);
        chunk_barrier_open(&head.stop, 1);
        for (uint32_t i = 0; i < CUDA_WARPS; i++)
            head.chunks[i] = head.positions[i] = 0;
        head.failed = head.target = head.exchanges = 0;
#if __CUDA_ARCH__ >= 900
        asm volatile("fence.proxy.async.shared::cta;" ::
                         : "memory"); /* the barriers are there for copies, too */
#endif
    }
    __syncthreads();
    if (flags & DECODE_CLUSTERED)
        cluster_meet(); /* nobody sends before all barriers are there */
    const cuda_machine &machine = head.machine;
    const cuda_step *step = (const cuda_step *)machine.step;

#if __CUDA_ARCH__ >= 900
    if (flags & DECODE_DEPENDENT)
        asm volatile("griddepcontrol.launch_dependents;");
#endif
    if (threadIdx.x >= CUDA_WORKERS) {
        /* How many tokens there will be is in the ring already; a single phase has one. */
        const cuda_step *entry = step_in_ring(machine);
        const uint32_t tokens = flags & DECODE_TAKES ? load_relaxed_system(&entry->repeat) : 1;
        stream_writer writer = {machine, head, shared + machine.ring_at, {}, 0};
        copy_weights(writer, machine, first_phase, end_phase, tokens);
        __syncwarp();
        while (!chunk_barrier_test(&head.stop, 0))
            __nanosleep(100);
        if (threadIdx.x % 32 == 0)
            writer.drain(head.last);
        if (flags & DECODE_CLUSTERED) {
            __syncwarp();
            cluster_meet();
        }
        return;
    }

    const uint32_t delays = flags & DECODE_DELAYS ? (uint32_t)clock64() | 1 : 0;
    start_fetch(shared, machine, first_phase);
    finish_fetch();
#if __CUDA_ARCH__ >= 900
    if (flags & DECODE_DEPENDENT)
        asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    bool fine = true;
    if (flags & DECODE_TAKES) {
        if (block == 0)
            take_step<CUDA_WORKERS>(machine);
        fine = meet();
    } else {
        sync_threads<CUDA_WORKERS>();
    }

    const cuda_run *run = (const cuda_run *)(machine.step + machine.runs_at);
    const uint32_t slot = __ldcg(&run->slot), first = __ldcg(&run->first), repeat = __ldcg(&step->repeat);
    const cuda_slot *state = (const cuda_slot *)machine.slot_states + slot;
    const int32_t *tokens = (const int32_t *)machine.tokens + (uint64_t)slot * (machine.context + 1);
    const uint32_t version = __ldcg(&state->version);
    if (threadIdx.x == 0) {
        head.row = {};
        head.row.slot = slot;
        head.row.run_count = 1;
        head.row.version = version;
        head.row.pages = (const uint32_t *)(machine.step + machine.pages_at);
        head.row.cosines = (const float *)(shared + machine.angles_at);
        head.row.sines = head.row.cosines + machine.rope_count * machine.rope_pairs;
        head.row.keeps = block == 0;
    }
    float *angles = (float *)(shared + machine.angles_at);
    auto stand_at = [&](uint32_t position, int32_t id, uint32_t now) {
        if (threadIdx.x == 0) {
            head.row.position = head.row.run_first = position;
            head.row.id = id;
            head.row.version = now;
        }
        prepare_ropes<CUDA_WORKERS>(
            machine, position, angles, angles + machine.rope_count * machine.rope_pairs);
        sync_threads<CUDA_WORKERS>();
    };

    token_count count = {};
    if (flags & DECODE_FINISHES) {
        const bool live = fine && run_is_live(machine, 0);
        for (uint32_t i = 0; live && i < repeat; i++) {
            stand_at(first + i,
                i ? __ldcg(&((const cuda_sample_row *)machine.sampling)->id) : __ldcg(tokens + first),
                (version + i) % 2);
            if (block == 0)
                begin_token<CUDA_WORKERS>(machine, first + i, i);
            fine = run_phases(first_phase, end_phase, true, delays);
            if (!fine)
                break;
            const bool goes_on = finish_token(machine, first + i, i + 1, count);
            if (block == 0 && threadIdx.x == 0)
                tell_progress(machine, count);
            if (!goes_on)
                break;
        }
        if (block == 0 && threadIdx.x == 0 && fine)
            finish_step_of_one(machine, slot, first, version, count);
    } else if (!(flags & DECODE_DEPENDENT) || run_is_live(machine, 0)) {
        stand_at(first, __ldcg(tokens + first), version);
        fine = run_phases(first_phase, end_phase, false, delays);
    }

    sync_threads<CUDA_WORKERS>();
    if (threadIdx.x == 0) {
        head.last = head.chunks[0];
        chunk_barrier_arrive(&head.stop);
        /* Whoever leaves last puts the barrier back for the next launch. */
        uint32_t *words = (uint32_t *)machine.barrier;
        if (!(flags & DECODE_DEPENDENT) && atomicAdd(words + BARRIER_LEFT, 1) + 1 == blocks)
            words[BARRIER_ARRIVED] = words[BARRIER_LEFT] = 0;
    }
    if (flags & DECODE_CLUSTERED) {
        __syncwarp();
        cluster_meet(); /* nobody leaves while others may still send to it */
    }
}
