/* Files that lie. Each is refused with a line that names the thing and the two numbers that clash. */
#include "cmocka_test.h"

#include "gguf_sample.h"

#include <string.h>

/* The complaint about `file`, which is freed; "" when it opens. */
static const char *complaint(struct buffer *file)
{
    enum salvo_status status = open_and_touch(file->data, file->size);
    buffer_free(file);
    return status == SALVO_OK ? "" : salvo_error();
}

/* `file` is refused with a message that has every one of the given words. */
#define ASSERT_REFUSED(file, ...) assert_refused((file), (const char *const[]){__VA_ARGS__, NULL})

static void assert_refused(struct buffer *file, const char *const *words)
{
    const char *line = complaint(file);
    assert_int_equal(strncmp(line, "test.gguf: ", 11), 0);
    for (; *words; words++) {
        if (!strstr(line, *words))
            print_error("'%s' lacks '%s'\n", line, *words);
        assert_non_null(strstr(line, *words));
    }
}

/* A file with one metadata entry whose value is still to come. */
static struct buffer file_with_key(const char *key, uint32_t type)
{
    struct buffer file = {0};
    put_header(&file, 3, 0, 1);
    put_key(&file, key, type);
    return file;
}

/* A file with one tensor 't' and `size` bytes of data. */
static struct buffer file_with_tensor(
    uint32_t dimensions, const uint64_t *shape, uint32_t type, uint64_t offset, size_t size)
{
    struct buffer file = {0};
    put_header(&file, 3, 1, 0);
    put_tensor(&file, "t", dimensions, shape, type, offset);
    put_data(&file, 32, size);
    return file;
}

static void what_is_not_gguf(void **state)
{
    (void)state;
    struct buffer file = {0};
    ASSERT_REFUSED(&file, "not a GGUF file");
    for (size_t size = 1; size <= 4; size++) {
        put_number(&file, 0x46554747, size);
        ASSERT_REFUSED(&file, "24 bytes", "incomplete download?");
    }
    put_header(&file, 3, 0, 0);
    file.data[3] = 'X';
    ASSERT_REFUSED(&file, "not a GGUF file");
}

static void other_versions_and_byte_orders_are_not_supported(void **state)
{
    (void)state;
    static const uint32_t versions[] = {0, 1, 4, 0x03000000, 0x02000000, UINT32_MAX};
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        struct buffer file = {0};
        put_sample(&file, versions[i]);
        assert_int_equal(open_and_touch(file.data, file.size), SALVO_ERROR_UNSUPPORTED);
        assert_non_null(strstr(salvo_error(), "not supported"));
        if (versions[i] == 0x03000000)
            assert_non_null(strstr(salvo_error(), "big-endian"));
        buffer_free(&file);
    }
}

static void huge_counts(void **state)
{
    (void)state;
    static const uint64_t counts[] = {2, 100, UINT32_MAX, (uint64_t)1 << 60, UINT64_MAX};
    static const char *const written[] = {
        "2", "100", "4294967295", "1152921504606846976", "18446744073709551615"};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct buffer file = {0};
        put_header(&file, 3, 0, counts[i]);
        put_number(&file, 0, 8);
        ASSERT_REFUSED(&file, "metadata entries", written[i], "8 bytes are left");
        put_header(&file, 3, counts[i], 0);
        put_number(&file, 0, 8);
        ASSERT_REFUSED(&file, "tensors", written[i], "8 bytes are left");
    }
}

static void huge_text_lengths(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {7, UINT32_MAX, INT64_MAX, UINT64_MAX, UINT64_MAX - 31};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct buffer file = {0};
        put_header(&file, 3, 0, 1);
        put_number(&file, sizes[i], 8); /* of the key */
        put_data(&file, 1, 6);
        ASSERT_REFUSED(&file, "metadata entry 0", "the key claims", "ends after 6");

        file = file_with_key("text", SALVO_STRING);
        put_number(&file, sizes[i], 8);
        put_data(&file, 1, 6);
        ASSERT_REFUSED(&file, "key 'text'", "claims", "ends after 6");

        file = file_with_key("texts", SALVO_ARRAY);
        put_array(&file, SALVO_STRING, 2);
        put_text(&file, "a");
        put_number(&file, sizes[i], 8);
        put_data(&file, 1, 6);
        ASSERT_REFUSED(&file, "key 'texts'", "item 1 of 2", "claims", "ends after 6");

        put_header(&file, 3, 1, 0);
        put_number(&file, sizes[i], 8); /* of the tensor's name */
        put_data(&file, 1, 6);
        while (file.size < 24 + 25)
            put_number(&file, 'x', 1);
        if (sizes[i] > 100)
            ASSERT_REFUSED(&file, "tensor 0 of 1", "the name claims", "ends after 17");
        buffer_free(&file);
    }
}

