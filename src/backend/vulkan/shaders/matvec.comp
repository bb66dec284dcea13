#version 450
/*
 * Matmul of a single token. A workgroup computes some rows of one matrix; LANES neighbouring invocations share a row.
 * Each workgroup repeats the ops before the matmul (norm, lerp with the previous row, rounding to int8), which is
 * cheaper than another dispatch and a barrier. A token is a long chain of short dispatches, so the latency from the
 * first load to the last store counts: weights are loaded before the input is read, and values that never change are
 * push or specialisation constants.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "lanes.glsl"

layout(constant_id = 3) const uint LANES_AND_MORE = 0;
/* Unused code is removed by specialisation: between short dispatches, fetching instructions takes a good part of the
 * time. */
const uint HAS_GLU = LANES_AND_MORE & MATVEC_GLU;
const uint FROM_TABLE = LANES_AND_MORE & MATVEC_TABLE;
const bool HAS_ONE_MATRIX = (LANES_AND_MORE & (MATVEC_GLU | MATVEC_ONE_MATRIX)) != 0; /* no look-up is needed */
const bool HAS_NORM = (LANES_AND_MORE & MATVEC_NORM) != 0, HAS_MEAN = (LANES_AND_MORE & MATVEC_LAYER_NORM) != 0,
           HAS_LERP = (LANES_AND_MORE & MATVEC_LERP) != 0, HAS_LOOPS = (LANES_AND_MORE & MATVEC_LOOPS) != 0;
const uint LANES_SHIFT = LANES_AND_MORE >> 8 & 15u, FLOAT_SHIFT = LANES_AND_MORE >> 12 & 15u;
const uint LANES = 1u << LANES_SHIFT;       /* invocations that share a row of a quantised matrix */
const uint FLOAT_LANES = 1u << FLOAT_SHIFT; /* invocations that share a row of floats */
const uint ACTIVATION = LANES_AND_MORE >> 16;                /* of all matrices, or MATVEC_ANY */

#define MOST_BYTES 16384
#define MOST_BLOCKS 256
#include "input.glsl"

layout(std430, binding = BIND_ARENA) buffer Arena { float arena[]; };
layout(std430, binding = BIND_RECURRENT) buffer Recurrent { float recurrent[]; };
layout(std430, binding = BIND_TABLE) readonly buffer Table { matrix matrices[]; };
layout(push_constant) uniform Push { matvec_arguments arguments; };

/* Blocks of one invocation, and the number of them that are loaded ahead. */
const uint BLOCKS = COLUMNS / 32, CHUNK_BLOCKS = CHUNK / 32;
const uint EACH = (BLOCKS + LANES - 1) / LANES;
const uint AHEAD = EACH < 1 ? 1 : EACH < 4 ? EACH : 4;
const uint TILES = (EACH + AHEAD - 1) / AHEAD;

matvec_matrix m, up;
uint lanes, lerp_at;

/* ---- The input ---- */

/* The lerp with the previous row, from the slot's recurrent state; the first workgroup stores this row there. */
vec4 mixed(vec4 four, uint i)
{
    uint slot = runs[0].slot * RECURRENT_VERSIONS;
    uint before = (slot + runs[0].read_version) * arguments.recurrent_elements + arguments.shift + 4 * i;
    uint after = (slot + runs[0].write_version) * arguments.recurrent_elements + arguments.shift + 4 * i;
    bool keeps = (arguments.flags & MATVEC_STORES_ROW) != 0 && gl_WorkGroupID.x == 0 && live_rows(ROWS_TOKENS) != 0;
    vec4 previous = vec4(0);
    [[unroll]] for (uint j = 0; j < 4; j++) {
        if (COLUMNS % 4 == 0 || 4 * i + j < COLUMNS) {
            previous[j] = runs[0].first == 0 ? 0.0 : recurrent[before + j];
            if (keeps)
                recurrent[after + j] = four[j];
        }
    }
    return four + (previous - four) * four_of_vectors(lerp_at, i);
}

