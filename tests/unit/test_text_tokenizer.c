/* The three kinds of tokenizers, on vocabularies small enough to check by hand. */
#include "cmocka_test.h"
#include "text_data.h"
#include "text_sample.h"

#include "text/unicode.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IDS(...) (const int32_t[]){__VA_ARGS__}, sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)

static void open_sample(struct text_sample *sample)
{
    enum salvo_status status = sample_open(sample);
    if (status != SALVO_OK)
        print_message("%s\n", salvo_error());
    assert_int_equal(status, SALVO_OK);
}

static void expect_ids(
    const struct text_sample *sample, const char *text, unsigned flags, const int32_t *expected, size_t count)
{
    struct token_list ids = {0};
    assert_int_equal(tokenizer_encode(sample->tokenizer, text, strlen(text), flags, &ids), SALVO_OK);
    bool same =
        ids.count == count && (count == 0 || memcmp(ids.ids, expected, count * sizeof *expected) == 0);
    for (size_t i = 0; !same && i < ids.count; i++)
        print_message("'%s': got %d\n", text, ids.ids[i]);
    assert_true(same);
    token_list_free(&ids);
}

static void expect_text(
    const struct text_sample *sample, const int32_t *ids, size_t count, bool special, const char *expected)
{
    struct buffer text = {0};
    assert_int_equal(tokenizer_decode(sample->tokenizer, ids, count, special, &text), SALVO_OK);
    assert_int_equal(text.size, strlen(expected));
    if (text.size)
        assert_memory_equal(text.data, expected, text.size);
    buffer_free(&text);
}

/* ---- Bytes without tokens ---------------------------------------------------------------------------- */

static char warning[256];
static int warnings;

static void keep_warning(void *user, enum salvo_log_level level, const char *line)
{
    (void)user;
    assert_int_equal(level, SALVO_LOG_WARNING);
    warnings++;
    snprintf(warning, sizeof warning, "%s", line);
}

static void bytes_without_tokens_are_warned_of_once(void **state)
{
    (void)state;
    struct text_sample sample = {0};
    sample_text(&sample, "tokenizer.ggml.model", "gpt2");
    sample_text(&sample, "tokenizer.ggml.pre", "gpt-2");
    sample_texts(&sample, "tokenizer.ggml.tokens", ITEMS("a", "b", "ab"));
    sample_texts(&sample, "tokenizer.ggml.merges", ITEMS("a b"));
    open_sample(&sample);
    warnings = 0;
    salvo_log_set(keep_warning, NULL);
    expect_ids(&sample, "abb", 0, IDS(2, 1));
    assert_int_equal(warnings, 0);
    expect_ids(&sample,
        "ab\xff"
        "b\xfe",
        0, IDS(2, 1));
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(warning, "2 of the 5 bytes of the text"));

    /* Words that come again, which are remembered, count again. */
    enum { TIMES = 3000 };
    static char text[3 * TIMES];
    for (int i = 0; i < 3 * TIMES; i++)
        text[i] = "ab "[i % 3];
    struct token_list list = {0};
    assert_int_equal(tokenizer_encode(sample.tokenizer, text, 3 * TIMES, 0, &list), SALVO_OK);
    assert_int_equal(list.count, TIMES);
    assert_int_equal(list.lost, TIMES);
    assert_int_equal(warnings, 2);
    salvo_log_set(NULL, NULL);
    token_list_free(&list);
    sample_close(&sample);
}

/* ---- Byte-level BPE ---------------------------------------------------------------------------------- */

static void bpe_merges_by_rank(void **state)
{
    (void)state;
    struct text_sample sample = {0};
    sample_bpe(&sample, "gpt-2");
    open_sample(&sample);
    expect_ids(&sample, "hello hello", 0, IDS(SAMPLE_HELLO, SAMPLE_BLANK_HELLO));
    expect_ids(&sample, "llo lo", 0, IDS(257, 'o', ' ', 259)); /* ll before lo */
    expect_ids(&sample, "lll", 0, IDS(257, 'l'));              /* the leftmost */
    assert_false(tokenizer_adds_bos(sample.tokenizer));
    assert_false(tokenizer_adds_eos(sample.tokenizer));
    expect_text(&sample, IDS(SAMPLE_HELLO, SAMPLE_BLANK_HELLO, '\n'), false, "hello hello\n");
    assert_string_equal(tokenizer_model(sample.tokenizer), "gpt2");
    assert_string_equal(tokenizer_pre(sample.tokenizer), "gpt-2");
    assert_int_equal(tokenizer_vocabulary(sample.tokenizer), SAMPLE_COUNT);
    sample_close(&sample);
}

