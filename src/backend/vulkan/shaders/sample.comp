#version 450
/*
 * Chooses ids as program/sampling.h defines: weights are integers, so that the order of summation does not matter and
 * all backends choose the same id. A workgroup processes one output row after another.
 *
 * The candidates that a filter keeps are described by a cut {order, id}: the last candidate kept. A cut is found by a
 * radix search over the bits of `order`, 8 bits at a time, which sums the weights for each of the 256 digits.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "order.glsl"
#include "wide.glsl"

layout(std430, binding = BIND_ARENA) readonly buffer Arena { float arena[]; };
layout(std430, binding = BIND_PARTIALS) readonly buffer Partials { uvec2 partials[]; };
layout(std430, binding = BIND_TOKENS) coherent buffer Tokens { int tokens[]; };
layout(std430, binding = BIND_HOST_TOKENS) writeonly buffer HostTokens { int host_tokens[]; };
layout(std430, binding = BIND_RING) buffer Outcomes { run_outcome outcomes[]; };
/* Orders and counts of each workgroup. */
layout(std430, binding = BIND_SAMPLE_SCRATCH) coherent buffer SampleScratch { uint scratch[]; };
layout(std430, binding = BIND_RING_STATE) buffer RingState {
    ring_state state;
    uint next[];
};
layout(std430, binding = BIND_BIAS) readonly buffer Bias { float bias[]; };
layout(std430, binding = BIND_MASKS) readonly buffer Masks { uint masks[]; };
layout(std430, binding = BIND_LOGPROBS) writeonly buffer Logprobs { uint logprobs[]; };
layout(push_constant) uniform Push { sample_arguments arguments; };

const uint DIGITS = 256, MOST_CHUNKS = 1024;
const uvec2 KEEP_ALL = uvec2(0, 0xffffffffu);
const uvec2 WEIGHT_ONE = uvec2(0, 1);

shared uint low_sums[MOST_CHUNKS], high_sums[MOST_CHUNKS];
shared uvec2 found, target_left;
shared uint found_index;

uint tid, vocabulary, orders_at, counts_at;
uvec2 largest;
float largest_logit;

uint order_at(uint id) { return scratch[orders_at + id]; }

/* ---- Arithmetic with the same result on every device: each product and sum is rounded once ---- */

float exact_weight(float x)
{
    if (!(x >= -23.0))
        return 0.0;
    precise float shifted = x * 1.44269504 + 12582912.0;
    precise float n = shifted - 12582912.0;
    precise float upper = n * 0.693359375;
    precise float lower = n * -2.12194440e-4;
    precise float high_part = x - upper;
    precise float rest = high_part - lower;
    precise float series = uintBitsToFloat(0x3ab60b61u); /* 1 / 720 */
    series = series * rest;
    series = series + uintBitsToFloat(0x3c088889u); /* 1 / 120 */
    series = series * rest;
    series = series + uintBitsToFloat(0x3d2aaaabu); /* 1 / 24 */
    series = series * rest;
    series = series + uintBitsToFloat(0x3e2aaaabu); /* 1 / 6 */
    series = series * rest;
    series = series + 0.5;
    precise float square = rest * rest;
    precise float tail = square * series;
    precise float inner = rest + tail;
    precise float fraction = 1.0 + inner;
    precise float weight = fraction * uintBitsToFloat(uint(int(n) + 32 + 127) << 23);
    return weight;
}

/* Equal infinities have difference 0, not NaN. */
uvec2 weight_of(uint order, float inverse_temperature)
{
    if (order == largest.x)
        return WEIGHT_ONE;
    precise float difference = logit_of(order) - largest_logit;
    precise float scaled = difference * inverse_temperature;
    float weight = exact_weight(scaled);
    return weight >= 4294967296.0 ? WEIGHT_ONE : uvec2(uint(weight), 0);
}

/* a * b + c with one rounding, from operations that round each: the exact product and sum in parts, the last part
 * rounded to odd. */
