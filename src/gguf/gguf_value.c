#include "gguf/gguf_value.h"

#include <string.h>
#include <utf8proc.h>

/* Encoding of a type: `size` is the bytes of one value, or the minimum if values vary in size. */
static const struct type_info {
    const char *name;
    uint8_t size;
    bool fixed;
} types[] = {
    [SALVO_U8] = {"U8", 1, true},
    [SALVO_I8] = {"I8", 1, true},
    [SALVO_U16] = {"U16", 2, true},
    [SALVO_I16] = {"I16", 2, true},
    [SALVO_U32] = {"U32", 4, true},
    [SALVO_I32] = {"I32", 4, true},
    [SALVO_F32] = {"F32", 4, true},
    [SALVO_BOOL] = {"BOOL", 1, true},
    [SALVO_STRING] = {"STRING", 8, false},
    [SALVO_ARRAY] = {"ARRAY", 12, false},
    [SALVO_U64] = {"U64", 8, true},
    [SALVO_I64] = {"I64", 8, true},
    [SALVO_F64] = {"F64", 8, true},
};

static const uint32_t type_count = sizeof types / sizeof *types;

const char *gguf_type_name(uint32_t type)
{
    return type < type_count ? types[type].name : "unknown";
}

int gguf_shown_size(struct salvo_text text)
{
    enum { MOST = 128 };
    if (text.size <= MOST)
        return (int)text.size;
    int size = MOST;
    while (size > MOST - 4 && ((uint8_t)text.data[size] & 0xc0) == 0x80) /* inside a character */
        size--;
    return size;
}

/* ---- Text ---- */

enum salvo_status gguf_take_text(struct cursor *cursor, const char *what, struct salvo_text *out)
{
    uint64_t size;
    const uint8_t *bytes;
    if (!take_u64(cursor, &size)) {
        return fail(SALVO_ERROR_FORMAT,
            "the length of %s takes 8 bytes, but the file ends after %zu" GGUF_CUT, what,
            cursor_left(cursor));
    }
    if (!take_bytes(cursor, size, &bytes))
        return fail(SALVO_ERROR_FORMAT, "%s claims %llu bytes, but the file ends after %zu" GGUF_CUT, what,
            (unsigned long long)size, cursor_left(cursor));
    *out = (struct salvo_text){(const char *)bytes, (size_t)size};
    return SALVO_OK;
}

static enum salvo_status check_utf8(struct salvo_text text, const char *what)
{
    const uint8_t *bytes = (const uint8_t *)text.data;
    for (size_t at = 0; at < text.size;) {
        if (bytes[at] < 0x80) {
            at++;
            continue;
        }
        utf8proc_int32_t character;
        /* The longest character has four bytes; the small window also keeps the size within its signed
         * type. */
        size_t window = text.size - at < 4 ? text.size - at : 4;
        utf8proc_ssize_t used = utf8proc_iterate(bytes + at, (utf8proc_ssize_t)window, &character);
        if (used <= 0)
            return fail(SALVO_ERROR_FORMAT, "%s is not UTF-8: byte %zu of %zu is 0x%02x", what, at, text.size,
                bytes[at]);
        at += (size_t)used;
    }
    return SALVO_OK;
}

enum salvo_status gguf_check_text(struct salvo_text text, const char *what)
{
    const char *nul = text.size ? memchr(text.data, 0, text.size) : NULL;
    if (nul)
        return fail(SALVO_ERROR_FORMAT, "%s contains a NUL at byte %zu of %zu", what,
            (size_t)(nul - text.data), text.size);
    return check_utf8(text, what);
}

/* ---- Reading ---- */

/* Sign-extends a two's complement number, given its highest bit. */
static int64_t to_signed(uint64_t bits, uint64_t highest)
{
    return (int64_t)((bits ^ highest) - highest);
}

/* A value of a fixed size; `bytes` holds all of it. A BOOL has been checked. */
static void decode_number(const uint8_t *bytes, enum salvo_type type, struct salvo_value *out)
{
    uint64_t bits = load_unsigned(bytes, types[type].size);
    *out = (struct salvo_value){.type = type};
    switch (type) {
    case SALVO_I8:
        out->i = to_signed(bits, 0x80);
        break;
    case SALVO_I16:
        out->i = to_signed(bits, 0x8000);
        break;
    case SALVO_I32:
        out->i = to_signed(bits, 0x80000000);
        break;
    case SALVO_I64:
        out->i = to_signed(bits, (uint64_t)1 << 63);
        break;
    case SALVO_F32: {
        float value;
        uint32_t bits32 = (uint32_t)bits;
        memcpy(&value, &bits32, sizeof value);
        out->f = (double)value;
        break;
    }
    case SALVO_F64:
        memcpy(&out->f, &bits, sizeof out->f);
        break;
    case SALVO_BOOL:
        out->b = bits != 0;
        break;
    default:
        out->u = bits;
    }
}

static enum salvo_status take_array(struct cursor *cursor, int depth, struct salvo_value *out);

/* A value outside or inside an array; `depth` is how many arrays are around it. */
static enum salvo_status take_item(
    struct cursor *cursor, enum salvo_type type, int depth, struct salvo_value *out)
{
    enum salvo_status status = SALVO_OK;
    const uint8_t *bytes;
    *out = (struct salvo_value){.type = type};
    if (type == SALVO_ARRAY) {
        TRY(take_array(cursor, depth + 1, out));
    } else if (type == SALVO_STRING) {
        TRY(gguf_take_text(cursor, "the text", &out->text));
        TRY(check_utf8(out->text, "the text"));
    } else {
        if (!take_bytes(cursor, types[type].size, &bytes)) {
            TRY(fail(SALVO_ERROR_FORMAT,
                "a value of type %s takes %u bytes, but the file ends after %zu" GGUF_CUT, types[type].name,
                types[type].size, cursor_left(cursor)));
        }
        if (type == SALVO_BOOL && bytes[0] > 1)
            TRY(fail(SALVO_ERROR_FORMAT, "a BOOL is %u, it must be 0 or 1", bytes[0]));
        decode_number(bytes, type, out);
    }

cleanup:
    return status;
}

