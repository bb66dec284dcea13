/* Attention of a run that has one token in this step, with ropes and the append inside. Such a block lasts as
 * long as its longest chain of instructions and loads: keys go from memory to registers and values to shared
 * memory, the first of both before the wait for the last launch, and its threads meet twice.
 *
 * The warps of a block take tiles of FLASH_KEYS positions in turn. Products have eight rows of queries: their
 * high halves are rows 0 to 7 of a factor, the low ones rows 8 to 15, and the sums of both are added. Of a
 * product of 16 columns of queries and keys a thread brings the same eight bytes of either, so that both are
 * read as they lie in memory. Weights stay in the registers in which they are computed, as columns of the
 * products with values, whose rows are elements.
 *
 * The key and the value of the token take the last place of the last tile, which no cached position has. */
#ifndef CUDA_FLASH_ONE_CUH
#define CUDA_FLASH_ONE_CUH

#include "backend/cuda/kernels/prefill/flash_rotate.cuh"

constexpr uint32_t ONE_QUERIES = 8; /* that share a KV head, at most */

template <int DIM, int WARPS> struct one_shared {
    alignas(16) uint8_t high[ONE_QUERIES][DIM * 2], low[ONE_QUERIES][DIM * 2];
    alignas(16) uint8_t fresh[2][DIM * 2];                    /* the token's key and value */
    alignas(128) uint8_t values[WARPS][FLASH_KEYS * DIM * 2]; /* a tile each, as chunk_at places it */
    float unit[ONE_QUERIES], maximum[WARPS][ONE_QUERIES], sum[WARPS][ONE_QUERIES];
    alignas(16) float output[WARPS][ONE_QUERIES][DIM + 4];
};

/* Pairs of a rope by a warp: lane l has pairs l, l + 32, ... of a head. */
template <int DIM> struct one_pairs {
    static constexpr uint32_t count = DIM / 64;
    float first[count], second[count];

    static KERNEL_INLINE uint32_t column(uint32_t i, bool halves)
    {
        return (threadIdx.x % 32 + 32 * i) * (halves ? 1 : 2);
    }
    static KERNEL_INLINE uint32_t distance(bool halves) { return halves ? DIM / 2 : 1; }

    KERNEL_INLINE void load(const float *head, bool halves)
    {
#pragma unroll
        for (uint32_t i = 0; i < count; i++) {
            first[i] = __ldcg(head + column(i, halves));
            second[i] = __ldcg(head + column(i, halves) + distance(halves));
        }
    }

    KERNEL_INLINE void rotate(const float (&cosines)[count], const float (&sines)[count])
    {
#pragma unroll
        for (uint32_t i = 0; i < count; i++)
            rotate_pair(first[i], second[i], cosines[i], sines[i]);
    }

    static KERNEL_INLINE void store(uint8_t *row, uint32_t i, uint32_t halves_of_pair, bool halves)
    {
        uint16_t *to = (uint16_t *)row + column(i, halves);
        to[0] = (uint16_t)halves_of_pair;
        to[distance(halves)] = (uint16_t)(halves_of_pair >> 16);
    }
};

template <int DIM> struct one_angles {
    float cosines[DIM / 64], sines[DIM / 64];

    KERNEL_INLINE void load(const flash_angles &angles, uint32_t row, uint32_t rope)
    {
        const uint64_t at = angles.at(row, rope) + threadIdx.x % 32;
#pragma unroll
        for (uint32_t i = 0; i < DIM / 64; i++) {
            cosines[i] = __ldcg(angles.cosines + at + 32 * i);
            sines[i] = __ldcg(angles.sines + at + 32 * i);
        }
    }
};

