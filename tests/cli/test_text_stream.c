/* A text that is read in pieces has the tokens of the whole. */
#include "../../tools/command.h"
#include "../../tools/text_stream.h"
#include "cmocka_test.h"
#include "engine_fixture.h"
#include "unit/text_sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Any error message is a failure here. */
int failure(const char *format, ...)
{
    fail_msg("%s", format);
    return EXIT_FAILED;
}

int usage_error(const char *format, ...)
{
    fail_msg("%s", format);
    return EXIT_USAGE;
}

int library_failure(void)
{
    fail_msg("%s", salvo_error());
    return EXIT_FAILED;
}

static char *write_temporary(char *path, const void *bytes, size_t size)
{
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    FILE *file = fdopen(descriptor, "wb");
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    fclose(file);
    return path;
}

/* A little more than two pieces of 8 MB. Most lines begin with a blank, which may belong to the line before:
 * there is no cut between these. */
static char *make_text(size_t *out_size)
{
    enum { SIZE = (17 << 20) + 12345 };
    char *text = malloc(SIZE + 64);
    size_t size = 0;
    assert_non_null(text);
    for (unsigned line = 0; size < SIZE; line++)
        size += (size_t)sprintf(
            text + size, "%s hello hello %u\n", line % 40 ? (line % 3 ? " " : "\n\t") : "hello", line);
    *out_size = SIZE;
    return text;
}

static void assert_pieces_are_the_whole(struct text_sample *sample)
{
    char model_path[] = "/tmp/salvo-stream-XXXXXX", text_path[] = "/tmp/salvo-text-XXXXXX";
    struct salvo_model *model;
    struct text_stream stream;
    int32_t *whole, *ids;
    size_t whole_count, size, taken = 0;
    uint32_t count;
    sample_bool(sample, "tokenizer.ggml.add_bos_token", true);
    assert_int_equal(sample_open(sample), SALVO_OK);
    ASSERT_OK(salvo_model_open(write_temporary(model_path, sample->file.data, sample->file.size), &model));
    char *text = make_text(&size);
    ASSERT_OK(salvo_tokenize(model, text, size, SALVO_TOKENIZE_BOS, &whole, &whole_count));

    assert_int_equal(text_stream_open(model, write_temporary(text_path, text, size), &stream), EXIT_DONE);
    do {
        assert_int_equal(text_stream_next(&stream, 1000, &ids, &count), EXIT_DONE);
        assert_in_range(count, 0, whole_count - taken);
        assert_memory_equal(ids, whole + taken, count * sizeof *ids);
        taken += count;
        assert_true(text_stream_share(&stream) >= 0 && text_stream_share(&stream) <= 1);
    } while (count == 1000);
    assert_int_equal(taken, whole_count);
    assert_true(text_stream_share(&stream) == 1);

    text_stream_close(&stream);
    salvo_free(whole);
    salvo_model_close(model);
    sample_close(sample);
    free(text);
    unlink(model_path);
    unlink(text_path);
}

static void pieces_for_bpe(void **state)
{
    (void)state;
    struct text_sample sample = {0};
    sample_bpe(&sample, "gpt-2");
    assert_pieces_are_the_whole(&sample);
}

/* SentencePiece adds a blank to the beginning of a text, not to the beginning of each piece. */
static void pieces_for_sentencepiece(void **state)
{
    (void)state;
    struct text_sample sample = {0};
    sample_spm(&sample);
    assert_pieces_are_the_whole(&sample);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_for_bpe), cmocka_unit_test(pieces_for_sentencepiece)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
