/*
 * Vocabularies that contradict themselves are refused in one line that names the key; memory that runs out
 * is an error.
 */
#include "cmocka_test.h"
#include "text_sample.h"

#include "base/memory.h"

#include <string.h>

#define TOKENS(...) sample_texts(sample, "tokenizer.ggml.tokens", ITEMS(__VA_ARGS__))
#define MODEL(name) sample_text(sample, "tokenizer.ggml.model", name)

static void absent(struct text_sample *sample)
{
    sample_text(sample, "general.name", "x");
}

static void no_vocab(struct text_sample *sample)
{
    MODEL("no_vocab");
}

static void none(struct text_sample *sample)
{
    MODEL("none");
}

static void bert(struct text_sample *sample)
{
    MODEL("bert");
}

static void model_is_a_number(struct text_sample *sample)
{
    sample_u32(sample, "tokenizer.ggml.model", 3);
}

static void no_tokens(struct text_sample *sample)
{
    MODEL("rwkv");
}

static void empty_tokens(struct text_sample *sample)
{
    MODEL("rwkv");
    sample_texts(sample, "tokenizer.ggml.tokens", NULL, 0);
}

static void tokens_are_numbers(struct text_sample *sample)
{
    MODEL("rwkv");
    sample_integers(sample, "tokenizer.ggml.tokens", (const int32_t[]){1}, 1);
}

static void scores_missing(struct text_sample *sample)
{
    MODEL("llama");
    TOKENS("a", "b");
}

static void scores_too_few(struct text_sample *sample)
{
    MODEL("llama");
    TOKENS("a", "b");
    sample_floats(sample, "tokenizer.ggml.scores", (const float[]){1}, 1);
}

static void types_too_many(struct text_sample *sample)
{
    MODEL("rwkv");
    TOKENS("a", "b");
    sample_integers(sample, "tokenizer.ggml.token_type", (const int32_t[]){1, 1, 1}, 3);
}

static void types_are_floats(struct text_sample *sample)
{
    MODEL("rwkv");
    TOKENS("a", "b");
    sample_floats(sample, "tokenizer.ggml.token_type", (const float[]){1, 1}, 2);
}

static void merges_missing(struct text_sample *sample)
{
    MODEL("gpt2");
    TOKENS("a", "b");
}

static void merge_in_one_part(struct text_sample *sample)
{
    MODEL("gpt2");
    TOKENS("a", "b");
    sample_texts(sample, "tokenizer.ggml.merges", ITEMS("a b", "ab"));
}

static void merge_without_right_part(struct text_sample *sample)
{
    MODEL("gpt2");
    TOKENS("a", "b");
    sample_texts(sample, "tokenizer.ggml.merges", ITEMS("a "));
}

static void bos_out_of_range(struct text_sample *sample)
{
    MODEL("rwkv");
    TOKENS("a", "b");
    sample_u32(sample, "tokenizer.ggml.bos_token_id", 2);
}

static void eot_out_of_range(struct text_sample *sample)
{
    MODEL("rwkv");
    TOKENS("a", "b");
    sample_u32(sample, "tokenizer.ggml.eot_token_id", UINT32_MAX);
}

static void bos_is_text(struct text_sample *sample)
{
    MODEL("rwkv");
    TOKENS("a", "b");
    sample_text(sample, "tokenizer.ggml.bos_token_id", "a");
}

static void add_bos_is_a_number(struct text_sample *sample)
{
    MODEL("rwkv");
    TOKENS("a", "b");
    sample_u32(sample, "tokenizer.ggml.add_bos_token", 7);
}

static const struct {
    void (*make)(struct text_sample *);
    enum salvo_status status;
    const char *in_error[2];
} cases[] = {
    {absent, SALVO_ERROR_UNSUPPORTED, {"has no vocabulary", ""}},
    {no_vocab, SALVO_ERROR_UNSUPPORTED, {"has no vocabulary", ""}},
    {none, SALVO_ERROR_UNSUPPORTED, {"has no vocabulary", ""}},
    {bert, SALVO_ERROR_UNSUPPORTED, {"'bert'", "gpt2, llama, rwkv"}},
    {model_is_a_number, SALVO_ERROR_FORMAT, {"tokenizer.ggml.model", ""}},
    {no_tokens, SALVO_ERROR_FORMAT, {"tokenizer.ggml.tokens", "missing"}},
    {empty_tokens, SALVO_ERROR_FORMAT, {"tokenizer.ggml.tokens", "0 tokens"}},
    {tokens_are_numbers, SALVO_ERROR_FORMAT, {"tokenizer.ggml.tokens", ""}},
    {scores_missing, SALVO_ERROR_FORMAT, {"tokenizer.ggml.scores", "missing"}},
    {scores_too_few, SALVO_ERROR_FORMAT, {"tokenizer.ggml.scores has 1", "has 2"}},
    {types_too_many, SALVO_ERROR_FORMAT, {"tokenizer.ggml.token_type has 3", "has 2"}},
    {types_are_floats, SALVO_ERROR_FORMAT, {"tokenizer.ggml.token_type", ""}},
    {merges_missing, SALVO_ERROR_FORMAT, {"tokenizer.ggml.merges", "missing"}},
    {merge_in_one_part, SALVO_ERROR_FORMAT, {"tokenizer.ggml.merges", "item 1 ('ab')"}},
    {merge_without_right_part, SALVO_ERROR_FORMAT, {"tokenizer.ggml.merges", "item 0"}},
    {bos_out_of_range, SALVO_ERROR_FORMAT, {"tokenizer.ggml.bos_token_id is 2", "2 tokens"}},
    {eot_out_of_range, SALVO_ERROR_FORMAT, {"tokenizer.ggml.eot_token_id is 4294967295", "2 tokens"}},
    {bos_is_text, SALVO_ERROR_FORMAT, {"tokenizer.ggml.bos_token_id", ""}},
    {add_bos_is_a_number, SALVO_ERROR_FORMAT, {"tokenizer.ggml.add_bos_token", ""}},
};