/* The token's key and value, by the warp that has the last tile. */
template <int DIM> struct one_fresh {
    one_pairs<DIM> key, value;
    one_angles<DIM> angles;

    KERNEL_INLINE void load(const cuda_attend &attend, const flash_angles &all, const flash_block &block)
    {
        const uint64_t at = ((uint64_t)block.run_first_row * attend.kv_heads + block.kv_head) * DIM;
        key.load((const float *)attend.k + at, attend.halves != 0);
        value.load((const float *)attend.v + at, attend.halves != 0);
        angles.load(all, block.run_first_row, attend.rope_k);
    }

    KERNEL_INLINE void store(bool halves, uint8_t (&to)[2][DIM * 2])
    {
        key.rotate(angles.cosines, angles.sines);
#pragma unroll
        for (uint32_t i = 0; i < DIM / 64; i++) {
            key.store(to[0], i, half_pair(key.first[i], key.second[i]), halves);
            value.store(to[1], i, half_pair(value.first[i], value.second[i]), halves);
        }
    }
};

/* A query by a warp, as load_queries has it. */
template <int DIM, int WARPS>
KERNEL_INLINE void prepare_query(const cuda_attend &attend, const flash_angles &all, const flash_block &block,
    uint32_t query, one_shared<DIM, WARPS> &shared)
{
    const bool halves = attend.halves != 0;
    one_pairs<DIM> pairs;
    one_angles<DIM> angles;
    pairs.load((const float *)attend.q + find_query(attend, block, query).at, halves);
    angles.load(all, block.run_first_row, attend.rope_q);
    pairs.rotate(angles.cosines, angles.sines);
    float largest = 0;
#pragma unroll
    for (uint32_t i = 0; i < pairs.count; i++) {
        pairs.first[i] *= attend.scale;
        pairs.second[i] *= attend.scale;
        largest = fmaxf(largest, fmaxf(fabsf(pairs.first[i]), fabsf(pairs.second[i])));
    }
    const float factor = query_factor(__uint_as_float(__reduce_max_sync(~0u, __float_as_uint(largest))));
    if (threadIdx.x % 32 == 0)
        shared.unit[query] = __uint_as_float(0x7f000000 - __float_as_uint(factor)); /* 1 / factor */
#pragma unroll
    for (uint32_t i = 0; i < pairs.count; i++) {
        const cut_pair pair = cut(pairs.first[i] * factor, pairs.second[i] * factor);
        pairs.store(shared.high[query], i, pair.high, halves);
        pairs.store(shared.low[query], i, pair.low, halves);
    }
}

/* Copies the values of a tile to shared memory. Values of positions without a bit in `cached` become zeros;
 * if `has_fresh`, the caller stores the last one. */
template <int DIM>
KERNEL_INLINE void fetch_values(const uint8_t *from, uint32_t cached, bool has_fresh, uint8_t *values)
{
    constexpr uint32_t chunks = DIM / 8;
    const uint32_t lane = threadIdx.x % 32, chunk = lane % chunks;
#pragma unroll
    for (uint32_t i = 0; i < chunks; i++) {
        const uint32_t row = i * (32 / chunks) + lane / chunks;
        if (i + 1 < chunks || row + 1 < FLASH_KEYS || !has_fresh)
            copy_async(chunk_at<DIM>(values, row, chunk), from + row * DIM * 2 + chunk * 16,
                (cached >> row & 1) != 0);
    }
}

/* Adds a tile's values by weights. Output k: rows g and g + 8 are elements 16k + g and 16k + g + 8, columns
 * are queries. */
template <int DIM>
KERNEL_INLINE void add_one_values(
    uint8_t *values, const cut_pair (&weights)[FLASH_KEYS / 8], float (&output)[DIM / 16][4])
{
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int s = 0; s < FLASH_KEYS / 16; s++) {
        const cut_pair first = weights[2 * s], second = weights[2 * s + 1];
#pragma unroll
        for (int k = 0; k < DIM / 16; k++) {
            uint32_t a[4]; /* of keys 0 to 7 and 8 to 15; then of the next eight elements */
            load_matrices_transposed(chunk_at<DIM>(values, s * 16 + lane % 16, 2 * k + lane / 16), a);
            multiply_halves(a[0], a[2], a[1], a[3], first.low, second.low, output[k]);
            multiply_halves(a[0], a[2], a[1], a[3], first.high, second.high, output[k]);
        }
    }
}

