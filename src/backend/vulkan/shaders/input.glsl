/*
 * The input row of a single token's matmuls: held in registers, normed, rounded to int8 in shared memory; and the dot
 * product of a weight block with it. All invocations of a workgroup execute these functions together. The including
 * shader defines HAS_NORM and HAS_MEAN (which norm), MOST_BYTES and MOST_BLOCKS (size of the shared memory).
 */
#include "blocks.glsl"
#include "dot.glsl"

layout(constant_id = 5) const uint COLUMNS = 8192;

layout(std430, binding = BIND_VECTORS) readonly buffer Vectors { float vectors[]; };
layout(std430, binding = BIND_ROUNDED) readonly buffer Input { float inputs[]; };
#ifdef SUBGROUP
/* The same memory with 16-byte loads. */
layout(std430, binding = BIND_ROUNDED) readonly buffer WideInput { vec4 wide_inputs[]; };
layout(std430, binding = BIND_VECTORS) readonly buffer WideVectors { vec4 wide_vectors[]; };
#endif

/* Elements of the input that are in shared memory at once, as floats or int8. */
const uint FLOAT_TYPES = 1u << TYPE_F32 | 1u << TYPE_F16 | 1u << TYPE_BF16;
const uint CHUNK = (TYPES_LOW & FLOAT_TYPES) != 0 ? 4096 : 8192;
const uint SHARED_COLUMNS = COLUMNS < CHUNK ? COLUMNS : CHUNK;
const uint HELD = (SHARED_COLUMNS + 4 * THREADS - 1) / (4 * THREADS); /* vec4s held by one invocation */

shared uvec4 xs[MOST_BYTES / 16]; /* floats or int8 */
shared float x_scales[MOST_BLOCKS];
shared uint x_sums[MOST_BLOCKS]; /* sums of the two halves of a block, 16 bits each */

uint type, x_at;
uint norm_at, norm_bias_at; /* offsets in the vectors */
float norm_epsilon;
vec4 held[HELD], norm_weights[HELD], norm_biases[HELD];

/* The format of a pipeline that has only one. */
uint only_type() { return findLSB(TYPES_LOW != 0 ? TYPES_LOW : TYPES_HIGH) + (TYPES_LOW != 0 ? 0 : 32); }

vec4 four_of_input(uint first, uint i)
{
#ifdef SUBGROUP
    if (COLUMNS % 4 == 0)
        return wide_inputs[first / 4 + i];
#endif
    vec4 four = vec4(0);
    [[unroll]] for (uint j = 0; j < 4; j++) {
        if (4 * i + j < COLUMNS)
            four[j] = inputs[first + 4 * i + j];
    }
    return four;
}

vec4 four_of_vectors(uint first, uint i)
{
#ifdef SUBGROUP
    if (COLUMNS % 4 == 0)
        return wide_vectors[first / 4 + i];
#endif
    vec4 four = vec4(0);
    [[unroll]] for (uint j = 0; j < 4; j++) {
        if (4 * i + j < COLUMNS)
            four[j] = vectors[first + 4 * i + j];
    }
    return four;
}

/* The index of this invocation's `k`th vec4 in the chunk that begins at `first`; whether it is within the row. */
uint four_at(uint first, uint k) { return first / 4 + k * THREADS + tid; }
bool is_within(uint first, uint k) { return k * THREADS + tid < (SHARED_COLUMNS + 3) / 4 && 4 * four_at(first, k) < COLUMNS; }

void hold_input(uint first)
{
    [[unroll]] for (uint k = 0; k < HELD; k++) {
        held[k] = norm_weights[k] = norm_biases[k] = vec4(0);
        if (!is_within(first, k))
            continue;
        held[k] = four_of_input(x_at, four_at(first, k));
        if (HAS_NORM)
            norm_weights[k] = four_of_vectors(norm_at, four_at(first, k));
        if (HAS_MEAN)
            norm_biases[k] = four_of_vectors(norm_bias_at, four_at(first, k));
    }
}

