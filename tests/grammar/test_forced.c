/* Forced tokens of real vocabularies: they are the tokenizer's, and no longer token could replace the last
 * one. Needs the shared test data or the default model. */
#include "cmocka_test.h"
#include "unit/text_data.h"

#include <salvo/grammar.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct vocabulary {
    struct salvo_model *model;
    char **texts;
    size_t *sizes;
    size_t count;
};

static void vocabulary_open(const char *path, struct vocabulary *out)
{
    assert_int_equal(salvo_model_open(path, &out->model), SALVO_OK);
    out->count = salvo_model_info(out->model)->vocabulary;
    out->texts = calloc(out->count, sizeof *out->texts);
    out->sizes = calloc(out->count, sizeof *out->sizes);
    for (size_t i = 0; i < out->count; i++)
        assert_int_equal(salvo_token_text(out->model, (int32_t)i, &out->texts[i], &out->sizes[i]), SALVO_OK);
}

static void vocabulary_close(struct vocabulary *vocabulary)
{
    for (size_t i = 0; i < vocabulary->count; i++)
        salvo_free(vocabulary->texts[i]);
    free(vocabulary->texts);
    free(vocabulary->sizes);
    salvo_model_close(vocabulary->model);
}

/* Whether some token is longer than the rest of a text and begins with it. */
static bool can_grow(const struct vocabulary *vocabulary, const char *rest, size_t size)
{
    for (size_t i = 0; i < vocabulary->count; i++) {
        if (vocabulary->sizes[i] > size && memcmp(vocabulary->texts[i], rest, size) == 0)
            return true;
    }
    return false;
}

/* `open`: the text continues after the forced tokens. */
static size_t check_text(const struct vocabulary *vocabulary, const char *text, bool open)
{
    struct salvo_grammar *grammar;
    struct salvo_grammar_matcher *matcher;
    char gbnf[300];
    int32_t ids[64];
    size_t count, at = 0, size = strlen(text);
    snprintf(gbnf, sizeof gbnf, "root ::= \"%s\"%s", text, open ? " [^\\x00]*" : "");
    size_t length = strlen(gbnf);
    assert_int_equal(
        salvo_grammar_compile(vocabulary->model, SALVO_GRAMMAR_GBNF, gbnf, length, NULL, &grammar), SALVO_OK);
    assert_int_equal(salvo_grammar_matcher_new(grammar, &matcher), SALVO_OK);
    assert_int_equal(salvo_grammar_matcher_forced(matcher, vocabulary->model, ids, 64, &count), SALVO_OK);
    for (size_t i = 0; i < count; i++) {
        const size_t piece = vocabulary->sizes[ids[i]];
        assert_true(at + piece <= size);
        assert_memory_equal(vocabulary->texts[ids[i]], text + at, piece);
        at += piece;
        assert_int_equal(salvo_grammar_matcher_accept(matcher, ids[i]), SALVO_OK);
    }
    for (size_t rest = 0; open && rest < at; rest++)
        assert_false(can_grow(vocabulary, text + rest, size - rest));
    if (!open)
        assert_int_equal(at, size);
    salvo_grammar_matcher_free(matcher);
    salvo_grammar_free(grammar);
    return count;
}

static void check_vocabulary(const char *path)
{
    static const char *const texts[] = {"The answer to everything", "{'name': 'x', 'value': 12", "a", " ",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "registered_address", "x = 1;  y", "Grüße aus Köln und 北京"};
    struct vocabulary vocabulary;
    size_t forced = 0;
    vocabulary_open(path, &vocabulary);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        forced += check_text(&vocabulary, texts[i], true);
        /* A text that ends is forced as a whole, with the tokenizer's ids if it adds no blank. */
        check_text(&vocabulary, texts[i], false);
    }
    assert_true(forced > 10);
    vocabulary_close(&vocabulary);
}

static void forced_tokens_of_vocabularies(void **state)
{
    (void)state;
    static const char *const files[] = {"tokenizers/gpt-2.gguf", "tokenizers/starcoder.gguf"};
    if (!test_data_folder())
        skip();
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        check_vocabulary(test_data_path(test_data_folder(), files[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(forced_tokens_of_vocabularies)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
