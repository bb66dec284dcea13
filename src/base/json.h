/*
 * JSON (RFC 8259): a reader that gives events and takes its input in pieces of any size, and a writer.
 *
 * The reader accepts exactly one value of strict JSON in UTF-8: no byte order mark, comments, trailing
 * commas, NaN or unpaired surrogates. It allocates memory for one string or number at a time and none for
 * nesting. Objects may repeat a key; the caller gets every pair, in the order of the document.
 */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include "base/buffer.h"

enum { JSON_MAX_DEPTH = 512 };

/* ---- Reader ---- */

enum json_kind {
    JSON_MORE, /* the input so far is used up: call json_reader_feed */
    JSON_DONE, /* the document is complete */
    JSON_NULL,
    JSON_FALSE,
    JSON_TRUE,
    JSON_INTEGER, /* without fraction and exponent, and in the range of int64_t */
    JSON_NUMBER,  /* any other number */
    JSON_STRING,
    JSON_KEY, /* of an object; its value follows */
    JSON_ARRAY_BEGIN,
    JSON_ARRAY_END,
    JSON_OBJECT_BEGIN,
    JSON_OBJECT_END,
};

struct json_event {
    enum json_kind kind;
    int64_t integer; /* JSON_INTEGER */
    double number;   /* JSON_INTEGER and JSON_NUMBER */
    /* JSON_STRING, JSON_KEY: decoded UTF-8, which may contain NUL; numbers: as written. Valid until the next
     * call with the reader. */
    struct salvo_text text;
};

struct json_reader {
    size_t longest; /* longest string in bytes, set by the caller; a longer one is an error */

    const char *at, *end; /* the rest of the current piece */
    bool last;            /* no piece follows */
    int state;
    size_t offset, line, line_offset; /* of `end`; of the current line */
    size_t depth;
    uint8_t in_object[JSON_MAX_DEPTH / 8]; /* a bit for each level */
    struct buffer text;                    /* of the current string, number or literal */
    bool is_key;
    unsigned hex_digits;           /* that are read of \uXXXX */
    uint32_t unit, surrogate;      /* the value of these; a first surrogate that waits for the second */
    uint8_t rest, lowest, highest; /* continuation bytes that are missing, and the range of the next one */
    char error[112];
};

/*
 * A reader begins as {.longest = ...}. After each JSON_MORE the caller feeds the next piece, which must stay
 * in place until json_reader_next asks for more; `last` says that no other follows. A failed reader repeats
 * its error. Errors are SALVO_ERROR_ARGUMENT and name line and column, counted in bytes from 1.
 */
void json_reader_feed(struct json_reader *reader, const char *data, size_t size, bool last);
enum salvo_status json_reader_next(struct json_reader *reader, struct json_event *out);
void json_reader_free(struct json_reader *reader);

/* ---- Writer ---- */

/*
 * Writes values through `write`, with commas, escapes and indentation. After a failed `write` nothing more is
 * written and `status` tells. Members that are zero: compact JSON in UTF-8.
 */
struct json_writer {
    enum salvo_status (*write)(void *user, const char *data, size_t size);
    void *user;
    const char *item_separator, *key_separator; /* NULL: "," and ":" */
    const char *indent;                         /* one level of it; NULL: all on one line */
    bool ascii;                                 /* escape characters beyond ASCII */

    enum salvo_status status;
    bool need_comma, first; /* first: the array or object is empty so far */
    size_t depth;
};

void json_begin(struct json_writer *writer, char bracket); /* '{' or '[' */
void json_end(struct json_writer *writer, char bracket);   /* '}' or ']' */

void json_key(struct json_writer *writer, const char *key);
void json_key_text(struct json_writer *writer, struct salvo_text key);

void json_string(struct json_writer *writer, const char *text);
void json_text(struct json_writer *writer, struct salvo_text text); /* invalid bytes become U+FFFD */
void json_unsigned(struct json_writer *writer, uint64_t number);
void json_signed(struct json_writer *writer, int64_t number);
void json_float(struct json_writer *writer, double number, bool single); /* null when not finite */
void json_bool(struct json_writer *writer, bool value);
void json_null(struct json_writer *writer);

/* A value that is JSON already. */
void json_raw(struct json_writer *writer, const char *value);

/* A string in parts: each part has whole characters. `is_key` as for json_key. */
void json_string_begin(struct json_writer *writer);
void json_string_part(struct json_writer *writer, struct salvo_text part);
void json_string_end(struct json_writer *writer, bool is_key);

#endif
