/*
 * Matmuls with products of warpgroups, for devices that have them. Weights in F16 or quantised are unpacked
 * to halves.
 *
 *   salvo_gemm_halves_16(machine, gemm), _16_glu    a block has 16 tokens,
 *   ..._32, _64, _128                               32, 64, 128
 *
 * Grid, threads and shared memory: cuda_gemm_launch. y of the grid counts rows; x counts tokens and, for each
 * of them, the blocks of a cluster, which divide the columns. Each block of a cluster adds the sums of all of
 * them, in order, for some rows and tokens. A block has GEMM_HALVES_ROWS rows, with a glu half of them of
 * each matrix.
 *
 * WARPS. 0 to 3 and 4 to 7 are two warpgroups of 64 rows each that multiply, each at its own pace: the tensor
 * cores have the products of one while the other unpacks weights or adds sums. Each of these warps copies its
 * own weights to a ring in shared memory. Warp 8 copies the inputs, of a part (128 columns) with one bulk
 * copy, to the ring that the products read. Copies of threads (cp.async) would need a fence before the
 * products, and the fence waits for all copies in flight. Bulk copies of weight tiles, 16 for each part,
 * would take longer than the products. Warps 9 to 11 only complete the third warpgroup, whose registers the
 * others take.
 *
 * BARRIERS, one of each for a stage of the inputs; a wait tests the parity of the use.
 *   full    1 arrival, warp 8, and the bytes: the stage is there. Warps 0-7 wait.
 *   empty   8 arrivals, lane 0 of warps 0-7: the products that read the stage are done. Warp 8 waits.
 *
 * Weights: weight_halves.cuh. Tensor cores add up with fewer bits than a float has, so that sums of one part
 * are kept separate and then added as floats.
 */
#include "backend/cuda/kernels/prefill/gemm.cuh"
#include "backend/cuda/kernels/prefill/warpgroups.cuh"
#include "backend/cuda/kernels/prefill/weight_halves.cuh"

#if HAS_WARPGROUPS

constexpr uint32_t multiplying_warps = 8;

/* Registers of a thread of the warps that multiply, and of the others: together as many as at the launch,
 * where all threads have the same number. */
template <int TOKENS> struct warp_registers {
    static constexpr int multiplying = TOKENS == 128 ? 232 : 104, copying = TOKENS == 128 ? 40 : 32;
};

template <int TOKENS, int MATRICES> struct halves_layout {
    static constexpr uint32_t input_bytes = TOKENS / 8 * CUDA_INPUT_GROUP_BYTES;         /* of a stage */
    static constexpr int rows = GEMM_HALVES_ROWS / MATRICES;                             /* of a matrix */
    static constexpr int tokens = TOKENS < GEMM_MANY_TOKENS ? TOKENS : GEMM_MANY_TOKENS; /* of `sums` */
    static constexpr int sums = MATRICES * tokens * sum_stride<rows>;
    static_assert(
        TOKENS / tokens * sums * 4 <= GEMM_HALVES_LEAST_STAGES * input_bytes, "sums overwrite the inputs");
};

/* ---- Copies to shared memory ---- */

/* A stage of the ring; `use` counts how often the ring was used whole. */
struct ring_place {
    uint32_t stage = 0, use = 0;

    KERNEL_INLINE void advance(uint32_t stages)
    {
        if (++stage == stages) {
            stage = 0;
            use++;
        }
    }
};

/* The weights of a warp's two tile rows, one part after the other. */
struct tile_copies {
    const uint8_t *low, *high;
    uint32_t tile_bytes, number, parts_per_pass, left, jump, lane;

