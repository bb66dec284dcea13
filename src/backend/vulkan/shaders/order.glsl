/*
 * Logits in order: their bits as numbers that compare alike. NaN and minus infinity count as nothing. A
 * candidate is {order, id}; the larger order comes first, among equal ones the lower id.
 */
const uint ORDER_LOWEST = 0x007fffffu; /* minus infinity's */
const uvec2 NOTHING_CHOSEN = uvec2(ORDER_LOWEST, 0xffffffffu);

uint order_of(float logit)
{
    uint bits = floatBitsToUint(logit);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return ORDER_LOWEST;
    if (bits == 0x80000000u)
        bits = 0; /* both zeros are equal */
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
