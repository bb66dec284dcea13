/*
 * Matmuls of many tokens by quantised weights.
 *
 *   salvo_gemm_q8_few(machine, gemm), _few_glu     a block has GEMM_FEW_TOKENS,
 *   salvo_gemm_q8_some(machine, gemm), _some_glu   GEMM_SOME_TOKENS,
 *   salvo_gemm_q8_many(machine, gemm), _many_glu   GEMM_MANY_TOKENS
 *
 * Grid, threads and shared memory: cuda_gemm_launch. Activations are bytes with a scale for every 32, so that
 * products are exact sums of 32 (or 16) bytes times two scales, as on the CPU; only the order in which floats
 * are added differs.
 *
 * For each product of 16 x 8 x 32 a warp spends three float operations per result on scaling, which takes
 * three times as long as the product itself. Larger instructions (wgmma) would not help: they add to their
 * result in place, and clearing it for each group would be a fourth operation.
 *
 * Each warp takes every nth part of 128 columns, and the warps synchronise only in the end: each copies its
 * weight tiles and its inputs to shared memory of its own, and unpacks the weight tiles into blocks of 16
 * rows of 128 bytes, from which tensor cores load their fragments. Weights depend on no other kernel: those
 * of the first part are unpacked before the previous launch has ended. Rows of unpacked blocks and inputs are
 * 8 chunks of 16 bytes; chunk i of row r lies at i ^ (r % 8), which avoids bank conflicts.
 */
#include "backend/cuda/kernels/prefill/gemm.cuh"

KERNEL_INLINE uint8_t *chunk_of(uint8_t *rows, uint32_t row, uint32_t chunk)
{
    return rows + row * 128 + (chunk ^ (row & 7)) * 16;
}

/* ---- Weights ---- */

enum { WARP_TILE_ROWS = 4, WARP_UNPACKED = 2 };

/*
 * The weight tiles of a warp's tile rows, and its position in them. Lane i has the address of tile row i:
 * rows of one matrix, or two tile rows of each of a glu's two.
 */
struct tile_path {
    uint64_t tile_row;
    uint32_t tile_bytes, per_pass, pass_bytes;
    uint32_t number, lane; /* number: of the part in its pass */
    uint64_t offset;       /* of the pass */

    template <int MATRICES>
    static KERNEL_INLINE uint64_t find_tile_row(
        const cuda_gemm &gemm, gemm_block block, uint32_t half, uint32_t lane)
    {
        const uint32_t i = lane % WARP_TILE_ROWS, first = block.first_row / CUDA_TILE_ROWS;
        const cuda_matrix &matrix = gemm.matmuls[block.matmul + (MATRICES == 2 ? i / 2 : 0)].matrix;
        return (uint64_t)gemm_tile(matrix, first + (MATRICES == 2 ? half * 2 + i % 2 : i), 0);
    }

    /* Advances by so many parts. */
    KERNEL_INLINE void skip(uint32_t parts)
    {
        for (number += parts; number >= per_pass; number -= per_pass)
            offset += pass_bytes;
    }

    /* Starts the copy of a part's weight tiles, [WARP_TILE_ROWS]. */
    KERNEL_INLINE void fetch(uint8_t *to) const
    {
        const uint64_t from = offset + number * tile_bytes;
#pragma unroll 1
        for (uint32_t at = lane * 16, first = 0; first < WARP_TILE_ROWS * tile_bytes;
             first += 512, at += 512) {
            const uint32_t tile = (at >= tile_bytes) + (at >= 2 * tile_bytes) + (at >= 3 * tile_bytes);
            const uint64_t begin = __shfl_sync(~0u, tile_row, (int)tile);
            if (at < WARP_TILE_ROWS * tile_bytes)
                copy_async(to + at, (const uint8_t *)(begin + from + (at - tile * tile_bytes)));
        }
    }
};

/* Two weight tiles unpacked. Scales are [group of 32][half of it][row]. */
template <int GROUP, bool OFFSETS> struct unpacked_weights {
    uint8_t codes[GEMM_UNPACKED_BYTES];
    float scale[4][32 / GROUP][16];
};

template <int GROUP> struct unpacked_weights<GROUP, true> : unpacked_weights<GROUP, false> {
    float offset[4][32 / GROUP][16];
};

