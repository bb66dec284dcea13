#include "base/json.h"

#include "base/decimal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static void put_bytes(struct json_writer *writer, const char *data, size_t size)
{
    if (writer->status == SALVO_OK && size)
        writer->status = writer->write(writer->user, data, size);
}

static void put(struct json_writer *writer, const char *text)
{
    put_bytes(writer, text, strlen(text));
}

static void new_line(struct json_writer *writer)
{
    if (!writer->indent)
        return;
    put(writer, "\n");
    for (size_t i = 0; i < writer->depth; i++)
        put(writer, writer->indent);
}

/* Before a value or key. */
static void separate(struct json_writer *writer)
{
    if (writer->need_comma)
        put(writer, writer->item_separator ? writer->item_separator : ",");
    if (writer->need_comma || writer->first)
        new_line(writer);
    writer->need_comma = true;
    writer->first = false;
}

void json_begin(struct json_writer *writer, char bracket)
{
    separate(writer);
    put_bytes(writer, &bracket, 1);
    writer->need_comma = false;
    writer->first = true;
    writer->depth++;
}

void json_end(struct json_writer *writer, char bracket)
{
    writer->depth--;
    if (!writer->first)
        new_line(writer);
    put_bytes(writer, &bracket, 1);
    writer->need_comma = true;
    writer->first = false;
}

/* ---- Strings ----------------------------------------------------------------------------------------- */

/* Decodes the character at `text`. Returns its size, or 0 when the bytes are not valid UTF-8. */
static size_t decode(const unsigned char *text, size_t size, uint32_t *out)
{
    const unsigned char first = text[0];
    const size_t length = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    if (length == 0 || length > size || first > 0xf4)
        return 0;
    uint32_t code = length == 1 ? first : first & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (text[i] & 0x3fu);
    }
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    *out = code;
    return code < smallest[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? 0 : length;
}

static void put_escape(struct json_writer *writer, uint32_t code)
{
    static const char bytes[] = "\"\\\n\r\t\b\f", letters[] = "\"\\nrtbf";
    const char *found = code && code < 0x80 ? strchr(bytes, (int)code) : NULL;
    char escape[16];
    if (found)
        snprintf(escape, sizeof escape, "\\%c", letters[found - bytes]);
    else if (code < 0x10000)
        snprintf(escape, sizeof escape, "\\u%04x", (unsigned)code);
    else
        snprintf(escape, sizeof escape, "\\u%04x\\u%04x", 0xd7c0 + (unsigned)(code >> 10),
            0xdc00 | (unsigned)(code & 0x3ff));
    put(writer, escape);
}

void json_string_begin(struct json_writer *writer)
{
    separate(writer);
    put(writer, "\"");
}

void json_string_part(struct json_writer *writer, struct salvo_text part)
{
    size_t plain = 0; /* where the bytes that need no escape begin */
    for (size_t i = 0; i < part.size;) {
        uint32_t code;
        size_t length = decode((const unsigned char *)part.data + i, part.size - i, &code);
        const bool valid = length != 0;
        if (!valid)
            length = 1;
        if (valid && code >= 0x20 && code != '"' && code != '\\' && (code < 0x80 || !writer->ascii)) {
            i += length;
            continue;
        }
        put_bytes(writer, part.data + plain, i - plain);
        put_escape(writer, valid ? code : 0xfffd);
        i += length;
        plain = i;
    }
    put_bytes(writer, part.size ? part.data + plain : NULL, part.size - plain);
}

void json_string_end(struct json_writer *writer, bool is_key)
{
    put(writer, "\"");
    if (!is_key)
        return;
    put(writer, writer->key_separator ? writer->key_separator : ":");
    writer->need_comma = false;
}

void json_key_text(struct json_writer *writer, struct salvo_text key)
{
    json_string_begin(writer);
    json_string_part(writer, key);
    json_string_end(writer, true);
}

void json_key(struct json_writer *writer, const char *key)
{
    json_key_text(writer, (struct salvo_text){key, strlen(key)});
}

void json_text(struct json_writer *writer, struct salvo_text text)
{
    json_string_begin(writer);
    json_string_part(writer, text);
    json_string_end(writer, false);
}

void json_string(struct json_writer *writer, const char *text)
{
    json_text(writer, (struct salvo_text){text, strlen(text)});
}

/* ---- Numbers and literals ---------------------------------------------------------------------------- */

void json_raw(struct json_writer *writer, const char *value)
{
    separate(writer);
    put(writer, value);
}

void json_unsigned(struct json_writer *writer, uint64_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, number);
    json_raw(writer, text);
}

void json_signed(struct json_writer *writer, int64_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, number);
    json_raw(writer, text);
}

void json_float(struct json_writer *writer, double number, bool single)
{
    char text[DECIMAL_TEXT];
    if (!isfinite(number))
        json_raw(writer, "null");
    else if (number == 0 && signbit(number))
        json_raw(writer, "-0.0"); /* "-0" would be read as the integer 0 */
    else
        json_raw(writer, decimal_format(number, single, text));
}

void json_bool(struct json_writer *writer, bool value)
{
    json_raw(writer, value ? "true" : "false");
}

void json_null(struct json_writer *writer)
{
    json_raw(writer, "null");
}
