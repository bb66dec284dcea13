/*
 * Packed matrices (layout: vulkan_format.h). The codes of a block of 32 elements are unpacked to eight words of four
 * bytes, element 4 i + e in byte e of word i. Value: scale * (code - bias) + minimum; each 16 elements have a scale.
 */
layout(std430, binding = BIND_WEIGHTS) readonly buffer Weights { uint weights[]; };
#if defined(SUBGROUP) || defined(INT_DOT) || defined(COOP)
/* The same memory with 16-byte loads. */
#define WIDE_WEIGHTS 1
layout(std430, binding = BIND_WEIGHTS) readonly buffer WideWeights { uvec4 wide_weights[]; };
#endif

/* The formats that this pipeline supports, a bit for each enum tensor_type; the compiler removes the code of all
 * others. */
layout(constant_id = 1) const uint TYPES_LOW = 0xffffffffu;
layout(constant_id = 2) const uint TYPES_HIGH = 0xffffffffu;

bool can_be(uint type)
{
    return (type < 32 ? TYPES_LOW >> type & 1u : TYPES_HIGH >> (type - 32) & 1u) != 0;
}

/* With one format no test is needed: some devices execute both sides of a branch. */
bool has_one_type() { return bitCount(TYPES_LOW) + bitCount(TYPES_HIGH) == 1; }
#define IS(number) (can_be(number) && (has_one_type() || type == number))

bool is_float_type(uint type)
{
    const uint floats = 1u << TYPE_F32 | 1u << TYPE_F16 | 1u << TYPE_BF16;
    if ((TYPES_LOW & floats) == 0)
        return false;
    if ((TYPES_LOW & ~floats) == 0 && TYPES_HIGH == 0)
        return true;
    return type == TYPE_F32 || type == TYPE_F16 || type == TYPE_BF16;
}

/* Words of a block in each plane. */
uint code_words(uint type)
{
    return IS(TYPE_Q8_0) ? 8 : IS(TYPE_Q2_K) || IS(TYPE_Q3_K) ? 2 : 4;
}

uint high_words(uint type)
{
    return IS(TYPE_Q6_K) ? 2 : IS(TYPE_Q5_0) || IS(TYPE_Q5_1) || IS(TYPE_Q5_K) || IS(TYPE_Q3_K) ? 1 : 0;
}

bool has_levels(uint type)
{
    return IS(TYPE_Q2_K) || IS(TYPE_Q3_K) || IS(TYPE_Q4_K) || IS(TYPE_Q5_K) || IS(TYPE_Q6_K) || IS(TYPE_IQ4_XS);
}

uint scale_row_words(uint type, uint blocks)
{
    if (has_levels(type))
        return (blocks >> 3) * (IS(TYPE_IQ4_XS) ? 3 : 5);
    if (IS(TYPE_Q4_1) || IS(TYPE_Q5_1))
        return blocks;
    return IS(TYPE_MXFP4) ? (blocks + 3) >> 2 : (blocks + 1) >> 1;
}

uint byte_of(uint word, uint index) { return word >> (8 * index) & 0xffu; }
int signed_byte_of(uint word, uint index) { return bitfieldExtract(int(word), int(8 * index), 8); }

struct block_scales {
    vec2 scale, minimum; /* of both halves of the block */
    int bias;
};

int code_bias(uint type)
{
    return IS(TYPE_Q4_0) ? 8 : IS(TYPE_Q5_0) ? 16 : IS(TYPE_Q6_K) ? 32 : IS(TYPE_Q3_K) ? 4 : 0;
}

bool codes_are_signed(uint type)
{
    return IS(TYPE_Q8_0) || IS(TYPE_IQ4_NL) || IS(TYPE_IQ4_XS) || IS(TYPE_MXFP4);
}

bool has_minimums(uint type)
{
    return IS(TYPE_Q4_1) || IS(TYPE_Q5_1) || IS(TYPE_Q4_K) || IS(TYPE_Q5_K) || IS(TYPE_Q2_K);
}

