/* Definitions for all shaders: shared structs, the running step, conversions of numbers. */
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "vulkan_shared.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint THREADS = 256;

layout(std430, binding = BIND_STEP) readonly buffer Step {
    step_header header;
    step_run runs[];
};
layout(std430, binding = BIND_WORDS) readonly buffer Words { uint words[]; };

/* Numbers of enums in program/op.h, program/step.h and base/tensor_type.h. */
const uint ROWS_TOKENS = 0, ROWS_RUNS = 1, ROWS_OUTPUTS = 2;
const uint LOGITS_NONE = 0;
const uint LOGITS_LAST = 1, LOGITS_ALL = 2;
const uint SOURCE_LAST = 1;
const uint PAGE_POSITIONS = 256;
const uint ACTIVATION_SILU = 1, ACTIVATION_GELU = 2, ACTIVATION_TANH = 3, ACTIVATION_SIGMOID = 4,
           ACTIVATION_RELU_SQUARED = 5, ACTIVATION_DECAY = 6;
const uint TYPE_F32 = 0, TYPE_F16 = 1, TYPE_Q4_0 = 2, TYPE_Q4_1 = 3, TYPE_Q5_0 = 6, TYPE_Q5_1 = 7, TYPE_Q8_0 = 8,
           TYPE_Q2_K = 10, TYPE_Q3_K = 11, TYPE_Q4_K = 12, TYPE_Q5_K = 13, TYPE_Q6_K = 14, TYPE_IQ4_NL = 20,
           TYPE_IQ4_XS = 23, TYPE_BF16 = 30, TYPE_MXFP4 = 39;

uint live_rows(uint row_kind)
{
    return row_kind == ROWS_TOKENS ? header.tokens : row_kind == ROWS_RUNS ? header.runs : header.outputs;
}

uint row_run(uint row) { return words[row * ROW_WORDS]; }
uint row_position(uint row) { return words[row * ROW_WORDS + 1]; }
uint output_row(uint index) { return words[header.outputs_at + index]; }

/* The index of a run's position in the page pool. */
uint pool_position(uint run, uint position)
{
    uint page = words[header.pages_at + run * header.pages_stride + position / PAGE_POSITIONS];
    return page * PAGE_POSITIONS + position % PAGE_POSITIONS;
}

/* a / b for a < 2^23. Integer division is slow on most devices, and some lack it for vectors. */
uint quotient(uint a, uint b)
{
    uint guess = uint(float(a) / float(b));
    int rest = int(a) - int(guess * b);
    return rest < 0 ? guess - 1 : rest >= int(b) ? guess + 1 : guess;
}

/* 1 / b, correctly rounded, for positive b of moderate size. The division of a device may be off by a few ulp, and a
 * row rounded to int8 would then differ from other backends. The correction is computed from 1 - q * b, with an exact
 * product in two parts. */
float exact_inverse(float b)
{
    float q = 1.0 / b;
    precise float split_q = q * 4097.0, split_b = b * 4097.0;
    precise float q_high = split_q - (split_q - q), b_high = split_b - (split_b - b);
    precise float q_low = q - q_high, b_low = b - b_high;
    precise float product = q * b;
    precise float error = ((q_high * b_high - product) + q_high * b_low + q_low * b_high) + q_low * b_low;
    precise float rest = (1.0 - product) - error;
    precise float result = q + rest * q;
    return result;
}

/* The int8 scale of 32 elements and its inverse, from the bits of their largest magnitude: {0, 0} if the scale would be
 * too small, {NaN, 0} if an element is not finite. */