    KERNEL_INLINE tile_copies(
        const cuda_matrix &matrix, uint32_t tile_row, uint32_t first, uint32_t count, uint32_t lane_)
        : tile_bytes(matrix.tile_bytes), parts_per_pass(matrix.parts_per_pass), left(count), lane(lane_)
    {
        const uint32_t own = matrix.tile_rows_per_block, row = min(tile_row, matrix.tile_rows - 1),
                       owner = row / own, local = row - owner * own, pass = first / parts_per_pass,
                       row_bytes = parts_per_pass * tile_bytes, pass_bytes = own * row_bytes;
        const uint64_t owner_bytes = (uint64_t)matrix.part_groups * pass_bytes;
        number = first - pass * parts_per_pass;
        jump = pass_bytes - row_bytes;
        low = (const uint8_t *)matrix.base + owner * owner_bytes + pass * (uint64_t)pass_bytes +
              local * row_bytes + number * tile_bytes;
        /* Beyond the last tile row: that one again, and the results are not used. */
        high = row + 1 >= matrix.tile_rows ? low
               : local + 1 < own           ? low + row_bytes
                                           : low + (owner_bytes - local * row_bytes);
    }

    /* A group of copies, empty behind the last part. */
    KERNEL_INLINE void fetch(uint8_t *to)
    {
        if (left != 0) {
            left--;
            for (uint32_t at = lane * 16; at < tile_bytes; at += 512) {
                copy_async(to + at, low + at);
                copy_async(to + tile_bytes + at, high + at);
            }
            uint32_t step = tile_bytes;
            if (++number == parts_per_pass) { /* the next pass lies behind this one's other tile rows */
                number = 0;
                step += jump;
            }
            low += step;
            high += step;
        }
        copy_commit();
    }
};

/* ---- Weights as halves ---- */

/* The weights of one part, as a warp's products take them. */
struct part_weights {
    uint32_t words[8][4];

    template <int TYPE> KERNEL_INLINE void unpack(const uint8_t *tiles, uint32_t tile_bytes, uint32_t lane)
    {
#pragma unroll
        for (int row = 0; row < 2; row++) {
            uint32_t halves[16];
            halves_of_codes<TYPE>(load_codes<TYPE>(tiles + row * tile_bytes, (int)lane), halves);
#pragma unroll
            for (int i = 0; i < 8; i++) {
                words[i][row] = halves[2 * i];
                words[i][row + 2] = halves[2 * i + 1];
            }
        }
    }

    KERNEL_INLINE void unpack_any(uint32_t type, const uint8_t *tiles, uint32_t tile_bytes, uint32_t lane)
    {
        switch (type) {
#define UNPACK(name, p16, p8, p4, row_scale, lane_scale, group, offsets, top, unit) \
    case TYPE_##name:                                                               \
        if constexpr (TYPE_##name != TYPE_F32 && TYPE_##name != TYPE_BF16)          \
            unpack<TYPE_##name>(tiles, tile_bytes, lane);                           \
        break;
            CUDA_TILE_FORMATS(UNPACK)
#undef UNPACK
        default:
            break;
        }
    }
};

/* ---- Sums ---- */

/* Sums of the blocks of a cluster, added in the order of the blocks. */
template <int TOKENS, int ROWS> struct cluster_sums {
    const float *place;
    uint32_t blocks;

    KERNEL_INLINE float4 add(uint32_t matrix, uint32_t token, uint32_t row) const
    {
        const float *own = place + (matrix * TOKENS + token) * sum_stride<ROWS> + row;
        float4 sum = *(const float4 *)(blocks == 1 ? own : shared_of_block(own, 0));
#pragma unroll 4
        for (uint32_t i = 1; i < blocks; i++) {
            const float4 part = *(const float4 *)shared_of_block(own, i);
            sum.x += part.x;
            sum.y += part.y;
            sum.z += part.z;
            sum.w += part.w;
        }
        return sum;
    }
};

template <int COUNT> KERNEL_INLINE void add_part(const float (&part)[COUNT][4], float (&sums)[COUNT][4])
{
#pragma unroll
    for (int j = 0; j < COUNT; j++) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            sums[j][i] += part[j][i];
    }
}

