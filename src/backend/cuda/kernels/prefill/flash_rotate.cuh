/* Ropes and the append inside attention, for cuda_attend.appends: a block rotates its queries, and the keys
 * of its run's tokens in this step, which lie in k and v and not yet in the cache. It appends the keys and
 * values of the tokens whose first query of the KV head it has. Angles and roundings are those of
 * salvo_rotate. */
#ifndef CUDA_FLASH_ROTATE_CUH
#define CUDA_FLASH_ROTATE_CUH

#include "backend/cuda/kernels/prefill/flash_softmax.cuh"

/* An element pair through a rope. */
KERNEL_INLINE void rotate_pair(float &first, float &second, float cosine, float sine)
{
    const float left = first, right = second;
    first = fmaf(left, cosine, -(right * sine));
    second = fmaf(right, cosine, left * sine);
}

/* Cosines and sines of the rows of a step, [T][ropes][rope_pairs]. */
struct flash_angles {
    const float *cosines, *sines;
    uint32_t ropes, pairs;

    explicit KERNEL_INLINE flash_angles(const cuda_machine *machine)
        : cosines((const float *)__ldg(&machine->cosines)), sines((const float *)__ldg(&machine->sines)),
          ropes(__ldg(&machine->rope_count)), pairs(__ldg(&machine->rope_pairs))
    {
    }

    KERNEL_INLINE uint64_t at(uint32_t row, uint32_t rope) const
    {
        return ((uint64_t)row * ropes + rope) * pairs;
    }
};

/* For load_queries: a thread has columns 8i + 2 (lane % 4) and the next one of each query. */
struct query_rotation {
    const flash_angles &angles;
    uint32_t rope;
    bool halves;

    template <int PARTS>
    KERNEL_INLINE void rotate(const flash_query (&queries)[2], float2 (&parts)[PARTS][2]) const
    {
        const uint32_t own = threadIdx.x % 4;
#pragma unroll
        for (int row = 0; row < 2; row++) {
            if (!queries[row].on)
                continue;
            const uint64_t at = angles.at(queries[row].row, rope);
            const float *cosines = angles.cosines + at, *sines = angles.sines + at;
            if (halves) {
#pragma unroll
                for (int i = 0; i < PARTS / 2; i++) {
                    const float2 c = __ldcg((const float2 *)(cosines + i * 8 + own * 2)),
                                 s = __ldcg((const float2 *)(sines + i * 8 + own * 2));
                    rotate_pair(parts[i][row].x, parts[i + PARTS / 2][row].x, c.x, s.x);
                    rotate_pair(parts[i][row].y, parts[i + PARTS / 2][row].y, c.y, s.y);
                }
            } else {
#pragma unroll
                for (int i = 0; i < PARTS; i++)
                    rotate_pair(parts[i][row].x, parts[i][row].y, __ldcg(cosines + i * 4 + own),
                        __ldcg(sines + i * 4 + own));
            }
        }
    }
};

/* 16 elements of a head, as two chunks of eight. */
struct sixteen {
    float of[16];

    KERNEL_INLINE sixteen(const float *first, const float *second)
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float4 four = __ldcg((const float4 *)(i < 2 ? first : second) + i % 2);
            of[4 * i] = four.x, of[4 * i + 1] = four.y, of[4 * i + 2] = four.z, of[4 * i + 3] = four.w;
        }
    }

    /* Eight pairs with the angles from `cosines` and `sines` on; halves: of the two chunks, else of
     * neighbours. */
    KERNEL_INLINE void rotate(const float *cosines, const float *sines, bool halves)
    {
        const sixteen angles(cosines, sines);
        if (halves) {
#pragma unroll
            for (int i = 0; i < 8; i++)
                rotate_pair(of[i], of[i + 8], angles.of[i], angles.of[i + 8]);
        } else {
#pragma unroll
            for (int i = 0; i < 8; i++)
                rotate_pair(of[2 * i], of[2 * i + 1], angles.of[i], angles.of[i + 8]);
        }
    }

    KERNEL_INLINE uint4 chunk(int number) const
    {
        const float *x = of + number * 8;
        return make_uint4(
            half_pair(x[0], x[1]), half_pair(x[2], x[3]), half_pair(x[4], x[5]), half_pair(x[6], x[7]));
    }
};

/* The positions of a tile, FLASH_KEYS from `first` on, that this step brings: from .. end - 1. */
struct fresh_positions {
    uint32_t from, end;

    KERNEL_INLINE fresh_positions(const flash_block &block, uint32_t first)
        : from(max(first, max(block.begin, block.run_first))), end(min(first + FLASH_KEYS, block.end))
    {
    }

    KERNEL_INLINE bool contain(uint32_t position) const { return position >= from && position < end; }
};

/* Keys and values of a tile that this step brings, to shared memory and, where the block has to, to the
 * cache; by a warp. */
template <int DIM>
KERNEL_INLINE void add_fresh_keys(const cuda_attend &attend, const flash_angles &angles,
    const flash_block &block, uint32_t step, uint8_t *keys, uint8_t *values)
{
    constexpr uint32_t each = DIM / 16; /* lanes of a position */
    const uint32_t first = step * FLASH_KEYS, lane = threadIdx.x % 32, part = lane % each;
    const uint32_t chunks[2] = {attend.halves ? part : 2 * part, attend.halves ? part + each : 2 * part + 1};
    const fresh_positions fresh(block, first);
    for (uint32_t position = fresh.from + lane / each; position < fresh.end; position += 32 / each) {
        const uint32_t token = position - block.run_first, row = block.run_first_row + token;
        const uint64_t at = ((uint64_t)row * attend.kv_heads + block.kv_head) * DIM,
                       angle = angles.at(row, attend.rope_k) + part * 8;
        const float *k = (const float *)attend.k + at, *v = (const float *)attend.v + at;
        sixteen key(k + chunks[0] * 8, k + chunks[1] * 8);
        const sixteen value(v + chunks[0] * 8, v + chunks[1] * 8);
        key.rotate(angles.cosines + angle, angles.sines + angle, attend.halves);
        const bool appends = token * block.each - block.first_query < block.count; /* has its first query */
        const uint32_t page = __ldcg(block.pages + position / PAGE_POSITIONS);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            *(uint4 *)chunk_at<DIM>(keys, position - first, chunks[i]) = key.chunk(i);
            *(uint4 *)chunk_at<DIM>(values, position - first, chunks[i]) = value.chunk(i);
            if (appends) {
                const uint32_t place = position % PAGE_POSITIONS * (DIM / 8) + chunks[i];
                *((uint4 *)find_kv_head(attend.keys, page, attend.kv_heads, block.kv_head, DIM, TYPE_F16)
                        .elements +
                    place) = key.chunk(i);
                *((uint4 *)find_kv_head(attend.values, page, attend.kv_heads, block.kv_head, DIM, TYPE_F16)
                        .elements +
                    place) = value.chunk(i);
            }
        }
    }
}

#endif
