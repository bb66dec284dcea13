/*
 * Logits as integers that have the same order. NaN and minus infinity are never chosen. A candidate is {order, id}; the
 * larger order comes first, among equal ones the lower id.
 */
const uint ORDER_LOWEST = 0x007fffffu; /* of minus infinity */
const uvec2 NOTHING_CHOSEN = uvec2(ORDER_LOWEST, 0xffffffffu);

uint order_of(float logit)
{
    uint bits = floatBitsToUint(logit);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return ORDER_LOWEST;
    if (bits == 0x80000000u)
        bits = 0; /* -0 and 0 are equal */
    return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

float logit_of(uint order)
{
    return uintBitsToFloat((order & 0x80000000u) != 0 ? order & 0x7fffffffu : ~order);
}

uvec2 candidate(float logit, uint id)
{
    uint order = order_of(logit);
    return order > ORDER_LOWEST ? uvec2(order, id) : NOTHING_CHOSEN;
}

uvec2 better(uvec2 a, uvec2 b)
{
    return b.x > a.x || (b.x == a.x && b.y < a.y) ? b : a;
}

/* The best of all invocations; each gets it. Two stages, since a barrier takes longer than a few loads. */
const uint BEST_COLUMNS = 16;
shared uvec2 best[1024], best_of_column[BEST_COLUMNS];

uvec2 best_of_all(uvec2 mine)
{
    uint tid = gl_LocalInvocationIndex;
    barrier();
    best[tid] = mine;
    barrier();
    if (tid < BEST_COLUMNS) {
        for (uint i = tid + BEST_COLUMNS; i < THREADS; i += BEST_COLUMNS)
            mine = better(mine, best[i]);
        best_of_column[tid] = mine;
    }
    barrier();
    [[unroll]] for (uint i = 0; i < BEST_COLUMNS; i++)
        mine = better(mine, best_of_column[i]);
    return mine;
}
