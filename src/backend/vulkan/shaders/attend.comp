#version 450
/*
 * Attention of one token and head over a part of the positions, THREADS at a time with a running maximum.
 * Tokens of a batch do all positions at once; a single token's are split, and merge.comp brings them together.
 * A single token may come without rope: then its key and value are rotated, rounded and kept here.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(std430, binding = BIND_ARENA) buffer Arena { float arena[]; };
layout(std430, binding = BIND_KEYS) buffer Keys { uint keys[]; };
layout(std430, binding = BIND_VALUES) buffer Values { uint values[]; };
layout(std430, binding = BIND_ROPES) readonly buffer Ropes { float ropes[]; };
layout(std430, binding = BIND_PARTIALS) buffer Partials { float partials[]; };
layout(push_constant) uniform Push { attend_arguments arguments; };
#ifdef SUBGROUP
layout(std430, binding = BIND_KEYS) buffer WideKeys { uvec4 wide_keys[]; };
#endif

const uint MOST_COLUMNS = 512, MOST_THREADS = 256, MOST_EACH = 8;

shared float query[MOST_COLUMNS];
shared float own_key[MOST_COLUMNS], own_value[MOST_COLUMNS];
shared float scores[MOST_THREADS], reduced[MOST_THREADS];

uint tid;

vec2 angle_of(uint table, uint pair, uint position)
{
    uint pairs = arguments.dimensions / 2;
    uint lower = table + ((position & 255u) * pairs + pair) * 2;
    uint upper = table + ((256 + (position >> 8)) * pairs + pair) * 2;
    float cl = ropes[lower], sl = ropes[lower + 1], cu = ropes[upper], su = ropes[upper + 1];
    return vec2(cl * cu - sl * su, sl * cu + cl * su);
}

/* Element `d` of a head that begins at `at`, rotated by a position. */
float rotated(uint at, uint table, uint d, uint position)
{
    uint pairs = arguments.dimensions / 2;
    float x = arena[at + d];
    if (d >= arguments.dimensions)
        return x;
    bool second = arguments.halves != 0 ? d >= pairs : (d & 1u) == 1;
    uint pair = arguments.halves != 0 ? (second ? d - pairs : d) : d / 2;
    float other = arena[at + (arguments.halves != 0 ? (second ? d - pairs : d + pairs) : d ^ 1u)];
    vec2 angle = angle_of(table, pair, position);
    return second ? x * angle.x + other * angle.y : x * angle.x - other * angle.y;
}

uint place_of(uint run, uint kv_head, uint position)
{
    uint place = pool_position(run, position);
    return ((place / PAGE_POSITIONS * arguments.kv_heads + kv_head) * PAGE_POSITIONS + place % PAGE_POSITIONS) *
           arguments.head_words;
}

float key_product(uint at)
{
    float sum = 0;
    if (arguments.type == TYPE_Q8_0) {
        uint scales_at = at + arguments.head_dim / 4;
        for (uint g = 0; g * 32 < arguments.head_dim; g++) {
            float scale = half_of(keys[scales_at + g / 2], g & 1u), part = 0;
            for (uint d = g * 32; d < min(arguments.head_dim, g * 32 + 32); d++)
                part += query[d] * (float(bitfieldExtract(int(keys[at + d / 4]), int(8 * (d & 3u)), 8)) * scale);
            sum += part;
        }
        return sum;
    }
#ifdef SUBGROUP
    for (uint i = 0; i < arguments.head_words / 4; i++) {
        uvec4 four = wide_keys[at / 4 + i];
        for (uint j = 0; j < 4; j++) {
            if (arguments.type == TYPE_F32) {
                sum += query[4 * i + j] * uintBitsToFloat(four[j]);
            } else {
                vec2 both = two_halves(four[j]);
                sum += query[8 * i + 2 * j] * both.x + query[8 * i + 2 * j + 1] * both.y;
            }
        }
    }
#else
    for (uint i = 0; i < arguments.head_words; i++) {
        if (arguments.type == TYPE_F32) {
            sum += query[i] * uintBitsToFloat(keys[at + i]);
        } else {
            vec2 both = two_halves(keys[at + i]);
            sum += query[2 * i] * both.x + query[2 * i + 1] * both.y;
        }
    }
#endif
    return sum;
}

float value_at(uint at, uint d)
{
    if (arguments.type == TYPE_F32)
        return uintBitsToFloat(values[at + d]);
    if (arguments.type == TYPE_F16)
        return half_of(values[at + d / 2], d & 1u);
    float scale = half_of(values[at + arguments.head_dim / 4 + d / 64], d / 32 & 1u);
    return float(bitfieldExtract(int(values[at + d / 4]), int(8 * (d & 3u)), 8)) * scale;
}

