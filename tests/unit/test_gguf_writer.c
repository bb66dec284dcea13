/* The reader reads the files of the writer; invalid arguments are refused. */
#include "cmocka_test.h"

#include "gguf_sample.h"

#include "gguf/gguf_writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/salvo-writer-XXXXXX", path[64];

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return 1;
    snprintf(path, sizeof path, "%s/out.gguf", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder); /* fails when a test left something behind */
}

static struct salvo_text text(const char *string)
{
    return (struct salvo_text){string, strlen(string)};
}

static void a_copy_of_every_entry_and_tensor_is_the_same(void **state)
{
    (void)state;
    struct buffer sample = {0};
    struct gguf *from, *to;
    struct gguf_writer *writer;
    put_sample(&sample, 3);
    assert_int_equal(gguf_open_memory(sample.data, sample.size, "sample", &from), SALVO_OK);
    assert_int_equal(gguf_writer_open(path, &writer), SALVO_OK);
    for (size_t i = 0; i < gguf_entry_count(from); i++)
        assert_int_equal(gguf_writer_copy(writer, gguf_entry_at(from, i)), SALVO_OK);
    for (size_t i = 0; i < 2; i++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(from, i);
        assert_int_equal(
            gguf_writer_add_tensor(writer, tensor->name, tensor->type, tensor->dimensions, tensor->shape),
            SALVO_OK);
    }
    for (size_t i = 0; i < 2; i++) { /* in two pieces */
        const struct gguf_tensor *tensor = gguf_tensor_at(from, i);
        assert_int_equal(gguf_writer_write(writer, tensor->data, 5), SALVO_OK);
        assert_int_equal(gguf_writer_write(writer, tensor->data + 5, (size_t)tensor->size - 5), SALVO_OK);
    }
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(gguf_writer_commit(writer), SALVO_OK);
    gguf_writer_close(writer);

    assert_int_equal(gguf_open(path, &to), SALVO_OK);
    assert_int_equal(gguf_version(to), 3);
    assert_int_equal(gguf_entry_count(to), gguf_entry_count(from));
    for (size_t i = 0; i < gguf_entry_count(from); i++) {
        const struct gguf_entry *a = gguf_entry_at(from, i), *b = gguf_entry_at(to, i);
        assert_int_equal(a->key.size, b->key.size);
        assert_memory_equal(a->key.data, b->key.data, a->key.size);
        assert_int_equal(a->value.type, b->value.type);
    }
    /* All bytes of the metadata, which comes first and has the same order. */
    struct gguf_tensor first = *gguf_tensor_at(from, 0);
    size_t metadata = (size_t)(first.name.data - 8 - sample.data) - 24;
    assert_memory_equal(gguf_entry_at(to, 0)->key.data - 8, sample.data + 24, metadata);
    assert_int_equal(gguf_tensor_count(to), 2);
    for (size_t i = 0; i < 2; i++) {
        const struct gguf_tensor *a = gguf_tensor_at(from, i), *b = gguf_tensor_at(to, i);
        assert_int_equal(a->type, b->type);
        assert_int_equal(a->size, b->size);
        assert_memory_equal(a->shape, b->shape, sizeof a->shape);
        assert_memory_equal(a->data, b->data, a->size);
        assert_int_equal(b->offset % 64, 0);
    }
    gguf_close(to);
    gguf_close(from);
    buffer_free(&sample);
}

static void values_can_be_set_and_replaced(void **state)
{
    (void)state;
    struct gguf_writer *writer;
    struct gguf *gguf;
    assert_int_equal(gguf_writer_open(path, &writer), SALVO_OK);
    assert_int_equal(gguf_writer_set_u32(writer, "n", 1), SALVO_OK);
    assert_int_equal(gguf_writer_set_f32(writer, "f", 0.1f), SALVO_OK);
    assert_int_equal(gguf_writer_set_bool(writer, "b", true), SALVO_OK);
    assert_int_equal(gguf_writer_set_text(writer, "t", "long text"), SALVO_OK);
    assert_int_equal(gguf_writer_set_text(writer, "n", "now a text"), SALVO_OK);
    assert_int_equal(gguf_writer_set_text(writer, "t", ""), SALVO_OK);
    assert_int_equal(gguf_writer_commit(writer), SALVO_OK);
    gguf_writer_close(writer);

    assert_int_equal(gguf_open(path, &gguf), SALVO_OK);
    assert_int_equal(gguf_entry_count(gguf), 4);
    assert_int_equal(gguf_find(gguf, "n")->text.size, 10);
    assert_int_equal(gguf_find(gguf, "t")->text.size, 0);
    assert_true(gguf_find(gguf, "f")->f == (double)0.1f);
    assert_true(gguf_find(gguf, "b")->b);
    gguf_close(gguf);
}