/* Unpacks tile row number `tile_row` of the warp. */
template <int TYPE, int GROUP, bool OFFSETS>
KERNEL_INLINE void unpack_tile(
    const uint8_t *tile, uint32_t tile_row, uint32_t lane, unpacked_weights<GROUP, OFFSETS> &unpacked)
{
    const lane_codes<TYPE> codes = load_codes<TYPE>(tile, (int)lane);
    uint32_t words[8];
    unpack_codes<TYPE>(codes, words);
    const uint32_t row = tile_row % 2 * 8 + lane / 4, group = lane % 4;
    *(uint4 *)chunk_of(unpacked.codes, row, group * 2) = make_uint4(words[0], words[1], words[2], words[3]);
    *(uint4 *)chunk_of(unpacked.codes, row, group * 2 + 1) =
        make_uint4(words[4], words[5], words[6], words[7]);
    const lane_scales scales = unpack_scales<TYPE>(codes);
#pragma unroll
    for (int half = 0; half < 32 / GROUP; half++) {
        unpacked.scale[group][half][row] = scales.scale[half];
        if constexpr (OFFSETS)
            unpacked.offset[group][half][row] = scales.offset[half];
    }
}

template <int TYPE, int GROUP, bool OFFSETS>
KERNEL_INLINE void unpack_tiles(
    const uint8_t *tiles, uint32_t tile_bytes, uint32_t lane, unpacked_weights<GROUP, OFFSETS> *unpacked)
{
#pragma unroll 1
    for (uint32_t i = 0; i < WARP_TILE_ROWS; i++, tiles += tile_bytes)
        unpack_tile<TYPE>(tiles, i, lane, unpacked[i / 2]);
}

template <int GROUP, bool OFFSETS>
KERNEL_INLINE void unpack_any(uint32_t type, const uint8_t *tiles, uint32_t tile_bytes, uint32_t lane,
    unpacked_weights<GROUP, OFFSETS> *unpacked)
{
    switch (type) {
#define UNPACK(name, p16, p8, p4, row_scale, lane_scale, group, offsets, top, unit) \
    case TYPE_##name:                                                               \
        if constexpr (group == GROUP && (bool)offsets == OFFSETS)                   \
            unpack_tiles<TYPE_##name>(tiles, tile_bytes, lane, unpacked);           \
        break;
        CUDA_TILE_FORMATS(UNPACK)
#undef UNPACK
    default:
        break;
    }
}

/* ---- Inputs ---- */

/* The inputs of one part, in shared memory. */
template <int TOKENS, bool OFFSETS> struct part_inputs {
    uint8_t values[TOKENS * 128];
    float scales[TOKENS][4];
};

template <int TOKENS> struct part_inputs<TOKENS, true> : part_inputs<TOKENS, false> {
    float sums[TOKENS][8];
};

/* Addresses of a lane's share of the inputs; rows beyond the last token are zeros. */
template <int TOKENS, bool OFFSETS> struct input_paths {
    const uint8_t *values;
    const float *scales, *sums;
    uint32_t columns, live, lane;

    KERNEL_INLINE input_paths(
        const cuda_packed_input &packed_input, uint32_t first_token, uint32_t live_, uint32_t lane_)
        : values((const uint8_t *)packed_input.values + (uint64_t)first_token * packed_input.columns),
          scales((const float *)packed_input.scales + (uint64_t)first_token * packed_input.columns / 32),
          sums((const float *)packed_input.sums + (uint64_t)first_token * packed_input.columns / 16),
          columns(packed_input.columns), live(live_), lane(lane_)
    {
    }

    KERNEL_INLINE void fetch(uint32_t part, part_inputs<TOKENS, OFFSETS> &to) const
    {
#pragma unroll 2
        for (uint32_t i = 0; i < TOKENS / 4; i++) {
            const uint32_t token = i * 4 + lane / 8, chunk = lane % 8;
            const bool on = token < live;
            copy_async(chunk_of(to.values, token, chunk),
                values + (on ? (uint64_t)token * columns + part * 128 + chunk * 16 : 0), on);
        }
#pragma unroll
        for (uint32_t token = lane; token < TOKENS; token += 32) {
            const bool on = token < live;
            const uint64_t row = on ? (uint64_t)token * (columns / 128) + part : 0;
            copy_async(to.scales[token], scales + row * 4, on);
            if constexpr (OFFSETS) {
                copy_async(to.sums[token], sums + row * 8, on);
                copy_async(to.sums[token] + 4, sums + row * 8 + 4, on);
            }
        }
    }
};

