/*
 * The values of templates: a subset of Python's types. All memory is in the arena of one parse or one
 * rendering. Values are immutable, except namespaces.
 *
 * A string is an array of characters, each a code point with a mark for its origin: the template, or the
 * data. All operations move whole characters, so none can lose the mark; the tokenizer uses it to keep user
 * text from becoming control tokens. An invalid UTF-8 byte is a character of its own, 0xdc80 + byte - 0x80,
 * and is written unchanged.
 */
#ifndef TEXT_JINJA_VALUE_H
#define TEXT_JINJA_VALUE_H

#include "base/arena.h"

/* ---- Memory ---- */

/* An arena with a limit, because templates come from files that are not trusted. */
struct heap {
    struct arena arena;
    size_t left; /* bytes */
};

/* HEAP_NEW(heap, &pointer, count): zeroed. */
#define HEAP_NEW(heap, out, count) heap_new((heap), (out), (count), sizeof **(out))

enum salvo_status heap_new(struct heap *heap, void *out_pointer, size_t count, size_t size);

/* ---- Strings ---- */

#define CHAR_DATA         0x80000000u /* the mark of characters that came from the data */
#define CHAR_CODE(marked) ((marked)&0x7fffffffu)

struct string {
    const uint32_t *chars;
    size_t size;
};

/* Characters that grow. All zeros but the heap is empty and ready. */
struct text {
    struct heap *heap;
    uint32_t *chars;
    size_t size, capacity;
};

enum salvo_status text_reserve(struct text *text, size_t more);
enum salvo_status text_char(struct text *text, uint32_t character);
enum salvo_status text_string(struct text *text, struct string string);
enum salvo_status text_repeat(struct text *text, uint32_t character, size_t count);

/* ASCII and UTF-8; `mark` is 0 or CHAR_DATA. */
enum salvo_status text_ascii(struct text *text, const char *ascii, uint32_t mark);
enum salvo_status text_utf8(struct text *text, const char *bytes, size_t size, uint32_t mark);
struct string text_take(const struct text *text);

struct string string_part(struct string string, size_t begin, size_t end);
bool string_equal(struct string left, struct string right); /* ignores the marks */
bool string_is(struct string string, const char *ascii);
int string_compare(struct string left, struct string right);
bool string_starts(struct string string, struct string prefix);
bool string_ends(struct string string, struct string suffix);

/* The first place of `part` at or after `from`; SIZE_MAX when there is none. */
size_t string_find(struct string string, struct string part, size_t from);
size_t string_find_last(struct string string, struct string part, size_t before);

/* CHAR_DATA if any character is marked. */
uint32_t string_mark(struct string string);

/* Truncated to `room`, for error messages. */
const char *string_show(struct string string, char *out, size_t room);

/* Bytes of one character, at most 4; returns how many. */
size_t char_encode(uint32_t character, char *out);

/* As Python's str.isspace and others see them. */
bool char_is_space(uint32_t character);
bool char_is_line_end(uint32_t character);
bool char_is_printable(uint32_t character);
bool char_is_word(uint32_t character); /* letters, digits and "_" */
bool char_is_alpha(uint32_t character);
bool char_is_decimal(uint32_t character);
bool char_is_upper(uint32_t character);
bool char_is_lower(uint32_t character);
bool char_is_title(uint32_t character);

/* ---- Values ---- */

enum value_kind {
    VALUE_ABSENT, /* an argument that was not given */
    VALUE_UNDEFINED,
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_FLOAT,
    VALUE_STRING,
    VALUE_LIST,
    VALUE_DICT,
    VALUE_NAMESPACE,
    VALUE_FUNCTION,
    VALUE_OBJECT,
};

/* Why a value is undefined. */
enum undefined_reason {
    UNDEFINED_VARIABLE,  /* `name` was never set */
    UNDEFINED_MEMBER,    /* nothing has a member `name` */
    UNDEFINED_UNSAFE,    /* a member that would change its object */
    UNDEFINED_PARAMETER, /* `name` was not given to a macro */
    UNDEFINED_EMPTY,     /* an item of an empty sequence */
    UNDEFINED_ELSE,      /* `a if b` without else */
};