static void merges_can_be_ignored(void **state)
{
    (void)state;
    struct text_sample sample = {0};
    const char *const tokens[] = {"a", "b", "ab", "ba", "aba"};
    sample_text(&sample, "tokenizer.ggml.model", "gpt2");
    sample_text(&sample, "tokenizer.ggml.pre", "llama-bpe");
    sample_texts(&sample, "tokenizer.ggml.tokens", tokens, 5);
    sample_texts(&sample, "tokenizer.ggml.merges", ITEMS("b a"));
    sample_u32(&sample, "tokenizer.ggml.bos_token_id", 4);
    open_sample(&sample);
    expect_ids(&sample, "aba", 0, IDS(4)); /* a token, although no merge leads to it */
    expect_ids(&sample, "abab", 0, IDS(0, 3, 1));
    assert_true(tokenizer_adds_bos(sample.tokenizer));     /* this pre-tokenizer's default */
    assert_int_equal(tokenizer_eos(sample.tokenizer), -1); /* the default, 11, is not in this vocabulary */
    sample_close(&sample);
}

static void a_merge_to_no_token_becomes_bytes(void **state)
{
    (void)state;
    struct text_sample sample = {0};
    sample_text(&sample, "tokenizer.ggml.model", "gpt2");
    sample_text(&sample, "tokenizer.ggml.pre", "gpt-2");
    sample_texts(&sample, "tokenizer.ggml.tokens", ITEMS("a", "b", "\xc4\xa0"));
    sample_texts(&sample, "tokenizer.ggml.merges", ITEMS("a b", "\xc4\xa0 ab"));
    open_sample(&sample);
    expect_ids(&sample, " abc", 0, IDS(2, 0, 1)); /* there is nothing for c */
    sample_close(&sample);
}

/* b is gone into "ab" before its turn with c comes, so that c is free for d. */
static void what_was_merged_merges_no_more(void **state)
{
    (void)state;
    struct text_sample sample = {0};
    sample_text(&sample, "tokenizer.ggml.model", "gpt2");
    sample_text(&sample, "tokenizer.ggml.pre", "gpt-2");
    sample_texts(&sample, "tokenizer.ggml.tokens", ITEMS("a", "b", "c", "d", "ab", "bc", "cd"));
    sample_texts(&sample, "tokenizer.ggml.merges", ITEMS("a b", "b c", "c d"));
    sample_bool(&sample, "tokenizer.ggml.add_eos_token", true);
    sample_u32(&sample, "tokenizer.ggml.eos_token_id", 3);
    open_sample(&sample);
    expect_ids(&sample, "abcd", 0, IDS(4, 6));
    expect_ids(&sample, "abcdabcd", 0, IDS(4, 6, 4, 6));
    assert_true(tokenizer_adds_eos(sample.tokenizer));
    sample_close(&sample);
}

/* If a merge is listed twice, the first counts: with the second "ab" would come before "bc". */
static void of_equal_merges_the_first_counts(void **state)
{
    (void)state;
    struct text_sample sample = {0};
    sample_text(&sample, "tokenizer.ggml.model", "gpt2");
    sample_text(&sample, "tokenizer.ggml.pre", "gpt-2");
    sample_texts(&sample, "tokenizer.ggml.tokens", ITEMS("a", "b", "c", "ab", "bc"));
    sample_texts(&sample, "tokenizer.ggml.merges", ITEMS("b c", "a b", "b c"));
    open_sample(&sample);
    expect_ids(&sample, "abc", 0, IDS(0, 4));
    sample_close(&sample);

    sample_text(&sample, "tokenizer.ggml.model", "gpt2");
    sample_text(&sample, "tokenizer.ggml.pre", "gpt-2");
    sample_texts(&sample, "tokenizer.ggml.tokens", ITEMS("a", "b", "c", "ab", "bc"));
    sample_texts(&sample, "tokenizer.ggml.merges", ITEMS("a b", "b c", "a b"));
    open_sample(&sample);
    expect_ids(&sample, "abc", 0, IDS(3, 2));
    sample_close(&sample);
}

