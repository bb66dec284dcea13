/*
 * Matmuls of many tokens by quantised weights.
 *
 *   salvo_gemm_q8_few(machine, gemm), _few_glu     capacities up to GEMM_FEW_TOKENS: 256 threads
 *   salvo_gemm_q8_many(machine, gemm), _many_glu   128 threads
 *
 * Grid and shared memory: cuda_gemm_launch. Activations are bytes with a scale for every 32, so that products
 * are exact sums of 32 (or 16) bytes times two scales, as on the CPU; only the order in which floats are
 * added differs.
 *
 * For each product of 16 x 8 x 32 a warp spends three float operations a result on scaling, which takes three
 * times as long as the product itself. Larger instructions (wgmma) would not help: they add to their result
 * in place, so that starting each group anew costs a fourth.
 *
 * A warp's items come to shared memory as they are. It takes them apart into a slab of 16 rows of 128 bytes,
 * from which tensor cores get their fragments. Rows of slabs and inputs are 8 chunks of 16 bytes; chunk i of
 * row r lies at i ^ (r % 8), so that neither writing nor reading meets conflicts.
 */
#include "backend/cuda/gemm.cuh"

KERNEL_INLINE uint8_t *chunk_of(uint8_t *rows, uint32_t row, uint32_t chunk)
{
    return rows + row * 128 + (chunk ^ (row & 7)) * 16;
}

/* The items of a warp's two tiles; those of a glu's second matrix lie `apart`. */
struct item_paths {
    const uint8_t *first[2];
    int64_t apart;
    uint32_t item_bytes, per_round, round_bytes;

    KERNEL_INLINE uint64_t offset(uint32_t part) const
    {
        const uint32_t round = part / per_round;
        return (uint64_t)round * round_bytes + (part - round * per_round) * item_bytes;
    }
};

KERNEL_INLINE item_paths find_paths(const cuda_matrix &matrix, const cuda_matrix &second, uint32_t tile)
{
    return {{gemm_item(matrix, tile, 0), gemm_item(matrix, tile + 1, 0)},
        (int64_t)(second.base - matrix.base), matrix.item_bytes, matrix.parts_per_round,
        matrix.tiles_per_block * matrix.parts_per_round * matrix.item_bytes};
}

/* Scales of the rows g and g + 8 of a lane, for the four groups of 32 of a part. */
template <int GROUP, bool OFFSETS> struct slab_scales {
    static constexpr int halves = 32 / GROUP;
    float scale[4][halves][2], offset[OFFSETS ? 4 : 1][halves][2];
};

template <int TYPE>
KERNEL_INLINE void unpack_slab(
    const uint8_t *items, uint32_t item_bytes, uint32_t lane, uint8_t *slab, lane_scales (&scales)[2])
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const lane_codes<TYPE> codes = load_codes<TYPE>(items + i * item_bytes, (int)lane);
        uint32_t words[8];
        unpack_codes<TYPE>(codes, words);
        const uint32_t row = i * 8 + lane / 4, chunk = lane % 4 * 2;
        *(uint4 *)chunk_of(slab, row, chunk) = make_uint4(words[0], words[1], words[2], words[3]);
        *(uint4 *)chunk_of(slab, row, chunk + 1) = make_uint4(words[4], words[5], words[6], words[7]);
        scales[i] = unpack_scales<TYPE>(codes);
    }
}

template <int GROUP, bool OFFSETS>
KERNEL_INLINE void unpack_any_slab(uint32_t type, const uint8_t *items, uint32_t item_bytes, uint32_t lane,
    uint8_t *slab, slab_scales<GROUP, OFFSETS> &out)
{
    lane_scales own[2] = {};
    __syncwarp();
    switch (type) {
#define UNPACK(name, p16, p8, p4, row_scale, lane_scale, group, offsets, top, unit) \
    case TYPE_##name:                                                               \
        if constexpr (group == GROUP && (bool)offsets == OFFSETS)                   \
            unpack_slab<TYPE_##name>(items, item_bytes, lane, slab, own);           \
        break;
        CUDA_ITEM_FORMATS(UNPACK)
#undef UNPACK
    default:
        break;
    }
    __syncwarp();
#pragma unroll
    for (int group = 0; group < 4; group++) {
        const int from = (int)(lane & 28) | group;
#pragma unroll
        for (int half = 0; half < 32 / GROUP; half++) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                out.scale[group][half][i] = __shfl_sync(~0u, own[i].scale[half], from);
                if (OFFSETS)
                    out.offset[OFFSETS ? group : 0][half][i] = __shfl_sync(~0u, own[i].offset[half], from);
            }
        }
    }
}