/* The keys of a tile. Lane 4g + c has of keys 8j + g the chunks of 16 bytes c, c + 4, ... */
template <int DIM> struct one_keys {
    uint4 of[FLASH_KEYS / 8][DIM / 32];

    /* Keys of positions without a bit in `cached` become zeros. */
    KERNEL_INLINE void fetch(const uint8_t *from, uint32_t cached)
    {
        const uint32_t g = threadIdx.x % 32 / 4, c = threadIdx.x % 4;
        from += g * DIM * 2 + c * 16;
        cached >>= g;
#pragma unroll
        for (int j = 0; j < FLASH_KEYS / 8; j++) {
#pragma unroll
            for (int i = 0; i < DIM / 32; i++) {
                of[j][i] = make_uint4(0, 0, 0, 0);
                if (cached >> (8 * j) & 1)
                    of[j][i] = __ldcg((const uint4 *)(from + j * 8 * DIM * 2 + i * 64));
            }
        }
    }

    /* The last one. */
    KERNEL_INLINE void insert(const uint8_t *fresh)
    {
        const uint32_t g = threadIdx.x % 32 / 4, c = threadIdx.x % 4;
#pragma unroll
        for (int i = 0; i < DIM / 32; i++) {
            if (g == 7)
                of[FLASH_KEYS / 8 - 1][i] = *(const uint4 *)(fresh + (c + 4 * i) * 16);
        }
    }

    /* Rows of query g. */
    KERNEL_INLINE void find_scores(
        const uint8_t *high_row, const uint8_t *low_row, float (&scores)[FLASH_KEYS / 8][4]) const
    {
        const uint32_t c = threadIdx.x % 4;
#pragma unroll
        for (int i = 0; i < DIM / 32; i++) {
            const uint4 high = *(const uint4 *)(high_row + (c + 4 * i) * 16),
                        low = *(const uint4 *)(low_row + (c + 4 * i) * 16);
#pragma unroll
            for (int j = 0; j < FLASH_KEYS / 8; j++) {
                const uint4 b = of[j][i];
                multiply_halves(high.x, low.x, high.y, low.y, b.x, b.y, scores[j]);
            }
#pragma unroll
            for (int j = 0; j < FLASH_KEYS / 8; j++) {
                const uint4 b = of[j][i];
                multiply_halves(high.z, low.z, high.w, low.w, b.z, b.w, scores[j]);
            }
        }
    }
};

/* The softmax of a warp: lane 4g + c has query g and the keys 8j + 2c, 8j + 2c + 1 of a tile. */
struct one_softmax {
    float maximum, sum; /* sum: of this lane's keys */

    /* Scores of positions with a bit in `seen` become weights. Returns by what to multiply earlier sums. */
    KERNEL_INLINE float weigh(float cap, float unit, uint32_t seen, const float (&scores)[FLASH_KEYS / 8][4],
        cut_pair (&weights)[FLASH_KEYS / 8])
    {
        const float infinity = __int_as_float(0x7f800000);
        float own[FLASH_KEYS / 8][2], largest = maximum;
        seen >>= threadIdx.x % 4 * 2;
#pragma unroll
        for (int j = 0; j < FLASH_KEYS / 8; j++) {
            own[j][0] = (scores[j][0] + scores[j][2]) * unit;
            own[j][1] = (scores[j][1] + scores[j][3]) * unit;
        }
        if (cap != 0) {
#pragma unroll
            for (int j = 0; j < FLASH_KEYS / 8; j++) {
                own[j][0] = capped(cap, own[j][0]);
                own[j][1] = capped(cap, own[j][1]);
            }
        }
#pragma unroll
        for (int j = 0; j < FLASH_KEYS / 8; j++) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                own[j][i] = seen >> (8 * j + i) & 1 ? own[j][i] : -infinity;
                largest = fmaxf(largest, own[j][i]);
            }
        }
        largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
        const float base = largest == -infinity ? 0 : largest, factor = exp2f((maximum - base) * LOG2_E);
        maximum = largest;
        sum *= factor;
