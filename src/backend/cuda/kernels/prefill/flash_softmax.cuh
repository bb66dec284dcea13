/*
 * The softmax of attention on tensor cores: queries as halves, and weights from scores. A warp has 16
 * queries, of which a thread has two (rows g and g + 8 of a product), and of KEYS keys every fourth pair.
 *
 * Keys and values are halves and stay what they are. Queries and weights are cut into two halves each, high
 * and low, so that next to nothing is lost; before that queries are multiplied by a power of two so that the
 * low halves do not fall below what a half can hold, and weights by 2^10.
 */
#ifndef CUDA_FLASH_SOFTMAX_CUH
#define CUDA_FLASH_SOFTMAX_CUH

#include "backend/cuda/kernels/prefill/flash.cuh"

#define LOG2_E       1.44269504f
#define WEIGHT_SHIFT 10.0f /* weights are multiplied by 2^10, and so is their sum */

KERNEL_INLINE uint32_t half_pair(float low, float high)
{
    const __half2 pair = __floats2half2_rn(low, high);
    return *(const uint32_t *)&pair;
}

/* Two floats as sums of two halves each. */
struct cut_pair {
    uint32_t high, low;
};

KERNEL_INLINE cut_pair cut(float first, float second)
{
    const __half2 high = __floats2half2_rn(first, second);
    const float2 back = __half22float2(high);
    return {*(const uint32_t *)&high, half_pair(first - back.x, second - back.y)};
}

/* Sets the top bit of `found` for a half that is NaN or infinite: adding to an exponent of all ones carries.
 */
KERNEL_INLINE void find_bad_halves(uint4 words, uint32_t &found)
{
    found |= (words.x & 0x7c007c00) + 0x04000400;
    found |= (words.y & 0x7c007c00) + 0x04000400;
    found |= (words.z & 0x7c007c00) + 0x04000400;
    found |= (words.w & 0x7c007c00) + 0x04000400;
}

/* ---- Queries ---- */

/* Rows g and g + 8 as fragments; scores are to be multiplied by `unit` of their row. */
template <int DIM> struct flash_queries {
    uint32_t high[DIM / 16][4], low[DIM / 16][4];
    float unit[2];
};

/* A power of two that brings the largest magnitude to 512 .. 1024. */
KERNEL_INLINE float query_factor(float largest)
{
    const uint32_t exponent = __float_as_uint(largest) >> 23;
    return exponent == 255 || largest == 0 ? 1 : __uint_as_float(min(263 - exponent, 253u) << 23);
}

template <int DIM>
KERNEL_INLINE void load_queries(
    const cuda_attend &attend, const flash_query (&queries)[2], flash_queries<DIM> &out)
{
    const uint32_t column = threadIdx.x % 4 * 2;
    float2 parts[DIM / 8][2]; /* [eight columns][row] */
    float largest[2] = {};
#pragma unroll
    for (int i = 0; i < DIM / 8; i++) {
#pragma unroll
        for (int row = 0; row < 2; row++) {
            parts[i][row] = {0, 0};
            if (queries[row].on && i * 8 < attend.head_dim)
                parts[i][row] =
                    __ldcg((const float2 *)((const float *)attend.q + queries[row].at + i * 8 + column));
        }
    }
#pragma unroll
    for (int i = 0; i < DIM / 8; i++) {
#pragma unroll
        for (int row = 0; row < 2; row++) {
            float2 &q = parts[i][row];
            q.x *= attend.scale;
            q.y *= attend.scale;
            largest[row] = fmaxf(largest[row], fmaxf(fabsf(q.x), fabsf(q.y)));
        }
    }
    float factor[2];
#pragma unroll
    for (int row = 0; row < 2; row++) {
        largest[row] = fmaxf(largest[row], __shfl_xor_sync(~0u, largest[row], 1));
        largest[row] = fmaxf(largest[row], __shfl_xor_sync(~0u, largest[row], 2));
        factor[row] = query_factor(largest[row]);
        out.unit[row] = 1 / factor[row];
    }
#pragma unroll
    for (int i = 0; i < DIM / 8; i++) {
#pragma unroll
        for (int row = 0; row < 2; row++) {
            const cut_pair pair = cut(parts[i][row].x * factor[row], parts[i][row].y * factor[row]);
            out.high[i / 2][i % 2 * 2 + row] = pair.high;
            out.low[i / 2][i % 2 * 2 + row] = pair.low;
        }
    }
}

/* ---- Weights ---- */

