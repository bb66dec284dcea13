#include "base/json.h"

#include "base/decimal.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum state {
    STATE_VALUE,    /* expects a value */
    STATE_ARRAY,    /* after '[': a value or ']' */
    STATE_OBJECT,   /* after '{': a key or '}' */
    STATE_KEY,      /* after ',' in an object */
    STATE_COLON,    /* after a key */
    STATE_AFTER,    /* after a value: ',' or the end of the array or object */
    STATE_LITERAL,  /* in true, false or null */
    STATE_STRING,   /* in a string or key */
    STATE_ESCAPE,   /* after a backslash */
    STATE_HEX,      /* in \uXXXX */
    STATE_MINUS,    /* numbers: after '-' */
    STATE_ZERO,     /* after a leading 0 */
    STATE_DIGITS,   /* in the integer part */
    STATE_POINT,    /* after '.' */
    STATE_FRACTION, /* in the fraction */
    STATE_EXPONENT, /* after 'e' */
    STATE_SIGN,     /* after the sign of the exponent */
    STATE_POWER,    /* in the exponent */
    STATE_DOCUMENT, /* after the value of the document */
    STATE_FAILED,
};

void json_reader_feed(struct json_reader *reader, const char *data, size_t size, bool last)
{
    reader->at = data;
    reader->end = size ? data + size : data;
    reader->offset += size;
    reader->last = last;
}

void json_reader_free(struct json_reader *reader)
{
    buffer_free(&reader->text);
}

static enum salvo_status fail_json(struct json_reader *reader, const char *format, ...) PRINTF_LIKE(2, 3);

static enum salvo_status fail_json(struct json_reader *reader, const char *format, ...)
{
    const size_t offset = reader->offset - (size_t)(reader->end - reader->at);
    va_list arguments;
    int size = snprintf(reader->error, sizeof reader->error, "JSON: line %zu, column %zu: ", reader->line + 1,
        offset - reader->line_offset + 1);
    va_start(arguments, format);
    vsnprintf(reader->error + size, sizeof reader->error - (size_t)size, format, arguments);
    va_end(arguments);
    reader->state = STATE_FAILED;
    return fail(SALVO_ERROR_ARGUMENT, "%s", reader->error);
}

static enum salvo_status fail_too_long(struct json_reader *reader)
{
    return fail_json(reader, "string is longer than %zu bytes", reader->longest);
}

static enum salvo_status keep(struct json_reader *reader, const char *bytes, size_t size)
{
    if (size > reader->longest - reader->text.size)
        return fail_too_long(reader);
    return buffer_append(&reader->text, bytes, size);
}

static bool in_object(const struct json_reader *reader)
{
    const size_t level = reader->depth - 1;
    return reader->depth && (reader->in_object[level / 8] >> level % 8 & 1);
}

static void end_value(struct json_reader *reader)
{
    reader->state = reader->depth ? STATE_AFTER : STATE_DOCUMENT;
}

/* ---- Strings ----------------------------------------------------------------------------------------- */

static enum salvo_status keep_character(struct json_reader *reader, uint32_t code)
{
    char bytes[4];
    size_t size = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    bytes[0] = (char)(size == 1 ? code : (0xf00u >> size & 0xf0) | code >> 6 * (size - 1));
    for (size_t i = 1; i < size; i++)
        bytes[i] = (char)(0x80 | (code >> 6 * (size - 1 - i) & 0x3f));
    return keep(reader, bytes, size);
}

