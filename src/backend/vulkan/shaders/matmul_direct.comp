#version 450
/*
 * Matmul of a batch on processors, without tiles: shared memory costs more there than loads. Loads are executed lane by
 * lane and dominate, so several rows of an invocation share the loads of the input. lavapipe silently ends loops after
 * 65,535 iterations in total: an invocation has few iterations, and loops over tokens are unrolled.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "products.glsl"

float directs[2 * DIRECT_ROWS * DIRECT_TOKENS]; /* sums of the gate, then of `up` */

void multiply_floats_directly(matrix m, uint first_row, uint first_token, uint count, uint place)
{
    uint type = m.type, row_words = float_row_words(type, m.columns);
    for (uint i = 0; i < (m.columns + 3) / 4; i++) {
        vec4 w[DIRECT_ROWS];
        [[unroll]] for (uint r = 0; r < DIRECT_ROWS; r++)
            w[r] = load_floats(type, m.codes + min(first_row + r * THREADS, m.rows - 1) * row_words, i);
        [[unroll]] for (uint j = 0; j < DIRECT_TOKENS; j++) {
            [[unroll]] for (uint k = 0; k < 4; k++) {
                if (j < count && 4 * i + k < m.columns) {
                    float x = arena[m.x + (first_token + j) * m.columns + 4 * i + k];
                    x = IS(TYPE_F16) ? rounded_to_half(x) : x;
                    [[unroll]] for (uint r = 0; r < DIRECT_ROWS; r++)
                        directs[place + r * DIRECT_TOKENS + j] += w[r][k] * x;
                }
            }
        }
    }
}

void multiply_blocks_directly(matrix m, uint first_row, uint first_token, uint count, uint place)
{
    uint type = m.type, blocks = m.columns / 32;
    for (uint block = 0; block < blocks; block++) {
        uint codes[DIRECT_ROWS * 8];
        vec2 scales[DIRECT_ROWS], minimums[DIRECT_ROWS];
        [[unroll]] for (uint r = 0; r < DIRECT_ROWS; r++) {
            uint row = min(first_row + r * THREADS, m.rows - 1);
            packed_block b = load_block(type, m.codes, m.high, m.scales, blocks, row, block);
            block_scales s = scales_of(type, b.scales, block);
            scales[r] = s.scale;
            minimums[r] = s.minimum - s.scale * float(s.bias);
            [[unroll]] for (uint i = 0; i < 8; i++)
                codes[r * 8 + i] = word_of_block(type, b, i);
        }
        [[unroll]] for (uint j = 0; j < DIRECT_TOKENS; j++) {
            if (j < count) {
                uint at = (first_token + j) * (m.columns / 4 + 2 * blocks), scale_at = at + m.columns / 4 + block;
                uint x[8];
                int x_sums = int(rounded[scale_at + blocks]);
                float x_scale = uintBitsToFloat(rounded[scale_at]);
                vec2 sums = vec2(bitfieldExtract(x_sums, 0, 16), x_sums >> 16);
                [[unroll]] for (uint i = 0; i < 8; i++)
                    x[i] = rounded[at + block * 8 + i];
                [[unroll]] for (uint r = 0; r < DIRECT_ROWS; r++) {
                    int low = 0, upper = 0;
                    [[unroll]] for (uint i = 0; i < 4; i++) {
                        low += dot4(codes[r * 8 + i], x[i]);
                        upper += dot4(codes[r * 8 + 4 + i], x[4 + i]);
                    }
                    directs[place + r * DIRECT_TOKENS + j] +=
                        x_scale * (dot(scales[r], vec2(low, upper)) + dot(minimums[r], sums));
                }
            }
        }
    }
}

void multiply_directly(matrix m, uint first_row, uint first_token, uint count, uint place)
{
    [[unroll]] for (uint i = 0; i < DIRECT_ROWS * DIRECT_TOKENS; i++)
        directs[place + i] = 0;
    if (is_float_type(m.type))
        multiply_floats_directly(m, first_row, first_token, count, place);
    else
        multiply_blocks_directly(m, first_row, first_token, count, place);
}

/* Computes the rows first_row, first_row + THREADS, first_row + 2 THREADS, ... */
void work_directly(matrix m, matrix up, uint first_row, uint first, uint tokens)
{
    const uint each = DIRECT_ROWS * DIRECT_TOKENS;
    if (first_row >= m.rows || first >= tokens)
        return;
    uint count = min(DIRECT_TOKENS, tokens - first);
    multiply_directly(m, first_row, first, count, 0);
    if (HAS_GLU != 0)
        multiply_directly(up, first_row, first, count, each);
    [[unroll]] for (uint i = 0; i < each; i++) {
        uint row = first_row + i / DIRECT_TOKENS * THREADS, j = i % DIRECT_TOKENS;
        if (j < count && row < m.rows)
            store(m, up, row, first + j, directs[i], directs[each + i]);
    }
}

void main()
{
    uint index = own_matrix();
    matrix m = matrices[index], up = matrices[HAS_GLU != 0 ? index + 1 : index];
    uint first_row = (gl_WorkGroupID.x - m.first_group) * DIRECT_ROWS * THREADS + gl_LocalInvocationIndex;
    work_directly(m, up, first_row, gl_WorkGroupID.y * DIRECT_TOKENS, live_rows(arguments.row_kind));
}