float exact_fma(float a, float b, float c)
{
    precise float split_a = a * 4097.0, split_b = b * 4097.0;
    precise float a_high = split_a - (split_a - a), b_high = split_b - (split_b - b);
    precise float a_low = a - a_high, b_low = b - b_high;
    precise float product = a * b;
    precise float product_error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low;
    precise float sum = c + product_error;
    precise float t = sum - c;
    precise float sum_error = (c - (sum - t)) + (product_error - t);
    precise float total = product + sum;
    precise float u = total - product;
    precise float total_error = (product - (total - u)) + (sum - u);
    precise float rest = sum_error + total_error;
    precise float v = rest - sum_error;
    precise float rest_error = (sum_error - (rest - v)) + (total_error - v);
    if (rest_error != 0.0 && (floatBitsToUint(rest) & 1u) == 0)
        rest = uintBitsToFloat((rest_error > 0.0) == (rest > 0.0) ? floatBitsToUint(rest) + 1 : floatBitsToUint(rest) - 1);
    precise float result = total + rest;
    return isinf(total) || isnan(total) ? total : result;
}

float penalised(step_run run, uint times, float logit)
{
    precise float scaled = logit > 0.0 ? logit * run.settings.inverse_repeat : logit * run.settings.repeat_penalty;
    precise float result = run.settings.frequency_penalty == 0.0 ? scaled : exact_fma(-float(times), run.settings.frequency_penalty, scaled);
    result = result - run.settings.presence_penalty;
    return result;
}

/* ---- Stages 0 to 3: orders of the logits with mask, bias and penalties ---- */

bool is_allowed(step_run run, uint id)
{
    uint row = (run.has_mask - 1) * ((vocabulary + 31) / 32);
    return run.has_mask == 0 || (masks[row + id / 32] >> id % 32 & 1) != 0;
}

/* The mask comes last: neither bias nor penalties give a probability to an id that has none. */
void load_logits(step_run run, uint run_index, uint logits_row, uint position)
{
    uint from = arguments.logits + logits_row * vocabulary;
    for (uint i = tid; i < vocabulary; i += THREADS) {
        precise float logit = arena[from + i];
        if (run.has_bias != 0)
            logit = logit + bias[(run.has_bias - 1) * vocabulary + i];
        scratch[orders_at + i] = floatBitsToUint(logit);
    }
    memoryBarrierBuffer();
    barrier();
    uint count = position + 1, recent = min(run.settings.recent, count);
    uint first = run.slot * (header.context + 1) + count - recent;
    for (uint i = tid; i < recent; i += THREADS)
        atomicAdd(scratch[counts_at + uint(tokens[first + i])], 1);
    memoryBarrierBuffer();
    barrier();
    for (uint i = tid; i < recent; i += THREADS) {
        uint id = uint(tokens[first + i]), times = atomicExchange(scratch[counts_at + id], 0);
        if (times != 0)
            scratch[orders_at + id] = floatBitsToUint(penalised(run, times, uintBitsToFloat(scratch[orders_at + id])));
    }
    memoryBarrierBuffer();
    barrier();
    for (uint i = tid; i < vocabulary; i += THREADS)
        scratch[orders_at + i] =
            is_allowed(run, i) ? order_of(uintBitsToFloat(scratch[orders_at + i])) : ORDER_LOWEST;
    memoryBarrierBuffer();
    barrier();
}

/* ---- Cuts ---- */

bool stays(uvec2 cut, uint order, uint id)
{
    return order > ORDER_LOWEST && (order > cut.x || (order == cut.x && id <= cut.y));
}

void add_to(uint index, uvec2 amount)
{
    uint old = atomicAdd(low_sums[index], amount.x);
    uint more = amount.y + (old + amount.x < old ? 1 : 0);
    if (more != 0)
        atomicAdd(high_sums[index], more);
}

void clear_sums()
{
    barrier();
    for (uint i = tid; i < MOST_CHUNKS; i += THREADS)
        low_sums[i] = high_sums[i] = 0;
    barrier();
}

uvec2 sum_at(uint index) { return uvec2(low_sums[index], high_sums[index]); }

/* Replaces the sum of each digit by the sum of this and all higher digits. */
void add_up_digits()
{
    for (uint step = 1; step < DIGITS; step *= 2) {
        uvec2 next[4];
        for (uint i = tid, n = 0; i < DIGITS; i += THREADS, n++)
            next[n] = i + step < DIGITS ? wide_add(sum_at(i), sum_at(i + step)) : sum_at(i);
        barrier();
        for (uint i = tid, n = 0; i < DIGITS; i += THREADS, n++) {
            low_sums[i] = next[n].x;
            high_sums[i] = next[n].y;
        }
        barrier();
    }
}