/* Norm, lerp and rounding of the part of the row from `first` on. */
void finish_input(vec2 moments, uint first)
{
    norm_input(moments, first);
    [[unroll]] for (uint k = 0; k < HELD; k++) {
        if (HAS_LERP && lerp_at != NO_OPERAND && is_within(first, k))
            held[k] = mixed(held[k], four_at(first, k));
    }
}

void store_floats()
{
    [[unroll]] for (uint k = 0; k < HELD; k++) {
        vec4 four = held[k];
        [[unroll]] for (uint j = 0; j < 4; j++)
            four[j] = IS(TYPE_F16) ? rounded_to_half(four[j]) : four[j];
        if (k * THREADS + tid < (SHARED_COLUMNS + 3) / 4)
            xs[k * THREADS + tid] = floatBitsToUint(four);
    }
}

void load_x(vec2 moments, uint first)
{
    if (COLUMNS > CHUNK)
        hold_input(first);
    finish_input(moments, first);
    if (is_float_type(type))
        store_floats();
    else
        store_bytes();
    barrier();
}

/* ---- Rows ---- */

packed_block ahead[AHEAD], up_ahead[AHEAD];
vec3 beside; /* biases, and the value to accumulate to */

float bias_of(matvec_matrix of, uint row) { return of.bias == NO_OPERAND ? 0.0 : vectors[of.bias + row]; }

void load_ahead(uint row, uint tile, uint lane)
{
    if (row >= m.rows || is_float_type(type))
        return;
    [[unroll]] for (uint i = 0; i < AHEAD; i++) {
        uint block = (tile * AHEAD + i) * LANES + lane;
        if (block < BLOCKS) {
            ahead[i] = load_block(type, m.codes, m.high, m.scales, BLOCKS, row, block);
            if (HAS_GLU != 0)
                up_ahead[i] = load_block(type, up.codes, up.high, up.scales, BLOCKS, row, block);
        }
    }
}

void load_rest(uint row)
{
    if (row >= m.rows)
        return;
    beside.x = bias_of(m, row);
    beside.y = HAS_GLU != 0 ? bias_of(up, row) : 0.0;
    beside.z = (m.kind & MATVEC_ACCUMULATES) != 0 ? arena[m.to + row] : 0.0;
}

/* The products of the blocks loaded ahead; loads the next ones, which may be of another row. */
vec2 dot_tile(uint row, uint tile, uint lane, uint next_row)
{
    packed_block now[AHEAD], up_now[AHEAD];
    vec2 sums = vec2(0);
    [[unroll]] for (uint i = 0; i < AHEAD; i++) {
        now[i] = ahead[i];
        up_now[i] = up_ahead[i];
    }
    if (TILES > 1 || HAS_LOOPS) {
        bool is_last = tile + 1 == TILES;
        load_ahead(is_last ? next_row : row, is_last ? 0 : tile + 1, lane);
    }
    [[unroll]] for (uint i = 0; i < AHEAD; i++) {
        uint block = (tile * AHEAD + i) * LANES + lane;
        if (block < BLOCKS && row < m.rows) {
            sums.x += dot_block(now[i], block, block % CHUNK_BLOCKS);
            if (HAS_GLU != 0)
                sums.y += dot_block(up_now[i], block, block % CHUNK_BLOCKS);
        }
    }
    return sums;
}

float dot_floats(matvec_matrix of, uint row, uint lane, uint first)
{
    float sum = 0;
    uint row_at = of.codes + row * float_row_words(type, COLUMNS), skip = first / 4;
    uint count = (min(CHUNK, COLUMNS - first) + 3) / 4;
    for (uint i = lane; i < count && row < of.rows; i += FLOAT_LANES)
        sum += dot(load_floats(type, row_at, skip + i), uintBitsToFloat(xs[i]));
    return sum;
}

