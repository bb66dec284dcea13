/*
 * Hardware operations of backend/cuda/kernels/common/tensor_cores.cuh on the emulator. Copies arrive at once,
 * or as late as allowed: when a thread waits for them, so that a read without a wait finds the old contents,
 * and data that others still read is overwritten. Threads that waited for copies sometimes pause, so that
 * others that do not wait for them get ahead.
 */
#ifndef TESTS_CUDA_EMULATED_TENSOR_CORES_H
#define TESTS_CUDA_EMULATED_TENSOR_CORES_H

#include <deque>
#include <unordered_map>

/* One of `count`, always the same ones in the same order. */
inline unsigned emulated_chance(unsigned count)
{
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % count;
}

/* Copies that a thread has begun and not yet waited for, in groups; they belong to the launch that used them
 * last. */
template <class Item> struct emulated_queue {
    unsigned launch = 0;
    std::vector<Item> open;
    std::deque<std::vector<Item>> groups;

    static emulated_queue &own()
    {
        static std::unordered_map<unsigned, emulated_queue> all;
        emulated_queue &own = all[blockIdx.x << 10 | threadIdx.x];
        if (own.launch != emulator_launches)
            own = {emulator_launches, {}, {}};
        return own;
    }

    static void commit()
    {
        emulated_queue &queue = own();
        queue.groups.push_back(std::move(queue.open));
        queue.open.clear();
    }

    /* Until all groups but the last `left` are done. */
    static void wait(size_t left, void (*work)(const Item &))
    {
        emulated_queue &queue = own();
        for (; queue.groups.size() > left; queue.groups.pop_front()) {
            for (const Item &tile : queue.groups.front())
                work(tile);
        }
    }
};

/* ---- Copies ---- */

struct emulated_copy {
    void *to;
    const void *from; /* nullptr: zeros */
};

inline void do_copy(const emulated_copy &copy)
{
    if (copy.from)
        memcpy(copy.to, copy.from, 16);
    else
        memset(copy.to, 0, 16);
}

inline void copy_async(void *to, const void *from, bool on = true)
{
    const emulated_copy copy = {to, on ? from : nullptr};
    if (emulated_chance(2))
        do_copy(copy);
    else
        emulated_queue<emulated_copy>::own().open.push_back(copy);
}

inline void copy_commit()
{
    emulated_queue<emulated_copy>::commit();
}

template <int LEFT> inline void copy_wait()
{
    emulated_queue<emulated_copy>::wait(LEFT, do_copy);
    for (unsigned i = emulated_chance(256) ? 0 : 64; i > 0; i--)
        __nanosleep(0);
}

inline void load_shared_where(bool on, const void *from, uint4 &to)
{
    if (on)
        to = *(const uint4 *)from;
}

inline void prefetch(const void *) {}
inline void invite_next_launch() {}
inline void wait_for_last_launch() {}

/* ---- Fragments ---- */

/* The registers of all lanes, [lane]. */
struct emulated_words {
    uint32_t words[32][2];
};

inline emulated_words gather_words(uint32_t first, uint32_t second)
{
    emulated_words all;
    const uint64_t *values = emulator_exchange(~0u, (uint64_t)second << 32 | first);
    for (int i = 0; i < 32; i++) {
        all.words[i][0] = (uint32_t)values[i];
        all.words[i][1] = (uint32_t)(values[i] >> 32);
    }
    return all;
}

inline void load_matrices(const void *row, uint32_t (&out)[4])
{
    const unsigned lane = threadIdx.x % 32;
    const uint64_t *rows = emulator_exchange(~0u, row);
    for (unsigned i = 0; i < 4; i++)
        out[i] = emulator_value<const uint32_t *>(rows, 8 * i + lane / 4)[lane % 4];
    __syncwarp(); /* all have read before anybody goes on */
}

inline void load_matrices_transposed(const void *row, uint32_t (&out)[4])
{
    const unsigned lane = threadIdx.x % 32;
    const uint64_t *rows = emulator_exchange(~0u, row);
    for (unsigned i = 0; i < 4; i++) {
        const unsigned at = 8 * i + lane % 4 * 2;
        out[i] = emulator_value<const uint16_t *>(rows, at)[lane / 4] |
                 (uint32_t)emulator_value<const uint16_t *>(rows, at + 1)[lane / 4] << 16;
    }
    __syncwarp();
}

inline uint32_t transposed(uint32_t word)
{
    const unsigned lane = threadIdx.x % 32, shift = lane / 4 % 2 * 16;
    const emulated_words all = gather_words(word, 0);
    const unsigned from = lane % 4 * 8 + lane / 8; /* word g / 2 of rows 2c and 2c + 1 */
    return (all.words[from][0] >> shift & 0xffff) | (all.words[from + 4][0] >> shift & 0xffff) << 16;
}

/* ---- Products ---- */