/* The token's own key and value, rounded as they are kept; the first head of its group keeps them. */
void append_own(uint run, uint kv_head, uint position, bool keeps)
{
    uint k = arguments.k + kv_head * arguments.head_dim, v = arguments.v + kv_head * arguments.head_dim;
    bool is_float = arguments.type == TYPE_F32;
    for (uint d = tid; d < arguments.head_dim; d += THREADS) {
        float key = rotated(k, arguments.rope_k, d, position), value = arena[v + d];
        own_key[d] = is_float ? key : half_value(half_bits(key));
        own_value[d] = is_float ? value : half_value(half_bits(value));
    }
    barrier();
    uint at = place_of(run, kv_head, position);
    for (uint i = tid; keeps && i < arguments.head_words; i += THREADS) {
        keys[at + i] = is_float ? floatBitsToUint(own_key[i]) : half_bits(own_key[2 * i]) | half_bits(own_key[2 * i + 1]) << 16;
        values[at + i] =
            is_float ? floatBitsToUint(own_value[i]) : half_bits(own_value[2 * i]) | half_bits(own_value[2 * i + 1]) << 16;
    }
}

float capped(float score)
{
    return arguments.cap == 0.0 ? score : arguments.cap * stable_tanh(score / arguments.cap);
}

float reduce(float value, bool is_maximum)
{
    barrier();
    reduced[tid] = value;
    barrier();
    for (uint step = THREADS / 2; step > 0; step /= 2) {
        if (tid < step)
            reduced[tid] = is_maximum ? max(reduced[tid], reduced[tid + step]) : reduced[tid] + reduced[tid + step];
        barrier();
    }
    return reduced[0];
}

void attend_row(uint row)
{
    uint head = gl_WorkGroupID.x, split = gl_WorkGroupID.y, head_dim = arguments.head_dim;
    uint run = row_run(row), position = row_position(row), kv_head = quotient(head, arguments.group_heads);
    uint first_seen = arguments.window != 0 && position + 1 > arguments.window ? position + 1 - arguments.window : 0;
    uint splits = 1u << arguments.splits_shift, seen = position + 1 - first_seen;
    uint each = max((seen + splits - 1) >> arguments.splits_shift, 64);
    uint begin = first_seen + min(split * each, seen), end = first_seen + min((split + 1) * each, seen);
    uint q = arguments.q + row * arguments.heads * head_dim + head * head_dim;
    bool is_rotated = arguments.rotated != 0, has_own = is_rotated && end == position + 1 && begin < end;
    uint partial = (head * splits + split) * (head_dim + 2);

    for (uint d = tid; d < head_dim; d += THREADS)
        query[d] = (is_rotated ? rotated(q, arguments.rope_q, d, position) : arena[q + d]) * arguments.scale;
    if (has_own)
        append_own(run, kv_head, position, head == kv_head * arguments.group_heads);
    barrier();

    float sums[MOST_EACH];
    for (uint i = 0; i < MOST_EACH; i++)
        sums[i] = 0;
    uint parts = max(quotient(THREADS, head_dim), 1), part = quotient(tid, head_dim);
    uint column = head_dim < THREADS ? tid - part * head_dim : tid;
    part = head_dim < THREADS ? part : 0;
    float maximum = -3.0e38, sum = 0;
    for (uint first = begin; first < end; first += THREADS) {
        uint j = first + tid, count = min(THREADS, end - first);
        float score = -3.0e38;
        if (j < end && has_own && j == position) {
            score = 0;
            for (uint d = 0; d < head_dim; d++)
                score += query[d] * own_key[d];
            score = capped(score);
        } else if (j < end) {
            score = capped(key_product(place_of(run, kv_head, j)));
        }
        float larger = max(maximum, reduce(score, true)), keep = exp(maximum - larger);
        float weight = j < end ? exp(score - larger) : 0.0;
        sum = sum * keep + reduce(weight, false);
        scores[tid] = weight;
        maximum = larger;
        barrier();
        for (uint i = 0, d = column; d < head_dim && part < parts; i++, d += THREADS) {
            float total = sums[i] * keep;
            for (uint n = part; n < count; n += parts) {
                float value = has_own && first + n == position ? own_value[d]
                                                               : value_at(place_of(run, kv_head, first + n), d);
                total += scores[n] * value;
            }
            sums[i] = total;
        }
        barrier();
    }

    /* The parts of a column come together through memory; columns beyond the threads have one part. */
    for (uint i = 0; i < MOST_EACH && i * THREADS < head_dim; i++) {
        barrier();
        reduced[tid] = sums[i];
        barrier();
        uint d = i * THREADS + tid;
        float total = 0;
        for (uint n = 0; n < parts; n++)
            total += tid + n * head_dim < THREADS && d < head_dim ? reduced[tid + n * head_dim] : 0.0;
        if (d < head_dim) {
            if (splits > 1)
                partials[partial + 2 + d] = total;
            else
                arena[arguments.to + row * arguments.heads * head_dim + head * head_dim + d] = total / sum;
        }
    }
    if (splits > 1 && tid == 0) {
        partials[partial] = maximum;
        partials[partial + 1] = sum;
    }
}

void main()
{
    tid = gl_LocalInvocationIndex;
    for (uint row = gl_WorkGroupID.z; row < header.tokens; row += gl_NumWorkGroups.z) {
        barrier();
        attend_row(row);
    }
}
