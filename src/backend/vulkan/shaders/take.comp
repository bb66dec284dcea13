#version 450
/* The first op of a plan: takes the next step from the host's ring, or moves a repeated one on by a token. */
#define STEP_ACCESS coherent
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(std430, binding = BIND_CONTROL) coherent buffer Control {
    control state;
    uint next[]; /* of each slot: the position that it has come to */
};
layout(std430, binding = BIND_RING) readonly buffer Ring { uint ring[]; };
layout(std430, binding = BIND_TOKENS) buffer Tokens { int tokens[]; };
layout(std430, binding = BIND_MIRROR) readonly buffer Mirror { int mirror[]; };
layout(std430, binding = BIND_WORK) coherent buffer Current { uint current[]; }; /* the step as words */
layout(std430, binding = BIND_PARTIALS) readonly buffer Outcomes { run_outcome outcomes[]; };
layout(push_constant) uniform Push { take_arguments arguments; };

shared uint stop;

void copy_words(uint from, uint at, uint count)
{
    for (uint i = gl_LocalInvocationIndex; i < count; i += THREADS)
        current[at + i] = ring[from + at + i];
}

void meet()
{
    memoryBarrierBuffer();
    barrier();
}

/* The ids that the host has given stand in its mirror, at the positions of the rows. */
void take_next()
{
    uint from = state.taken % RING_ENTRIES * arguments.entry_words;
    copy_words(from, 0, HEADER_WORDS);
    meet();
    copy_words(from, HEADER_WORDS, header.runs * RUN_WORDS);
    copy_words(from, arguments.words_at, header.tokens * ROW_WORDS);
    copy_words(from, arguments.words_at + header.outputs_at, header.outputs);
    copy_words(from, arguments.words_at + header.pages_at, header.runs * header.pages_stride);
    meet();
    for (uint row = gl_LocalInvocationIndex; row < header.tokens; row += THREADS) {
        uint run = row_run(row), place = runs[run].slot * (header.context + 1) + row_position(row);
        if (runs[run].source != SOURCE_LAST)
            tokens[place] = mirror[place];
    }
}

void stop_step()
{
    header.tokens = 0;
    header.runs = 0;
    header.outputs = 0;
}

/* A run that goes on from what the step before it sampled, which did not come so far. */
bool is_astray()
{
    return header.runs == 1 && runs[0].source == SOURCE_LAST && next[runs[0].slot] != runs[0].first;
}

/* Runs of one step go on together: when one has ended, the step is over. */
void advance()
{
    if (gl_LocalInvocationIndex == 0)
        stop = max(state.stopped, ring[header.entry * arguments.entry_words + CANCELLED_WORD]);
    barrier();
    uint run_count = header.runs;
    for (uint i = gl_LocalInvocationIndex; i < run_count; i += THREADS) {
        uint next = runs[i].first + 1;
        run_outcome outcome = outcomes[header.entry * header.slots + i];
        if (outcome.ended != 0 || outcome.failed != 0 || next >= header.context ||
            (runs[i].limit != 0 && next >= runs[i].limit))
            atomicMax(stop, 1);
    }
    barrier();
    if (stop != 0) {
        if (gl_LocalInvocationIndex == 0)
            stop_step();
        return;
    }
    for (uint i = gl_LocalInvocationIndex; i < run_count; i += THREADS) {
        uint written = runs[i].after;
        runs[i].first++;
        words[runs[i].first_row * ROW_WORDS + 1]++;
        runs[i].after = runs[i].other;
        runs[i].other = written;
        runs[i].before = written;
    }
}

void main()
{
    bool repeats = state.left != 0;
    if (repeats)
        advance();
    else
        take_next();
    meet();
    if (gl_LocalInvocationIndex == 0) {
        bool astray = !repeats && is_astray();
        if (astray)
            stop_step();
        state.stopped = repeats ? stop : astray ? 1 : 0;
        state.left = repeats ? state.left - 1 : header.repeat - 1;
        state.taken += repeats ? 0 : 1;
        for (uint i = 0; i < header.runs; i++)
            next[runs[i].slot] = runs[i].first + runs[i].count;
    }
}
