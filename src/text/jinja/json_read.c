#include "text/jinja/json.h"
#include "text/jinja/literals.h"

#include <string.h>

struct reader {
    struct interpreter *in;
    const char *begin, *at, *end;
};

static enum salvo_status fail_json(const struct reader *reader, const char *message)
{
    size_t line = 1, column = 1;
    for (const char *at = reader->begin; at < reader->at; at++) {
        bool feed = *at == '\n';
        line += feed;
        column = feed ? 1 : column + 1;
    }
    return fail(SALVO_ERROR_ARGUMENT, "JSON: line %zu, column %zu: %s", line, column, message);
}

static int peek(const struct reader *reader)
{
    return reader->at < reader->end ? (unsigned char)*reader->at : -1;
}

static void skip_blanks(struct reader *reader)
{
    while (peek(reader) == ' ' || peek(reader) == '\t' || peek(reader) == '\n' || peek(reader) == '\r')
        reader->at++;
}

static bool skip(struct reader *reader, char byte)
{
    skip_blanks(reader);
    bool there = peek(reader) == byte;
    reader->at += there;
    return there;
}

/* ---- Strings ----------------------------------------------------------------------------------------- */

static bool read_unit(struct reader *reader, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++) {
        int byte = peek(reader), digit = -1;
        if (byte >= '0' && byte <= '9')
            digit = byte - '0';
        else if ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'f')
            digit = (byte | 0x20) - 'a' + 10;
        if (digit < 0)
            return false;
        *out = *out << 4 | (uint32_t)digit;
        reader->at++;
    }
    return true;
}

/* Behind "\u": a character may be written as two; half of one becomes U+FFFD. */
static enum salvo_status read_code(struct reader *reader, uint32_t *out)
{
    uint32_t second;
    if (!read_unit(reader, out))
        return fail_json(reader, "four hexadecimal digits were expected");
    if (*out < 0xd800 || *out > 0xdfff)
        return SALVO_OK;
    const char *before = reader->at;
    bool first_half = *out < 0xdc00;
    if (first_half && reader->end - reader->at >= 6 && memcmp(reader->at, "\\u", 2) == 0) {
        reader->at += 2;
        if (read_unit(reader, &second) && second >= 0xdc00 && second <= 0xdfff) {
            *out = 0x10000 + ((*out & 0x3ff) << 10) + (second & 0x3ff);
            return SALVO_OK;
        }
    }
    reader->at = before;
    *out = 0xfffd;
    return SALVO_OK;
}

static enum salvo_status read_escape(struct reader *reader, struct text *text)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    enum salvo_status status = SALVO_OK;
    uint32_t code;
    int letter = peek(reader);
    const char *found = letter > 0 ? strchr(letters, letter) : NULL;
    reader->at += letter >= 0;
    if (letter == 'u') {
        TRY(read_code(reader, &code));
        TRY(text_char(text, code | CHAR_DATA));
    } else if (found) {
        TRY(text_char(text, (unsigned char)meanings[found - letters] | CHAR_DATA));
    } else {
        TRY(fail_json(reader, "an unknown escape"));
    }

cleanup:
    return status;
}

static enum salvo_status read_string(struct reader *reader, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct text text = {.heap = &reader->in->heap};
    reader->at++;
    while (peek(reader) != '"') {
        const char *begin = reader->at;
        while (peek(reader) >= 0x20 && peek(reader) != '"' && peek(reader) != '\\')
            reader->at++;
        TRY(text_utf8(&text, begin, (size_t)(reader->at - begin), CHAR_DATA));
        if (peek(reader) == '\\') {
            reader->at++;
            TRY(read_escape(reader, &text));
        } else if (peek(reader) != '"') {
            TRY(fail_json(
                reader, peek(reader) < 0 ? "a string is not ended" : "a control character in a string"));
        }
    }
    reader->at++;
    *out = value_string(text_take(&text));

cleanup:
    return status;
}

/* ---- Numbers and words ------------------------------------------------------------------------------- */

static bool skip_json_digits(struct reader *reader)
{
    const char *begin = reader->at;
    while (peek(reader) >= '0' && peek(reader) <= '9')
        reader->at++;
    return reader->at > begin;
}

