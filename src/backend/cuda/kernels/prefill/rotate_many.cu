/*
 * Queries and keys of many tokens rotated, keys and values put into a cache of halves.
 *
 *   salvo_rotate(machine, rotate)   a block of ROTATE_THREADS for each row
 *
 * This is what salvo_rows does before attention, without looking anything up.
 */
#include "backend/cuda/cuda_batch.h"
#include "backend/cuda/kernels/common/rows.cuh"
#include "backend/cuda/kernels/common/tensor_cores.cuh"

/* The indices of a pair of elements in its head: adjacent, or half a head apart. */
struct pair_place {
    uint32_t first, second;
};

KERNEL_INLINE pair_place find_pair(uint32_t pair, uint32_t pairs, bool halves)
{
    return halves ? pair_place{pair, pair + pairs} : pair_place{2 * pair, 2 * pair + 1};
}

extern "C" __global__ void __launch_bounds__(ROTATE_THREADS)
    salvo_rotate(const cuda_machine *machine, const __grid_constant__ cuda_rotate rotate)
{
    const uint32_t row = blockIdx.x, head_dim = rotate.head_dim, pairs = head_dim / 2,
                   heads = rotate.heads + rotate.kv_heads, rope_pairs = __ldg(&machine->rope_pairs);
    const uint64_t step = __ldg(&machine->step),
                   angles = (uint64_t)row * __ldg(&machine->rope_count) * rope_pairs;
    const cuda_row *rows = (const cuda_row *)(step + __ldg(&machine->rows_at));
    const cuda_run *runs = (const cuda_run *)(step + __ldg(&machine->runs_at));
    const uint32_t *pages = (const uint32_t *)(step + __ldg(&machine->pages_at));
    const uint32_t pages_per_slot = __ldg(&machine->pages_per_slot);
    const float *cosines = (const float *)__ldg(&machine->cosines) + angles,
                *sines = (const float *)__ldg(&machine->sines) + angles;
    invite_next_launch();
    uint32_t position = 0, page = 0;
    bool is_live = row < __ldcg(&((const cuda_step *)step)->token_count);
    if (is_live) {
        const uint4 place = __ldcg((const uint4 *)(rows + row)); /* run, slot, position */
        position = place.z;
        page = __ldcg(pages + (uint64_t)place.x * pages_per_slot + position / PAGE_POSITIONS);
        is_live = __ldcg(&runs[place.x].count) != 0;
    }
    wait_for_last_launch();
    if (!is_live)
        return;

        /* Heads of queries, of keys, of values. */
#pragma unroll 2
    for (uint32_t i = threadIdx.x; i < (heads + rotate.kv_heads) * pairs; i += ROTATE_THREADS) {
        const uint32_t head = i / pairs, pair = i - head * pairs;
        const bool is_query = head < rotate.heads, is_value = head >= heads;
        const uint32_t own = is_query ? head : is_value ? head - heads : head - rotate.heads;
        const pair_place at = find_pair(pair, pairs, rotate.halves && !is_value);
        float *x = (float *)(is_query   ? rotate.q
                             : is_value ? rotate.v
                                        : rotate.k) +
                   ((uint64_t)row * (is_query ? rotate.heads : rotate.kv_heads) + own) * head_dim;
        const float left = __ldcg(x + at.first), right = __ldcg(x + at.second);
        float first = left, second = right;
        if (!is_value) {
            const uint32_t angle = (is_query ? rotate.rope_q : rotate.rope_k) * rope_pairs + pair;
            const float cosine = __ldcg(cosines + angle), sine = __ldcg(sines + angle);
            first = fmaf(left, cosine, -(right * sine));
            second = fmaf(right, cosine, left * sine);
        }
        if (is_query) {
            __stcg(x + at.first, first);
            __stcg(x + at.second, second);
        } else {
            uint16_t *to = (uint16_t *)find_kv_head(is_value ? rotate.values : rotate.keys, page,
                               rotate.kv_heads, own, head_dim, TYPE_F16)
                               .elements +
                           position % PAGE_POSITIONS * head_dim;
            to[at.first] = float_to_half_bits(first);
            to[at.second] = float_to_half_bits(second);
        }
    }
}