/*
 * Fragments by the definition of the instruction: a's register i of lane 4g + c has `each` elements of row g
 * (i even) or g + 8, b's register i has `each` elements of column g; both begin at element each * c of half i
 * / 2 (b: i) of K, which has 4 * each elements. element(word, e) takes one out.
 */
template <class Sum, class Element>
inline void multiply_fragments(const emulated_words (&a)[2], const emulated_words &b, unsigned halves,
    unsigned each, Element element, Sum (&sum)[4])
{
    const unsigned lane = threadIdx.x % 32;
    for (unsigned i = 0; i < 4; i++) {
        const unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        for (unsigned half = 0; half < halves; half++) {
            for (unsigned c = 0; c < 4; c++) {
                for (unsigned e = 0; e < each; e++)
                    sum[i] += element(a[half].words[row % 8 * 4 + c][row / 8], e) *
                              element(b.words[column * 4 + c][half], e);
            }
        }
    }
}

inline int emulated_byte(uint32_t word, unsigned e)
{
    return (int8_t)(word >> 8 * e);
}

inline double emulated_half(uint32_t word, unsigned e)
{
    return f16_to_f32((uint16_t)(word >> 16 * e));
}

inline double emulated_bfloat(uint32_t word, unsigned e)
{
    return bf16_to_f32((uint16_t)(word >> 16 * e));
}

inline double emulated_short_float(uint32_t word, unsigned)
{
    return f32_from_bits(word & 0xffffe000);
}

inline void multiply_bytes(
    const emulated_words (&a)[2], const emulated_words &b, unsigned halves, float (&out)[4])
{
    int sum[4] = {};
    multiply_fragments(a, b, halves, 4, emulated_byte, sum);
    for (int i = 0; i < 4; i++)
        out[i] = __int_as_float(sum[i] + SUM_BITS) - SUM_FLOAT;
}

inline void multiply_bytes_32(const uint32_t (&a)[4], uint32_t b0, uint32_t b1, float (&out)[4])
{
    const emulated_words fragments[2] = {gather_words(a[0], a[1]), gather_words(a[2], a[3])};
    multiply_bytes(fragments, gather_words(b0, b1), 2, out);
}

inline void multiply_bytes_16(uint32_t a0, uint32_t a1, uint32_t b, float (&out)[4])
{
    const emulated_words fragments[2] = {gather_words(a0, a1), {}};
    multiply_bytes(fragments, gather_words(b, 0), 1, out);
}

/* The same, in double. Each element is taken out once: conversions take longest. */
template <unsigned EACH, class Element>
inline void multiply_floats(uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1,
    Element element, float (&sum)[4])
{
    const unsigned lane = threadIdx.x % 32;
    double a[2][8 * EACH], b[2][8 * EACH]; /* two rows and two columns, in the order of K */
    const auto take = [&](uint32_t word, unsigned place, double *to) {
        for (unsigned e = 0; e < EACH; e++)
            to[place * EACH + e] = element(word, e);
    };
    for (unsigned half = 0; half < 2; half++) {
        const uint64_t *words =
            emulator_exchange(~0u, half ? (uint64_t)a3 << 32 | a2 : (uint64_t)a1 << 32 | a0);
        for (unsigned c = 0; c < 4; c++) {
            for (unsigned row = 0; row < 2; row++)
                take((uint32_t)(words[lane / 4 * 4 + c] >> 32 * row), 4 * half + c, a[row]);
        }
    }
    const uint64_t *words = emulator_exchange(~0u, (uint64_t)b1 << 32 | b0);
    for (unsigned c = 0; c < 4; c++) {
        for (unsigned half = 0; half < 2; half++) {
            for (unsigned column = 0; column < 2; column++)
                take(
                    (uint32_t)(words[(lane % 4 * 2 + column) * 4 + c] >> 32 * half), 4 * half + c, b[column]);
        }
    }
    for (unsigned i = 0; i < 4; i++) {
        double total = sum[i];
        for (unsigned k = 0; k < 8 * EACH; k++)
            total += a[i / 2][k] * b[i % 2][k];
        sum[i] = (float)total;
    }
}

inline void multiply_halves(
    uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1, float (&sum)[4])
{
    multiply_floats<2>(
        a0, a1, a2, a3, b0, b1, [](uint32_t word, unsigned e) { return emulated_half(word, e); }, sum);
}

inline void multiply_bfloats(
    uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1, float (&sum)[4])
{
    multiply_floats<2>(
        a0, a1, a2, a3, b0, b1, [](uint32_t word, unsigned e) { return emulated_bfloat(word, e); }, sum);
}

inline void multiply_short_floats(
    uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1, float (&sum)[4])
{
    multiply_floats<1>(
        a0, a1, a2, a3, b0, b1, [](uint32_t word, unsigned e) { return emulated_short_float(word, e); }, sum);
}

#endif