/* Leaves a warp's sums of the 16 rows from `row` on in shared memory, LAYOUT::tokens at a time. */
template <class LAYOUT, int TOKENS, int MATRICES>
KERNEL_INLINE void leave_all_sums(
    const float (&sums)[TOKENS / 8][4], uint32_t matrix, uint32_t row, uint32_t lane, float *place)
{
#pragma unroll
    for (int first = 0; first < TOKENS / 8; first += LAYOUT::tokens / 8) {
        float some[LAYOUT::tokens / 8][4];
#pragma unroll
        for (int j = 0; j < LAYOUT::tokens / 8; j++) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                some[j][i] = sums[first + j][i];
        }
        leave_sums<MATRICES, LAYOUT::tokens, LAYOUT::rows>(
            some, 0, matrix, row, lane, place + first / (LAYOUT::tokens / 8) * LAYOUT::sums);
    }
}

/* Warps 0 to 7: adds the sums of a cluster, and stores them. */
template <class LAYOUT, int MATRICES>
KERNEL_INLINE void finish_cluster(const cuda_gemm &gemm, const gemm_block &block, uint32_t first_token,
    uint32_t live, uint32_t split, uint32_t splits, const float *place)
{
#pragma unroll 1
    for (uint32_t first = 0; first < live; first += LAYOUT::tokens) {
        const uint32_t some = min(live - first, (uint32_t)LAYOUT::tokens);
        gemm_finish<MATRICES, LAYOUT::tokens, LAYOUT::rows> finish(
            gemm, block, first_token + first, some, split, splits, multiplying_warps * 32);
        if (first == 0 && splits > 1) /* loads of addends are in flight */
            meet_cluster(splits);
        else if (first == 0)
            sync_threads<multiplying_warps * 32>();
        finish.run(first_token + first, cluster_sums<LAYOUT::tokens, LAYOUT::rows>{place, splits}, 0);
        place += LAYOUT::sums;
    }
}

/* ---- The block ---- */

/* The part of a launch that a block has, and its ring. */
template <int TOKENS, int MATRICES> struct halves_block {
    using layout = halves_layout<TOKENS, MATRICES>;
    const cuda_gemm &gemm;
    gemm_block block;
    uint32_t splits, split, stages, first_token, first_part, count, tile_bytes;
    uint64_t *full, *empty;
    uint8_t *inputs, *weights; /* their rings */

    KERNEL_INLINE halves_block(const cuda_gemm &gemm_, uint8_t *shared)
        : gemm(gemm_), block(find_gemm_block<layout::rows>(gemm, blockIdx.y)), splits(gemm.splits),
          split(blockIdx.x % splits), stages(gemm.stages), first_token(blockIdx.x / splits * TOKENS),
          full((uint64_t *)shared), empty(full + GEMM_HALVES_MOST_STAGES),
          inputs(shared + GEMM_HALVES_BARRIERS), weights(inputs + stages * layout::input_bytes)
    {
        const cuda_matrix &matrix = gemm.matmuls[block.matmul].matrix;
        const uint32_t each = (matrix.parts + splits - 1) / splits;
        first_part = split * each;
        count = min(each, matrix.parts - first_part);
        tile_bytes = matrix.tile_bytes;
    }

    KERNEL_INLINE void open_barriers() const
    {
        for (uint32_t i = 0; i < stages; i++) {
            chunk_barrier_open(full + i, 1);
            chunk_barrier_open(empty + i, multiplying_warps);
        }
    }
};

/* The inputs of a block: those of its first part, and the distance to those of the next. */
struct input_parts {
    const uint8_t *first;
    uint64_t bytes;

    template <int TOKENS, int MATRICES>
    explicit KERNEL_INLINE input_parts(const halves_block<TOKENS, MATRICES> &work)
    {
        const cuda_packed_input &input = work.gemm.inputs[work.block.matmul];
        bytes = input.grouped / 8 * (uint64_t)CUDA_INPUT_GROUP_BYTES;
        first = (const uint8_t *)input.values + work.first_part * bytes +
                work.first_token / 8 * (uint64_t)CUDA_INPUT_GROUP_BYTES;
    }
};

