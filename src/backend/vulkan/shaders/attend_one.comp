#version 450
/*
 * Attention of a single token. A workgroup has up to four heads of one kv head and a split of the positions. LANES
 * neighbouring invocations, a team, share a position; each team computes its positions with a running maximum. At the
 * end the teams are merged, first within a subgroup, then through shared memory. The workgroup that ends last merges
 * the splits; merge.comp does so on devices where workgroups cannot signal each other. If rope and append are fused,
 * key and value are rotated, rounded and stored here. With PROJECTS the input is the row from which query, key and
 * value are computed.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#define MOST_INVOCATIONS 128
#include "lanes.glsl"
#include "states.glsl"

layout(constant_id = 3) const uint HEADS_AND_LANES = 0x101001;
const uint HEADS = HEADS_AND_LANES & 15u;              /* heads of this workgroup, at most 4 */
const uint LANES = 1u << (HEADS_AND_LANES >> 4 & 15u); /* invocations that share a position */
const uint REACH = 1u << (HEADS_AND_LANES >> 8 & 15u); /* invocations that are merged by shuffles */
const uint AT_ONCE = HEADS_AND_LANES >> 12 & 15u;      /* positions of a team at once */
const uint TEAMS = THREADS / LANES, PARTIALS = THREADS / REACH;
const uint EACH = (UNITS + LANES - 1) / LANES;   /* units of each lane */
const uint FOURS_OF_UNIT = IS_F32 ? 1 : 2, FOURS = EACH * FOURS_OF_UNIT;

layout(std430, binding = BIND_ARENA) buffer Arena { float arena[]; };
layout(std430, binding = BIND_ROPES) readonly buffer Ropes { vec2 ropes[]; }; /* cosine and sine */
layout(std430, binding = BIND_PARTIALS) coherent buffer Partials { float partials[]; };
#ifdef SUBGROUP
layout(std430, binding = BIND_PARTIALS) coherent buffer Counts { uint counts[]; };
#endif
#ifdef PROJECTS
layout(push_constant) uniform Push { attend_arguments arguments; project_token token; };
const bool IS_ROTATED = true;
#else
layout(push_constant) uniform Push { attend_arguments arguments; attend_token token; };
#define IS_ROTATED (token.rotated != 0)
#endif

const uint MOST_ROWS = 2048, MOST_PARTS = 4096, MOST_PAGES = 128, MOST_PARTIALS = 128;
const float LOWEST = -3.0e38;

/* Rows of HEAD_DIM floats: the queries, then the token's own key and value after rounding. */
shared float rows[MOST_ROWS];
shared float parts[MOST_PARTS]; /* [groups of REACH invocations][heads][HEAD_DIM] */
shared vec4 maxima[MOST_PARTIALS], sums_of_weights[MOST_PARTIALS];
shared uint page_numbers[MOST_PAGES];
shared uint arrived;

const uint OWN_KEY = HEADS * HEAD_DIM, OWN_VALUE = OWN_KEY + HEAD_DIM;

uint kv_head, first_head, position, begin, end;
bool has_own;
uvec4 keys_ahead[AT_ONCE * EACH], values_ahead[AT_ONCE * EACH];
vec4 q[HEADS * FOURS], sums[HEADS * FOURS];
vec4 maximum, sum; /* one element per head */

#ifdef PROJECTS
#include "project.glsl"
#else
float projected(uint row, uint column)
{
    uint from = row < HEADS ? token.q + (first_head + row) * HEAD_DIM
                            : (row == HEADS ? token.k : token.v) + kv_head * HEAD_DIM;
    return arena[from + column];
}
#endif

uint place_of(uint j)
{
    uint index = j / PAGE_POSITIONS, page = index < MOST_PAGES ? page_numbers[index] : words[arguments.pages_at + index];
    return ((page * arguments.kv_heads + kv_head) * PAGE_POSITIONS + j % PAGE_POSITIONS) * arguments.head_words;
}

uint rotated_pairs() { return IS_ROTATED ? arguments.dimensions / 2 : 0; }