/* If tokens have the same text, encoding gives the lowest id; all are decoded. */
static void of_equal_tokens_the_first_counts(void **state)
{
    (void)state;
    static const int32_t types[] = {1, 1, 1, 1, 3, 4, 3, 4, 3};
    static const char *const tokens[] = {"a", "b", "a", "b", "<x>", "<y>", "<x>", "<y>", "a"};
    struct text_sample sample = {0};
    sample_text(&sample, "tokenizer.ggml.model", "gpt2");
    sample_text(&sample, "tokenizer.ggml.pre", "gpt-2");
    sample_texts(&sample, "tokenizer.ggml.tokens", tokens, 9);
    sample_integers(&sample, "tokenizer.ggml.token_type", types, 9);
    sample_texts(&sample, "tokenizer.ggml.merges", NULL, 0);
    open_sample(&sample);
    expect_ids(&sample, "ab", 0, IDS(0, 1));
    expect_ids(&sample, "<x><y>", TOKENIZE_SPECIAL, IDS(4, 5));
    expect_ids(&sample, "a", TOKENIZE_SPECIAL, IDS(8)); /* a control token, when these are asked for */
    expect_text(&sample, IDS(2, 3, 6, 7, 8), true, "ab<x><y>a");
    sample_close(&sample);
}

/* ---- Special tokens ---------------------------------------------------------------------------------- */

static void special_tokens_are_parsed_only_when_asked(void **state)
{
    (void)state;
    for (int rwkv = 0; rwkv < 2; rwkv++) {
        struct text_sample sample = {0};
        if (rwkv)
            sample_rwkv(&sample);
        else
            sample_bpe(&sample, "smollm");
        open_sample(&sample);
        expect_ids(&sample, "<|im_end|>", TOKENIZE_SPECIAL, IDS(SAMPLE_END));
        expect_ids(&sample, "<|im_end|>", 0, IDS('<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|', '>'));
        expect_ids(&sample, "hello<|im_end|>>hello", TOKENIZE_SPECIAL, /* the longest */
            IDS(SAMPLE_HELLO, SAMPLE_END_LONG, SAMPLE_HELLO));
        expect_ids(&sample, "<|im_end<|im_end|>", TOKENIZE_SPECIAL,
            IDS('<', '|', 'i', 'm', '_', 'e', 'n', 'd', SAMPLE_END));
        expect_ids(&sample, "<tool>", 0, IDS(SAMPLE_TOOL)); /* the user defined it: always */
        expect_ids(
            &sample, "hello", TOKENIZE_BOS | TOKENIZE_EOS, IDS(SAMPLE_START, SAMPLE_HELLO, SAMPLE_END));
        expect_ids(&sample, "", TOKENIZE_BOS, IDS(SAMPLE_START));
        expect_text(&sample, IDS(SAMPLE_START, SAMPLE_HELLO, SAMPLE_TOOL, SAMPLE_END), false, "hello<tool>");
        expect_text(
            &sample, IDS(SAMPLE_START, SAMPLE_HELLO, SAMPLE_END), true, "<|im_start|>hello<|im_end|>");
        assert_true(tokenizer_is_end(sample.tokenizer, SAMPLE_END));
        assert_false(tokenizer_is_end(sample.tokenizer, SAMPLE_START));
        assert_false(tokenizer_is_end(sample.tokenizer, -1));
        assert_false(tokenizer_is_end(sample.tokenizer, SAMPLE_COUNT));
        sample_close(&sample);
    }
}

static void the_longest_special_token_wins_wherever_it_begins(void **state)
{
    (void)state;
    struct text_sample sample = {0};
    sample_text(&sample, "tokenizer.ggml.model", "rwkv");
    sample_texts(&sample, "tokenizer.ggml.tokens", ITEMS("a", "b", "c", "d", "ab", "bcd", "aa", "aaa"));
    sample_integers(&sample, "tokenizer.ggml.token_type", (const int32_t[]){1, 1, 1, 1, 3, 3, 4, 4}, 8);
    open_sample(&sample);
    expect_ids(&sample, "abcd", TOKENIZE_SPECIAL, IDS(0, 5));
    expect_ids(&sample, "abc", TOKENIZE_SPECIAL, IDS(4, 2));
    expect_ids(&sample, "aaaaa", 0, IDS(7, 6)); /* what is left is looked at again */
    expect_ids(&sample, "aaaab", TOKENIZE_SPECIAL, IDS(7, 4));
    sample_close(&sample);

    /* If tokens of equal length overlap, the first is taken. */
    sample_text(&sample, "tokenizer.ggml.model", "rwkv");
    sample_texts(&sample, "tokenizer.ggml.tokens", ITEMS("x", "y", "xyx", "yxy"));
    sample_integers(&sample, "tokenizer.ggml.token_type", (const int32_t[]){1, 1, 3, 3}, 4);
    open_sample(&sample);
    expect_ids(&sample, "xyxy", TOKENIZE_SPECIAL, IDS(2, 1));
    expect_ids(&sample, "yxyx", TOKENIZE_SPECIAL, IDS(3, 0));
    sample_close(&sample);
}

