/*
 * Matmuls of up to 128 tokens with products of warpgroups, where there are such: the weights, in F16 or
 * quantised, come once from memory, through all multiprocessors.
 *
 *   salvo_gemm_split_16(machine, gemm), _16_glu    a block has 16 tokens,
 *   ..._32, _64, _128                              32, 64, 128
 *
 * Grid, threads and shared memory: cuda_gemm_launch. Rows of y; x has tokens, and of each the blocks that
 * divide the columns among them: a cluster, whose blocks add up the sums of all in order, each those of some
 * rows and tokens. Each of two warpgroups has 64 rows, with a glu the same ones of both matrices, and they
 * share the inputs. Weights and inputs come to shared memory in a ring of stages, a part (128 columns) each.
 * A warp unpacks the weights that it has brought itself into halves in its registers: code times scale,
 * rounded once. Other blocks of the multiprocessor compute while it does.
 *
 * Tensor cores add up with fewer bits than a float has, so that sums of one part are kept separate and then
 * added as floats.
 */
#include "backend/cuda/kernels/prefill/gemm.cuh"
#include "backend/cuda/kernels/prefill/warpgroups.cuh"

#if HAS_WARPGROUPS

template <int TOKENS, int MATRICES> struct split_layout {
    static constexpr uint32_t input_bytes = CUDA_TILE_COLUMNS * 2 / 16 * wide_inputs<TOKENS>::chunk_bytes;
    static constexpr uint32_t tiles = GEMM_SPLIT_ROWS / CUDA_TILE_ROWS;                  /* of a stage */
    static constexpr int rows = GEMM_SPLIT_ROWS / MATRICES;                              /* of a matrix */
    static constexpr int tokens = TOKENS < GEMM_MANY_TOKENS ? TOKENS : GEMM_MANY_TOKENS; /* of `sums` */
    static constexpr int sums = MATRICES * tokens * sum_stride<rows>;
    static_assert(
        TOKENS / tokens * sums * 4 <= GEMM_SPLIT_LEAST_STAGES * input_bytes, "sums are there in the end");
};

/* ---- Loads to shared memory ---- */

/* The weights of a warp's two tile rows, one part after the other. */
struct split_weights {
    const uint8_t *low, *high;
    uint32_t tile_bytes, number, parts_per_pass, left, jump, lane;

    KERNEL_INLINE split_weights(
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
        /* Beyond the last tile row the last one is read again; the results are not used. */
        high = row + 1 >= matrix.tile_rows ? low
               : local + 1 < own           ? low + row_bytes
                                           : low + (owner_bytes - local * row_bytes);
    }

    KERNEL_INLINE void fetch(uint8_t *to)
    {
        if (left == 0)
            return;
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
};

/* ---- Weights as halves ---- */

/* Both halves of a word times those of `scale`, plus those of `offset`, rounded once. */
KERNEL_INLINE uint32_t scale_halves(uint32_t word, uint32_t scale, uint32_t offset)
{
#ifdef CUDA_EMULATOR
    uint32_t out = 0;
    for (int i = 0; i < 32; i += 16) {
        const double sum = (double)half_to_float(word >> i & 0xffff) * half_to_float(scale >> i & 0xffff) +
                           half_to_float(offset >> i & 0xffff);
        out |= (uint32_t)__half_as_ushort(__float2half_rn((float)sum)) << i;
    }
    return out;
#else
    uint32_t out;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(word), "r"(scale), "r"(offset));
    return out;
#endif
}

KERNEL_INLINE uint32_t both_halves(float x)
{
    const float within = within_half_range(x);
    const __half2 halves = __floats2half2_rn(within, within);
    return *(const uint32_t *)&halves;
}

