/*
 * Sampling as program/sampling.h defines it, from integers that every device computes alike. A candidate is a key: its
 * logit as an integer of the same order, above the inverted id, so that larger keys come first and ties go to the lower
 * id. A logit that cannot be chosen (NaN, -INFINITY) has key 0. The cuts of top-k and top-p are keys, found bit by bit.
 */

struct sampling { /* not `sampler`, which is a type of Metal */
    device const float *logits; /* after mask, bias and penalties */
    uint vocabulary, tid;
    threadgroup ulong *sums;
};

inline ulong key_of(float logit, uint id)
{
    if (!(logit > -INFINITY))
        return 0;
    uint bits = as_type<uint>(logit + 0.0f); /* -0 becomes 0, which it is equal to */
    uint ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (ulong)ordered << 32 | ~id;
}

inline float logit_of(ulong key)
{
    uint ordered = (uint)(key >> 32);
    return as_type<float>(ordered & 0x80000000u ? ordered & 0x7fffffffu : ~ordered);
}

/* exp(x) * 2^32 rounded down. */
inline ulong weight_below(float x)
{
    if (!(x >= -23.0f))
        return 0;
    float n = (x * 1.44269504f + 12582912.0f) - 12582912.0f;
    float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    float series = 1.0f / 720;
    series = series * r + 1.0f / 120;
    series = series * r + 1.0f / 24;
    series = series * r + 1.0f / 6;
    series = series * r + 0.5f;
    float fraction = 1 + (r + r * r * series);
    return (ulong)(fraction * as_type<float>((uint)((int)n + 32 + 127) << 23));
}

inline ulong weight_of(float logit, float largest, float inverse_temperature)
{
    return logit == largest ? (ulong)1 << 32 : weight_below((logit - largest) * inverse_temperature);
}

inline ulong high_product(ulong a, ulong b)
{
    ulong a_low = a & 0xffffffffu, a_high = a >> 32, b_low = b & 0xffffffffu, b_high = b >> 32;
    ulong middle = a_high * b_low + (a_low * b_low >> 32), carry = a_low * b_high + (middle & 0xffffffffu);
    return a_high * b_high + (middle >> 32) + (carry >> 32);
}

inline ulong mixed(ulong z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ul;
    z = (z ^ z >> 27) * 0x94d049bb133111ebul;
    return z ^ z >> 31;
}

inline ulong random_at(ulong seed, ulong position)
{
    const ulong unit = 0x9e3779b97f4a7c15ul;
    return mixed(mixed(seed + unit) + (position + 1) * unit);
}

inline ulong fraction_of(ulong sum, ulong fraction)
{
    return (sum >> 32) * fraction + ((sum & 0xffffffffu) * fraction >> 32);
}

/* The sum, or the largest, of a value of each thread, for all of them. */
inline ulong join_threads(sampling s, ulong value, bool is_sum)
{
    const uint teams = 16, each = METAL_SAMPLE_THREADS / teams;
    s.sums[s.tid] = value;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = 1; s.tid < teams && i < each; i++) {
        ulong other = s.sums[s.tid + teams * i];
        value = is_sum ? value + other : max(value, other);
    }
    if (s.tid < teams)
        s.sums[s.tid] = value;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    ulong result = s.sums[0];
    for (uint i = 1; i < teams; i++)
        result = is_sum ? result + s.sums[i] : max(result, s.sums[i]);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return result;
}

/* The number, or the weight, of the candidates whose key is at least `least`. */
inline ulong measure(sampling s, ulong least, bool by_weight, float largest)
{
    ulong sum = 0;
    for (uint i = s.tid; i < s.vocabulary; i += METAL_SAMPLE_THREADS) {
        ulong key = key_of(s.logits[i], i);
        if (key != 0 && key >= least)
            sum += by_weight ? weight_of(s.logits[i], largest, 1) : 1;
    }
    return join_threads(s, sum, true);
}

/* The largest key, at least `least`, down to which the measure reaches `target`; `least` if it does not. The upper bits
 * of an inverted id are ones. */
inline ulong cut_at(sampling s, ulong least, ulong target, bool by_weight, float largest)
{
    ulong cut = 0;
    for (uint bit = 64; bit-- > 0;) {
        ulong next = cut | (ulong)1 << bit;
        bool is_one_of_all_ids = bit < 32 && (s.vocabulary - 1) >> bit == 0;
        if (is_one_of_all_ids || measure(s, max(next, least), by_weight, largest) >= target)
            cut = next;
    }
    return max(cut, least);
}

inline uint largest_id(sampling s, thread float *largest)
{
    ulong most = 0;
    for (uint i = s.tid; i < s.vocabulary; i += METAL_SAMPLE_THREADS)
        most = max(most, key_of(s.logits[i], i));
    most = join_threads(s, most, false);
    *largest = logit_of(most);
    return most != 0 ? ~(uint)most : METAL_NO_OPERAND;
}

