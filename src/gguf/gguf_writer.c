#include "gguf/gguf_writer.h"

#include "base/arena.h"
#include "base/atomic_file.h"
#include "base/checked.h"
#include "base/memory.h"
#include "gguf/gguf_tensors.h"
#include "gguf/gguf_value.h"

#include <string.h>

struct writer_entry {
    struct salvo_text key;
    enum salvo_type type;
    struct salvo_text bytes; /* of the value, encoded */
};

struct gguf_writer {
    struct atomic_file file;
    struct arena arena; /* keys, values and names */
    struct writer_entry *entries;
    size_t entry_count, entry_capacity;
    struct gguf_tensor *tensors; /* `offset` counts from the start of the data */
    size_t tensor_count, tensor_capacity;

    bool writing; /* the header has been written */
    uint64_t alignment;
    size_t current;    /* the tensor that is being written */
    uint64_t complete; /* bytes of it written so far */
};

static enum salvo_status open_writer(const char *path, bool is_new, struct gguf_writer **out)
{
    enum salvo_status status = SALVO_OK;
    struct gguf_writer *writer = NULL;
    *out = NULL;
    TRY(NEW(&writer, 1));
    TRY(is_new ? atomic_file_open_new(path, &writer->file) : atomic_file_open(path, &writer->file));
    writer->alignment = GGUF_DEFAULT_ALIGNMENT;
    *out = writer;
    writer = NULL;

cleanup:
    gguf_writer_close(writer);
    return status;
}

enum salvo_status gguf_writer_open(const char *path, struct gguf_writer **out)
{
    return open_writer(path, false, out);
}

enum salvo_status gguf_writer_open_new(const char *path, struct gguf_writer **out)
{
    return open_writer(path, true, out);
}

void gguf_writer_close(struct gguf_writer *writer)
{
    if (!writer)
        return;
    atomic_file_abandon(&writer->file);
    arena_free(&writer->arena);
    memory_free(writer->entries);
    memory_free(writer->tensors);
    memory_free(writer);
}

static enum salvo_status check_not_writing(const struct gguf_writer *writer)
{
    if (writer->writing)
        return fail(SALVO_ERROR_ARGUMENT, "cannot add to the header: tensor data has been written");
    return SALVO_OK;
}

static enum salvo_status keep_text(struct gguf_writer *writer, struct salvo_text text, struct salvo_text *out)
{
    char *copy;
    enum salvo_status status = arena_copy_bytes(&writer->arena, text.data, text.size, &copy);
    *out = (struct salvo_text){copy, copy ? text.size : 0};
    return status;
}

static bool same_text(struct salvo_text a, struct salvo_text b)
{
    return a.size == b.size && memcmp(a.data, b.data, a.size) == 0;
}

/* ---- Metadata ---- */

static enum salvo_status set_alignment(struct gguf_writer *writer, const struct salvo_value *value)
{
    enum salvo_status status = gguf_check_alignment(value);
    if (status == SALVO_OK)
        writer->alignment = value->u;
    return status;
}

static enum salvo_status find_or_add_entry(
    struct gguf_writer *writer, struct salvo_text key, struct writer_entry **out)
{
    enum salvo_status status = SALVO_OK;
    *out = NULL;
    for (size_t i = 0; i < writer->entry_count && !*out; i++) {
        if (same_text(writer->entries[i].key, key))
            *out = &writer->entries[i];
    }
    if (*out)
        goto cleanup;
    TRY(GROW(&writer->entries, writer->entry_count, &writer->entry_capacity));
    struct writer_entry entry = {{0}};
    TRY(keep_text(writer, key, &entry.key));
    *out = &writer->entries[writer->entry_count++];
    **out = entry;

cleanup:
    return status;
}

static enum salvo_status set_value(
    struct gguf_writer *writer, struct salvo_text key, const struct salvo_value *value)
{
    enum salvo_status status = SALVO_OK;
    struct buffer bytes = {0};
    struct writer_entry *entry;
    struct salvo_text kept;
    TRY(check_not_writing(writer));
    if (key.size == 0)
        TRY(fail(SALVO_ERROR_ARGUMENT, "the key is empty"));
    TRY(gguf_check_text(key, "the key"));
    if (value->type == SALVO_STRING)
        TRY(gguf_check_text(value->text, "the text"));
    TRY(gguf_append_value(&bytes, value));
    TRY(keep_text(writer, (struct salvo_text){bytes.data, bytes.size}, &kept));
    if (same_text(key, (struct salvo_text){GGUF_ALIGNMENT_KEY, sizeof GGUF_ALIGNMENT_KEY - 1}))
        TRY(set_alignment(writer, value));
    TRY(find_or_add_entry(writer, key, &entry));
    entry->type = value->type;
    entry->bytes = kept;

cleanup:
    buffer_free(&bytes);
    if (status != SALVO_OK)
        status = fail_within(status, "%s: key '%.*s': ", writer->file.path, SHOWN(key));
    return status;
}

