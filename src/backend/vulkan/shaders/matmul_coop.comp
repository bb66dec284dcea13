#version 450
/*
 * Matmul of a batch by cooperative matrices. The teams (subgroups) of a workgroup share a tile of outputs and tokens;
 * each computes a part of it. Weights are converted to halves on their way to shared memory; sums are floats. The input
 * rows of quantised weights are halves already (rows.comp). To avoid overflow, these weights and rows are multiplied by
 * powers of two, one per matrix and one per row, and the sums are divided by both. The input rows of F16 weights are
 * converted here, clamped to the range of halves. With a fused glu, half of a tile's outputs are of the gate and half
 * of `up`.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "products.glsl"

layout(std430, binding = BIND_ROUNDED) readonly buffer WideRounded { uvec4 wide_rounded[]; };

/* The shape that a subgroup multiplies with one instruction. */
layout(constant_id = 5) const uint PIECE_TOKENS = 16;
layout(constant_id = 6) const uint PIECE_ROWS = 16;
layout(constant_id = 7) const uint PIECE_DEPTH = 16;

const uint TEAM_TOKENS = 16 * TOKENS_EACH, TEAM_ROWS = 16 * (TOKENS_AND_GLU >> 8 & 15u);
const uint TEAMS_BESIDE = TOKENS_AND_GLU >> 12 & 15u; /* teams with the same outputs and other tokens */
const uint TEAMS_BELOW = TOKENS_AND_GLU >> 16 & 15u;  /* teams with the same tokens and other outputs */
const uint STEP = TOKENS_AND_GLU >> 20 & 15u;         /* blocks of 32 inputs per iteration */
const uint TILE_TOKENS = TEAM_TOKENS * TEAMS_BESIDE, TILE_ROWS = TEAM_ROWS * TEAMS_BELOW;
const uint MATRIX_ROWS = HAS_GLU != 0 ? TILE_ROWS / 2 : TILE_ROWS;

/* In units of 16 bytes, with one unit of padding between rows against bank conflicts: weights, then inputs; at the end,
 * the sums of some tokens. */
const uint STRIDE = 4 * STEP + 1, SUM_STRIDE = TILE_ROWS / 4 + 1;
const uint X_AT = TILE_ROWS * STRIDE;
const uint INPUT_SIZE = X_AT + TILE_TOKENS * STRIDE;
const uint SUM_SIZE = TEAMS_BESIDE * PIECE_TOKENS * SUM_STRIDE;
shared uvec4 pool[INPUT_SIZE > SUM_SIZE ? INPUT_SIZE : SUM_SIZE];

#include "coop.glsl"

const uint WEIGHT_UNITS = TILE_ROWS * STEP, WEIGHTS_EACH = (WEIGHT_UNITS + THREADS - 1) / THREADS; /* blocks */
const uint X_UNITS = TILE_TOKENS * 4 * STEP, XS_EACH = (X_UNITS + THREADS - 1) / THREADS;          /* eight halves */
const uint TOKEN_PIECES = TEAM_TOKENS / PIECE_TOKENS, ROW_PIECES = TEAM_ROWS / PIECE_ROWS;

uint tid;
matrix m, up;
uint first_row, first_token, tokens;
float range, up_range; /* factors of both matrices */

uint pair_of_halves(vec2 pair)
{
    return NATIVE_HALVES != 0 ? packHalf2x16(pair) : half_bits(pair.x) | half_bits(pair.y) << 16;
}

/* ---- Quantised weights and rows of halves: the next iteration is loaded while products are summed ---- */

packed_block blocks_ahead[WEIGHTS_EACH];
uvec4 xs_ahead[XS_EACH];

bool is_of_up(uint r) { return HAS_GLU != 0 && r >= MATRIX_ROWS; }
uint row_of(uint r) { return first_row + (is_of_up(r) ? r - MATRIX_ROWS : r); }
uint x_row_at(uint token) { return token * (m.columns / 2 + ROW_HALVES_WORDS); }
bool has_block(uint r, uint block) { return r < TILE_ROWS && row_of(r) < m.rows && block * 32 < m.columns; }

