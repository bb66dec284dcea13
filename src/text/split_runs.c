/* The single expressions: runs of one set of characters, with or without a blank before. */
#include "text/split_stages.h"

struct code_range {
    uint16_t first, last;
};

static bool in_ranges(uint32_t code, const struct code_range *ranges, size_t count)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (code > ranges[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && code >= ranges[low].first;
}

#define IN_RANGES(code, ranges) in_ranges((code), (ranges), sizeof(ranges) / sizeof *(ranges))

typedef bool (*in_set)(struct character character);

static inline size_t run_size(in_set set, const char *at, const char *end)
{
    const char *stop = at;
    for (;;) {
        struct character next = unicode_at(stop, end);
        if (!next.size || !set(next))
            return (size_t)(stop - at);
        stop += next.size;
    }
}

/* [set]+, or what lies before the next one */
static inline size_t run_or_gap(in_set set, const char *at, const char *end)
{
    size_t size = run_size(set, at, end);
    if (size)
        return size;
    const char *gap = at;
    for (;;) {
        struct character next = unicode_at(gap, end);
        if (!next.size || set(next))
            return (size_t)(gap - at);
        gap += next.size;
    }
}

/* \s?[set]+ right here */
static inline size_t spaced_run(in_set set, const char *at, const char *end)
{
    struct character first = unicode_at(at, end);
    if (first.class != CLASS_SPACE)
        return run_size(set, at, end);
    size_t size = run_size(set, at + first.size, end);
    return size ? first.size + size : 0;
}

/* ---- Numbers ----------------------------------------------------------------------------------------- */

static bool is_number(struct character character)
{
    return character.class == CLASS_NUMBER;
}

static bool is_ascii_digit(char byte)
{
    return byte >= '0' && byte <= '9';
}

static size_t match_digit(const char *at, const char *end)
{
    return number_size(at, end, 1);
}

static size_t match_three_digits(const char *at, const char *end)
{
    return number_size(at, end, 3);
}

static size_t match_ascii_triple(const char *at, const char *end)
{
    return end - at >= 3 && is_ascii_digit(at[0]) && is_ascii_digit(at[1]) && is_ascii_digit(at[2]) ? 3 : 0;
}

size_t stage_digit(const char *at, const char *end)
{
    return match_or_gap(match_digit, at, end);
}

size_t stage_digits(const char *at, const char *end)
{
    return run_or_gap(is_number, at, end);
}

size_t stage_three_digits(const char *at, const char *end)
{
    return match_or_gap(match_three_digits, at, end);
}

size_t stage_ascii_triple(const char *at, const char *end)
{
    return match_or_gap(match_ascii_triple, at, end);
}

/* ---- Lines and white space --------------------------------------------------------------------------- */

static size_t match_line_end(const char *at, const char *end)
{
    (void)end;
    return is_line_end((unsigned char)*at) ? 1 : 0;
}

size_t stage_line_end(const char *at, const char *end)
{
    return match_or_gap(match_line_end, at, end);
}

static bool is_line_feed(struct character character)
{
    return character.code == '\n';
}

size_t stage_lines(const char *at, const char *end)
{
    return run_or_gap(is_line_feed, at, end);
}

size_t stage_final_space(const char *at, const char *end)
{
    const char *stop = at, *space = NULL; /* where the run of white space that we are in began */
    while (stop != end) {
        struct character next = unicode_at(stop, end);
        if (next.class != CLASS_SPACE)
            space = NULL;
        else if (!space)
            space = stop;
        stop += next.size;
    }
    return (size_t)((space && space != at ? space : end) - at);
}

/* ---- Letters and punctuation ------------------------------------------------------------------------- */

static bool is_letter(struct character character)
{
    return character.class == CLASS_LETTER;
}

static bool is_punctuation(struct character character)
{
    return character.class == CLASS_PUNCTUATION;
}

static bool is_ascii_symbol(struct character character)
{
    return character.class == CLASS_SYMBOL && character.code < 0x80;
}

static bool is_punctuation_or_symbol(struct character character)
{
    return is_punctuation(character) || (is_ascii_symbol(character) && character.code != '`');
}

static bool is_punctuation_or_any_symbol(struct character character)
{
    return is_punctuation(character) || is_ascii_symbol(character);
}

static size_t match_spaced_letters(const char *at, const char *end)
{
    return spaced_run(is_letter, at, end);
}

static size_t match_spaced_punctuation(const char *at, const char *end)
{
    return spaced_run(is_punctuation, at, end);
}

size_t stage_spaced_letters(const char *at, const char *end)
{
    return match_or_gap(match_spaced_letters, at, end);
}

size_t stage_spaced_punctuation(const char *at, const char *end)
{
    return match_or_gap(match_spaced_punctuation, at, end);
}

size_t stage_punctuation(const char *at, const char *end)
{
    return run_or_gap(is_punctuation_or_symbol, at, end);
}

size_t stage_punctuation_backtick(const char *at, const char *end)
{
    return run_or_gap(is_punctuation_or_any_symbol, at, end);
}

/* [^(\s|.,!?…。，、।۔،)]: the brackets and the bar were meant as a group but stand inside the set. */
static bool is_bloom_word(struct character character)
{
    static const struct code_range excluded[] = {{'!', '!'}, {'(', ')'}, {',', ','}, {'.', '.'}, {'?', '?'},
        {'|', '|'}, {0x60c, 0x60c}, {0x6d4, 0x6d4}, {0x964, 0x964}, {0x2026, 0x2026}, {0x3001, 0x3002},
        {0xff0c, 0xff0c}};
    return character.class != CLASS_SPACE && !IN_RANGES(character.code, excluded);
}

static size_t match_bloom(const char *at, const char *end)
{
    size_t blank = *at == ' ' ? 1 : 0;
    size_t size = run_size(is_bloom_word, at + blank, end);
    return size ? blank + size : 0;
}

size_t stage_bloom(const char *at, const char *end)
{
    return match_or_gap(match_bloom, at, end);
}

/* ---- Sets that DeepSeek's patterns list -------------------------------------------------------------- */

static bool is_cased_letter(struct character character)
{
    static const struct code_range basic[] = {{'A', 'Z'}, {'a', 'z'}, {0xb5, 0xb5}, {0xc0, 0xd6},
        {0xd8, 0xf6}, {0xf8, 0x1ba}, {0x1bc, 0x1bf}, {0x1c4, 0x293}, {0x295, 0x2af}, {0x370, 0x373},
        {0x376, 0x377}, {0x37b, 0x37d}, {0x37f, 0x37f}, {0x386, 0x386}, {0x388, 0x38a}, {0x38c, 0x38c},
        {0x38e, 0x3a1}, {0x3a3, 0x3f5}, {0x3f7, 0x481}, {0x48a, 0x52f}, {0x531, 0x556}, {0x10a0, 0x10c5},
        {0x13a0, 0x13f5}, {0x13f8, 0x13fd}, {0x1c90, 0x1cba}, {0x1cbd, 0x1cbf}, {0x1d00, 0x1d2b},
        {0x1d6b, 0x1d77}, {0x1d79, 0x1d9a}, {0x1e00, 0x1f15}, {0x1f18, 0x1f1d}, {0x1f20, 0x1f45},
        {0x1f48, 0x1f4d}, {0x1f50, 0x1f57}, {0x1f59, 0x1f59}, {0x1f5b, 0x1f5b}, {0x1f5d, 0x1f5d},
        {0x1f5f, 0x1f7d}, {0x1f80, 0x1fb4}, {0x1fb6, 0x1fbc}, {0x1fbe, 0x1fbe}, {0x1fc2, 0x1fc4},
        {0x1fc6, 0x1fcc}, {0x1fd0, 0x1fd3}, {0x1fd6, 0x1fdb}, {0x1fe0, 0x1fec}, {0x1ff2, 0x1ff4},
        {0x1ff6, 0x1ffc}, {0x2102, 0x2102}, {0x2107, 0x2107}, {0x210a, 0x2113}, {0x2115, 0x2115},
        {0x2119, 0x211d}, {0x2124, 0x2124}, {0x2126, 0x2126}, {0x2128, 0x2128}, {0x212a, 0x212d},
        {0x212f, 0x2134}, {0x2139, 0x2139}, {0x213c, 0x213f}, {0x2145, 0x2149}, {0x214e, 0x214e},
        {0x2183, 0x2184}, {0x2c00, 0x2c7b}, {0x2c7e, 0x2ce4}, {0x2ceb, 0x2cee}, {0x2cf2, 0x2cf3},
        {0xa640, 0xa66d}, {0xa680, 0xa69b}, {0xa722, 0xa76f}, {0xa771, 0xa787}, {0xa78b, 0xa78e},
        {0xab70, 0xabbf}, {0xfb00, 0xfb06}, {0xfb13, 0xfb17}, {0xff21, 0xff3a}, {0xff41, 0xff5a}};
    static const struct code_range supplementary[] = {/* less 0x10000 */
        {0x400, 0x44f}, {0x4b0, 0x4d3}, {0x4d8, 0x4fb}, {0xc80, 0xcb2}, {0xcc0, 0xcf2}, {0x18a0, 0x18df},
        {0xe900, 0xe943}};
    if (character.code < 0x10000)
        return IN_RANGES(character.code, basic);
    return IN_RANGES(character.code - 0x10000, supplementary);
}

/* The ranges take in ASCII letters, which are cut off before. White space of any script is never in a set. */
static bool is_listed_punctuation(struct character character)
{
    static const struct code_range ranges[] = {
        {'!', '/'}, {':', '~'}, {0x2018, 0x201f}, {0x3001, 0x3002}, {0xff01, 0xff0f}, {0xff1a, 0xff5e}};
    return IN_RANGES(character.code, ranges);
}

static bool is_east_asian(struct character character)
{
    static const struct code_range ranges[] = {{0x800, 0x9fa5}, {0xac00, 0xd7ff}};
    return character.class != CLASS_SPACE && IN_RANGES(character.code, ranges);
}

static bool is_han_or_kana(struct character character)
{
    static const struct code_range ranges[] = {{0x3040, 0x30ff}, {0x4e00, 0x9fa5}};
    return IN_RANGES(character.code, ranges);
}

static size_t match_deepseek_letters(const char *at, const char *end)
{
    return spaced_run(is_cased_letter, at, end);
}

static size_t match_deepseek_punctuation(const char *at, const char *end)
{
    return spaced_run(is_listed_punctuation, at, end);
}

size_t stage_deepseek_letters(const char *at, const char *end)
{
    return match_or_gap(match_deepseek_letters, at, end);
}

size_t stage_deepseek_punctuation(const char *at, const char *end)
{
    return match_or_gap(match_deepseek_punctuation, at, end);
}

size_t stage_east_asian(const char *at, const char *end)
{
    return run_or_gap(is_east_asian, at, end);
}

size_t stage_han_kana(const char *at, const char *end)
{
    return run_or_gap(is_han_or_kana, at, end);
}
