/*
 * The single-token kernel: one launch computes as many tokens as the step asks for, one after the other, on
 * all multiprocessors. A block executes its list of records (cuda_plan.h), one for each phase in which it has
 * work. Blocks exchange activations as tagged words (tagged_words.cuh), without a barrier between phases.
 *
 * The same kernel runs a range of phases, for the debug path and for a graph with a node for each phase.
 *
 * FILES. matvec.cuh, matvec_short.cuh, matvec_pieces.cuh (matmuls), which use matvec_input.cuh (their input);
 * attend_one.cuh (tasks of attention), which uses attend_lanes.cuh and attend_tiles.cuh (two algorithms),
 * attend_input.cuh and attend_finish.cuh; wkv7_head.cuh and wkv7_one.cuh (RWKV-7); choose_largest.cuh (greedy
 * sampling); finisher.cuh (the finishing warp); stream.cuh (the weight ring, and the head of shared memory);
 * tagged_words.cuh. Headers in kernels/common serve the kernels of many tokens as well.
 *
 * WARPS of a block. 0 to 15 compute (CUDA_WORKERS threads). 16, the finishing warp, adds partial sums, stores
 * the results and loads records. 17, the copying warp, copies weights into the ring.
 *
 * BARRIERS. All but the last four are mbarriers in struct shared_head; a wait tests the parity of the number
 * of earlier completions. wait_distance is explained below, with the timeline. s is the serial number of a
 * record of the block in this launch, c the number of a chunk of weights.
 *
 * barrier          arrivals                     who waits                  completes when
 * full[c % 32]     9.0 and later: 1 (lane 0 of  warps 0-15, before they    chunk c is in shared memory
 *                  warp 17) and the bytes;      read it; warp 17, before
 *                  8.x: 32 (lanes of warp 17)   it exits
 * empty[c % 32]    16: lane 0 of warps 0-15     lane 0 of warp 17, before  no warp reads chunk c any more
 *                                               it reuses the place
 * computed[s % 2]  512: threads of warps 0-15   warp 16, before it         the partial sums of record s
 *                                               finishes record s          are in shared memory
 * finished[s % 2]  32: lanes of warp 16         warps 0-15, before record  the results of record s are
 *                                               s + wait_distance          stored, record s + 3 is loaded
 * announced        1: thread 0                  warp 16                    the range of records is known;
 *                                                                          then before each token, and
 *                                                                          at the end
 * acknowledged     32: lanes of warp 16         thread 0, before the next  warp 16 has read head.follows;
 *                                               announcement; the first    the first time: four records
 *                                               time all of warps 0-15     are in shared memory
 * known            1: thread 0                  warp 17, before the        the step was taken: head.tokens
 *                                               second token's weights     has the number of tokens
 * stop             1: thread 0                  warp 17                    the launch is over
 * bar.sync 0       576: all threads             all                        once, when the mbarriers exist
 * bar.sync 1       512: threads of warps 0-15   the same threads           sync_threads and sync_any
 * grid barrier     thread 0 of each block       the same threads           the step was taken; not greedy:
 *                  (a count in device memory)                              after the logits and after each
 *                                                                          stage of sampling
 * blocks that      thread 0 of each block       none: the last block       all blocks are done
 * left             (a count in device memory)   resets both counts
 *
 * TIMELINE of a block over one layer of a Llama model in which it has a record in each phase. "poll x" waits
 * for the tagged words of x from all blocks that compute some of it; "finished(s)" is the barrier's use for
 * record s. Matmuls have wait_distance 2: warps 0-15 may compute record s while warp 16 finishes s - 1.
 *
 * record          warps 0-15, each at its own pace       warp 16                          warp 17
 * s   q, k or v   wait finished(s-2), full; weights to   (finishes s-1)                   copies the
 *                 registers; poll x; norm, round to      wait computed(s); add partial    chunks of s+1,
 *                 int8, multiply; arrive empty and       sums, norm factor; store q,      s+2, ... as far
 *                 computed(s)                            k or v; copy record s+3 to       ahead as the
 *                                                        shared memory; arrive            ring has room
 *                                                        finished(s); load record s+4     (empty)
 * s+1 attend      wait finished(s-1); load cached keys   wait computed(s+1); if there is
 *                 and values; poll q, k, v; rotate,      one head and one split: merge
 *                 append to the cache; softmax; arrive   the parts, store a
 *                 computed(s+1)
 * s+2 output      as s, with input a and no norm         poll x, the residual; wait
 *                                                        computed(s+2); add; store x
 * s+3 gate, up    as s, with two chunks                  wait computed(s+3); add both,
 *                                                        norm factor, glu; store h
 * s+4 down        as s, with input h and no norm         as s+2
 *
 * Warps 0-15 finish matmuls with more than CUDA_FINISHED_ROWS rows in a block, and attention with several
 * heads or splits, themselves; warp 16 then only waits for computed(s).
 */
