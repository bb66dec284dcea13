/* Known texts and their ids, for the vocabularies in the shared test data and for the default model. */
#include "cmocka_test.h"
#include "text_data.h"

#include "gguf/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char separator[] = "\n__ggml_vocab_test__\n";

/* Reads numbers, separated by anything, up to `end`. */
static void read_ids(const char *at, const char *end, struct token_list *ids)
{
    ids->count = 0;
    while (at < end) {
        char *after;
        long id = strtol(at, &after, 10);
        if (after == at || after > end) {
            at++;
            continue;
        }
        if (ids->count == ids->capacity) {
            ids->capacity = 2 * ids->capacity + 64;
            ids->ids = realloc(ids->ids, ids->capacity * sizeof *ids->ids);
            assert_non_null(ids->ids);
        }
        ids->ids[ids->count++] = (int32_t)id;
        at = after;
    }
}

static void check_text(
    const struct tokenizer *tokenizer, const char *text, size_t size, const struct token_list *expected)
{
    struct token_list ids = {0};
    struct buffer decoded = {0};
    assert_int_equal(tokenizer_encode(tokenizer, text, size, 0, &ids), SALVO_OK);
    bool same = ids.count == expected->count &&
                (!ids.count || memcmp(ids.ids, expected->ids, ids.count * sizeof *ids.ids) == 0);
    if (!same) {
        print_message("text '%.*s'\nexpected", (int)size, text);
        for (size_t i = 0; i < expected->count; i++)
            print_message(" %d", expected->ids[i]);
        print_message("\ngot     ");
        for (size_t i = 0; i < ids.count; i++)
            print_message(" %d", ids.ids[i]);
        print_message("\n");
    }
    assert_true(same);
    assert_int_equal(tokenizer_decode(tokenizer, ids.ids, ids.count, false, &decoded), SALVO_OK);
    assert_int_equal(decoded.size, size);
    if (size)
        assert_memory_equal(decoded.data, text, size);
    buffer_free(&decoded);
    token_list_free(&ids);
}

static void check_vectors(const char *name)
{
    const char *folder = test_data_folder();
    if (!folder)
        skip();
    char file[256];
    struct gguf *gguf;
    snprintf(file, sizeof file, "tokenizers/%s.gguf", name);
    struct tokenizer *tokenizer = open_vocabulary(test_data_path(folder, file), &gguf);
    snprintf(file, sizeof file, "tokenizers/%s.inp", name);
    struct buffer texts = read_whole_file(test_data_path(folder, file));
    snprintf(file, sizeof file, "tokenizers/%s.out", name);
    struct buffer lines = read_whole_file(test_data_path(folder, file));

    struct token_list expected = {0};
    const char *text = texts.data, *line = lines.data, *texts_end = texts.data + texts.size;
    int checked = 0;
    while (text < texts_end) {
        const char *text_end = memmem(text, (size_t)(texts_end - text), separator, strlen(separator));
        if (!text_end)
            break; /* the last separator ends the last text */
        const char *line_end = strchr(line, '\n');
        assert_non_null(line_end);
        read_ids(line, line_end, &expected);
        check_text(tokenizer, text, (size_t)(text_end - text), &expected);
        text = text_end + strlen(separator);
        line = line_end + 1;
        checked++;
    }
    print_message("%s: %d texts\n", name, checked);
    assert_true(checked > 20);
    free(expected.ids);
    buffer_free(&texts);
    buffer_free(&lines);
    tokenizer_close(tokenizer);
    gguf_close(gguf);
}

static void gpt_2(void **state)
{
    (void)state;
    check_vectors("gpt-2");
}

static void starcoder(void **state)
{
    (void)state;
    check_vectors("starcoder");
}

static void llama_spm(void **state)
{
    (void)state;
    check_vectors("llama-spm");
}

static void rwkv_world(void **state)
{
    (void)state;
    check_vectors("rwkv-world");
}

static void default_model_text(void **state)
{
    (void)state;
    const char *folder = test_data_folder(), *model = default_model_path();
    if (!folder || !model)
        skip();
    struct gguf *gguf;
    struct tokenizer *tokenizer = open_vocabulary(model, &gguf);
    struct buffer text = read_whole_file(test_data_path(folder, "smollm2/text.txt"));
    struct buffer line = read_whole_file(test_data_path(folder, "smollm2/text.tokens.csv"));
    struct token_list expected = {0};
    read_ids(line.data, line.data + line.size, &expected);
    assert_true(expected.count > 200);
    check_text(tokenizer, text.data, text.size, &expected);
    free(expected.ids);
    buffer_free(&text);
    buffer_free(&line);
    tokenizer_close(tokenizer);
    gguf_close(gguf);
}

static void default_model_chat(void **state)
{
    (void)state;
    static const char text[] =
        "<|im_start|>user\nWrite one sentence about the sea.<|im_end|>\n<|im_start|>assistant\n";
    static const int32_t expected[] = {
        1, 4093, 198, 19161, 582, 6330, 563, 260, 3426, 30, 2, 198, 1, 520, 9531, 198};
    const char *model = default_model_path();
    if (!model)
        skip();
    struct gguf *gguf;
    struct token_list ids = {0};
    struct buffer decoded = {0};
    struct tokenizer *tokenizer = open_vocabulary(model, &gguf);
    assert_int_equal(tokenizer_encode(tokenizer, text, strlen(text), TOKENIZE_SPECIAL, &ids), SALVO_OK);
    assert_int_equal(ids.count, sizeof expected / sizeof *expected);
    assert_memory_equal(ids.ids, expected, sizeof expected);
    assert_int_equal(tokenizer_decode(tokenizer, ids.ids, ids.count, true, &decoded), SALVO_OK);
    assert_int_equal(decoded.size, strlen(text));
    assert_memory_equal(decoded.data, text, decoded.size);
    assert_true(tokenizer_is_end(tokenizer, 2));
    assert_true(tokenizer_is_end(tokenizer, 0));
    assert_false(tokenizer_is_end(tokenizer, 1));
    assert_false(tokenizer_adds_bos(tokenizer));
    buffer_free(&decoded);
    token_list_free(&ids);
    tokenizer_close(tokenizer);
    gguf_close(gguf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt_2),
        cmocka_unit_test(starcoder),
        cmocka_unit_test(llama_spm),
        cmocka_unit_test(rwkv_world),
        cmocka_unit_test(default_model_text),
        cmocka_unit_test(default_model_chat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
