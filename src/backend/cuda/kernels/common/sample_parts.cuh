/*
 * Building blocks of the sampling stages: a part of a row and its shared memory, sums and maxima of a block,
 * and the arithmetic of src/program/sampling.h with each product and sum rounded once.
 */
#ifndef CUDA_SAMPLE_PARTS_CUH
#define CUDA_SAMPLE_PARTS_CUH

#include "backend/cuda/cuda_plan.h"
#include "backend/cuda/sample_plan.h"

/* A logit and its id as one number: larger logits are larger, and among equal ones lower ids. NaN counts as
 * -INFINITY, and neither is ever chosen. */
typedef unsigned long long sample_pair;

enum {
    SAMPLE_NOTHING = 0x007fffff, /* the order of -INFINITY */
    SAMPLE_DIGIT_BITS = 11,
    SAMPLE_STEPS_OF_ONE = 8,
    SAMPLE_WEIGHTLESS = 23 * SAMPLE_STEPS_OF_ONE + 1,
    SAMPLE_WANTED_GROUPS = 256,
    SAMPLE_MASKED_IDS = 131072, /* whose bits are in shared memory at once */
    SAMPLE_LOGITS_LAST = 1,     /* enum run_logits, whose header is C */
    SAMPLE_LOGITS_ALL = 2,
};

#define SAMPLE_WEIGHT_ONE (1ULL << 32)
#define SAMPLE_NEVER      0xffffffffffffffffULL /* more than all weights together */

/* A thread's view of its part of a row. */
struct sample_part {
    const cuda_machine *machine;
    cuda_sample_row *row;
    uint32_t *counts;    /* [vocabulary], zeros between steps */
    float *adjusted;     /* [vocabulary] */
    const float *raw;    /* [vocabulary] */
    const float *logits; /* one of the two */
    cuda_sampler settings;
    uint32_t vocabulary, slot, position;
    uint32_t part, parts, first, end; /* ids */
    uint32_t groups;                  /* of a part */
    uint32_t thread, threads;
    unsigned long long *shared;
};

/* Shared memory, in words of 8 bytes. */
enum {
    SAMPLE_AT_REDUCE = 0, /* 32 words, one for each warp */
    SAMPLE_AT_WORDS = 32, /* 16 words with one meaning each */
    SAMPLE_AT_TABLE = 64, /* groups, bins, candidates */
    SAMPLE_AT_WEIGHTS = SAMPLE_AT_TABLE + CUDA_SAMPLE_CANDIDATES,
    SAMPLE_AT_BEFORE = SAMPLE_AT_WEIGHTS + CUDA_SAMPLE_CANDIDATES,
};

enum {
    SAMPLE_WORD_LAST,
    SAMPLE_WORD_COUNT,
    SAMPLE_WORD_BASE,
    SAMPLE_WORD_THRESHOLD,
    SAMPLE_WORD_DIGIT,
    SAMPLE_WORD_BEFORE
};

/* ---- A block together ---- */

/* Among the threads that sample, which need not be all of the block. */
static __device__ inline void sample_sync(uint32_t threads)
{
#ifdef CUDA_EMULATOR
    emulator_bar_sync(1, threads);
#else
    asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory");
#endif
}

static __device__ inline unsigned long long *sample_word(const sample_part &p, uint32_t word)
{
    return p.shared + SAMPLE_AT_WORDS + word;
}

static __device__ inline unsigned long long sample_block_sum(const sample_part &p, unsigned long long value)
{
    for (uint32_t offset = 16; offset; offset /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, offset);
    sample_sync(p.threads); /* readers of the last reduction are done */
    if (p.thread % 32 == 0)
        p.shared[SAMPLE_AT_REDUCE + p.thread / 32] = value;
    sample_sync(p.threads);
    unsigned long long sum = 0;
    for (uint32_t i = 0; i < p.threads / 32; i++)
        sum += p.shared[SAMPLE_AT_REDUCE + i];
    return sum;
}

static __device__ inline sample_pair sample_larger(sample_pair a, sample_pair b)
{
    return a > b ? a : b;
}

static __device__ inline sample_pair sample_block_largest(const sample_part &p, sample_pair value)
{
    for (uint32_t offset = 16; offset; offset /= 2)
        value = sample_larger(value, __shfl_xor_sync(0xffffffffu, value, offset));
    sample_sync(p.threads);
    if (p.thread % 32 == 0)
        p.shared[SAMPLE_AT_REDUCE + p.thread / 32] = value;
    sample_sync(p.threads);
    sample_pair largest = 0;
    for (uint32_t i = 0; i < p.threads / 32; i++)
        largest = sample_larger(largest, p.shared[SAMPLE_AT_REDUCE + i]);
    return largest;
}

/* The sum of the values of lower threads; the sum of all goes to `total`. */
static __device__ inline unsigned long long sample_block_before(
    const sample_part &p, unsigned long long value, unsigned long long &total)
{
    unsigned long long running = value;
    for (uint32_t offset = 1; offset < 32; offset *= 2) {
        unsigned long long lower = __shfl_up_sync(0xffffffffu, running, offset);
        running += p.thread % 32 >= offset ? lower : 0;
    }
    sample_sync(p.threads);
    if (p.thread % 32 == 31)
        p.shared[SAMPLE_AT_REDUCE + p.thread / 32] = running;
    sample_sync(p.threads);
    unsigned long long before = running - value;
    total = 0;
    for (uint32_t i = 0; i < p.threads / 32; i++) {
        before += i < p.thread / 32 ? p.shared[SAMPLE_AT_REDUCE + i] : 0;
        total += p.shared[SAMPLE_AT_REDUCE + i];
    }
    return before;
}

