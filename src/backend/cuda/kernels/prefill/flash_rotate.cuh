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

/* Four pairs through a rope: (left, right) if `halves`, else neighbours. */
KERNEL_INLINE void rotate_four(float4 &left, float4 &right, float4 cosines, float4 sines, bool halves)
{
    if (halves) {
        rotate_pair(left.x, right.x, cosines.x, sines.x);
        rotate_pair(left.y, right.y, cosines.y, sines.y);
        rotate_pair(left.z, right.z, cosines.z, sines.z);
        rotate_pair(left.w, right.w, cosines.w, sines.w);
    } else {
        rotate_pair(left.x, left.y, cosines.x, sines.x);
        rotate_pair(left.z, left.w, cosines.y, sines.y);
        rotate_pair(right.x, right.y, cosines.z, sines.z);
        rotate_pair(right.z, right.w, cosines.w, sines.w);
    }
}

/* The queries of a block, as chunk_at places them. */
template <int DIM> struct shared_queries {
    alignas(128) uint8_t high[FLASH_QUERIES * DIM * 2], low[FLASH_QUERIES * DIM * 2];
    float unit[FLASH_QUERIES];

    /* Fragments of 16 columns, by a warp. */
    KERNEL_INLINE void read(int k, uint32_t (&high_words)[4], uint32_t (&low_words)[4])
    {
        const uint32_t lane = threadIdx.x % 32;
        load_matrices(chunk_at<DIM>(high, lane % 16, 2 * k + lane / 16), high_words);
        load_matrices(chunk_at<DIM>(low, lane % 16, 2 * k + lane / 16), low_words);
    }

    KERNEL_INLINE void read_units(float (&out)[2]) const
    {
        out[0] = unit[threadIdx.x % 32 / 4];
        out[1] = unit[threadIdx.x % 32 / 4 + 8];
    }
};
static_assert(sizeof(shared_queries<64>) == FLASH_SHARED_QUERIES(64), "as the host counts them");

/* A query of a block, by the eight threads with its number: each has two fours of columns, or four. All
 * queries are loaded once, not by each warp: in a step of few tokens a block lasts as long as the
 * instructions of one warp. */
template <int DIM> struct query_columns {
    static constexpr uint32_t units = DIM / 64; /* pairs of fours of a thread */
    const bool on, halves;
    const float *q, *cosine, *sine; /* of this thread's first unit */
    float4 left[units], right[units], cosines[units], sines[units];

    KERNEL_INLINE query_columns(
        const cuda_attend &attend, const flash_angles &angles, const flash_query &query)
        : on(query.on), halves(attend.halves != 0),
          q((const float *)attend.q + query.at + left_column(0, halves))
    {
        const uint64_t angle = angles.at(query.row, attend.rope_q) + threadIdx.x % 8 * 4;
        cosine = angles.cosines + angle;
        sine = angles.sines + angle;
    }

    /* The first column of the left four of unit i, and the distance to the right four. */
    static KERNEL_INLINE uint32_t left_column(uint32_t i, bool halves)
    {
        return (threadIdx.x % 8 + 8 * i) * (halves ? 4 : 8);
    }
    static KERNEL_INLINE uint32_t to_right(bool halves) { return halves ? DIM / 2 : 4; }

    KERNEL_INLINE void load()
    {
#pragma unroll
        for (uint32_t i = 0; i < units; i++) {
            left[i] = right[i] = cosines[i] = sines[i] = make_float4(0, 0, 0, 0);
            if (on) {
                const float *own = q + i * (halves ? 32 : 64);
                left[i] = __ldcg((const float4 *)own);
                right[i] = __ldcg((const float4 *)(own + to_right(halves)));
                cosines[i] = __ldcg((const float4 *)(cosine + 32 * i));
                sines[i] = __ldcg((const float4 *)(sine + 32 * i));
            }
        }
    }

    /* As load_queries does. */
    KERNEL_INLINE void store(float scale, uint32_t query, shared_queries<DIM> &out)
    {
        float largest = 0;
#pragma unroll
        for (uint32_t i = 0; i < units; i++) {
            rotate_four(left[i], right[i], cosines[i], sines[i], halves);
            largest = fmaxf(largest, fmaxf(scale_four(left[i], scale), scale_four(right[i], scale)));
        }
#pragma unroll
        for (int distance = 1; distance < 8; distance *= 2)
            largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, distance));
        const float factor = query_factor(largest);
        if (threadIdx.x % 8 == 0)
            out.unit[query] = 1 / factor;
#pragma unroll
        for (uint32_t i = 0; i < units; i++) {
            store_four(left[i], factor, query, left_column(i, halves), out);
            store_four(right[i], factor, query, left_column(i, halves) + to_right(halves), out);
        }
    }

  private:
    /* The largest magnitude afterwards. */
    static KERNEL_INLINE float scale_four(float4 &x, float scale)
    {
        x.x *= scale;
        x.y *= scale;
        x.z *= scale;
        x.w *= scale;
        return fmaxf(fmaxf(fabsf(x.x), fabsf(x.y)), fmaxf(fabsf(x.z), fabsf(x.w)));
    }

    static KERNEL_INLINE void store_four(
        float4 x, float factor, uint32_t query, uint32_t column, shared_queries<DIM> &out)
    {
        const cut_pair first = cut(x.x * factor, x.y * factor), second = cut(x.z * factor, x.w * factor);
        *(uint2 *)(chunk_at<DIM>(out.high, query, column / 8) + column % 8 * 2) =
            make_uint2(first.high, second.high);
        *(uint2 *)(chunk_at<DIM>(out.low, query, column / 8) + column % 8 * 2) =
            make_uint2(first.low, second.low);
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
