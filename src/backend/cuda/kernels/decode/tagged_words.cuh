/* Tagged words, by which blocks exchange values (cuda_plan.h). Every wait has a timeout (waiting.cuh); after
 * a timeout it sets head.failed and returns a value that is not used. */
#ifndef CUDA_TAGGED_WORDS_CUH
#define CUDA_TAGGED_WORDS_CUH

#include "backend/cuda/kernels/decode/stream.cuh"

/* ---- Tagged words: floats whose last bits are replaced by the token's tag ---- */

enum : uint32_t { TAG_BITS = 3, TAG_MASK = (1u << TAG_BITS) - 1 };

/* The tag of token number `token`. All 32 bits identify the token; the last three repeat every six tokens,
 * and are never 0, as in memory that was not written. A word is of this token or of the one before, because
 * all blocks wait for each other at the end of a token. Even and odd tags alternate. */
KERNEL_INLINE uint32_t tag_of_token(uint32_t token)
{
    constexpr uint32_t DIFFERENT = TAG_MASK - 1;
    token &= 0x7fffffff;
    return (token / DIFFERENT << TAG_BITS) + token % DIFFERENT + 1;
}

/* Rounds to nearest, so that the tag fits; NaN stays NaN. */
KERNEL_INLINE uint32_t tagged_word(float value, uint32_t tag)
{
    const uint32_t nearest = __float_as_uint(value) + (TAG_MASK + 1) / 2;
    return ((value != value ? 0x7fc00000u : nearest) & ~TAG_MASK) | (tag & TAG_MASK);
}

KERNEL_INLINE bool has_tag(uint32_t word, uint32_t tag)
{
    return ((word ^ tag) & TAG_MASK) == 0;
}

KERNEL_INLINE float value_in_word(uint32_t word)
{
    return __uint_as_float(word & ~TAG_MASK);
}

/* Bypasses the L1 cache. */
KERNEL_INLINE uint32_t load_word(const uint32_t *word)
{
#ifdef CUDA_EMULATOR
    return *word;
#else
    uint32_t out;
    asm volatile("ld.relaxed.gpu.global.b32 %0, [%1];" : "=r"(out) : "l"(word) : "memory");
    return out;
#endif
}

KERNEL_INLINE uint4 load_four_words(const uint32_t *words)
{
#ifdef CUDA_EMULATOR
    return *(const uint4 *)words;
#else
    uint4 out;
    asm volatile("ld.relaxed.gpu.global.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out.x), "=r"(out.y), "=r"(out.z), "=r"(out.w)
                 : "l"(words)
                 : "memory");
    return out;
#endif
}

KERNEL_INLINE void store_word(uint32_t *word, float value, uint32_t tag)
{
#ifdef CUDA_EMULATOR
    *word = tagged_word(value, tag);
#else
    asm volatile("st.relaxed.gpu.global.b32 [%0], %1;" ::"l"(word), "r"(tagged_word(value, tag)) : "memory");
#endif
}

/* ---- 64-bit tagged words: 32 bits of any kind, and the whole tag above them ---- */

struct two_words64 {
    uint64_t first, second;
};

/* Each word is loaded whole: value and tag belong together. */
KERNEL_INLINE two_words64 load_two_words64(const uint64_t *words)
{
#ifdef CUDA_EMULATOR
    return {words[0], words[1]};
#else
    two_words64 out;
    asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];"
                 : "=l"(out.first), "=l"(out.second)
                 : "l"(words)
                 : "memory");
    return out;
#endif
}

KERNEL_INLINE uint64_t load_word64(const uint64_t *word)
{
#ifdef CUDA_EMULATOR
    return *word;
#else
    uint64_t out;
    asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(out) : "l"(word) : "memory");
    return out;
#endif
}

KERNEL_INLINE void store_word64(uint64_t *word, uint32_t bits, uint32_t tag)
{
    const uint64_t both = (uint64_t)tag << 32 | bits;
#ifdef CUDA_EMULATOR
    *word = both;
#else
    asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(word), "l"(both) : "memory");