/* The rotation of pair `i` of all rows; values are not rotated. */
vec2 angle_of(uint i)
{
    const uint pairs_of_row = HEAD_DIM / 2;
    uint row = i / pairs_of_row, pair = i - row * pairs_of_row, pairs = rotated_pairs(),
         table = (row < HEADS ? arguments.rope_q : arguments.rope_k) / 2 + pair;
    if (pair >= pairs || row > HEADS)
        return vec2(1, 0);
    vec2 lower = ropes[table + (position & 255u) * pairs], upper = ropes[table + (256 + (position >> 8)) * pairs];
    return vec2(lower.x * upper.x - lower.y * upper.y, lower.y * upper.x + lower.x * upper.y);
}

float as_cached(float value) { return IS_F32 ? value : half_value(half_bits(value)); }

/* Rotates the queries and the key, pair by pair. `first_angle` is the rotation of this invocation's first pair, loaded
 * earlier. */
void load_rows(vec2 first_angle)
{
    const uint pairs = HEAD_DIM / 2;
    for (uint i = tid; i < (HEADS + (has_own ? 2 : 0)) * pairs; i += THREADS) {
        uint row = i / pairs, pair = i - row * pairs;
        bool rotates = pair < rotated_pairs() && row <= HEADS, in_halves = arguments.halves != 0 && pair < rotated_pairs();
        uint a = in_halves ? pair : 2 * pair, b = in_halves ? pair + rotated_pairs() : a + 1;
        float x = projected(row, a), y = projected(row, b);
        vec2 angle = i == tid ? first_angle : angle_of(i);
        float rotated_x = rotates ? x * angle.x - y * angle.y : x, rotated_y = rotates ? y * angle.x + x * angle.y : y;
        rows[row * HEAD_DIM + a] = row < HEADS ? rotated_x * arguments.scale : as_cached(rotated_x);
        rows[row * HEAD_DIM + b] = row < HEADS ? rotated_y * arguments.scale : as_cached(rotated_y);
    }
}

void store_own()
{
    uint at = place_of(position);
    for (uint i = tid; i < 2 * arguments.head_words; i += THREADS) {
        bool of_keys = i < arguments.head_words;
        uint index = of_keys ? i : i - arguments.head_words, from = of_keys ? OWN_KEY : OWN_VALUE;
        uint word = IS_F32 ? floatBitsToUint(rows[from + index])
                           : half_bits(rows[from + 2 * index]) | half_bits(rows[from + 2 * index + 1]) << 16;
        if (of_keys)
            keys[at + index] = word;
        else
            values[at + index] = word;
    }
}

uint position_of(uint first, uint n) { return first + n * TEAMS + tid / LANES; }

/* The first column of this invocation's `i`th vec4. */
uint column_of(uint i) { return (i / FOURS_OF_UNIT * LANES + (tid & (LANES - 1))) * UNIT + 4 * (i % FOURS_OF_UNIT); }

vec4 four_of_row(uint row_at, uint column)
{
    vec4 four;
    [[unroll]] for (uint j = 0; j < 4; j++)
        four[j] = column + j < HEAD_DIM ? rows[row_at + column + j] : 0.0;
    return four;
}

void load_ahead(uint first)
{
    [[unroll]] for (uint n = 0; n < AT_ONCE; n++) {
        uint j = position_of(first, n), at = j < end ? place_of(j) : 0;
        [[unroll]] for (uint e = 0; e < EACH; e++) {
            uint unit = e * LANES + (tid & (LANES - 1));
            bool exists = j < end && unit < UNITS && !(has_own && j == position);
            keys_ahead[n * EACH + e] = exists ? load_unit(true, at, unit) : uvec4(0);
            values_ahead[n * EACH + e] = exists ? load_unit(false, at, unit) : uvec4(0);
        }
    }
}

vec4 capped(vec4 scores)
{
    if (arguments.cap == 0.0)
        return scores;
    for (uint i = 0; i < 4; i++)
        scores[i] = arguments.cap * stable_tanh(scores[i] / arguments.cap);
    return scores;
}