/* log2 of the number of neighbouring ids that share a sum, so that MOST_CHUNKS sums suffice. */
uint chunk_shift()
{
    uint shift = 6;
    while ((MOST_CHUNKS << shift) < vocabulary)
        shift++;
    return shift;
}

uint chunk_count() { return ((vocabulary - 1) >> chunk_shift()) + 1; }

/* The id number `wanted` (from 1, in rising order) among the kept ids whose order is `order`. */
uint nth_equal(uvec2 limit, uint order, uint wanted)
{
    clear_sums();
    for (uint i = tid; i < vocabulary; i += THREADS) {
        if (order_at(i) == order && stays(limit, order, i))
            atomicAdd(low_sums[i >> chunk_shift()], 1);
    }
    barrier();
    if (tid == 0) {
        uint chunk = 0;
        while (chunk + 1 < chunk_count() && low_sums[chunk] < wanted)
            wanted -= low_sums[chunk++];
        uint id = chunk << chunk_shift();
        for (;; id++) {
            if (order_at(id) == order && stays(limit, order, id) && --wanted == 0)
                break;
            if (id + 1 >= vocabulary)
                break;
        }
        found_index = id;
    }
    barrier();
    return found_index;
}

uvec2 measure(uint order, bool by_weight) { return by_weight ? weight_of(order, 1.0) : uvec2(1, 0); }

/* The cut that keeps the fewest candidates whose measures (weights or counts) sum to `wanted`; `limit` if all together
 * do not. */
uvec2 find_cut(uvec2 limit, uvec2 wanted, bool by_weight)
{
    uint prefix = 0;
    for (uint shift = 24;; shift -= 8) {
        clear_sums();
        for (uint i = tid; i < vocabulary; i += THREADS) {
            uint order = order_at(i);
            if (stays(limit, order, i) && (shift == 24 || order >> (shift + 8) == prefix >> (shift + 8)))
                add_to(order >> shift & 255u, measure(order, by_weight));
        }
        barrier();
        add_up_digits();
        if (wide_less(sum_at(0), wanted))
            return limit; /* all invocations return here, and only at the first digit */
        for (uint i = tid; i < DIGITS; i += THREADS) {
            uvec2 above = i + 1 < DIGITS ? sum_at(i + 1) : uvec2(0);
            if (!wide_less(sum_at(i), wanted) && wide_less(above, wanted)) {
                found = uvec2(i, 0);
                target_left = wide_sub(wanted, above);
            }
        }
        barrier();
        prefix |= found.x << shift;
        wanted = target_left;
        barrier();
        if (shift == 0)
            break;
    }
    uvec2 each = measure(prefix, by_weight);
    uint count = 0; /* the smallest count with count * each >= wanted */
    for (uint bit = 1u << 30; bit > 0; bit >>= 1) {
        if (count + bit <= vocabulary && wide_less(wide_mul(uvec2(count + bit - 1, 0), each), wanted))
            count += bit;
    }
    return uvec2(prefix, nth_equal(limit, prefix, max(count, 1)));
}

/* The sum of the weights of all kept candidates. */
uvec2 sum_of_weights(uvec2 cut)
{
    clear_sums();
    for (uint i = tid; i < vocabulary; i += THREADS) {
        uint order = order_at(i);
        if (stays(cut, order, i))
            add_to(0, weight_of(order, 1.0));
    }
    barrier();
    uvec2 sum = sum_at(0);
    barrier();
    return sum;
}

/* sum * fraction / 2^32, rounded down. */
uvec2 fraction_of(uvec2 sum, uint fraction)
{
    return wide_add(wide_product(sum.y, fraction), uvec2(wide_product(sum.x, fraction).y, 0));
}

/* ---- Stages 8 and 9 ---- */

uvec2 final_weight(step_run run, uvec2 cut, uint id)
{
    uint order = order_at(id);
    uvec2 lowest = uvec2(run.settings.min_p_low, run.settings.min_p_high);
    if (!stays(cut, order, id) || wide_less(weight_of(order, 1.0), lowest))
        return uvec2(0);
    return weight_of(order, run.settings.inverse_temperature);
}

