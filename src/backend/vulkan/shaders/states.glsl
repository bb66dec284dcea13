/*
 * Loads keys and values from the KV cache in units of eight elements (F32: four). Type and head size are specialisation
 * constants.
 */
layout(constant_id = 6) const uint STATE_TYPES = 1u << TYPE_F16;
layout(constant_id = 7) const uint HEAD_DIM = 64;
const bool IS_F32 = STATE_TYPES == 1u << TYPE_F32, IS_Q8 = STATE_TYPES == 1u << TYPE_Q8_0;
const uint UNIT = IS_F32 ? 4 : 8;
const uint UNITS = (HEAD_DIM + UNIT - 1) / UNIT;

layout(std430, binding = BIND_KEYS) buffer Keys { uint keys[]; };
layout(std430, binding = BIND_VALUES) buffer Values { uint values[]; };
#ifdef SUBGROUP
/* The same memory with 16-byte loads. */
layout(std430, binding = BIND_KEYS) readonly buffer WideKeys { uvec4 wide_keys[]; };
layout(std430, binding = BIND_VALUES) readonly buffer WideValues { uvec4 wide_values[]; };
#endif

uint state_word(bool of_keys, uint at) { return of_keys ? keys[at] : values[at]; }

/* Unit `i` of the head that begins at word `at`; for Q8_0 two words and the scale. */
uvec4 load_unit(bool of_keys, uint at, uint i)
{
    uvec4 result = uvec4(0);
    if (IS_Q8) {
        result.x = state_word(of_keys, at + 2 * i);
        if (8 * i + 4 < HEAD_DIM)
            result.y = state_word(of_keys, at + 2 * i + 1);
        result.z = state_word(of_keys, at + HEAD_DIM / 4 + i / 8) >> (16 * (i / 4 & 1u));
        return result;
    }
#ifdef SUBGROUP
    if (HEAD_DIM % UNIT == 0)
        return of_keys ? wide_keys[at / 4 + i] : wide_values[at / 4 + i];
#endif
    [[unroll]] for (uint j = 0; j < 4; j++) {
        if (4 * i + j < HEAD_DIM / (IS_F32 ? 1 : 2))
            result[j] = state_word(of_keys, at + 4 * i + j);
    }
    return result;
}

/* The first or second four elements of a unit. */
vec4 four_of_unit(uvec4 unit, uint which)
{
    if (IS_F32)
        return uintBitsToFloat(unit);
    if (IS_Q8) {
        int word = int(which == 0 ? unit.x : unit.y);
        return vec4(bitfieldExtract(word, 0, 8), bitfieldExtract(word, 8, 8), bitfieldExtract(word, 16, 8),
                   bitfieldExtract(word, 24, 8)) *
               half_value(unit.z);
    }
    return which == 0 ? vec4(two_halves(unit.x), two_halves(unit.y)) : vec4(two_halves(unit.z), two_halves(unit.w));
}

/* The first position that a position attends to. */
uint first_seen_from(uint position, uint window)
{
    return window != 0 && position + 1 > window ? position + 1 - window : 0;
}

/* Positions per split if `seen` positions are divided into at most 2^shift splits of at least `least`. */
uint positions_each(uint seen, uint shift, uint least) { return max((seen + (1u << shift) - 1) >> shift, least); }
