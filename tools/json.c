#include "json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void separate(struct json *json)
{
    if (json->need_comma)
        fputc(',', json->stream);
    json->need_comma = true;
}

void json_begin(struct json *json, char bracket)
{
    separate(json);
    fputc(bracket, json->stream);
    json->need_comma = false;
}

void json_end(struct json *json, char bracket)
{
    fputc(bracket, json->stream);
    json->need_comma = true;
}

/* Length of the valid UTF-8 character at `text`, 0 when there is none. */
static size_t utf8_length(const unsigned char *text, size_t size)
{
    unsigned char first = text[0];
    size_t length = first < 0x80                    ? 1
                    : first >= 0xc2 && first < 0xe0 ? 2
                    : (first & 0xf0) == 0xe0        ? 3
                    : first >= 0xf0 && first < 0xf5 ? 4
                                                    : 0;
    if (length == 0 || length > size)
        return 0;
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    }
    bool overlong = (first == 0xe0 && text[1] < 0xa0) || (first == 0xf0 && text[1] < 0x90);
    bool surrogate = first == 0xed && text[1] >= 0xa0;
    bool too_large = first == 0xf4 && text[1] >= 0x90;
    return overlong || surrogate || too_large ? 0 : length;
}

static void write_quoted(FILE *stream, struct salvo_text text)
{
    fputc('"', stream);
    for (size_t i = 0; i < text.size;) {
        unsigned char byte = (unsigned char)text.data[i];
        size_t length = utf8_length((const unsigned char *)text.data + i, text.size - i);
        if (length == 0) {
            fputs("\\ufffd", stream);
            length = 1;
        } else if (byte == '"' || byte == '\\') {
            fprintf(stream, "\\%c", byte);
        } else if (byte == '\n') {
            fputs("\\n", stream);
        } else if (byte < 0x20 || byte == 0x7f) {
            fprintf(stream, "\\u%04x", byte);
        } else {
            fwrite(text.data + i, 1, length, stream);
        }
        i += length;
    }
    fputc('"', stream);
}

void json_key_text(struct json *json, struct salvo_text key)
{
    separate(json);
    write_quoted(json->stream, key);
    fputc(':', json->stream);
    json->need_comma = false;
}

void json_key(struct json *json, const char *key)
{
    json_key_text(json, (struct salvo_text){key, strlen(key)});
}

void json_text(struct json *json, struct salvo_text text)
{
    separate(json);
    write_quoted(json->stream, text);
}

void json_string(struct json *json, const char *text)
{
    json_text(json, (struct salvo_text){text, strlen(text)});
}

void json_unsigned(struct json *json, uint64_t number)
{
    separate(json);
    fprintf(json->stream, "%" PRIu64, number);
}

void json_signed(struct json *json, int64_t number)
{
    separate(json);
    fprintf(json->stream, "%" PRId64, number);
}

const char *format_float(double number, bool single, char *text)
{
    for (int digits = single ? 6 : 15; digits <= 17; digits++) {
        snprintf(text, 40, "%.*g", digits, number);
        if (single ? strtof(text, NULL) == (float)number : strtod(text, NULL) == number)
            break;
    }
    return text;
}

void json_float(struct json *json, double number, bool single)
{
    char text[40];
    separate(json);
    fputs(isfinite(number) ? format_float(number, single, text) : "null", json->stream);
}

void json_bool(struct json *json, bool value)
{
    separate(json);
    fputs(value ? "true" : "false", json->stream);
}

void json_value(struct json *json, struct salvo_value value) // the depth was bounded when the file was opened
{
    struct salvo_value item;
    switch (value.type) {
    case SALVO_U8:
    case SALVO_U16:
    case SALVO_U32:
    case SALVO_U64:
        json_unsigned(json, value.u);
        break;
    case SALVO_I8:
    case SALVO_I16:
    case SALVO_I32:
    case SALVO_I64:
        json_signed(json, value.i);
        break;
    case SALVO_F32:
    case SALVO_F64:
        json_float(json, value.f, value.type == SALVO_F32);
        break;
    case SALVO_BOOL:
        json_bool(json, value.b);
        break;
    case SALVO_STRING:
        json_text(json, value.text);
        break;
    case SALVO_ARRAY:
        json_begin(json, '[');
        while (salvo_array_next(&value, &item))
            json_value(json, item);
        json_end(json, ']');
        break;
    }
}
