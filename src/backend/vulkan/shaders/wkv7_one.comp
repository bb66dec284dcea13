#version 450
/*
 * One head of a single token's wkv7, fused with the ops around it: the lerp with the first layer's value, l2_norm and
 * rwkv_key before, norm, bonus and gate after. Invocations are [PARTS][HEAD_DIM]: each has one value and a part of the
 * keys. All inputs are loaded at once.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "lanes.glsl"

layout(constant_id = 3) const uint KEYS = 16;     /* keys of one invocation */
layout(constant_id = 5) const uint HEAD_DIM = 64; /* a power of two */
const uint PARTS = HEAD_DIM / KEYS;

layout(std430, binding = BIND_ARENA) buffer Arena { float arena[]; };
layout(std430, binding = BIND_VECTORS) readonly buffer Vectors { float vectors[]; };
layout(std430, binding = BIND_RECURRENT) buffer Recurrent { float recurrent[]; };
layout(push_constant) uniform Push { wkv7_one_arguments arguments; };

shared vec4 by_key[256]; /* r, w, key, kk */
shared float kk_a[256], sums_of_parts[256];

float from_arena(uint at, uint column) { return at == NO_OPERAND ? 0.0 : arena[at + column]; }
float from_vectors(uint at, uint column, float otherwise) { return at == NO_OPERAND ? otherwise : vectors[at + column]; }

float sum_of_parts(float value, uint i)
{
    barrier();
    sums_of_parts[tid] = value;
    barrier();
    float sum = 0;
    for (uint part = 0; part < PARTS; part++)
        sum += sums_of_parts[part * HEAD_DIM + i];
    return sum;
}

void main()
{
    number_invocations();
    uint head = gl_WorkGroupID.x, i = tid & (HEAD_DIM - 1), part = tid / HEAD_DIM, column = head * HEAD_DIM + i;
    uint live = header.tokens, inside = arguments.state + (head * HEAD_DIM + part * KEYS) * HEAD_DIM + i;
    float r = arena[arguments.r + column], w = arena[arguments.w + column], k = arena[arguments.k + column],
          v = arena[arguments.v + column], a = arena[arguments.a + column];
    float value_mix = from_arena(arguments.value_mix, column), first = from_arena(arguments.first_value, column),
          gate = from_arena(arguments.gate, column);
    float k_k = from_vectors(arguments.k_k, column, 1.0),
          k_a = vectors[arguments.k_a + column],
          r_k = from_vectors(arguments.r_k, column, 0.0),
          norm_weight = from_vectors(arguments.norm_weight, column, 1.0),
          norm_bias = from_vectors(arguments.norm_bias, column, 0.0);
    uint slot = runs[0].slot * RECURRENT_VERSIONS;
    uint before = (slot + runs[0].read_version) * arguments.recurrent_elements + inside;
    uint after = (slot + runs[0].write_version) * arguments.recurrent_elements + inside;
    bool from_zero = runs[0].first == 0;
    float state[KEYS];
    [[unroll]] for (uint j = 0; j < KEYS; j++)
        state[j] = from_zero ? 0.0 : recurrent[before + j * HEAD_DIM];

    float key = k * ((a - 1.0) * k_a + 1.0), value = v + (first - v) * value_mix, k_scaled = k * k_k;
    vec4 sums = sum_between(vec4(k_scaled * k_scaled, r * key * r_k, 0, 0), 1, HEAD_DIM);
    float size = sqrt(sums.x), kk = k_scaled / (size < arguments.kk_epsilon ? arguments.kk_epsilon : size);
    if (part == 0) {
        by_key[i] = vec4(r, w, key, kk);
        kk_a[i] = kk * a;
    }
    barrier();

    float removed = 0, sum = 0;
    [[unroll]] for (uint j = 0; j < KEYS; j++)
        removed += state[j] * by_key[part * KEYS + j].w;
    removed = sum_of_parts(removed, i);
    [[unroll]] for (uint j = 0; j < KEYS; j++) {
        vec4 of_key = by_key[part * KEYS + j];
        state[j] = state[j] * of_key.y - removed * kk_a[part * KEYS + j] + value * of_key.z;
        sum += state[j] * of_key.x;
    }
    float y = sum_of_parts(sum, i);
    if (arguments.norm_weight != NO_OPERAND) {
        float mean = sum_of_lanes(y, HEAD_DIM) / float(HEAD_DIM), distance = y - mean;
        float variance = sum_of_lanes(distance * distance, HEAD_DIM) / float(HEAD_DIM);
        y = distance * (1.0 / sqrt(variance + arguments.norm_epsilon)) * norm_weight + norm_bias;
    }
    y += sums.y * value;
    if (arguments.gate != NO_OPERAND)
        y *= gate;
    if (live == 0)
        return;
    if (part == 0)
        arena[arguments.to + column] = y;
    [[unroll]] for (uint j = 0; j < KEYS; j++)
        recurrent[after + j * HEAD_DIM] = state[j];
}