/* The running softmax of a warp: rows g and g + 8. */
template <int DIM> struct flash_sums {
    float output[DIM / 8][4], maximum[2], sum[2]; /* sum: of this lane's keys */
};

template <int KEYS>
KERNEL_INLINE void cap_scores(float cap, const float (&unit)[2], float (&scores)[KEYS / 8][4])
{
#pragma unroll
    for (int j = 0; j < KEYS / 8; j++) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            scores[j][i] = capped(cap, scores[j][i] * unit[i / 2]);
    }
}

/* Scores of positions that their query does not see become minus infinity. Without branches: there would be
 * two for each score. */
template <int KEYS, int ROWS>
KERNEL_INLINE void hide_unseen(const flash_query (&queries)[2], uint32_t first, float (&scores)[KEYS / 8][4])
{
    const uint32_t column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int row = 0; row < ROWS; row++) {
        const uint32_t before = first + column - queries[row].first,
                       seen = queries[row].position - queries[row].first;
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float &score = scores[j][row * 2 + i];
                score = before + (j * 8 + i) <= seen ? score : -__int_as_float(0x7f800000);
            }
        }
    }
}

/* NaN for keys that are bad, where they are seen. */
template <int KEYS>
KERNEL_INLINE void spoil_scores(const uint32_t (&bad)[KEYS / 32], float (&scores)[KEYS / 8][4])
{
    const uint32_t column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int j = 0; j < KEYS / 8; j++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (bad[j / 4] >> (j % 4 * 8 + column + i % 2) & 1 && scores[j][i] != -__int_as_float(0x7f800000))
                scores[j][i] = __int_as_float(0x7fffffff);
        }
    }
}

/* Scores become weights, NaN for keys that are `bad`; what was added up before is put in proportion. With one
 * of the ROWS, those of rows g + 8 are left as they are. Units are powers of two, so that it does not matter
 * whether scores are multiplied by them before their maximum is found, or when it is subtracted. */
template <int DIM, int KEYS, int ROWS = 2>
KERNEL_INLINE void weigh(float cap, const flash_query (&queries)[2], const float (&unit)[2], uint32_t first,
    const uint32_t (&bad)[KEYS / 32], bool seen_by_all, float (&scores)[KEYS / 8][4], flash_sums<DIM> &sums)
{
    const float infinity = __int_as_float(0x7f800000);
    float largest[2] = {-infinity, -infinity}, factor[2], base[2];
    if (cap != 0)
        cap_scores<KEYS>(cap, unit, scores);
    const float units[2] = {cap == 0 ? unit[0] : 1, cap == 0 ? unit[1] : 1};
    if (!seen_by_all)
        hide_unseen<KEYS, ROWS>(queries, first, scores);
    uint32_t any_bad = 0;
#pragma unroll
    for (int i = 0; i < KEYS / 32; i++)
        any_bad |= bad[i];
    if (any_bad)
        spoil_scores<KEYS>(bad, scores);
#pragma unroll
    for (int j = 0; j < KEYS / 8; j++) {
#pragma unroll
        for (int i = 0; i < 2 * ROWS; i++)
            largest[i / 2] = fmaxf(largest[i / 2], scores[j][i]);
    }
#pragma unroll
    for (int row = 0; row < ROWS; row++) {
        largest[row] = fmaxf(largest[row], __shfl_xor_sync(~0u, largest[row], 1));
        largest[row] = fmaxf(largest[row], __shfl_xor_sync(~0u, largest[row], 2));
        const float maximum = fmaxf(sums.maximum[row], largest[row] * units[row]);
        base[row] = maximum == -infinity ? 0 : maximum; /* nothing seen yet */
        factor[row] = power_of_two((sums.maximum[row] - base[row]) * LOG2_E);
        sums.maximum[row] = maximum;
        sums.sum[row] *= factor[row];
    }
#pragma unroll
    for (int j = 0; j < KEYS / 8; j++) {
#pragma unroll
        for (int i = 0; i < 2 * ROWS; i++) {
            const float distance = fmaf(scores[j][i], units[i / 2], -base[i / 2]);
            scores[j][i] = power_of_two(fmaf(distance, LOG2_E, WEIGHT_SHIFT));
            sums.sum[i / 2] += scores[j][i];
        }
    }
#pragma unroll
    for (int j = 0; j < DIM / 8; j++) {
#pragma unroll
        for (int i = 0; i < 2 * ROWS; i++)
            sums.output[j][i] *= factor[i / 2];
    }
}

#endif
