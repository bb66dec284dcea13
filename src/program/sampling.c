#include "program/sampling.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* The weight of the largest logit: exp(0) * 2^32. */
#define WEIGHT_ONE (UINT64_C(1) << 32)

/* Below it weights are 0: exp(-23) * 2^32 < 1. */
#define LOWEST_EXPONENT (-23.0f)

/* Logits are scanned in blocks of this size: a block without candidates costs a few vector comparisons and
 * one branch. */
enum { BLOCK = 32 };

/* ---- Arithmetic with the same bits on every device ---- */

static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint64_t sampling_random(uint64_t seed, uint64_t position)
{
    const uint64_t step = UINT64_C(0x9e3779b97f4a7c15);
    return mix(mix(seed + step) + (position + 1) * step);
}

/*
 * The weight as a float, before rounding down. exp(x) = 2^n * exp(r) with n = x / ln 2 rounded to nearest and
 * |r| <= ln 2 / 2. It uses only products and sums, each rounded once, which every device computes alike. The
 * upper part of ln 2 has so few bits that n times it is exact. There are no branches, so that compilers
 * vectorise it.
 */
static inline float exact_weight(float x)
{
    const float log2_e = 1.44269504f, ln_2_upper = 0.693359375f, ln_2_lower = -2.12194440e-4f;
    const float round_to_integer = 12582912; /* 1.5 * 2^23: floats of this size are integers */
    const bool has_weight = x >= LOWEST_EXPONENT;
    x = has_weight ? x : 0;
    float n = (x * log2_e + round_to_integer) - round_to_integer;
    float r = (x - n * ln_2_upper) - n * ln_2_lower;
    float series = 1.0f / 720;
    series = series * r + 1.0f / 120;
    series = series * r + 1.0f / 24;
    series = series * r + 1.0f / 6;
    series = series * r + 0.5f;
    float fraction = 1 + (r + r * r * series);

    uint32_t power_bits = (uint32_t)((int32_t)n + 32 + 127) << 23;
    float power; /* 2^(n + 32) */
    memcpy(&power, &power_bits, sizeof power);
    float weight = fraction * power;
    return has_weight ? weight : 0;
}

uint64_t sampling_weight(float x)
{
    return (uint64_t)exact_weight(x);
}

/* A fraction in units of 2^-32, so that fractions of integer sums are integers. */
static uint64_t fixed_fraction(float fraction)
{
    return fraction > 0 ? (uint64_t)(fraction * 0x1p32f) : 0;
}

/* sum * fraction / 2^32, rounded down; fraction < 2^32, sum < 2^63. */
static uint64_t fraction_of(uint64_t sum, uint64_t fraction)
{
    return (sum >> 32) * fraction + ((sum & UINT32_MAX) * fraction >> 32);
}

/* At least 1, so that at least one candidate stays. */
static uint64_t top_p_target(uint64_t sum, float top_p)
{
    uint64_t target = fraction_of(sum, fixed_fraction(top_p));
    return target ? target : 1;
}

static uint64_t multiply_high(uint64_t a, uint64_t b)
{
    uint64_t a_low = a & UINT32_MAX, a_high = a >> 32, b_low = b & UINT32_MAX, b_high = b >> 32;
    uint64_t middle = a_high * b_low + (a_low * b_low >> 32);
    uint64_t carry = a_low * b_high + (middle & UINT32_MAX);
    return a_high * b_high + (middle >> 32) + (carry >> 32);
}

/* Infinities of one sign are equal; their difference would be NaN. A temperature may be so small that its
 * inverse is infinite. */
static uint64_t weight_of(float logit, float largest, float inverse_temperature)
{
    return logit == largest ? WEIGHT_ONE : sampling_weight((logit - largest) * inverse_temperature);
}

/* ---- Stages 0 to 2 ---- */

static void apply_mask(const uint32_t *mask, uint32_t vocabulary, float *logits)
{
    for (uint32_t i = 0; i < vocabulary; i++)
        logits[i] = mask[i / 32] >> i % 32 & 1 ? logits[i] : -INFINITY;
}

static void add_bias(const float *bias, uint32_t vocabulary, float *logits)
{
    for (uint32_t i = 0; i < vocabulary; i++)
        logits[i] += bias[i];
}

static float penalised(
    const struct sampler_settings *settings, float inverse_repeat, uint32_t times, float logit)
{
    logit = logit > 0 ? logit * inverse_repeat : logit * settings->repeat_penalty;
    return fmaf(-(float)times, settings->frequency_penalty, logit) - settings->presence_penalty;
}

