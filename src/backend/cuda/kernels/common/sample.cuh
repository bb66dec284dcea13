/*
 * Sampling on the device: the id that src/program/sampling.h defines; the same logits, settings and seed give
 * the same id on every backend. There are three stages, with a grid barrier or the end of a kernel after
 * each. In each stage a row is divided into parts, one for each block while there are enough blocks, and the
 * last part to arrive finishes the stage alone with the results of all parts:
 *
 *   0  Mask, bias and penalties; the largest of each group of ids. Temperature 0 ends here.
 *   1  top-k: the k-th largest of the groups' maxima is not above the k-th largest logit, so ids not below it
 *      are the candidates, few of them; the last part chooses among them.
 *      Neither top-k nor top-p: sums of weights by parts; the last part searches the one of the choice.
 *      top-p alone: sums of weights by distance to the largest; ends here when the largest is enough.
 *   2  top-p alone: candidates are the ids down to where the sum is reached.
 *
 * Where there are too many candidates to compare each with each, the last part finds the cut in the whole row
 * by a radix search, one digit after the other: right for all settings, and slow.
 *
 * Log-probabilities are the work of the part that finishes the row; rows without them do nothing for it.
 *
 * Weights are integers, so that they may be added in any order; nothing else depends on the order of blocks.
 * All threads of all blocks call a stage, with the same grid for all three; `threads` is a power of two, at
 * least 32.
 */
#ifndef CUDA_SAMPLE_CUH
#define CUDA_SAMPLE_CUH

#include "backend/cuda/kernels/common/sample_parts.cuh"

/* ---- Candidates that remain: at or above the cut, and with enough weight for min-p ---- */

struct sample_rule {
    sample_pair cut;
    float largest;
    unsigned long long lowest_weight;
};

static __device__ inline sample_rule sample_rule_of(const sample_part &p, sample_pair largest)
{
    sample_rule rule = {0, sample_logit(largest), sample_fixed_share(fminf(p.settings.min_p, 1.0f))};
    return rule;
}

static __device__ inline bool sample_stays(const sample_rule &rule, sample_pair pair)
{
    return pair >= rule.cut && sample_can_be_chosen(pair) &&
           (rule.lowest_weight == 0 ||
               sample_weight_of(sample_logit(pair), rule.largest, 1) >= rule.lowest_weight);
}

/* The weight by which an id is chosen; 0 for ids that a filter removes. */
static __device__ inline unsigned long long sample_final_weight(
    const sample_part &p, const sample_rule &rule, uint32_t id)
{
    sample_pair pair = sample_pair_of(__ldcg(p.logits + id), id);
    return sample_stays(rule, pair)
               ? sample_weight_of(sample_logit(pair), rule.largest, p.settings.inverse_temperature)
               : 0;
}

/* Chooses among ids `first` .. `end`. The ids before them have the weight `before`, all have `sum`; with sum
 * 0 it is computed from these ids. Threads take neighbouring ids, so that sums follow the ids. */
static __device__ inline void sample_choose_in_range(const sample_part &p, const sample_rule &rule,
    uint32_t first, uint32_t end, unsigned long long before, unsigned long long sum)
{
    uint32_t chunk = (end - first + p.threads - 1) / p.threads;
    uint32_t from = min(end, first + p.thread * chunk), to = min(end, from + chunk);
    unsigned long long own = 0, all;
    for (uint32_t id = from; id < to; id++)
        own += sample_final_weight(p, rule, id);
    unsigned long long running = before + sample_block_before(p, own, all);
    unsigned long long drawn = sample_draw(p, sum ? sum : all);
    if (drawn < running || drawn >= running + own)
        return;
    for (uint32_t id = from; id < to; id++) {
        running += sample_final_weight(p, rule, id);
        if (running > drawn) {
            sample_finish(p, static_cast<int32_t>(id));
            return;
        }
    }
}

/* ---- Any settings, by one block: the cut is found digit by digit ---- */

static __device__ inline unsigned long long sample_measure(bool weights, sample_pair pair, float largest)
{
    return weights ? sample_weight_of(sample_logit(pair), largest, 1) : 1;
}