void load_blocks(uint first_block)
{
    uint type = m.type;
    [[unroll]] for (uint i = 0; i < WEIGHTS_EACH; i++) {
        uint unit = i * THREADS + tid, r = unit / STEP, block = first_block + unit % STEP;
        uvec3 planes = is_of_up(r) ? uvec3(up.codes, up.high, up.scales) : uvec3(m.codes, m.high, m.scales);
        if (has_block(r, block))
            blocks_ahead[i] = load_block(type, planes.x, planes.y, planes.z, m.columns / 32, row_of(r), block);
    }
    [[unroll]] for (uint i = 0; i < XS_EACH; i++) {
        uint unit = i * THREADS + tid, t = unit / (4 * STEP), eight = 4 * first_block + unit % (4 * STEP);
        xs_ahead[i] = uvec4(0);
        if (t < TILE_TOKENS && first_token + t < tokens && eight * 8 < m.columns)
            xs_ahead[i] = wide_rounded[x_row_at(first_token + t) / 4 + eight];
    }
}

void store_blocks(uint first_block)
{
    uint type = m.type;
    [[unroll]] for (uint i = 0; i < WEIGHTS_EACH; i++) {
        uint unit = i * THREADS + tid, r = unit / STEP, place = unit % STEP, block = first_block + place;
        if (r < TILE_ROWS) {
            bool exists = has_block(r, block);
            block_scales s = scales_of(type, blocks_ahead[i].scales, block);
            float own_range = is_of_up(r) ? up_range : range;
            vec2 scale = s.scale * own_range, minimum = s.minimum * own_range - scale * float(s.bias);
            [[unroll]] for (uint j = 0; j < 4; j++) {
                uvec4 eight;
                [[unroll]] for (uint k = 0; k < 2; k++) {
                    vec4 four = code_values(type, word_of_block(type, blocks_ahead[i], 2 * j + k)) * scale[j / 2] +
                                minimum[j / 2];
                    eight[2 * k] = pair_of_halves(four.xy);
                    eight[2 * k + 1] = pair_of_halves(four.zw);
                }
                pool[r * STRIDE + 4 * place + j] = exists ? eight : uvec4(0);
            }
        }
    }
    [[unroll]] for (uint i = 0; i < XS_EACH; i++) {
        uint unit = i * THREADS + tid, t = unit / (4 * STEP);
        if (t < TILE_TOKENS)
            pool[X_AT + t * STRIDE + unit % (4 * STEP)] = xs_ahead[i];
    }
}

/* ---- F16 weights and rows of floats ---- */

void store_halves(uint first_block)
{
    uint type = m.type, row_words = float_row_words(type, m.columns);
    for (uint unit = tid; unit < TILE_ROWS * 4 * STEP; unit += THREADS) {
        uint r = unit / (4 * STEP), word = 16 * first_block + unit % (4 * STEP) * 4, row = row_of(r);
        uvec4 eight = uvec4(0);
        [[unroll]] for (uint i = 0; i < 4; i++) {
            if (row < m.rows && word + i < row_words)
                eight[i] = weights[(is_of_up(r) ? up.codes : m.codes) + row * row_words + word + i];
        }
        pool[r * STRIDE + unit % (4 * STEP)] = eight;
    }
    for (uint unit = tid; unit < X_UNITS; unit += THREADS) {
        uint t = unit / (4 * STEP), column = 32 * first_block + unit % (4 * STEP) * 8, token = first_token + t;
        uvec4 eight;
        [[unroll]] for (uint i = 0; i < 4; i++) {
            vec2 pair = vec2(0);
            [[unroll]] for (uint j = 0; j < 2; j++) {
                if (token < tokens && column + 2 * i + j < m.columns)
                    pair[j] = arena[m.x + token * m.columns + column + 2 * i + j];
            }
            vec2 finite = clamp(pair, vec2(-65504.0), vec2(65504.0));
            eight[i] = pair_of_halves(mix(finite, pair, isnan(pair))); /* keep NaN */
        }
        pool[X_AT + t * STRIDE + unit % (4 * STEP)] = eight;
    }
}

/* ---- Products ---- */

SUM_PIECE sums[TOKEN_PIECES * ROW_PIECES];

uint team_beside() { return OWN_TEAM % TEAMS_BESIDE; }
uint team_below() { return OWN_TEAM / TEAMS_BESIDE; }