#pragma unroll
        for (int j = 0; j < FLASH_KEYS / 8; j++) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                own[j][i] = exp2f(fmaf(own[j][i] - base, LOG2_E, WEIGHT_SHIFT));
                sum += own[j][i];
            }
            weights[j] = cut(own[j][0], own[j][1]);
        }
        return factor;
    }
};

/* Leaves the result of warp `warp` for the block. */
template <int DIM, int WARPS>
KERNEL_INLINE void leave_one(const flash_block &block, uint32_t warp, one_softmax &softmax,
    const float (&output)[DIM / 16][4], one_shared<DIM, WARPS> &shared)
{
    const uint32_t g = threadIdx.x % 32 / 4, c = threadIdx.x % 4;
    softmax.sum += __shfl_xor_sync(~0u, softmax.sum, 1);
    softmax.sum += __shfl_xor_sync(~0u, softmax.sum, 2);
    if (c == 0) {
        shared.maximum[warp][g] = softmax.maximum;
        shared.sum[warp][g] = softmax.sum;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (2 * c + i >= block.count)
            continue;
        float *to = shared.output[warp][2 * c + i] + g;
#pragma unroll
        for (int k = 0; k < DIM / 16; k++) {
            to[16 * k] = output[k][i];
            to[16 * k + 8] = output[k][i + 2];
        }
    }
}

/* Query `query` from the results of `used` warps, in order. */
template <int DIM, int WARPS>
KERNEL_INLINE void merge_one(const cuda_flash &flash, const flash_block &block, uint32_t query, uint32_t used,
    const one_shared<DIM, WARPS> &shared)
{
    const float infinity = __int_as_float(0x7f800000);
    float factors[WARPS], maximum = -infinity, sum = 0;
#pragma unroll
    for (uint32_t w = 0; w < WARPS; w++) {
        factors[w] = w < used ? shared.maximum[w][query] : -infinity;
        maximum = fmaxf(maximum, factors[w]);
    }
    maximum = maximum == -infinity ? 0 : maximum;
#pragma unroll
    for (uint32_t w = 0; w < WARPS; w++) {
        factors[w] = exp2f((factors[w] - maximum) * LOG2_E);
        sum = w < used ? fmaf(shared.sum[w][query], factors[w], sum) : sum;
    }
    const float inverse = sum == 0 ? 0 : 1 / sum;
    store_query(flash, block, query, [&](uint32_t d) {
        float value = 0;
#pragma unroll
        for (uint32_t w = 0; w < WARPS; w++)
            value = w < used ? fmaf(shared.output[w][query][d], factors[w], value) : value;
        return value * inverse;
    });
}