static void special_tokens_may_take_blanks_along(void **state)
{
    (void)state;
    struct text_sample sample = {0};
    sample_bpe(&sample, "gpt-2");
    sample_text(&sample, "general.name", "Phi-3 mini");
    open_sample(&sample);
    expect_ids(&sample, "<|im_end|> \n hello", TOKENIZE_SPECIAL, IDS(SAMPLE_END, SAMPLE_HELLO));
    expect_ids(&sample, " <|im_end|> \n<|im_end|>", TOKENIZE_SPECIAL, IDS(' ', SAMPLE_END, SAMPLE_END));
    sample_close(&sample);

    /* The blanks before it are taken, but not the one that another token ends with. */
    sample_text(&sample, "tokenizer.ggml.model", "rwkv");
    sample_text(&sample, "general.name", "modern-bert");
    sample_texts(&sample, "tokenizer.ggml.tokens", ITEMS("a", " ", "[MASK]", "[ENDS SO] "));
    sample_integers(&sample, "tokenizer.ggml.token_type", (const int32_t[]){1, 1, 3, 3}, 4);
    open_sample(&sample);
    expect_ids(&sample, "a  [MASK] a", TOKENIZE_SPECIAL, IDS(0, 2, 1, 0));
    expect_ids(&sample, "[ENDS SO] [MASK]", TOKENIZE_SPECIAL, IDS(3, 2));
    expect_ids(&sample, "[ENDS SO]   [MASK]", TOKENIZE_SPECIAL, IDS(3, 2));
    sample_close(&sample);
}

/* ---- SentencePiece ----------------------------------------------------------------------------------- */

static void spm_merges_by_score(void **state)
{
    (void)state;
    struct text_sample sample = {0};
    sample_spm(&sample);
    open_sample(&sample);
    expect_ids(&sample, "hello", 0, IDS(SPM_BLANK, SPM_HE, SPM_L, SPM_LO)); /* lo before ll */
    expect_ids(&sample, "aaa a", 0, IDS(SPM_BLANK, SPM_AA, SPM_A, SPM_BLANK, SPM_A));
    expect_ids(
        &sample, "\n\xc3\xa9", 0, IDS(SPM_BLANK, SPM_BYTES + '\n', SPM_BYTES + 0xc3, SPM_BYTES + 0xa9));
    expect_ids(&sample, "<s>", 0, IDS(SPM_BLANK, SPM_BYTES + '<', SPM_BYTES + 's', SPM_BYTES + '>'));
    expect_ids(&sample, "<s>a", TOKENIZE_SPECIAL, IDS(SPM_BOS, SPM_BLANK, SPM_A));
    expect_ids(&sample, "a</s>a", TOKENIZE_SPECIAL, IDS(SPM_BLANK, SPM_A, SPM_EOS, SPM_BLANK, SPM_A));
    expect_ids(&sample, "", 0, NULL, 0);
    expect_text(&sample, IDS(SPM_BLANK_HELLO, SPM_BLANK, SPM_A), false, "hello a");
    expect_text(&sample, IDS(SPM_BOS, SPM_BLANK_HELLO), false, "hello");
    assert_true(tokenizer_adds_bos(sample.tokenizer));
    assert_true(tokenizer_is_end(sample.tokenizer, SPM_EOS));
    sample_close(&sample);
}

/* A token can be reached with any score, also NaN; the worst of all is still better than none. */
static void spm_takes_any_score(void **state)
{
    (void)state;
    const uint32_t all_ones = UINT32_MAX; /* a NaN */
    float scores[] = {0, 0, 0, -1, 0, INFINITY, -INFINITY};
    struct text_sample sample = {0};
    memcpy(&scores[4], &all_ones, sizeof all_ones);
    sample_text(&sample, "tokenizer.ggml.model", "llama");
    sample_texts(&sample, "tokenizer.ggml.tokens", ITEMS("<unk>", "<s>", "</s>", "a", "aa", "b", "bb"));
    sample_integers(&sample, "tokenizer.ggml.token_type", (const int32_t[]){2, 3, 3, 1, 1, 1, 1}, 7);
    sample_floats(&sample, "tokenizer.ggml.scores", scores, 7);
    sample_bool(&sample, "tokenizer.ggml.add_space_prefix", false);
    open_sample(&sample);
    expect_ids(&sample, "aabb", 0, IDS(4, 6));
    sample_close(&sample);
}