static void arrays_are_built_item_by_item(void **state)
{
    (void)state;
    struct gguf_writer *writer;
    struct gguf *gguf;
    struct gguf_array numbers = {.type = SALVO_I32}, outer = {.type = SALVO_ARRAY},
                      empty = {.type = SALVO_STRING};
    for (int i = 0; i < 3; i++)
        assert_int_equal(
            gguf_array_add(&numbers, &(struct salvo_value){.type = SALVO_I32, .i = -i}), SALVO_OK);
    assert_int_equal(
        gguf_array_add(&numbers, &(struct salvo_value){.type = SALVO_U32}), SALVO_ERROR_ARGUMENT);
    struct salvo_value inner = gguf_array_value(&numbers), none = gguf_array_value(&empty);
    assert_int_equal(gguf_array_add(&outer, &inner), SALVO_OK);
    assert_int_equal(gguf_array_add(&outer, &none), SALVO_OK);
    struct salvo_value value = gguf_array_value(&outer);

    assert_int_equal(gguf_writer_open(path, &writer), SALVO_OK);
    assert_int_equal(gguf_writer_set(writer, "outer", &value), SALVO_OK);
    assert_int_equal(gguf_writer_set(writer, "none", &none), SALVO_OK);
    assert_int_equal(gguf_writer_commit(writer), SALVO_OK);
    gguf_writer_close(writer);
    gguf_array_free(&numbers);
    gguf_array_free(&outer);
    gguf_array_free(&empty);

    assert_int_equal(gguf_open(path, &gguf), SALVO_OK);
    struct salvo_value rest = *gguf_find(gguf, "outer"), list, item;
    assert_true(salvo_array_next(&rest, &list));
    for (int i = 0; i < 3; i++) {
        assert_true(salvo_array_next(&list, &item));
        assert_int_equal(item.i, -i);
    }
    assert_true(salvo_array_next(&rest, &list));
    assert_int_equal(list.array.count, 0);
    assert_int_equal(list.array.type, SALVO_STRING);
    assert_int_equal(gguf_find(gguf, "none")->array.count, 0);
    gguf_close(gguf);
}

static void what_cannot_be_read_is_not_written(void **state)
{
    (void)state;
    struct gguf_writer *writer;
    const uint64_t shape[] = {32, 1, 1, 1, 1}, odd[] = {33}, zero[] = {0};
    static const float data[64];
    assert_int_equal(gguf_writer_open(path, &writer), SALVO_OK);
    assert_int_equal(gguf_writer_set_u32(writer, "", 1), SALVO_ERROR_ARGUMENT);
    assert_int_equal(gguf_writer_set_u32(writer, "\xff", 1), SALVO_ERROR_FORMAT);
    assert_int_equal(gguf_writer_set_text(writer, "k", "\xff"), SALVO_ERROR_FORMAT);
    assert_int_equal(gguf_writer_set_u32(writer, "general.alignment", 24), SALVO_ERROR_FORMAT);
    assert_int_equal(gguf_writer_set_text(writer, "general.alignment", "32"), SALVO_ERROR_FORMAT);
    assert_int_equal(gguf_writer_add_tensor(writer, text(""), TYPE_F32, 1, shape), SALVO_ERROR_ARGUMENT);
    assert_int_equal(gguf_writer_add_tensor(writer, text("t"), 77, 1, shape), SALVO_ERROR_ARGUMENT);
    assert_int_equal(gguf_writer_add_tensor(writer, text("t"), TYPE_F32, 5, shape), SALVO_ERROR_FORMAT);
    assert_int_equal(gguf_writer_add_tensor(writer, text("t"), TYPE_Q4_0, 1, odd), SALVO_ERROR_FORMAT);
    assert_int_equal(gguf_writer_add_tensor(writer, text("t"), TYPE_F32, 1, zero), SALVO_ERROR_FORMAT);
    assert_int_equal(gguf_writer_add_tensor(writer, text("t"), TYPE_F32, 1, shape), SALVO_OK);
    assert_int_equal(gguf_writer_add_tensor(writer, text("t"), TYPE_F32, 1, shape), SALVO_ERROR_ARGUMENT);
    assert_non_null(strstr(salvo_error(), "tensor 't'"));

    assert_int_equal(gguf_writer_write(writer, data, 200), SALVO_ERROR_ARGUMENT);
    assert_non_null(strstr(salvo_error(), "200 bytes, but only 128"));
    assert_int_equal(gguf_writer_set_u32(writer, "late", 1), SALVO_ERROR_ARGUMENT);
    assert_int_equal(gguf_writer_add_tensor(writer, text("late"), TYPE_F32, 1, shape), SALVO_ERROR_ARGUMENT);
    assert_int_equal(gguf_writer_write(writer, data, 127), SALVO_OK);
    assert_int_equal(gguf_writer_commit(writer), SALVO_ERROR_ARGUMENT);
    assert_non_null(strstr(salvo_error(), "tensor 't': 127 of its 128"));
    assert_int_equal(gguf_writer_write(writer, data, 2), SALVO_ERROR_ARGUMENT);
    assert_non_null(strstr(salvo_error(), "2 bytes, but only 1 more"));
    assert_int_equal(gguf_writer_write(writer, data, 1), SALVO_OK);
    assert_int_equal(gguf_writer_write(writer, data, 1), SALVO_ERROR_ARGUMENT);
    unlink(path);
    gguf_writer_close(writer); /* not committed */
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(gguf_writer_open("/nonexistent/out.gguf", &writer), SALVO_ERROR_IO);
    assert_null(writer);
}