enum salvo_status gguf_writer_set(
    struct gguf_writer *writer, const char *key, const struct salvo_value *value)
{
    return set_value(writer, (struct salvo_text){key, strlen(key)}, value);
}

enum salvo_status gguf_writer_copy(struct gguf_writer *writer, const struct gguf_entry *entry)
{
    return set_value(writer, entry->key, &entry->value);
}

enum salvo_status gguf_writer_set_u32(struct gguf_writer *writer, const char *key, uint32_t value)
{
    return gguf_writer_set(writer, key, &(struct salvo_value){.type = SALVO_U32, .u = value});
}

enum salvo_status gguf_writer_set_f32(struct gguf_writer *writer, const char *key, float value)
{
    return gguf_writer_set(writer, key, &(struct salvo_value){.type = SALVO_F32, .f = (double)value});
}

enum salvo_status gguf_writer_set_bool(struct gguf_writer *writer, const char *key, bool value)
{
    return gguf_writer_set(writer, key, &(struct salvo_value){.type = SALVO_BOOL, .b = value});
}

enum salvo_status gguf_writer_set_text(struct gguf_writer *writer, const char *key, const char *text)
{
    return gguf_writer_set(
        writer, key, &(struct salvo_value){.type = SALVO_STRING, .text = {text, strlen(text)}});
}

enum salvo_status gguf_array_add(struct gguf_array *array, const struct salvo_value *item)
{
    if (item->type != array->type)
        return fail(SALVO_ERROR_ARGUMENT, "cannot add an item of type %s to an array of %s",
            gguf_type_name(item->type), gguf_type_name(array->type));
    enum salvo_status status = gguf_append_value(&array->bytes, item);
    if (status == SALVO_OK)
        array->count++;
    return status;
}

struct salvo_value gguf_array_value(const struct gguf_array *array)
{
    struct salvo_value value = {.type = SALVO_ARRAY};
    value.array.type = array->type;
    value.array.count = array->count;
    if (array->count) {
        value.array.bytes = (struct salvo_text){array->bytes.data, array->bytes.size};
    }
    return value;
}

void gguf_array_free(struct gguf_array *array)
{
    buffer_free(&array->bytes);
    array->count = 0;
}

/* ---- Tensors ---- */

enum salvo_status gguf_writer_add_tensor(struct gguf_writer *writer, struct salvo_text name, uint32_t type,
    uint32_t dimensions, const uint64_t *shape)
{
    enum salvo_status status = SALVO_OK;
    struct gguf_tensor tensor = {{0}};
    TRY(check_not_writing(writer));
    if (name.size == 0)
        TRY(fail(SALVO_ERROR_ARGUMENT, "the name is empty"));
    TRY(gguf_check_text(name, "the name"));
    if (!tensor_type_info(type))
        TRY(fail(SALVO_ERROR_ARGUMENT, "type %u is unknown", type));
    TRY(gguf_shape_tensor(type, dimensions, shape, &tensor));
    for (size_t i = 0; i < writer->tensor_count; i++) {
        if (same_text(writer->tensors[i].name, name))
            TRY(fail(SALVO_ERROR_ARGUMENT, "the name is used already, by tensor %zu of %zu", i,
                writer->tensor_count));
    }
    TRY(GROW(&writer->tensors, writer->tensor_count, &writer->tensor_capacity));
    TRY(keep_text(writer, name, &tensor.name));
    writer->tensors[writer->tensor_count++] = tensor;

cleanup:
    if (status != SALVO_OK)
        status = fail_within(status, "%s: tensor '%.*s': ", writer->file.path, SHOWN(name));
    return status;
}

