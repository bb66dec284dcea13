#version 450
/* Attention of a batch: a workgroup computes one token and head over all its positions, THREADS at a time, with a
 * running maximum. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "states.glsl"
#ifdef STORAGE16
#extension GL_EXT_shader_16bit_storage : require
/* The same memory with 16-bit or 8-bit loads: neighbouring invocations load one element each, without extracting it
 * from a word. As integers, since not every device with such loads can convert halves. */
layout(std430, binding = BIND_VALUES) readonly buffer HalfValues { uint16_t half_values[]; };
#endif
#ifdef STORAGE8
#extension GL_EXT_shader_8bit_storage : require
layout(std430, binding = BIND_VALUES) readonly buffer ByteValues { int8_t byte_values[]; };
#endif

layout(std430, binding = BIND_ARENA) buffer Arena { float arena[]; };
layout(push_constant) uniform Push { attend_arguments arguments; attend_token token; };

const uint MOST_COLUMNS = 512, MOST_THREADS = 256, MOST_EACH = 8;

shared float query[MOST_COLUMNS];
shared float scores[MOST_THREADS], reduced[MOST_THREADS];

uint tid;

uint place_of(uint run, uint kv_head, uint position)
{
    uint place = pool_position(run, position);
    return ((place / PAGE_POSITIONS * arguments.kv_heads + kv_head) * PAGE_POSITIONS + place % PAGE_POSITIONS) *
           arguments.head_words;
}

float key_product(uint at)
{
    float sum = 0;
    for (uint i = 0; i < UNITS; i++) {
        uvec4 unit = load_unit(true, at, i);
        for (uint f = 0; f < UNIT / 4; f++) {
            vec4 four = four_of_unit(unit, f);
            for (uint j = 0; j < 4; j++)
                sum += query[i * UNIT + 4 * f + j] * four[j];
        }
    }
    return sum;
}

float half_in_values(uint at, uint index)
{
#ifdef STORAGE16
    return half_value(uint(half_values[2 * at + index]));
#else
    return half_of(values[at + index / 2], index);
#endif
}

float byte_in_values(uint at, uint index)
{
#ifdef STORAGE8
    return float(int(byte_values[4 * at + index]));
#else
    return float(bitfieldExtract(int(values[at + index / 4]), int(8 * (index & 3u)), 8));
#endif
}

float value_at(uint at, uint d)
{
    if (IS_F32)
        return uintBitsToFloat(values[at + d]);
    if (!IS_Q8)
        return half_in_values(at, d);
    return byte_in_values(at, d) * half_in_values(at + HEAD_DIM / 4, d / 32);
}

float capped(float score)
{
    return arguments.cap == 0.0 ? score : arguments.cap * stable_tanh(score / arguments.cap);
}

float reduce(float value, bool is_maximum)
{
    barrier();
    reduced[tid] = value;
    barrier();
    for (uint step = THREADS / 2; step > 0; step /= 2) {
        if (tid < step)
            reduced[tid] = is_maximum ? max(reduced[tid], reduced[tid + step]) : reduced[tid] + reduced[tid + step];
        barrier();
    }
    return reduced[0];
}

void attend_row(uint row)
{
    uint head = gl_WorkGroupID.x, run = row_run(row), position = row_position(row),
         kv_head = quotient(head, arguments.group_heads);
    uint begin = first_seen_from(position, arguments.window), end = position + 1;
    uint heads = arguments.kv_heads * arguments.group_heads, q = token.q + (row * heads + head) * HEAD_DIM;

    for (uint d = tid; d < MOST_COLUMNS; d += THREADS)
        query[d] = d < HEAD_DIM ? arena[q + d] * arguments.scale : 0.0;
    barrier();

    float sums[MOST_EACH];
    for (uint i = 0; i < MOST_EACH; i++)
        sums[i] = 0;
    uint parts = max(THREADS / HEAD_DIM, 1), part = tid / HEAD_DIM;
    uint column = HEAD_DIM < THREADS ? tid - part * HEAD_DIM : tid;
    part = HEAD_DIM < THREADS ? part : 0;
    float maximum = -3.0e38, sum = 0;
    for (uint first = begin; first < end; first += THREADS) {
        uint j = first + tid, count = min(THREADS, end - first);
        float score = j < end ? capped(key_product(place_of(run, kv_head, j))) : -3.0e38;
        float larger = max(maximum, reduce(score, true)), keep = exp(maximum - larger);
        float weight = j < end ? exp(score - larger) : 0.0;
        sum = sum * keep + reduce(weight, false);
        scores[tid] = weight;
        maximum = larger;
        barrier();
        for (uint i = 0, d = column; d < HEAD_DIM && part < parts; i++, d += THREADS) {
            float total = sums[i] * keep;
            for (uint n = part; n < count; n += parts)
                total += scores[n] * value_at(place_of(run, kv_head, first + n), d);
            sums[i] = total;
        }
        barrier();
    }

    /* The partial sums of a column are added through shared memory; columns from THREADS on have one part. */
    for (uint i = 0; i < MOST_EACH && i * THREADS < HEAD_DIM; i++) {
        barrier();
        reduced[tid] = sums[i];
        barrier();
        uint d = i * THREADS + tid;
        float total = 0;
        for (uint n = 0; n < parts; n++)
            total += tid + n * HEAD_DIM < THREADS && d < HEAD_DIM ? reduced[tid + n * HEAD_DIM] : 0.0;
        if (d < HEAD_DIM)
            arena[arguments.to + (row * heads + head) * HEAD_DIM + d] = total / sum;
    }
}

void main()
{
    tid = gl_LocalInvocationIndex;
    for (uint row = gl_WorkGroupID.z; row < header.tokens; row += gl_NumWorkGroups.z) {
        barrier();
        attend_row(row);
    }
}