/* The Python types that are a row of items. */
enum list_kind { LIST_LIST, LIST_TUPLE, LIST_RANGE, LIST_KEYS, LIST_VALUES, LIST_ITEMS, LIST_GENERATOR };

struct list;
struct dict;
struct function;
struct object;

struct value {
    uint8_t kind;   /* enum value_kind */
    uint8_t reason; /* enum undefined_reason */
    bool data;      /* a number, boolean or none from the data */
    bool markup;    /* a string that was escaped, or called safe */
    union {
        bool boolean;
        int64_t integer;
        double number;
        struct string string; /* also the name of what is undefined */
        struct list *list;
        struct dict *dict; /* also a namespace */
        const struct function *function;
        struct object *object;
    };
};

struct list {
    enum list_kind kind;
    bool group;          /* a tuple of groupby: its items have names */
    bool own;            /* written in the template: list_changes.c may change it */
    struct value *items; /* [count] */
    size_t count, taken; /* taken: from a generator */
    int64_t begin, end, step;
};

struct pair {
    struct value key, value;
};

struct dict {
    struct pair *pairs;
    size_t count, capacity;
};

/*
 * A macro, the variable `loop`, a cycler or a joiner: a struct that begins with this one. Expressions call
 * its functions through pointers, because some of them run statements, which contain expressions.
 */
struct object {
    const struct object_type *type;
};

struct interpreter;
struct arguments;

struct object_type {
    const char *name; /* of the type in Python */
    bool iterable;
    /* NULL: such objects cannot be called, have no attributes, are written as "<name>". */
    enum salvo_status (*call)(
        struct interpreter *in, struct object *self, const struct arguments *arguments, struct value *out);
    enum salvo_status (*attribute)(
        struct interpreter *in, struct object *self, struct string name, struct value *out);
    enum salvo_status (*write)(struct interpreter *in, const struct object *self, struct text *text);
};

static inline struct value value_none(void)
{
    return (struct value){.kind = VALUE_NONE};
}

static inline struct value value_bool(bool boolean)
{
    return (struct value){.kind = VALUE_BOOL, .boolean = boolean};
}

static inline struct value value_int(int64_t integer)
{
    return (struct value){.kind = VALUE_INT, .integer = integer};
}

static inline struct value value_float(double number)
{
    return (struct value){.kind = VALUE_FLOAT, .number = number};
}

static inline struct value value_string(struct string string)
{
    return (struct value){.kind = VALUE_STRING, .string = string};
}

static inline struct value value_object(struct object *object)
{
    return (struct value){.kind = VALUE_OBJECT, .object = object};
}

static inline struct value value_undefined(enum undefined_reason reason, struct string name)
{
    return (struct value){.kind = VALUE_UNDEFINED, .reason = (uint8_t)reason, .string = name};
}

static inline uint32_t value_mark(const struct value *value)
{
    return value->data ? CHAR_DATA : 0;
}

static inline bool value_is_list(const struct value *value, enum list_kind kind)
{
    return value->kind == VALUE_LIST && value->list->kind == kind;
}

/* A bool counts as a number, as in Python. */
static inline bool value_is_integral(const struct value *value)
{
    return value->kind == VALUE_INT || value->kind == VALUE_BOOL;
}

static inline bool value_is_number(const struct value *value)
{
    return value_is_integral(value) || value->kind == VALUE_FLOAT;
}

static inline int64_t value_integer(const struct value *value)
{
    return value->kind == VALUE_BOOL ? value->boolean : value->integer;
}

static inline double value_number(const struct value *value)
{
    return value->kind == VALUE_FLOAT ? value->number : (double)value_integer(value);
}

/* A row with room for `count` items, whose count is 0. */
enum salvo_status list_new(struct heap *heap, enum list_kind kind, size_t count, struct value *out);
enum salvo_status dict_new(struct heap *heap, size_t capacity, struct value *out);

/* The name of the type in Python. */
const char *value_type(const struct value *value);

#endif
