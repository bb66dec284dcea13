#include "gguf_sample.h"

#include "gguf/gguf_value.h"

#include <stdlib.h>
#include <string.h>

static void must(enum salvo_status status)
{
    if (status != SALVO_OK)
        abort();
}

void put_number(struct buffer *file, uint64_t value, size_t width)
{
    must(gguf_append_unsigned(file, value, width));
}

void put_text(struct buffer *file, const char *text)
{
    must(gguf_append_text(file, (struct salvo_text){text, strlen(text)}));
}

void put_header(struct buffer *file, uint32_t version, uint64_t tensors, uint64_t entries)
{
    must(buffer_append(file, "GGUF", 4));
    put_number(file, version, 4);
    put_number(file, tensors, 8);
    put_number(file, entries, 8);
}

void put_key(struct buffer *file, const char *key, uint32_t type)
{
    put_text(file, key);
    put_number(file, type, 4);
}

void put_array(struct buffer *file, uint32_t item_type, uint64_t count)
{
    put_number(file, item_type, 4);
    put_number(file, count, 8);
}

void put_tensor(struct buffer *file, const char *name, uint32_t dimensions, const uint64_t *shape,
    uint32_t type, uint64_t offset)
{
    put_text(file, name);
    put_number(file, dimensions, 4);
    for (uint32_t i = 0; i < dimensions; i++)
        put_number(file, shape[i], 8);
    put_number(file, type, 4);
    put_number(file, offset, 8);
}

void put_data(struct buffer *file, size_t alignment, size_t size)
{
    while (file->size % alignment)
        put_number(file, 0, 1);
    for (size_t i = 0; i < size; i++)
        put_number(file, i, 1);
}

void put_sample(struct buffer *file, uint32_t version)
{
    put_header(file, version, SAMPLE_TENSORS, SAMPLE_ENTRIES);
    put_key(file, "general.architecture", SALVO_STRING);
    put_text(file, "sample");
    put_key(file, "general.alignment", SALVO_U32);
    put_number(file, 64, 4);
    put_key(file, "u8", SALVO_U8);
    put_number(file, 200, 1);
    put_key(file, "i8", SALVO_I8);
    put_number(file, (uint64_t)-5, 1);
    put_key(file, "u16", SALVO_U16);
    put_number(file, 60000, 2);
    put_key(file, "i16", SALVO_I16);
    put_number(file, (uint64_t)-30000, 2);
    put_key(file, "u32", SALVO_U32);
    put_number(file, 4000000000u, 4);
    put_key(file, "i32", SALVO_I32);
    put_number(file, (uint64_t)-2000000000, 4);
    put_key(file, "f32", SALVO_F32);
    put_number(file, 0x3fc00000, 4); /* 1.5 */
    put_key(file, "bool", SALVO_BOOL);
    put_number(file, 1, 1);
    put_key(file, "u64", SALVO_U64);
    put_number(file, UINT64_MAX, 8);
    put_key(file, "i64", SALVO_I64);
    put_number(file, (uint64_t)INT64_MIN, 8);
    put_key(file, "f64", SALVO_F64);
    put_number(file, 0x7fe0000000000000, 8); /* 2^1023 */
    put_key(file, "numbers", SALVO_ARRAY);
    put_array(file, SALVO_I16, 3);
    for (int i = -1; i < 2; i++)
        put_number(file, (uint64_t)i, 2);
    put_key(file, "texts", SALVO_ARRAY);
    put_array(file, SALVO_STRING, 3);
    put_text(file, "one");
    put_text(file, "");
    put_text(file, "gr\xc3\xbc\xc3\x9f");
    put_key(file, "nested", SALVO_ARRAY);
    put_array(file, SALVO_ARRAY, 2);
    put_array(file, SALVO_BOOL, 2);
    put_number(file, 0x0001, 2);
    put_array(file, SALVO_STRING, 1);
    put_text(file, "deep");
    put_key(file, "empty", SALVO_ARRAY);
    put_array(file, SALVO_F64, 0);

    put_tensor(file, "matrix", 2, (uint64_t[]){32, 2}, TYPE_Q4_0, 0); /* 36 bytes */
    put_tensor(file, "vector", 1, (uint64_t[]){3}, TYPE_F32, 128);    /* 12 bytes */
    put_tensor(file, "mystery", 1, (uint64_t[]){5}, 77, 64);
    put_data(file, 64, 140);
}

/* Reads every element of an array, and of arrays in it; the sum keeps the compiler from removing the reads.
 */
static unsigned touch_value(struct salvo_value value)
{
    unsigned sum = 0;
    struct salvo_value item;
    if (value.type == SALVO_STRING) {
        for (size_t i = 0; i < value.text.size; i++)
            sum += (uint8_t)value.text.data[i];
    }
    if (value.type == SALVO_ARRAY) {
        while (salvo_array_next(&value, &item))
            sum += touch_value(item);
    }
    return sum;
}

unsigned touch_all(const struct gguf *gguf)
{
    unsigned sum = 0;
    for (size_t i = 0; i < gguf_entry_count(gguf); i++) {
        const struct gguf_entry *entry = gguf_entry_at(gguf, i);
        sum += touch_value(entry->value);
        char key[64];
        if (entry->key.size >= sizeof key)
            continue;
        memcpy(key, entry->key.data, entry->key.size);
        key[entry->key.size] = 0;
        uint32_t u32 = 0;
        float f32 = 0;
        bool flag = false, found;
        struct salvo_text text = {0};
        struct salvo_value array = {0};
        (void)gguf_get_u32(gguf, key, &u32, &found);
        (void)gguf_get_f32(gguf, key, &f32, NULL);
        (void)gguf_get_bool(gguf, key, &flag, &found);
        (void)gguf_get_text(gguf, key, &text, &found);
        (void)gguf_get_array(gguf, key, SALVO_STRING, &array, &found);
        if (gguf_find(gguf, key) != &entry->value || !found)
            abort();
        sum += u32 + flag + (unsigned)text.size + (unsigned)array.array.count;
    }
    for (size_t i = 0; i < gguf_tensor_count(gguf); i++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(gguf, i);
        if (tensor->data)
            sum += tensor->data[0] + tensor->data[tensor->size - 1];
        gguf_release(gguf, tensor);
    }
    return sum + (gguf_find_tensor(gguf, "matrix") != NULL);
}

enum salvo_status open_and_touch(const void *bytes, size_t size)
{
    struct gguf *gguf;
    enum salvo_status status = gguf_open_memory(bytes, size, "test.gguf", &gguf);
    if (status == SALVO_OK)
        (void)touch_all(gguf);
    else if (gguf || !salvo_error()[0])
        abort();
    gguf_close(gguf);
    return status;
}
