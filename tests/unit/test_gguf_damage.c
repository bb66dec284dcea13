/* A right file that was damaged: cut at any byte, changed in any byte, cut while in use. And what opening may
 * cost. */
#include "cmocka_test.h"

#include "gguf_sample.h"

#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A copy without a byte to spare, so that a sanitizer sees the first byte read beyond it. */
static enum salvo_status open_exactly(const struct buffer *file, size_t size)
{
    char *copy;
    assert_int_equal(NEW(&copy, size), SALVO_OK);
    if (size)
        memcpy(copy, file->data, size);
    enum salvo_status status = open_and_touch(copy, size);
    memory_free(copy);
    return status;
}

static void every_prefix_is_refused(void **state)
{
    (void)state;
    struct buffer file = {0};
    put_sample(&file, 3);
    for (size_t size = 0; size < file.size; size++)
        assert_int_equal(open_exactly(&file, size), SALVO_ERROR_FORMAT);
    assert_int_equal(open_exactly(&file, file.size), SALVO_OK);
    buffer_free(&file);
}

/* Through a file, which cannot be mapped if it is empty. */
static void an_empty_file_is_refused(void **state)
{
    (void)state;
    char path[] = "/tmp/salvo-empty-XXXXXX";
    struct gguf *gguf;
    assert_int_equal(close(mkstemp(path)), 0);
    assert_int_equal(gguf_open(path, &gguf), SALVO_ERROR_FORMAT);
    assert_null(gguf);
    unlink(path);
}

static void every_change_of_a_byte_loads_or_is_refused(void **state)
{
    (void)state;
    struct buffer file = {0};
    put_sample(&file, 3);
    size_t loaded = 0, refused = 0;
    for (size_t at = 0; at < file.size; at++) {
        for (int change = 1; change < 256; change += 256 / LONG_RUN(256)) {
            file.data[at] ^= (char)change;
            enum salvo_status status = open_and_touch(file.data, file.size);
            assert_true(status == SALVO_OK || status == SALVO_ERROR_FORMAT ||
                        status == SALVO_ERROR_UNSUPPORTED || status == SALVO_ERROR_ARGUMENT);
            *(status == SALVO_OK ? &loaded : &refused) += 1;
            file.data[at] ^= (char)change;
        }
    }
    print_message("%zu changes loaded, %zu were refused\n", loaded, refused);
    assert_true(loaded > 0 && refused > loaded);
    buffer_free(&file);
}

static void write_file(int descriptor, const struct buffer *file)
{
    assert_int_equal(write(descriptor, file->data, file->size), (ssize_t)file->size);
}

static void a_file_cut_while_in_use_is_reported(void **state)
{
    (void)state;
    char path[] = "/tmp/salvo-gguf-cut-XXXXXX";
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    struct buffer file = {0};
    put_header(&file, 3, 1, 1);
    put_key(&file, "texts", SALVO_ARRAY);
    put_array(&file, SALVO_STRING, 9000);
    for (int i = 0; i < 9000; i++)
        put_text(&file, "a text of some length");
    put_tensor(&file, "t", 1, (uint64_t[]){100000}, TYPE_I8, 0);
    put_data(&file, 32, 100000);
    write_file(descriptor, &file);

    struct gguf *gguf;
    assert_int_equal(gguf_open(path, &gguf), SALVO_OK);
    assert_int_equal(gguf_check(gguf), SALVO_OK);
    assert_int_equal(ftruncate(descriptor, 1000), 0);
    (void)touch_all(gguf);
    assert_int_equal(gguf_check(gguf), SALVO_ERROR_IO);
    assert_non_null(strstr(salvo_error(), path));
    assert_non_null(strstr(salvo_error(), "cut"));
    gguf_close(gguf);

    /* The same length again, but other bytes: lengths in it are wrong, reads stay inside. */
    assert_int_equal(lseek(descriptor, 0, SEEK_SET), 0);
    write_file(descriptor, &file);
    assert_int_equal(gguf_open(path, &gguf), SALVO_OK);
    memset(file.data, 0xff, file.size);
    assert_int_equal(lseek(descriptor, 0, SEEK_SET), 0);
    write_file(descriptor, &file);
    struct salvo_value rest = gguf_entry_at(gguf, 0)->value, item;
    assert_false(salvo_array_next(&rest, &item));
    gguf_close(gguf);

    close(descriptor);
    unlink(path);
    buffer_free(&file);
}

/* ---- What opening may cost ---- */

static size_t most_bytes_allocated; /* in one piece */

/* The linker sends every call of calloc here. */
void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size)
{
    if (count * size > most_bytes_allocated)
        most_bytes_allocated = count * size;
    return __real_calloc(count, size);
}

static void hostile_counts_cost_no_memory(void **state)
{
    (void)state;
    /* Counts as large as the file's size lets pass, in a file that does not hold that many. */
    enum { SIZE = 10 << 20 };
    for (int part = 0; part < 2; part++) {
        struct buffer file = {0};
        put_header(&file, 3, part ? SIZE / 25 : 0, part ? 0 : SIZE / 14);
        assert_int_equal(buffer_reserve(&file, SIZE), SALVO_OK);
        memset(file.data + file.size, 0, SIZE);
        file.size += SIZE;
        most_bytes_allocated = 0;
        assert_int_equal(open_and_touch(file.data, file.size), SALVO_ERROR_FORMAT);
        assert_true(most_bytes_allocated < 4096);
        buffer_free(&file);
    }
}

static void memory_is_a_small_multiple_of_the_file(void **state)
{
    (void)state;
    enum { COUNT = 20000 };
    struct buffer file = {0};
    char key[16];
    put_header(&file, 3, COUNT, COUNT);
    for (int i = 0; i < COUNT; i++) {
        snprintf(key, sizeof key, "%x", i);
        put_key(&file, key, SALVO_U8);
        put_number(&file, 1, 1);
    }
    for (uint64_t i = 0; i < COUNT; i++) {
        snprintf(key, sizeof key, "%x", (unsigned)i);
        put_tensor(&file, key, 0, NULL, TYPE_I8, 32 * i);
    }
    put_data(&file, 32, 32 * COUNT);
    most_bytes_allocated = 0;
    assert_int_equal(open_and_touch(file.data, file.size), SALVO_OK);
    assert_true(most_bytes_allocated < 4 * file.size);
    buffer_free(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_prefix_is_refused),
        cmocka_unit_test(an_empty_file_is_refused),
        cmocka_unit_test(every_change_of_a_byte_loads_or_is_refused),
        cmocka_unit_test(a_file_cut_while_in_use_is_reported),
        cmocka_unit_test(hostile_counts_cost_no_memory),
        cmocka_unit_test(memory_is_a_small_multiple_of_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
