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

/* ---- Matrices of 16-bit elements ---- */

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
    const uint64_t *words = emulator_exchange(~0u, word);
    const unsigned from = lane % 4 * 8 + lane / 8; /* word g / 2 of rows 2c and 2c + 1 */
    return ((uint32_t)words[from] >> shift & 0xffff) | ((uint32_t)words[from + 4] >> shift & 0xffff) << 16;
}

/* ---- Products ---- */

/* The registers of a lane: two rows of the first factor, in halves of K, and a column of the second. */
struct emulated_registers {
    uint32_t a[4], b[2];
};

/* The factors of a product of 16 rows and 8 columns. Each element is converted once for all lanes. */
template <class Number, unsigned DEPTH> struct emulated_factors {
    typedef Number columns __attribute__((vector_size(8 * sizeof(Number))));
    Number a[16][DEPTH];
    columns b[DEPTH];
};

/*
 * Fragments by the definition of the instruction: a's register i of lane 4g + c has EACH elements of row g
 * (i even) or g + 8, b's register i has EACH elements of column g; both begin at element EACH * c of half i
 * / 2 (b: i) of K, which has 4 * EACH elements. element(word, e) takes one out.
 */
template <unsigned EACH, class Number, unsigned DEPTH, class Element>
inline void take_rows(
    const uint32_t (&words)[4], unsigned lane, Element element, emulated_factors<Number, DEPTH> &to)
{
    for (unsigned i = 0; i < DEPTH / EACH / 2; i++) {
        for (unsigned e = 0; e < EACH; e++)
            to.a[lane / 4 + i % 2 * 8][(i / 2 * 4 + lane % 4) * EACH + e] = element(words[i], e);
    }
}

template <unsigned EACH, class Number, unsigned DEPTH, class Element>
inline void take_column(
    const uint32_t (&words)[2], unsigned lane, Element element, emulated_factors<Number, DEPTH> &to)
{
    for (unsigned i = 0; i < DEPTH / EACH / 4; i++) {
        for (unsigned e = 0; e < EACH; e++)
            to.b[(i * 4 + lane % 4) * EACH + e][lane / 4] = element(words[i], e);
    }
}

/* Adds the product in the order of K to the sums of all lanes: lane 4g + c has columns 2c and 2c + 1 of rows
 * g and g + 8. */
template <class Number, unsigned DEPTH, class Sum>
inline void add_product(const emulated_factors<Number, DEPTH> &factors, Sum *const (&sums)[32])
{
    for (unsigned row = 0; row < 16; row++) {
        typename emulated_factors<Number, DEPTH>::columns totals;
        for (unsigned column = 0; column < 8; column++)
            totals[column] = sums[row % 8 * 4 + column / 2][row / 8 * 2 + column % 2];
        for (unsigned k = 0; k < DEPTH; k++)
            totals += factors.a[row][k] * factors.b[k];
        for (unsigned column = 0; column < 8; column++)
            sums[row % 8 * 4 + column / 2][row / 8 * 2 + column % 2] = (Sum)totals[column];
    }
}

template <class Number, unsigned EACH, unsigned HALVES, class Element, class Sum>
inline void multiply_registers(const emulated_registers &registers, Element element, Sum (&sum)[4])
{
    struct {
        const emulated_registers *registers;
        Sum *sum;
    } own = {&registers, sum};
    emulator_machine::current()->do_together(~0u, (uint64_t)&own, [&](const uint64_t *lanes) {
        emulated_factors<Number, HALVES * 4 * EACH> factors;
        Sum *sums[32];
        for (unsigned lane = 0; lane < 32; lane++) {
            const auto *given = (const decltype(own) *)lanes[lane];
            take_rows<EACH>(given->registers->a, lane, element, factors);
            take_column<EACH>(given->registers->b, lane, element, factors);
            sums[lane] = given->sum;
        }
        add_product(factors, sums);
    });
}

struct emulated_byte {
    int operator()(uint32_t word, unsigned e) const { return (int8_t)(word >> 8 * e); }
};

/* In double. */
struct emulated_half {
    double operator()(uint32_t word, unsigned e) const { return f16_to_f32((uint16_t)(word >> 16 * e)); }
};

struct emulated_bfloat {
    double operator()(uint32_t word, unsigned e) const { return bf16_to_f32((uint16_t)(word >> 16 * e)); }
};

struct emulated_short_float {
    double operator()(uint32_t word, unsigned) const { return f32_from_bits(word & 0xffffe000); }
};

template <unsigned HALVES> inline void multiply_bytes(const emulated_registers &registers, float (&out)[4])
{
    int sum[4] = {};
    multiply_registers<int, 4, HALVES>(registers, emulated_byte(), sum);
    for (int i = 0; i < 4; i++)
        out[i] = __int_as_float(sum[i] + SUM_BITS) - SUM_FLOAT;
}

inline void multiply_bytes_32(const uint32_t (&a)[4], uint32_t b0, uint32_t b1, float (&out)[4])
{
    multiply_bytes<2>({{a[0], a[1], a[2], a[3]}, {b0, b1}}, out);
}

inline void multiply_bytes_16(uint32_t a0, uint32_t a1, uint32_t b, float (&out)[4])
{
    multiply_bytes<1>({{a0, a1}, {b}}, out);
}

inline void multiply_halves(
    uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1, float (&sum)[4])
{
    multiply_registers<double, 2, 2>({{a0, a1, a2, a3}, {b0, b1}}, emulated_half(), sum);
}

inline void multiply_bfloats(
    uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1, float (&sum)[4])
{
    multiply_registers<double, 2, 2>({{a0, a1, a2, a3}, {b0, b1}}, emulated_bfloat(), sum);
}

inline void multiply_short_floats(
    uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1, float (&sum)[4])
{
    multiply_registers<double, 1, 2>({{a0, a1, a2, a3}, {b0, b1}}, emulated_short_float(), sum);
}

#endif