/* The data of each tensor begins at a multiple of the alignment, and zeros fill the gaps, also such as are
 * longer than any piece that is written at once. */
static void tensors_are_aligned(void **state)
{
    (void)state;
    static const uint32_t alignments[] = {8, 32, 256, 1024, 4096, 1 << 21};
    static const uint64_t small[] = {3}, deep[] = {5, 2, 3, 7};
    float values[210];
    for (int i = 0; i < 210; i++)
        values[i] = (float)(i + 1);
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++) {
        struct gguf_writer *writer;
        struct gguf *gguf;
        assert_int_equal(gguf_writer_open(path, &writer), SALVO_OK);
        assert_int_equal(gguf_writer_add_tensor(writer, text("small"), TYPE_F32, 1, small), SALVO_OK);
        assert_int_equal(gguf_writer_set_u32(writer, "general.alignment", alignments[i]), SALVO_OK);
        assert_int_equal(gguf_writer_add_tensor(writer, text("deep"), TYPE_F32, 4, deep), SALVO_OK);
        assert_int_equal(gguf_writer_write(writer, values, 12), SALVO_OK);
        assert_int_equal(gguf_writer_write(writer, values, sizeof values), SALVO_OK);
        assert_int_equal(gguf_writer_commit(writer), SALVO_OK);
        gguf_writer_close(writer);

        assert_int_equal(gguf_open(path, &gguf), SALVO_OK);
        const struct gguf_tensor *first = gguf_tensor_at(gguf, 0), *second = gguf_tensor_at(gguf, 1);
        assert_int_equal(first->offset % alignments[i], 0);
        assert_int_equal(
            second->offset, first->offset + (12 + alignments[i] - 1) / alignments[i] * alignments[i]);
        assert_int_equal(second->size, sizeof values);
        assert_int_equal(second->elements, 210);
        assert_int_equal(second->dimensions, 4);
        assert_memory_equal(second->shape, deep, sizeof deep);
        assert_memory_equal(first->data, values, 12);
        assert_memory_equal(second->data, values, sizeof values);
        for (const uint8_t *byte = first->data + 12; byte < second->data; byte++)
            assert_int_equal(*byte, 0);
        gguf_close(gguf);
    }
    struct gguf_writer *writer;
    assert_int_equal(gguf_writer_open(path, &writer), SALVO_OK);
    assert_int_equal(gguf_writer_set_u32(writer, "general.alignment", 4), SALVO_ERROR_FORMAT);
    assert_int_equal(gguf_writer_set_u32(writer, "general.alignment", 1 << 22), SALVO_ERROR_FORMAT);
    assert_int_equal(gguf_writer_set_u32(writer, "general.alignment", 1000), SALVO_ERROR_FORMAT);
    gguf_writer_close(writer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_of_every_entry_and_tensor_is_the_same),
        cmocka_unit_test(values_can_be_set_and_replaced),
        cmocka_unit_test(arrays_are_built_item_by_item),
        cmocka_unit_test(what_cannot_be_read_is_not_written),
        cmocka_unit_test(tensors_are_aligned),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