static int hex_value(unsigned char byte)
{
    if (byte >= '0' && byte <= '9')
        return byte - '0';
    byte |= 0x20;
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

static enum salvo_status read_hex(struct json_reader *reader)
{
    const int digit = hex_value((unsigned char)*reader->at);
    if (digit < 0)
        return fail_json(reader, "'\\u' needs four hexadecimal digits");
    reader->unit = reader->unit << 4 | (uint32_t)digit;
    if (++reader->hex_digits < 4) {
        reader->at++;
        return SALVO_OK;
    }
    uint32_t code = reader->unit;
    const bool first = code >= 0xd800 && code < 0xdc00, second = code >= 0xdc00 && code < 0xe000;
    if (second != (reader->surrogate != 0))
        return fail_json(reader, "unpaired surrogate in '\\u' escape");
    reader->at++;
    reader->state = STATE_STRING;
    if (second)
        code = 0x10000 + ((reader->surrogate & 0x3ff) << 10) + (code & 0x3ff);
    reader->surrogate = first ? code : 0;
    return first ? SALVO_OK : keep_character(reader, code);
}

static enum salvo_status read_escape(struct json_reader *reader)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    const char letter = *reader->at, *found = letter ? strchr(letters, letter) : NULL;
    if (reader->surrogate && letter != 'u')
        return fail_json(reader, "unpaired surrogate in '\\u' escape");
    if (letter == 'u') {
        reader->at++;
        reader->state = STATE_HEX;
        reader->hex_digits = reader->unit = 0;
        return SALVO_OK;
    }
    if (!found)
        return fail_json(reader, "invalid escape in a string");
    reader->at++;
    reader->state = STATE_STRING;
    return keep(reader, &meanings[found - letters], 1);
}

/* One byte of a character that is not ASCII. */
static enum salvo_status read_utf8(struct json_reader *reader)
{
    const unsigned char byte = (unsigned char)*reader->at;
    if (reader->rest) {
        if (byte < reader->lowest || byte > reader->highest)
            return fail_json(reader, "invalid UTF-8");
        reader->rest--;
        reader->lowest = 0x80;
        reader->highest = 0xbf;
    } else {
        if (byte < 0xc2 || byte > 0xf4)
            return fail_json(reader, "invalid UTF-8");
        reader->rest = byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;
        /* Excludes overlong forms, surrogates and codes above U+10FFFF. */
        reader->lowest = byte == 0xe0 ? 0xa0 : byte == 0xf0 ? 0x90 : 0x80;
        reader->highest = byte == 0xed ? 0x9f : byte == 0xf4 ? 0x8f : 0xbf;
    }
    return keep(reader, reader->at++, 1);
}

static bool is_plain(char byte)
{
    return (unsigned char)byte >= 0x20 && (unsigned char)byte < 0x80 && byte != '"' && byte != '\\';
}

static enum salvo_status read_string(struct json_reader *reader, struct json_event *out)
{
    const char *begin = reader->at;
    const unsigned char byte = (unsigned char)*begin;
    if (byte >= 0x80 || reader->rest)
        return reader->surrogate ? fail_json(reader, "unpaired surrogate in '\\u' escape")
                                 : read_utf8(reader);
    if (byte == '\\') {
        reader->at++;
        reader->state = STATE_ESCAPE;
        return SALVO_OK;
    }
    if (reader->surrogate)
        return fail_json(reader, "unpaired surrogate in '\\u' escape");
    if (byte == '"') {
        reader->at++;
        out->kind = reader->is_key ? JSON_KEY : JSON_STRING;
        out->text = (struct salvo_text){reader->text.data ? reader->text.data : "", reader->text.size};
        if (reader->is_key)
            reader->state = STATE_COLON;
        else
            end_value(reader);
        return SALVO_OK;
    }
    if (byte < 0x20)
        return fail_json(reader, "control character 0x%02x in a string", byte);
    const size_t room = reader->longest - reader->text.size;
    while (reader->at < reader->end && is_plain(*reader->at) && (size_t)(reader->at - begin) < room)
        reader->at++;
    if (reader->at == begin)
        return fail_too_long(reader);
    return keep(reader, begin, (size_t)(reader->at - begin));
}

static void begin_string(struct json_reader *reader, bool is_key)
{
    reader->at++;
    reader->state = STATE_STRING;
    reader->is_key = is_key;
    reader->text.size = 0;
}

/* ---- Numbers and literals ---------------------------------------------------------------------------- */

