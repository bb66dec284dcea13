/* Models in several files. */
#include "cmocka_test.h"

#include "gguf_sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PARTS = 3 };

static char folder[] = "/tmp/salvo-split-XXXXXX";

/* The split metadata of a part; -1: the key is absent. */
struct claim {
    int number, count, tensors;
};

static const char *part_path(int number, int count)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/model-%05d-of-%05d.gguf", folder, number + 1, count);
    return path;
}

static void put_claim(struct buffer *file, const char *key, uint32_t type, size_t width, int value)
{
    if (value < 0)
        return;
    put_key(file, key, type);
    put_number(file, (uint64_t)value, width);
}

/* Two tensors in each part, blk.<2 * number> and blk.<2 * number + 1>. */
static void write_part(int number, struct claim claim)
{
    struct buffer file = {0};
    char name[32];
    unsigned entries = (claim.number >= 0) + (claim.count >= 0) + (claim.tensors >= 0);
    put_header(&file, 3, 2, entries);
    put_claim(&file, "split.no", SALVO_U16, 2, claim.number);
    put_claim(&file, "split.count", SALVO_U16, 2, claim.count);
    put_claim(&file, "split.tensors.count", SALVO_I32, 4, claim.tensors);
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "blk.%d", 2 * number + i);
        put_tensor(&file, name, 1, (uint64_t[]){4}, TYPE_I8, (uint64_t)i * 32);
    }
    put_data(&file, 32, 36);
    FILE *stream = fopen(part_path(number, PARTS), "wb");
    assert_non_null(stream);
    assert_int_equal(fwrite(file.data, 1, file.size, stream), file.size);
    fclose(stream);
    buffer_free(&file);
}

static int write_model(void **state)
{
    (void)state;
    for (int i = 0; i < PARTS; i++)
        write_part(i, (struct claim){i, PARTS, 2 * PARTS});
    return 0;
}

static int make_folder(void **state)
{
    (void)state;
    return !mkdtemp(folder);
}

static int remove_folder(void **state)
{
    (void)state;
    for (int i = 0; i < PARTS; i++)
        unlink(part_path(i, PARTS));
    return rmdir(folder);
}

static void assert_refused(int number, enum salvo_status expected, const char *word, const char *other)
{
    struct gguf *gguf;
    assert_int_equal(gguf_open(part_path(number, PARTS), &gguf), expected);
    assert_null(gguf);
    if (!strstr(salvo_error(), word) || !strstr(salvo_error(), other))
        print_error("'%s' lacks '%s' or '%s'\n", salvo_error(), word, other);
    assert_non_null(strstr(salvo_error(), word));
    assert_non_null(strstr(salvo_error(), other));
}

static void all_parts_open_as_one(void **state)
{
    (void)state;
    struct gguf *gguf;
    char name[32];
    assert_int_equal(gguf_open(part_path(0, PARTS), &gguf), SALVO_OK);
    assert_int_equal(gguf_tensor_count(gguf), 2 * PARTS);
    for (int i = 0; i < 2 * PARTS; i++) {
        snprintf(name, sizeof name, "blk.%d", i);
        const struct gguf_tensor *tensor = gguf_find_tensor(gguf, name);
        assert_non_null(tensor);
        assert_int_equal(tensor->part, i / 2);
        assert_int_equal(tensor->data[3], i % 2 * 32 + 3);
        gguf_release(gguf, tensor);
    }
    assert_true(gguf_file_size(gguf) > 3 * 100);
    assert_int_equal(gguf_check(gguf), SALVO_OK);
    gguf_close(gguf);
}

static void a_later_part_names_the_first(void **state)
{
    (void)state;
    assert_refused(1, SALVO_ERROR_ARGUMENT, "part 2 of 3", "model-00001-of-00003.gguf");
}

static void a_missing_part_is_named(void **state)
{
    (void)state;
    unlink(part_path(2, PARTS));
    assert_refused(0, SALVO_ERROR_IO, "part 3 of 3", "model-00003-of-00003.gguf");
}

static void parts_that_disagree_are_refused(void **state)
{
    (void)state;
    write_part(1, (struct claim){1, 4, 2 * PARTS});
    assert_refused(0, SALVO_ERROR_FORMAT, "model-00002-of-00003.gguf", "'split.count' is 4 here, but 3");
    write_part(1, (struct claim){2, PARTS, 2 * PARTS});
    assert_refused(0, SALVO_ERROR_FORMAT, "model-00002-of-00003.gguf", "'split.no' is 2");
    write_part(1, (struct claim){-1, -1, -1});
    assert_refused(0, SALVO_ERROR_FORMAT, "model-00002-of-00003.gguf", "'split.count' is 0 here, but 3");
}

static void wrong_claims_of_the_first_part_are_refused(void **state)
{
    (void)state;
    write_part(0, (struct claim){0, PARTS, 7});
    assert_refused(0, SALVO_ERROR_FORMAT, "'split.tensors.count' is 7", "6 tensors");
    write_part(0, (struct claim){0, 4, 6});
    assert_refused(0, SALVO_ERROR_FORMAT, "part 1 of 4", "-00001-of-00004.gguf");
    write_part(0, (struct claim){3, PARTS, 6});
    assert_refused(0, SALVO_ERROR_FORMAT, "'split.no' is 3", "'split.count' is 3");
    write_part(0, (struct claim){-1, PARTS, 6});
    assert_refused(0, SALVO_ERROR_FORMAT, "'split.count' is 3", "'split.no' is missing");
    write_part(0, (struct claim){0, PARTS, -1});
    struct gguf *gguf;
    assert_int_equal(gguf_open(part_path(0, PARTS), &gguf), SALVO_OK); /* the sum is optional */
    gguf_close(gguf);
}

static void a_tensor_in_two_parts_is_refused(void **state)
{
    (void)state;
    /* The file of part 1 becomes the file of part 2, with its number but with the tensors of part 1. */
    write_part(1, (struct claim){2, PARTS, 6});
    char from[128];
    snprintf(from, sizeof from, "%s", part_path(1, PARTS));
    assert_int_equal(rename(from, part_path(2, PARTS)), 0);
    write_part(1, (struct claim){1, PARTS, 6});
    assert_refused(0, SALVO_ERROR_FORMAT, "model-00003-of-00003.gguf", "tensor 'blk.2' is defined twice");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(all_parts_open_as_one, write_model),
        cmocka_unit_test_setup(a_later_part_names_the_first, write_model),
        cmocka_unit_test_setup(a_missing_part_is_named, write_model),
        cmocka_unit_test_setup(parts_that_disagree_are_refused, write_model),
        cmocka_unit_test_setup(wrong_claims_of_the_first_part_are_refused, write_model),
        cmocka_unit_test_setup(a_tensor_in_two_parts_is_refused, write_model),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