static void spm_follows_the_rules_about_blanks(void **state)
{
    (void)state;
    struct text_sample sample = {0};
    sample_spm(&sample);
    sample_bool(&sample, "tokenizer.ggml.add_space_prefix", false);
    open_sample(&sample);
    expect_ids(&sample, "a  a", 0, IDS(SPM_A, SPM_BLANK, SPM_BLANK, SPM_A));
    expect_text(&sample, IDS(SPM_BLANK, SPM_A), false, " a");
    sample_close(&sample);

    sample_spm(&sample);
    sample_bool(&sample, "tokenizer.ggml.remove_extra_whitespaces", true);
    open_sample(&sample);
    expect_ids(&sample, "  a   a", 0, IDS(SPM_BLANK, SPM_A, SPM_BLANK, SPM_A));
    sample_close(&sample);
}

/* ---- RWKV -------------------------------------------------------------------------------------------- */

static void rwkv_takes_the_longest(void **state)
{
    (void)state;
    struct text_sample sample = {0};
    sample_rwkv(&sample);
    open_sample(&sample);
    expect_ids(&sample, "hellhello hello", 0, IDS(258, SAMPLE_HELLO, SAMPLE_BLANK_HELLO));
    expect_ids(&sample, "\n\t'\\\n\t", 0, IDS(259, '\n', '\t'));
    expect_text(&sample, IDS(259, 0xff - 0x80), false, "\n\t'\\\x7f");
    sample_close(&sample);

    /* A byte without a token is lost, and nothing else. */
    sample_text(&sample, "tokenizer.ggml.model", "rwkv");
    sample_texts(&sample, "tokenizer.ggml.tokens", ITEMS("a", "b", "ab"));
    open_sample(&sample);
    expect_ids(&sample, "axab", 0, IDS(0, 2));
    sample_close(&sample);
}

/* ---- All of them ------------------------------------------------------------------------------------- */

static void any_bytes_come_back(void **state)
{
    (void)state;
    enum { SIZE = 600 };
    char text[SIZE];
    srand(7);
    for (int kind = 0; kind < 4; kind++) {
        struct text_sample sample = {0};
        struct token_list ids = {0};
        struct buffer back = {0};
        if (kind == 0)
            sample_bpe(&sample, "llama-bpe");
        else if (kind == 1)
            sample_bpe(&sample, "deepseek-llm");
        else if (kind == 2)
            sample_rwkv(&sample);
        else
            sample_spm(&sample);
        open_sample(&sample);
        for (int n = 0; n < 500; n++) {
            for (size_t i = 0; i < SIZE; i++)
                text[i] = (char)(rand() % 3 ? "hello <>|"[rand() % 9] : rand() % 256);
            size_t size = (size_t)rand() % SIZE;
            ids.count = back.size = 0;
            assert_int_equal(tokenizer_encode(sample.tokenizer, text, size, 0, &ids), SALVO_OK);
            assert_int_equal(tokenizer_decode(sample.tokenizer, ids.ids, ids.count, false, &back), SALVO_OK);
            assert_int_equal(back.size, size);
            if (size)
                assert_memory_equal(back.data, text, size);
        }
        token_list_free(&ids);
        buffer_free(&back);
        sample_close(&sample);
    }
}

static void ids_outside_the_vocabulary_are_refused(void **state)
{
    (void)state;
    struct text_sample sample = {0};
    struct buffer text = {0};
    sample_rwkv(&sample);
    open_sample(&sample);
    assert_int_equal(
        tokenizer_decode(sample.tokenizer, IDS('a', SAMPLE_COUNT), false, &text), SALVO_ERROR_ARGUMENT);
    assert_non_null(strstr(salvo_error(), "266"));
    assert_int_equal(text.size, 0);
    assert_int_equal(tokenizer_piece(sample.tokenizer, -1, false, &text), SALVO_ERROR_ARGUMENT);
    assert_int_equal(tokenizer_piece(sample.tokenizer, 'a', false, &text), SALVO_OK);
    assert_int_equal(text.size, 1);
    buffer_free(&text);
    sample_close(&sample);
}