/* The state after one more byte of a number; STATE_FAILED where it cannot be part of one. */
static enum state number_state(int state, char byte)
{
    const bool digit = byte >= '0' && byte <= '9', exponent = byte == 'e' || byte == 'E';
    switch (state) {
    case STATE_MINUS:
        return byte == '0' ? STATE_ZERO : digit ? STATE_DIGITS : STATE_FAILED;
    case STATE_DIGITS:
        if (digit)
            return STATE_DIGITS;
        /* fall through */
    case STATE_ZERO:
        return byte == '.' ? STATE_POINT : exponent ? STATE_EXPONENT : STATE_FAILED;
    case STATE_POINT:
        return digit ? STATE_FRACTION : STATE_FAILED;
    case STATE_FRACTION:
        return digit ? STATE_FRACTION : exponent ? STATE_EXPONENT : STATE_FAILED;
    case STATE_EXPONENT:
        if (byte == '+' || byte == '-')
            return STATE_SIGN;
        /* fall through */
    default:
        return digit ? STATE_POWER : STATE_FAILED;
    }
}

static enum salvo_status end_number(struct json_reader *reader, struct json_event *out)
{
    enum salvo_status status = SALVO_OK;
    const int state = reader->state;
    const bool whole = state == STATE_ZERO || state == STATE_DIGITS;
    if (!whole && state != STATE_FRACTION && state != STATE_POWER)
        TRY(fail_json(reader, "digit expected in a number"));
    TRY(buffer_append(&reader->text, "", 1));
    out->text = (struct salvo_text){reader->text.data, reader->text.size - 1};
    out->number = decimal_parse(reader->text.data);
    if (!isfinite(out->number))
        TRY(fail_json(reader, "number is too large for a double"));
    errno = 0;
    out->integer = whole ? strtoll(reader->text.data, NULL, 10) : 0;
    out->kind = whole && errno == 0 ? JSON_INTEGER : JSON_NUMBER;
    if (out->kind == JSON_NUMBER)
        out->integer = 0;
    end_value(reader);

cleanup:
    return status;
}

static enum salvo_status read_number(struct json_reader *reader, struct json_event *out)
{
    enum salvo_status status = SALVO_OK;
    const char *begin = reader->at;
    while (reader->at < reader->end) {
        const enum state next = number_state(reader->state, *reader->at);
        if (next == STATE_FAILED)
            break;
        reader->state = (int)next;
        reader->at++;
    }
    if ((size_t)(reader->at - begin) > DECIMAL_PARSE - reader->text.size)
        TRY(fail_json(reader, "number is longer than %d bytes", DECIMAL_PARSE));
    TRY(buffer_append(&reader->text, begin, (size_t)(reader->at - begin)));
    if (reader->at < reader->end || reader->last)
        TRY(end_number(reader, out));

cleanup:
    return status;
}

static enum salvo_status read_literal(struct json_reader *reader, struct json_event *out)
{
    static const char *const literals[] = {"null", "false", "true"};
    enum salvo_status status = SALVO_OK;
    TRY(buffer_append(&reader->text, reader->at, 1));
    for (size_t i = 0; i < 3; i++) {
        const size_t size = strlen(literals[i]);
        if (reader->text.size > size || memcmp(reader->text.data, literals[i], reader->text.size) != 0)
            continue;
        reader->at++;
        reader->state = STATE_LITERAL;
        if (reader->text.size == size) {
            out->kind = JSON_NULL + (enum json_kind)i;
            end_value(reader);
        }
        goto cleanup;
    }
    TRY(fail_json(reader, "value expected"));

cleanup:
    return status;
}

/* ---- Values ------------------------------------------------------------------------------------------ */

static enum salvo_status begin_level(struct json_reader *reader, bool object, struct json_event *out)
{
    const size_t level = reader->depth;
    if (level == JSON_MAX_DEPTH)
        return fail_json(reader, "nested too deeply: the limit is %d arrays and objects", JSON_MAX_DEPTH);
    const unsigned bit = 1u << level % 8;
    reader->in_object[level / 8] = (uint8_t)((reader->in_object[level / 8] & ~bit) | (object ? bit : 0));
    reader->depth++;
    reader->at++;
    reader->state = object ? STATE_OBJECT : STATE_ARRAY;
    out->kind = object ? JSON_OBJECT_BEGIN : JSON_ARRAY_BEGIN;
    return SALVO_OK;
}

static enum salvo_status end_level(struct json_reader *reader, struct json_event *out)
{
    out->kind = in_object(reader) ? JSON_OBJECT_END : JSON_ARRAY_END;
    reader->at++;
    reader->depth--;
    end_value(reader);
    return SALVO_OK;
}

