#include "grammar/dfa.h"
#include "grammar/expr_memo.h"
#include "grammar/readers.h"
#include "grammar/regex_ends.h"

#include <string.h>

struct regex_reader {
    const char *text, *at, *end;
    struct expr_pool *pool;
    enum spelling spelling;
    unsigned depth;
    bool has_anchors; /* ^ or $ at other places than the ends of outermost alternatives */
    bool marks;       /* ^ and $ are read as marks around the text */
};

static const struct expr *complain(struct regex_reader *reader, const char *place, const char *message)
{
    if (reader->pool->status == SALVO_OK)
        reader->pool->status = fail(SALVO_ERROR_ARGUMENT, "regular expression: column %zu: %s",
            (size_t)(place - reader->text) + 1, message);
    return expr_none();
}

static const struct expr *unsupported(struct regex_reader *reader, const char *place, const char *message)
{
    if (reader->pool->status == SALVO_OK)
        reader->pool->status = fail(SALVO_ERROR_UNSUPPORTED, "regular expression: column %zu: %s",
            (size_t)(place - reader->text) + 1, message);
    return expr_none();
}

static bool ok(const struct regex_reader *reader)
{
    return reader->pool->status == SALVO_OK;
}

static int peek(const struct regex_reader *reader)
{
    return reader->at < reader->end ? (unsigned char)*reader->at : -1;
}

static bool begins(const struct regex_reader *reader, const char *text)
{
    size_t size = strlen(text);
    return (size_t)(reader->end - reader->at) >= size && memcmp(reader->at, text, size) == 0;
}

/* ---- Characters and classes ---- */

static void add_word(struct regex_reader *reader, struct charset *set)
{
    charset_add(reader->pool, set, '0', '9');
    charset_add(reader->pool, set, 'A', 'Z');
    charset_add(reader->pool, set, '_', '_');
    charset_add(reader->pool, set, 'a', 'z');
}

