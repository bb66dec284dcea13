#version 450
/*
 * Attention of a single token. A workgroup has up to four heads of one kv head and a part of the positions: LANES
 * neighbouring invocations share a position, and each such team goes through positions of its own with a running
 * maximum; teams come together at the end. Parts come together where the last of them ends, or in merge.comp
 * where workgroups cannot tell each other. The token may come without rope: then its key and value are rotated,
 * rounded and kept here.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "lanes.glsl"
#include "states.glsl"

layout(constant_id = 3) const uint HEADS_AND_LANES = 1;
const uint HEADS = HEADS_AND_LANES & 15u;          /* of this workgroup, at most 4 */
const uint LANES = 1u << (HEADS_AND_LANES >> 4);   /* that share a position */
const uint TEAMS = THREADS / LANES, AT_ONCE = 4;   /* positions of a team */
const uint EACH = (UNITS + LANES - 1) / LANES;     /* units of a lane */
const uint FOURS_OF_UNIT = IS_F32 ? 1 : 2, FOURS = EACH * FOURS_OF_UNIT;

layout(std430, binding = BIND_ARENA) buffer Arena { float arena[]; };
layout(std430, binding = BIND_ROPES) readonly buffer Ropes { float ropes[]; };
layout(std430, binding = BIND_PARTIALS) coherent buffer Partials { float partials[]; };
#ifdef SUBGROUP
layout(std430, binding = BIND_PARTIALS) coherent buffer Counts { uint counts[]; };
#endif
layout(push_constant) uniform Push { attend_arguments arguments; };

const uint MOST_COLUMNS = 512, MOST_PAGES = 128;
const float LOWEST = -3.0e38;

shared float query[4 * MOST_COLUMNS];
shared uint own_key[MOST_COLUMNS], own_value[MOST_COLUMNS]; /* words */
shared uint page_numbers[MOST_PAGES];
shared vec4 parts[256];
shared uint arrived;

uint kv_head, first_head, position, begin, end;
bool has_own;
uvec4 keys_ahead[AT_ONCE * EACH], values_ahead[AT_ONCE * EACH];

vec2 angle_of(uint table, uint pair)
{
    uint pairs = arguments.dimensions / 2;
    uint lower = table + ((position & 255u) * pairs + pair) * 2;
    uint upper = table + ((256 + (position >> 8)) * pairs + pair) * 2;
    float cl = ropes[lower], sl = ropes[lower + 1], cu = ropes[upper], su = ropes[upper + 1];
    return vec2(cl * cu - sl * su, sl * cu + cl * su);
}

/* Element `d` of a head that begins at `at`, rotated by the position. */
float rotated(uint at, uint table, uint d)
{
    uint pairs = arguments.dimensions / 2;
    float x = arena[at + d];
    if (d >= arguments.dimensions)
        return x;
    bool second = arguments.halves != 0 ? d >= pairs : (d & 1u) == 1;
    uint pair = arguments.halves != 0 ? (second ? d - pairs : d) : d / 2;
    float other = arena[at + (arguments.halves != 0 ? (second ? d - pairs : d + pairs) : d ^ 1u)];
    vec2 angle = angle_of(table, pair);
    return second ? x * angle.x + other * angle.y : x * angle.x - other * angle.y;
}

uint place_of(uint j)
{
    uint index = j / PAGE_POSITIONS, page = index < MOST_PAGES ? page_numbers[index] : words[arguments.pages_at + index];
    return ((page * arguments.kv_heads + kv_head) * PAGE_POSITIONS + j % PAGE_POSITIONS) * arguments.head_words;
}

/* A word of the token's own key or value, rounded as it is kept. */
uint own_word(bool of_keys, uint i)
{
    uint at = (of_keys ? arguments.k : arguments.v) + kv_head * HEAD_DIM;
    if (IS_F32)
        return floatBitsToUint(of_keys ? rotated(at, arguments.rope_k, i) : arena[at + i]);
    float low = of_keys ? rotated(at, arguments.rope_k, 2 * i) : arena[at + 2 * i];
    float high = of_keys ? rotated(at, arguments.rope_k, 2 * i + 1) : arena[at + 2 * i + 1];
    return half_bits(low) | half_bits(high) << 16;
}

/* The workgroup with the first heads of its group keeps them. */
void append_own(bool keeps)
{
    uint at = place_of(position), count = UNITS * 4;
    for (uint i = tid; i < 2 * count; i += THREADS) {
        bool of_keys = i < count;
        uint index = of_keys ? i : i - count, word = index < arguments.head_words ? own_word(of_keys, index) : 0;
        if (of_keys)
            own_key[index] = word;
        else
            own_value[index] = word;
        if (keeps && index < arguments.head_words) {
            if (of_keys)
                keys[at + index] = word;
            else
                values[at + index] = word;
        }
    }
}