static enum salvo_status begin_value(struct json_reader *reader, struct json_event *out)
{
    const char byte = *reader->at;
    reader->text.size = 0;
    if (byte == '"') {
        begin_string(reader, false);
        return SALVO_OK;
    }
    if (byte == '[' || byte == '{')
        return begin_level(reader, byte == '{', out);
    if (byte == '-' || (byte >= '0' && byte <= '9')) {
        reader->state = byte == '-' ? STATE_MINUS : byte == '0' ? STATE_ZERO : STATE_DIGITS;
        reader->at++;
        return buffer_append(&reader->text, &byte, 1);
    }
    return read_literal(reader, out);
}

/* A byte between values. */
static enum salvo_status read_structure(struct json_reader *reader, struct json_event *out)
{
    const char byte = *reader->at;
    const bool object = in_object(reader);
    switch (reader->state) {
    case STATE_ARRAY:
        if (byte == ']')
            return end_level(reader, out);
        /* fall through */
    case STATE_VALUE:
        return begin_value(reader, out);
    case STATE_OBJECT:
        if (byte == '}')
            return end_level(reader, out);
        /* fall through */
    case STATE_KEY:
        if (byte != '"')
            return fail_json(reader, "key in double quotes expected");
        begin_string(reader, true);
        return SALVO_OK;
    case STATE_COLON:
        if (byte != ':')
            return fail_json(reader, "':' expected");
        reader->at++;
        reader->state = STATE_VALUE;
        return SALVO_OK;
    case STATE_AFTER:
        if (byte == (object ? '}' : ']'))
            return end_level(reader, out);
        if (byte != ',')
            return fail_json(reader, "',' or '%c' expected", object ? '}' : ']');
        reader->at++;
        reader->state = object ? STATE_KEY : STATE_VALUE;
        return SALVO_OK;
    default: /* STATE_DOCUMENT */
        return fail_json(reader, "unexpected text after the value");
    }
}

static bool skip_blank(struct json_reader *reader)
{
    const char byte = *reader->at;
    if (byte != ' ' && byte != '\t' && byte != '\n' && byte != '\r')
        return false;
    reader->at++;
    if (byte == '\n') {
        reader->line++;
        reader->line_offset = reader->offset - (size_t)(reader->end - reader->at);
    }
    return true;
}

static enum salvo_status end_piece(struct json_reader *reader, struct json_event *out)
{
    if (!reader->last) {
        out->kind = JSON_MORE;
        return SALVO_OK;
    }
    if (reader->state >= STATE_MINUS && reader->state <= STATE_POWER)
        return end_number(reader, out);
    if (reader->state != STATE_DOCUMENT)
        return fail_json(reader, "unexpected end of the text");
    out->kind = JSON_DONE;
    return SALVO_OK;
}

enum salvo_status json_reader_next(struct json_reader *reader, struct json_event *out)
{
    enum salvo_status status = SALVO_OK;
    *out = (struct json_event){.kind = JSON_MORE};
    if (reader->state == STATE_FAILED)
        TRY(fail(SALVO_ERROR_ARGUMENT, "%s", reader->error));
    while (out->kind == JSON_MORE && reader->at < reader->end) {
        if (reader->state == STATE_LITERAL)
            TRY(read_literal(reader, out));
        else if (reader->state == STATE_STRING)
            TRY(read_string(reader, out));
        else if (reader->state == STATE_ESCAPE)
            TRY(read_escape(reader));
        else if (reader->state == STATE_HEX)
            TRY(read_hex(reader));
        else if (reader->state >= STATE_MINUS && reader->state <= STATE_POWER)
            TRY(read_number(reader, out));
        else if (!skip_blank(reader))
            TRY(read_structure(reader, out));
    }
    if (out->kind == JSON_MORE)
        TRY(end_piece(reader, out));

cleanup:
    if (status != SALVO_OK && reader->state != STATE_FAILED) { /* no memory: bytes were lost */
        reader->state = STATE_FAILED;
        snprintf(reader->error, sizeof reader->error, "%s", salvo_error());
    }
    return status;
}