/* Warp 8: its first lane copies. */
template <int TOKENS, int MATRICES>
KERNEL_INLINE void copy_inputs(
    const halves_block<TOKENS, MATRICES> &work, const input_parts &parts, uint32_t live)
{
    using layout = halves_layout<TOKENS, MATRICES>;
    const uint32_t bytes = (live + 7) / 8 * CUDA_INPUT_GROUP_BYTES;
    const uint8_t *from = parts.first;
    ring_place place;
#pragma unroll 1
    for (uint32_t part = 0; part < work.count; part++) {
        uint64_t *full = work.full + place.stage;
        if (part >= work.stages)
            wait_for_use(work.empty + place.stage, place.use - 1);
        expect_bytes(full, bytes);
        copy_bulk(work.inputs + place.stage * layout::input_bytes, from, bytes, full);
        chunk_barrier_arrive(full);
        from += parts.bytes;
        place.advance(work.stages);
    }
}

/* Waits for the oldest of the stages - 1 copies of weights in flight. */
KERNEL_INLINE void wait_for_weights(uint32_t stages)
{
    switch (stages) {
    case 3:
        copy_wait<1>();
        break;
    case 4:
        copy_wait<2>();
        break;
    case 5:
        copy_wait<3>();
        break;
    case 6:
        copy_wait<4>();
        break;
    case 7:
        copy_wait<5>();
        break;
    default:
        copy_wait<6>();
    }
    __syncwarp();
}

/* The weights of a warp of those that multiply: copied stages - 1 parts ahead. */
template <int TOKENS, int MATRICES> struct warp_weights {
    const halves_block<TOKENS, MATRICES> &work;
    uint32_t type, tile_bytes, lane, stage, free_stage;
    uint8_t *ring; /* this warp's */
    tile_copies copies;

    KERNEL_INLINE warp_weights(const halves_block<TOKENS, MATRICES> &work_, uint32_t warp, uint32_t lane_)
        : work(work_), type(matrix_of(work_, warp).type), tile_bytes(work_.tile_bytes), lane(lane_), stage(0),
          free_stage(work_.stages - 1), ring(work_.weights + warp * work_.stages * 2 * tile_bytes),
          copies(matrix_of(work_, warp),
              (work_.block.first_row + warp * 16 % halves_layout<TOKENS, MATRICES>::rows) / CUDA_TILE_ROWS,
              work_.first_part, work_.count, lane_)
    {
#pragma unroll 1
        for (uint32_t i = 0; i + 1 < work.stages; i++)
            copies.fetch(ring + i * 2 * tile_bytes);
    }

    static KERNEL_INLINE const cuda_matrix &matrix_of(
        const halves_block<TOKENS, MATRICES> &work, uint32_t warp)
    {
        return work.gemm.matmuls[work.block.matmul + warp / 4 % MATRICES].matrix;
    }

    /* The next part. */
    KERNEL_INLINE void unpack(part_weights &out)
    {
        wait_for_weights(work.stages);
        copies.fetch(ring + free_stage * 2 * tile_bytes);
        out.unpack_any(type, ring + stage * 2 * tile_bytes, tile_bytes, lane);
        free_stage = stage;
        stage = stage + 1 == work.stages ? 0 : stage + 1;
        __syncwarp();
    }
};

/* Warps 0 to 7. */
template <int TOKENS, int MATRICES>
KERNEL_INLINE void multiply_parts(const halves_block<TOKENS, MATRICES> &work,
    warp_weights<TOKENS, MATRICES> &copied, uint32_t lane, float (&sums)[TOKENS / 8][4])
{
    using layout = halves_layout<TOKENS, MATRICES>;
    ring_place place;
    part_weights weights;
#pragma unroll 1
    for (uint32_t part = 0; part < work.count; part++) {
        const uint8_t *inputs = work.inputs + place.stage * layout::input_bytes;
        copied.unpack(weights);
        wait_for_use(work.full + place.stage, place.use);
        float part_sums[TOKENS / 8][4];
        products_begin();
#pragma unroll
        for (uint32_t i = 0; i < 8; i++)
            multiply_wide(
                weights.words[i], grouped_inputs(inputs + i * 2 * CUDA_INPUT_CHUNK_BYTES), i != 0, part_sums);
        products_commit();
        products_wait<0>(); /* at once: see warpgroups.cuh on the registers of weights */
        hold_sums(part_sums);
        __syncwarp();
        if (lane == 0)
            chunk_barrier_arrive(work.empty + place.stage);
        add_part(part_sums, sums);
        place.advance(work.stages);
    }
}