static void add_space(struct regex_reader *reader, struct charset *set)
{
    static const struct char_range more[] = {{0xA0, 0xA0}, {0x1680, 0x1680}, {0x2000, 0x200A},
        {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
    charset_add(reader->pool, set, '\t', '\r');
    charset_add(reader->pool, set, ' ', ' ');
    for (size_t i = 0; reader->spelling == SPELL_JSON && i < sizeof more / sizeof *more; i++)
        charset_add(reader->pool, set, more[i].first, more[i].last);
}

/* Reads the name of a property, {Name}, and adds its characters. */
static void add_property(struct regex_reader *reader, struct charset *set)
{
    const char *start = reader->at - 2, *name = reader->at + 1;
    const char *end = peek(reader) == '{' ? memchr(name, '}', (size_t)(reader->end - name)) : NULL;
    if (!end) {
        complain(reader, start, "the name of a property of Unicode is expected in braces");
        return;
    }
    if (!charset_add_property(reader->pool, set, (struct salvo_text){name, (size_t)(end - name)})) {
        unsupported(reader, start,
            "this property of Unicode is not supported; general categories, Any, ASCII and Assigned are");
        return;
    }
    reader->at = end + 1;
}

/* \d, \w, \s, \p{...} and their inverses, which are read; false for another letter. */
static bool add_named(struct regex_reader *reader, struct charset *set)
{
    struct charset named = {0};
    const int letter = peek(reader);
    if (letter <= 0 || !strchr("dDwWsSpP", letter))
        return false;
    reader->at++;
    if (letter == 'd' || letter == 'D')
        charset_add(reader->pool, &named, '0', '9');
    else if (letter == 'w' || letter == 'W')
        add_word(reader, &named);
    else if (letter == 's' || letter == 'S')
        add_space(reader, &named);
    else
        add_property(reader, &named);
    if (letter < 'a')
        charset_invert(reader->pool, &named);
    for (size_t i = 0; i < named.count; i++)
        charset_add(reader->pool, set, named.ranges[i].first, named.ranges[i].last);
    charset_free(&named);
    return true;
}

static int hex_digit(int c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static uint32_t read_hex(struct regex_reader *reader, unsigned digits)
{
    const char *start = reader->at - 2;
    uint32_t value = 0;
    bool braces = peek(reader) == '{' && digits == 4;
    reader->at += braces;
    for (unsigned i = 0; braces ? peek(reader) != '}' : i < digits; i++) {
        int digit = hex_digit(peek(reader));
        if (digit < 0 || i == 8) {
            complain(reader, start, "hexadecimal digits are expected");
            return 0;
        }
        value = value << 4 | (uint32_t)digit;
        reader->at++;
    }
    reader->at += braces;
    /* ECMAScript writes characters beyond FFFF as two surrogates. */
    if (value >= 0xD800 && value <= 0xDBFF && begins(reader, "\\u") && digits == 4) {
        const char *low_start = reader->at;
        reader->at += 2;
        uint32_t low = read_hex(reader, 4);
        if (low >= 0xDC00 && low <= 0xDFFF)
            return 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
        reader->at = low_start;
    }
    if (value > UNICODE_LAST || (value >= 0xD800 && value <= 0xDFFF && digits != 4))
        complain(reader, start, "this number is no Unicode character");
    return value;
}

/* A character after a backslash, which is read. */
static uint32_t read_escape(struct regex_reader *reader, bool in_class)
{
    const char *start = reader->at - 1;
    int c = peek(reader);
    if (c == -1) {
        complain(reader, start, "a character is expected after the backslash");
        return 0;
    }
    reader->at++;
    switch (c) {
    case 't':
        return '\t';
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 'f':
        return '\f';
    case 'v':
        return '\v';
    case 'x':
        return read_hex(reader, 2);
    case 'u':
        return read_hex(reader, 4);
    case 'U':
        return read_hex(reader, 8);
    case '0':
        if (peek(reader) >= '0' && peek(reader) <= '9')
            unsupported(reader, start, "octal numbers are not supported");
        return 0;
    case 'c':
        c = peek(reader);
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')))
            complain(reader, start, "a letter is expected after \\c");
        reader->at++;
        return (uint32_t)c & 31;
    case 'b':
        if (in_class)
            return '\b';
        unsupported(reader, start, "word boundaries are not supported");
        return 0;
    default:
        break;
    }
    if (c >= '1' && c <= '9')
        unsupported(reader, start, "references to groups are not supported");
    else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
        unsupported(reader, start, "this escape is not supported");
    if (c < 0x80)
        return (uint32_t)c;
    reader->at--;
    uint32_t character = 0;
    size_t size = utf8_read(reader->at, (size_t)(reader->end - reader->at), &character);
    if (size == 0)
        complain(reader, start, "invalid UTF-8");
    reader->at += size;
    return character;
}

static uint32_t read_plain(struct regex_reader *reader)
{
    uint32_t character = 0;
    size_t size = utf8_read(reader->at, (size_t)(reader->end - reader->at), &character);
    if (size == 0)
        complain(reader, reader->at, "invalid UTF-8");
    reader->at += size;
    return character;
}

/* One end of a range in a class; *out_single is false for \d and its kind, which are added to the set. */
static uint32_t read_class_char(struct regex_reader *reader, struct charset *set, bool *out_single)
{
    *out_single = true;
    if (peek(reader) != '\\')
        return read_plain(reader);
    reader->at++;
    if (add_named(reader, set)) {
        *out_single = false;
        return 0;
    }
    return read_escape(reader, true);
}

static const struct expr *read_class(struct regex_reader *reader)
{
    const char *start = reader->at++;
    struct charset set = {0};
    bool inverted = peek(reader) == '^', closed = false;
    reader->at += inverted;
    if (peek(reader) == ']')
        complain(reader, start, "the class is empty; write \\] for the bracket");
    while (ok(reader) && !closed) {
        bool single, single_last = true;
        const char *place = reader->at;
        if (peek(reader) == -1) {
            complain(reader, start, "the class has no end");
            break;
        }
        if (begins(reader, "[:") || begins(reader, "[=") || begins(reader, "[.")) {
            unsupported(reader, place, "classes of POSIX are not supported");
            break;
        }
        uint32_t first = read_class_char(reader, &set, &single), last = first;
        if (ok(reader) && peek(reader) == '-' && reader->at + 1 < reader->end && reader->at[1] != ']') {
            reader->at++;
            last = read_class_char(reader, &set, &single_last);
            if (ok(reader) && (!single || !single_last))
                complain(reader, place, "a class cannot be the end of a range");
            else if (ok(reader) && last < first)
                complain(reader, place, "the range ends before it begins");
        }
        if (single)
            charset_add(reader->pool, &set, first, last);
        closed = peek(reader) == ']';
    }
    reader->at++;
    if (inverted && ok(reader))
        charset_invert(reader->pool, &set);
    const struct expr *expr = ok(reader) ? charset_expr(reader->pool, &set, reader->spelling) : expr_none();
    charset_free(&set);
    return expr;
}

static const struct expr *any_char(struct regex_reader *reader, bool lines)
{
    struct charset set = {0};
    if (!lines)
        charset_add(reader->pool, &set, '\n', '\n');
    if (!lines && reader->spelling == SPELL_JSON) {
        charset_add(reader->pool, &set, '\r', '\r');
        charset_add(reader->pool, &set, 0x2028, 0x2029);
    }
    charset_invert(reader->pool, &set);
    const struct expr *expr = charset_expr(reader->pool, &set, reader->spelling);
    charset_free(&set);
    return expr;
}

/* ---- Structure ---- */

/*
 * Marks: an expression with ^ or $ within groups is one of texts with marks around them, bytes that UTF-8
 * does not have. ^ and $ read one or more marks; a text has several, so that ^(^a|b) is possible.
 */
enum { MARK_BEGIN = 0xFE, MARK_END = 0xFF, MARKS = 4 };

static const struct expr *mark(struct regex_reader *reader, unsigned byte, uint32_t min, uint32_t max)
{
    return expr_repeat(reader->pool, expr_range(reader->pool, byte, byte), min, max);
}

/* Where alternatives are: the ends of a text are known outside of groups alone. */
enum level { LEVEL_OUTERMOST, LEVEL_LOOK, LEVEL_GROUP };

static const struct expr *read_alternatives(struct regex_reader *reader, enum level level);

static const struct expr *read_group(struct regex_reader *reader)
{
    const char *start = reader->at++;
    if (begins(reader, "?:")) {
        reader->at += 2;
    } else if (reader->marks && (begins(reader, "?=") || begins(reader, "?!") || begins(reader, "?<=") ||
                                    begins(reader, "?<!"))) {
        return unsupported(reader, start, "lookaround beside ^ or $ within groups is not supported");
    } else if (begins(reader, "?=") || begins(reader, "?!") || begins(reader, "?<=") ||
               begins(reader, "?<!")) {
        return unsupported(reader, start, "lookahead and lookbehind are supported only outside of groups");
    } else if (begins(reader, "?<") || begins(reader, "?P<")) {
        while (peek(reader) != -1 && peek(reader) != '>' && peek(reader) != ')')
            reader->at++;
        if (peek(reader) != '>')
            return complain(reader, start, "the group's name has no end");
        reader->at++;
    } else if (peek(reader) == '?' || peek(reader) == '*') {
        return unsupported(reader, start, "flags and special groups are not supported");
    }
    if (++reader->depth > READER_MAX_DEPTH)
        return complain(reader, start, "groups are nested too deep: at most 250 levels are possible");
    const struct expr *expr = read_alternatives(reader, LEVEL_GROUP);
    reader->depth--;
    if (ok(reader) && peek(reader) != ')')
        return complain(reader, start, "the group has no ')'");
    reader->at++;
    return expr;
}

/* Reads {m}, {m,} or {m,n}; false, with nothing read, where a brace is just a character. */
static bool read_counts(struct regex_reader *reader, uint32_t *min, uint32_t *max)
{
    const char *at = reader->at + 1, *start = reader->at;
    uint64_t numbers[2] = {0, REPEAT_UNLIMITED};
    unsigned number = 0;
    bool digits[2] = {false, false};
    for (; at < reader->end && *at != '}'; at++) {
        if (*at == ',' && number == 0) {
            number = 1;
        } else if (*at >= '0' && *at <= '9') {
            numbers[number] = (digits[number] ? numbers[number] * 10 : 0) + (uint64_t)(*at - '0');
            numbers[number] = numbers[number] > UINT32_MAX - 1 ? UINT32_MAX - 1 : numbers[number];
            digits[number] = true;
        } else {
            return false;
        }
    }
    if (at == reader->end || !digits[0])
        return false;
    reader->at = at + 1;
    *min = (uint32_t)numbers[0];
    *max = number == 0 ? *min : (uint32_t)numbers[1];
    if (*min > EXPR_MAX_REPEAT || (*max > EXPR_MAX_REPEAT && *max != REPEAT_UNLIMITED))
        unsupported(reader, start, "too many repetitions: at most 100000 are possible");
    else if (*max < *min)
        complain(reader, start, "the largest number of repetitions is below the smallest");
    return true;
}

static const struct expr *read_repeats(struct regex_reader *reader, const struct expr *expr)
{
    const char *start = reader->at;
    int c = peek(reader);
    uint32_t min = c == '+', max = c == '?' ? 1 : REPEAT_UNLIMITED;
    if (c == '{') {
        if (!read_counts(reader, &min, &max))
            return expr;
    } else if (c == '*' || c == '+' || c == '?') {
        reader->at++;
    } else {
        return expr;
    }
    if (peek(reader) == '?')
        reader->at++; /* a lazy repetition matches the same texts */
    else if (peek(reader) == '+')
        return unsupported(reader, start, "possessive repetitions are not supported");
    else if (peek(reader) == '*' || (peek(reader) == '{' && reader->at + 1 < reader->end &&
                                        reader->at[1] >= '0' && reader->at[1] <= '9'))
        return complain(reader, reader->at, "there is nothing to repeat before this");
    return ok(reader) ? expr_repeat(reader->pool, expr, min, max) : expr_none();
}

static const struct expr *read_atom(struct regex_reader *reader)
{
    struct charset set = {0};
    const char *start = reader->at;
    int c = peek(reader);
    switch (c) {
    case '(':
        return read_group(reader);
    case '[':
        return read_class(reader);
    case '.':
        reader->at++;
        return any_char(reader, false);
    case '*':
    case '+':
    case '?':
        return complain(reader, start, "there is nothing to repeat before this");
    case '^':
    case '$':
        reader->at++;
        reader->has_anchors = true;
        return mark(reader, c == '^' ? MARK_BEGIN : MARK_END, 1, REPEAT_UNLIMITED);
    case '\\':
        reader->at++;
        if (peek(reader) == 'B' || peek(reader) == 'A' || peek(reader) == 'Z')
            return unsupported(reader, start, "this assertion is not supported");
        if (add_named(reader, &set)) {
            const struct expr *expr = charset_expr(reader->pool, &set, reader->spelling);
            charset_free(&set);
            return expr;
        }
        uint32_t escaped = read_escape(reader, false);
        return ok(reader) ? char_expr(reader->pool, escaped, reader->spelling) : expr_none();
    default:
        break;
    }
    uint32_t character = read_plain(reader);
    return ok(reader) ? char_expr(reader->pool, character, reader->spelling) : expr_none();
}

/* The texts of an expression that a lookaround allows; `look` matches whole texts, too. */
static const struct expr *filter(
    struct regex_reader *reader, const struct expr *expr, const struct expr *look, bool negative)
{
    if (!ok(reader))
        return expr_none();
    const struct dfa *left = dfa_of(reader->pool, expr), *right = dfa_of(reader->pool, look);
    const struct dfa *dfa = (negative ? dfa_without : dfa_both)(reader->pool, left, right);
    return !dfa || dfa_is_empty(dfa) ? expr_none() : expr_dfa(reader->pool, dfa);
}

static const struct expr *any_text(struct regex_reader *reader)
{
    return expr_repeat(reader->pool, any_char(reader, true), 0, REPEAT_UNLIMITED);
}

static bool is_last(const struct regex_reader *reader, enum level level)
{
    const char *next = reader->at + 1;
    return next == reader->end || *next == '|' || (level == LEVEL_LOOK && *next == ')');
}

/* The inside of a lookaround, whose opening has `size` bytes, and its ')'. */
static const struct expr *read_look(struct regex_reader *reader, size_t size, enum level level)
{
    const char *start = reader->at;
    reader->at += size;
    const struct expr *look = read_alternatives(reader, level);
    if (ok(reader) && peek(reader) != ')')
        return complain(reader, start, "the group has no ')'");
    reader->at++;
    return look;
}

static const struct expr *read_items(struct regex_reader *reader, enum level level, bool before);

/* A sequence that may read marks; without them it is anywhere, or with SPELL_UTF8 the whole text. */
static const struct expr *marked_sequence(struct regex_reader *reader)
{
    struct expr_pool *pool = reader->pool;
    const struct expr *items = read_items(reader, LEVEL_GROUP, false);
    const struct expr *begin = mark(reader, MARK_BEGIN, 1, REPEAT_UNLIMITED),
                      *end = mark(reader, MARK_END, 1, REPEAT_UNLIMITED);
    if (reader->spelling == SPELL_JSON) {
        begin = EXPR_SEQUENCE_OF(pool, begin, any_text(reader));
        end = EXPR_SEQUENCE_OF(pool, any_text(reader), end);
    }
    return EXPR_SEQUENCE_OF(pool, expr_optional(pool, begin), items, expr_optional(pool, end));
}

/* A sequence, or the rest of one. `before`: any text may precede it. Lookaround needs one end of the text: it
 * is read outside of groups alone. */
static const struct expr *read_items(struct regex_reader *reader, enum level level, bool before)
{
    struct expr_pool *pool = reader->pool;
    struct expr_list list = {0};
    const bool outermost = level == LEVEL_OUTERMOST;
    bool after = outermost ? reader->spelling == SPELL_JSON : level == LEVEL_LOOK;
    const struct expr *rest = expr_empty();
    if (++reader->depth > READER_MAX_DEPTH)
        complain(reader, reader->at, "groups are nested too deep: at most 250 levels are possible");
    while (ok(reader) && peek(reader) != -1 && peek(reader) != '|' && peek(reader) != ')') {
        if (level != LEVEL_GROUP && !reader->marks && peek(reader) == '$' && is_last(reader, level)) {
            reader->at++;
            after = false;
            break;
        }
        if (outermost && (begins(reader, "(?=") || begins(reader, "(?!"))) {
            const bool negative = reader->at[2] == '!';
            const struct expr *look = read_look(reader, 3, LEVEL_LOOK);
            rest = filter(reader, read_items(reader, level, false), look, negative);
            after = false;
            break;
        }
        if (outermost && (begins(reader, "(?<=") || begins(reader, "(?<!"))) {
            const bool negative = reader->at[3] == '!';
            const struct expr *look = read_look(reader, 4, LEVEL_GROUP);
            const struct expr *text = expr_sequence(pool, list.items, list.count);
            text = before ? EXPR_SEQUENCE_OF(pool, any_text(reader), text) : text;
            list.count = 0;
            before = false;
            expr_list_add(
                pool, &list, filter(reader, text, EXPR_SEQUENCE_OF(pool, any_text(reader), look), negative));
            continue;
        }
        const struct expr *atom = read_atom(reader);
        expr_list_add(pool, &list, ok(reader) ? read_repeats(reader, atom) : atom);
    }
    reader->depth--;
    const struct expr *expr = ok(reader) ? expr_sequence(pool, list.items, list.count) : expr_none();
    expr_list_free(&list);
    if (before)
        expr = EXPR_SEQUENCE_OF(pool, any_text(reader), expr_shortest_end(pool, expr, true));
    if (after)
        expr = EXPR_SEQUENCE_OF(pool, expr_shortest_end(pool, expr, false), any_text(reader));
    return EXPR_SEQUENCE_OF(pool, expr, rest);
}

/* The texts that an expression with marks matches, without them. */
static const struct expr *without_marks(struct regex_reader *reader, const struct expr *marked)
{
    struct expr_pool *pool = reader->pool;
    const struct expr *whole = EXPR_SEQUENCE_OF(
        pool, mark(reader, MARK_BEGIN, MARKS, MARKS), any_text(reader), mark(reader, MARK_END, MARKS, MARKS));
    const struct dfa *all = dfa_both(pool, dfa_of(pool, marked), dfa_of(pool, whole));
    if (!all || dfa_is_empty(all))
        return expr_none();
    uint32_t first = 1;
    for (int i = 0; i < MARKS; i++)
        first = dfa_step(all, first, MARK_BEGIN);
    struct dfa *dfa = dfa_new(pool, all->states, &all->classes);
    for (uint32_t state = 1; dfa && state < all->states; state++) {
        /* The first state and the one behind the marks change places. */
        const uint32_t from = state == 1 ? first : state == first ? 1 : state;
        uint32_t end = from;
        for (int i = 0; i < MARKS; i++)
            end = dfa_step(all, end, MARK_END);
        dfa->accepts[state] = all->accepts[end];
        for (uint32_t class = 0; class < dfa->classes.count; class ++) {
            const uint32_t next = dfa_row(all, from)[class];
            const bool marks = class == dfa->classes.of[MARK_BEGIN] || class == dfa->classes.of[MARK_END];
            dfa_row(dfa, state)[class] = marks ? 0 : next == 1 ? first : next == first ? 1 : next;
        }
    }
    /* States that only marks lead to, or out of, are dropped. */
    const struct dfa *trimmed = dfa ? dfa_both(pool, dfa, dfa_of(pool, any_text(reader))) : NULL;
    return !trimmed || dfa_is_empty(trimmed) ? expr_none() : expr_dfa(pool, trimmed);
}

static const struct expr *read_sequence(struct regex_reader *reader, enum level level)
{
    const char *start = reader->at;
    const bool outermost = level == LEVEL_OUTERMOST, search = outermost && reader->spelling == SPELL_JSON;
    const bool begin_bound = outermost && peek(reader) == '^';
    reader->at += begin_bound;
    const struct expr *expr = read_items(reader, level, search && !begin_bound);
    if (!outermost || !reader->has_anchors || !ok(reader))
        return expr;
    reader->at = start;
    reader->marks = true;
    const struct expr *marked = marked_sequence(reader);
    expr = ok(reader) ? without_marks(reader, marked) : expr_none();
    reader->marks = reader->has_anchors = false;
    return expr;
}

static const struct expr *read_alternatives(struct regex_reader *reader, enum level level)
{
    struct expr_list list = {0};
    expr_list_add(reader->pool, &list, read_sequence(reader, level));
    while (ok(reader) && peek(reader) == '|') {
        reader->at++;
        expr_list_add(reader->pool, &list, read_sequence(reader, level));
    }
    const struct expr *expr = ok(reader) ? expr_either(reader->pool, list.items, list.count) : expr_none();
    expr_list_free(&list);
    return expr;
}

const struct expr *regex_read(struct expr_pool *pool, const char *text, size_t size, enum spelling spelling)
{
    struct regex_reader reader = {
        .text = text, .at = text, .end = text + size, .pool = pool, .spelling = spelling};
    if (size > READER_MAX_BYTES && ok(&reader))
        pool->status = fail(SALVO_ERROR_UNSUPPORTED,
            "regular expression: the text has %zu bytes; at most %d are possible", size, READER_MAX_BYTES);
    if (!ok(&reader))
        return expr_none();
    const enum memo_kind kind = spelling == SPELL_JSON ? MEMO_REGEX_JSON : MEMO_REGEX_UTF8;
    const struct salvo_text source = {text, size};
    const struct expr *expr = memo_find(pool, kind, source);
    if (expr)
        return expr;
    expr = read_alternatives(&reader, LEVEL_OUTERMOST);
    if (ok(&reader) && peek(&reader) == ')')
        return complain(&reader, reader.at, "there is no '(' to this");
    memo_keep(pool, kind, source, expr);
    return expr;
}