float sum_of_input()
{
    float sum = 0;
    for (uint first = 0; first < COLUMNS; first += CHUNK) {
        if (COLUMNS > CHUNK)
            hold_input(first);
        [[unroll]] for (uint k = 0; k < HELD; k++)
            sum += dot(held[k], vec4(1));
    }
    return sum_of_all(sum);
}

float sum_of_squares(float mean)
{
    float sum = 0;
    for (uint first = 0; first < COLUMNS; first += CHUNK) {
        if (COLUMNS > CHUNK)
            hold_input(first);
        [[unroll]] for (uint k = 0; k < HELD; k++) {
            vec4 four = held[k] - mean;
            [[unroll]] for (uint j = 0; j < 4; j++)
                sum += is_within(first, k) && (COLUMNS % 4 == 0 || 4 * four_at(first, k) + j < COLUMNS) ? four[j] * four[j] : 0.0;
        }
    }
    return sum_of_all(sum);
}

/* Mean and factor of the norm. */
vec2 moments_of_input()
{
    if (!HAS_NORM)
        return vec2(0, 1);
    float mean = HAS_MEAN ? sum_of_input() / float(COLUMNS) : 0.0;
    return vec2(mean, 1.0 / sqrt(sum_of_squares(mean) / float(COLUMNS) + norm_epsilon));
}

void norm_input(vec2 moments, uint first)
{
    [[unroll]] for (uint k = 0; k < HELD; k++) {
        if (!is_within(first, k))
            continue;
        if (HAS_NORM)
            held[k] = (held[k] - moments.x) * moments.y * norm_weights[k];
        if (HAS_MEAN)
            held[k] += norm_biases[k];
    }
}

/* Rounds to int8. Eight neighbouring invocations have one block; magnitudes are compared by their bits. */
void store_bytes()
{
    [[unroll]] for (uint k = 0; k < HELD; k++) {
        uvec4 bits = floatBitsToUint(held[k]) & 0x7fffffffu;
        vec2 scale = byte_scale(maximum_of_lanes(max(max(bits.x, bits.y), max(bits.z, bits.w)), 8));
        uint word = 0, i = k * THREADS + tid;
        int sum = 0;
        [[unroll]] for (uint j = 0; j < 4; j++) {
            precise float scaled = held[k][j] * scale.y;
            int code = scale.y != 0.0 ? int(roundEven(scaled)) : 0;
            sum += code;
            word |= (uint(code) & 0xffu) << (8 * j);
        }
        /* Adds the sums of both halves as one float, the second times 2^12: the result is exact. */
        int halves = int(sum_of_lanes((tid & 4u) != 0 ? float(sum) * 4096.0 : float(sum), 8));
        if (i < SHARED_COLUMNS / 4) {
            xs[i / 4][i & 3u] = word;
            if ((tid & 7u) == 0) {
                int low = bitfieldExtract(halves, 0, 12);
                x_scales[i / 8] = scale.x;
                x_sums[i / 8] = (uint(low) & 0xffffu) | uint((halves - low) >> 12) << 16;
            }
        }
    }
}

/* ---- Blocks of a row ---- */

/* Half of a block: 16 products. */
int dot_half(packed_block b, uvec4 x, uint part)
{
    int sum = 0;
    [[unroll]] for (uint i = 0; i < 4; i++)
        sum += dot4(word_of_block(type, b, part * 4 + i), x[i]);
    return sum;
}

float dot_block(packed_block b, uint block, uint i)
{
    block_scales s = scales_of(type, b.scales, block);
    int low_sum = bitfieldExtract(int(x_sums[i]), 0, 16), upper_sum = int(x_sums[i]) >> 16;
    int low = dot_half(b, xs[2 * i], 0) - s.bias * low_sum;
    int upper = dot_half(b, xs[2 * i + 1], 1) - s.bias * upper_sum;
    float products = s.scale.x * float(low) + s.scale.y * float(upper);
    if (has_minimums(type))
        products += s.minimum.x * float(low_sum) + s.minimum.y * float(upper_sum);
    return products * x_scales[i];
}