uint choose(step_run run, uvec2 cut, uint position)
{
    clear_sums();
    for (uint i = tid; i < vocabulary; i += THREADS) {
        uvec2 weight = final_weight(run, cut, i);
        if (weight.x != 0 || weight.y != 0)
            add_to(i >> chunk_shift(), weight);
    }
    barrier();
    if (tid == 0) {
        uvec2 sum = uvec2(0), running = uvec2(0);
        for (uint i = 0; i < chunk_count(); i++)
            sum = wide_add(sum, sum_at(i));
        uvec2 threshold = wide_mul_high(sampling_random(uvec2(run.settings.seed_low, run.settings.seed_high), position), sum);
        uint chunk = 0;
        for (; chunk + 1 < chunk_count(); chunk++) {
            uvec2 next = wide_add(running, sum_at(chunk));
            if (wide_less(threshold, next))
                break;
            running = next;
        }
        uint id = chunk << chunk_shift();
        for (; id + 1 < vocabulary; id++) {
            running = wide_add(running, final_weight(run, cut, id));
            if (wide_less(threshold, running))
                break;
        }
        found_index = id;
    }
    barrier();
    return found_index;
}

uint sample_row(step_run run, uint run_index, uint logits_row, uint position)
{
    load_logits(run, run_index, logits_row, position);
    uvec2 mine = NOTHING_CHOSEN;
    for (uint i = tid; i < vocabulary; i += THREADS) {
        if (order_at(i) > ORDER_LOWEST)
            mine = better(mine, uvec2(order_at(i), i));
    }
    largest = best_of_all(mine);
    if (largest.y == NOTHING_CHOSEN.y || run.settings.temperature == 0.0)
        return largest.y;
    largest_logit = logit_of(largest.x);
    uvec2 cut = KEEP_ALL;
    if (run.settings.top_k > 0 && run.settings.top_k < vocabulary)
        cut = find_cut(cut, uvec2(run.settings.top_k, 0), false);
    if (run.settings.top_p_off == 0) {
        uvec2 wanted = fraction_of(sum_of_weights(cut), run.settings.top_p);
        cut = find_cut(cut, wanted == uvec2(0) ? uvec2(1, 0) : wanted, true);
    }
    return choose(run, cut, position + 1);
}

/* ---- Log-probabilities ---- */

float sum_of_all(float mine)
{
    barrier();
    low_sums[tid] = floatBitsToUint(mine);
    barrier();
    for (uint step = THREADS / 2; step > 0; step /= 2) {
        if (tid < step)
            low_sums[tid] = floatBitsToUint(uintBitsToFloat(low_sums[tid]) + uintBitsToFloat(low_sums[tid + step]));
        barrier();
    }
    return uintBitsToFloat(low_sums[0]);
}

/* Relative to the largest logit; equal infinities have difference 0, not NaN. */
float below_largest(uint order) { return order == largest.x ? 0.0 : logit_of(order) - largest_logit; }

void store_logprob(uint logits_row, uint place, uint id, float log_sum)
{
    uint at = logits_row * LOGPROB_WORDS + place * 2, order = order_at(id);
    logprobs[at] = id;
    logprobs[at + 1] = order > ORDER_LOWEST ? floatBitsToUint(below_largest(order) - log_sum) : 0xff800000u;
}