#include "backend/cuda/kernels/common/sample.cuh"
#include "backend/cuda/kernels/common/step_take.cuh"
#include "backend/cuda/kernels/decode/attend_one.cuh"
#include "backend/cuda/kernels/decode/finisher.cuh"
#include "backend/cuda/kernels/decode/matvec_pieces.cuh"
#include "backend/cuda/kernels/decode/matvec_short.cuh"
#include "backend/cuda/kernels/decode/wkv7_head.cuh"
#include "backend/cuda/kernels/decode/wkv7_one.cuh"

/* ---- Rare kinds of records. Each is a noinline function that finds everything through shared memory:
 * registers that live across such a call would be spilled to local memory, for which little cache is left.
 * ---- */

template <class T> KERNEL_INLINE const T *part_of(const cuda_row_table *table, uint32_t at)
{
    return (const T *)((const uint8_t *)table + at);
}

/* Copies a row table into shared memory. */
KERNEL_INLINE const cuda_row_table *fetch_table(uint8_t *shared, uint32_t index)
{
    const shared_head &head = *(const shared_head *)shared;
    const cuda_machine &machine = head.machine;
    uint8_t *place = shared + machine.angles_at - machine.row_table_bytes;
    for (uint32_t at = threadIdx.x * 16; at < machine.row_table_bytes; at += CUDA_WORKERS * 16)
        start_copy_of_16((float *)(place + at),
            (const float *)(machine.row_tables + (uint64_t)index * machine.row_table_bytes + at));
    wait_for_copies();
    sync_threads<CUDA_WORKERS>();
    return (const cuda_row_table *)place;
}

/* Loads the vectors of a row table, and runs its row ops. */
KERNEL_INLINE void load_and_run_ops(shared_head &head, const cuda_row_table *table, float *vectors)
{
    load_values<CUDA_WORKERS>(
        head, part_of<cuda_load>(table, table->loads_at), table->load_count, vectors, head.row);
    sync_threads<CUDA_WORKERS>();
    row_worker<CUDA_WORKERS> worker = {head.machine, vectors, head.mixed_sums, 0, head.row};
    worker.run_all(part_of<cuda_row_op>(table, table->ops_at), table->op_count);
    sync_threads<CUDA_WORKERS>();
}

__device__ __noinline__ void run_rows(uint32_t index)
{
    DYNAMIC_SHARED(shared);
    shared_head &head = *(shared_head *)shared;
    const cuda_row_table *table = fetch_table(shared, index);
    float *vectors = (float *)(shared + head.machine.vectors_at);
    load_and_run_ops(head, table, vectors);
    store_values<CUDA_WORKERS>(
        head, part_of<cuda_store>(table, table->stores_at), table->store_count, vectors, head.row);
}

