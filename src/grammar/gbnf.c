#include "base/memory.h"
#include "base/string_map.h"
#include "grammar/readers.h"

#include <string.h>

struct gbnf_reader {
    const char *text, *at, *end;
    struct rule_list *rules;
    struct expr_pool *pool;
    struct string_map names;
    const char **first_use; /* [rules] where each rule is named first */
    size_t first_use_capacity;
    unsigned depth;
};

/* Keeps the first error; always returns the expression that matches nothing. */
static const struct expr *complain(
    struct gbnf_reader *reader, const char *place, const char *message, struct salvo_text name)
{
    size_t line = 1, column = 1;
    if (reader->pool->status != SALVO_OK)
        return expr_none();
    for (const char *at = reader->text; at < place; at++) {
        column = *at == '\n' ? 1 : column + 1;
        line += *at == '\n';
    }
    int size = name.size > 60 ? 60 : (int)name.size;
    reader->pool->status = fail(SALVO_ERROR_ARGUMENT, "grammar: line %zu, column %zu: %s%s%.*s%s", line,
        column, message, size ? " '" : "", size, name.data ? name.data : "", size ? "'" : "");
    return expr_none();
}

static const struct expr *complain_here(struct gbnf_reader *reader, const char *message)
{
    return complain(reader, reader->at, message, (struct salvo_text){0});
}

static bool ok(const struct gbnf_reader *reader)
{
    return reader->pool->status == SALVO_OK;
}

static int peek(const struct gbnf_reader *reader)
{
    return reader->at < reader->end ? (unsigned char)*reader->at : -1;
}

static bool is_word(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/* Skips blanks and comments, and with `lines` line ends too. */
static void skip_space(struct gbnf_reader *reader, bool lines)
{
    for (;;) {
        int c = peek(reader);
        if (c == '#') {
            while (peek(reader) != -1 && peek(reader) != '\n' && peek(reader) != '\r')
                reader->at++;
        } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
            reader->at++;
        } else {
            return;
        }
    }
}

static struct salvo_text read_name(struct gbnf_reader *reader)
{
    struct salvo_text name = {reader->at, 0};
    while (is_word(peek(reader)))
        reader->at++;
    name.size = (size_t)(reader->at - name.data);
    return name;
}

static uint32_t rule_number(struct gbnf_reader *reader, struct salvo_text name)
{
    uint32_t number = 0;
    if (ok(reader))
        reader->pool->status =
            string_map_add(&reader->names, name.data, name.size, (uint32_t)reader->rules->count, &number);
    if (!ok(reader) || number < reader->rules->count)
        return number;
    rule_list_add(reader->rules, NULL);
    if (ok(reader) && reader->rules->count > reader->first_use_capacity) {
        size_t capacity = reader->rules->capacity;
        reader->pool->status = RESIZE(&reader->first_use, capacity);
        if (!ok(reader))
            return 0;
        reader->first_use_capacity = capacity;
    }
    if (ok(reader))
        reader->first_use[number] = name.data;
    return number;
}

static uint32_t read_hex(struct gbnf_reader *reader, unsigned digits)
{
    uint32_t value = 0;
    for (unsigned i = 0; i < digits; i++) {
        int c = peek(reader);
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) {
            complain_here(reader, "a hexadecimal digit is expected");
            return 0;
        }
        value = value << 4 | (uint32_t)digit;
        reader->at++;
    }
    return value;
}

static uint32_t read_escape(struct gbnf_reader *reader)
{
    const char *start = reader->at++;
    int c = peek(reader);
    uint32_t value = 0;
    if (c != -1)
        reader->at++;
    switch (c) {
    case 'x':
        return read_hex(reader, 2);
    case 'u':
    case 'U':
        value = read_hex(reader, c == 'u' ? 4 : 8);
        if (value > UNICODE_LAST || (value >= 0xD800 && value <= 0xDFFF))
            complain(reader, start, "this number is no Unicode character", (struct salvo_text){0});
        return value;
    case 't':
        return '\t';
    case 'r':
        return '\r';
    case 'n':
        return '\n';
    case '\\':
    case '"':
    case '[':
    case ']':
    case '-':
    case '/':
    case '^':
        return (uint32_t)c;
    default:
        complain(reader, start, "unknown escape", (struct salvo_text){start, c == -1 ? 1 : 2});
        return 0;
    }
}