static void hostile_arrays(void **state)
{
    (void)state;
    struct buffer file = file_with_key("a", SALVO_ARRAY);
    put_array(&file, SALVO_U64, (UINT64_MAX / 8) + 2); /* times 8 wraps to a small number */
    put_data(&file, 1, 16);
    ASSERT_REFUSED(&file, "key 'a'", "2305843009213693953 items of 8 bytes", "ends after 16");

    file = file_with_key("a", SALVO_ARRAY);
    put_array(&file, SALVO_ARRAY, 3);
    put_data(&file, 1, 35);
    ASSERT_REFUSED(&file, "key 'a'", "3 items of at least 12 bytes", "ends after 35");

    file = file_with_key("a", SALVO_ARRAY);
    put_array(&file, 13, 0);
    ASSERT_REFUSED(&file, "key 'a'", "type 13", "12");

    file = file_with_key("a", 13);
    put_number(&file, 0, 1);
    ASSERT_REFUSED(&file, "key 'a'", "type 13", "12");

    file = file_with_key("a", SALVO_ARRAY);
    put_array(&file, SALVO_BOOL, 3);
    put_number(&file, 0x020100, 3);
    ASSERT_REFUSED(&file, "key 'a'", "item 2 of 3", "a BOOL is 2");
}

static void arrays_nest_so_deep_and_no_deeper(void **state)
{
    (void)state;
    for (int depth = 8; depth < 5000; depth = depth * 8 + 1) {
        struct buffer file = file_with_key("deep", SALVO_ARRAY);
        for (int i = 1; i < depth; i++)
            put_array(&file, SALVO_ARRAY, 1);
        put_array(&file, SALVO_U8, 0);
        if (depth == 8)
            assert_string_equal(complaint(&file), "");
        else
            ASSERT_REFUSED(&file, "key 'deep'", "nested 9 deep", "at most 8");
    }
}

static void bad_texts(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *word;
    } cases[] = {
        {"ab\0c", "NUL at byte 2 of 4"}, {"ab\xffz", "byte 2 of 4 is 0xff"},
        {"\xc0\x80zz", "byte 0 of 4 is 0xc0"},    /* overlong NUL */
        {"z\xed\xa0\x80", "byte 1 of 4 is 0xed"}, /* surrogate */
        {"\xf4\x90\x80\x80", "byte 0 of 4"},      /* beyond U+10FFFF */
        {"abc\xe2", "byte 3 of 4 is 0xe2"},       /* cut */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buffer key = {0}, name = {0}, text = file_with_key("k", SALVO_STRING);
        put_header(&key, 3, 0, 1);
        put_header(&name, 3, 1, 0);
        put_number(&key, 4, 8);
        put_number(&name, 4, 8);
        put_number(&text, 4, 8);
        for (int j = 0; j < 4; j++) {
            put_number(&key, (uint8_t)cases[i].bytes[j], 1);
            put_number(&name, (uint8_t)cases[i].bytes[j], 1);
            put_number(&text, (uint8_t)cases[i].bytes[j], 1);
        }
        put_data(&key, 1, 40);
        put_data(&name, 1, 40);
        ASSERT_REFUSED(&key, "metadata entry 0 of 1", "the key", cases[i].word);
        ASSERT_REFUSED(&name, "tensor 0 of 1", "the name", cases[i].word);
        ASSERT_REFUSED(&text, "key 'k'", "the text", cases[i].word);
    }
}

static void a_bool_is_0_or_1(void **state)
{
    (void)state;
    struct buffer file = file_with_key("flag", SALVO_BOOL);
    put_number(&file, 2, 1);
    ASSERT_REFUSED(&file, "key 'flag'", "a BOOL is 2");
}

static void duplicate_keys(void **state)
{
    (void)state;
    struct buffer file = {0};
    put_header(&file, 3, 0, 3);
    for (int i = 0; i < 3; i++) {
        put_key(&file, i == 1 ? "other" : "twice", SALVO_U8);
        put_number(&file, 1, 1);
    }
    ASSERT_REFUSED(&file, "key 'twice'", "entries 0 and 2");
}

static void bad_alignments(void **state)
{
    (void)state;
    static const uint64_t alignments[] = {0, 1, 4, 33, 48, (uint64_t)1 << 22, (uint64_t)1 << 31, UINT32_MAX};
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++) {
        struct buffer file = file_with_key("general.alignment", SALVO_U32);
        put_number(&file, alignments[i], 4);
        ASSERT_REFUSED(&file, "key 'general.alignment'", "power of two");
    }
    struct buffer file = file_with_key("general.alignment", SALVO_U64);
    put_number(&file, 32, 8);
    ASSERT_REFUSED(&file, "key 'general.alignment'", "U64", "U32");
}