/* Log-probabilities from the unmodified logits. `best` collects the most likely ids, and each finds its rank. */
void write_logprobs(uint logits_row, uint chosen, uint top_count)
{
    uint from = arguments.logits + logits_row * vocabulary;
    uvec2 mine = NOTHING_CHOSEN;
    for (uint i = tid; i < vocabulary; i += THREADS) {
        uint order = order_of(arena[from + i]);
        scratch[orders_at + i] = order;
        if (order > ORDER_LOWEST)
            mine = better(mine, uvec2(order, i));
    }
    memoryBarrierBuffer();
    largest = best_of_all(mine);
    largest_logit = logit_of(largest.x);
    float sum = 0.0;
    for (uint i = tid; i < vocabulary; i += THREADS) {
        float below = below_largest(order_at(i));
        sum += order_at(i) > ORDER_LOWEST && below > -80.0 ? exp(below) : 0.0;
    }
    float log_sum = log(sum_of_all(sum));
    if (tid == 0)
        store_logprob(logits_row, 0, chosen, log_sum);
    if (top_count == 0)
        return;
    uvec2 cut = find_cut(KEEP_ALL, uvec2(top_count, 0), false);
    barrier();
    if (tid == 0)
        found_index = 0;
    barrier();
    for (uint i = tid; i < vocabulary; i += THREADS) {
        if (stays(cut, order_at(i), i))
            best[atomicAdd(found_index, 1)] = uvec2(order_at(i), i);
    }
    barrier();
    if (tid < found_index) {
        uint rank = 0;
        for (uint i = 0; i < found_index; i++)
            rank += i != tid && better(best[tid], best[i]) == best[i] ? 1 : 0;
        store_logprob(logits_row, 1 + rank, best[tid].y, log_sum);
    } else if (tid < top_count) {
        logprobs[logits_row * LOGPROB_WORDS + 2 + tid * 2] = 0xffffffffu;
        logprobs[logits_row * LOGPROB_WORDS + 3 + tid * 2] = 0xff800000u;
    }
}

/* Log-probabilities of the id after a token that was given. */
void score_row(step_run run, uint position)
{
    uint row = position - run.first, at = run.slot * (header.context + 1) + position + 1;
    write_logprobs(run.logits_row + row, uint(row + 1 < run.count ? tokens[at] : run.next_id), run.logprobs - 1);
}

/* This invocation's best of the blocks that argmax.comp has reduced. */
uvec2 found_in_block(uint output_index)
{
    uvec2 mine = NOTHING_CHOSEN;
    for (uint i = tid; i < ARGMAX_BLOCKS; i += THREADS)
        mine = better(mine, partials[output_index * ARGMAX_BLOCKS + i]);
    return mine;
}

/* `own_stop`: the stop id that this invocation compares, if there are as many. */
void finish(step_run run, uint run_index, uint position, uint left, int own_stop, uint id)
{
    uint at = header.entry * header.slots + run_index;
    if (id == NOTHING_CHOSEN.y) {
        if (tid == 0) {
            outcomes[at].failed = 1 + position;
            next[run.slot] = position; /* no run continues from here */
        }
        return;
    }
    if (tid == 0) {
        uint place = run.slot * (header.context + 1) + position + 1;
        tokens[place] = int(id);
        host_tokens[place] = int(id);
        outcomes[at].sampled = header.repeat - left; /* host memory: written, never read */
    }
    if (own_stop == int(id) && (run.stop_mask >> tid & 1) != 0) {
        outcomes[at].ended = 1;
        next[run.slot] = position; /* steps behind this one do not continue after a stop id */
    }
}

/* For a single token all data are loaded at once, before it is known whether the row has an output. */
void main()
{
    tid = gl_LocalInvocationIndex;
    vocabulary = arguments.vocabulary;
    orders_at = gl_WorkGroupID.x * 2 * vocabulary;
    counts_at = orders_at + vocabulary;
    uint left = state.left, most = arguments.is_single != 0 ? 1 : header.outputs, stop_count = header.stop_count;
    int own_stop = tid < STEP_STOP_IDS ? header.stop_ids[min(tid, STEP_STOP_IDS - 1)] : -1;
    own_stop = tid < stop_count ? own_stop : -1;
    for (uint output_index = gl_WorkGroupID.x; output_index < most; output_index += gl_NumWorkGroups.x) {
        uvec2 mine = found_in_block(output_index);
        uint row = 0, run_index = 0;
        if (arguments.is_single == 0) {
            row = output_row(output_index);
            run_index = row_run(row);
        }
        uint position = row_position(row), outputs = header.outputs;
        step_run run = runs[run_index];
        if (output_index < outputs && run.logits == LOGITS_ALL && run.logprobs != 0) {
            score_row(run, position);
            barrier();
        }
        if (output_index >= outputs || run.logits != LOGITS_LAST)
            continue;
        uint id = run.settings.is_argmax != 0 ? best_of_all(mine).y : sample_row(run, run_index, run.logits_row, position);
        finish(run, run_index, position, left, own_stop, id);
        if (run.logprobs != 0 && id != NOTHING_CHOSEN.y)
            write_logprobs(run.logits_row, id, run.logprobs - 1);
        barrier();
    }
}