/* Second terms of eight tokens, in a lane's registers; zeros for tokens that have one term. Second terms have
 * no sums of their own. */
struct second_terms {
    uint4 values[2];
    float4 scales;

    KERNEL_INLINE void load(const cuda_packed_input &packed_input, uint32_t first_token, uint32_t fine,
        uint32_t part, uint32_t lane)
    {
        const uint64_t columns = packed_input.columns;
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t token = i * 4 + lane / 8;
            values[i] = fine >> token & 1
                            ? __ldcg((const uint4 *)((const uint8_t *)packed_input.seconds +
                                                     (first_token + token) * columns + part * 128) +
                                     lane % 8)
                            : uint4{};
        }
        scales =
            lane < 8 && fine >> lane & 1
                ? __ldcg((const float4 *)packed_input.scales + (first_token + lane) * (columns / 128) + part)
                : float4{};
    }

    template <bool OFFSETS> KERNEL_INLINE void put(uint32_t lane, part_inputs<8, OFFSETS> &to) const
    {
        constexpr float unit = 1.0f / TERM_UNIT;
#pragma unroll
        for (uint32_t i = 0; i < 2; i++)
            *(uint4 *)chunk_of(to.values, i * 4 + lane / 8, lane % 8) = values[i];
        if (lane < 8) {
            *(float4 *)to.scales[lane] =
                make_float4(scales.x * unit, scales.y * unit, scales.z * unit, scales.w * unit);
            if constexpr (OFFSETS)
                *(float4 *)to.sums[lane] = *(float4 *)(to.sums[lane] + 4) = float4{};
        }
    }
};

/* The first of the next eight tokens, from number `from` on, that include one of `fine`; TOKENS: none do. */
template <int TOKENS> KERNEL_INLINE uint32_t next_eight(uint64_t fine, uint32_t from)
{
    while (from < TOKENS && (fine >> from & 0xff) == 0)
        from += 8;
    return from;
}

/* ---- Products ---- */

/* Adds the products of both unpacked blocks with a part of the inputs, 16 tokens at a time; the last may be
 * eight. */
template <int TOKENS, int GROUP, bool OFFSETS>
KERNEL_INLINE void multiply_part(unpacked_weights<GROUP, OFFSETS> *unpacked, part_inputs<TOKENS, OFFSETS> &x,
    uint32_t lane, float (&sums)[WARP_UNPACKED][TOKENS / 8][4])
{
    constexpr int halves = 32 / GROUP;
    const uint32_t row = lane / 4;
#pragma unroll 1
    for (uint32_t group = 0; group < 4; group++) {
        uint32_t a[WARP_UNPACKED][4];
        float scale[WARP_UNPACKED][halves][2], offset[WARP_UNPACKED][halves][2];
#pragma unroll
        for (int s = 0; s < WARP_UNPACKED; s++) {
            load_matrices(chunk_of(unpacked[s].codes, lane % 16, group * 2 + lane / 16), a[s]);
#pragma unroll
            for (int i = 0; i < halves * 2; i++) {
                scale[s][i / 2][i % 2] = unpacked[s].scale[group][i / 2][row + i % 2 * 8];
                if constexpr (OFFSETS)
                    offset[s][i / 2][i % 2] = unpacked[s].offset[group][i / 2][row + i % 2 * 8];
            }
        }
#pragma unroll
        for (int jj = 0; jj < (TOKENS + 15) / 16; jj++) {
            uint32_t b[4]; /* of 16 tokens: two words of the first eight, two of the others */
            load_matrices(
                chunk_of(x.values, jj * 16 + lane / 16 * 8 + lane % 8, group * 2 + lane / 8 % 2), b);
#pragma unroll
            for (int j = 0; j < 2 && jj * 16 + j * 8 < TOKENS; j++) {
                const uint32_t token = jj * 16 + j * 8 + lane % 4 * 2;
                const float d[2] = {x.scales[token][group], x.scales[token + 1][group]};
                float p[2][2]; /* [token][half]: sums of 16 */
                if constexpr (OFFSETS) {
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        const float2 pair = *(const float2 *)&x.sums[token + i][group * 2];
                        p[i][0] = GROUP == 32 ? pair.x + pair.y : pair.x;
                        p[i][1] = pair.y;
                    }
                }
#pragma unroll
                for (int s = 0; s < WARP_UNPACKED; s++) {
#pragma unroll
                    for (int half = 0; half < halves; half++) {
                        float products[4], (&sum)[4] = sums[s][jj * 2 + j];
                        if constexpr (GROUP == 32)
                            multiply_bytes_32(a[s], b[j * 2], b[j * 2 + 1], products);
                        else
                            multiply_bytes_16(a[s][half * 2], a[s][half * 2 + 1], b[j * 2 + half], products);
#pragma unroll
                        for (int i = 0; i < 4; i++) {
                            sum[i] = fmaf(products[i], scale[s][half][i / 2] * d[i % 2], sum[i]);
                            if constexpr (OFFSETS)
                                sum[i] = fmaf(offset[s][half][i / 2], p[i % 2][half], sum[i]);
                        }
                    }
                }
            }
        }
    }
}