/* The inputs of one part in shared memory. */
template <int TOKENS> struct part_inputs {
    uint8_t values[TOKENS * 128];
    float scales[TOKENS][4];
    float sums[TOKENS][8];
};

/* Tokens 8j + 2c and the next: scales of the four groups, and sums of 16 times scale. */
struct token_scales {
    float scale[2][4];
};

KERNEL_INLINE void load_floats_4(const float *from, float (&out)[4])
{
    const float4 four = *(const float4 *)from;
    out[0] = four.x;
    out[1] = four.y;
    out[2] = four.z;
    out[3] = four.w;
}

/* Adds the products of a slab with the live tokens of a part. */
template <int TOKENS, int GROUP, bool OFFSETS>
KERNEL_INLINE void multiply_slab(uint8_t *slab, const slab_scales<GROUP, OFFSETS> &w, part_inputs<TOKENS> &x,
    uint32_t live, uint32_t lane, float (&sums)[TOKENS / 8][4])
{
    uint32_t a[4][4];
#pragma unroll
    for (int group = 0; group < 4; group++)
        load_matrices(chunk_of(slab, lane % 16, group * 2 + lane / 16), a[group]);
#pragma unroll
    for (int j = 0; j < TOKENS / 8; j++) {
        if ((uint32_t)j * 8 >= live)
            break;
        const uint32_t token = j * 8 + lane % 4 * 2;
        uint32_t b[2][4];
        float d[2][4], p[2][OFFSETS ? 8 : 1];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            load_matrices(chunk_of(x.values, j * 8 + lane % 8, i * 4 + lane / 8), b[i]);
            load_floats_4(x.scales[token + i], d[i]);
            if constexpr (OFFSETS) {
                float low[4], high[4];
                load_floats_4(x.sums[token + i], low);
                load_floats_4(x.sums[token + i] + 4, high);
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    p[i][k] = low[k];
                    p[i][k + 4] = high[k];
                }
            }
        }
#pragma unroll
        for (int group = 0; group < 4; group++) {
            const uint32_t b0 = b[group / 2][group % 2 * 2], b1 = b[group / 2][group % 2 * 2 + 1];
#pragma unroll
            for (int half = 0; half < 32 / GROUP; half++) {
                float products[4];
                if constexpr (GROUP == 32)
                    multiply_bytes_32(a[group], b0, b1, products);
                else
                    multiply_bytes_16(a[group][half * 2], a[group][half * 2 + 1], half ? b1 : b0, products);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    sums[j][i] = fmaf(products[i], w.scale[group][half][i / 2] * d[i % 2][group], sums[j][i]);
                    if constexpr (OFFSETS) {
                        const float sum = GROUP == 32 ? p[i % 2][group * 2] + p[i % 2][group * 2 + 1]
                                                      : p[i % 2][group * 2 + half];
                        sums[j][i] = fmaf(w.offset[group][half][i / 2], sum, sums[j][i]);
                    }
                }
            }
        }
    }
}

