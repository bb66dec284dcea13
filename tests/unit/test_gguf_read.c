/* Reading a valid file. */
#include "cmocka_test.h"

#include "gguf_sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct buffer sample;
static struct gguf *gguf;

static int open_sample(void **state)
{
    (void)state;
    put_sample(&sample, 3);
    return gguf_open_memory(sample.data, sample.size, "test.gguf", &gguf) != SALVO_OK;
}

static int close_sample(void **state)
{
    (void)state;
    gguf_close(gguf);
    buffer_free(&sample);
    return 0;
}

static void every_type_of_metadata_is_read(void **state)
{
    (void)state;
    assert_string_equal(gguf_path(gguf), "test.gguf");
    assert_int_equal(gguf_version(gguf), 3);
    assert_int_equal(gguf_file_size(gguf), sample.size);
    assert_int_equal(gguf_entry_count(gguf), SAMPLE_ENTRIES);
    assert_memory_equal(
        gguf_entry_at(gguf, 0)->key.data, "general.architecture", gguf_entry_at(gguf, 0)->key.size);
    assert_int_equal(gguf_find(gguf, "u8")->u, 200);
    assert_int_equal(gguf_find(gguf, "i8")->i, -5);
    assert_int_equal(gguf_find(gguf, "u16")->u, 60000);
    assert_int_equal(gguf_find(gguf, "i16")->i, -30000);
    assert_int_equal(gguf_find(gguf, "u32")->u, 4000000000u);
    assert_int_equal(gguf_find(gguf, "i32")->i, -2000000000);
    assert_true(gguf_find(gguf, "f32")->f == 1.5);
    assert_true(gguf_find(gguf, "bool")->b);
    assert_int_equal(gguf_find(gguf, "u64")->u, UINT64_MAX);
    assert_int_equal(gguf_find(gguf, "i64")->i, INT64_MIN);
    assert_true(gguf_find(gguf, "f64")->f == 0x1p1023);
    assert_null(gguf_find(gguf, "absent"));
}

static void arrays_are_walked_item_by_item(void **state)
{
    (void)state;
    struct salvo_value rest = *gguf_find(gguf, "numbers"), item, inner;
    for (int i = -1; i < 2; i++) {
        assert_true(salvo_array_next(&rest, &item));
        assert_int_equal(item.type, SALVO_I16);
        assert_int_equal(item.i, i);
    }
    assert_false(salvo_array_next(&rest, &item));

    rest = *gguf_find(gguf, "texts");
    static const char *const texts[] = {"one", "", "gr\xc3\xbc\xc3\x9f"};
    for (int i = 0; i < 3; i++) {
        assert_true(salvo_array_next(&rest, &item));
        assert_int_equal(item.text.size, strlen(texts[i]));
        assert_memory_equal(item.text.data, texts[i], item.text.size);
    }

    rest = *gguf_find(gguf, "nested");
    assert_true(salvo_array_next(&rest, &item));
    assert_true(salvo_array_next(&item, &inner) && inner.type == SALVO_BOOL && inner.b);
    assert_true(salvo_array_next(&item, &inner) && !inner.b);
    assert_false(salvo_array_next(&item, &inner));
    assert_true(salvo_array_next(&rest, &item));
    assert_true(salvo_array_next(&item, &inner) && inner.text.size == 4);
    assert_false(salvo_array_next(&rest, &item));

    rest = *gguf_find(gguf, "empty");
    assert_false(salvo_array_next(&rest, &item));
    rest = *gguf_find(gguf, "u8");
    assert_false(salvo_array_next(&rest, &item));
}

/* The fourth dimension counts as the others do. */
static void four_dimensions_are_read(void **state)
{
    (void)state;
    struct buffer file = {0};
    struct gguf *opened;
    put_header(&file, 3, 2, 0);
    put_tensor(&file, "deep", 4, (uint64_t[]){32, 3, 5, 7}, TYPE_Q4_0, 0); /* 105 blocks of 18 bytes */
    put_tensor(&file, "next", 1, (uint64_t[]){2}, TYPE_F32, 1920);
    put_data(&file, 32, 1928);
    assert_int_equal(gguf_open_memory(file.data, file.size, "deep", &opened), SALVO_OK);
    const struct gguf_tensor *deep = gguf_tensor_at(opened, 0);
    assert_int_equal(deep->dimensions, 4);
    assert_int_equal(deep->shape[2], 5);
    assert_int_equal(deep->shape[3], 7);
    assert_int_equal(deep->elements, 32 * 3 * 5 * 7);
    assert_int_equal(deep->size, 105 * 18);
    gguf_close(opened);

    /* A multiple of the alignment further on the next would lie upon its end. */
    file.size = 0;
    put_header(&file, 3, 2, 0);
    put_tensor(&file, "deep", 4, (uint64_t[]){32, 3, 5, 7}, TYPE_Q4_0, 0);
    put_tensor(&file, "next", 1, (uint64_t[]){2}, TYPE_F32, 1888);
    put_data(&file, 32, 1928);
    assert_int_equal(gguf_open_memory(file.data, file.size, "deep", &opened), SALVO_ERROR_FORMAT);
    buffer_free(&file);
}