/* Loads the words that contain the scales of a block. */
uvec3 load_scale_words(uint type, uint row_at, uint block)
{
    if (has_levels(type)) {
        uint at = row_at + (block >> 3) * (IS(TYPE_IQ4_XS) ? 3 : 5), g = block & 7u;
        if (IS(TYPE_Q4_K) || IS(TYPE_Q5_K))
            return uvec3(weights[at], weights[at + 1 + (g >> 2)], weights[at + 3 + (g >> 2)]);
        return uvec3(weights[at], weights[at + 1 + (IS(TYPE_IQ4_XS) ? g >> 2 : g >> 1)], 0);
    }
    uint shift = IS(TYPE_Q4_1) || IS(TYPE_Q5_1) ? 0 : IS(TYPE_MXFP4) ? 2 : 1;
    return uvec3(weights[row_at + (block >> shift)], 0, 0);
}

block_scales scales_of(uint type, uvec3 of_block, uint block)
{
    block_scales result;
    result.bias = code_bias(type);
    result.minimum = vec2(0);
    if (has_levels(type)) {
        uint g = block & 7u;
        vec2 outer = two_halves(of_block.x);
        if (IS(TYPE_Q4_K) || IS(TYPE_Q5_K)) {
            result.scale = vec2(outer.x * float(byte_of(of_block.y, g & 3u)));
            result.minimum = vec2(-(outer.y * float(byte_of(of_block.z, g & 3u))));
        } else if (IS(TYPE_IQ4_XS)) {
            result.scale = vec2(outer.x * float(signed_byte_of(of_block.y, g & 3u)));
        } else {
            uint pair = of_block.y >> (16 * (g & 1u));
            if (IS(TYPE_Q2_K)) {
                result.scale = outer.x * vec2(pair & 15u, pair >> 8 & 15u);
                result.minimum = -(outer.y * vec2(pair >> 4 & 15u, pair >> 12 & 15u));
            } else {
                result.scale = outer.x * vec2(signed_byte_of(pair, 0), signed_byte_of(pair, 1));
            }
        }
    } else if (IS(TYPE_Q4_1) || IS(TYPE_Q5_1)) {
        vec2 both = two_halves(of_block.x);
        result.scale = both.xx;
        result.minimum = both.yy;
    } else if (IS(TYPE_MXFP4)) {
        uint exponent = byte_of(of_block.x, block & 3u);
        result.scale = vec2(uintBitsToFloat(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23));
    } else {
        result.scale = vec2(half_of(of_block.x, block));
    }
    return result;
}

block_scales load_scales(uint type, uint row_at, uint block)
{
    return scales_of(type, load_scale_words(type, row_at, block), block);
}

const uint IQ4_WORDS[4] = uint[4](0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u);
const uint MXFP4_WORDS[4] = uint[4](0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu);

uint look_up(uint nibbles, const uint table[4])
{
    uint result = 0;
    [[unroll]] for (uint e = 0; e < 4; e++) {
        uint code = nibbles >> (8 * e) & 15u;
        result |= byte_of(table[code >> 2], code & 3u) << (8 * e);
    }
    return result;
}

/* Unpacks word `i` of a block's codes from a word of the code plane and a word of the plane of upper bits. */
uint codes_of(uint type, uint word, uint high, uint i)
{
    if (IS(TYPE_Q8_0))
        return word;
    if (IS(TYPE_Q2_K) || IS(TYPE_Q3_K)) {
        uint pairs = word >> (2 * (i & 3u)) & 0x03030303u;
        return IS(TYPE_Q3_K) ? pairs | (high >> i & 0x01010101u) << 2 : pairs;
    }
    uint nibbles = word >> (4 * (i >> 2)) & 0x0f0f0f0fu;
    if (IS(TYPE_Q5_0) || IS(TYPE_Q5_1) || IS(TYPE_Q5_K))
        return nibbles | (high >> i & 0x01010101u) << 4;
    if (IS(TYPE_Q6_K))
        return nibbles | (high >> (2 * (i & 3u)) & 0x03030303u) << 4;
    if (IS(TYPE_IQ4_NL) || IS(TYPE_IQ4_XS))
        return look_up(nibbles, IQ4_WORDS);
    if (IS(TYPE_MXFP4))
        return look_up(nibbles, MXFP4_WORDS);
    return nibbles;
}

/* The word of the code plane that contains unpacked word `i`. */
uint code_word_of(uint type, uint i) { return IS(TYPE_Q8_0) ? i : IS(TYPE_Q2_K) || IS(TYPE_Q3_K) ? i >> 2 : i & 3u; }