template <int TYPE> KERNEL_INLINE void embed_row(const shared_head &head, const cuda_embed_record &record)
{
    const cuda_matrix &table = record.table;
    const uint32_t id = (uint32_t)head.row.id, tile_row = id / CUDA_TILE_ROWS,
                   owner = __umulhi(tile_row, record.owner_reciprocal), each = table.parts_per_pass;
    const uint32_t first = (owner * table.part_groups * table.tile_rows_per_block +
                               (tile_row - owner * table.tile_rows_per_block)) *
                           each;
    for (uint32_t i = this_thread(); i * 8 < table.columns; i += CUDA_WORKERS) {
        const uint32_t part = i / 16, group = part * table.parts_reciprocal >> 16,
                       tile = first + group * (table.tile_rows_per_block * each) + (part - group * each);
        float values[8];
        look_up_eight<TYPE>((const uint8_t *)(table.base + (uint64_t)tile * table.tile_bytes),
            id % CUDA_TILE_ROWS * 4 + i / 4 % 4, i % 4, values);
#pragma unroll
        for (uint32_t j = 0; j < 8; j++) {
            if (i * 8 + j < table.columns)
                store_word((uint32_t *)record.out + i * 8 + j, values[j] * record.scale, head.tag);
        }
    }
}

__device__ __noinline__ void run_embed()
{
    DYNAMIC_SHARED(shared);
    const cuda_embed_record &record = current_record(shared)->embed;
#define EMBED(type, ...)                                              \
    case TYPE_##type:                                                 \
        embed_row<TYPE_##type>(*(const shared_head *)shared, record); \
        break;
    CUDA_WITH_TYPE(record.table.type, EMBED)
#undef EMBED
}

__device__ __noinline__ void prepare_packed_inputs(uint32_t index)
{
    DYNAMIC_SHARED(shared);
    shared_head &head = *(shared_head *)shared;
    const cuda_row_table *table = fetch_table(shared, index);
    float *vectors = (float *)(shared + head.machine.vectors_at);
    load_and_run_ops(head, table, vectors);
    round_vectors<CUDA_WORKERS>(part_of<cuda_round>(table, table->rounds_at), table->round_count, vectors,
        shared + head.machine.packed_inputs_at, head.early);
}

/* One head: the ops before, the recurrence, the ops after. */
__device__ __noinline__ void run_wkv7(uint32_t index, uint32_t which)
{
    DYNAMIC_SHARED(shared);
    shared_head &head = *(shared_head *)shared;
    const cuda_row_table *table = fetch_table(shared, index);
    const cuda_wkv7 &wkv7 = *part_of<cuda_wkv7>(table, table->wkv7_at);
    float *vectors = (float *)(shared + head.machine.vectors_at);
    if (threadIdx.x == 0) {
        head.row.first = which * wkv7.head_dim;
        head.row.count = wkv7.head_dim;
    }
    sync_threads<CUDA_WORKERS>();
    load_and_run_ops(head, table, vectors);
    wkv7_one_token(
        head.machine, wkv7, head.row, which, vectors, (float *)(shared + head.machine.partials_at));
    row_worker<CUDA_WORKERS> worker = {head.machine, vectors, head.mixed_sums, 0, head.row};
    worker.run_all(part_of<cuda_row_op>(table, table->after_at), table->after_count);
    sync_threads<CUDA_WORKERS>();
    store_values<CUDA_WORKERS>(
        head, part_of<cuda_store>(table, table->stores_at), table->store_count, vectors, head.row);
    sync_threads<CUDA_WORKERS>();
    if (threadIdx.x == 0)
        head.row.first = head.row.count = 0;
}

/* The grid barrier; false when a block failed. */
__device__ __noinline__ bool sync_grid()
{
    DYNAMIC_SHARED(shared);
    shared_head &head = *(shared_head *)shared;
    sync_threads<CUDA_WORKERS>();
    if (threadIdx.x == 0 && !head.failed && !grid_barrier(head.machine, head.target, gridDim.x))
        head.failed = 1;
    sync_threads<CUDA_WORKERS>();
    return !head.failed;
}

/* ---- One record after the other ---- */