static void tensors_have_their_shape_and_data(void **state)
{
    (void)state;
    assert_int_equal(gguf_tensor_count(gguf), SAMPLE_TENSORS);
    const struct gguf_tensor *matrix = gguf_find_tensor(gguf, "matrix");
    assert_ptr_equal(matrix, gguf_tensor_at(gguf, 0));
    assert_int_equal(matrix->dimensions, 2);
    assert_int_equal(matrix->shape[0], 32);
    assert_int_equal(matrix->shape[1], 2);
    assert_int_equal(matrix->shape[2], 1);
    assert_int_equal(matrix->shape[3], 1);
    assert_int_equal(matrix->elements, 64);
    assert_int_equal(matrix->size, 36);
    assert_int_equal(matrix->data[35], 35);
    const struct gguf_tensor *vector = gguf_find_tensor(gguf, "vector");
    assert_int_equal(vector->size, 12);
    assert_int_equal(vector->data[0], 128);
    assert_null(gguf_find_tensor(gguf, "absent"));
}

static void an_unknown_tensor_type_is_kept_without_data(void **state)
{
    (void)state;
    const struct gguf_tensor *mystery = gguf_find_tensor(gguf, "mystery");
    assert_int_equal(mystery->type, 77);
    assert_int_equal(mystery->elements, 5);
    assert_int_equal(mystery->size, 0);
    assert_null(mystery->data);
}

static void look_ups_convert_or_name_the_key(void **state)
{
    (void)state;
    uint32_t number = 7;
    float real = 0;
    bool flag = false, found = true;
    struct salvo_text text = {0};
    struct salvo_value array = {0};

    assert_int_equal(gguf_get_u32(gguf, "absent", &number, &found), SALVO_OK);
    assert_false(found);
    assert_int_equal(number, 7);
    assert_int_equal(gguf_get_u32(gguf, "u8", &number, &found), SALVO_OK);
    assert_true(found);
    assert_int_equal(number, 200);
    assert_int_equal(gguf_get_u32(gguf, "i8", &number, NULL), SALVO_ERROR_FORMAT);
    assert_string_equal(salvo_error(), "test.gguf: key 'i8' is -5, it must be from 0 to 4294967295");
    assert_int_equal(gguf_get_u32(gguf, "u64", &number, NULL), SALVO_ERROR_FORMAT);
    assert_string_equal(
        salvo_error(), "test.gguf: key 'u64' is 18446744073709551615, it must be at most 4294967295");
    assert_int_equal(gguf_get_u32(gguf, "bool", &number, NULL), SALVO_ERROR_FORMAT);
    assert_string_equal(salvo_error(), "test.gguf: key 'bool' has type BOOL, it must be an integer");

    assert_int_equal(gguf_get_f32(gguf, "f32", &real, NULL), SALVO_OK);
    assert_true(real == 1.5f);
    assert_int_equal(gguf_get_f32(gguf, "i8", &real, NULL), SALVO_OK);
    assert_true(real == -5.0f);
    assert_int_equal(gguf_get_f32(gguf, "f64", &real, NULL), SALVO_ERROR_FORMAT);
    assert_int_equal(gguf_get_f32(gguf, "texts", &real, NULL), SALVO_ERROR_FORMAT);

    assert_int_equal(gguf_get_bool(gguf, "bool", &flag, NULL), SALVO_OK);
    assert_true(flag);
    assert_int_equal(gguf_get_bool(gguf, "u8", &flag, NULL), SALVO_ERROR_FORMAT);

    assert_int_equal(gguf_get_text(gguf, "general.architecture", &text, NULL), SALVO_OK);
    assert_int_equal(text.size, 6);
    assert_int_equal(gguf_get_text(gguf, "u8", &text, NULL), SALVO_ERROR_FORMAT);

    assert_int_equal(gguf_get_array(gguf, "texts", SALVO_STRING, &array, NULL), SALVO_OK);
    assert_int_equal(array.array.count, 3);
    assert_int_equal(gguf_get_array(gguf, "numbers", SALVO_STRING, &array, NULL), SALVO_ERROR_FORMAT);
    assert_string_equal(
        salvo_error(), "test.gguf: key 'numbers' is an array of I16, it must be an array of STRING");
    assert_int_equal(gguf_get_array(gguf, "u8", SALVO_STRING, &array, NULL), SALVO_ERROR_FORMAT);
}

