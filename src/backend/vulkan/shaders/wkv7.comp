#version 450
/* One head of one run, token by token: an invocation has one value, and its column of the state in registers. The
 * inputs of the next token are loaded while the current one is computed. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(constant_id = 3) const uint HEAD_DIM = 64;

layout(std430, binding = BIND_ARENA) buffer Arena { float arena[]; };
layout(std430, binding = BIND_RECURRENT) buffer Recurrent { float recurrent[]; };
layout(push_constant) uniform Push { wkv7_arguments arguments; };

shared vec4 by_key[HEAD_DIM]; /* r, w, k, kk * a */
shared float kks[HEAD_DIM];

float ahead[6];

void load_ahead(uint at)
{
    ahead[0] = arena[arguments.r + at];
    ahead[1] = arena[arguments.w + at];
    ahead[2] = arena[arguments.k + at];
    ahead[3] = arena[arguments.kk + at];
    ahead[4] = arena[arguments.a + at];
    ahead[5] = arena[arguments.v + at];
}

void main()
{
    uint head = gl_WorkGroupID.x, run = gl_WorkGroupID.y, value = gl_LocalInvocationIndex;
    if (run >= header.runs)
        return;
    uint slot = runs[run].slot, inside = arguments.state + head * HEAD_DIM * HEAD_DIM + value;
    uint before = (slot * RECURRENT_VERSIONS + runs[run].read_version) * arguments.recurrent_elements + inside;
    uint after = (slot * RECURRENT_VERSIONS + runs[run].write_version) * arguments.recurrent_elements + inside;
    uint at = runs[run].first_row * arguments.columns + head * HEAD_DIM + value, count = runs[run].count;
    float column[HEAD_DIM];
    load_ahead(at);
    [[unroll]] for (uint j = 0; j < HEAD_DIM; j++)
        column[j] = runs[run].first == 0 ? 0.0 : recurrent[before + j * HEAD_DIM];
    for (uint t = 0; t < count; t++, at += arguments.columns) {
        float v = ahead[5], removed = 0, sum = 0;
        barrier();
        by_key[value] = vec4(ahead[0], ahead[1], ahead[2], ahead[3] * ahead[4]);
        kks[value] = ahead[3];
        barrier();
        if (t + 1 < count)
            load_ahead(at + arguments.columns);
        [[unroll]] for (uint j = 0; j < HEAD_DIM; j++)
            removed += column[j] * kks[j];
        [[unroll]] for (uint j = 0; j < HEAD_DIM; j++) {
            vec4 key = by_key[j];
            column[j] = column[j] * key.y - removed * key.w + v * key.z;
            sum += column[j] * key.x;
        }
        arena[arguments.to + at] = sum;
    }
    [[unroll]] for (uint j = 0; j < HEAD_DIM; j++)
        recurrent[after + j * HEAD_DIM] = column[j];
}
