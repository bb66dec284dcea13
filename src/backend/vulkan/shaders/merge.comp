#version 450
/* Merges the splits of a single token's attention, left to right; a single split needs no merge. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "states.glsl"

layout(std430, binding = BIND_ARENA) buffer Arena { float arena[]; };
layout(std430, binding = BIND_PARTIALS) readonly buffer Partials { float partials[]; };
layout(push_constant) uniform Push { attend_arguments arguments; };

void main()
{
    uint position = row_position(0), seen = position + 1 - first_seen_from(position, arguments.window);
    uint each = positions_each(seen, arguments.splits_shift, arguments.least), count = quotient(seen + each - 1, each);
    if (header.tokens == 0 || count == 1)
        return;
    uint head = gl_WorkGroupID.x, stride = HEAD_DIM + 2, first = (head << arguments.splits_shift) * stride;
    float maximum = -3.0e38, sum = 0;
    for (uint i = 0; i < count; i++)
        maximum = max(maximum, partials[first + i * stride]);
    for (uint i = 0; i < count; i++)
        sum += partials[first + i * stride + 1] * exp(partials[first + i * stride] - maximum);
    for (uint d = gl_LocalInvocationIndex; d < HEAD_DIM; d += THREADS) {
        float total = 0;
        for (uint i = 0; i < count; i++)
            total += partials[first + i * stride + 2 + d] * exp(partials[first + i * stride] - maximum);
        arena[arguments.to + head * HEAD_DIM + d] = total / sum;
    }
}