void attend_to(uint first)
{
    vec4 scores[AT_ONCE], values_now[AT_ONCE * FOURS], larger = maximum;
    [[unroll]] for (uint n = 0; n < AT_ONCE; n++) {
        bool is_own = has_own && position_of(first, n) == position;
        scores[n] = vec4(0);
        [[unroll]] for (uint i = 0; i < FOURS; i++) {
            uint unit = n * EACH + i / FOURS_OF_UNIT;
            vec4 key = four_of_unit(keys_ahead[unit], i % FOURS_OF_UNIT);
            values_now[n * FOURS + i] = four_of_unit(values_ahead[unit], i % FOURS_OF_UNIT);
            if (is_own) {
                key = four_of_row(OWN_KEY, column_of(i));
                values_now[n * FOURS + i] = four_of_row(OWN_VALUE, column_of(i));
            }
            [[unroll]] for (uint h = 0; h < HEADS; h++)
                scores[n][h] += dot(q[h * FOURS + i], key);
        }
    }
    load_ahead(first + AT_ONCE * TEAMS);
    [[unroll]] for (uint n = 0; n < AT_ONCE; n++) {
        scores[n] = capped(sum_between(scores[n], 1, LANES));
        larger = position_of(first, n) < end ? max(larger, scores[n]) : larger;
    }
    vec4 keep = exp(maximum - larger);
    maximum = larger;
    sum *= keep;
    [[unroll]] for (uint i = 0; i < HEADS * FOURS; i++)
        sums[i] *= keep[i / FOURS];
    [[unroll]] for (uint n = 0; n < AT_ONCE; n++) {
        vec4 weights = position_of(first, n) < end ? exp(scores[n] - larger) : vec4(0);
        sum += weights;
        [[unroll]] for (uint i = 0; i < HEADS * FOURS; i++)
            sums[i] += weights[i / FOURS] * values_now[n * FOURS + i % FOURS];
    }
}

/* Merges the teams by shuffles, and stores the result of each REACH invocations in shared memory. */
void gather()
{
    vec4 largest = maximum_between(maximum, LANES, REACH), factor = exp(maximum - largest);
    uint party = tid / REACH, lane = tid & (REACH - 1);
    sum = sum_between(sum * factor, LANES, REACH);
    [[unroll]] for (uint i = 0; i < HEADS * FOURS; i++)
        sums[i] = sum_between(sums[i] * factor[i / FOURS], LANES, REACH);
    if (lane == 0) {
        maxima[party] = largest;
        sums_of_weights[party] = sum;
    }
    [[unroll]] for (uint i = 0; i < HEADS * FOURS; i++) {
        uint column = column_of(i % FOURS), at = (party * HEADS + i / FOURS) * HEAD_DIM + column;
        [[unroll]] for (uint j = 0; j < 4; j++) {
            if (lane < LANES && column + j < HEAD_DIM)
                parts[at + j] = sums[i][j];
        }
    }
    barrier();
}

/* Merges column `i` of all heads: the maximum, the sum of weights, the weighted values. */
vec3 gathered(uint i)
{
    uint h = i / HEAD_DIM;
    vec3 result = vec3(maxima[0][h], 0, 0);
    [[unroll]] for (uint n = 1; n < PARTIALS; n++)
        result.x = max(result.x, maxima[n][h]);
    [[unroll]] for (uint n = 0; n < PARTIALS; n++) {
        float factor = exp(maxima[n][h] - result.x);
        result.y += factor * sums_of_weights[n][h];
        result.z += factor * parts[n * HEADS * HEAD_DIM + i];
    }
    return result;
}