/* Descends from the highest bin until the sum reaches `target`; returns this bin and the sum above it. */
static __device__ inline bool sample_find_bin(
    const sample_part &p, uint32_t bins, unsigned long long target, uint32_t &bin, unsigned long long &above)
{
    const unsigned long long *table = p.shared + SAMPLE_AT_TABLE;
    uint32_t chunk = (bins + p.threads - 1) / p.threads;
    uint32_t from = min(bins, p.thread * chunk), to = min(bins, from + chunk); /* counted from the highest */
    unsigned long long own = 0, all;
    for (uint32_t i = from; i < to; i++)
        own += table[bins - 1 - i];
    unsigned long long running = sample_block_before(p, own, all);
    if (running < target && running + own >= target) {
        uint32_t i = from;
        while (running + table[bins - 1 - i] < target)
            running += table[bins - 1 - i++];
        *sample_word(p, SAMPLE_WORD_DIGIT) = bins - 1 - i;
        *sample_word(p, SAMPLE_WORD_BEFORE) = running;
    }
    sample_sync(p.threads);
    bin = static_cast<uint32_t>(*sample_word(p, SAMPLE_WORD_DIGIT));
    above = *sample_word(p, SAMPLE_WORD_BEFORE);
    return all >= target;
}

/* The last of the fewest largest pairs, at or above `lowest`, whose measures reach `target`; 0: all of them
 * do not. */
static __device__ inline sample_pair sample_select(
    const sample_part &p, bool weights, unsigned long long target, sample_pair lowest, float largest)
{
    unsigned long long *table = p.shared + SAMPLE_AT_TABLE;
    sample_pair prefix = 0, mask = 0;
    for (uint32_t left = 64; left;) {
        uint32_t width = min(left, static_cast<uint32_t>(SAMPLE_DIGIT_BITS)), bins = 1u << width;
        left -= width;
        sample_sync(p.threads);
        for (uint32_t i = p.thread; i < bins; i += p.threads)
            table[i] = 0;
        sample_sync(p.threads);
        for (uint32_t id = p.thread; id < p.vocabulary; id += p.threads) {
            sample_pair pair = sample_pair_of(__ldcg(p.logits + id), id);
            if (pair >= lowest && sample_can_be_chosen(pair) && (pair & mask) == prefix)
                atomicAdd(&table[pair >> left & (bins - 1)], sample_measure(weights, pair, largest));
        }
        sample_sync(p.threads);
        uint32_t digit;
        unsigned long long above;
        if (!sample_find_bin(p, bins, target, digit, above))
            return 0;
        target -= above;
        prefix |= static_cast<sample_pair>(digit) << left;
        mask |= static_cast<sample_pair>(bins - 1) << left;
    }
    return prefix;
}

static __device__ inline bool sample_uses_top_k(const sample_part &p)
{
    return p.settings.top_k > 0 && p.settings.top_k < p.vocabulary;
}

static __device__ inline bool sample_uses_top_p(const sample_part &p)
{
    return p.settings.top_p < 1;
}

static __device__ inline void sample_choose_slowly(const sample_part &p, sample_pair largest)
{
    sample_rule rule = sample_rule_of(p, largest);
    if (sample_uses_top_k(p))
        rule.cut = sample_select(p, false, p.settings.top_k, 0, rule.largest);
    if (sample_uses_top_p(p)) {
        unsigned long long own = 0;
        for (uint32_t id = p.thread; id < p.vocabulary; id += p.threads) {
            sample_pair pair = sample_pair_of(__ldcg(p.logits + id), id);
            if (pair >= rule.cut && sample_can_be_chosen(pair))
                own += sample_measure(true, pair, rule.largest);
        }
        unsigned long long sum = sample_block_sum(p, own);
        unsigned long long target = sample_top_p_target(sum, p.settings.top_p);
        rule.cut = sample_select(p, true, target, rule.cut, rule.largest);
    }
    sample_choose_in_range(p, rule, 0, p.vocabulary, 0, 0);
}

/* ---- Candidates ---- */

/* Adds this part's candidates to the list: ids whose order is at least `order` or, with top-p alone, ids no
 * more than `last_step` below the largest. */
