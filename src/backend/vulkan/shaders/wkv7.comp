#version 450
/* One head of one run, token after token: an invocation has one value, and its column of the state at hand. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(constant_id = 3) const uint HEAD_DIM = 64;

layout(std430, binding = BIND_ARENA) buffer Arena { float arena[]; };
layout(std430, binding = BIND_FOLDED) buffer Folded { float folded[]; };
layout(push_constant) uniform Push { wkv7_arguments arguments; };

shared float r[HEAD_DIM], w[HEAD_DIM], k[HEAD_DIM], kk[HEAD_DIM], ka[HEAD_DIM];

void main()
{
    uint head = gl_WorkGroupID.x, run = gl_WorkGroupID.y, value = gl_LocalInvocationIndex;
    if (run >= header.runs)
        return;
    uint slot = runs[run].slot, inside = arguments.state + head * HEAD_DIM * HEAD_DIM + value;
    uint before = (slot * FOLDED_VERSIONS + runs[run].before) * arguments.folded_elements + inside;
    uint after = (slot * FOLDED_VERSIONS + runs[run].after) * arguments.folded_elements + inside;
    float column[HEAD_DIM];
    for (uint j = 0; j < HEAD_DIM; j++)
        column[j] = runs[run].first == 0 ? 0.0 : folded[before + j * HEAD_DIM];
    for (uint t = 0; t < runs[run].count; t++) {
        uint at = (runs[run].first_row + t) * arguments.columns + head * HEAD_DIM + value;
        float v = arena[arguments.v + at], removed = 0, sum = 0;
        barrier();
        r[value] = arena[arguments.r + at];
        w[value] = arena[arguments.w + at];
        k[value] = arena[arguments.k + at];
        kk[value] = arena[arguments.kk + at];
        ka[value] = kk[value] * arena[arguments.a + at];
        barrier();
        for (uint j = 0; j < HEAD_DIM; j++)
            removed += column[j] * kk[j];
        for (uint j = 0; j < HEAD_DIM; j++) {
            column[j] = column[j] * w[j] - removed * ka[j] + v * k[j];
            sum += column[j] * r[j];
        }
        arena[arguments.to + at] = sum;
    }
    for (uint j = 0; j < HEAD_DIM; j++)
        folded[after + j * HEAD_DIM] = column[j];
}