/* Occurrences of an id are counted in its entry of `scratch`; only used entries are cleared. */
static void apply_penalties(const struct sampler_settings *settings, const int32_t *recent, uint32_t count,
    float *logits, struct sampling_candidate *scratch)
{
    float inverse_repeat = 1 / settings->repeat_penalty;
    for (uint32_t i = 0; i < count; i++)
        scratch[recent[i]].id = 0;
    for (uint32_t i = 0; i < count; i++)
        scratch[recent[i]].id++;
    for (uint32_t i = 0; i < count; i++) {
        int32_t id = recent[i];
        if (scratch[id].id == 0)
            continue; /* handled already */
        logits[id] = penalised(settings, inverse_repeat, (uint32_t)scratch[id].id, logits[id]);
        scratch[id].id = 0;
    }
}

static bool has_penalties(const struct sampler_settings *settings)
{
    return settings->repeat_penalty != 1 || settings->presence_penalty != 0 ||
           settings->frequency_penalty != 0;
}

/* ---- Selection. Comparisons with NaN are false, so NaN is skipped without a separate pass. ---- */

static bool any_above(const float *logits, float threshold)
{
    int32_t any = 0;
    for (int i = 0; i < BLOCK; i++)
        any |= logits[i] > threshold;
    return any;
}

static uint32_t block_end(uint32_t first, uint32_t vocabulary)
{
    return vocabulary - first < BLOCK ? vocabulary : first + BLOCK;
}

static bool block_is_below(const float *logits, uint32_t first, uint32_t vocabulary, float threshold)
{
    return vocabulary - first >= BLOCK && !any_above(logits + first, threshold);
}

/* The lowest id of the largest logit; -1 when no logit is above -INFINITY. */
static int32_t find_largest(const float *logits, uint32_t vocabulary)
{
    float largest = -INFINITY;
    int32_t id = -1;
    for (uint32_t first = 0; first < vocabulary; first = block_end(first, vocabulary)) {
        if (block_is_below(logits, first, vocabulary, largest))
            continue;
        for (uint32_t i = first; i < block_end(first, vocabulary); i++) {
            if (logits[i] > largest) {
                largest = logits[i];
                id = (int32_t)i;
            }
        }
    }
    return id;
}

