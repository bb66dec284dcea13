#version 450
/*
 * Matmul of a batch, in tiles of 64 outputs and 16 * TOKENS_EACH tokens: 128 inputs at a time for quantised matrices,
 * 32 for floats. The next inputs are loaded while the products of the current ones are summed. The input rows of
 * quantised matrices are already rounded to int8.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "products.glsl"

const uint TILE_ROWS = 64, ROWS_EACH = 4, MOST_TOKENS = 64;
const uint STEP = 4; /* blocks per iteration */

/* Units of four outputs or tokens: words of codes, [STEP][8][16], or floats, [32][16]. */
shared uvec4 weight_quads[512], x_quads[512];
/* [STEP][16]; two if the halves of a block have different scales. */
shared vec4 scale_quads[2][64], minimum_quads[2][64], x_scale_quads[64], x_sum_quads[2][64];

uint tid, tile_tokens;

/* Formats with a scale for each half of a block. */
bool halves_differ(uint type) { return IS(TYPE_Q2_K) || IS(TYPE_Q3_K) || IS(TYPE_Q6_K); }

/* ---- Loads of the next iteration: a block of an output and one of a token ---- */

packed_block block_ahead;
uvec4 low_ahead, upper_ahead;
float x_scale_ahead;
int x_sums_ahead;

uint own_row() { return tid & (TILE_ROWS - 1); }
uint own_block() { return tid / TILE_ROWS; }

void load_bytes(matrix m, uint first_row, uint first_token, uint tokens, uint first_block)
{
    uint type = m.type, blocks = m.columns / 32, block = first_block + own_block();
    uint row = first_row + own_row(), token = first_token + own_row();
    if (block < blocks && row < m.rows)
        block_ahead = load_block(type, m.codes, m.high, m.scales, blocks, row, block);
    low_ahead = upper_ahead = uvec4(0);
    x_scale_ahead = 0;
    x_sums_ahead = 0;
    if (block < blocks && token < tokens && own_row() < tile_tokens) {
        uint at = token * (m.columns / 4 + 2 * blocks);
        [[unroll]] for (uint i = 0; i < 4; i++) {
            low_ahead[i] = rounded[at + block * 8 + i];
            upper_ahead[i] = rounded[at + block * 8 + 4 + i];
        }
        x_scale_ahead = uintBitsToFloat(rounded[at + m.columns / 4 + block]);
        x_sums_ahead = int(rounded[at + m.columns / 4 + blocks + block]);
    }
}

void store_bytes(matrix m, uint first_row, uint first_block)
{
    uint type = m.type, block = first_block + own_block(), row = own_row(), quad = row / 4, part = row & 3u,
         at = own_block() * 16 + quad;
    bool exists = block < m.columns / 32 && first_row + row < m.rows;
    block_scales s = scales_of(type, block_ahead.scales, block);
    [[unroll]] for (uint i = 0; i < 8; i++) {
        weight_quads[(own_block() * 8 + i) * 16 + quad][part] = exists ? word_of_block(type, block_ahead, i) : 0;
        x_quads[(own_block() * 8 + i) * 16 + quad][part] = i < 4 ? low_ahead[i & 3u] : upper_ahead[i & 3u];
    }
    [[unroll]] for (uint i = 0; i < 2; i++) {
        scale_quads[i][at][part] = exists ? s.scale[i] : 0.0;
        minimum_quads[i][at][part] = exists ? s.minimum[i] - s.scale[i] * float(s.bias) : 0.0;
    }
    x_scale_quads[at][part] = x_scale_ahead;
    x_sum_quads[0][at][part] = float(bitfieldExtract(x_sums_ahead, 0, 16));
    x_sum_quads[1][at][part] = float(x_sums_ahead >> 16);
}

/* ---- Products of 4 outputs and TOKENS_EACH tokens ---- */

ivec4 products_of(uint first, uint r, uint token, uint count)
{
    ivec4 sum = ivec4(0);
    [[unroll]] for (uint k = 0; k < count; k++) {
        uvec4 w = weight_quads[(first + k) * 16 + r];
        uint x = x_quads[(first + k) * 16 + token / 4][token & 3u];
        sum += ivec4(dot4(w.x, x), dot4(w.y, x), dot4(w.z, x), dot4(w.w, x));
    }
    return sum;
}