#ifdef SUBGROUP
/* Called by the workgroup that ends last. */
void merge_parts(uint count)
{
    uint splits = 1u << arguments.splits_shift, stride = HEAD_DIM + 2, first = first_head * splits * stride;
    barrier();
    for (uint i = tid; i < HEADS * count; i += THREADS) {
        uint h = quotient(i, count), n = i - h * count, at = first + (h * splits + n) * stride;
        maxima[n][h] = partials[at];
        sums_of_weights[n][h] = partials[at + 1];
    }
    barrier();
    for (uint i = tid; i < HEADS * HEAD_DIM; i += THREADS) {
        uint h = i / HEAD_DIM, at = first + h * splits * stride + 2 + (i - h * HEAD_DIM);
        float most = LOWEST, all = 0, total = 0;
        for (uint n = 0; n < count; n++)
            most = max(most, maxima[n][h]);
        for (uint n = 0; n < count; n += 8) {
            float eight[8];
            [[unroll]] for (uint j = 0; j < 8; j++)
                eight[j] = n + j < count ? partials[at + (n + j) * stride] : 0.0;
            [[unroll]] for (uint j = 0; j < 8; j++) {
                float factor = n + j < count ? exp(maxima[n + j][h] - most) : 0.0;
                all += n + j < count ? factor * sums_of_weights[n + j][h] : 0.0;
                total += factor * eight[j];
            }
        }
        arena[arguments.to + first_head * HEAD_DIM + i] = total / all;
    }
}
#endif

void main()
{
    number_invocations();
    uint split = gl_WorkGroupID.y, splits = 1u << arguments.splits_shift;
    first_head = gl_WorkGroupID.x * HEADS;
    kv_head = quotient(first_head, arguments.group_heads);
    position = row_position(0);
    uint live = header.tokens, page = tid < min(arguments.pages, MOST_PAGES) ? words[arguments.pages_at + tid] : 0;
#ifdef PROJECTS
    /* Loads weights before the position is known, which decides the work of each split. In a short context the first
     * split has all positions. */
    uint loaded = (HEADS + (split == 0 ? 2 : 0)) * HEAD_DIM * PIECES;
    begin_input();
    load_pieces(0, 0, loaded);
#endif
    if (tid < MOST_PAGES)
        page_numbers[tid] = page;
    uint first_seen = first_seen_from(position, arguments.window), seen = position + 1 - first_seen;
    uint each = positions_each(seen, arguments.splits_shift, arguments.least), count = quotient(seen + each - 1, each);
    begin = first_seen + split * each;
    end = min(begin + each, position + 1);
    if (live == 0 || split >= count)
        return;
    has_own = IS_ROTATED && end == position + 1;
#ifdef PROJECTS
    uint pieces = (HEADS + (has_own ? 2 : 0)) * HEAD_DIM * PIECES;
    if (pieces > loaded)
        load_pieces(0, loaded, pieces);
#endif
    vec2 first_angle = angle_of(tid);
    barrier();
    load_ahead(begin);
#ifdef PROJECTS
    project(pieces);
#endif
    load_rows(first_angle);
    barrier();
    if (has_own && first_head == kv_head * arguments.group_heads)
        store_own();
    [[unroll]] for (uint i = 0; i < HEADS * FOURS; i++) {
        q[i] = four_of_row(i / FOURS * HEAD_DIM, column_of(i % FOURS));
        sums[i] = vec4(0);
    }
    maximum = vec4(LOWEST);
    sum = vec4(0);
    for (uint first = begin; first < end; first += AT_ONCE * TEAMS)
        attend_to(first);
    gather();
    for (uint i = tid; i < HEADS * HEAD_DIM; i += THREADS) {
        uint h = i / HEAD_DIM, column = i - h * HEAD_DIM,
             partial = ((first_head + h) * splits + split) * (HEAD_DIM + 2);
        vec3 all = gathered(i);
        if (count == 1) {
            arena[arguments.to + first_head * HEAD_DIM + i] = all.z / all.y;
            continue;
        }
        partials[partial + 2 + column] = all.z;
        if (column == 0) {
            partials[partial] = all.x;
            partials[partial + 1] = all.y;
        }
    }
    if (count == 1)
        return;
#ifdef SUBGROUP
    memoryBarrierBuffer();
    barrier();
    if (tid == 0)
        arrived = atomicAdd(counts[arguments.counts_at + gl_WorkGroupID.x], 1);
    barrier();
    if (arrived + 1 != count)
        return;
    memoryBarrierBuffer();
    merge_parts(count);
    if (tid == 0)
        counts[arguments.counts_at + gl_WorkGroupID.x] = 0;
#endif
}
