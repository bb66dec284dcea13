#version 450
/*
 * Matrices times one row. A workgroup takes some rows of one matrix; `lanes` neighbouring invocations share a
 * row. The input is normed where a norm stands before it, and rounded to bytes, by every workgroup for
 * itself: cheaper than one more dispatch and a barrier.
 */
#extension GL_GOOGLE_include_directive : require
#ifdef SUBGROUP
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
#include "common.glsl"
#include "blocks.glsl"
#include "dot.glsl"

layout(constant_id = 3) const uint LANES_AND_GLU = 0;
const uint HAS_GLU = LANES_AND_GLU & 1u;       /* two matrices, of which the second is `up` */
const uint LANES_SHIFT = LANES_AND_GLU >> 4;   /* 2^this invocations share a row */
const uint lanes = 1u << LANES_SHIFT;

layout(std430, binding = BIND_ARENA) buffer Arena { float arena[]; };
layout(std430, binding = BIND_VECTORS) readonly buffer Vectors { float vectors[]; };
layout(std430, binding = BIND_TABLE) readonly buffer Table { matrix matrices[]; };
layout(push_constant) uniform Push { matmul_arguments arguments; };
#ifdef SUBGROUP
/* The same memory, sixteen bytes at a time. */
layout(std430, binding = BIND_WEIGHTS) readonly buffer WideWeights { uvec4 wide_weights[]; };
#endif

/* Elements of the input that are at hand at once. */
const uint FLOAT_CHUNK = 4096, BYTE_CHUNK = 8192;

shared uvec4 xs[FLOAT_CHUNK / 4]; /* floats, or bytes */
shared float x_scales[BYTE_CHUNK / 32];
shared uint x_sums[BYTE_CHUNK / 32]; /* of the two halves, 16 bits each */
shared uint maxima[BYTE_CHUNK / 32];
shared float reduced[2 * 256];

uint tid;

float norm_factor(matrix m)
{
    if (m.norm == ROW_NOTHING)
        return 1.0;
    float sum = 0;
    for (uint i = tid; i < m.columns; i += THREADS) {
        float x = arena[m.x + i];
        sum += x * x;
    }
    reduced[tid] = sum;
    barrier();
    for (uint step = THREADS / 2; step > 0; step /= 2) {
        if (tid < step)
            reduced[tid] += reduced[tid + step];
        barrier();
    }
    sum = reduced[0];
    barrier();
    return 1.0 / sqrt(sum / float(m.columns) + m.epsilon);
}

float input_at(matrix m, float factor, uint i)
{
    float x = arena[m.x + i];
    return m.norm == ROW_NOTHING ? x : x * factor * vectors[m.norm + i];
}

void load_floats_of_x(matrix m, float factor, uint first, uint count)
{
    uint type = m.type;
    for (uint i = tid; i < (count + 3) / 4; i += THREADS) {
        vec4 four = vec4(0);
        for (uint j = 0; j < 4 && 4 * i + j < count; j++) {
            float x = input_at(m, factor, first + 4 * i + j);
            four[j] = IS(TYPE_F16) ? rounded_to_half(x) : x;
        }
        xs[i] = floatBitsToUint(four);
    }
    barrier();
}

/* Largest magnitudes by their bits: integers, so that the order does not matter. */
void load_bytes_of_x(matrix m, float factor, uint first, uint count)
{
    for (uint i = tid; i < count / 32; i += THREADS)
        maxima[i] = 0;
    barrier();
    for (uint i = tid; i < count / 4; i += THREADS) {
        uint most = 0;
        for (uint j = 0; j < 4; j++)
            most = max(most, floatBitsToUint(input_at(m, factor, first + 4 * i + j)) & 0x7fffffffu);
        atomicMax(maxima[i / 8], most);
    }
    barrier();
    for (uint i = tid; i < count / 32; i += THREADS) {
        vec2 scale = byte_scale(maxima[i]);
        x_scales[i] = scale.x;
        maxima[i] = floatBitsToUint(scale.y);
    }
    barrier();
    for (uint i = tid; i < count / 4; i += THREADS) {
        float inverse = uintBitsToFloat(maxima[i / 8]);
        uint word = 0;
        for (uint j = 0; j < 4; j++) {
            precise float scaled = input_at(m, factor, first + 4 * i + j) * inverse;
            int code = inverse != 0.0 ? int(roundEven(scaled)) : 0;
            word |= (uint(code) & 0xffu) << (8 * j);
        }
        xs[i / 4][i & 3u] = word;
    }
    barrier();
    for (uint i = tid; i < count / 32; i += THREADS) {
        int low = 0, upper = 0;
        for (uint j = 0; j < 4; j++) {
            low += dot4(xs[2 * i][j], 0x01010101u);
            upper += dot4(xs[2 * i + 1][j], 0x01010101u);
        }
        x_sums[i] = (uint(low) & 0xffffu) | uint(upper) << 16;
    }
    barrier();
}

float dot_floats(matrix m, uint row, uint lane, uint first, uint count)
{
    float sum = 0;
    uint row_at = m.codes + row * float_row_words(m.type, m.columns), skip = first / 4;
    for (uint i = lane; i < (count + 3) / 4; i += lanes)
        sum += dot(load_floats(m.type, row_at, skip + i), uintBitsToFloat(xs[i]));
    return sum;
}