static enum salvo_status read_number(struct reader *reader, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct text text = {.heap = &reader->in->heap};
    const char *begin = reader->at;
    bool whole = true;
    reader->at += peek(reader) == '-';
    const char *digits = reader->at;
    bool valid = skip_json_digits(reader) && !(digits[0] == '0' && reader->at - digits > 1);
    if (peek(reader) == '.') {
        reader->at++;
        whole = false;
        valid = skip_json_digits(reader) && valid;
    }
    if ((peek(reader) | 0x20) == 'e') {
        reader->at++;
        whole = false;
        reader->at += peek(reader) == '-' || peek(reader) == '+';
        valid = skip_json_digits(reader) && valid;
    }
    if (!valid)
        TRY(fail_json(reader, "a number is not written as JSON has it"));
    TRY(text_utf8(&text, begin, (size_t)(reader->at - begin), 0));
    int64_t integer;
    double number = 0;
    if (whole && parse_integer(text_take(&text), 10, &integer)) {
        *out = value_int(integer);
    } else {
        parse_float(text_take(&text), &number);
        *out = value_float(number);
    }

cleanup:
    return status;
}

static enum salvo_status read_word(struct reader *reader, struct value *out)
{
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t size = strlen(words[i]);
        if ((size_t)(reader->end - reader->at) >= size && memcmp(reader->at, words[i], size) == 0) {
            reader->at += size;
            *out = i == 2 ? value_none() : value_bool(i == 0);
            return SALVO_OK;
        }
    }
    return fail_json(reader, peek(reader) < 0 ? "it ends too early" : "a value was expected");
}

/* ---- Arrays and objects ------------------------------------------------------------------------------ */

static enum salvo_status read_value(struct reader *reader, struct value *out);

static enum salvo_status read_array(struct reader *reader, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    size_t capacity = 0;
    TRY(list_new(&reader->in->heap, LIST_LIST, 0, out));
    struct list *list = out->list;
    reader->at++;
    if (skip(reader, ']'))
        goto cleanup;
    do {
        if (list->count == capacity) {
            struct value *larger;
            capacity = capacity ? 2 * capacity : 8;
            TRY(HEAP_NEW(&reader->in->heap, &larger, capacity));
            if (list->count)
                memcpy(larger, list->items, list->count * sizeof *larger);
            list->items = larger;
        }
        TRY(read_value(reader, &list->items[list->count]));
        list->count++;
    } while (skip(reader, ','));
    if (!skip(reader, ']'))
        TRY(fail_json(reader, "',' or ']' was expected"));

cleanup:
    return status;
}

static enum salvo_status read_object(struct reader *reader, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    TRY(dict_new(&reader->in->heap, 0, out));
    struct dict *dict = out->dict;
    reader->at++;
    if (skip(reader, '}'))
        goto cleanup;
    do {
        struct value key, value;
        skip_blanks(reader);
        if (peek(reader) != '"')
            TRY(fail_json(reader, "a name in quotes was expected"));
        TRY(read_string(reader, &key));
        if (!skip(reader, ':'))
            TRY(fail_json(reader, "':' was expected"));
        TRY(read_value(reader, &value));
        TRY(dict_set(reader->in, dict, key, value));
    } while (skip(reader, ','));
    if (!skip(reader, '}'))
        TRY(fail_json(reader, "',' or '}' was expected"));

cleanup:
    return status;
}

static enum salvo_status read_value(struct reader *reader, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    TRY(enter(reader->in));
    skip_blanks(reader);
    int next = peek(reader);
    if (next == '"')
        TRY(read_string(reader, out));
    else if (next == '[')
        TRY(read_array(reader, out));
    else if (next == '{')
        TRY(read_object(reader, out));
    else if (next == '-' || (next >= '0' && next <= '9'))
        TRY(read_number(reader, out));
    else
        TRY(read_word(reader, out));
    out->data = true;

cleanup:
    leave(reader->in);
    return status;
}

enum salvo_status json_read(struct interpreter *in, const char *json, size_t size, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct reader reader = {in, json, json, json + size};
    *out = value_none();
    TRY(read_value(&reader, out));
    skip_blanks(&reader);
    if (reader.at != reader.end)
        TRY(fail_json(&reader, "something follows the value"));

cleanup:
    return status;
}