/* A lane's 32 elements of an unpacked tile: words 2i and 2i + 1 are those of product i. */
template <int TYPE> KERNEL_INLINE void unpack_halves(const uint8_t *tile, uint32_t lane, uint32_t (&out)[16])
{
    using format = tile_format<TYPE>;
    const lane_codes<TYPE> codes = load_codes<TYPE>(tile, (int)lane);
    if constexpr (format::group == 0) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            out[4 * i] = codes.wide[i].x, out[4 * i + 1] = codes.wide[i].y;
            out[4 * i + 2] = codes.wide[i].z, out[4 * i + 3] = codes.wide[i].w;
        }
    } else {
        /* A byte below 1024 as a half is the byte itself: 0x64 above an unsigned byte is 1024 more than it.
         */
        constexpr float bias = 1024 + 128;
        const uint32_t unit = both_halves(format::unit), zero = both_halves(-bias * format::unit);
        const lane_scales scales = unpack_scales<TYPE>(codes);
        uint32_t words[8];
        unpack_codes<TYPE>(codes, words);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t scale = both_halves(scales.scale[half] * (1 / format::unit)),
                           offset = format::offsets ? both_halves(scales.offset[half]) : 0x80008000;
#pragma unroll
            for (int i = half * 4; i < half * 4 + 4; i++) {
                const uint32_t bytes = words[i] ^ 0x80808080;
                out[2 * i] = scale_halves(
                    scale_halves(permute_bytes(bytes, 0x64646464, 0x4140), unit, zero), scale, offset);
                out[2 * i + 1] = scale_halves(
                    scale_halves(permute_bytes(bytes, 0x64646464, 0x4342), unit, zero), scale, offset);
            }
        }
    }
}

/* The weights of one part, as a warp's products take them. */
struct part_weights {
    uint32_t words[8][4];