vec2 byte_scale(uint largest_bits)
{
    float magnitude = uintBitsToFloat(largest_bits);
    if (largest_bits >= 0x7f800000u)
        return vec2(uintBitsToFloat(0x7fc00000u), 0.0);
    if (magnitude < 1.0e-30 || magnitude > 1.0e30) { /* the exact product would overflow */
        float scale = magnitude / 127.0;
        return scale < 1.1754944e-38 ? vec2(0.0) : vec2(scale, 1.0 / scale);
    }
    /* 127 q = 128 q - q, and both differences are exact. */
    precise float near = magnitude * (1.0 / 127.0);
    precise float rest = (magnitude - near * 128.0) + near;
    precise float scale = near + rest * (1.0 / 127.0);
    return vec2(scale, exact_inverse(scale));
}

/* The bits of the nearest half, ties to even: the rounding of packHalf2x16 is not defined. */
uint half_bits(float value)
{
    uint bits = floatBitsToUint(value), magnitude = bits & 0x7fffffffu, sign = bits >> 16 & 0x8000u;
    if (magnitude > 0x7f800000u)
        return sign | 0x7e00u;
    if (magnitude >= 0x477ff000u) /* 65520 */
        return sign | 0x7c00u;
    if (magnitude < 0x38800000u) { /* subnormal halves: multiples of 2^-24 */
        precise float steps = uintBitsToFloat(magnitude) * 16777216.0;
        return sign | uint(roundEven(steps));
    }
    return sign | (magnitude + 0xfffu + (magnitude >> 13 & 1u) - 0x38000000u) >> 13;
}

/* Converts two halves to floats. Some software devices cannot compile unpackHalf2x16 (LLVM 15 on ARM). */
layout(constant_id = 4) const uint NATIVE_HALVES = 1;

float half_value(uint bits)
{
    if (NATIVE_HALVES != 0)
        return unpackHalf2x16(bits).x;
    uint sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
    uint value = magnitude < 0x400u ? floatBitsToUint(float(magnitude) * 5.9604644775390625e-8)
                                    : (magnitude << 13) + (magnitude >= 0x7c00u ? 0x70000000u : 0x38000000u);
    return uintBitsToFloat(sign | value);
}

vec2 two_halves(uint word)
{
    return NATIVE_HALVES != 0 ? unpackHalf2x16(word) : vec2(half_value(word), half_value(word >> 16));
}

/* The lower or the upper half of a word, as a float. */
float half_of(uint word, uint index) { return half_value(word >> (16 * (index & 1u))); }

/* The nearest half, as a float; finite values out of range become the largest half. */
float rounded_to_half(float value)
{
    if (isnan(value) || isinf(value))
        return isnan(value) ? value : value > 0 ? 65504.0 : -65504.0;
    return half_value(half_bits(clamp(value, -65504.0, 65504.0)));
}

/* tanh of many drivers overflows for large arguments. */
float stable_tanh(float x)
{
    float magnitude = abs(x), square = x * x;
    if (magnitude < 0.625) {
        float p = (((-0.005704984 * square + 0.020639080) * square - 0.05373971) * square + 0.13331389) * square -
                  0.33333287;
        return x + x * square * p;
    }
    if (magnitude > 44.0)
        return x < 0.0 ? -1.0 : 1.0;
    float result = 1.0 - 2.0 / (exp(2.0 * magnitude) + 1.0); /* min() may return its other argument for NaN */
    return x < 0.0 ? -result : result;
}

float sigmoid(float x) { return 1.0 / (1.0 + exp(-x)); }

float activate(uint activation, float x)
{
    switch (activation) {
    case ACTIVATION_SILU:
        return x / (1.0 + exp(-x));
    case ACTIVATION_GELU:
        return x / (1.0 + exp(x * (x * x * 0.044715 + 1.0) * -1.5957692));
    case ACTIVATION_TANH:
        return stable_tanh(x);
    case ACTIVATION_SIGMOID:
        return sigmoid(x);
    case ACTIVATION_RELU_SQUARED:
        return x < 0.0 ? 0.0 : x * x;
    case ACTIVATION_DECAY:
        return exp(-0.60653066 * sigmoid(x));
    default:
        return x;
    }
}