void multiply()
{
    uint x_at = X_AT + team_beside() * TEAM_TOKENS * STRIDE, weights_at = team_below() * TEAM_ROWS * STRIDE;
    [[unroll]] for (uint k = 0; k < 32 * STEP / PIECE_DEPTH; k++) {
        X_PIECE x[TOKEN_PIECES];
        [[unroll]] for (uint i = 0; i < TOKEN_PIECES; i++)
            LOAD_X(x[i], x_at + i * PIECE_TOKENS * STRIDE + k * PIECE_DEPTH / 8, STRIDE);
        [[unroll]] for (uint j = 0; j < ROW_PIECES; j++) {
            WEIGHT_PIECE weight;
            LOAD_WEIGHT(weight, weights_at + j * PIECE_ROWS * STRIDE + k * PIECE_DEPTH / 8, STRIDE);
            [[unroll]] for (uint i = 0; i < TOKEN_PIECES; i++)
                ADD_PRODUCT(x[i], weight, sums[i * ROW_PIECES + j]);
        }
    }
}

void multiply_tile()
{
    uint type = m.type, blocks = (m.columns + 31) / 32;
    [[unroll]] for (uint i = 0; i < TOKEN_PIECES * ROW_PIECES; i++)
        sums[i] = NO_SUM;
    if (IS(TYPE_F16)) {
        for (uint block = 0; block < blocks; block += STEP) {
            barrier();
            store_halves(block);
            barrier();
            multiply();
        }
        return;
    }
    load_blocks(0);
    for (uint block = 0; block < blocks; block += STEP) {
        barrier();
        store_blocks(block);
        barrier();
        load_blocks(block + STEP);
        multiply();
    }
}

/* ---- Storing the sums: one piece of each team's tokens after the other ---- */

/* The inverse of a power of two. */
float inverse_of_power(float power) { return uintBitsToFloat(0x7f000000u - floatBitsToUint(power)); }

float sum_at(uint t, uint r) { return uintBitsToFloat(pool[t * SUM_STRIDE + r / 4][r & 3u]); }

void store_tokens(uint piece)
{
    uint type = m.type;
    for (uint i = tid; i < TEAMS_BESIDE * PIECE_TOKENS * MATRIX_ROWS; i += THREADS) {
        uint r = i % MATRIX_ROWS, t = i / MATRIX_ROWS;
        uint token = first_token + t / PIECE_TOKENS * TEAM_TOKENS + piece * PIECE_TOKENS + t % PIECE_TOKENS;
        if (token < tokens && first_row + r < m.rows) {
            float sum = sum_at(t, r), up_sum = HAS_GLU != 0 ? sum_at(t, MATRIX_ROWS + r) : 0.0;
            if (!IS(TYPE_F16)) {
                float of_row = uintBitsToFloat(rounded[x_row_at(token) + m.columns / 2]);
                sum = sum * of_row * inverse_of_power(range);
                up_sum = up_sum * of_row * inverse_of_power(up_range);
            }
            store(m, up, first_row + r, token, sum, up_sum);
        }
    }
}

void store_tile()
{
    [[unroll]] for (uint i = 0; i < TOKEN_PIECES; i++) {
        uint at = team_beside() * PIECE_TOKENS * SUM_STRIDE + team_below() * TEAM_ROWS / 4;
        barrier();
        [[unroll]] for (uint j = 0; j < ROW_PIECES; j++)
            STORE_SUM(sums[i * ROW_PIECES + j], at + j * PIECE_ROWS / 4, SUM_STRIDE);
        barrier();
        store_tokens(i);
    }
}

void main()
{
    uint index = own_matrix();
    tid = gl_LocalInvocationIndex;
    m = matrices[index];
    up = matrices[HAS_GLU != 0 ? index + 1 : index];
    range = vectors[m.range];
    up_range = vectors[up.range];
    tokens = live_rows(arguments.row_kind);
    first_row = (gl_WorkGroupID.x - m.first_group) * MATRIX_ROWS;
    first_token = gl_WorkGroupID.y * TILE_TOKENS;
    if (first_token < tokens) {
        multiply_tile();
        store_tile();
    }
}
