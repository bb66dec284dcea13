#version 450
/* Finds the largest logit of each block of the vocabulary, for rows that are sampled greedily. */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(std430, binding = BIND_ARENA) readonly buffer Arena { float arena[]; };
layout(std430, binding = BIND_PARTIALS) buffer Partials { uvec2 partials[]; };
layout(push_constant) uniform Push { sample_arguments arguments; };
#include "order.glsl"

const uint AHEAD = 4; /* logits that an invocation loads before it knows whether the row is greedy */

uint output_index;

bool is_greedy()
{
    uint run = 0;
    if (arguments.is_single == 0) {
        if (output_index >= header.outputs)
            return false;
        run = row_run(output_row(output_index));
    }
    uint outputs = header.outputs, logits = runs[run].logits, is_argmax = runs[run].settings.is_argmax;
    return output_index < outputs && logits == LOGITS_LAST && is_argmax != 0;
}

void main()
{
    uint block = gl_WorkGroupID.x;
    output_index = gl_WorkGroupID.y;
    uint each = (arguments.vocabulary + ARGMAX_BLOCKS - 1) / ARGMAX_BLOCKS;
    uint begin = block * each + gl_LocalInvocationIndex, end = min((block + 1) * each, arguments.vocabulary),
         from = arguments.logits + output_index * arguments.vocabulary;
    float logits_ahead[AHEAD];
    [[unroll]] for (uint n = 0; n < AHEAD; n++)
        logits_ahead[n] = begin + n * THREADS < end ? arena[from + begin + n * THREADS] : 0.0;
    if (!is_greedy())
        return;
    uvec2 mine = NOTHING_CHOSEN;
    [[unroll]] for (uint n = 0; n < AHEAD; n++) {
        if (begin + n * THREADS < end)
            mine = better(mine, candidate(logits_ahead[n], begin + n * THREADS));
    }
    for (uint i = begin + AHEAD * THREADS; i < end; i += THREADS)
        mine = better(mine, candidate(arena[from + i], i));
    mine = best_of_all(mine);
    if (gl_LocalInvocationIndex == 0)
        partials[output_index * ARGMAX_BLOCKS + block] = mine;
}
