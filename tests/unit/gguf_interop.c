/*
 * The C side of test_gguf_interop.py.
 *     gguf_interop copy IN OUT    reads a model and writes it again, arrays item by item
 *     gguf_interop sample OUT     writes values that the script knows
 */
#include "gguf/gguf_writer.h"

#include <stdio.h>
#include <string.h>

/* Through salvo_array_next and gguf_array_add, so that both are tried. */
static enum salvo_status rebuild_array(struct salvo_value from, struct gguf_array *to)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_value item;
    struct gguf_array inner = {0};
    to->type = from.array.type;
    while (salvo_array_next(&from, &item)) {
        if (item.type == SALVO_ARRAY) {
            TRY(rebuild_array(item, &inner));
            item = gguf_array_value(&inner);
        }
        TRY(gguf_array_add(to, &item));
        gguf_array_free(&inner);
    }

cleanup:
    gguf_array_free(&inner);
    return status;
}

static enum salvo_status copy_entry(struct gguf_writer *writer, const struct gguf_entry *entry)
{
    enum salvo_status status = SALVO_OK;
    struct gguf_array array = {0};
    struct gguf_entry copy = *entry;
    /* All parts of a split model become one file. */
    if (entry->key.size > 6 && memcmp(entry->key.data, "split.", 6) == 0)
        goto cleanup;
    if (entry->value.type == SALVO_ARRAY) {
        TRY(rebuild_array(entry->value, &array));
        copy.value = gguf_array_value(&array);
    }
    TRY(gguf_writer_copy(writer, &copy));

cleanup:
    gguf_array_free(&array);
    return status;
}

static enum salvo_status copy_model(const char *from, const char *to)
{
    enum salvo_status status = SALVO_OK;
    struct gguf *gguf = NULL;
    struct gguf_writer *writer = NULL;
    TRY(gguf_open(from, &gguf));
    TRY(gguf_writer_open(to, &writer));
    for (size_t i = 0; i < gguf_entry_count(gguf); i++)
        TRY(copy_entry(writer, gguf_entry_at(gguf, i)));
    for (size_t i = 0; i < gguf_tensor_count(gguf); i++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(gguf, i);
        TRY(gguf_writer_add_tensor(writer, tensor->name, tensor->type, tensor->dimensions, tensor->shape));
    }
    for (size_t i = 0; i < gguf_tensor_count(gguf); i++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(gguf, i);
        TRY(gguf_writer_write(writer, tensor->data, (size_t)tensor->size));
    }
    TRY(gguf_check(gguf));
    TRY(gguf_writer_commit(writer));

cleanup:
    gguf_writer_close(writer);
    gguf_close(gguf);
    return status;
}

static enum salvo_status write_sample(const char *path)
{
    static const struct {
        const char *key;
        struct salvo_value value;
    } entries[] = {
        {"general.architecture", {.type = SALVO_STRING, .text = {"sample", 6}}},
        {"general.alignment", {.type = SALVO_U32, .u = 64}},
        {"s.u8", {.type = SALVO_U8, .u = 200}},
        {"s.i8", {.type = SALVO_I8, .i = -5}},
        {"s.u16", {.type = SALVO_U16, .u = 60000}},
        {"s.i16", {.type = SALVO_I16, .i = -30000}},
        {"s.u32", {.type = SALVO_U32, .u = 4000000000}},
        {"s.i32", {.type = SALVO_I32, .i = -2000000000}},
        {"s.f32", {.type = SALVO_F32, .f = 1.5}},
        {"s.bool", {.type = SALVO_BOOL, .b = true}},
        {"s.u64", {.type = SALVO_U64, .u = UINT64_MAX}},
        {"s.i64", {.type = SALVO_I64, .i = INT64_MIN}},
        {"s.f64", {.type = SALVO_F64, .f = 0.1}},
    };
    enum salvo_status status = SALVO_OK;
    struct gguf_writer *writer = NULL;
    struct gguf_array texts = {.type = SALVO_STRING};
    float matrix[2][3];
    TRY(gguf_writer_open(path, &writer));
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
        TRY(gguf_writer_set(writer, entries[i].key, &entries[i].value));
    static const char *const words[] = {"one", "", "gr\xc3\xbc\xc3\x9f"};
    for (size_t i = 0; i < 3; i++)
        TRY(gguf_array_add(
            &texts, &(struct salvo_value){.type = SALVO_STRING, .text = {words[i], strlen(words[i])}}));
    struct salvo_value value = gguf_array_value(&texts);
    TRY(gguf_writer_set(writer, "s.texts", &value));

    TRY(gguf_writer_add_tensor(writer, (struct salvo_text){"matrix", 6}, TYPE_F32, 2, (uint64_t[]){3, 2}));
    TRY(gguf_writer_add_tensor(writer, (struct salvo_text){"bytes", 5}, TYPE_I8, 1, (uint64_t[]){5}));
    for (int row = 0; row < 2; row++) {
        for (int column = 0; column < 3; column++)
            matrix[row][column] = (float)(10 * row + column);
    }
    TRY(gguf_writer_write(writer, matrix, sizeof matrix));
    TRY(gguf_writer_write(writer, "\x01\x02\x03\x04\xff", 5));
    TRY(gguf_writer_commit(writer));

cleanup:
    gguf_array_free(&texts);
    gguf_writer_close(writer);
    return status;
}

int main(int argc, char **argv)
{
    enum salvo_status status = SALVO_ERROR_ARGUMENT;
    if (argc == 4 && strcmp(argv[1], "copy") == 0)
        status = copy_model(argv[2], argv[3]);
    else if (argc == 3 && strcmp(argv[1], "sample") == 0)
        status = write_sample(argv[2]);
    else
        fprintf(stderr, "usage: %s copy IN OUT | sample OUT\n", argv[0]);
    if (status != SALVO_OK)
        fprintf(stderr, "%s\n", salvo_error());
    return status != SALVO_OK;
}
