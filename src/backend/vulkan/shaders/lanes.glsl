/*
 * Sums and maxima over neighbouring invocations: by shuffles as far as subgroups reach, beyond that through
 * shared memory. All invocations of a workgroup call these together. `tid` numbers them so that neighbours are
 * of one subgroup.
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

/* Over invocations whose numbers differ in the bits from `from` up to `to`, both powers of two; for each. */
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

/* Over 2^n neighbours, for each of them. */
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

#ifdef SUBGROUP
/* Where the sums of subgroups meet; who includes this may have room elsewhere. */
#ifndef SUBGROUP_SUM
shared float subgroup_sums[MOST_INVOCATIONS];
#define SUBGROUP_SUM(i) subgroup_sums[i]
#endif

float sum_of_subgroup(float value)
{
    for (uint step = min(THREADS, gl_SubgroupSize) / 2; step > 0; step /= 2)
        value += subgroupShuffleXor(value, step);
    return value;
}

/* The sum over the whole workgroup in two parts, with a barrier of the caller's between them. */
void leave_sum(float value)
{
    value = sum_of_subgroup(value);
    if (gl_SubgroupInvocationID == 0)
        SUBGROUP_SUM(gl_SubgroupID) = value;
}

float sum_of_left()
{
    float value = 0;
    for (uint i = gl_SubgroupInvocationID; i < gl_NumSubgroups; i += gl_SubgroupSize)
        value += SUBGROUP_SUM(i);
    return sum_of_subgroup(value);
}
#endif

/* Over the whole workgroup, whose size is a power of two. */
float sum_of_all(float value)
{
#ifdef SUBGROUP
    if (THREADS <= gl_SubgroupSize)
        return sum_of_subgroup(value);
    barrier();
    leave_sum(value);
    barrier();
    return sum_of_left();
#else
    return sum_of_lanes(value, THREADS);
#endif
}