static void dimensions_that_overflow(void **state)
{
    (void)state;
    struct buffer file = file_with_tensor(5, (uint64_t[]){1, 1, 1, 1, 1}, TYPE_F32, 0, 64);
    ASSERT_REFUSED(&file, "tensor 't'", "5 dimensions", "at most 4");
    file = file_with_tensor(2, (uint64_t[]){4, 0}, TYPE_F32, 0, 64);
    ASSERT_REFUSED(&file, "tensor 't'", "dimension 1 of 2 is 0");
    /* The product wraps to 0, to 1 and to something small. */
    file = file_with_tensor(2, (uint64_t[]){(uint64_t)1 << 32, (uint64_t)1 << 32}, TYPE_F32, 0, 64);
    ASSERT_REFUSED(&file, "tensor 't'", "4294967296 elements times dimension 1, 4294967296", "63 bits");
    file = file_with_tensor(2, (uint64_t[]){UINT64_MAX, UINT64_MAX}, TYPE_I8, 0, 64);
    ASSERT_REFUSED(&file, "tensor 't'", "63 bits");
    file = file_with_tensor(4, (uint64_t[]){1 << 16, 1 << 16, 1 << 16, (1 << 16) + 1}, 77, 0, 64);
    ASSERT_REFUSED(&file, "tensor 't'", "281474976710656 elements times dimension 3, 65537", "63 bits");
    /* The elements fit, their bytes wrap. */
    file = file_with_tensor(1, (uint64_t[]){((uint64_t)1 << 62) + 1}, TYPE_F32, 0, 64);
    ASSERT_REFUSED(&file, "tensor 't'", "4611686018427387905", "64 bits");
    file = file_with_tensor(1, (uint64_t[]){33}, TYPE_Q4_0, 0, 64);
    ASSERT_REFUSED(&file, "tensor 't'", "33", "block of 32");
}

static void offsets_out_of_place(void **state)
{
    (void)state;
    struct buffer file = file_with_tensor(1, (uint64_t[]){16}, TYPE_F32, 8, 100);
    ASSERT_REFUSED(&file, "tensor 't'", "offset 8", "32");
    file = file_with_tensor(1, (uint64_t[]){16}, TYPE_F32, 64, 127);
    ASSERT_REFUSED(&file, "tensor 't'", "64 bytes at offset 64", "127");
    file = file_with_tensor(1, (uint64_t[]){16}, TYPE_F32, UINT64_MAX - 31, 128);
    ASSERT_REFUSED(&file, "tensor 't'", "offset 18446744073709551584", "128");
    file =
        file_with_tensor(1, (uint64_t[]){16}, 77, 128, 128); /* unknown size, but not even one byte is left */
    ASSERT_REFUSED(&file, "tensor 't'", "offset 128", "128");
    file = file_with_tensor(1, (uint64_t[]){16}, 77, 96, 128);
    assert_string_equal(complaint(&file), "");
    file = file_with_tensor(1, (uint64_t[]){16}, TYPE_F32, 64, 128);
    assert_string_equal(complaint(&file), "");
}

static void tensors_that_share_a_name_or_bytes(void **state)
{
    (void)state;
    struct buffer file = {0};
    put_header(&file, 3, 2, 0);
    put_tensor(&file, "twin", 1, (uint64_t[]){1}, TYPE_F32, 0);
    put_tensor(&file, "twin", 1, (uint64_t[]){1}, TYPE_F32, 32);
    put_data(&file, 32, 64);
    ASSERT_REFUSED(&file, "tensor 'twin'", "tensors 0 and 1");

    static const uint32_t types[] = {TYPE_F32, 77};
    for (int i = 0; i < 2; i++) {
        put_header(&file, 3, 3, 0);
        put_tensor(&file, "last", 1, (uint64_t[]){1}, TYPE_F32, 64);
        put_tensor(&file, "first", 1, (uint64_t[]){9}, types[i], 0); /* 36 bytes as F32 */
        put_tensor(&file, "second", 1, (uint64_t[]){1}, TYPE_F32, i == 0 ? 32 : 0);
        put_data(&file, 32, 96);
        ASSERT_REFUSED(
            &file, "tensor 'first'", "tensor 'second'", "begins before", i == 0 ? "36 bytes" : "byte");
    }
}

static void long_names_leave_room_for_the_numbers(void **state)
{
    (void)state;
    char key[3001];
    memset(key, 'k', sizeof key - 1);
    key[sizeof key - 1] = 0;
    memcpy(key + 127, "\xc3\xbc", 2); /* a character where the name is cut */
    struct buffer file = file_with_key(key, SALVO_BOOL);
    put_number(&file, 9, 1);
    ASSERT_REFUSED(&file, "key 'kkk", "kkk': a BOOL is 9");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_gguf),
        cmocka_unit_test(other_versions_and_byte_orders_are_not_supported),
        cmocka_unit_test(huge_counts),
        cmocka_unit_test(huge_text_lengths),
        cmocka_unit_test(hostile_arrays),
        cmocka_unit_test(arrays_nest_so_deep_and_no_deeper),
        cmocka_unit_test(bad_texts),
        cmocka_unit_test(a_bool_is_0_or_1),
        cmocka_unit_test(duplicate_keys),
        cmocka_unit_test(bad_alignments),
        cmocka_unit_test(dimensions_that_overflow),
        cmocka_unit_test(offsets_out_of_place),
        cmocka_unit_test(tensors_that_share_a_name_or_bytes),
        cmocka_unit_test(long_names_leave_room_for_the_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
