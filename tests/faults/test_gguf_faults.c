/* Each allocation of the GGUF reader and writer fails once: a clean error every time, and no leak under a
 * sanitizer. */
#include "cmocka_test.h"

#include "unit/gguf_sample.h"

#include "base/memory.h"
#include "gguf/gguf_writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/salvo-faults-XXXXXX";

static void path_in_folder(char path[static 128], const char *name)
{
    snprintf(path, 128, "%s/%s", folder, name);
}

/* Runs `job` with its 1st, 2nd, ... allocation failing until it gets through; it must fail for want of memory
 * before. */
static void fail_each_allocation(enum salvo_status (*job)(void))
{
    uint64_t nth = 0;
    enum salvo_status status;
    do {
        memory_fail_at(++nth);
        status = job();
        memory_fail_at(0);
        assert_true(status == SALVO_OK || status == SALVO_ERROR_MEMORY);
        if (status != SALVO_OK)
            assert_non_null(strstr(salvo_error(), "out of memory"));
        assert_true(nth < 1000);
    } while (status != SALVO_OK);
    assert_true(nth > 3);
}

static enum salvo_status write_model(void)
{
    static const uint8_t data[36];
    enum salvo_status status = SALVO_OK;
    struct gguf_writer *writer = NULL;
    struct gguf_array texts = {.type = SALVO_STRING};
    char path[128], key[16];
    path_in_folder(path, "written.gguf");
    for (int i = 0; i < 10; i++)
        TRY(gguf_array_add(&texts, &(struct salvo_value){.type = SALVO_STRING, .text = {"some text", 9}}));
    struct salvo_value value = gguf_array_value(&texts);
    TRY(gguf_writer_open(path, &writer));
    TRY(gguf_writer_set(writer, "texts", &value));
    for (unsigned i = 0; i < 5; i++) {
        snprintf(key, sizeof key, "key.%u", i);
        TRY(gguf_writer_set_u32(writer, key, i));
    }
    TRY(gguf_writer_add_tensor(writer, (struct salvo_text){"a", 1}, TYPE_Q4_0, 2, (uint64_t[]){32, 2}));
    TRY(gguf_writer_add_tensor(writer, (struct salvo_text){"b", 1}, TYPE_I8, 1, (uint64_t[]){36}));
    TRY(gguf_writer_write(writer, data, sizeof data));
    TRY(gguf_writer_write(writer, data, sizeof data));
    TRY(gguf_writer_commit(writer));

cleanup:
    gguf_writer_close(writer);
    gguf_array_free(&texts);
    return status;
}

static void writing(void **state)
{
    (void)state;
    char path[128];
    path_in_folder(path, "written.gguf");
    fail_each_allocation(write_model);
    assert_int_equal(access(path, R_OK), 0);
    assert_int_equal(unlink(path), 0); /* the folder is removed at the end: nothing else may be in it */
}

static char opened_path[128];

static enum salvo_status read_model(void)
{
    struct gguf *gguf;
    enum salvo_status status = gguf_open(opened_path, &gguf);
    assert_int_equal(gguf == NULL, status != SALVO_OK);
    gguf_close(gguf);
    return status;
}

static void reading(void **state)
{
    (void)state;
    path_in_folder(opened_path, "written.gguf");
    assert_int_equal(write_model(), SALVO_OK);
    fail_each_allocation(read_model);
    unlink(opened_path);
}

static void reading_a_split_model(void **state)
{
    (void)state;
    char name[64], path[128];
    for (unsigned i = 0; i < 3; i++) {
        struct buffer file = {0};
        put_header(&file, 3, 1, 2);
        put_key(&file, "split.no", SALVO_U16);
        put_number(&file, i, 2);
        put_key(&file, "split.count", SALVO_U16);
        put_number(&file, 3, 2);
        snprintf(name, sizeof name, "t%u", i);
        put_tensor(&file, name, 1, (uint64_t[]){1}, TYPE_I8, 0);
        put_data(&file, 32, 1);
        snprintf(name, sizeof name, "m-%05u-of-00003.gguf", i + 1);
        path_in_folder(path, name);
        FILE *stream = fopen(path, "wb");
        assert_non_null(stream);
        assert_int_equal(fwrite(file.data, 1, file.size, stream), file.size);
        fclose(stream);
        buffer_free(&file);
    }
    path_in_folder(opened_path, "m-00001-of-00003.gguf");
    fail_each_allocation(read_model);
    for (unsigned i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "m-%05u-of-00003.gguf", i + 1);
        path_in_folder(path, name);
        unlink(path);
    }
}

static int make_folder(void **state)
{
    (void)state;
    return !mkdtemp(folder);
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writing),
        cmocka_unit_test(reading),
        cmocka_unit_test(reading_a_split_model),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