/* Brings the inputs of one round, SPLIT parts, to shared memory. Tokens that do not live are zeros. */
template <int SPLIT, int TOKENS>
KERNEL_INLINE void fetch_inputs(const cuda_panel &panel, uint32_t first_token, uint32_t live,
    uint32_t first_part, uint32_t parts, part_inputs<TOKENS> *to)
{
    const uint64_t columns = panel.columns;
#pragma unroll
    for (uint32_t i = threadIdx.x; i < SPLIT * TOKENS * 8; i += SPLIT * 64) {
        const uint32_t chunk = i % 8, token = i / 8 % TOKENS, pair = i / 8 / TOKENS, part = first_part + pair;
        const bool on = token < live && part < parts;
        const uint64_t at = on ? (first_token + token) * columns + part * 128 + chunk * 16 : 0;
        copy_async(chunk_of(to[pair].values, token, chunk), (const uint8_t *)panel.values + at, on);
    }
#pragma unroll
    for (uint32_t i = threadIdx.x; i < SPLIT * TOKENS * 3; i += SPLIT * 64) {
        const uint32_t chunk = i % 3, token = i / 3 % TOKENS, pair = i / 3 / TOKENS, part = first_part + pair;
        const bool on = token < live && part < parts;
        const uint64_t row = on ? (first_token + token) * columns / 128 + part : 0;
        if (chunk == 0)
            copy_async(to[pair].scales[token], (const float *)panel.scales + row * 4, on);
        else
            copy_async(to[pair].sums[token] + (chunk - 1) * 4,
                (const float *)panel.sums + row * 8 + (chunk - 1) * 4, on);
    }
}

/* Not inlined: together, the variants would share registers and spill. */
template <int SPLIT, int TOKENS, int MATRICES, int GROUP, bool OFFSETS>
__device__ __noinline__ void gemm_q8(const cuda_machine *machine, const cuda_gemm &gemm, gemm_block block)
{
    DYNAMIC_SHARED(shared);
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, half = warp % 2, pair = warp / 2;
    const cuda_matrix &matrix = gemm.matmuls[block.matmul].matrix;
    const uint32_t parts = matrix.parts, item_bytes = matrix.item_bytes, type = matrix.type;
    const uint32_t slot_bytes = MATRICES * 2 * item_bytes;
    part_inputs<TOKENS> *inputs = (part_inputs<TOKENS> *)shared; /* [2][SPLIT] */
    uint8_t *slabs = shared + 2 * SPLIT * sizeof(part_inputs<TOKENS>);
    uint8_t *slab = slabs + warp * GEMM_SLAB_BYTES;
    uint8_t *items = slabs + 2 * SPLIT * GEMM_SLAB_BYTES + warp * 2 * slot_bytes; /* [2] */

    const item_paths paths =
        find_paths(matrix, gemm.matmuls[block.matmul + MATRICES - 1].matrix, block.first_row / 8 + half * 2);
    const auto fetch_items = [&](uint32_t part, uint32_t slot) {
        if (part >= parts)
            return;
        const uint64_t offset = paths.offset(part);
#pragma unroll
        for (int i = 0; i < MATRICES * 2; i++) {
            const uint8_t *from = paths.first[i % 2] + offset + (i / 2 ? paths.apart : 0);
            uint8_t *to = items + slot * slot_bytes + i * item_bytes;
            for (uint32_t at = lane * 16; at < item_bytes; at += 512)
                copy_async(to + at, from + at);
        }
    };

    const uint32_t first_token = blockIdx.y * TOKENS;
    const cuda_step *step = (const cuda_step *)__ldg(&machine->step);
    invite_next_launch();
    if (first_token == 0) { /* weights need not wait for anybody, and the first tokens nearly always live */
        fetch_items(pair, 0);
        fetch_items(pair + SPLIT, 1);
    }
    wait_for_last_launch();
    const uint32_t live = live_rows(step, gemm.rows, first_token, TOKENS);
    if (live == 0) {
        copy_commit();
        copy_wait<0>();
        return;
    }
    if (first_token)
        fetch_items(pair, 0);
    fetch_inputs<SPLIT>(gemm.panel, first_token, live, 0, parts, inputs);
    copy_commit();
    if (first_token)
        fetch_items(pair + SPLIT, 1);
    if (SPLIT < parts)
        fetch_inputs<SPLIT>(gemm.panel, first_token, live, SPLIT, parts, inputs + SPLIT);
    copy_commit();

    float sums[MATRICES][TOKENS / 8][4] = {};
    uint32_t slot = 0;
    for (uint32_t first = 0; first < parts; first += SPLIT, slot ^= 1) {
        copy_wait<1>();
        __syncthreads();
        if (first + pair < parts) {
#pragma unroll
            for (int m = 0; m < MATRICES; m++) {
                slab_scales<GROUP, OFFSETS> scales;
                unpack_any_slab(
                    type, items + slot * slot_bytes + m * 2 * item_bytes, item_bytes, lane, slab, scales);
                multiply_slab(slab, scales, inputs[slot * SPLIT + pair], live, lane, sums[m]);
            }
        }
        __syncthreads();
        const uint32_t next = first + 2 * SPLIT;
        if (next < parts) {
            fetch_items(next + pair, slot);
            fetch_inputs<SPLIT>(gemm.panel, first_token, live, next, parts, inputs + slot * SPLIT);
        }
        copy_commit();
    }
    /* The last barrier has seen everybody finish, and nothing is on its way any more but empty groups. */
    leave_sums<MATRICES, SPLIT, TOKENS>(sums, pair, half, lane, (float *)shared);
    __syncthreads();
    finish_sums<MATRICES, SPLIT, TOKENS>(gemm, block, first_token, live, (const float *)shared);
}

