#version 450
/* The splits of a single token's attention, left to right. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(std430, binding = BIND_ARENA) buffer Arena { float arena[]; };
layout(std430, binding = BIND_PARTIALS) readonly buffer Partials { float partials[]; };
layout(push_constant) uniform Push { attend_arguments arguments; };

void main()
{
    if (header.tokens == 0)
        return;
    uint splits = 1u << arguments.splits_shift;
    uint head = gl_WorkGroupID.x, stride = arguments.head_dim + 2, first = head * splits * stride;
    float maximum = -3.0e38, sum = 0;
    for (uint i = 0; i < splits; i++) {
        if (partials[first + i * stride + 1] != 0.0)
            maximum = max(maximum, partials[first + i * stride]);
    }
    for (uint i = 0; i < splits; i++) {
        float part = partials[first + i * stride + 1];
        sum += part == 0.0 ? 0.0 : part * exp(partials[first + i * stride] - maximum);
    }
    for (uint d = gl_LocalInvocationIndex; d < arguments.head_dim; d += THREADS) {
        float total = 0;
        for (uint i = 0; i < splits; i++) {
            uint at = first + i * stride;
            total += partials[at + 1] == 0.0 ? 0.0 : partials[at + 2 + d] * exp(partials[at] - maximum);
        }
        arena[arguments.to + head * arguments.head_dim + d] = sum == 0.0 ? 0.0 : total / sum;
    }
}
