#version 450
/*
 * Matrices times many rows, in tiles of 64 outputs and 16 * TOKENS_EACH tokens, 32 inputs at a time. Quantised
 * matrices meet rows that were rounded to bytes before; sums of 32 products of bytes are exact in floats.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "blocks.glsl"
#include "dot.glsl"

layout(constant_id = 3) const uint TOKENS_AND_GLU = 2;
const uint TOKENS_EACH = TOKENS_AND_GLU & 15u; /* of one invocation; there are 256 of them */
const uint HAS_GLU = TOKENS_AND_GLU >> 4;      /* two matrices, of which the second is `up` */

layout(std430, binding = BIND_ARENA) buffer Arena { float arena[]; };
layout(std430, binding = BIND_VECTORS) readonly buffer Vectors { float vectors[]; };
layout(std430, binding = BIND_TABLE) readonly buffer Table { matrix matrices[]; };
layout(std430, binding = BIND_ROUNDED) readonly buffer Rounded { uint rounded[]; };
layout(push_constant) uniform Push { matmul_arguments arguments; };

const uint TILE_ROWS = 64, ROWS_EACH = 4, MOST_TOKENS = 64;

#ifdef INT_DOT
shared uint weight_codes[8][TILE_ROWS];
shared uint x_codes[8][MOST_TOKENS];
#endif
shared vec4 weight_tile[32][TILE_ROWS / 4];
shared float x_tile[32][MOST_TOKENS];
shared vec2 tile_scales[TILE_ROWS], tile_minimums[TILE_ROWS];
shared float x_scales[MOST_TOKENS];
shared vec2 x_sums[MOST_TOKENS];

uint tid, tile_tokens;

/* 32 inputs of 64 outputs: numbers that the scales are then multiplied with. */
void load_weights(matrix m, uint first_row, uint block)
{
    uint type = m.type, blocks = m.columns / 32;
    for (uint i = tid; i < TILE_ROWS * 8; i += THREADS) {
        uint r = i / 8, word = i & 7u, row = first_row + r;
        vec4 four = vec4(0);
        if (is_float_type(type)) {
            uint quad = block * 8 + word;
            if (row < m.rows && quad * 4 < m.columns)
                four = load_floats(type, m.codes + row * float_row_words(type, m.columns), quad);
        } else if (row < m.rows) {
            uint place = row * blocks + block;
            uint codes = load_codes(
                type, m.codes + place * code_words(type), m.high + place * high_words(type), word);
#ifdef INT_DOT
            weight_codes[word][r] = codes;
#else
            four = code_values(type, codes);
#endif
        }
#ifdef INT_DOT
        else
            weight_codes[word][r] = 0;
        if (is_float_type(type))
#endif
            for (uint j = 0; j < 4; j++)
                weight_tile[word * 4 + j][r / 4][r & 3u] = four[j];
    }
    if (tid < TILE_ROWS) {
        uint row = first_row + tid;
        if (is_float_type(type) || row >= m.rows) {
            tile_scales[tid] = vec2(1);
            tile_minimums[tid] = vec2(0);
        } else {
            block_scales s = load_scales(type, m.scales + row * scale_row_words(type, blocks), block);
            tile_scales[tid] = s.scale;
            tile_minimums[tid] = s.minimum - s.scale * float(s.bias);
        }
    }
}

void load_inputs(matrix m, uint first_token, uint tokens, uint block)
{
    uint type = m.type, blocks = m.columns / 32, stride = m.columns / 4 + 2 * blocks;
    for (uint i = tid; i < tile_tokens * 8; i += THREADS) {
        uint t = i / 8, word = i & 7u, token = first_token + t;
        vec4 four = vec4(0);
        if (is_float_type(type)) {
            for (uint j = 0; j < 4; j++) {
                uint column = block * 32 + word * 4 + j;
                if (token < tokens && column < m.columns)
                    four[j] = arena[m.x + token * m.columns + column];
            }
            if (IS(TYPE_F16)) {
                for (uint j = 0; j < 4; j++)
                    four[j] = rounded_to_half(four[j]);
            }
        } else if (token < tokens) {
            uint codes = rounded[token * stride + block * 8 + word];
#ifdef INT_DOT
            x_codes[word][t] = codes;
#else
            four = vec4(signed_byte_of(codes, 0), signed_byte_of(codes, 1), signed_byte_of(codes, 2),
                signed_byte_of(codes, 3));
#endif
        }
#ifdef INT_DOT
        else
            x_codes[word][t] = 0;
        if (is_float_type(type))
#endif
            for (uint j = 0; j < 4; j++)
                x_tile[word * 4 + j][t] = four[j];
    }
    if (tid < tile_tokens) {
        uint token = first_token + tid;
        x_scales[tid] = 1.0;
        x_sums[tid] = vec2(0);
        if (!is_float_type(type) && token < tokens) {
            uint at = token * stride + m.columns / 4 + block;
            int both = int(rounded[at + blocks]);
            x_scales[tid] = uintBitsToFloat(rounded[at]);
            x_sums[tid] = vec2(bitfieldExtract(both, 0, 16), both >> 16);
        }
    }
}