/* By all threads of a block whose run has one token, with no more than ONE_QUERIES queries. */
template <int DIM, int WARPS>
KERNEL_INLINE void attend_one(
    const cuda_flash &flash, const flash_angles &angles, const flash_block &block, uint8_t *memory)
{
    static_assert(
        sizeof(one_shared<DIM, WARPS>) <= FLASH_SHARED_QUERIES(DIM) + WARPS * 2 * FLASH_KEYS * DIM * 2,
        "as much as other blocks of the launch have, with one slot for keys and values");
    one_shared<DIM, WARPS> &shared = *(one_shared<DIM, WARPS> *)memory;
    const cuda_attend &attend = flash.attend;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;
    const uint32_t position = block.end - 1, first_tile = block.begin / FLASH_KEYS,
                   last_tile = position / FLASH_KEYS;
    const bool has_fresh = (last_tile - first_tile) % WARPS == warp;
    const auto row_of = [&](uint64_t state, uint32_t page, uint32_t at) {
        return find_kv_head(state, page, attend.kv_heads, block.kv_head, DIM, TYPE_F16).elements +
               at % PAGE_POSITIONS * (DIM * 2);
    };
    const auto cached_in = [&](uint32_t tile) { /* a bit for each position */
        const uint32_t first = tile * FLASH_KEYS, end = position - first;
        const uint32_t before_end = end < FLASH_KEYS ? (1u << end) - 1 : ~0u;
        return block.begin > first ? before_end & ~0u << (block.begin - first) : before_end;
    };
    uint8_t *const values = shared.values[warp];
    one_keys<DIM> keys;
    uint32_t tile = first_tile + warp,
             page = __ldcg(block.pages + min(tile, last_tile) * FLASH_KEYS / PAGE_POSITIONS);
    if (tile <= last_tile) {
        keys.fetch(row_of(attend.keys, page, tile * FLASH_KEYS), cached_in(tile));
        fetch_values<DIM>(
            row_of(attend.values, page, tile * FLASH_KEYS), cached_in(tile), tile == last_tile, values);
    }
    copy_commit();
    wait_for_last_launch();
    one_fresh<DIM> fresh;
    if (has_fresh)
        fresh.load(attend, angles, block);
#pragma unroll 1
    for (uint32_t query = warp; query < block.count; query += WARPS)
        prepare_query(attend, angles, block, query, shared);
    if (has_fresh)
        fresh.store(attend.halves != 0, shared.fresh);
    __syncthreads();
    const uint32_t own_query = min(g, block.count - 1); /* rows beyond the last query repeat it */
    float output[DIM / 16][4] = {};
    one_softmax softmax = {-__int_as_float(0x7f800000), 0};
#pragma unroll 1
    for (; tile <= last_tile; tile += WARPS) {
        const uint32_t next = tile + WARPS;
        uint32_t seen = cached_in(tile);
        page = __ldcg(block.pages + min(next, last_tile) * FLASH_KEYS / PAGE_POSITIONS);
        if (tile == last_tile) {
            keys.insert(shared.fresh[0]);
            if (lane < DIM / 8)
                *(uint4 *)chunk_at<DIM>(values, FLASH_KEYS - 1, lane) =
                    *(const uint4 *)(shared.fresh[1] + lane * 16);
            seen |= 1u << (FLASH_KEYS - 1);
        }
        float scores[FLASH_KEYS / 8][4] = {};
        cut_pair weights[FLASH_KEYS / 8];
        keys.find_scores(shared.high[own_query], shared.low[own_query], scores);
        if (next <= last_tile)
            keys.fetch(row_of(attend.keys, page, next * FLASH_KEYS), cached_in(next));
        const float factor = softmax.weigh(attend.cap, shared.unit[own_query], seen, scores, weights);
        if (tile != first_tile + warp) {
            const float factors[2] = {
                __shfl_sync(~0u, factor, (int)(8 * c)), __shfl_sync(~0u, factor, (int)(8 * c + 4))};
#pragma unroll
            for (int at = 0; at < DIM / 16; at++) {
#pragma unroll
                for (int i = 0; i < 4; i++)
                    output[at][i] *= factors[i % 2];
            }
        }
        copy_wait<0>();
        __syncwarp();
        add_one_values<DIM>(values, weights, output);
        __syncwarp();
        if (next <= last_tile)
            fetch_values<DIM>(
                row_of(attend.values, page, next * FLASH_KEYS), cached_in(next), next == last_tile, values);
        copy_commit();
    }
    const uint32_t used = min(last_tile - first_tile + 1, (uint32_t)WARPS);
    if (warp < used)
        leave_one(block, warp, softmax, output, shared);
    if (has_fresh && lane < DIM / 4) { /* the append */
        const uint32_t which = lane / (DIM / 8), chunk = lane % (DIM / 8);
        const uint32_t last_page = __ldcg(block.pages + position / PAGE_POSITIONS);
        *(uint4 *)(row_of(which ? attend.values : attend.keys, last_page, position) + chunk * 16) =
            *(const uint4 *)(shared.fresh[which] + chunk * 16);
    }
    __syncthreads();
#pragma unroll 1
    for (uint32_t query = warp; query < block.count; query += WARPS)
        merge_one(flash, block, query, used, shared);
}

#endif
