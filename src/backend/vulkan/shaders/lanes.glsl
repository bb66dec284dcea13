/*
 * Sums and maxima over neighbouring invocations: by shuffles within a subgroup, beyond that through shared memory. All
 * invocations of a workgroup call these functions together. `tid` numbers the invocations so that neighbours are in one
 * subgroup.
 */
#ifdef SUBGROUP
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#endif

#ifndef MOST_INVOCATIONS
#define MOST_INVOCATIONS 256
#endif
shared vec4 lane_values[MOST_INVOCATIONS];

uint tid;

void number_invocations()
{
#ifdef SUBGROUP
    tid = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
#else
    tid = gl_LocalInvocationIndex;
#endif
}

/* The sum over invocations whose numbers differ in the bits from `from` up to `to`, both powers of two. Each invocation
 * gets the sum. */
vec4 sum_between(vec4 value, uint from, uint to)
{
    uint step = from;
#ifdef SUBGROUP
    for (; step < to && step < gl_SubgroupSize; step *= 2)
        value += subgroupShuffleXor(value, step);
#endif
    for (; step < to; step *= 2) {
        barrier();
        lane_values[tid] = value;
        barrier();
        value += lane_values[tid ^ step];
    }
    return value;
}

vec4 maximum_between(vec4 value, uint from, uint to)
{
    uint step = from;
#ifdef SUBGROUP
    for (; step < to && step < gl_SubgroupSize; step *= 2)
        value = max(value, subgroupShuffleXor(value, step));
#endif
    for (; step < to; step *= 2) {
        barrier();
        lane_values[tid] = value;
        barrier();
        value = max(value, lane_values[tid ^ step]);
    }
    return value;
}

/* The sum over 2^n neighbours; each of them gets it. */
float sum_of_lanes(float value, uint lanes)
{
    uint step = 1;
#ifdef SUBGROUP
    for (; step < lanes && step < gl_SubgroupSize; step *= 2)
        value += subgroupShuffleXor(value, step);
#endif
    for (; step < lanes; step *= 2) {
        barrier();
        lane_values[tid].x = value;
        barrier();
        value += lane_values[tid ^ step].x;
    }
    return value;
}

uint maximum_of_lanes(uint value, uint lanes)
{
    uint step = 1;
#ifdef SUBGROUP
    for (; step < lanes && step < gl_SubgroupSize; step *= 2)
        value = max(value, subgroupShuffleXor(value, step));
#endif
    for (; step < lanes; step *= 2) {
        barrier();
        lane_values[tid].x = uintBitsToFloat(value);
        barrier();
        value = max(value, floatBitsToUint(lane_values[tid ^ step].x));
    }
    return value;
}

/* The sum over the whole workgroup, whose size is a power of two. */
float sum_of_all(float value)
{
#ifdef SUBGROUP
    uint own = min(THREADS, gl_SubgroupSize);
    for (uint step = own / 2; step > 0; step /= 2)
        value += subgroupShuffleXor(value, step);
    if (THREADS <= gl_SubgroupSize)
        return value;
    barrier();
    if ((tid & (own - 1)) == 0)
        lane_values[gl_SubgroupID].x = value;
    barrier();
    value = 0;
    for (uint i = 0; i < gl_NumSubgroups; i++)
        value += lane_values[i].x;
    return value;
#else
    return sum_of_lanes(value, THREADS);
#endif
}