/* Products of one half of the 32, for 4 outputs and TOKENS_EACH tokens. */
void multiply_half(matrix m, uint part, uint r, uint t, inout vec4 products[4])
{
    uint type = m.type;
    for (uint j = 0; j < TOKENS_EACH; j++)
        products[j] = vec4(0);
#ifdef INT_DOT
    if (!is_float_type(type)) {
        for (uint k = part * 4; k < part * 4 + 4; k++) {
            for (uint j = 0; j < TOKENS_EACH; j++) {
                uint x = x_codes[k][t + 16 * j];
                products[j] += vec4(dot4(weight_codes[k][r], x), dot4(weight_codes[k][r + 1], x),
                    dot4(weight_codes[k][r + 2], x), dot4(weight_codes[k][r + 3], x));
            }
        }
        return;
    }
#endif
    for (uint k = part * 16; k < part * 16 + 16; k++) {
        vec4 w = weight_tile[k][r / 4];
        for (uint j = 0; j < TOKENS_EACH; j++)
            products[j] += w * x_tile[k][t + 16 * j];
    }
}

void multiply_tile(matrix m, uint first_row, uint first_token, uint tokens, out vec4 sums[4])
{
    uint r = tid / 16 * ROWS_EACH, t = tid & 15u;
    vec4 products[4];
    for (uint j = 0; j < TOKENS_EACH; j++)
        sums[j] = vec4(0);
    for (uint block = 0; block < (m.columns + 31) / 32; block++) {
        barrier();
        load_weights(m, first_row, block);
        load_inputs(m, first_token, tokens, block);
        barrier();
        for (uint part = 0; part < 2; part++) {
            vec4 scales = vec4(tile_scales[r][part], tile_scales[r + 1][part], tile_scales[r + 2][part],
                tile_scales[r + 3][part]);
            vec4 minimums = vec4(tile_minimums[r][part], tile_minimums[r + 1][part], tile_minimums[r + 2][part],
                tile_minimums[r + 3][part]);
            multiply_half(m, part, r, t, products);
            for (uint j = 0; j < TOKENS_EACH; j++)
                sums[j] += (products[j] * scales + minimums * x_sums[t + 16 * j][part]) * x_scales[t + 16 * j];
        }
    }
}

float with_bias(matrix m, uint row, float sum)
{
    return m.bias == ROW_NOTHING ? sum : sum + vectors[m.bias + m.to_first + row];
}

void store(matrix m, matrix up, uint row, uint token, float sum, float up_sum)
{
    if (HAS_GLU != 0) {
        arena[arguments.glu_to + token * m.to_columns + m.to_first + row] =
            activate(arguments.glu, with_bias(m, row, sum)) * with_bias(up, row, up_sum);
        return;
    }
    float result = activate(m.activation, with_bias(m, row, sum));
    uint at = m.to + token * m.to_columns + m.to_first + row;
    arena[at] = (m.flags & MATRIX_ACCUMULATE) != 0 ? arena[at] + result : result;
}

void work_on_tile(matrix m, matrix up, uint first_row, uint first_token, uint tokens)
{
    vec4 sums[4], up_sums[4];
    multiply_tile(m, first_row, first_token, tokens, sums);
    up_sums = sums;
    if (HAS_GLU != 0)
        multiply_tile(up, first_row, first_token, tokens, up_sums);
    for (uint j = 0; j < TOKENS_EACH; j++) {
        uint token = first_token + (tid & 15u) + 16 * j;
        for (uint i = 0; i < ROWS_EACH; i++) {
            uint row = first_row + tid / 16 * ROWS_EACH + i;
            if (token < tokens && row < m.rows)
                store(m, up, row, token, sums[j][i], up_sums[j][i]);
        }
    }
}

void main()
{
    tid = gl_LocalInvocationIndex;
    tile_tokens = 16 * TOKENS_EACH;
    uint tokens = live_rows(arguments.row_kind);
    uint index = arguments.first_matrix;
    if (HAS_GLU == 0) {
        while (index + 1 < arguments.first_matrix + arguments.matrix_count &&
               gl_WorkGroupID.x >= matrices[index + 1].first_group)
            index++;
    }
    matrix m = matrices[index], up = matrices[HAS_GLU != 0 ? index + 1 : index];
    uint first_row = (gl_WorkGroupID.x - m.first_group) * TILE_ROWS;
    /* A device that cannot leave early gets few workgroups, which go on to further tokens. */
    for (uint first_token = gl_WorkGroupID.y * tile_tokens; first_token < tokens;
         first_token += gl_NumWorkGroups.y * tile_tokens)
        work_on_tile(m, up, first_row, first_token, tokens);
}