#endif
}

KERNEL_INLINE bool has_whole_tag(uint64_t word, uint32_t tag)
{
    return (uint32_t)(word >> 32) == tag;
}

KERNEL_INLINE float value_in_word64(uint64_t word)
{
    return __uint_as_float((uint32_t)word);
}

/* ---- Waiting ---- */

/* Between two polls; false when the wait must end. */
KERNEL_INLINE bool keep_waiting(shared_head &head, wait_timeout &timeout)
{
#ifdef CUDA_EMULATOR
    __nanosleep(0);
#endif
    if (timeout.continues() && (timeout.polls % POLLS_PER_CLOCK || !head.failed))
        return true;
    head.failed = 1;
    return false;
}

/* The same for a whole warp: true while a lane has neither arrived nor given up. Lanes that gave up (`over`)
 * stay in the loop until all are done. */
KERNEL_INLINE bool warp_keeps_waiting(shared_head &head, wait_timeout &timeout, bool arrived, bool &over)
{
    if (__all_sync(~0u, arrived | over))
        return false;
    over |= !keep_waiting(head, timeout);
    return true;
}

/* Waits for the word at `at`, which has been loaded once as `seen`. */
KERNEL_INLINE float wait_for_word(shared_head &head, const uint32_t *at, uint32_t seen)
{
    wait_timeout timeout(head.machine);
    while (!has_tag(seen, head.tag) && keep_waiting(head, timeout))
        seen = load_word(at);
    return value_in_word(seen);
}

KERNEL_INLINE uint32_t wait_for_word64(shared_head &head, const uint64_t *at)
{
    uint64_t seen = load_word64(at);
    wait_timeout timeout(head.machine);
    while (!has_whole_tag(seen, head.tag) && keep_waiting(head, timeout))
        seen = load_word64(at);
    return (uint32_t)seen;
}

/* ---- Elements of a vector between phases: tagged words, or floats where nothing is tagged ---- */

KERNEL_INLINE void put_value(const shared_head &head, uint64_t to, uint32_t index, float value)
{
    if (head.machine.tagged)
        store_word((uint32_t *)to + index, value, head.tag);
    else
        __stcg((float *)to + index, value);
}

KERNEL_INLINE float take_value(shared_head &head, uint64_t from, uint32_t index)
{
    if (!head.machine.tagged)
        return __ldcg((const float *)from + index);
    const uint32_t *word = (const uint32_t *)from + index;
    return wait_for_word(head, word, load_word(word));
}

/* Four neighbouring elements, from a multiple of four on, being loaded. */
struct pending_four {
    const uint32_t *words;
    uint4 seen;
};

KERNEL_INLINE pending_four load_pending_four(uint64_t from, uint32_t at, bool on, uint32_t tag)
{
    const uint32_t nothing = tag & TAG_MASK;
    pending_four four = {(const uint32_t *)from + at, make_uint4(nothing, nothing, nothing, nothing)};
    if (on)
        four.seen = load_four_words(four.words);
    return four;
}

KERNEL_INLINE bool has_arrived(const pending_four &four, uint32_t tag)
{
    return (((four.seen.x ^ tag) | (four.seen.y ^ tag) | (four.seen.z ^ tag) | (four.seen.w ^ tag)) &
               TAG_MASK) == 0;
}

KERNEL_INLINE float4 values_of(const pending_four &four)
{
    return make_float4(value_in_word(four.seen.x), value_in_word(four.seen.y), value_in_word(four.seen.z),
        value_in_word(four.seen.w));
}

/* By a whole warp. */
KERNEL_INLINE float4 wait_for_four(shared_head &head, pending_four &four, uint32_t tag)
{
    wait_timeout timeout(head.machine);
    for (bool over = false; warp_keeps_waiting(head, timeout, has_arrived(four, tag), over);) {
        if (!has_arrived(four, tag))
            four.seen = load_four_words(four.words);
    }
    return values_of(four);
}