vec2 dot_row(vec2 moments, uint row, uint lane, uint next_row)
{
    vec2 sums = vec2(0);
    if (is_float_type(type)) {
        for (uint first = 0; first < COLUMNS; first += CHUNK) {
            if (COLUMNS > CHUNK) {
                barrier();
                load_x(moments, first);
            }
            sums.x += dot_floats(m, row, lane, first);
            if (HAS_GLU != 0)
                sums.y += dot_floats(up, row, lane, first);
        }
        return sums;
    }
    for (uint tile = 0; tile < TILES; tile++) {
        uint first_block = tile * AHEAD * LANES;
        if (COLUMNS > CHUNK && first_block % CHUNK_BLOCKS == 0) {
            barrier();
            load_x(moments, first_block * 32);
        }
        sums += dot_tile(row, tile, lane, next_row);
    }
    return sums;
}

void store(uint row, vec2 sums)
{
    float result = activate(ACTIVATION == MATVEC_ANY ? m.kind & 0xffu : ACTIVATION, sums.x + beside.x);
    arena[m.to + row] = HAS_GLU != 0 ? result * (sums.y + beside.y) : beside.z + result;
}

matvec_matrix argument_matrix(uint index)
{
    uint at = 2 + index * MATVEC_MATRIX_WORDS;
    return matvec_matrix(arguments.words[at], arguments.words[at + 1], arguments.words[at + 2], arguments.words[at + 3],
        arguments.words[at + 4], arguments.words[at + 5], arguments.words[at + 6]);
}

matvec_matrix table_matrix(matrix from)
{
    return matvec_matrix(from.rows, from.codes, from.high, from.scales, from.to, from.bias,
        from.activation | (from.flags & MATRIX_ACCUMULATE) * MATVEC_ACCUMULATES);
}

void main()
{
    number_invocations();
    uint live = live_rows(arguments.flags & MATVEC_ROW_KIND), group = gl_WorkGroupID.x, index = 0;
    uint rows_per_group = arguments.flags >> 8;
    [[unroll]] for (uint i = 1; i < (FROM_TABLE != 0 ? MATVEC_ENTRIES : MATVEC_MATRICES) && !HAS_ONE_MATRIX; i++)
        index += group >= arguments.words[i - 1] ? 1 : 0;
    if (FROM_TABLE != 0) {
        matrix from = matrices[arguments.first_matrix + index];
        m = up = table_matrix(from);
        type = from.type;
        x_at = from.x;
        lerp_at = from.lerp;
        rows_per_group = from.rows_per_group;
    } else {
        m = argument_matrix(index);
        up = argument_matrix(HAS_GLU != 0 ? 1 : 0);
        type = only_type();
        x_at = arguments.x;
        lerp_at = arguments.lerp;
    }
    norm_at = arguments.norm;
    norm_bias_at = arguments.norm_bias;
    norm_epsilon = arguments.epsilon;
    uint shift = is_float_type(type) ? FLOAT_SHIFT : LANES_SHIFT;
    lanes = 1u << shift;
    uint at_once = THREADS >> shift, own = tid >> shift, lane = tid & (lanes - 1);
    uint begin = (group - (index == 0 ? 0 : arguments.words[index - 1])) * rows_per_group;
    uint end = min(begin + rows_per_group, m.rows);
    hold_input(0);
    load_ahead(begin + own, 0, lane);
    load_rest(begin + own);
    vec2 moments = moments_of_input();
    if (COLUMNS <= CHUNK)
        load_x(moments, 0);
    uint first_row = begin;
    do {
        uint row = first_row + own;
        vec2 sums = dot_row(moments, row, lane, HAS_LOOPS ? row + at_once : m.rows);
        sums.x = sum_of_lanes(sums.x, lanes);
        if (HAS_GLU != 0)
            sums.y = sum_of_lanes(sums.y, lanes);
        if (lane == 0 && row < end && live != 0)
            store(row, sums);
        first_row += at_once;
        if (HAS_LOOPS)
            load_rest(first_row + own);
    } while (HAS_LOOPS && first_row < end);
}
