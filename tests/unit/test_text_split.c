/* Every splitter against the published patterns, which PCRE2 runs, on random Unicode text. */
#include "cmocka_test.h"

#include "base/buffer.h"
#include "test_random.h"
#include "text/split.h"
#include "text/unicode.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#define CONTRACTIONS    "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
#define SPACES          "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define GPT2            "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define WORD            "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define REST            " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define CAPITALS        "((?=[\\p{L}])([^a-z]))"
#define SMALL           "((?=[\\p{L}])([^A-Z]))"
#define PREFIX          "[^\\r\\n\\p{L}\\p{N}]?"
#define CASED_WORD(end) PREFIX CAPITALS "*" SMALL "+" end "|" PREFIX CAPITALS "+" SMALL "*" end
#define QWEN2           CONTRACTIONS "|" WORD "|\\p{N}|" REST "|" SPACES

/*
 * White space is taken out of the sets of DeepSeek's patterns, as llama.cpp does by replacing it before it
 * matches.
 */
#define EAST_ASIAN "(?:(?!\\s)[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}])+"

/* clang-format off */
#define DEEPSEEK_LETTERS \
    "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\\x{1f7d}" \
    "ᾀ-ᾴᾶ-ᾼ\\x{1fbe}ῂ-ῄῆ-ῌῐ-\\x{1fd3}ῖ-\\x{1fdb}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\\x{2126}ℨ\\x{212a}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇ" \
    "Ꞌ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+"
#define DEEPSEEK_SIGNS_AND_WORDS \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?" \
    "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACES
/* clang-format on */