/* One character of a literal or a class. */
static uint32_t read_char(struct gbnf_reader *reader)
{
    uint32_t character = 0;
    if (peek(reader) == '\\')
        return read_escape(reader);
    size_t size = utf8_read(reader->at, (size_t)(reader->end - reader->at), &character);
    if (size == 0)
        complain_here(reader, "invalid UTF-8");
    reader->at += size;
    return character;
}

static const struct expr *read_literal(struct gbnf_reader *reader)
{
    const char *start = reader->at++;
    char small[256], *bytes = small;
    size_t size = 0;
    const char *end = reader->at;
    while (end < reader->end && *end != '"')
        end += *end == '\\' && end + 1 < reader->end ? 2 : 1;
    /* No escape is shorter than the bytes it stands for, except that \xHH beyond 7F takes 2. */
    if ((size_t)(end - start) > sizeof small && ok(reader))
        bytes = expr_pool_new(reader->pool, (size_t)(end - start));
    while (ok(reader) && peek(reader) != '"') {
        if (peek(reader) == -1)
            return complain(reader, start, "the literal has no end", (struct salvo_text){0});
        size += utf8_write(read_char(reader), bytes + size);
    }
    if (!ok(reader))
        return expr_none();
    reader->at++;
    return expr_literal(reader->pool, bytes, size);
}

static const struct expr *read_class(struct gbnf_reader *reader)
{
    const char *start = reader->at++;
    struct charset set = {0};
    bool inverted = peek(reader) == '^';
    reader->at += inverted;
    while (ok(reader) && peek(reader) != ']') {
        if (peek(reader) == -1) {
            complain(reader, start, "the class has no end", (struct salvo_text){0});
            break;
        }
        const char *place = reader->at;
        uint32_t first = read_char(reader), last = first;
        if (ok(reader) && peek(reader) == '-' && reader->at + 1 < reader->end && reader->at[1] != ']') {
            reader->at++;
            last = read_char(reader);
            if (last < first)
                complain(reader, place, "the range ends before it begins", (struct salvo_text){0});
        }
        charset_add(reader->pool, &set, first, last);
    }
    if (ok(reader) && set.count == 0)
        complain(reader, start, "the class is empty", (struct salvo_text){0});
    reader->at++;
    if (inverted && ok(reader))
        charset_invert(reader->pool, &set);
    const struct expr *expr = ok(reader) ? charset_expr(reader->pool, &set, SPELL_UTF8) : expr_none();
    charset_free(&set);
    return expr;
}

static uint32_t read_count(struct gbnf_reader *reader)
{
    const char *start = reader->at;
    uint64_t value = 0;
    while (peek(reader) >= '0' && peek(reader) <= '9') {
        value = value * 10 + (uint64_t)(peek(reader) - '0');
        if (value > EXPR_MAX_REPEAT) {
            complain(
                reader, start, "too many repetitions: at most 100000 are possible", (struct salvo_text){0});
            return 0;
        }
        reader->at++;
    }
    if (reader->at == start)
        complain_here(reader, "a number is expected");
    return (uint32_t)value;
}

