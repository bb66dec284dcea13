#version 450
/* The largest logit of each block of the vocabulary, for rows whose sampler wants nothing but the largest. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(std430, binding = BIND_ARENA) readonly buffer Arena { float arena[]; };
layout(std430, binding = BIND_PARTIALS) buffer Partials { uvec2 partials[]; };
layout(push_constant) uniform Push { sample_arguments arguments; };
#include "order.glsl"

shared uvec2 best[1024];

void main()
{
    uint tid = gl_LocalInvocationIndex, block = gl_WorkGroupID.x, output_index = gl_WorkGroupID.y;
    if (output_index >= header.outputs)
        return;
    uint run = row_run(output_row(output_index));
    if (runs[run].logits != LOGITS_LAST || runs[run].plain == 0)
        return;
    uint each = (arguments.vocabulary + ARGMAX_BLOCKS - 1) / ARGMAX_BLOCKS;
    uint end = min((block + 1) * each, arguments.vocabulary);
    uvec2 mine = NOTHING_CHOSEN;
    for (uint i = block * each + tid; i < end; i += THREADS)
        mine = better(mine, candidate(arena[arguments.logits + output_index * arguments.vocabulary + i], i));
    best[tid] = mine;
    barrier();
    for (uint step = THREADS / 2; step > 0; step /= 2) {
        if (tid < step)
            best[tid] = better(best[tid], best[tid + step]);
        barrier();
    }
    if (tid == 0)
        partials[output_index * ARGMAX_BLOCKS + block] = best[0];
}
