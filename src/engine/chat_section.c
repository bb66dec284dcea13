#include "engine/chat_section.h"

#include "base/checked.h"
#include "base/checksum.h"
#include "base/memory.h"

#include <inttypes.h>
#include <string.h>

enum { SECTION_VERSION = 1 };
static const char section_magic[8] = {'s', 'a', 'l', 'v', 'o', '-', 'c', 'h'};
static const uint64_t no_text = UINT64_MAX; /* in place of a size: the json is NULL */

struct section_header {
    char magic[8];
    uint32_t version;
    uint32_t reserved; /* 0 */
    uint64_t size;     /* of header and messages */
    uint64_t count;
    uint64_t checksum; /* of everything and the state's, with this field 0 */
};

uint64_t chat_section_checksum(const uint8_t *section, size_t size, uint64_t state_checksum)
{
    struct section_header header;
    memcpy(&header, section, sizeof header);
    header.checksum = 0;
    uint64_t parts[] = {checksum64(&header, sizeof header),
        checksum64(section + sizeof header, size - sizeof header), state_checksum};
    return checksum64(parts, sizeof parts);
}

/* ---- Writing ---- */

struct section_writer {
    uint8_t *out; /* NULL: only compute the size */
    size_t size;
};

static void put(struct section_writer *writer, const void *data, size_t size)
{
    if (writer->out && size)
        memcpy(writer->out + writer->size, data, size);
    writer->size += size;
}

static void put_text(struct section_writer *writer, const char *text, uint64_t size)
{
    put(writer, &size, sizeof size);
    if (size == no_text)
        return;
    put(writer, text, size);
    put(writer, "", 1);
}

static void put_messages(struct section_writer *writer, const struct salvo_message *messages, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct salvo_message *message = &messages[i];
        const char *role = message->role ? message->role : "";
        put_text(writer, role, strlen(role));
        put_text(writer, message->content.data, message->content.size);
        put_text(writer, message->json, message->json ? strlen(message->json) : no_text);
    }
}

enum salvo_status chat_section_write(const struct salvo_message *messages, size_t count,
    uint64_t state_checksum, uint8_t **out, size_t *out_size)
{
    struct section_writer writer = {.size = sizeof(struct section_header)};
    uint8_t *data = NULL;
    *out = NULL;
    *out_size = 0;
    put_messages(&writer, messages, count);
    enum salvo_status status = NEW(&data, writer.size);
    if (status != SALVO_OK || !data)
        return status;
    writer = (struct section_writer){.out = data, .size = sizeof(struct section_header)};
    put_messages(&writer, messages, count);
    struct section_header header = {.version = SECTION_VERSION, .size = writer.size, .count = count};
    memcpy(header.magic, section_magic, sizeof header.magic);
    memcpy(data, &header, sizeof header);
    header.checksum = chat_section_checksum(data, writer.size, state_checksum);
    memcpy(data, &header, sizeof header);
    *out = data;
    *out_size = writer.size;
    return SALVO_OK;
}

/* ---- Reading ---- */

bool chat_section_begins(const uint8_t *data, size_t size)
{
    return size >= sizeof section_magic && memcmp(data, section_magic, sizeof section_magic) == 0;
}

struct section_reader {
    const uint8_t *data, *end;
};

/* False if the bytes are too few. */
static bool take_text(struct section_reader *reader, bool may_be_absent, struct salvo_text *out)
{
    uint64_t size;
    *out = (struct salvo_text){0};
    if ((size_t)(reader->end - reader->data) < sizeof size)
        return false;
    memcpy(&size, reader->data, sizeof size);
    reader->data += sizeof size;
    if (size == no_text)
        return may_be_absent;
    if (size >= (size_t)(reader->end - reader->data) || reader->data[size] != 0)
        return false;
    *out = (struct salvo_text){(const char *)reader->data, (size_t)size};
    reader->data += size + 1;
    return true;
}

static bool take_message(struct section_reader *reader, struct salvo_message *out)
{
    struct salvo_text role, json;
    if (!take_text(reader, false, &role) || !take_text(reader, false, &out->content) ||
        !take_text(reader, true, &json) || strlen(role.data) != role.size ||
        (json.data && strlen(json.data) != json.size))
        return false;
    out->role = role.data;
    out->json = json.data;
    return true;
}

static enum salvo_status check_header(
    const struct section_header *header, const uint8_t *data, size_t size, uint64_t state_checksum)
{
    if (header->version != SECTION_VERSION) {
        return fail(SALVO_ERROR_UNSUPPORTED, "the conversation has version %" PRIu32 "; this is version %d",
            header->version, SECTION_VERSION);
    }
    if (size < header->size)
        return fail(
            SALVO_ERROR_FORMAT, "the conversation was cut: %zu bytes of %" PRIu64, size, header->size);
    if (size > header->size || header->size < sizeof *header ||
        chat_section_checksum(data, size, state_checksum) != header->checksum)
        return fail(SALVO_ERROR_FORMAT, "the conversation is damaged: its checksum is wrong");
    return SALVO_OK;
}

enum salvo_status chat_section_read(
    const uint8_t *data, size_t size, uint64_t state_checksum, struct salvo_messages **out)
{
    enum salvo_status status = SALVO_OK;
    struct section_header header;
    uint8_t *block = NULL;
    size_t items_size = 0, block_size = 0;
    *out = NULL;
    if (size < sizeof header)
        TRY(fail(SALVO_ERROR_FORMAT, "the conversation was cut: %zu bytes of %zu", size, sizeof header));
    memcpy(&header, data, sizeof header);
    TRY(check_header(&header, data, size, state_checksum));
    /* Each message has at least two sizes, which bounds the count by the file's size. */
    if (header.count > size / (2 * sizeof(uint64_t)) ||
        !checked_mul((size_t)header.count, sizeof(struct salvo_message), &items_size) ||
        !checked_add(items_size, sizeof(struct salvo_messages) + size, &block_size))
        TRY(fail(SALVO_ERROR_FORMAT, "the conversation has inconsistent sizes"));

    TRY(NEW(&block, block_size));
    struct salvo_messages *messages = (void *)block;
    struct salvo_message *items = (void *)(block + sizeof *messages);
    uint8_t *copy = block + sizeof *messages + items_size;
    memcpy(copy, data, size);
    *messages = (struct salvo_messages){items, (size_t)header.count, sizeof *items};
    struct section_reader reader = {copy + sizeof header, copy + size};
    for (uint64_t i = 0; i < header.count; i++) {
        if (!take_message(&reader, &items[i]))
            TRY(fail(SALVO_ERROR_FORMAT, "message %" PRIu64 " of the conversation is damaged", i + 1));
    }
    if (reader.data != reader.end)
        TRY(fail(SALVO_ERROR_FORMAT, "the conversation has inconsistent sizes"));
    *out = messages;
    block = NULL;
cleanup:
    memory_free(block);
    return status;
}
