#include "gguf/gguf_part.h"

#include "base/checked.h"
#include "base/memory.h"
#include "gguf/cursor.h"
#include "gguf/gguf_tensors.h"
#include "gguf/gguf_value.h"

#include <string.h>

enum {
    HEADER_SIZE = 24,
    /* The smallest entry: a key of one byte with its length, the type, a value of one byte. */
    MIN_ENTRY_SIZE = 8 + 1 + 4 + 1,
};

struct header {
    uint32_t version;
    uint64_t tensor_count, entry_count;
};

static enum salvo_status take_header(struct cursor *cursor, struct header *out)
{
    static const uint8_t magic[4] = {'G', 'G', 'U', 'F'};
    if (cursor_left(cursor) == 0)
        return fail(SALVO_ERROR_FORMAT, "not a GGUF file: it is empty" GGUF_CUT);
    const size_t left = cursor_left(cursor), begun = left < sizeof magic ? left : sizeof magic;
    if (memcmp(cursor->at, magic, begun) != 0)
        return fail(SALVO_ERROR_FORMAT, "not a GGUF file");
    if (left < HEADER_SIZE)
        return fail(SALVO_ERROR_FORMAT, "the header takes %d bytes, but the file has %zu" GGUF_CUT,
            HEADER_SIZE, left);
    cursor->at += sizeof magic;
    (void)take_u32(cursor, &out->version);
    (void)take_u64(cursor, &out->tensor_count);
    (void)take_u64(cursor, &out->entry_count);
    if (out->version && (out->version & 0xffff) == 0)
        return fail(SALVO_ERROR_UNSUPPORTED, "big-endian files are not supported (the version reads 0x%08x)",
            out->version);
    if (out->version != 2 && out->version != 3)
        return fail(
            SALVO_ERROR_UNSUPPORTED, "GGUF version %u is not supported; supported: 2 and 3", out->version);
    return SALVO_OK;
}

/* Limits a count by the bytes that are left; indices of a string_map have 32 bits. */
static enum salvo_status check_count(
    const struct cursor *cursor, const char *what, uint64_t count, size_t min_size)
{
    if (count > cursor_left(cursor) / min_size || count >= UINT32_MAX) {
        return fail(SALVO_ERROR_FORMAT,
            "the header claims %llu %s of at least %zu bytes, but %zu bytes are left" GGUF_CUT,
            (unsigned long long)count, what, min_size, cursor_left(cursor));
    }
    return SALVO_OK;
}

static enum salvo_status take_entry(struct cursor *cursor, struct gguf_entry *out)
{
    enum salvo_status status = SALVO_OK;
    uint32_t type;
    TRY(gguf_take_text(cursor, "the key", &out->key));
    if (out->key.size == 0)
        TRY(fail(SALVO_ERROR_FORMAT, "the key is empty"));
    TRY(gguf_check_text(out->key, "the key"));
    if (!take_u32(cursor, &type)) {
        TRY(fail(SALVO_ERROR_FORMAT,
            "key '%.*s': its type takes 4 bytes, but the file ends after %zu" GGUF_CUT, SHOWN(out->key),
            cursor_left(cursor)));
    }
    status = gguf_take_value(cursor, type, &out->value);
    if (status != SALVO_OK)
        TRY(fail_within(status, "key '%.*s': ", SHOWN(out->key)));

cleanup:
    return status;
}

/* Checks `count` entries and keeps them in `entries` unless that is NULL. */
static enum salvo_status take_entries(struct cursor *cursor, uint64_t count, struct gguf_entry *entries)
{
    struct gguf_entry entry;
    for (uint64_t i = 0; i < count; i++) {
        enum salvo_status status = take_entry(cursor, &entry);
        if (status != SALVO_OK)
            return fail_within(
                status, "metadata entry %llu of %llu: ", (unsigned long long)i, (unsigned long long)count);
        if (entries)
            entries[i] = entry;
    }
    return SALVO_OK;
}

static enum salvo_status index_entries(struct gguf_part *part)
{
    enum salvo_status status = SALVO_OK;
    TRY(string_map_open(&part->keys, part->entry_count));
    for (uint32_t i = 0; i < part->entry_count; i++) {
        struct salvo_text key = part->entries[i].key;
        uint32_t first;
        TRY(string_map_add(&part->keys, key.data, key.size, i, &first));
        if (first != i)
            TRY(fail(SALVO_ERROR_FORMAT, "key '%.*s' is defined twice: metadata entries %u and %u",
                SHOWN(key), first, i));
    }

cleanup:
    return status;
}