template <int TOKENS, int MATRICES>
KERNEL_INLINE void gemm_halves(const cuda_machine *machine, const cuda_gemm &gemm)
{
    using layout = halves_layout<TOKENS, MATRICES>;
    DYNAMIC_SHARED(shared);
    const halves_block<TOKENS, MATRICES> work(gemm, shared);
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const cuda_step *step = (const cuda_step *)__ldg(&machine->step);
    invite_next_launch();
    if (threadIdx.x == 0)
        work.open_barriers();
    __syncthreads();
    if (warp >= multiplying_warps) {
        release_registers<warp_registers<TOKENS>::copying>();
        const input_parts parts(work);
        const uint32_t live = live_rows(step, gemm.rows, work.first_token, TOKENS);
        wait_for_last_launch();
        if (live == 0)
            return;
        if (threadIdx.x == multiplying_warps * 32)
            copy_inputs<TOKENS, MATRICES>(work, parts, live);
        __syncwarp();
        if (work.splits > 1)
            meet_cluster(work.splits); /* with the others, in finish_cluster */
    } else {
        take_registers<warp_registers<TOKENS>::multiplying>();
        warp_weights<TOKENS, MATRICES> copied(work, warp, lane);
        const uint32_t live = live_rows(step, gemm.rows, work.first_token, TOKENS);
        wait_for_last_launch();
        if (live == 0) { /* for all blocks of the cluster */
            copy_wait<0>();
            return;
        }
        float sums[TOKENS / 8][4] = {};
        multiply_parts<TOKENS, MATRICES>(work, copied, lane, sums);
        copy_wait<0>();
        sync_threads<multiplying_warps * 32>();
        leave_all_sums<layout, TOKENS, MATRICES>(
            sums, warp / 4 % MATRICES, warp * 16 % layout::rows, lane, (float *)work.inputs);
        finish_cluster<layout, MATRICES>(
            gemm, work.block, work.first_token, live, work.split, work.splits, (const float *)work.inputs);
    }
    /* Other blocks read this block's sums until then; and no warp ends while another has its registers, which
     * a block of the next launch could get. */
    if (work.splits > 1)
        meet_cluster(work.splits);
    else
        __syncthreads();
}

/* Two blocks share a multiprocessor, but for those of 128 tokens. */
#define DEFINE_GEMM_HALVES(tokens)                                                                      \
    extern "C" __global__ void __launch_bounds__(GEMM_HALVES_THREADS, (tokens) < 128 ? 2 : 1)           \
        salvo_gemm_halves_##tokens(const cuda_machine *machine, const __grid_constant__ cuda_gemm gemm) \
    {                                                                                                   \
        gemm_halves<tokens, 1>(machine, gemm);                                                          \
    }                                                                                                   \
    extern "C" __global__ void __launch_bounds__(GEMM_HALVES_THREADS, (tokens) < 128 ? 2 : 1)           \
        salvo_gemm_halves_##tokens##_glu(                                                               \
            const cuda_machine *machine, const __grid_constant__ cuda_gemm gemm)                        \
    {                                                                                                   \
        gemm_halves<tokens, 2>(machine, gemm);                                                          \
    }

DEFINE_GEMM_HALVES(16)
DEFINE_GEMM_HALVES(32)
DEFINE_GEMM_HALVES(64)
DEFINE_GEMM_HALVES(128)

#endif