static __device__ inline void sample_list(
    const sample_part &p, uint32_t order, float largest, uint32_t last_step)
{
    unsigned long long *table = p.shared + SAMPLE_AT_TABLE;
    uint32_t *count = reinterpret_cast<uint32_t *>(sample_word(p, SAMPLE_WORD_COUNT));
    sample_sync(p.threads);
    if (p.thread == 0)
        *count = 0;
    sample_sync(p.threads);
    for (uint32_t id = p.first + p.thread; id < p.end; id += p.threads) {
        float logit = __ldcg(p.logits + id);
        sample_pair pair = sample_pair_of(logit, id);
        if (!sample_can_be_chosen(pair) || sample_order(pair) < order ||
            sample_step_below(logit, largest) > last_step)
            continue;
        uint32_t place = atomicAdd(count, 1u);
        if (place < CUDA_SAMPLE_CANDIDATES)
            table[place] = pair;
    }
    sample_sync(p.threads);
    uint32_t found = *count;
    if (p.thread == 0 && found)
        *sample_word(p, SAMPLE_WORD_BASE) = atomicAdd(&p.row->listed, found);
    sample_sync(p.threads);
    uint32_t base = found ? static_cast<uint32_t>(*sample_word(p, SAMPLE_WORD_BASE)) : 0;
    for (uint32_t i = p.thread; i < found && base + i < CUDA_SAMPLE_CANDIDATES; i += p.threads)
        p.row->list[base + i] = table[i];
}

/*
 * The last part: chooses among the candidates by comparing each with each, or slowly when they are too many.
 * Without top-k the sum of all weights is in the row; with top-k the sum of the k largest is computed here.
 */
static __device__ inline void sample_choose_listed(const sample_part &p, sample_pair largest)
{
    uint32_t count = __ldcg(&p.row->listed);
    if (count > CUDA_SAMPLE_CANDIDATES) {
        sample_choose_slowly(p, largest);
        return;
    }
    sample_pair *pairs = p.shared + SAMPLE_AT_TABLE;
    unsigned long long *weights = p.shared + SAMPLE_AT_WEIGHTS, *before = p.shared + SAMPLE_AT_BEFORE;
    const sample_rule rule = sample_rule_of(p, largest);
    const uint32_t kept = sample_uses_top_k(p) ? p.settings.top_k : 0xffffffffu;
    sample_sync(p.threads);
    for (uint32_t i = p.thread; i < count; i += p.threads) {
        pairs[i] = sample_load(&p.row->list[i]);
        weights[i] = sample_weight_of(sample_logit(pairs[i]), rule.largest, 1);
    }
    sample_sync(p.threads);

    /* The weight before each. All before one of the k largest are among the k largest, too. */
    unsigned long long own = 0;
    for (uint32_t i = p.thread; i < count; i += p.threads) {
        uint32_t rank = 0;
        unsigned long long sum_before = 0;
        for (uint32_t j = 0; j < count; j++) {
            bool is_before = pairs[j] > pairs[i];
            rank += is_before;
            sum_before += is_before ? weights[j] : 0;
        }
        before[i] = rank < kept ? sum_before : SAMPLE_NEVER;
        own += rank < kept ? weights[i] : 0;
    }
    unsigned long long sum = sample_uses_top_k(p) ? sample_block_sum(p, own) : sample_load(&p.row->sum);
    unsigned long long target =
        sample_uses_top_p(p) ? sample_top_p_target(sum, p.settings.top_p) : SAMPLE_NEVER;
    own = 0;
    sample_sync(p.threads); /* all have read the weights */
    for (uint32_t i = p.thread; i < count; i += p.threads) {
        bool stays = before[i] < target && weights[i] >= rule.lowest_weight;
        weights[i] =
            stays ? sample_weight_of(sample_logit(pairs[i]), rule.largest, p.settings.inverse_temperature)
                  : 0;
        own += weights[i];
    }
    unsigned long long drawn = sample_draw(p, sample_block_sum(p, own)); /* and the weights are all there */
    for (uint32_t i = p.thread; i < count; i += p.threads) {
        unsigned long long lower = 0;
        for (uint32_t j = 0; j < count; j++)
            lower += sample_id(pairs[j]) < sample_id(pairs[i]) ? weights[j] : 0;
        if (lower <= drawn && drawn < lower + weights[i])
            sample_finish(p, static_cast<int32_t>(sample_id(pairs[i])));
    }
}

/* ---- Stage 0 ---- */

static __device__ inline bool sample_has_penalties(const cuda_sampler &settings)
{
    return settings.last_n && (settings.repeat != 1 || settings.presence != 0 || settings.frequency != 0);
}