/* Every record except matmul and attention; false when a block failed. */
KERNEL_INLINE bool run_other(uint8_t *shared, const cuda_record *record)
{
    shared_head &head = *(shared_head *)shared;
    switch (record->kind) {
    case CUDA_RECORD_PREPARE:
        prepare_packed_inputs(record->row_table);
        break;
    case CUDA_RECORD_ROWS:
        run_rows(record->row_table);
        break;
    case CUDA_RECORD_EMBED:
        run_embed();
        break;
    case CUDA_RECORD_WKV7_HEAD:
        run_wkv7_head();
        break;
    case CUDA_RECORD_WKV7:
        run_wkv7(record->row_table, record->index);
        break;
    /* Stages of sampling that the settings do not need take neither time nor a barrier. */
    case CUDA_RECORD_SAMPLE: {
        const bool skips = record->index > 0 && sample_is_finished(head.machine, 0);
        if (this_thread() == 0)
            head.skips = skips;
        if (!skips)
            sample_stage(head.machine, record->index, blockIdx.x, gridDim.x, this_thread(), CUDA_WORKERS,
                shared +
                    (head.machine.attend_own_memory ? head.machine.partials_at : head.machine.attend_at));
        break;
    }
    default:
        if (head.greedy && record->phase + 1 == head.machine.sample_phase) {
            choose_largest();
            break;
        }
        if (record->index > 0 && head.skips)
            break;
        if (record->phase + 1 < head.range.end_phase || head.range.goes_on)
            sync_grid();
    }
    return !sync_any<CUDA_WORKERS>(head.failed);
}

/* The end of a record that is not a matmul. */
KERNEL_INLINE void leave_record(shared_head &head, bool goes_on)
{
    const block_walk walk = load_walk(head);
    signal_finisher(head, walk.serial, goes_on);
    walk_on(head, walk, walk.ring, goes_on);
}

static __device__ __noinline__ void run_attention()
{
    attend_one_token();
    DYNAMIC_SHARED_ANEW(shared);
    leave_record(*(shared_head *)shared, true);
}

static __device__ __noinline__ void run_another()
{
    DYNAMIC_SHARED(shared);
    const bool goes_on = run_other(shared, current_record(shared));
    leave_record(*(shared_head *)shared, goes_on);
}

template <int TERMS> KERNEL_INLINE void run_any_matmul(uint32_t kind)
{
    if (kind == CUDA_RECORD_SHORT)
        run_any_short<false, TERMS>();
    else if (kind == CUDA_RECORD_SHORT_MIXED)
        run_any_short<true, TERMS>();
    else if (kind == CUDA_RECORD_MATMUL)
        run_matmul<TERMS>();
    else
        run_pieces<TERMS>();
}

/* The records of one token. A block that failed continues, with wrong values, through attention and through
 * matmuls that the finishing warp finishes; it returns after the next record that ends with a barrier of all
 * compute warps (run_other, leave_matmul), so that all warps return after the same record. */
static __device__ __noinline__ void run_records()
{
    enum { FINE = 16 };
    for (;;) {
        DYNAMIC_SHARED_ANEW(shared);
        shared_head &head = *(shared_head *)shared;
        const block_walk walk = load_walk(head);
        if (uniform(walk.record >= head.range.end))
            break;
        const cuda_record *record = place_of_record(shared, walk.serial);
        if (head.range.delays)
            pause(head.range.delays, record->phase);
        wait_for_finisher(head, walk.serial, record->wait_distance);
        const bool is_fine = record->kind <= CUDA_RECORD_MATMUL && (record->index || head.early);
        const uint32_t kind = uniform(record->kind + (is_fine ? FINE : 0));
        if (kind <= CUDA_RECORD_MATMUL)
            run_any_matmul<1>(kind);
        else if (kind >= FINE)
            run_any_matmul<2>(kind - FINE);
        else if (kind == CUDA_RECORD_ATTEND)
            run_attention();
        else
            run_another();
    }
    DYNAMIC_SHARED(shared);
    shared_head &head = *(shared_head *)shared;
    block_walk walk = load_walk(head);
    walk.record = head.range.first;
    save_walk(head, walk);
}

/* ---- The finishing warp ---- */

/* One thread announces to the finishing warp, first that the range of records is known, then whether a token
 * follows; each announcement waits until the one before it is acknowledged. */
KERNEL_INLINE void announce_token(shared_head &head, uint32_t number, bool token_follows)
{
    if (number > 0)
        chunk_barrier_wait(head.machine, &head.acknowledged, (number - 1) % 2);
    head.follows[number % 2] = token_follows;
    chunk_barrier_arrive(&head.announced);
}