    template <int TYPE> KERNEL_INLINE void unpack(const uint8_t *tiles, uint32_t tile_bytes, uint32_t lane)
    {
#pragma unroll
        for (int row = 0; row < 2; row++) {
            uint32_t halves[16];
            unpack_halves<TYPE>(tiles + row * tile_bytes, lane, halves);
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

/* Waits for the oldest of the stages - 1 stages in flight. */
KERNEL_INLINE void wait_for_stage(uint32_t stages)
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
}

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

template <class LAYOUT, int TOKENS, int MATRICES>
KERNEL_INLINE void finish_split(const cuda_gemm &gemm, const gemm_block &block, uint32_t first_token,
    uint32_t live, uint32_t split, uint32_t splits, const float *place)
{
    const bool rounds_bytes = gemm.rounded.values && gemm.rounded.rounding == ROUNDING_Q8;
#pragma unroll 1
    for (uint32_t first = 0; first < live; first += LAYOUT::tokens) {
        const uint32_t some = min(live - first, (uint32_t)LAYOUT::tokens);
        gemm_finish<MATRICES, LAYOUT::tokens, LAYOUT::rows> finish(
            gemm, block, first_token + first, some, split, splits);
        const uint64_t early =
            rounds_bytes ? early_tokens<LAYOUT::tokens>(gemm, first_token + first, some, threadIdx.x % 32)
                         : 0;
        if (first == 0)
            meet_cluster(splits); /* loads of the values that are added to the sums are in flight */
        finish.run(first_token + first, cluster_sums<LAYOUT::tokens, LAYOUT::rows>{place, splits}, early);
        place += LAYOUT::sums;
    }
}

template <int TOKENS, int MATRICES>
KERNEL_INLINE void gemm_split(const cuda_machine *machine, const cuda_gemm &gemm)
{
    using layout = split_layout<TOKENS, MATRICES>;
    DYNAMIC_SHARED(shared);
    const gemm_block block = find_gemm_block<layout::rows>(gemm, blockIdx.y);
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, matrix_number = warp / 4 % MATRICES,
                   row = warp * 16 % layout::rows, splits = gemm.splits, stages = gemm.stages,
                   split = blockIdx.x % splits, first_token = blockIdx.x / splits * TOKENS;
    const cuda_matrix &matrix = gemm.matmuls[block.matmul + matrix_number].matrix;
    const uint32_t type = matrix.type, tile_bytes = matrix.tile_bytes,
                   each = (matrix.parts + splits - 1) / splits, first_part = split * each,
                   count = min(each, matrix.parts - first_part), weight_bytes = layout::tiles * tile_bytes,
                   stage_bytes = weight_bytes + layout::input_bytes;
    const cuda_step *step = (const cuda_step *)__ldg(&machine->step);
    uint8_t *own_weights = shared + warp * 2 * tile_bytes;
    split_weights weights(matrix, (block.first_row + row) / CUDA_TILE_ROWS, first_part, count, lane);
    invite_next_launch();
#pragma unroll 1
    for (uint32_t i = 0; i < stages - 1; i++)
        weights.fetch(own_weights + i * stage_bytes);
    wait_for_last_launch();
    const uint32_t live = live_rows(step, gemm.rows, first_token, TOKENS);
    if (live == 0) { /* the same for all blocks of the cluster */
        copy_commit();
        copy_wait<0>();
        return;
    }
    input_copies<TOKENS, CUDA_TILE_COLUMNS, GEMM_SPLIT_THREADS> inputs(
        gemm.packed_input, first_token, live, first_part, count);
#pragma unroll 1
    for (uint32_t i = 0; i < stages - 1; i++) {
        inputs.fetch(shared + i * stage_bytes + weight_bytes);
        copy_commit();
    }
    float sums[TOKENS / 8][4] = {};
    uint32_t stage = 0, free_stage = (stages - 1) * stage_bytes; /* bytes */
#pragma unroll 1
    for (uint32_t part = 0; part < count; part++) {
        wait_for_stage(stages);
        publish_inputs();
        __syncthreads(); /* the stage is loaded, and no warp reads the one before it */
        weights.fetch(own_weights + free_stage);
        inputs.fetch(shared + free_stage + weight_bytes);
        copy_commit();
        part_weights unpacked;
        unpacked.unpack_any(type, own_weights + stage, tile_bytes, lane);
        float part_sums[TOKENS / 8][4];
        products_begin();
#pragma unroll
        for (uint32_t i = 0; i < 8; i++)
            multiply_wide(unpacked.words[i],
                shared + stage + weight_bytes + i * 2 * wide_inputs<TOKENS>::chunk_bytes, i != 0, part_sums);
        products_commit();
        products_wait<0>();
        hold_sums(part_sums);
        add_part(part_sums, sums);
        free_stage = stage;
        stage += stage_bytes;
        stage = stage == stages * stage_bytes ? 0 : stage;
    }
    __syncthreads();
#pragma unroll
    for (int first = 0; first < TOKENS / 8; first += layout::tokens / 8) {
        float some[layout::tokens / 8][4];
#pragma unroll
        for (int j = 0; j < layout::tokens / 8; j++) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                some[j][i] = sums[first + j][i];
        }
        leave_sums<MATRICES, layout::tokens, layout::rows>(
            some, 0, matrix_number, row, lane, (float *)shared + first / (layout::tokens / 8) * layout::sums);
    }
    finish_split<layout, TOKENS, MATRICES>(
        gemm, block, first_token, live, split, splits, (const float *)shared);
    if (splits > 1)
        meet_cluster(splits); /* others read this block's sums until then */
}

/* Two blocks share a multiprocessor, except blocks of 128 tokens. */
#define DEFINE_GEMM_SPLIT(tokens)                                                                            \
    extern "C" __global__ void __launch_bounds__(GEMM_SPLIT_THREADS, (tokens) < 128 ? 2 : 1)                 \
        salvo_gemm_split_##tokens(const cuda_machine *machine, const __grid_constant__ cuda_gemm gemm)       \
    {                                                                                                        \
        gemm_split<tokens, 1>(machine, gemm);                                                                \
    }                                                                                                        \
    extern "C" __global__ void __launch_bounds__(GEMM_SPLIT_THREADS, (tokens) < 128 ? 2 : 1)                 \
        salvo_gemm_split_##tokens##_glu(const cuda_machine *machine, const __grid_constant__ cuda_gemm gemm) \
    {                                                                                                        \
        gemm_split<tokens, 2>(machine, gemm);                                                                \
    }

DEFINE_GEMM_SPLIT(16)
DEFINE_GEMM_SPLIT(32)
DEFINE_GEMM_SPLIT(64)
DEFINE_GEMM_SPLIT(128)

#endif