int dot_half(matrix m, uint codes, uint high, uint block, uint part)
{
    uvec4 x = xs[2 * block + part];
    uint type = m.type;
#ifdef SUBGROUP
    if (IS(TYPE_Q8_0) || IS(TYPE_Q4_0) || IS(TYPE_Q4_1) || IS(TYPE_Q4_K)) {
        uvec4 w = IS(TYPE_Q8_0) ? wide_weights[codes / 4 + part] : wide_weights[codes / 4] >> (4 * part) & 0x0f0f0f0fu;
        return dot4(w.x, x.x) + dot4(w.y, x.y) + dot4(w.z, x.z) + dot4(w.w, x.w);
    }
#endif
    int sum = 0;
    for (uint i = 0; i < 4; i++)
        sum += dot4(load_codes(type, codes, high, part * 4 + i), x[i]);
    return sum;
}

float dot_bytes(matrix m, uint row, uint lane, uint first, uint count)
{
    float sum = 0;
    uint type = m.type, blocks = m.columns / 32, skip = first / 32;
    uint scales_at = m.scales + row * scale_row_words(type, blocks);
    for (uint i = lane; i < count / 32; i += lanes) {
        uint block = skip + i, place = row * blocks + block;
        uint codes = m.codes + place * code_words(type), high = m.high + place * high_words(type);
        block_scales s = load_scales(type, scales_at, block);
        int low_sum = bitfieldExtract(int(x_sums[i]), 0, 16), upper_sum = int(x_sums[i]) >> 16;
        int low = dot_half(m, codes, high, i, 0) - s.bias * low_sum;
        int upper = dot_half(m, codes, high, i, 1) - s.bias * upper_sum;
        float products = s.scale.x * float(low) + s.scale.y * float(upper);
        if (has_minimums(type))
            products += s.minimum.x * float(low_sum) + s.minimum.y * float(upper_sum);
        sum += products * x_scales[i];
    }
    return sum;
}

void load_x(matrix m, float factor, uint first, uint count)
{
    if (is_float_type(m.type))
        load_floats_of_x(m, factor, first, count);
    else
        load_bytes_of_x(m, factor, first, count);
}

float dot_row(matrix m, uint row, uint lane, uint first, uint count)
{
    if (row >= m.rows)
        return 0;
    return is_float_type(m.type) ? dot_floats(m, row, lane, first, count) : dot_bytes(m, row, lane, first, count);
}

/* Over the lanes of a row; the first of them gets it. */
vec2 sum_lanes(vec2 sums)
{
#ifdef SUBGROUP
    for (uint step = min(lanes, gl_SubgroupSize) / 2; step > 0; step /= 2)
        sums += vec2(subgroupShuffleXor(sums.x, step), subgroupShuffleXor(sums.y, step));
    if (lanes <= gl_SubgroupSize)
        return sums;
    uint smallest = gl_SubgroupSize;
#else
    uint smallest = 1;
#endif
    reduced[tid] = sums.x;
    reduced[THREADS + tid] = sums.y;
    barrier();
    for (uint step = lanes / 2; step >= smallest; step /= 2) {
        if ((tid & (lanes - 1)) < step) {
            reduced[tid] += reduced[tid + step];
            reduced[THREADS + tid] += reduced[THREADS + tid + step];
        }
        barrier();
    }
    sums = vec2(reduced[tid], reduced[THREADS + tid]);
    barrier();
    return sums;
}

float with_bias(matrix m, uint row, float sum)
{
    return m.bias == ROW_NOTHING ? sum : sum + vectors[m.bias + m.to_first + row];
}

void store(matrix m, uint row, vec2 sums)
{
    if (HAS_GLU != 0) {
        float up = with_bias(matrices[arguments.first_matrix + 1], row, sums.y);
        arena[arguments.glu_to + m.to_first + row] = activate(arguments.glu, with_bias(m, row, sums.x)) * up;
        return;
    }
    float result = activate(m.activation, with_bias(m, row, sums.x));
    uint at = m.to + m.to_first + row;
    arena[at] = (m.flags & MATRIX_ACCUMULATE) != 0 ? arena[at] + result : result;
}

void main()
{
#ifdef SUBGROUP
    tid = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
#else
    tid = gl_LocalInvocationIndex;
#endif
    if (live_rows(arguments.row_kind) == 0)
        return;
    uint index = arguments.first_matrix;
    if (HAS_GLU == 0) {
        while (index + 1 < arguments.first_matrix + arguments.matrix_count &&
               gl_WorkGroupID.x >= matrices[index + 1].first_group)
            index++;
    }
    matrix m = matrices[index], up = matrices[HAS_GLU != 0 ? index + 1 : index];
    uint lane = tid & (lanes - 1), at_once = THREADS >> LANES_SHIFT;
    uint chunk = is_float_type(m.type) ? FLOAT_CHUNK : BYTE_CHUNK;
    uint begin = (gl_WorkGroupID.x - m.first_group) * arguments.rows_per_group;
    uint end = min(begin + arguments.rows_per_group, m.rows);
    float factor = norm_factor(m);
    if (m.columns <= chunk)
        load_x(m, factor, 0, m.columns);
    for (uint first_row = begin; first_row < end; first_row += at_once) {
        uint row = first_row + (tid >> LANES_SHIFT);
        vec2 sums = vec2(0);
        for (uint first = 0; first < m.columns; first += chunk) {
            uint count = min(chunk, m.columns - first);
            if (m.columns > chunk) {
                barrier();
                load_x(m, factor, first, count);
            }
            sums.x += dot_row(m, row, lane, first, count);
            if (HAS_GLU != 0)
                sums.y += dot_row(up, row, lane, first, count);
        }
        sums = sum_lanes(sums);
        if (lane == 0 && row < end)
            store(m, row, sums);
    }
}
