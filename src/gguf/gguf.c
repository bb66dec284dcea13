#include "gguf/gguf.h"

#include "base/memory.h"
#include "gguf/gguf_internal.h"
#include "gguf/gguf_part.h"
#include "gguf/gguf_value.h"

#include <string.h>

/* ---- Opening ---- */

/* Merges the tensors of all parts into one table. */
static enum salvo_status gather_tensors(struct gguf *gguf)
{
    enum salvo_status status = SALVO_OK;
    size_t count = 0;
    for (uint32_t i = 0; i < gguf->part_count; i++)
        count += gguf->parts[i].tensor_count;
    TRY(NEW(&gguf->tensors, count));
    for (uint32_t i = 0; i < gguf->part_count; i++) {
        struct gguf_part *part = &gguf->parts[i];
        for (size_t j = 0; j < part->tensor_count; j++) {
            gguf->tensors[gguf->tensor_count] = part->tensors[j];
            gguf->tensors[gguf->tensor_count++].part = i;
        }
        memory_free(part->tensors);
        part->tensors = NULL;
        part->tensor_count = 0;
        gguf->file_size += part->size;
    }

cleanup:
    return status;
}

static enum salvo_status index_tensors(struct gguf *gguf)
{
    enum salvo_status status = SALVO_OK;
    TRY(string_map_open(&gguf->names, gguf->tensor_count));
    for (uint32_t i = 0; i < gguf->tensor_count; i++) {
        struct salvo_text name = gguf->tensors[i].name;
        uint32_t first;
        status = string_map_add(&gguf->names, name.data, name.size, i, &first);
        if (status != SALVO_OK)
            TRY(fail_within(status, "%s: names of tensors: ", gguf_path(gguf)));
        if (first != i)
            TRY(fail(SALVO_ERROR_FORMAT, "%s: tensor '%.*s' is defined twice: tensors %u and %u",
                gguf->parts[gguf->tensors[i].part].name, SHOWN(name), first, i));
    }

cleanup:
    return status;
}

/* `path` NULL: from memory. */
static enum salvo_status open_model(
    const char *path, const void *bytes, size_t size, const char *name, struct gguf **out)
{
    enum salvo_status status = SALVO_OK;
    struct gguf *gguf = NULL;
    *out = NULL;
    TRY(NEW(&gguf, 1));
    TRY(NEW(&gguf->parts, 1));
    TRY(path ? gguf_part_open(path, gguf->parts) : gguf_part_open_memory(bytes, size, name, gguf->parts));
    gguf->part_count = 1;
    TRY(gguf_open_other_parts(gguf));
    TRY(gather_tensors(gguf));
    TRY(index_tensors(gguf));
    TRY(gguf_check(gguf));
    *out = gguf;
    gguf = NULL;

cleanup:
    if (status != SALVO_OK && gguf)
        status = gguf_check_after(gguf, status);
    gguf_close(gguf);
    return status;
}

enum salvo_status gguf_open(const char *path, struct gguf **out)
{
    return open_model(path, NULL, 0, NULL, out);
}

enum salvo_status gguf_open_memory(const void *bytes, size_t size, const char *name, struct gguf **out)
{
    return open_model(NULL, bytes, size, name, out);
}

void gguf_close(struct gguf *gguf)
{
    if (!gguf)
        return;
    for (uint32_t i = 0; i < gguf->part_count; i++)
        gguf_part_close(&gguf->parts[i]);
    string_map_close(&gguf->names);
    memory_free(gguf->parts);
    memory_free(gguf->tensors);
    memory_free(gguf);
}

/* ---- The files ---- */

const char *gguf_path(const struct gguf *gguf)
{
    return gguf->parts->name;
}

uint32_t gguf_version(const struct gguf *gguf)
{
    return gguf->parts->version;
}

uint64_t gguf_file_size(const struct gguf *gguf)
{
    return gguf->file_size;
}

enum salvo_status gguf_check(const struct gguf *gguf)
{
    enum salvo_status status = SALVO_OK;
    for (uint32_t i = 0; i < gguf->part_count && status == SALVO_OK; i++)
        status = mapped_file_check(&gguf->parts[i].file);
    return status;
}

bool gguf_is_at(const struct gguf *gguf, const char *path)
{
    bool found = false;
    for (uint32_t i = 0; i < gguf->part_count && !found; i++)
        found = mapped_file_is_at(&gguf->parts[i].file, path);
    return found;
}

enum salvo_status gguf_check_after(const struct gguf *gguf, enum salvo_status status)
{
    enum salvo_status cut = gguf_check(gguf);
    return cut == SALVO_OK ? status : cut;
}

void gguf_release(const struct gguf *gguf, const struct gguf_tensor *tensor)
{
    const struct mapped_file *file = &gguf->parts[tensor->part].file;
    if (file->data && tensor->data)
        mapped_file_release(file, (size_t)tensor->offset, (size_t)tensor->size);
}

/* ---- Contents ---- */

size_t gguf_entry_count(const struct gguf *gguf)
{
    return gguf->parts->entry_count;
}

const struct gguf_entry *gguf_entry_at(const struct gguf *gguf, size_t index)
{
    return &gguf->parts->entries[index];
}

size_t gguf_tensor_count(const struct gguf *gguf)
{
    return gguf->tensor_count;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *gguf, size_t index)
{
    return &gguf->tensors[index];
}

const struct salvo_value *gguf_find(const struct gguf *gguf, const char *key)
{
    return gguf_part_find(gguf->parts, key);
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *gguf, const char *name)
{
    uint32_t index = string_map_find(&gguf->names, name, strlen(name));
    return index == UINT32_MAX ? NULL : &gguf->tensors[index];
}
