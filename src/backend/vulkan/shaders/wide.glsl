/* 64-bit integers as two words, low first: devices need not support them. */
uvec2 wide_add(uvec2 a, uvec2 b)
{
    uint carry, low = uaddCarry(a.x, b.x, carry);
    return uvec2(low, a.y + b.y + carry);
}

uvec2 wide_sub(uvec2 a, uvec2 b) { return uvec2(a.x - b.x, a.y - b.y - (a.x < b.x ? 1 : 0)); }

bool wide_less(uvec2 a, uvec2 b) { return a.y < b.y || (a.y == b.y && a.x < b.x); }

uvec2 wide_product(uint a, uint b)
{
    uint high, low;
    umulExtended(a, b, high, low);
    return uvec2(low, high);
}

/* The low 64 bits. */
uvec2 wide_mul(uvec2 a, uvec2 b)
{
    uvec2 result = wide_product(a.x, b.x);
    result.y += a.x * b.y + a.y * b.x;
    return result;
}

/* The high 64 of 128 bits. */
uvec2 wide_mul_high(uvec2 a, uvec2 b)
{
    uvec2 middle = wide_add(wide_product(a.y, b.x), uvec2(wide_product(a.x, b.x).y, 0));
    uvec2 carry = wide_add(wide_product(a.x, b.y), uvec2(middle.x, 0));
    return wide_add(wide_product(a.y, b.y), wide_add(uvec2(middle.y, 0), uvec2(carry.y, 0)));
}

uvec2 wide_shift_right(uvec2 a, uint bits) { return uvec2(a.x >> bits | a.y << (32 - bits), a.y >> bits); }

/* sampling_random of program/sampling.h. */
uvec2 wide_mix(uvec2 z)
{
    z = wide_mul(z ^ wide_shift_right(z, 30), uvec2(0x1ce4e5b9u, 0xbf58476du));
    z = wide_mul(z ^ wide_shift_right(z, 27), uvec2(0x133111ebu, 0x94d049bbu));
    return z ^ wide_shift_right(z, 31);
}

uvec2 sampling_random(uvec2 seed, uint position)
{
    const uvec2 g = uvec2(0x7f4a7c15u, 0x9e3779b9u);
    return wide_mix(wide_add(wide_mix(wide_add(seed, g)), wide_mul(uvec2(position + 1, 0), g)));
}