uint position_of(uint first, uint n) { return first + n * TEAMS + tid / LANES; }

void ask_for(uint first)
{
    [[unroll]] for (uint n = 0; n < AT_ONCE; n++) {
        uint j = position_of(first, n), at = j < end ? place_of(j) : 0;
        [[unroll]] for (uint e = 0; e < EACH; e++) {
            uint unit = e * LANES + (tid & (LANES - 1));
            bool is_there = j < end && unit < UNITS && !(has_own && j == position);
            keys_ahead[n * EACH + e] = is_there ? load_unit(true, at, unit) : uvec4(0);
            values_ahead[n * EACH + e] = is_there ? load_unit(false, at, unit) : uvec4(0);
        }
    }
}

uvec4 own_unit(bool of_keys, uint unit)
{
    uvec4 result;
    [[unroll]] for (uint j = 0; j < 4; j++)
        result[j] = of_keys ? own_key[4 * unit + j] : own_value[4 * unit + j];
    return result;
}

vec4 capped(vec4 scores)
{
    if (arguments.cap == 0.0)
        return scores;
    [[unroll]] for (uint i = 0; i < 4; i++)
        scores[i] = arguments.cap * stable_tanh(scores[i] / arguments.cap);
    return scores;
}

vec4 q[HEADS * FOURS], sums[HEADS * FOURS];
vec4 maximum, sum; /* of each head */

void attend_to(uint first)
{
    uvec4 units[AT_ONCE * EACH];
    vec4 scores[AT_ONCE];
    uint lane = tid & (LANES - 1);
    [[unroll]] for (uint n = 0; n < AT_ONCE; n++) {
        bool is_own = has_own && position_of(first, n) == position;
        scores[n] = vec4(0);
        [[unroll]] for (uint e = 0; e < EACH; e++) {
            uint unit = e * LANES + lane;
            uvec4 key = is_own && unit < UNITS ? own_unit(true, unit) : keys_ahead[n * EACH + e];
            units[n * EACH + e] = is_own && unit < UNITS ? own_unit(false, unit) : values_ahead[n * EACH + e];
            [[unroll]] for (uint f = 0; f < FOURS_OF_UNIT; f++) {
                [[unroll]] for (uint h = 0; h < HEADS; h++)
                    scores[n][h] += dot(q[h * FOURS + e * FOURS_OF_UNIT + f], four_of_unit(key, f));
            }
        }
    }
    ask_for(first + AT_ONCE * TEAMS);
    vec4 larger = maximum;
    [[unroll]] for (uint n = 0; n < AT_ONCE; n++) {
        scores[n] = capped(sum_of_lanes(scores[n], LANES));
        if (position_of(first, n) < end)
            larger = max(larger, scores[n]);
    }
    vec4 keep = exp(maximum - larger);
    maximum = larger;
    sum *= keep;
    [[unroll]] for (uint h = 0; h < HEADS; h++) {
        [[unroll]] for (uint i = 0; i < FOURS; i++)
            sums[h * FOURS + i] *= keep[h];
    }
    [[unroll]] for (uint n = 0; n < AT_ONCE; n++) {
        vec4 weights = position_of(first, n) < end ? exp(scores[n] - larger) : vec4(0);
        sum += weights;
        [[unroll]] for (uint i = 0; i < FOURS; i++) {
            vec4 value = four_of_unit(units[n * EACH + i / FOURS_OF_UNIT], i % FOURS_OF_UNIT);
            [[unroll]] for (uint h = 0; h < HEADS; h++)
                sums[h * FOURS + i] += weights[h] * value;
        }
    }
}

/* The teams' sums of one head; four elements by each of the first invocations. */
void store_head(uint h, bool is_all, uint partial)
{
    [[unroll]] for (uint i = 0; i < FOURS; i++) {
        uint unit = i / FOURS_OF_UNIT * LANES + tid, d = unit * UNIT + 4 * (i % FOURS_OF_UNIT), team = LANES;
        vec4 total = sums[h * FOURS + i];
#ifdef SUBGROUP
        total = sum_between(total, LANES, gl_SubgroupSize);
        team = max(LANES, gl_SubgroupSize);
#endif
        barrier();
        parts[tid] = total;
        barrier();
        if (tid >= LANES || d >= HEAD_DIM)
            continue;
        total = vec4(0);
        for (uint n = 0; n < THREADS; n += team)
            total += parts[n + tid];
        [[unroll]] for (uint j = 0; j < 4 && d + j < HEAD_DIM; j++) {
            if (is_all)
                arena[arguments.to + (first_head + h) * HEAD_DIM + d + j] = total[j] / sum[h];
            else
                partials[partial + 2 + d + j] = total[j];
        }
    }
}