/* A text is encoded alike whether words are remembered, as in long ones, or not. */
static void long_texts_are_encoded_as_short_ones(void **state)
{
    (void)state;
    enum { LINES = 3000 };
    struct text_sample sample = {0};
    struct buffer text = {0};
    struct token_list once = {0}, many = {0};
    sample_bpe(&sample, "gpt-2");
    open_sample(&sample);
    for (int i = 0; i < LINES; i++) {
        char line[64];
        int size = snprintf(line, sizeof line, "%s hello-%d\n", i % 3 ? "hellohello" : "", rand() % 500);
        assert_int_equal(tokenizer_encode(sample.tokenizer, line, (size_t)size, 0, &once), SALVO_OK);
        assert_int_equal(buffer_append(&text, line, (size_t)size), SALVO_OK);
    }
    assert_int_equal(tokenizer_encode(sample.tokenizer, text.data, text.size, 0, &many), SALVO_OK);
    assert_int_equal(many.count, once.count);
    assert_memory_equal(many.ids, once.ids, many.count * sizeof *many.ids);
    buffer_free(&text);
    token_list_free(&once);
    token_list_free(&many);
    sample_close(&sample);
}

/* A megabyte of one letter, or one long word: were it quadratic, ctest's time limit would end it. */
static void a_megabyte_word_is_no_trouble(void **state)
{
    (void)state;
    enum { SIZE = 1 << 20 };
    char *text = malloc(SIZE);
    assert_non_null(text);
    for (int kind = 0; kind < 3; kind++) {
        struct text_sample sample = {0};
        struct token_list ids = {0};
        if (kind == 0)
            sample_bpe(&sample, "gpt-2");
        else if (kind == 1)
            sample_spm(&sample);
        else
            sample_rwkv(&sample);
        open_sample(&sample);
        for (int pattern = 0; pattern < 3; pattern++) {
            for (size_t i = 0; i < SIZE; i++)
                text[i] = "aaaaahellollohe"[pattern == 0 ? 0 : pattern == 1 ? i % 15 : (i * i / 7) % 15];
            ids.count = 0;
            assert_int_equal(
                tokenizer_encode(sample.tokenizer, text, SIZE, TOKENIZE_SPECIAL, &ids), SALVO_OK);
            assert_true(ids.count > SIZE / 8);
        }
        token_list_free(&ids);
        sample_close(&sample);
    }
    free(text);
}

static void incomplete_characters_are_measured(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t tail;
    } cases[] = {{"", 0}, {"a", 0}, {"\xc3", 1}, {"a\xc3", 1}, {"\xc3\xa9", 0}, {"\xe2\x96", 2},
        {"\xe2\x96\x81", 0}, {"\xf0\x9f\x9a", 3}, {"\xf0\x9f", 2}, {"\xf0", 1}, {"\xf0\x9f\x9a\x80", 0},
        {"\x81\x81\x81\x81", 0}, {"\xff", 0}, {"\xc0", 0}, {"\xe0\x80", 0}, {"\xed\xa0", 0}, {"\xf4\x90", 0},
        {"\xc3\xc3", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(utf8_incomplete_tail(cases[i].text, strlen(cases[i].text)), cases[i].tail);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_without_tokens_are_warned_of_once),
        cmocka_unit_test(bpe_merges_by_rank),
        cmocka_unit_test(merges_can_be_ignored),
        cmocka_unit_test(a_merge_to_no_token_becomes_bytes),
        cmocka_unit_test(what_was_merged_merges_no_more),
        cmocka_unit_test(of_equal_merges_the_first_counts),
        cmocka_unit_test(of_equal_tokens_the_first_counts),
        cmocka_unit_test(special_tokens_are_parsed_only_when_asked),
        cmocka_unit_test(the_longest_special_token_wins_wherever_it_begins),
        cmocka_unit_test(special_tokens_may_take_blanks_along),
        cmocka_unit_test(spm_merges_by_score),
        cmocka_unit_test(spm_takes_any_score),
        cmocka_unit_test(spm_follows_the_rules_about_blanks),
        cmocka_unit_test(rwkv_takes_the_longest),
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(ids_outside_the_vocabulary_are_refused),
        cmocka_unit_test(long_texts_are_encoded_as_short_ones),
        cmocka_unit_test(a_megabyte_word_is_no_trouble),
        cmocka_unit_test(incomplete_characters_are_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