static const struct family {
    const char *name;
    const char *patterns[SPLIT_MAX_STAGES];
} families[] = {
    {"gpt-2", {GPT2}},
    {"starcoder", {"\\p{N}", GPT2}},
    {"falcon", {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]"}},
    {"default", {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
    {"llama-bpe", {CONTRACTIONS "|" WORD "|\\p{N}{1,3}|" REST "|" SPACES}},
    {"qwen2", {QWEN2}},
    {"bailingmoe", {"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|" WORD "|\\p{N}|" REST
                    "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {"qwen35",
        {CONTRACTIONS
            "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES}},
    {"seed-coder", {CONTRACTIONS "|" WORD "|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" SPACES}},
    {"ufakzeka", {WORD "|\\p{N}|" REST "|" SPACES}},
    {"laguna", {"[^\\n]+|[\\n]+", QWEN2}},
    {"minicpm5", {"\\p{N}{1,3}", CONTRACTIONS "|" WORD "|\\p{N}+|" REST "|" SPACES}},
    {"tekken", {(CASED_WORD("") "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES)}},
    {"gpt-4o", {(CASED_WORD(CONTRACTIONS "?") "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES)}},
    {"deepseek-llm", {"[\\r\\n]", (DEEPSEEK_LETTERS), "\\s?[!-/:-~！-／：-～‘-‟\\x{3001}-。]+", "\\s+$",
                         EAST_ASIAN, "\\p{N}+"}},
    {"deepseek-coder", {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", EAST_ASIAN, "\\p{N}"}},
    {"deepseek-v3", {"\\p{N}{1,3}", "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{30ff}]+", (DEEPSEEK_SIGNS_AND_WORDS)}},
    {"bloom", {" ?[^(\\s|.,!?…。，、।۔،)]+"}},
    {"viking", {" ?[^(\\s|.,!?…。，、।۔،)]+", "\\p{N}"}},
};

/* ---- Random text ------------------------------------------------------------------------------------- */

static uint64_t random_state = 1;

static uint32_t random_below(uint32_t limit)
{
    return test_random(&random_state, limit);
}

static size_t encode(uint32_t code, char *out)
{
    if (code < 0x10000)
        return unicode_encode(code, out);
    out[0] = (char)(0xf0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3f));
    out[2] = (char)(0x80 | (code >> 6 & 0x3f));
    out[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

static pcre2_code *compile(const char *pattern)
{
    int error;
    PCRE2_SIZE offset;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
        PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY, &error, &offset, NULL);
    if (!code)
        print_message("'%s': error %d at %zu\n", pattern, error, (size_t)offset);
    assert_non_null(code);
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* where it cannot, matching is only slower */
    return code;
}

enum { CODE_LIMIT = 0x30000 };

/*
 * Code points to which both Unicode tables, ours and PCRE2's, give the same class: they are of different
 * age.
 */
static uint32_t agreed[CODE_LIMIT];
static uint32_t agreed_count;

static int find_agreed_characters(void **state)
{
    (void)state;
    pcre2_code *classes = compile("(\\s)|(\\p{L})|(\\p{N})|(\\p{P})|(\\p{S})|(\\p{M})|(.)");
    static const uint8_t class_of_group[] = {
        0, CLASS_SPACE, CLASS_LETTER, CLASS_NUMBER, CLASS_PUNCTUATION, CLASS_SYMBOL, CLASS_MARK, CLASS_OTHER};
    pcre2_match_data *match = pcre2_match_data_create_from_pattern(classes, NULL);
    for (uint32_t code = 0; code < CODE_LIMIT; code++) {
        char text[4];
        if (code >= 0xd800 && code < 0xe000)
            continue;
        size_t size = encode(code, text);
        int group = pcre2_match(classes, (PCRE2_SPTR)text, size, 0, 0, match, NULL) - 1;
        struct character character = unicode_at(text, text + size);
        assert_int_equal(character.code, code);
        assert_int_equal(character.size, size);
        if (group > 0 && class_of_group[group] == character.class)
            agreed[agreed_count++] = code;
    }
    pcre2_match_data_free(match);
    pcre2_code_free(classes);
    /* The surrogates are 1%; Unicode 16, which one of them may not know, is 2.6%. */
    assert_true(agreed_count > CODE_LIMIT * 95 / 100);
    return 0;
}

static void add_random(struct buffer *text)
{
    static const char *const interesting[] = {" ", " ", " ", "  ", "\n", "\n", "\r\n", "\t", "\xe3\x80\x80",
        "\xc2\xa0", "\xc2\x85", "\xe2\x80\xa8", "'", "'s", "'S", "'t", "'re", "'Ve", "'M", "'ll", "'lL", "'d",
        "'r", "1", "23", "456", "7890", "\xd9\xa3", "\xc2\xbd", "a", "b", "Z", "Q", "word", "WORD", "Word",
        "\xc3\xa9", "\xc3\x89", "e\xcc\x81", "\xcc\x81", "\xd0\x96", "\xd0\xb6", "\xe4\xb8\xad",
        "\xe3\x82\xab", "\xed\x95\x9c", "\xe0\xa4\xbf", "\xf0\x9f\x9a\x80", "!", "...", "-", "_", "/", "~",
        "`", "$", "+", "(", ")", "|", "\xe3\x80\x82", "\xef\xbc\x8c", "\xe2\x80\xa6", "\x01", "\x7f",
        "\xe2\x80\x8b", "\xef\xbf\xbd", "\xc5\xbf"};
    char character[4];
    const char *part = character;
    size_t size;
    if (random_below(10) < 7) {
        part = interesting[random_below(sizeof interesting / sizeof *interesting)];
        size = strlen(part);
    } else {
        size = encode(agreed[random_below(agreed_count)], character);
    }
    assert_int_equal(buffer_append(text, part, size), SALVO_OK);
}

/* ---- The oracle -------------------------------------------------------------------------------------- */

struct ends {
    size_t *at; /* where each piece ends */
    size_t count, capacity;
};

static void add_end(struct ends *ends, size_t at)
{
    if (ends->count == ends->capacity) {
        ends->capacity = 2 * ends->capacity + 1024;
        ends->at = realloc(ends->at, ends->capacity * sizeof *ends->at);
        assert_non_null(ends->at);
    }
    ends->at[ends->count++] = at;
}

/* Cuts text[begin, end) into matches and what lies between. */
static void cut(const pcre2_code *code, pcre2_match_data *match, const char *text, size_t begin, size_t end,
    struct ends *out)
{
    const char *piece = text + begin;
    size_t size = end - begin, at = 0;
    while (at < size) {
        int found = pcre2_match(code, (PCRE2_SPTR)piece, size, at, PCRE2_NO_UTF_CHECK, match, NULL);
        if (found < 0) {
            assert_int_equal(found, PCRE2_ERROR_NOMATCH);
            break;
        }
        const PCRE2_SIZE *vector = pcre2_get_ovector_pointer(match);
        assert_true(vector[1] > vector[0]);
        if (vector[0] > at)
            add_end(out, begin + vector[0]);
        add_end(out, begin + vector[1]);
        at = vector[1];
    }
    if (at < size)
        add_end(out, end);
}

static struct ends split_by_patterns(pcre2_code *const *codes, const char *text, size_t size)
{
    struct ends pieces = {0};
    add_end(&pieces, size);
    for (size_t stage = 0; stage < SPLIT_MAX_STAGES && codes[stage]; stage++) {
        struct ends finer = {0};
        pcre2_match_data *match = pcre2_match_data_create_from_pattern(codes[stage], NULL);
        for (size_t i = 0; i < pieces.count; i++)
            cut(codes[stage], match, text, i ? pieces.at[i - 1] : 0, pieces.at[i], &finer);
        pcre2_match_data_free(match);
        free(pieces.at);
        pieces = finer;
    }
    return pieces;
}

static void check_text(const struct pre_tokenizer *pre, pcre2_code *const *codes, struct salvo_text text)
{
    struct ends expected = split_by_patterns(codes, text.data, text.size);
    struct splitter splitter = splitter_begin(pre, text.data, text.size);
    struct salvo_text word;
    size_t count = 0;
    while (splitter_next(&splitter, &word)) {
        size_t end = (size_t)(word.data + word.size - text.data);
        size_t wanted = count < expected.count ? expected.at[count] : 0;
        if (wanted != end) {
            print_message("%s: a word ends at %zu, expected %zu: '%.*s' before '%.20s'\n", pre->name, end,
                wanted, (int)word.size, word.data, word.data + word.size);
        }
        assert_int_equal(end, wanted);
        count++;
    }
    assert_int_equal(count, expected.count);
    free(expected.at);
}

static void splits_as_the_published_patterns(void **state)
{
    (void)state;
    enum { TEXTS = LONG_RUN(400), MAX_PARTS = 1000 };
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const struct pre_tokenizer *pre = pre_tokenizer_find(families[i].name, strlen(families[i].name));
        pcre2_code *codes[SPLIT_MAX_STAGES + 1] = {0};
        assert_non_null(pre);
        for (size_t stage = 0; stage < SPLIT_MAX_STAGES && families[i].patterns[stage]; stage++)
            codes[stage] = compile(families[i].patterns[stage]);
        struct buffer text = {0};
        for (int n = 0; n < TEXTS; n++) {
            text.size = 0;
            for (uint32_t parts = random_below(MAX_PARTS) + 1; parts; parts--)
                add_random(&text);
            check_text(pre, codes, (struct salvo_text){text.data, text.size});
        }
        buffer_free(&text);
        for (size_t stage = 0; codes[stage]; stage++)
            pcre2_code_free(codes[stage]);
    }
}

/* Every name cuts any bytes into words that are not empty and put together are the text. */
static void words_make_up_the_text(void **state)
{
    (void)state;
    const struct pre_tokenizer *pre;
    char text[3000];
    for (size_t i = 0; (pre = pre_tokenizer_at(i)); i++) {
        assert_ptr_equal(pre_tokenizer_find(pre->name, strlen(pre->name)), pre);
        for (int n = 0; n < 20; n++) {
            for (size_t byte = 0; byte < sizeof text; byte++)
                text[byte] = (char)(random_below(4) ? random_below(256) : ' ' + random_below(64));
            size_t size = random_below(sizeof text);
            struct splitter splitter = splitter_begin(pre, text, size);
            struct salvo_text word;
            const char *at = text;
            while (splitter_next(&splitter, &word)) {
                assert_ptr_equal(word.data, at);
                assert_true(word.size > 0);
                at += word.size;
            }
            assert_ptr_equal(at, text + size);
        }
    }
    assert_null(pre_tokenizer_find("no-such-thing", 13));
}

/*
 * A quarter of a megabyte of anything repeated takes a moment, not the square of it: ctest's time limit is
 * the judge.
 */
static void no_text_takes_quadratic_time(void **state)
{
    (void)state;
    static const char *const units[] = {" ", "\n", " \n", "a", "A", "aA", "\xc3\x89\x41", "1", "!", "'", "' ",
        "\x01", "\xe4\xb8\xad", " .", "\xff"};
    enum { SIZE = LONG_RUN(1 << 18) };
    char *text = malloc(SIZE);
    const struct pre_tokenizer *pre;
    assert_non_null(text);
    for (size_t i = 0; (pre = pre_tokenizer_at(i)); i++) {
        for (size_t n = 0; n < sizeof units / sizeof *units; n++) {
            const char *unit = units[n];
            size_t unit_size = strlen(unit), size = SIZE / unit_size * unit_size;
            for (size_t at = 0; at < size; at++)
                text[at] = unit[at % unit_size];
            struct splitter splitter = splitter_begin(pre, text, size);
            struct salvo_text word;
            while (splitter_next(&splitter, &word))
                ;
        }
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_as_the_published_patterns),
        cmocka_unit_test(words_make_up_the_text),
        cmocka_unit_test(no_text_takes_quadratic_time),
    };
    return cmocka_run_group_tests(tests, find_agreed_characters, NULL);
}