static const struct expr *read_braces(struct gbnf_reader *reader, const struct expr *item, bool nested)
{
    const char *start = reader->at++;
    uint32_t min = 0, max;
    skip_space(reader, nested);
    if (peek(reader) != ',')
        min = read_count(reader);
    max = min;
    skip_space(reader, nested);
    if (ok(reader) && peek(reader) == ',') {
        reader->at++;
        skip_space(reader, nested);
        max = peek(reader) >= '0' && peek(reader) <= '9' ? read_count(reader) : REPEAT_UNLIMITED;
        skip_space(reader, nested);
    }
    if (ok(reader) && peek(reader) != '}')
        return complain_here(reader, "'}' is expected");
    reader->at++;
    if (max < min)
        return complain(
            reader, start, "the largest number of repetitions is below the smallest", (struct salvo_text){0});
    return expr_repeat(reader->pool, item, min, max);
}

/* The end of a JSON object or word; NULL: there is none. */
static const char *json_end_of(const char *at, const char *end)
{
    size_t depth = 0;
    bool in_string = false;
    for (; at < end; at++) {
        if (in_string) {
            in_string = *at != '"';
            at += *at == '\\' && at + 1 < end;
        } else if (*at == '{' || *at == '[') {
            depth++;
        } else if (*at == '}' || *at == ']') {
            if (depth <= 1)
                return depth ? at + 1 : NULL;
            depth--;
        } else if (*at == '"') {
            in_string = true;
        } else if (depth == 0 && !is_word((unsigned char)*at)) {
            return at;
        }
    }
    return depth ? NULL : at;
}

/* %json and a schema. */
static const struct expr *read_schema(struct gbnf_reader *reader)
{
    static const char word[] = "%json";
    const char *start = reader->at;
    const size_t size = sizeof word - 1;
    if ((size_t)(reader->end - start) < size || memcmp(start, word, size) != 0)
        return complain_here(reader, "unexpected character");
    reader->at += size;
    skip_space(reader, true);
    const char *schema = reader->at, *end = json_end_of(schema, reader->end);
    if (!end || end == schema)
        return complain(reader, start, "a JSON Schema is expected after %json", (struct salvo_text){0});
    reader->at = end;
    const struct expr *expr = schema_rules(reader->rules, schema, (size_t)(end - schema), false);
    if (!ok(reader)) {
        size_t line = 1;
        for (const char *at = reader->text; at < start; at++)
            line += *at == '\n';
        fail_within(reader->pool->status, "grammar: line %zu: ", line);
    }
    return expr;
}

static const struct expr *read_alternatives(struct gbnf_reader *reader, bool nested);

static const struct expr *read_group(struct gbnf_reader *reader)
{
    const char *start = reader->at++;
    if (++reader->depth > READER_MAX_DEPTH)
        return complain(reader, start, "groups are nested too deep: at most 250 levels are possible",
            (struct salvo_text){0});
    skip_space(reader, true);
    const struct expr *expr = read_alternatives(reader, true);
    reader->depth--;
    if (ok(reader) && peek(reader) != ')')
        return complain_here(reader, peek(reader) == -1 ? "the group has no ')'" : "unexpected character");
    reader->at++;
    return expr;
}

static const struct expr *read_sequence(struct gbnf_reader *reader, bool nested)
{
    struct expr_list list = {0};
    bool more = true;
    while (ok(reader) && more) {
        int c = peek(reader);
        const struct expr *expr = NULL;
        bool repeats = c == '*' || c == '+' || c == '?' || c == '{';
        if (repeats && list.count == 0) {
            complain_here(reader, "there is nothing to repeat before this");
        } else if (repeats) {
            const struct expr **last = &list.items[list.count - 1];
            if (c == '{')
                *last = read_braces(reader, *last, nested);
            else
                *last = expr_repeat(reader->pool, *last, c == '+', c == '?' ? 1 : REPEAT_UNLIMITED);
            reader->at += c != '{';
        } else if (c == '"') {
            expr = read_literal(reader);
        } else if (c == '[') {
            expr = read_class(reader);
        } else if (c == '(') {
            expr = read_group(reader);
        } else if (c == '.') {
            struct char_range all = {0, UNICODE_LAST};
            expr = charset_expr(reader->pool, &(struct charset){&all, 1, 1}, SPELL_UTF8);
            reader->at++;
        } else if (is_word(c)) {
            expr = expr_rule(reader->pool, rule_number(reader, read_name(reader)));
        } else if (c == '%') {
            expr = read_schema(reader);
        } else if (c == '<' || c == '!') {
            complain_here(reader, "tokens by name or number are not supported");
        } else {
            more = false;
        }
        if (expr)
            expr_list_add(reader->pool, &list, expr);
        if (more && ok(reader))
            skip_space(reader, nested);
    }
    const struct expr *sequence =
        ok(reader) ? expr_sequence(reader->pool, list.items, list.count) : expr_none();
    expr_list_free(&list);
    return sequence;
}