static enum salvo_status take_array(struct cursor *cursor, int depth, struct salvo_value *out)
{
    enum salvo_status status = SALVO_OK;
    uint32_t type;
    uint64_t count;
    if (depth > GGUF_MAX_DEPTH)
        TRY(fail(SALVO_ERROR_FORMAT, "arrays are nested %d deep, at most %d levels are allowed", depth,
            GGUF_MAX_DEPTH));
    if (!take_u32(cursor, &type) || !take_u64(cursor, &count))
        TRY(fail(SALVO_ERROR_FORMAT, "an array begins with %u bytes, but the file ends after %zu" GGUF_CUT,
            types[SALVO_ARRAY].size, cursor_left(cursor)));
    if (type >= type_count)
        TRY(fail(SALVO_ERROR_FORMAT, "the array has items of type %u, the last known type is %u", type,
            type_count - 1));
    if (count > cursor_left(cursor) / types[type].size) {
        TRY(fail(SALVO_ERROR_FORMAT,
            "the array claims %llu items of %s%u bytes, but the file ends after %zu" GGUF_CUT,
            (unsigned long long)count, types[type].fixed ? "" : "at least ", types[type].size,
            cursor_left(cursor)));
    }
    out->array.type = type;
    out->array.count = count;
    const uint8_t *begin = cursor->at;
    if (types[type].fixed && type != SALVO_BOOL) {
        cursor->at += (size_t)count * types[type].size; /* every byte pattern is valid */
    } else {
        struct salvo_value item;
        for (uint64_t i = 0; i < count; i++) {
            status = take_item(cursor, type, depth, &item);
            if (status != SALVO_OK)
                TRY(fail_within(
                    status, "item %llu of %llu: ", (unsigned long long)i, (unsigned long long)count));
        }
    }
    out->array.bytes = (struct salvo_text){(const char *)begin, (size_t)(cursor->at - begin)};

cleanup:
    return status;
}

enum salvo_status gguf_take_value(struct cursor *cursor, uint32_t type, struct salvo_value *out)
{
    if (type >= type_count)
        return fail(
            SALVO_ERROR_FORMAT, "the value has type %u, the last known type is %u", type, type_count - 1);
    enum salvo_status status = take_item(cursor, type, 0, out);
    /* Texts in arrays may contain NUL, since U+0000 is a token of some vocabularies; single texts may not. */
    return status == SALVO_OK && type == SALVO_STRING ? gguf_check_text(out->text, "the text") : status;
}

bool salvo_array_next(struct salvo_value *array, struct salvo_value *out_item)
{
    if (out_item)
        *out_item = (struct salvo_value){0};
    if (!array || !out_item || array->type != SALVO_ARRAY || array->array.count == 0)
        return false;
    /*
     * The array was checked when the file was opened. Its items are checked again, since another program may
     * have changed the mapped file meanwhile.
     */
    const struct salvo_text bytes = array->array.bytes;
    const uint8_t *begin = (const uint8_t *)bytes.data;
    struct cursor cursor = {begin, begin + bytes.size};
    if (take_item(&cursor, array->array.type, 1, out_item) != SALVO_OK) {
        array->array.count = 0;
        return false;
    }
    const size_t taken = (size_t)(cursor.at - begin);
    array->array.bytes = (struct salvo_text){bytes.data + taken, bytes.size - taken};
    array->array.count--;
    return true;
}

/* ---- Writing ---- */

enum salvo_status gguf_append_unsigned(struct buffer *buffer, uint64_t value, size_t width)
{
    uint8_t bytes[8];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
    return buffer_append(buffer, bytes, width);
}

enum salvo_status gguf_append_text(struct buffer *buffer, struct salvo_text text)
{
    enum salvo_status status = gguf_append_unsigned(buffer, text.size, 8);
    return status == SALVO_OK ? buffer_append(buffer, text.data, text.size) : status;
}

static uint64_t encode_number(const struct salvo_value *value)
{
    uint64_t bits;
    switch (value->type) {
    case SALVO_I8:
    case SALVO_I16:
    case SALVO_I32:
    case SALVO_I64:
        return (uint64_t)value->i;
    case SALVO_F32: {
        float narrow = (float)value->f;
        uint32_t bits32;
        memcpy(&bits32, &narrow, sizeof bits32);
        return bits32;
    }
    case SALVO_F64:
        memcpy(&bits, &value->f, sizeof bits);
        return bits;
    case SALVO_BOOL:
        return value->b;
    default:
        return value->u;
    }
}

enum salvo_status gguf_append_value(struct buffer *buffer, const struct salvo_value *value)
{
    enum salvo_status status = SALVO_OK;
    if ((uint32_t)value->type >= type_count)
        TRY(fail(SALVO_ERROR_ARGUMENT, "the value has type %u, the last known type is %u",
            (uint32_t)value->type, type_count - 1));
    if (value->type == SALVO_STRING) {
        TRY(gguf_append_text(buffer, value->text));
    } else if (value->type == SALVO_ARRAY) {
        TRY(gguf_append_unsigned(buffer, value->array.type, 4));
        TRY(gguf_append_unsigned(buffer, value->array.count, 8));
        TRY(buffer_append(buffer, value->array.bytes.data, value->array.bytes.size));
    } else {
        TRY(gguf_append_unsigned(buffer, encode_number(value), types[value->type].size));
    }

cleanup:
    return status;
}