/* Whether all other parts of the row have arrived here before: their results can then be read, past L1. */
static __device__ inline bool sample_comes_last(const sample_part &p)
{
    sample_sync(p.threads);
    if (p.thread == 0) {
        __threadfence();
        bool last = atomicAdd(&p.row->arrived, 1u) == p.parts - 1;
        if (last)
            p.row->arrived = 0;
        __threadfence();
        *sample_word(p, SAMPLE_WORD_LAST) = last;
    }
    sample_sync(p.threads);
    return *sample_word(p, SAMPLE_WORD_LAST) != 0;
}

static __device__ inline unsigned long long sample_load(const uint64_t *from)
{
    return __ldcg(reinterpret_cast<const unsigned long long *>(from));
}

/* ---- Numbers, as in sampling.c: each product and sum rounded once ---- */

static __device__ inline unsigned long long sample_weight(float x)
{
    const bool has_weight = x >= -23.0f;
    if (!has_weight)
        return 0;
    const float whole = 12582912;
    float n = __fsub_rn(__fadd_rn(__fmul_rn(x, 1.44269504f), whole), whole);
    float r = __fsub_rn(__fsub_rn(x, __fmul_rn(n, 0.693359375f)), __fmul_rn(n, -2.12194440e-4f));
    float series = 1.0f / 720;
    series = __fadd_rn(__fmul_rn(series, r), 1.0f / 120);
    series = __fadd_rn(__fmul_rn(series, r), 1.0f / 24);
    series = __fadd_rn(__fmul_rn(series, r), 1.0f / 6);
    series = __fadd_rn(__fmul_rn(series, r), 0.5f);
    float fraction = __fadd_rn(1, __fadd_rn(r, __fmul_rn(__fmul_rn(r, r), series)));
    float power = __uint_as_float(static_cast<uint32_t>(static_cast<int32_t>(n) + 32 + 127) << 23);
    return static_cast<unsigned long long>(__fmul_rn(fraction, power));
}

static __device__ inline unsigned long long sample_weight_of(
    float logit, float largest, float inverse_temperature)
{
    return logit == largest ? SAMPLE_WEIGHT_ONE
                            : sample_weight(__fmul_rn(__fsub_rn(logit, largest), inverse_temperature));
}

static __device__ inline unsigned long long sample_fixed_share(float share)
{
    return share > 0 ? static_cast<unsigned long long>(__fmul_rn(share, 4294967296.0f)) : 0;
}

static __device__ inline unsigned long long sample_top_p_target(unsigned long long sum, float top_p)
{
    unsigned long long share = sample_fixed_share(top_p);
    unsigned long long target = (sum >> 32) * share + ((sum & 0xffffffffu) * share >> 32);
    return target ? target : 1;
}

static __device__ inline unsigned long long sample_mix(unsigned long long z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
    return z ^ z >> 31;
}

/* The random point within the sum of the weights. */
static __device__ inline unsigned long long sample_draw(const sample_part &p, unsigned long long sum)
{
    const unsigned long long step = 0x9e3779b97f4a7c15ULL;
    unsigned long long position = p.position + 1ULL; /* of the id to be chosen */
    return __umul64hi(sample_mix(sample_mix(p.settings.seed + step) + (position + 1) * step), sum);
}

/* The distance from the largest logit, in steps; logits without weight have a step of their own. */
static __device__ inline uint32_t sample_step_below(float logit, float largest)
{
    float below = logit == largest ? 0 : __fsub_rn(largest, logit);
    if (!(below <= 23.0f))
        return SAMPLE_WEIGHTLESS;
    return static_cast<uint32_t>(__fmul_rn(below, SAMPLE_STEPS_OF_ONE));
}

/* ---- Pairs ---- */

static __device__ inline sample_pair sample_pair_of(float logit, uint32_t id)
{
    uint32_t bits = __float_as_uint(logit == 0 ? 0 : logit); /* both zeros are equal */
    uint32_t order = bits >> 31 ? ~bits : bits | 0x80000000u;
    if (logit != logit)
        order = SAMPLE_NOTHING;
    return static_cast<sample_pair>(order) << 32 | (0xffffffffu - id);
}

static __device__ inline uint32_t sample_order(sample_pair pair)
{
    return static_cast<uint32_t>(pair >> 32);
}

static __device__ inline uint32_t sample_id(sample_pair pair)
{
    return 0xffffffffu - static_cast<uint32_t>(pair);
}

static __device__ inline float sample_logit(sample_pair pair)
{
    uint32_t order = sample_order(pair);
    return __uint_as_float(order >> 31 ? order & 0x7fffffffu : ~order);
}

static __device__ inline bool sample_can_be_chosen(sample_pair pair)
{
    return sample_order(pair) > SAMPLE_NOTHING;
}

/* ---- The end ---- */

/* By one thread. */
static __device__ inline void keep_sampled(
    const cuda_machine &machine, cuda_sample_row &row, uint32_t slot, uint32_t position, int32_t id)
{
    if (id >= 0) {
        size_t at = static_cast<size_t>(slot) * (machine.context + 1) + position + 1;
        reinterpret_cast<int32_t *>(machine.tokens)[at] = id;
        reinterpret_cast<int32_t *>(machine.host_tokens)[at] = id;
    }
    row.id = id;
    row.finished = 1;
}

static __device__ inline void sample_finish(const sample_part &p, int32_t id)
{
    keep_sampled(*p.machine, *p.row, p.slot, p.position, id);
}

#endif