static __device__ inline float sample_penalised(const cuda_sampler &settings, uint32_t times, float logit)
{
    logit = __fmul_rn(logit, logit > 0 ? settings.inverse_repeat : settings.repeat);
    return __fsub_rn(__fmaf_rn(-static_cast<float>(times), settings.frequency, logit), settings.presence);
}

/* Loads the bits of ids `from` .. `to` into shared memory. The mask is in host memory, which whole lines and
 * many loads at once read fastest. */
static __device__ inline void sample_load_mask(const sample_part &p, uint32_t from, uint32_t to)
{
    const uint32_t *mask = reinterpret_cast<const uint32_t *>(p.settings.mask);
    uint32_t *words = reinterpret_cast<uint32_t *>(p.shared + SAMPLE_AT_TABLE);
    const uint32_t first = from / 32, count = (to - 1) / 32 + 1 - first;
    sample_sync(p.threads);
    for (uint32_t i = p.thread; i < count; i += p.threads)
        words[i] = __ldcg(mask + first + i);
    sample_sync(p.threads);
}

static __device__ inline bool sample_is_allowed(const sample_part &p, uint32_t from, uint32_t id)
{
    const uint32_t *words = reinterpret_cast<const uint32_t *>(p.shared + SAMPLE_AT_TABLE);
    return !p.settings.mask || words[id / 32 - from / 32] >> id % 32 & 1;
}

/* This part's logits with mask, bias and penalties. The first thread that takes an id's count applies it. */
static __device__ inline void sample_adjust(const sample_part &p)
{
    const float *bias = reinterpret_cast<const float *>(p.settings.bias);
    const uint32_t count = p.position + 1;
    const uint32_t recent = !sample_has_penalties(p.settings) ? 0 : min(p.settings.last_n, count);
    const int32_t *tokens = reinterpret_cast<const int32_t *>(p.machine->tokens) +
                            static_cast<size_t>(p.slot) * (p.machine->context + 1) + (count - recent);
    for (uint32_t i = p.thread; i < recent; i += p.threads) {
        uint32_t id = static_cast<uint32_t>(__ldcg(tokens + i));
        if (id >= p.first && id < p.end)
            atomicAdd(p.counts + id, 1u);
    }
    for (uint32_t from = p.first, to; from < p.end; from = to) {
        to = min(p.end, from / 32 * 32 + SAMPLE_MASKED_IDS);
        if (p.settings.mask)
            sample_load_mask(p, from, to);
        for (uint32_t id = from + p.thread; id < to; id += p.threads) {
            float logit = __ldcg(p.raw + id);
            logit = bias ? __fadd_rn(logit, __ldcg(bias + id)) : logit;
            p.adjusted[id] = sample_is_allowed(p, from, id) ? logit : __uint_as_float(0xff800000u);
        }
    }
    sample_sync(p.threads);
    for (uint32_t i = p.thread; i < recent; i += p.threads) {
        uint32_t id = static_cast<uint32_t>(__ldcg(tokens + i));
        uint32_t times = id >= p.first && id < p.end ? atomicExch(p.counts + id, 0u) : 0;
        if (times)
            p.adjusted[id] = sample_penalised(p.settings, times, __ldcg(p.adjusted + id));
    }
    sample_sync(p.threads);
}