/* Offsets depend on the alignment, which may be set at any time before the data. */
static enum salvo_status place_tensors(struct gguf_writer *writer)
{
    uint64_t end = 0;
    for (size_t i = 0; i < writer->tensor_count; i++) {
        struct gguf_tensor *tensor = &writer->tensors[i];
        if (!checked_align_u64(end, writer->alignment, &tensor->offset) ||
            !checked_add_u64(tensor->offset, tensor->size, &end)) {
            return fail(SALVO_ERROR_ARGUMENT,
                "%s: tensor '%.*s': %llu bytes after %llu bytes overflow 64 bits", writer->file.path,
                SHOWN(tensor->name), (unsigned long long)tensor->size, (unsigned long long)end);
        }
    }
    return SALVO_OK;
}

static enum salvo_status append_header(const struct gguf_writer *writer, struct buffer *out)
{
    enum salvo_status status = SALVO_OK;
    TRY(buffer_append(out, "GGUF", 4));
    TRY(gguf_append_unsigned(out, 3, 4));
    TRY(gguf_append_unsigned(out, writer->tensor_count, 8));
    TRY(gguf_append_unsigned(out, writer->entry_count, 8));
    for (size_t i = 0; i < writer->entry_count; i++) {
        const struct writer_entry *entry = &writer->entries[i];
        TRY(gguf_append_text(out, entry->key));
        TRY(gguf_append_unsigned(out, entry->type, 4));
        TRY(buffer_append(out, entry->bytes.data, entry->bytes.size));
    }
    for (size_t i = 0; i < writer->tensor_count; i++) {
        const struct gguf_tensor *tensor = &writer->tensors[i];
        TRY(gguf_append_text(out, tensor->name));
        TRY(gguf_append_unsigned(out, tensor->dimensions, 4));
        for (uint32_t j = 0; j < tensor->dimensions; j++)
            TRY(gguf_append_unsigned(out, tensor->shape[j], 8));
        TRY(gguf_append_unsigned(out, tensor->type, 4));
        TRY(gguf_append_unsigned(out, tensor->offset, 8));
    }

cleanup:
    return status;
}

/* Zeros from `position` up to the next multiple of the alignment. */
static enum salvo_status write_padding(struct gguf_writer *writer, uint64_t position)
{
    static const uint8_t zeros[256];
    enum salvo_status status = SALVO_OK;
    uint64_t left = -position & (writer->alignment - 1);
    while (left && status == SALVO_OK) {
        size_t size = left < sizeof zeros ? (size_t)left : sizeof zeros;
        status = atomic_file_write(&writer->file, zeros, size);
        left -= size;
    }
    return status;
}

static enum salvo_status begin_data(struct gguf_writer *writer)
{
    enum salvo_status status = SALVO_OK;
    struct buffer header = {0};
    if (writer->writing)
        goto cleanup;
    TRY(place_tensors(writer));
    TRY(append_header(writer, &header));
    writer->writing = true;
    TRY(atomic_file_write(&writer->file, header.data, header.size));
    TRY(write_padding(writer, header.size));

cleanup:
    buffer_free(&header);
    return status;
}

enum salvo_status gguf_writer_write(struct gguf_writer *writer, const void *data, size_t size)
{
    enum salvo_status status = SALVO_OK;
    TRY(begin_data(writer));
    if (size == 0)
        goto cleanup;
    if (writer->current == writer->tensor_count)
        TRY(fail(SALVO_ERROR_ARGUMENT, "%s: %zu bytes were written after the last of %zu tensors",
            writer->file.path, size, writer->tensor_count));
    const struct gguf_tensor *tensor = &writer->tensors[writer->current];
    if (size > tensor->size - writer->complete) {
        TRY(fail(SALVO_ERROR_ARGUMENT, "%s: tensor '%.*s': %zu bytes, but only %llu more are missing",
            writer->file.path, SHOWN(tensor->name), size,
            (unsigned long long)(tensor->size - writer->complete)));
    }
    TRY(atomic_file_write(&writer->file, data, size));
    writer->complete += size;
    if (writer->complete == tensor->size) {
        TRY(write_padding(writer, tensor->size));
        writer->current++;
        writer->complete = 0;
    }

cleanup:
    return status;
}

enum salvo_status gguf_writer_commit(struct gguf_writer *writer)
{
    enum salvo_status status = SALVO_OK;
    TRY(begin_data(writer));
    if (writer->current != writer->tensor_count) {
        TRY(fail(SALVO_ERROR_ARGUMENT, "%s: tensor '%.*s': %llu of its %llu bytes were written",
            writer->file.path, SHOWN(writer->tensors[writer->current].name),
            (unsigned long long)writer->complete, (unsigned long long)writer->tensors[writer->current].size));
    }
    TRY(atomic_file_commit(&writer->file));

cleanup:
    return status;
}