void multiply_bytes(uint type, uint r, uint t, inout vec4 sums[4])
{
    for (uint b = 0; b < STEP; b++) {
        [[unroll]] for (uint j = 0; j < TOKENS_EACH; j++) {
            uint token = t * TOKENS_EACH + j, at = b * 16 + token / 4;
            vec4 sum;
            if (halves_differ(type)) {
                sum = vec4(products_of(b * 8, r, token, 4)) * scale_quads[0][b * 16 + r] +
                      vec4(products_of(b * 8 + 4, r, token, 4)) * scale_quads[1][b * 16 + r] +
                      minimum_quads[0][b * 16 + r] * x_sum_quads[0][at][token & 3u] +
                      minimum_quads[1][b * 16 + r] * x_sum_quads[1][at][token & 3u];
            } else {
                sum = vec4(products_of(b * 8, r, token, 8)) * scale_quads[0][b * 16 + r] +
                      minimum_quads[0][b * 16 + r] * (x_sum_quads[0][at][token & 3u] + x_sum_quads[1][at][token & 3u]);
            }
            sums[j] += sum * x_scale_quads[at][token & 3u];
        }
    }
}

void load_floats_of_tile(matrix m, uint first_row, uint first_token, uint tokens, uint first)
{
    uint type = m.type;
    for (uint i = tid; i < 512; i += THREADS) { /* 64 outputs or tokens, four inputs each */
        uint r = i & 63u, four = i / 64, row = first_row + r, token = first_token + r, quad = first / 4 + four;
        vec4 w = vec4(0), x = vec4(0);
        if (row < m.rows && quad * 4 < m.columns)
            w = load_floats(type, m.codes + row * float_row_words(type, m.columns), quad);
        for (uint j = 0; j < 4; j++) {
            uint column = quad * 4 + j;
            if (token < tokens && r < tile_tokens && column < m.columns)
                x[j] = arena[m.x + token * m.columns + column];
            x[j] = IS(TYPE_F16) ? rounded_to_half(x[j]) : x[j];
            w[j] = column < m.columns ? w[j] : 0.0;
            weight_quads[(four * 4 + j) * 16 + r / 4][r & 3u] = floatBitsToUint(w[j]);
            x_quads[(four * 4 + j) * 16 + r / 4][r & 3u] = floatBitsToUint(x[j]);
        }
    }
}

void multiply_floats(uint r, uint t, inout vec4 sums[4])
{
    for (uint k = 0; k < 32; k++) {
        vec4 w = uintBitsToFloat(weight_quads[k * 16 + r]);
        [[unroll]] for (uint j = 0; j < TOKENS_EACH; j++) {
            uint token = t * TOKENS_EACH + j;
            sums[j] += w * uintBitsToFloat(x_quads[k * 16 + token / 4][token & 3u]);
        }
    }
}

void multiply_tile(matrix m, uint first_row, uint first_token, uint tokens, inout vec4 sums[4])
{
    uint r = tid / 16, t = tid & 15u, type = m.type, blocks = m.columns / 32;
    [[unroll]] for (uint j = 0; j < 4; j++)
        sums[j] = vec4(0);
    if (is_float_type(type)) {
        for (uint first = 0; first < m.columns; first += 32) {
            barrier();
            load_floats_of_tile(m, first_row, first_token, tokens, first);
            barrier();
            multiply_floats(r, t, sums);
        }
        return;
    }
    load_bytes(m, first_row, first_token, tokens, 0);
    for (uint block = 0; block < blocks; block += STEP) {
        barrier();
        store_bytes(m, first_row, block);
        barrier();
        load_bytes(m, first_row, first_token, tokens, block + STEP);
        multiply_bytes(type, r, t, sums);
    }
}

void work_on_tile(matrix m, matrix up, uint first_row, uint first_token, uint tokens)
{
    vec4 sums[4], up_sums[4];
    multiply_tile(m, first_row, first_token, tokens, sums);
    up_sums = sums;
    if (HAS_GLU != 0)
        multiply_tile(up, first_row, first_token, tokens, up_sums);
    [[unroll]] for (uint j = 0; j < TOKENS_EACH; j++) {
        uint token = first_token + (tid & 15u) * TOKENS_EACH + j;
        [[unroll]] for (uint i = 0; i < ROWS_EACH; i++) {
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
    uint tokens = live_rows(arguments.row_kind), index = own_matrix();
    matrix m = matrices[index], up = matrices[HAS_GLU != 0 ? index + 1 : index];
    if (gl_WorkGroupID.y * tile_tokens < tokens)
        work_on_tile(m, up, (gl_WorkGroupID.x - m.first_group) * TILE_ROWS, gl_WorkGroupID.y * tile_tokens, tokens);
}