/* The largest of each of this part's groups: neighbouring threads form one. */
static __device__ inline void sample_find_groups(const sample_part &p)
{
    constexpr uint32_t loads = 8; /* in flight at once */
    sample_pair largest = 0;
    for (uint32_t base = p.first + p.thread; base < p.end; base += loads * p.threads) {
        float logits[loads];
#pragma unroll
        for (uint32_t i = 0; i < loads; i++)
            logits[i] = base + i * p.threads < p.end ? __ldcg(p.logits + base + i * p.threads) : 0;
#pragma unroll
        for (uint32_t i = 0; i < loads; i++) {
            const uint32_t id = base + i * p.threads;
            largest = id < p.end ? sample_larger(largest, sample_pair_of(logits[i], id)) : largest;
        }
    }
    const uint32_t size = p.threads / p.groups, lanes = min(size, 32u);
    for (uint32_t offset = lanes / 2; offset; offset /= 2)
        largest = sample_larger(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
    uint64_t *groups = p.row->groups + static_cast<size_t>(p.part) * p.groups;
    if (size <= 32) {
        if (p.thread % size == 0)
            groups[p.thread / size] = largest;
        return;
    }
    sample_sync(p.threads);
    if (p.thread % 32 == 0)
        p.shared[SAMPLE_AT_REDUCE + p.thread / 32] = largest;
    sample_sync(p.threads);
    if (p.thread < p.groups) {
        const uint32_t warps = size / 32;
        for (uint32_t i = 0; i < warps; i++)
            largest = sample_larger(i ? largest : 0, p.shared[SAMPLE_AT_REDUCE + p.thread * warps + i]);
        groups[p.thread] = largest;
    }
}

/* Copies the largest pair of each group to shared memory; returns the largest of all. */
static __device__ inline sample_pair sample_load_groups(const sample_part &p)
{
    sample_pair *table = p.shared + SAMPLE_AT_TABLE, largest = 0;
    for (uint32_t i = p.thread; i < p.parts * p.groups; i += p.threads) {
        table[i] = sample_load(&p.row->groups[i]);
        largest = sample_larger(largest, table[i]);
    }
    return sample_block_largest(p, largest);
}

static __device__ inline void sample_stage_0(const sample_part &p)
{
    if (p.part == 0) { /* sums of the next stages */
        for (uint32_t i = p.thread; i < CUDA_SAMPLE_STEPS; i += p.threads)
            p.row->steps[i] = 0;
        if (p.thread == 0) {
            p.row->finished = 0;
            p.row->listed = 0;
        }
    }
    if (p.logits == p.adjusted)
        sample_adjust(p);
    sample_find_groups(p);
    if (p.settings.temperature != 0 || !sample_comes_last(p))
        return;
    sample_pair largest = sample_load_groups(p);
    if (p.thread == 0)
        sample_finish(
            p, sample_can_be_chosen(largest) ? static_cast<int32_t>(sample_id(largest)) : CUDA_SAMPLE_NO_ID);
}

/* ---- Stage 1 ---- */

/* A lower bound of the k-th largest logit of the row, close to it. */
static __device__ inline uint32_t sample_top_k_threshold(const sample_part &p)
{
    const sample_pair *table = p.shared + SAMPLE_AT_TABLE;
    const uint32_t count = p.parts * p.groups;
    for (uint32_t i = p.thread; i < count; i += p.threads) {
        uint32_t rank = 0;
        for (uint32_t j = 0; j < count; j++)
            rank += table[j] > table[i] || (table[j] == table[i] && j < i);
        if (rank == p.settings.top_k - 1)
            *sample_word(p, SAMPLE_WORD_THRESHOLD) = sample_order(table[i]);
    }
    sample_sync(p.threads);
    return static_cast<uint32_t>(*sample_word(p, SAMPLE_WORD_THRESHOLD));
}

static __device__ inline void sample_choose_from_all(const sample_part &p, sample_pair largest)
{
    const sample_rule rule = sample_rule_of(p, largest);
    unsigned long long own = 0;
    for (uint32_t id = p.first + p.thread; id < p.end; id += p.threads)
        own += sample_final_weight(p, rule, id);
    own = sample_block_sum(p, own);
    if (p.thread == 0)
        p.row->part_sums[p.part] = own;
    if (!sample_comes_last(p))
        return;
    unsigned long long *table = p.shared + SAMPLE_AT_TABLE, sum = 0, before = 0;
    for (uint32_t i = p.thread; i < p.parts; i += p.threads)
        table[i] = sample_load(&p.row->part_sums[i]);
    sample_sync(p.threads);
    for (uint32_t i = 0; i < p.parts; i++)
        sum += table[i];
    const unsigned long long drawn = sample_draw(p, sum);
    uint32_t part = 0;
    while (before + table[part] <= drawn)
        before += table[part++];
    const uint32_t share = (p.vocabulary + p.parts - 1) / p.parts;
    const uint32_t first = min(p.vocabulary, part * share), end = min(p.vocabulary, first + share);
    sample_choose_in_range(p, rule, first, end, before, sum);
}

static __device__ inline void sample_add_to_steps(const sample_part &p, sample_pair largest)
{
    unsigned long long *table = p.shared + SAMPLE_AT_TABLE;
    const float largest_logit = sample_logit(largest);
    sample_sync(p.threads);
    for (uint32_t i = p.thread; i < CUDA_SAMPLE_STEPS; i += p.threads)
        table[i] = 0;
    sample_sync(p.threads);
    for (uint32_t id = p.first + p.thread; id < p.end; id += p.threads) {
        float logit = __ldcg(p.logits + id);
        unsigned long long weight = sample_weight_of(logit, largest_logit, 1);
        if (weight)
            atomicAdd(&table[CUDA_SAMPLE_STEPS - 1 - sample_step_below(logit, largest_logit)], weight);
    }
    sample_sync(p.threads);
    for (uint32_t i = p.thread; i < CUDA_SAMPLE_STEPS; i += p.threads) {
        if (table[i])
            atomicAdd(reinterpret_cast<unsigned long long *>(&p.row->steps[i]), table[i]);
    }
    if (!sample_comes_last(p))
        return;
    unsigned long long own = 0;
    for (uint32_t i = p.thread; i < CUDA_SAMPLE_STEPS; i += p.threads) {
        table[i] = sample_load(&p.row->steps[i]);
        own += table[i];
    }
    const unsigned long long sum = sample_block_sum(p, own);
    const unsigned long long target = sample_top_p_target(sum, p.settings.top_p);
    unsigned long long above;
    uint32_t bin;
    sample_find_bin(p, CUDA_SAMPLE_STEPS, target, bin, above);
    if (p.thread != 0)
        return;
    p.row->sum = sum;
    p.row->last_step = CUDA_SAMPLE_STEPS - 1 - bin;
    if (target <= SAMPLE_WEIGHT_ONE)
        sample_finish(p, static_cast<int32_t>(sample_id(largest)));
}

static __device__ inline void sample_stage_1(const sample_part &p)
{
    const sample_pair largest = sample_load_groups(p);
    if (!sample_can_be_chosen(largest)) {
        if (sample_comes_last(p) && p.thread == 0)
            sample_finish(p, CUDA_SAMPLE_NO_ID);
    } else if (!sample_uses_top_k(p)) {
        if (sample_uses_top_p(p))
            sample_add_to_steps(p, largest);
        else
            sample_choose_from_all(p, largest);
    } else if (p.settings.top_k > p.parts * p.groups) {
        if (sample_comes_last(p))
            sample_choose_slowly(p, largest);
    } else {
        sample_list(p, sample_top_k_threshold(p), sample_logit(largest), SAMPLE_WEIGHTLESS);
        if (sample_comes_last(p))
            sample_choose_listed(p, largest);
    }
}

/* ---- Stage 2: top-p without top-k ---- */

static __device__ inline void sample_stage_2(const sample_part &p)
{
    const sample_pair largest = sample_load_groups(p);
    sample_list(p, 0, sample_logit(largest), __ldcg(&p.row->last_step));
    if (sample_comes_last(p))
        sample_choose_listed(p, largest);
}

/* ---- Rows and parts ---- */

static __device__ inline cuda_sample_row *sample_row_of(const cuda_machine &m, uint32_t row)
{
    return reinterpret_cast<cuda_sample_row *>(m.sampling + row * cuda_sample_row_bytes(m.vocabulary));
}

/* The sampled id of output row `row`, or one of the negative codes in sample_plan.h. */
static __device__ inline int32_t sample_result(const cuda_machine &m, uint32_t row)
{
    return __ldcg(&sample_row_of(m, row)->id);
}

/* Whether a row needs no further stage. All blocks that ask before a stage after the first get the same
 * answer: only the last part to arrive finishes a row, when all others have begun. */
static __device__ inline bool sample_is_finished(const cuda_machine &m, uint32_t row)
{
    return __ldcg(&sample_row_of(m, row)->finished) != 0;
}

static __device__ inline cuda_sampler sample_load_settings(const cuda_sampler *from)
{
    cuda_sampler settings;
    settings.temperature = __ldcg(&from->temperature);
    settings.inverse_temperature = __ldcg(&from->inverse_temperature);
    settings.top_p = __ldcg(&from->top_p);
    settings.min_p = __ldcg(&from->min_p);
    settings.repeat = __ldcg(&from->repeat);
    settings.inverse_repeat = __ldcg(&from->inverse_repeat);
    settings.presence = __ldcg(&from->presence);
    settings.frequency = __ldcg(&from->frequency);
    settings.top_k = __ldcg(&from->top_k);
    settings.last_n = __ldcg(&from->last_n);
    settings.seed = sample_load(&from->seed);
    settings.bias = sample_load(&from->bias);
    settings.mask = sample_load(&from->mask);
    settings.logprobs = sample_load(&from->logprobs);
    return settings;
}

/* ---- Log-probabilities ---- */

static __device__ inline cuda_logprob sample_logprob_of(sample_pair pair, float largest, float log_sum)
{
    const float logit = sample_logit(pair), below = logit == largest ? 0 : __fsub_rn(logit, largest);
    return {static_cast<int32_t>(sample_id(pair)),
        sample_can_be_chosen(pair) ? below - log_sum : __uint_as_float(0xff800000u)};
}

/*
 * Log-probabilities from the unmodified logits, of the run's row number `row`, by one block: `id` and the
 * largest logits. The block sums the weights (weights below 2^-32 of the largest are left out), then collects
 * the largest logits, each of which finds its rank. A function of its own that shares nothing with its
 * caller, whose registers would have to be stored for it.
 */
static __device__ __noinline__ void sample_find_logprobs(const cuda_machine &m, const cuda_sampler *sampler,
    uint32_t row, uint32_t id, uint32_t thread, uint32_t threads, unsigned long long *shared)
{
    const uint32_t top_count = __ldcg(&sampler->top_count);
    cuda_logprob *out = reinterpret_cast<cuda_logprob *>(sample_load(&sampler->logprobs)) +
                        static_cast<size_t>(row) * (1 + CUDA_TOP_LOGPROBS);
    sample_part p = {};
    p.raw = p.logits = reinterpret_cast<const float *>(m.logits) +
                       static_cast<size_t>(__ldcg(&sampler->row) + row) * m.vocabulary;
    p.vocabulary = m.vocabulary;
    p.thread = thread;
    p.threads = threads;
    p.shared = shared;
    sample_pair *table = p.shared + SAMPLE_AT_TABLE, most = 0;
    unsigned long long own = 0;
    for (uint32_t i = p.thread; i < p.vocabulary; i += p.threads)
        most = sample_larger(most, sample_pair_of(__ldcg(p.raw + i), i));
    const float largest = sample_logit(sample_block_largest(p, most));
    for (uint32_t i = p.thread; i < p.vocabulary; i += p.threads)
        own += sample_weight_of(__ldcg(p.raw + i), largest, 1);
    const float log_sum = logf(static_cast<float>(sample_block_sum(p, own)) * 0x1p-32f);
    if (p.thread == 0)
        out[0] = sample_logprob_of(sample_pair_of(__ldcg(p.raw + id), id), largest, log_sum);
    if (!top_count)
        return;
    const sample_pair cut = sample_select(p, false, top_count, 0, largest);
    uint32_t *count = reinterpret_cast<uint32_t *>(sample_word(p, SAMPLE_WORD_COUNT));
    sample_sync(p.threads);
    if (p.thread == 0)
        *count = 0;
    sample_sync(p.threads);
    for (uint32_t i = p.thread; i < p.vocabulary; i += p.threads) {
        const sample_pair pair = sample_pair_of(__ldcg(p.raw + i), i);
        if (pair >= cut && sample_can_be_chosen(pair))
            table[atomicAdd(count, 1u)] = pair;
    }
    sample_sync(p.threads);
    for (uint32_t i = p.thread; i < top_count; i += p.threads) {
        uint32_t rank = 0;
        for (uint32_t j = 0; i < *count && j < *count; j++)
            rank += table[j] > table[i];
        if (i < *count)
            out[1 + rank] = sample_logprob_of(table[i], largest, log_sum);
        else
            out[1 + i] = {-1, __uint_as_float(0xff800000u)};
    }
}

/* Whether this block, the last to arrive, has found the row's id in this stage; the word was 0 before it. */
static __device__ inline bool sample_has_finished(const sample_part &p)
{
    sample_sync(p.threads);
    return *sample_word(p, SAMPLE_WORD_LAST) && __ldcg(&p.row->finished) && __ldcg(&p.row->id) >= 0;
}

/* Log-probabilities of the id after a token that was given, whose row is `row` of the step. */
static __device__ inline void sample_score(const cuda_machine &m, const cuda_run *run, uint32_t row,
    uint32_t thread, uint32_t threads, unsigned long long *shared)
{
    const int32_t *ids = reinterpret_cast<const int32_t *>(m.step + m.ids_at);
    const uint32_t own = row - __ldcg(&run->first_row);
    const int32_t id = own + 1 < __ldcg(&run->count) ? __ldcg(ids + row + 1) : __ldcg(&run->next_id);
    sample_find_logprobs(m, &run->sampler, own, static_cast<uint32_t>(id), thread, threads, shared);
}

static __device__ inline void sample_do_part(const sample_part &part, uint32_t stage)
{
    if (stage == 0)
        sample_stage_0(part);
    else if (stage == 1)
        sample_stage_1(part);
    else
        sample_stage_2(part);
}

/*
 * One stage, for all output rows of the step. The step in device memory must say where each row stands now: a
 * token's row has the position of that token, and the id goes to the position after it. Rows whose run does
 * not have LOGITS_LAST, which is also how a run that has ended is passed over, get CUDA_SAMPLE_NOT_ASKED;
 * with LOGITS_ALL they may be scored.
 */
static __device__ __noinline__ void sample_stage(const cuda_machine &m, uint32_t stage, uint32_t block,
    uint32_t blocks, uint32_t thread, uint32_t threads, uint8_t *shared)
{
    const cuda_step *step = reinterpret_cast<const cuda_step *>(m.step);
    const cuda_run *runs = reinterpret_cast<const cuda_run *>(m.step + m.runs_at);
    const cuda_row *rows = reinterpret_cast<const cuda_row *>(m.step + m.rows_at);
    const uint32_t *output_rows = reinterpret_cast<const uint32_t *>(m.step + m.outputs_at);
    const uint32_t outputs = __ldcg(&step->output_count);
    const uint32_t wanted_parts = outputs ? blocks / outputs : 1;
    const uint32_t parts = wanted_parts < 1 ? 1 : min(wanted_parts, static_cast<uint32_t>(CUDA_SAMPLE_PARTS));
    for (uint32_t task = block; task < outputs * parts; task += blocks) {
        const uint32_t output = task / parts;
        sample_part p;
        p.machine = &m;
        p.part = task % parts;
        p.parts = parts;
        p.thread = thread;
        p.threads = threads;
        p.row = sample_row_of(m, output);
        if (stage && __ldcg(&p.row->finished))
            continue;
        const uint32_t token_row = __ldcg(output_rows + output);
        const cuda_row *row = rows + token_row;
        const cuda_run *run = runs + __ldcg(&row->run);
        p.shared = reinterpret_cast<unsigned long long *>(shared);
        if (__ldcg(&run->logits) != SAMPLE_LOGITS_LAST) {
            if (p.part == 0 && thread == 0)
                sample_finish(p, CUDA_SAMPLE_NOT_ASKED);
            if (p.part == 0 && __ldcg(&run->logits) == SAMPLE_LOGITS_ALL &&
                sample_load(&run->sampler.logprobs)) {
                sample_score(m, run, token_row, thread, threads, p.shared);
                sample_sync(threads);
            }
            continue;
        }
        p.settings = sample_load_settings(&run->sampler);
        p.slot = __ldcg(&run->slot);
        p.position = __ldcg(&row->position);
        p.vocabulary = m.vocabulary;
        const uint32_t share = (m.vocabulary + parts - 1) / parts;
        p.first = min(m.vocabulary, p.part * share);
        p.end = min(m.vocabulary, p.first + share);
        p.groups = 1;
        while (p.parts * p.groups < SAMPLE_WANTED_GROUPS && p.groups < threads)
            p.groups *= 2;
        p.counts = reinterpret_cast<uint32_t *>(p.row + 1);
        p.adjusted = reinterpret_cast<float *>(p.counts + (m.vocabulary + 3) / 4 * 4);
        p.raw = reinterpret_cast<const float *>(m.logits) +
                static_cast<size_t>(__ldcg(&run->sampler.row)) * m.vocabulary;
        p.logits =
            p.settings.mask || p.settings.bias || sample_has_penalties(p.settings) ? p.adjusted : p.raw;
        if (p.settings.logprobs && thread == 0)
            *sample_word(p, SAMPLE_WORD_LAST) = 0;
        sample_do_part(p, stage);
        if (p.settings.logprobs && sample_has_finished(p))
            sample_find_logprobs(m, &run->sampler, 0, static_cast<uint32_t>(sample_result(m, output)), thread,
                threads, p.shared);
        sample_sync(threads); /* shared memory is the next row's */
    }
}

#endif