#ifdef SUBGROUP
/* Left to right; called by the workgroup that ends last. */
void merge_parts(uint parts_count)
{
    uint splits = 1u << arguments.splits_shift, stride = HEAD_DIM + 2;
    for (uint i = tid; i < HEADS * HEAD_DIM; i += THREADS) {
        uint h = i / HEAD_DIM, d = i - h * HEAD_DIM, at = (first_head + h) * splits * stride;
        float most = LOWEST, all = 0, total = 0;
        for (uint n = 0; n < parts_count; n++)
            most = max(most, partials[at + n * stride]);
        for (uint n = 0; n < parts_count; n++) {
            float factor = exp(partials[at + n * stride] - most);
            all += factor * partials[at + n * stride + 1];
            total += factor * partials[at + n * stride + 2 + d];
        }
        arena[arguments.to + (first_head + h) * HEAD_DIM + d] = total / all;
    }
}
#endif

void main()
{
    number_invocations();
    first_head = gl_WorkGroupID.x * HEADS;
    kv_head = quotient(first_head, arguments.group_heads);
    position = row_position(0);
    uint live = header.tokens, split = gl_WorkGroupID.y, splits = 1u << arguments.splits_shift;
    for (uint i = tid; i < min(header.pages_stride, MOST_PAGES); i += THREADS)
        page_numbers[i] = words[arguments.pages_at + i];
    uint first_seen = first_seen_from(position, arguments.window), seen = position + 1 - first_seen;
    uint each = positions_each(seen, arguments.splits_shift), parts_count = quotient(seen + each - 1, each);
    begin = first_seen + split * each;
    end = min(begin + each, position + 1);
    if (live == 0 || split >= parts_count)
        return;
    barrier();
    has_own = arguments.rotated != 0 && end == position + 1;
    ask_for(begin);
    for (uint i = tid; i < HEADS * HEAD_DIM; i += THREADS) {
        uint h = i / HEAD_DIM, d = i - h * HEAD_DIM, at = arguments.q + (first_head + h) * HEAD_DIM;
        query[i] = (arguments.rotated != 0 ? rotated(at, arguments.rope_q, d) : arena[at + d]) * arguments.scale;
    }
    if (has_own)
        append_own(first_head == kv_head * arguments.group_heads);
    barrier();

    [[unroll]] for (uint i = 0; i < HEADS * FOURS; i++) {
        uint h = i / FOURS, f = i % FOURS, unit = f / FOURS_OF_UNIT * LANES + (tid & (LANES - 1)),
             d = unit * UNIT + 4 * (f % FOURS_OF_UNIT);
        [[unroll]] for (uint j = 0; j < 4; j++)
            q[i][j] = d + j < HEAD_DIM ? query[h * HEAD_DIM + d + j] : 0.0;
        sums[i] = vec4(0);
    }
    maximum = vec4(LOWEST);
    sum = vec4(0);
    for (uint first = begin; first < end; first += AT_ONCE * TEAMS)
        attend_to(first);
    vec4 largest = maximum_between(maximum, LANES, THREADS), factor = exp(maximum - largest);
    sum = sum_between(sum * factor, LANES, THREADS);
    [[unroll]] for (uint h = 0; h < HEADS; h++) {
        uint partial = ((first_head + h) * splits + split) * (HEAD_DIM + 2);
        [[unroll]] for (uint i = 0; i < FOURS; i++)
            sums[h * FOURS + i] *= factor[h];
        store_head(h, parts_count == 1, partial);
        if (parts_count > 1 && tid == 0) {
            partials[partial] = largest[h];
            partials[partial + 1] = sum[h];
        }
    }
#ifdef SUBGROUP
    if (parts_count == 1)
        return;
    memoryBarrierBuffer();
    barrier();
    if (tid == 0)
        arrived = atomicAdd(counts[arguments.counts_at + gl_WorkGroupID.x], 1);
    barrier();
    if (arrived + 1 != parts_count)
        return;
    memoryBarrierBuffer();
    merge_parts(parts_count);
    if (tid == 0)
        counts[arguments.counts_at + gl_WorkGroupID.x] = 0;
#endif
}