/* Walks up the ids that stayed to the first whose running sum exceeds a random part of the sum of all. */
inline uint choose(sampling s, device const step_run *run, float largest, ulong cut, uint position)
{
    ulong lowest = (ulong)run->settings.min_p_high << 32 | run->settings.min_p_low;
    uint each = (s.vocabulary + METAL_SAMPLE_THREADS - 1) / METAL_SAMPLE_THREADS;
    uint first = min(s.tid * each, s.vocabulary), end = min(first + each, s.vocabulary);
    ulong own = 0, before = 0;
    for (uint i = first; i < end; i++) {
        ulong key = key_of(s.logits[i], i);
        if (key != 0 && key >= cut && weight_of(s.logits[i], largest, 1) >= lowest)
            own += weight_of(s.logits[i], largest, run->settings.inverse_temperature);
    }
    ulong sum = join_threads(s, own, true);
    ulong seed = (ulong)run->settings.seed_high << 32 | run->settings.seed_low;
    ulong threshold = high_product(random_at(seed, position), sum);
    s.sums[s.tid] = own;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = 0; i < s.tid; i++)
        before += s.sums[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (before <= threshold && threshold < before + own) { /* one thread */
        uint i = first;
        for (; i < end; i++) {
            ulong key = key_of(s.logits[i], i);
            if (key == 0 || key < cut || weight_of(s.logits[i], largest, 1) < lowest)
                continue;
            before += weight_of(s.logits[i], largest, run->settings.inverse_temperature);
            if (before > threshold)
                break;
        }
        s.sums[0] = i;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return (uint)s.sums[0];
}

/* Stages 0 to 2: `changed` receives the logits with mask, bias and penalties. */
inline void change_logits(sampling s, device const float *logits, device float *changed, device const step_run *run,
    device const uint *mask, device const float *bias, device const int *tokens, uint count)
{
    for (uint i = s.tid; i < s.vocabulary; i += METAL_SAMPLE_THREADS) {
        float logit = run->mask_row && !(mask[i / 32] >> i % 32 & 1) ? -INFINITY : logits[i];
        changed[i] = run->has_bias ? logit + bias[i] : logit;
    }
    threadgroup_barrier(mem_flags::mem_device);
    uint recent = min(run->settings.recent, count);
    device const int *window = tokens + (count - recent);
    for (uint i = s.tid; i < recent; i += METAL_SAMPLE_THREADS) {
        uint times = 0;
        bool is_first = true;
        for (uint j = 0; j < recent; j++) {
            is_first = is_first && (j >= i || window[j] != window[i]);
            times += window[j] == window[i];
        }
        if (!is_first || (uint)window[i] >= s.vocabulary)
            continue;
        float logit = changed[window[i]];
        logit = logit > 0 ? logit * run->settings.inverse_repeat : logit * run->settings.repeat_penalty;
        changed[window[i]] = fma(-(float)times, run->settings.frequency_penalty, logit) - run->settings.presence_penalty;
    }
    threadgroup_barrier(mem_flags::mem_device);
}

inline uint chosen_id(sampling s, device const step_run *run, uint position)
{
    float largest;
    uint id = largest_id(s, &largest);
    if (id == METAL_NO_OPERAND || run->settings.temperature == 0)
        return id;
    ulong cut = 1;
    if (run->settings.top_k > 0 && run->settings.top_k < s.vocabulary)
        cut = cut_at(s, cut, run->settings.top_k, false, largest);
    if (!run->settings.top_p_off) {
        ulong target = fraction_of(measure(s, cut, true, largest), run->settings.top_p);
        cut = cut_at(s, cut, max(target, (ulong)1), true, largest);
    }
    return choose(s, run, largest, cut, position);
}

/* A threadgroup chooses the id of one output row. */
kernel void sample(constant sample_arguments &arguments [[buffer(0)]], device float *arena [[buffer(1)]],
    device float *changed [[buffer(2)]], device const uint *masks [[buffer(3)]], device const float *biases [[buffer(4)]],
    device int *tokens [[buffer(5)]], device uint *next [[buffer(6)]], device step_header *step [[buffer(7)]],
    FOR_HOST int *host_ids [[buffer(8)]], uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
    THREADGROUP_MEMORY(ulong, sums))
{
    uint output = group.y, vocabulary = arguments.vocabulary;
    if (output >= step->live[METAL_ROWS_OUTPUTS])
        return;
    uint row = output_row(step, output), index = row_run(step, row), position = row_position(step, row);
    device step_run *run = run_at(step, index);
    if (run->logits != METAL_LOGITS_LAST || !run->is_live)
        return;
    device const float *logits = arena + arguments.logits + (ulong)run->logits_row * vocabulary;
    device int *slot_tokens = tokens + (ulong)run->slot * (step->context + 1);
    sampling s;
    s.logits = logits;
    s.vocabulary = vocabulary;
    s.tid = tid;
    s.sums = sums;
    if (!run->settings.is_argmax) {
        device float *own = changed + (ulong)output * vocabulary;
        change_logits(s, logits, own, run, masks + (ulong)(max(run->mask_row, 1u) - 1) * ((vocabulary + 31) / 32),
            biases + (ulong)run->slot * vocabulary, slot_tokens, position + 1);
        s.logits = own;
    }
    uint id = chosen_id(s, run, position + 1);
    if (tid != 0)
        return;
    if (id == METAL_NO_OPERAND) {
        run->failed = position + 1;
        next[run->slot] = position; /* no run continues from here */
        return;
    }
    slot_tokens[position + 1] = (int)id;
    show_id(host_ids + (ulong)run->slot * (step->context + 1) + position + 1, (int)id);
    run->sampled += 1;
    for (uint i = 0; i < step->stop_count; i++) {
        if ((run->stop_mask >> i & 1) && step->stop_ids[i] == (int)id) {
            run->ended = 1;
            next[run->slot] = position; /* runs queued behind this one do not continue after a stop id */
        }
    }
}
