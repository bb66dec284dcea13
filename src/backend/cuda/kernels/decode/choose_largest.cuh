/*
 * Greedy sampling without a grid barrier: each block publishes the largest of the logits that it has
 * computed, reads the results of all other blocks, and finds the largest of all. A block that has read them
 * knows that all blocks have reached the end of the token, so the next token needs no other barrier. A block
 * that failed publishes nothing, so that no block reaches the end of that token.
 */
#ifndef CUDA_CHOOSE_LARGEST_CUH
#define CUDA_CHOOSE_LARGEST_CUH

#include "backend/cuda/kernels/common/sample_parts.cuh"
#include "backend/cuda/kernels/decode/tagged_words.cuh"

KERNEL_INLINE sample_pair largest_of_warp(sample_pair pair)
{
    const uint32_t order = __reduce_max_sync(~0u, (uint32_t)(pair >> 32));
    const uint32_t rest = __reduce_max_sync(~0u, (uint32_t)(pair >> 32) == order ? (uint32_t)pair : 0);
    return (sample_pair)order << 32 | rest;
}

/* The largest logit of a warp's rows of the output matrix; by whole warps. */
KERNEL_INLINE void note_largest(shared_head &head, sample_pair pair)
{
    const sample_pair largest = largest_of_warp(pair);
    if (this_thread() % 32 == 0)
        head.largest[this_thread() / 32] = largest;
}

/* The pair of a logit that lies at `at`. */
KERNEL_INLINE sample_pair pair_at(const shared_head &head, uint64_t at, float logit)
{
    return sample_pair_of(logit, (uint32_t)((at - head.machine.logits) / sizeof(float)));
}

KERNEL_INLINE cuda_sample_row &sampled_row(const shared_head &head)
{
    return *(cuda_sample_row *)head.machine.sampling;
}

/* The largest of 32 blocks. */
KERNEL_INLINE sample_pair take_largest(shared_head &head, uint32_t block)
{
    const uint32_t tag = head.tag;
    const uint64_t nothing = (uint64_t)tag << 32, *words = sampled_row(head).largest[tag % 2][block];
    const bool on = block < gridDim.x;
    two_words64 seen = {nothing, nothing};
    wait_timeout timeout(head.machine);
    if (on)
        seen = load_two_words64(words);
    for (bool over = false;;) {
        const bool arrived = has_whole_tag(seen.first, tag) & has_whole_tag(seen.second, tag);
        if (!warp_keeps_waiting(head, timeout, arrived, over))
            break;
        if (!arrived)
            seen = load_two_words64(words);
    }
    return largest_of_warp((uint64_t)(uint32_t)seen.first << 32 | (uint32_t)seen.second);
}

/* Angles of a position, by all workers; the last ones begin, because the first have more work. Not inlined:
 * there are two callers. */
static __device__ __noinline__ void prepare_angles(uint32_t position)
{
    DYNAMIC_SHARED(shared);
    const cuda_machine &machine = ((const shared_head *)shared)->machine;
    float *angles = (float *)(shared + machine.angles_at);
    prepare_ropes(machine, position, angles, angles + machine.rope_count * machine.rope_pairs,
        CUDA_WORKERS - 1 - this_thread(), CUDA_WORKERS);
}

/* Whether the host has cancelled: the tagged word of the block that read its cancel flag. */
KERNEL_INLINE bool is_cancelled(shared_head &head)
{
    return wait_for_word64(head, &sampled_row(head).cancelled[head.tag % 2]);
}

/* By all compute warps, at the end of a token. The angles of the next token are computed while the words of
 * other blocks arrive. */
static __device__ __noinline__ void choose_largest()
{
    DYNAMIC_SHARED(shared);
    shared_head &head = *(shared_head *)shared;
    const uint32_t thread = this_thread(), lane = thread % 32, warp = thread / 32, tag = head.tag;
    const uint32_t warps = (gridDim.x + 31) / 32;
    if (warp == 0) {
        const sample_pair own = largest_of_warp(lane <= CUDA_WARPS ? head.largest[lane] : 0);
        uint64_t *words = sampled_row(head).largest[tag % 2][blockIdx.x];
        if (lane == 0 && !head.failed) {
            __threadfence(); /* recurrent states, which the next token reads, are not tagged */
            store_word64(words, (uint32_t)(own >> 32), tag);
            store_word64(words + 1, (uint32_t)own, tag);
        }
    }
    sync_threads<CUDA_WORKERS>(); /* head.largest is free again */
    prepare_angles(head.row.position + 1);
    if (thread == CUDA_WORKERS / 2)
        head.tokens.count.cancelled = is_cancelled(head);
    if (warp < warps) {
        const sample_pair largest = take_largest(head, thread);
        __threadfence();
        if (lane == 0)
            head.largest[warp] = largest;
    }
    sync_threads<CUDA_WORKERS>();
    if (warp == 0) {
        const sample_pair all = largest_of_warp(lane < warps ? head.largest[lane] : 0);
        if (lane == 0)
            head.chosen = sample_can_be_chosen(all) ? (int32_t)sample_id(all) : CUDA_SAMPLE_NO_ID;
    }
}
static_assert(CUDA_SAMPLE_PARTS <= CUDA_WORKERS, "a thread for each block");

#endif