/* All but the first. */
template <int COUNT>
KERNEL_INLINE void wait_for_others(
    shared_head &head, pending_four (&fours)[COUNT], uint32_t tag, float4 (&out)[COUNT])
{
    wait_timeout timeout(head.machine);
    for (bool over = false;;) {
        bool arrived = true;
#pragma unroll
        for (int i = 1; i < COUNT; i++)
            arrived &= has_arrived(fours[i], tag);
        if (!warp_keeps_waiting(head, timeout, arrived, over))
            break;
#pragma unroll
        for (int i = 1; i < COUNT; i++) {
            if (!has_arrived(fours[i], tag))
                fours[i].seen = load_four_words(fours[i].words);
        }
    }
#pragma unroll
    for (int i = 1; i < COUNT; i++)
        out[i] = values_of(fours[i]);
}

/* COUNT times four elements, `step` columns apart, by a whole warp: all loads are in flight before the first
 * wait. Columns beyond the last are zeros; there are a multiple of four. */
template <int COUNT>
KERNEL_INLINE void take_fours(
    shared_head &head, uint64_t from, uint32_t first, uint32_t step, uint32_t columns, float4 (&out)[COUNT])
{
    if (!head.machine.tagged) {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            out[i] = first + i * step < columns
                         ? __ldcg((const float4 *)((const float *)from + first + i * step))
                         : make_float4(0, 0, 0, 0);
        return;
    }
    const uint32_t tag = head.tag;
    pending_four fours[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        fours[i] = load_pending_four(from, first + i * step, first + i * step < columns, tag);
    out[0] = wait_for_four(head, fours[0], tag);
    if constexpr (COUNT > 1) /* most have arrived by now: the others are loaded again together */
        wait_for_others(head, fours, tag, out);
}

KERNEL_INLINE float4 take_four_alone(shared_head &head, uint64_t from, uint32_t first)
{
    if (!head.machine.tagged)
        return __ldcg((const float4 *)((const float *)from + first));
    pending_four four = load_pending_four(from, first, true, head.tag);
    wait_timeout timeout(head.machine);
    while (!has_arrived(four, head.tag) && keep_waiting(head, timeout))
        four.seen = load_four_words(four.words);
    return values_of(four);
}

/* ---- Whole vectors, to and from shared memory ---- */

/* Loads are consecutive in the table, so that all are in flight at once; a barrier must follow. */
template <int THREADS>
KERNEL_INLINE void load_values(
    shared_head &head, const cuda_load *loads, uint32_t count, float *vectors, const row_context &row)
{
    uint32_t begin = 0, index = 0, end = 0;
    for (uint32_t at = threadIdx.x * 4;; at += THREADS * 4) {
        while (at >= end) {
            if (index == count)
                return;
            begin = end;
            end += ((row.count ? row.count : loads[index].columns) + 3) / 4 * 4;
            index++;
        }
        const cuda_load &load = loads[index - 1];
        const uint32_t columns = row.count ? row.count : load.columns, first = at - begin;
        if ((columns | row.first) % 4 == 0) {
            *(float4 *)(vectors + load.place + first) = take_four_alone(head, load.from, row.first + first);
        } else {
            for (uint32_t i = first; i < min(first + 4, columns); i++)
                vectors[load.place + i] = take_value(head, load.from, row.first + i);
        }
    }
}

template <int THREADS>
KERNEL_INLINE void store_values(const shared_head &head, const cuda_store *stores, uint32_t count,
    const float *vectors, const row_context &row)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t columns = row.count ? row.count : stores[i].columns;
        for (uint32_t j = threadIdx.x; j < columns; j += THREADS)
            put_value(head, stores[i].to, row.first + j, vectors[stores[i].place + j]);
    }
}

#endif