static void contradictions_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct text_sample sample = {0};
        cases[i].make(&sample);
        enum salvo_status status = sample_open(&sample);
        if (status != cases[i].status || !strstr(salvo_error(), cases[i].in_error[0]) ||
            !strstr(salvo_error(), cases[i].in_error[1]))
            print_message("case %zu: %d: %s\n", i, (int)status, salvo_error());
        assert_int_equal(status, cases[i].status);
        assert_non_null(strstr(salvo_error(), cases[i].in_error[0]));
        assert_non_null(strstr(salvo_error(), cases[i].in_error[1]));
        assert_null(sample.tokenizer);
        sample_close(&sample);
    }
}

static char last_line[256];

static void keep_line(void *user, enum salvo_log_level level, const char *line)
{
    assert_int_equal(level, SALVO_LOG_WARNING);
    ++*(int *)user;
    strncpy(last_line, line, sizeof last_line - 1);
}

static void an_unknown_pre_tokenizer_is_a_warning(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt-2", "made-up", ""};
    for (int i = 0; i < 3; i++) {
        struct text_sample sample = {0};
        int warnings = 0;
        salvo_log_set(keep_line, &warnings);
        sample_bpe(&sample, names[i]);
        assert_int_equal(sample_open(&sample), SALVO_OK);
        salvo_log_set(NULL, NULL);
        assert_int_equal(warnings, i > 0);
        if (i == 1)
            assert_non_null(strstr(last_line, "made-up"));
        sample_close(&sample);
    }
}

/*
 * Odd, but not wrong: empty and equal tokens, unknown types, scores that are not numbers, incomplete escapes.
 */
static void oddities_are_taken(void **state)
{
    (void)state;
    static const char *const models[] = {"gpt2", "llama", "rwkv"};
    static const char *const tokens[] = {"", "a", "a", "\\", "\\x", "\\xg1", "\\x4", "<0x61>", "<0xZZ>",
        "\xe2\x96\x81", " ", "<|im_end|>", "\xef\xbd\x9c"};
    enum { COUNT = sizeof tokens / sizeof *tokens };
    static const int32_t types[COUNT] = {3, 1, 4, 99, -5, 6, 6, 6, 6, 0, 4, 1, 2};
    const float nan = __builtin_nanf(""),
                scores[COUNT] = {nan, -nan, 0, -0.0f, __builtin_inff(), -__builtin_inff()};
    for (int i = 0; i < 3; i++) {
        struct text_sample sample = {0};
        struct token_list ids = {0};
        struct buffer text = {0};
        sample_text(&sample, "tokenizer.ggml.model", models[i]);
        sample_texts(&sample, "tokenizer.ggml.tokens", tokens, COUNT);
        sample_integers(&sample, "tokenizer.ggml.token_type", types, COUNT);
        sample_floats(&sample, "tokenizer.ggml.scores", scores, COUNT);
        sample_texts(&sample, "tokenizer.ggml.merges", ITEMS("a a", "a a", "\xe2\x96\x81 a", "aa aa"));
        assert_int_equal(sample_open(&sample), SALVO_OK);
        assert_int_equal(
            tokenizer_encode(sample.tokenizer, "a aaaa \\x<|im_end|>\xff", 20, TOKENIZE_SPECIAL, &ids),
            SALVO_OK);
        assert_int_equal(tokenizer_decode(sample.tokenizer, ids.ids, ids.count, true, &text), SALVO_OK);
        token_list_free(&ids);
        buffer_free(&text);
        sample_close(&sample);
    }
}

static enum salvo_status use(struct text_sample *sample)
{
    enum salvo_status status = SALVO_OK;
    static const char special[] = "hello <tool> <|im_end|>";
    static char long_text[6000];
    struct token_list ids = {0};
    struct buffer text = {0};
    memset(long_text, 'h', sizeof long_text);
    memcpy(long_text + 100, special, sizeof special);
    TRY(tokenizer_open(sample->gguf, &sample->tokenizer));
    TRY(tokenizer_encode(sample->tokenizer, long_text, sizeof long_text, TOKENIZE_SPECIAL, &ids));
    TRY(tokenizer_decode(sample->tokenizer, ids.ids, ids.count, false, &text));

cleanup:
    token_list_free(&ids);
    buffer_free(&text);
    tokenizer_close(sample->tokenizer);
    sample->tokenizer = NULL;
    return status;
}

static void memory_may_run_out_anywhere(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        struct text_sample sample = {0};
        if (kind == 0)
            sample_bpe(&sample, "gpt-2");
        else if (kind == 1)
            sample_spm(&sample);
        else
            sample_rwkv(&sample);
        assert_int_equal(sample_open(&sample), SALVO_OK);
        tokenizer_close(sample.tokenizer);
        enum salvo_status status;
        uint64_t nth = 0;
        do {
            memory_fail_at(++nth);
            status = use(&sample);
            memory_fail_at(0);
            assert_true(status == SALVO_OK || status == SALVO_ERROR_MEMORY);
            assert_true(nth < 10000);
        } while (status != SALVO_OK);
        assert_true(nth > 10);
        sample_close(&sample);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(an_unknown_pre_tokenizer_is_a_warning),
        cmocka_unit_test(oddities_are_taken),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