/* Loads and unpacks word `i`; the planes of the block begin at `codes` and `high`. */
uint load_codes(uint type, uint codes, uint high, uint i)
{
    uint upper = high_words(type) == 0 ? 0 : weights[high + (IS(TYPE_Q6_K) ? i >> 2 : 0)];
    return codes_of(type, weights[codes + code_word_of(type, i)], upper, i);
}

/* A block as loaded, with the words of its scales. */
struct packed_block {
    uvec4 codes, more; /* more: second half of formats with 8-bit codes */
    uvec2 high;
    uvec3 scales;
};

packed_block load_block(uint type, uint codes_at, uint high_at, uint scales_at, uint blocks, uint row, uint block)
{
    packed_block result;
    uint place = row * blocks + block, codes = codes_at + place * code_words(type),
         high = high_at + place * high_words(type);
    result.codes = result.more = uvec4(0);
    result.high = uvec2(0);
#ifdef WIDE_WEIGHTS
    if (code_words(type) >= 4) {
        result.codes = wide_weights[codes / 4];
        if (code_words(type) == 8)
            result.more = wide_weights[codes / 4 + 1];
    } else
#endif
    {
        [[unroll]] for (uint i = 0; i < code_words(type); i++) {
            if (i < 4)
                result.codes[i] = weights[codes + i];
            else
                result.more[i - 4] = weights[codes + i];
        }
    }
    [[unroll]] for (uint i = 0; i < high_words(type); i++)
        result.high[i] = weights[high + i];
    result.scales = load_scale_words(type, scales_at + row * scale_row_words(type, blocks), block);
    return result;
}

/* Unpacks word `i` of a loaded block. */
uint word_of_block(uint type, packed_block b, uint i)
{
    uint at = code_word_of(type, i), word = at < 4 ? b.codes[at & 3u] : b.more[at & 3u];
    return codes_of(type, word, IS(TYPE_Q6_K) ? b.high[i >> 2] : b.high.x, i);
}

/* Four codes as floats. */
vec4 code_values(uint type, uint word)
{
    if (codes_are_signed(type))
        return vec4(signed_byte_of(word, 0), signed_byte_of(word, 1), signed_byte_of(word, 2), signed_byte_of(word, 3));
    return vec4(byte_of(word, 0), byte_of(word, 1), byte_of(word, 2), byte_of(word, 3));
}

/* Loads elements 4 i .. 4 i + 3 of a row of a float matrix; the row begins at word `row_at` and is padded. */
vec4 load_floats(uint type, uint row_at, uint i)
{
    if (IS(TYPE_F32)) {
        uint at = row_at + 4 * i;
        return vec4(uintBitsToFloat(weights[at]), uintBitsToFloat(weights[at + 1]), uintBitsToFloat(weights[at + 2]),
            uintBitsToFloat(weights[at + 3]));
    }
    uint low = weights[row_at + 2 * i], upper = weights[row_at + 2 * i + 1];
    if (IS(TYPE_F16))
        return vec4(two_halves(low), two_halves(upper));
    return vec4(uintBitsToFloat(low << 16), uintBitsToFloat(low & 0xffff0000u), uintBitsToFloat(upper << 16),
        uintBitsToFloat(upper & 0xffff0000u));
}

uint float_row_words(uint type, uint columns) { return (columns + 3) / 4 * (IS(TYPE_F32) ? 4 : 2); }

/* Dequantises elements 4 i .. 4 i + 3 of row `row`, with the same roundings as src/quant. */
vec4 dequantized(uint type, uint codes, uint high, uint scales, uint columns, uint row, uint i)
{
    if (is_float_type(type))
        return load_floats(type, codes + row * float_row_words(type, columns), i);
    uint blocks = columns / 32, block = i / 8;
    block_scales s = load_scales(type, scales + row * scale_row_words(type, blocks), block);
    uint word = load_codes(type, codes + (row * blocks + block) * code_words(type),
        high + (row * blocks + block) * high_words(type), i & 7u);
    uint part = (i & 7u) >> 2;
    precise vec4 product = s.scale[part] * (code_values(type, word) - vec4(s.bias));
    if (has_minimums(type))
        product += s.minimum[part];
    return product;
}