static void version_2_is_read_too(void **state)
{
    (void)state;
    struct buffer file = {0};
    put_sample(&file, 2);
    assert_int_equal(open_and_touch(file.data, file.size), SALVO_OK);
    buffer_free(&file);
}

static void a_file_without_tensors_needs_no_padding(void **state)
{
    (void)state;
    struct buffer file = {0};
    put_header(&file, 3, 0, 1);
    put_key(&file, "k", SALVO_BOOL);
    put_number(&file, 0, 1);
    assert_int_equal(open_and_touch(file.data, file.size), SALVO_OK);
    buffer_free(&file);
}

static void bytes_after_the_last_tensor_do_no_harm(void **state)
{
    (void)state;
    struct buffer file = {0};
    put_sample(&file, 3);
    put_data(&file, 64, 100);
    assert_int_equal(open_and_touch(file.data, file.size), SALVO_OK);
    buffer_free(&file);
}

static void a_token_may_hold_nul_but_must_be_utf8(void **state)
{
    (void)state;
    static const struct {
        char text[4];
        enum salvo_status status;
    } cases[] = {{"a\0b", SALVO_OK}, {"\xc3\xbc.", SALVO_OK}, {"a\xff.", SALVO_ERROR_FORMAT},
        {"ab\xc3", SALVO_ERROR_FORMAT}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buffer file = {0};
        put_header(&file, 3, 0, 1);
        put_key(&file, "tokens", SALVO_ARRAY);
        put_array(&file, SALVO_STRING, 1);
        put_number(&file, 3, 8);
        for (int j = 0; j < 3; j++)
            put_number(&file, (uint8_t)cases[i].text[j], 1);
        assert_int_equal(open_and_touch(file.data, file.size), cases[i].status);
        buffer_free(&file);
    }
}

static void the_files_of_the_test_data_open(void **state)
{
    (void)state;
    const char *data = getenv("SALVO_TEST_DATA"), *source = getenv("SALVO_SOURCE");
    static const char *const names[] = {"tokenizers/gpt-2", "tokenizers/rwkv-world", "mini/llama-mini-f32",
        "mini/rwkv7-mini-f32", "rwkv7-tiny/tiny-rwkv7-834k-f32"};
    char path[1024];
    int opened = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s%s/%s.gguf",
            data     ? data
            : source ? source
                     : ".",
            data ? "" : "/../shared/data", names[i]);
        if (access(path, R_OK) != 0)
            continue;
        struct gguf *file;
        enum salvo_status status = gguf_open(path, &file);
        assert_string_equal(status == SALVO_OK ? "" : salvo_error(), "");
        (void)touch_all(file);
        assert_int_equal(gguf_check(file), SALVO_OK);
        gguf_close(file);
        opened++;
    }
    if (opened == 0) {
        print_message("the test data is not here\n");
        skip();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_of_metadata_is_read),
        cmocka_unit_test(arrays_are_walked_item_by_item),
        cmocka_unit_test(tensors_have_their_shape_and_data),
        cmocka_unit_test(four_dimensions_are_read),
        cmocka_unit_test(an_unknown_tensor_type_is_kept_without_data),
        cmocka_unit_test(look_ups_convert_or_name_the_key),
        cmocka_unit_test(version_2_is_read_too),
        cmocka_unit_test(a_file_without_tensors_needs_no_padding),
        cmocka_unit_test(bytes_after_the_last_tensor_do_no_harm),
        cmocka_unit_test(a_token_may_hold_nul_but_must_be_utf8),
        cmocka_unit_test(the_files_of_the_test_data_open),
    };
    return cmocka_run_group_tests(tests, open_sample, close_sample);
}