KERNEL_INLINE bool receive_announcement(shared_head &head, uint32_t number)
{
    chunk_barrier_wait(head.machine, &head.announced, number % 2);
    const bool token_follows = head.follows[number % 2];
    if (number > 0)
        chunk_barrier_arrive(&head.acknowledged);
    return token_follows;
}

/* Not inlined: the compute warps' registers are not its own. */
__device__ __noinline__ void finish_tokens()
{
    DYNAMIC_SHARED(shared);
    shared_head &head = *(shared_head *)shared;
    record_reader reader;
    (void)receive_announcement(head, 0);
    reader.next = head.range.first;
    for (int i = 0; i < CUDA_RECORD_BUFFERS && head.range.first < head.range.end; i++) {
        reader.ask(shared);
        reader.put(shared);
    }
    chunk_barrier_arrive(&head.acknowledged);
    for (uint32_t number = 1; __all_sync(~0u, receive_announcement(head, number)); number++)
        finish_records(shared, reader);
}

/* ---- The copying warp ---- */

/* The number of tokens, once the step has been taken. */
KERNEL_INLINE uint32_t tokens_to_compute(shared_head &head)
{
    while (!chunk_barrier_test(&head.known, 0))
        ;
    return head.tokens.repeat;
}

/* Copies the weights of all tokens; for the first token it need not wait for the step. */
KERNEL_INLINE void copy_weights(
    stream_writer &writer, const cuda_machine &machine, uint32_t first_phase, uint32_t end_phase)
{
    if (first_phase == end_phase)
        return;
    const cuda_stream *streams = (const cuda_stream *)machine.streams;
    const uint32_t *starts = (const uint32_t *)machine.record_starts + gridDim.x * (machine.phase_count + 1);
    const uint32_t begin = starts[first_phase], end = starts[end_phase];
    if (begin == end)
        return;
    cuda_stream next = streams[begin];
    for (uint32_t token = 0; token == 0 || token < tokens_to_compute(writer.head); token++) {
        for (uint32_t i = begin; i < end; i++) {
            const cuda_stream stream = next;
            next = streams[i + 1 < end ? i + 1 : begin];
            const uint32_t owner = owner_of(blockIdx.x, stream.first_block, gridDim.x);
            if (owner >= stream.owners)
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

/* ---- Tokens: one thread of each block ---- */

/* Whether sampling is greedy, without mask, bias, penalties or log-probabilities, so that choose_largest can
 * do it. */
KERNEL_INLINE bool is_greedy(const cuda_machine &machine, const cuda_run *run)
{
    const cuda_sampler settings = sample_load_settings(&run->sampler);
    return machine.tagged && gridDim.x <= CUDA_SAMPLE_PARTS && settings.temperature == 0 && !settings.bias &&
           !settings.mask && !settings.logprobs && !sample_has_penalties(settings);
}

KERNEL_INLINE void begin_tokens(shared_head &head, uint8_t *shared, uint32_t flags, const uint32_t *starts)
{
    const cuda_machine &machine = head.machine;
    const cuda_run *run = (const cuda_run *)(machine.step + machine.runs_at);
    token_walk &tokens = head.tokens;
    tokens = {};
    tokens.slot = __ldcg(&run->slot);
    tokens.first = __ldcg(&run->first);
    tokens.version = __ldcg(&((const cuda_slot *)machine.slot_states + tokens.slot)->version);
    tokens.epoch = __ldcg((const uint32_t *)machine.epoch);
    /* A phase of a graph, and a launch that ends a token, do nothing when the run is not live. */
    const bool live = !(flags & (CUDA_FINISH_TOKEN | CUDA_PROGRAMMATIC)) || run_is_live(machine, 0);
    if (has_failed(machine))
        head.failed = 1;
    tokens.goes_on = !head.failed && live;
    tokens.begun = flags & CUDA_COUNT_TOKEN ? 1 : 0;
    const cuda_step *step = (const cuda_step *)machine.step;
    tokens.repeat = flags & CUDA_TAKE_STEP ? __ldcg(&step->repeat) : 1;
    tokens.rules = {__ldcg(&run->limit), __ldcg(&step->stop_count), __ldcg(&run->logits) == LOGITS_LAST};
    const bool is_whole = flags & CUDA_TAKE_STEP && flags & CUDA_FINISH_TOKEN;
    head.greedy = is_whole && tokens.rules.samples && is_greedy(machine, run);
    if (head.greedy)
        head.range.end = starts[machine.sample_phase];
    head.row = {};
    head.row.slot = tokens.slot;
    head.row.run_count = 1;
    head.row.pages = (const uint32_t *)(machine.page_table_at ? shared + machine.page_table_at
                                                              : (uint8_t *)machine.step + machine.pages_at);
    head.row.cosines = (const float *)(shared + machine.angles_at);
    head.row.sines = head.row.cosines + machine.rope_count * machine.rope_pairs;
    head.row.keeps = blockIdx.x == 0;
}

KERNEL_INLINE int32_t sampled_id(const shared_head &head)
{
    return head.greedy ? head.chosen : sample_result(head.machine, 0);
}

KERNEL_INLINE void begin_next_token(shared_head &head, uint32_t flags)
{
    const cuda_machine &machine = head.machine;
    token_walk &tokens = head.tokens;
    const uint32_t position = tokens.first + tokens.index;
    const int32_t *ids = (const int32_t *)machine.tokens + (uint64_t)tokens.slot * (machine.context + 1);
    if (flags & CUDA_FINISH_TOKEN)
        tokens.begun = tokens.index + 1;
    head.tag = tag_of_token(tokens.epoch + tokens.index);
    head.row.position = head.row.run_first = position;
    head.early = position < EARLY_POSITIONS;
    head.row.id = tokens.index ? sampled_id(head) : __ldcg(ids + position);
    head.row.version = (tokens.version + tokens.index) % 2;
}

/*
 * The beginning of a token: its position, and the host's cancel flag. The flag is read across the bus by the
 * last block; the first block publishes the token before, and the middle one embeds this token.
 */
KERNEL_INLINE void begin_token(shared_head &head)
{
    const cuda_machine &machine = head.machine;
    if (blockIdx.x == 0 && threadIdx.x == 0)
        ((cuda_row *)(machine.step + machine.rows_at))->position = head.row.position;
    if (blockIdx.x == gridDim.x - 1 && threadIdx.x == CUDA_WORKERS - 1) {
        const bool cancelled = load_relaxed_system((const uint32_t *)machine.cancel) != 0;
        store_word64(&sampled_row(head).cancelled[head.tag % 2], cancelled, head.tag);
    }
    if (threadIdx.x <= CUDA_WARPS)
        head.largest[threadIdx.x] = 0;
}

KERNEL_INLINE void finish_this_token(shared_head &head, uint32_t flags)
{
    token_walk &tokens = head.tokens;
    tokens.index++;
    tokens.goes_on = 0;
    if (head.failed || !(flags & CUDA_FINISH_TOKEN))
        return;
    if (!head.greedy)
        tokens.count.cancelled = is_cancelled(head);
    const int32_t id = sampled_id(head);
    tokens.goes_on = finish_token(
        head.machine, tokens.rules, head.row.position, tokens.index, tokens.repeat, id, tokens.count);
    if (blockIdx.x)
        return;
    if (head.greedy)
        keep_sampled(head.machine, sampled_row(head), head.row.slot, head.row.position, id);
    publish_progress(head.machine, tokens.count);
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
        for (int i = 0; i < 2; i++) {
            chunk_barrier_open(&head.computed[i], CUDA_WORKERS);
            chunk_barrier_open(&head.finished[i], CUDA_FINISHERS);
        }
        chunk_barrier_open(&head.announced, 1);
        chunk_barrier_open(&head.acknowledged, CUDA_FINISHERS);
        chunk_barrier_open(&head.known, 1);
        chunk_barrier_open(&head.stop, 1);
        head.failed = head.left_after = head.target = head.task_shape = 0;
#if __CUDA_ARCH__ >= 900
        asm volatile("fence.proxy.async.shared::cta;" ::
                         : "memory"); /* make the barriers visible to bulk copies */
#endif
    }
    __syncthreads();
    const cuda_machine &machine = head.machine;

#if __CUDA_ARCH__ >= 900
    if (flags & CUDA_PROGRAMMATIC)
        asm volatile("griddepcontrol.launch_dependents;");
#endif
    if (threadIdx.x >= CUDA_WORKERS + CUDA_FINISHERS) {
        stream_writer writer = {machine, head, shared + machine.weight_ring_at, {}, 0};
        copy_weights(writer, machine, first_phase, end_phase);
        __syncwarp();
        while (!chunk_barrier_test(&head.stop, 0))
            __nanosleep(100);
        if (threadIdx.x % 32 == 0)
            writer.drain(head.progress[0][PROGRESS_CHUNK]);
        return;
    }

    if (threadIdx.x >= CUDA_WORKERS) {
        finish_tokens();
        return;
    }

    const uint32_t *starts = (const uint32_t *)machine.record_starts + block * (machine.phase_count + 1);
    if (threadIdx.x == 0) {
        head.range = {starts[first_phase], starts[end_phase], end_phase, (flags & CUDA_FINISH_TOKEN) != 0,
            flags & CUDA_RANDOM_DELAYS ? (uint32_t)clock64() | 1 : 0};
        for (uint32_t i = 0; i < CUDA_WARPS; i++)
            *(uint4 *)head.progress[i] = make_uint4(head.range.first, 0, 0, 0);
    }
    sync_threads<CUDA_WORKERS>();
#if __CUDA_ARCH__ >= 900
    if (flags & CUDA_PROGRAMMATIC)
        asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    if (flags & CUDA_TAKE_STEP) {
        /* Taking the step takes longer than reading the failure word. */
        if (block == 0 ? !take_step<CUDA_WORKERS>(machine) : threadIdx.x == 0 && has_failed(machine))
            head.failed = 1;
        sync_grid();
    }
    if (threadIdx.x == 0) {
        begin_tokens(head, shared, flags, starts);
        chunk_barrier_arrive(&head.known);
        announce_token(head, 0, false);
    }
    if (machine.page_table_at) {
        for (uint32_t i = threadIdx.x; i < machine.pages_per_slot; i += CUDA_WORKERS)
            ((uint32_t *)(shared + machine.page_table_at))[i] =
                __ldcg((const uint32_t *)(machine.step + machine.pages_at) + i);
    }
    chunk_barrier_wait(machine, &head.acknowledged, 0); /* the first records are in shared memory */
    sync_threads<CUDA_WORKERS>();
    while (head.tokens.goes_on) {
        if (threadIdx.x == 0) {
            begin_next_token(head, flags);
            announce_token(head, head.tokens.index + 1, true);
        }
        sync_threads<CUDA_WORKERS>();
        if (!head.greedy || head.tokens.index == 0)
            prepare_angles(head.row.position);
        if (flags & CUDA_FINISH_TOKEN)
            begin_token(head);
        sync_threads<CUDA_WORKERS>();
        run_records();
        sync_threads<CUDA_WORKERS>();
        if (threadIdx.x == 0)
            finish_this_token(head, flags);
        sync_threads<CUDA_WORKERS>();
    }
    if (threadIdx.x == 0)
        announce_token(head, head.tokens.index + 1, false);
    if (flags & CUDA_FINISH_TOKEN && blockIdx.x == 0 && threadIdx.x == 0 && !head.failed &&
        !has_failed(machine))
        finish_step_of_one(
            machine, head.tokens.slot, head.tokens.first, head.tokens.version, head.tokens.count);

    sync_threads<CUDA_WORKERS>();
    if (threadIdx.x == 0) {
        chunk_barrier_arrive(&head.stop);
        /* The last block to leave resets the grid barrier and counts the tokens for the next launch. */
        uint32_t *words = (uint32_t *)machine.barrier;
        if (!(flags & CUDA_PROGRAMMATIC) && atomicAdd(words + BARRIER_LEFT, 1) + 1 == blocks) {
            words[BARRIER_ARRIVED] = words[BARRIER_LEFT] = 0;
            *(uint32_t *)machine.epoch = head.tokens.epoch + head.tokens.begun;
        }
    }
}