static enum salvo_status find_alignment(const struct gguf_part *part, uint32_t *out)
{
    const struct salvo_value *value = gguf_part_find(part, GGUF_ALIGNMENT_KEY);
    *out = GGUF_DEFAULT_ALIGNMENT;
    if (!value)
        return SALVO_OK;
    enum salvo_status status = gguf_check_alignment(value);
    if (status != SALVO_OK)
        return fail_within(status, "key '%s': ", GGUF_ALIGNMENT_KEY);
    *out = (uint32_t)value->u;
    return SALVO_OK;
}

/*
 * Everything is read twice: first to check it, then, with checked counts, into memory. Otherwise a damaged
 * count in a large file could request far more memory than the file's contents need.
 */
static enum salvo_status read_part(struct gguf_part *part)
{
    enum salvo_status status = SALVO_OK;
    struct cursor cursor = {part->bytes, part->bytes + part->size};
    struct header header = {0};
    struct gguf_tensor_area area = {.bytes = part->bytes, .size = part->size};
    uint64_t data_start;

    TRY(take_header(&cursor, &header));
    part->version = header.version;
    TRY(check_count(&cursor, "metadata entries", header.entry_count, MIN_ENTRY_SIZE));
    struct cursor entries = cursor;
    TRY(take_entries(&cursor, header.entry_count, NULL));
    TRY(check_count(&cursor, "tensors", header.tensor_count, GGUF_MIN_TENSOR_SIZE));
    struct cursor tensors = cursor;
    TRY(gguf_take_tensors(&cursor, header.tensor_count, NULL, NULL));

    TRY(NEW(&part->entries, (size_t)header.entry_count));
    TRY(take_entries(&entries, header.entry_count, part->entries));
    part->entry_count = (size_t)header.entry_count;
    TRY(index_entries(part));

    TRY(find_alignment(part, &area.alignment));
    if (!checked_align_u64((uint64_t)(cursor.at - part->bytes), area.alignment, &data_start) ||
        data_start > part->size)
        data_start = part->size; /* a file without tensors may end before its padding */
    area.start = (size_t)data_start;
    TRY(NEW(&part->tensors, (size_t)header.tensor_count));
    TRY(gguf_take_tensors(&tensors, header.tensor_count, &area, part->tensors));
    part->tensor_count = (size_t)header.tensor_count;
    TRY(gguf_check_overlap(part->tensors, part->tensor_count));

cleanup:
    return status;
}

static enum salvo_status open_bytes(
    struct gguf_part *part, const uint8_t *bytes, size_t size, const char *name)
{
    enum salvo_status status = SALVO_OK;
    part->bytes = size ? bytes : (const uint8_t *)""; /* NULL + 0 is undefined */
    part->size = size;
    TRY(memory_copy_string(name, &part->name));
    status = read_part(part);
    if (status != SALVO_OK)
        status = fail_within(status, "%s: ", name);
    /* If the file was truncated meanwhile, that error replaces the one found in its contents. */
    if (mapped_file_check(&part->file) != SALVO_OK)
        status = SALVO_ERROR_IO;

cleanup:
    if (status != SALVO_OK)
        gguf_part_close(part);
    return status;
}

enum salvo_status gguf_part_open(const char *path, struct gguf_part *out)
{
    *out = (struct gguf_part){0};
    enum salvo_status status = mapped_file_open(path, &out->file);
    return status == SALVO_OK ? open_bytes(out, out->file.data, out->file.size, path) : status;
}

enum salvo_status gguf_part_open_memory(
    const void *bytes, size_t size, const char *name, struct gguf_part *out)
{
    *out = (struct gguf_part){.file.guard = -1};
    return open_bytes(out, bytes, size, name);
}

void gguf_part_close(struct gguf_part *part)
{
    string_map_close(&part->keys);
    memory_free(part->entries);
    memory_free(part->tensors);
    memory_free(part->name);
    mapped_file_close(&part->file);
    *part = (struct gguf_part){.file.guard = -1};
}

const struct salvo_value *gguf_part_find(const struct gguf_part *part, const char *key)
{
    uint32_t index = string_map_find(&part->keys, key, strlen(key));
    return index == UINT32_MAX ? NULL : &part->entries[index].value;
}