template <int SPLIT, int TOKENS, int MATRICES>
KERNEL_INLINE void gemm_q8_any(const cuda_machine *machine, const cuda_gemm &gemm)
{
    static_assert(sizeof(part_inputs<TOKENS>) == TOKENS * GEMM_Q8_TOKEN_BYTES, "as the host counts it");
    static_assert(MATRICES * SPLIT * TOKENS * SUM_STRIDE * sizeof(float) <=
                      2 * SPLIT * (TOKENS * GEMM_Q8_TOKEN_BYTES + GEMM_SLAB_BYTES),
        "sums lie where the inputs were");
    const gemm_block block = find_gemm_block(gemm, blockIdx.x);
    switch (gemm.matmuls[block.matmul].matrix.type) {
    case TYPE_Q2_K:
        gemm_q8<SPLIT, TOKENS, MATRICES, 16, true>(machine, gemm, block);
        break;
    case TYPE_Q3_K:
    case TYPE_Q6_K:
        gemm_q8<SPLIT, TOKENS, MATRICES, 16, false>(machine, gemm, block);
        break;
    case TYPE_Q4_1:
    case TYPE_Q5_1:
    case TYPE_Q4_K:
    case TYPE_Q5_K:
        gemm_q8<SPLIT, TOKENS, MATRICES, 32, true>(machine, gemm, block);
        break;
    default:
        gemm_q8<SPLIT, TOKENS, MATRICES, 32, false>(machine, gemm, block);
    }
}

extern "C" __global__ void __launch_bounds__(GEMM_FEW_SPLIT * 64, 2)
    salvo_gemm_q8_few(const cuda_machine *machine, const __grid_constant__ cuda_gemm gemm)
{
    gemm_q8_any<GEMM_FEW_SPLIT, GEMM_FEW_TOKENS, 1>(machine, gemm);
}

extern "C" __global__ void __launch_bounds__(GEMM_FEW_SPLIT * 64, 1)
    salvo_gemm_q8_few_glu(const cuda_machine *machine, const __grid_constant__ cuda_gemm gemm)
{
    gemm_q8_any<GEMM_FEW_SPLIT, GEMM_FEW_TOKENS, 2>(machine, gemm);
}

extern "C" __global__ void __launch_bounds__(GEMM_MANY_SPLIT * 64, GEMM_MANY_BLOCKS)
    salvo_gemm_q8_many(const cuda_machine *machine, const __grid_constant__ cuda_gemm gemm)
{
    gemm_q8_any<GEMM_MANY_SPLIT, GEMM_MANY_TOKENS, 1>(machine, gemm);
}

extern "C" __global__ void __launch_bounds__(GEMM_MANY_SPLIT * 64, GEMM_MANY_BLOCKS - 1)
    salvo_gemm_q8_many_glu(const cuda_machine *machine, const __grid_constant__ cuda_gemm gemm)
{
    gemm_q8_any<GEMM_MANY_SPLIT, GEMM_MANY_TOKENS, 2>(machine, gemm);
}