/* Adds the products of second terms, eight tokens at a time: few tokens, or few matmuls, have them. Second
 * terms overwrite the first terms; `seconds` has those of tokens `first` and following. */
template <int TOKENS, int GROUP, bool OFFSETS>
KERNEL_INLINE void multiply_seconds(unpacked_weights<GROUP, OFFSETS> *unpacked,
    const cuda_packed_input &packed_input, uint32_t first_token, uint64_t fine, uint32_t first, uint32_t part,
    uint32_t lane, second_terms &seconds, part_inputs<8, OFFSETS> &room,
    float (&sums)[WARP_UNPACKED][TOKENS / 8][4])
{
#pragma unroll 1
    while (first < TOKENS) {
        const uint32_t eight = first / 8;
        float products[WARP_UNPACKED][1][4] = {};
        __syncwarp();
        seconds.put(lane, room);
        first = next_eight<TOKENS>(fine, first + 8);
        if (first < TOKENS)
            seconds.load(packed_input, first_token + first, (uint32_t)(fine >> first), part, lane);
        __syncwarp();
        multiply_part<8>(unpacked, room, lane, products);
#pragma unroll
        for (int s = 0; s < WARP_UNPACKED; s++) {
#pragma unroll
            for (int i = 0; i < TOKENS / 8; i++) {
#pragma unroll
                for (int j = 0; j < 4; j++)
                    sums[s][i][j] += eight == i ? products[s][0][j] : 0;
            }
        }
    }
    __syncwarp();
}