/* The order in which ids are kept: larger logits first, then lower ids. No two are equal. */
static bool comes_before(struct sampling_candidate a, struct sampling_candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

static void swap(struct sampling_candidate *a, struct sampling_candidate *b)
{
    struct sampling_candidate kept = *a;
    *a = *b;
    *b = kept;
}

/* Partitions `count` elements around the middle one: elements ordered before it come first. */
static uint32_t partition(struct sampling_candidate *candidates, uint32_t count)
{
    swap(&candidates[0], &candidates[count / 2]);
    uint32_t front = 0;
    for (uint32_t i = 1; i < count; i++) {
        if (comes_before(candidates[i], candidates[0]))
            swap(&candidates[++front], &candidates[i]);
    }
    swap(&candidates[0], &candidates[front]);
    return front;
}

/* The measure that is summed up to a target: weights relative to `largest`, or 1 per candidate. */
struct measure {
    bool weights;
    float largest;
};

static uint64_t measure_of(struct measure measure, struct sampling_candidate candidate)
{
    return measure.weights ? weight_of(candidate.logit, measure.largest, 1) : 1;
}

/*
 * Moves the smallest set of largest candidates whose measures reach `target` (at least 1) to the front, its
 * last element at its end, and returns its size; all candidates if they do not reach it. Quickselect: parts
 * that are known to stay or to be dropped are not read again.
 */
static uint32_t keep_largest(
    struct sampling_candidate *candidates, uint32_t count, uint64_t target, struct measure measure)
{
    uint32_t first = 0, end = count;
    uint64_t reached = 0;
    while (first < end) {
        uint32_t pivot = first + partition(candidates + first, end - first);
        uint64_t before = reached;
        for (uint32_t i = first; i < pivot; i++)
            before += measure_of(measure, candidates[i]);
        uint64_t with_pivot = before + measure_of(measure, candidates[pivot]);
        if (before >= target) {
            end = pivot;
        } else if (with_pivot >= target) {
            return pivot + 1;
        } else {
            reached = with_pivot;
            first = pivot + 1;
        }
    }
    return count;
}

/*
 * The `k` largest, or all above -INFINITY if they are fewer. Candidates above a threshold are collected; when
 * the buffer is full, the k largest are kept and the smallest of them is the new threshold. Ids are visited
 * in rising order, so a logit equal to the threshold is never needed.
 */
static uint32_t gather_top_k(
    const float *logits, uint32_t vocabulary, uint32_t k, struct sampling_candidate *candidates)
{
    const struct measure count_them = {0};
    uint64_t wanted_room = 2 * (uint64_t)k + 32;
    uint32_t room = wanted_room < vocabulary ? (uint32_t)wanted_room : vocabulary, count = 0;
    float threshold = -INFINITY;
    for (uint32_t first = 0; first < vocabulary; first = block_end(first, vocabulary)) {
        if (block_is_below(logits, first, vocabulary, threshold))
            continue;
        for (uint32_t i = first; i < block_end(first, vocabulary); i++) {
            if (!(logits[i] > threshold))
                continue;
            candidates[count++] = (struct sampling_candidate){logits[i], (int32_t)i};
            if (count == room) {
                count = keep_largest(candidates, count, k, count_them);
                threshold = candidates[count - 1].logit;
            }
        }
    }
    return keep_largest(candidates, count, k, count_them);
}

/*
 * top-p over a whole vocabulary, in two passes: the first sums weights in bins of 1/8 by the distance of the
 * logit from the largest; the second searches the last candidate in the bin where the sum limits the target.
 * One bin collects logits without weight.
 */
enum { STEPS_OF_ONE = 8, WEIGHTLESS = 23 * STEPS_OF_ONE + 1, STEPS };

static inline uint32_t step_below(float logit, float largest)
{
    float below = largest - logit;
    below = logit == largest ? 0 : below;
    below = below <= -LOWEST_EXPONENT ? below : (float)WEIGHTLESS / STEPS_OF_ONE; /* also for NaN */
    return (uint32_t)(below * STEPS_OF_ONE);
}

static void add_to_steps(const float *logits, uint32_t count, float largest, uint64_t sums[STEPS])
{
    float weights[BLOCK];
    uint32_t steps[BLOCK];
    for (uint32_t i = 0; i < count; i++) {
        float difference = logits[i] - largest;
        weights[i] = exact_weight(logits[i] == largest ? 0 : difference);
        steps[i] = step_below(logits[i], largest);
    }
    for (uint32_t i = 0; i < count; i++)
        sums[steps[i]] += (uint64_t)weights[i];
}

static struct sampling_candidate find_top_p_of_all(
    const float *logits, uint32_t vocabulary, float largest, float top_p, struct sampling_candidate *scratch)
{
    uint64_t sums[STEPS] = {0}, sum = 0, before = 0;
    for (uint32_t first = 0; first < vocabulary; first = block_end(first, vocabulary))
        add_to_steps(logits + first, block_end(first, vocabulary) - first, largest, sums);
    for (uint32_t step = 0; step < STEPS; step++)
        sum += sums[step];

    uint64_t target = top_p_target(sum, top_p);
    uint32_t last = 0, count = 0;
    while (before + sums[last] < target)
        before += sums[last++];
    for (uint32_t i = 0; i < vocabulary; i++) {
        scratch[count] = (struct sampling_candidate){logits[i], (int32_t)i};
        count += step_below(logits[i], largest) == last;
    }
    const struct measure by_weight = {.weights = true, .largest = largest};
    return scratch[keep_largest(scratch, count, target - before, by_weight) - 1];
}

/* A lower bound of logits that stay; it need not be tight, so the logarithm need not be exact. */
static float logit_lower_bound(float cut, float largest, uint64_t lowest_weight)
{
    float below_cut = nextafterf(cut, -INFINITY);
    if (lowest_weight == 0 || isinf(largest))
        return below_cut;
    float below_weight = largest + logf((float)lowest_weight * 0x1p-32f) - 0.01f;
    return below_cut > below_weight ? below_cut : nextafterf(below_weight, -INFINITY);
}

/* Candidates that stay are ordered at or before `cut` and have at least `lowest_weight`; ids are in rising
 * order. */
static uint32_t gather_remaining(const float *logits, uint32_t vocabulary, struct sampling_candidate cut,
    float largest, uint64_t lowest_weight, struct sampling_candidate *candidates)
{
    uint32_t count = 0;
    float threshold = logit_lower_bound(cut.logit, largest, lowest_weight);
    for (uint32_t first = 0; first < vocabulary; first = block_end(first, vocabulary)) {
        if (block_is_below(logits, first, vocabulary, threshold))
            continue;
        for (uint32_t i = first; i < block_end(first, vocabulary); i++) {
            struct sampling_candidate candidate = {logits[i], (int32_t)i};
            if (!(candidate.logit > threshold) || comes_before(cut, candidate))
                continue;
            if (lowest_weight == 0 || weight_of(candidate.logit, largest, 1) >= lowest_weight)
                candidates[count++] = candidate;
        }
    }
    return count;
}

/* The last candidate, in order, that stages 4 and 6 keep. */
static struct sampling_candidate find_cut(const struct sampler_settings *settings, const float *logits,
    uint32_t vocabulary, float largest, struct sampling_candidate *scratch)
{
    const struct sampling_candidate keep_all = {-INFINITY, INT32_MAX};
    bool use_top_k = settings->top_k > 0 && settings->top_k < vocabulary, use_top_p = settings->top_p < 1;
    if (!use_top_k)
        return use_top_p ? find_top_p_of_all(logits, vocabulary, largest, settings->top_p, scratch)
                         : keep_all;

    uint32_t count = gather_top_k(logits, vocabulary, settings->top_k, scratch);
    if (!use_top_p)
        return count == settings->top_k ? scratch[count - 1] : keep_all;

    const struct measure by_weight = {.weights = true, .largest = largest};
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += measure_of(by_weight, scratch[i]);
    return scratch[keep_largest(scratch, count, top_p_target(sum, settings->top_p), by_weight) - 1];
}

/* ---- Stages 8 and 9 ---- */

static int32_t choose_by_weight(const struct sampling_candidate *candidates, uint32_t count, float largest,
    float inverse_temperature, uint64_t random)
{
    uint64_t sum = 0, running = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += weight_of(candidates[i].logit, largest, inverse_temperature);
    uint64_t threshold = multiply_high(random, sum);
    for (uint32_t i = 0; i < count; i++) {
        running += weight_of(candidates[i].logit, largest, inverse_temperature);
        if (running > threshold)
            return candidates[i].id;
    }
    assert(!"the largest logit always stays and threshold < sum");
    return -1;
}

int32_t sampling_choose(const struct sampler_settings *settings, float *logits, uint32_t vocabulary,
    const int32_t *tokens, uint32_t count, struct sampling_candidate *scratch)
{
    if (settings->mask)
        apply_mask(settings->mask, vocabulary, logits);
    if (settings->bias)
        add_bias(settings->bias, vocabulary, logits);
    uint32_t recent = settings->repeat_last_n < count ? settings->repeat_last_n : count;
    if (recent && has_penalties(settings))
        apply_penalties(settings, tokens + (count - recent), recent, logits, scratch);
    int32_t largest_id = find_largest(logits, vocabulary);
    if (largest_id < 0 || settings->temperature == 0)
        return largest_id;

    float largest = logits[largest_id];
    struct sampling_candidate cut = find_cut(settings, logits, vocabulary, largest, scratch);
    uint64_t lowest_weight = fixed_fraction(settings->min_p < 1 ? settings->min_p : 1);
    uint32_t remaining = gather_remaining(logits, vocabulary, cut, largest, lowest_weight, scratch);
    return choose_by_weight(
        scratch, remaining, largest, 1 / settings->temperature, sampling_random(settings->seed, count));
}

/* ---- Log-probabilities ---- */

/* Inserts an id into the sorted list, after the ids that precede it; the last id of the list is dropped. */
static void insert_top(struct sampling_candidate *top, uint32_t count, struct sampling_candidate candidate)
{
    uint32_t place = count - 1;
    for (; place > 0 && comes_before(candidate, top[place - 1]); place--)
        top[place] = top[place - 1];
    top[place] = candidate;
}

/* The natural logarithm of the softmax's denominator, relative to the largest logit. */
static double log_of_sum(const float *logits, uint32_t vocabulary, float largest)
{
    double sum = 0;
    for (uint32_t i = 0; i < vocabulary; i++) {
        if (logits[i] == largest)
            sum += 1; /* also when it is infinite */
        else if (logits[i] > -INFINITY)
            sum += exp((double)logits[i] - (double)largest);
    }
    return log(sum);
}

static float logprob_of(float logit, float largest, double log_sum)
{
    if (!(logit > -INFINITY))
        return -INFINITY;
    return (float)((logit == largest ? 0 : (double)logit - (double)largest) - log_sum);
}

void sampling_logprobs(const float *logits, uint32_t vocabulary, int32_t chosen, uint32_t top_count,
    struct sampling_logprob *out)
{
    struct sampling_candidate top[MAX_TOP_LOGPROBS];
    const int32_t largest_id = find_largest(logits, vocabulary);
    assert(top_count <= MAX_TOP_LOGPROBS);
    const float largest = largest_id >= 0 ? logits[largest_id] : -INFINITY;
    const double log_sum = log_of_sum(logits, vocabulary, largest);
    for (uint32_t i = 0; i < top_count; i++)
        top[i] = (struct sampling_candidate){-INFINITY, -1};
    for (uint32_t i = 0; top_count && i < vocabulary; i++) {
        if (logits[i] > top[top_count - 1].logit)
            insert_top(top, top_count, (struct sampling_candidate){logits[i], (int32_t)i});
    }
    out[0] = (struct sampling_logprob){chosen, logprob_of(logits[chosen], largest, log_sum)};
    for (uint32_t i = 0; i < top_count; i++)
        out[i + 1] = (struct sampling_logprob){top[i].id, logprob_of(top[i].logit, largest, log_sum)};
}