static const struct expr *read_alternatives(struct gbnf_reader *reader, bool nested)
{
    struct expr_list list = {0};
    expr_list_add(reader->pool, &list, read_sequence(reader, nested));
    while (ok(reader) && peek(reader) == '|') {
        reader->at++;
        skip_space(reader, true);
        expr_list_add(reader->pool, &list, read_sequence(reader, nested));
    }
    const struct expr *either = ok(reader) ? expr_either(reader->pool, list.items, list.count) : expr_none();
    expr_list_free(&list);
    return either;
}

static void read_rule(struct gbnf_reader *reader)
{
    struct salvo_text name = read_name(reader);
    if (name.size == 0) {
        complain_here(reader, "the name of a rule is expected");
        return;
    }
    uint32_t number = rule_number(reader, name);
    if (ok(reader) && reader->rules->items[number])
        complain(reader, name.data, "there already is a rule", name);
    skip_space(reader, false);
    if (ok(reader) && (reader->end - reader->at < 3 || memcmp(reader->at, "::=", 3) != 0)) {
        complain_here(reader, "'::=' is expected");
        return;
    }
    reader->at += 3;
    skip_space(reader, true);
    const struct expr *expr = read_alternatives(reader, false);
    if (!ok(reader))
        return;
    reader->rules->items[number] = expr;
    if (peek(reader) != -1 && peek(reader) != '\n' && peek(reader) != '\r')
        complain_here(reader, "unexpected character");
    skip_space(reader, true);
}

static size_t count_words(const char *text, size_t size)
{
    size_t count = 0;
    for (size_t i = 0; i < size; i++)
        count += is_word((unsigned char)text[i]) && (i == 0 || !is_word((unsigned char)text[i - 1]));
    return count;
}

enum salvo_status gbnf_read(const char *text, size_t size, const char *root, struct rule_list *out)
{
    enum salvo_status status = SALVO_OK;
    struct gbnf_reader reader = {
        .text = text, .at = text, .end = text + size, .rules = out, .pool = &out->pool};
    *out = (struct rule_list){0};
    if (size > READER_MAX_BYTES)
        return fail(SALVO_ERROR_UNSUPPORTED, "grammar: the text has %zu bytes; at most %d are possible", size,
            READER_MAX_BYTES);
    TRY(string_map_open(&reader.names, count_words(text, size) + 1));
    skip_space(&reader, true);
    while (ok(&reader) && reader.at < reader.end)
        read_rule(&reader);
    for (size_t i = 0; ok(&reader) && i < out->count; i++) {
        if (!out->items[i]) {
            reader.at = reader.first_use[i];
            struct salvo_text name = read_name(&reader);
            complain(&reader, name.data, "there is no rule", name);
        }
    }
    if (ok(&reader)) {
        out->root = string_map_find(&reader.names, root, strlen(root));
        if (out->root == UINT32_MAX)
            out->pool.status =
                fail(SALVO_ERROR_ARGUMENT, "grammar: there is no rule '%s', with which texts begin", root);
    }
    status = out->pool.status;
cleanup:
    memory_free(reader.first_use);
    string_map_close(&reader.names);
    if (status != SALVO_OK)
        rule_list_free(out);
    return status;
}