/* Not inlined: together, the variants would share registers and spill. */
template <int TOKENS, int MATRICES, int GROUP, bool OFFSETS>
__device__ __noinline__ void gemm_q8(const cuda_machine *machine, const cuda_gemm &gemm, gemm_block block)
{
    DYNAMIC_SHARED(shared);
    using unpacked = unpacked_weights<GROUP, OFFSETS>;
    using inputs_of_part = part_inputs<TOKENS, OFFSETS>;
    static_assert(sizeof(unpacked) == GEMM_UNPACKED_BYTES + (OFFSETS ? 2 : 1) * 32 / GROUP * 256 &&
                      sizeof(inputs_of_part) == TOKENS * (GEMM_Q8_TOKEN_BYTES + (OFFSETS ? 32 : 0)),
        "as the host counts it");
    /* With a glu, each half of the warps has 16 of the rows, of both matrices. */
    const uint32_t lane = threadIdx.x % 32, half = MATRICES == 2 ? threadIdx.x / 32 % 2 : 0,
                   warp = threadIdx.x / 32 / MATRICES, warps = blockDim.x / 32 / MATRICES;
    const cuda_matrix &matrix = gemm.matmuls[block.matmul].matrix;
    const uint32_t parts = matrix.parts, type = matrix.type, tile_bytes = matrix.tile_bytes;
    uint8_t *own = shared + threadIdx.x / 32 *
                                (sizeof(inputs_of_part) + WARP_UNPACKED * sizeof(unpacked) +
                                    WARP_TILE_ROWS * tile_bytes);
    inputs_of_part &inputs = *(inputs_of_part *)own;
    unpacked *weights = (unpacked *)(&inputs + 1);
    uint8_t *tiles = (uint8_t *)(weights + WARP_UNPACKED);

    const cuda_step *step = (const cuda_step *)__ldg(&machine->step);
    invite_next_launch();
    tile_path path = {tile_path::find_tile_row<MATRICES>(gemm, block, half, lane), tile_bytes,
        matrix.parts_per_pass, matrix.tile_rows_per_block * matrix.parts_per_pass * tile_bytes, 0, lane, 0};
    path.skip(warp);
    path.fetch(tiles);
    copy_commit();
    copy_wait<0>();
    __syncwarp();
    unpack_any(type, tiles, tile_bytes, lane, weights);
    __syncwarp();
    path.skip(warps);
    if (warp + warps < parts)
        path.fetch(tiles);
    const uint32_t first_token = blockIdx.y * TOKENS, live = live_rows(step, gemm.rows, first_token, TOKENS);
    wait_for_last_launch();
    if (live == 0) {
        copy_commit();
        copy_wait<0>();
        return;
    }

    const cuda_packed_input &packed_input = gemm.inputs[block.matmul];
    const uint64_t early = early_tokens<TOKENS>(gemm, first_token, live, lane);
    const uint64_t fine = packed_input.fine ? ~0ull >> (64 - live) : early;
    const uint32_t first_fine = next_eight<TOKENS>(fine, 0);
    const input_paths<TOKENS, OFFSETS> x(packed_input, first_token, live, lane);
    float sums[WARP_UNPACKED][TOKENS / 8][4] = {};
    for (uint32_t part = warp;;) {
        x.fetch(part, inputs);
        copy_commit();
        if (part != warp && part + warps < parts)
            path.fetch(tiles);
        copy_commit();
        second_terms seconds;
        if (first_fine < TOKENS)
            seconds.load(packed_input, first_token + first_fine, (uint32_t)(fine >> first_fine), part, lane);
        copy_wait<1>();
        __syncwarp();
        multiply_part(weights, inputs, lane, sums);
        if (first_fine < TOKENS)
            multiply_seconds<TOKENS>(weights, packed_input, first_token, fine, first_fine, part, lane,
                seconds, *(part_inputs<8, OFFSETS> *)own, sums);
        part += warps;
        if (part >= parts)
            break;
        copy_wait<0>();
        __syncwarp();
        unpack_any(type, tiles, tile_bytes, lane, weights);
        __syncwarp();
        path.skip(warps);
    }
    gemm_finish<MATRICES, TOKENS> finish(gemm, block, first_token, live);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < WARP_UNPACKED; i++)
        leave_sums<MATRICES, TOKENS>(
            sums[i], warp, MATRICES == 2 ? i : 0, (MATRICES == 2 ? half : i) * 16, lane, (float *)shared);
    __syncthreads();
    finish.run(first_token, warps, (const float *)shared, early);
}

template <int TOKENS, int MATRICES>
KERNEL_INLINE void gemm_q8_any(const cuda_machine *machine, const cuda_gemm &gemm)
{
    const gemm_block block = find_gemm_block(gemm, blockIdx.x);
    switch (gemm.matmuls[block.matmul].matrix.type) {
    case TYPE_Q2_K:
        gemm_q8<TOKENS, MATRICES, 16, true>(machine, gemm, block);
        break;
    case TYPE_Q3_K:
    case TYPE_Q6_K:
        gemm_q8<TOKENS, MATRICES, 16, false>(machine, gemm, block);
        break;
    case TYPE_Q4_1:
    case TYPE_Q5_1:
    case TYPE_Q4_K:
    case TYPE_Q5_K:
        gemm_q8<TOKENS, MATRICES, 32, true>(machine, gemm, block);
        break;
    default:
        gemm_q8<TOKENS, MATRICES, 32, false>(machine, gemm, block);
    }
}

DEFINE_GEMM(salvo_gemm_q8_few, gemm_q8_any, GEMM_FEW_TOKENS, 1, GEMM_WARPS)
DEFINE_GEMM(salvo_gemm_q8_few_glu, gemm_q8_any, GEMM_FEW_TOKENS, 2, GEMM_WARPS)
DEFINE_GEMM(salvo_gemm_q8_some, gemm_q8_any, GEMM_SOME_TOKENS, 1, GEMM_WARPS)
DEFINE_GEMM(salvo_gemm_q8_some_glu, gemm_q8_any, GEMM_SOME_TOKENS, 2, GEMM_WARPS)
DEFINE_GEMM(salvo_gemm_q8_many, gemm_q8_any, GEMM_MANY_TOKENS, 1, GEMM_WARPS / 2)
DEFINE_GEMM(salvo_gemm_q8_many_glu, gemm_q8_any, GEMM_MANY_TOKENS, 2, GEMM_WARPS)
