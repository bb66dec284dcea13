#include "grammar/schema_string.h"

#include "grammar/dfa.h"
#include "grammar/regex_ends.h"
#include "grammar/schema_json.h"

#include <stdio.h>
#include <string.h>

#define DATE                                                                                   \
    "(([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|" \
    "02-(0[1-9]|1[0-9]|2[0-8])))|"                                                             \
    "(([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29))"
/* A leap second is possible at 23:59 UTC only; string_leap_seconds has leap seconds with an offset. */
#define TIME                                                                                         \
    "(([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]+)?([zZ]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])|" \
    "23:59:60(\\.[0-9]+)?([zZ]|[+-]00:00))"
#define OCTET "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define IPV4  "(" OCTET "(\\." OCTET "){3})"
#define H16   "[0-9a-fA-F]{1,4}"
#define LS32  "(" H16 ":" H16 "|" IPV4 ")"
#define IPV6                                                                                                \
    "((" H16 ":){6}" LS32 "|::(" H16 ":){5}" LS32 "|(" H16 ")?::(" H16 ":){4}" LS32 "|((" H16 ":){0,1}" H16 \
    ")?::(" H16 ":){3}" LS32 "|((" H16 ":){0,2}" H16 ")?::(" H16 ":){2}" LS32 "|((" H16 ":){0,3}" H16       \
    ")?::" H16 ":" LS32 "|((" H16 ":){0,4}" H16 ")?::" LS32 "|((" H16 ":){0,5}" H16 ")?::" H16 "|((" H16    \
    ":){0,6}" H16 ")?::)"
#define ATOM     "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
#define LABEL    "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define HOST     "(" LABEL "(\\." LABEL ")*)"
#define URI_CHAR "([A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})"
/* Beyond ASCII, as RFC 3987 has it. */
#define UCS      "\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF"
#define IRI_CHAR "([A-Za-z0-9._~!$&'()*+,;=:@/?" UCS "-]|%[0-9A-Fa-f]{2})"
#define IRI_AUTHORITY                                                                                        \
    "(([A-Za-z0-9._~!$&'()*+,;=:" UCS "-]|%[0-9A-Fa-f]{2})*@)?(\\[" IPV6 "\\]|([A-Za-z0-9._~!$&'()*+,;=" UCS \
    "-]|%[0-9A-Fa-f]{2})*)(:[0-9]*)?"
#define IRI_FIRST    "([A-Za-z0-9._~!$&'()*+,;=:@?" UCS "-]|%[0-9A-Fa-f]{2})" /* no slash */
#define IRI_NO_COLON "([A-Za-z0-9._~!$&'()*+,;=@" UCS "-]|%[0-9A-Fa-f]{2})"
/* RFC 6570 */
#define VARIABLE "([A-Za-z0-9_]|%[0-9A-Fa-f]{2})(\\.?([A-Za-z0-9_]|%[0-9A-Fa-f]{2}))*(:[1-9][0-9]{0,3}|\\*)?"
#define LITERAL  "([!#$&(-;=?-\\[\\]_a-z~" UCS "]|%[0-9A-Fa-f]{2})"

#define AUTHORITY                                                 \
    "(([A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*@)?(\\[" IPV6 \
    "\\]|([A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)(:[0-9]*)?"
#define URI_FIRST      "([A-Za-z0-9._~!$&'()*+,;=:@?-]|%[0-9A-Fa-f]{2})" /* no slash */
#define URI_NO_COLON   "([A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})"
#define POINTER        "(/([^~/]|~[01])*)*"
#define DURATION_DATE  "([0-9]+D|[0-9]+M([0-9]+D)?|[0-9]+Y([0-9]+M([0-9]+D)?)?)"
#define DURATION_CLOCK "T([0-9]+S|[0-9]+M([0-9]+S)?|[0-9]+H([0-9]+M([0-9]+S)?)?)"

static const struct {
    const char *name, *regex; /* NULL: it cannot be enforced */
} formats[] = {
    {"duration", "^P([0-9]+W|" DURATION_DATE "(" DURATION_CLOCK ")?|" DURATION_CLOCK ")$"},
    {"json-pointer", "^" POINTER "$"},
    {"relative-json-pointer", "^(0|[1-9][0-9]*)(#|" POINTER ")$"},
    {"uri-reference", "^([A-Za-z][A-Za-z0-9+.-]*:)?//" AUTHORITY "([/?]" URI_CHAR "*)?(#" URI_CHAR "*)?$|"
                      "^[A-Za-z][A-Za-z0-9+.-]*:(/?" URI_FIRST URI_CHAR "*)?/?(#" URI_CHAR "*)?$|"
                      "^(/(" URI_FIRST URI_CHAR "*)?|\\?" URI_CHAR "*|" URI_NO_COLON "+([/?]" URI_CHAR
                      "*)?)?(#" URI_CHAR "*)?$"},
    {"regex", NULL},
    {"idn-email", NULL},
    {"idn-hostname", NULL},
    {"iri", "^[A-Za-z][A-Za-z0-9+.-]*:(//" IRI_AUTHORITY "((/" IRI_CHAR "*)?|(\\?" IRI_CHAR
            "*))|(/?" IRI_FIRST IRI_CHAR "*)?/?)(#" IRI_CHAR "*)?$"},
    {"iri-reference", "^([A-Za-z][A-Za-z0-9+.-]*:)?//" IRI_AUTHORITY "([/?]" IRI_CHAR "*)?(#" IRI_CHAR "*)?$|"
                      "^[A-Za-z][A-Za-z0-9+.-]*:(/?" IRI_FIRST IRI_CHAR "*)?/?(#" IRI_CHAR "*)?$|"
                      "^(/(" IRI_FIRST IRI_CHAR "*)?|\\?" IRI_CHAR "*|" IRI_NO_COLON "+([/?]" IRI_CHAR
                      "*)?)?(#" IRI_CHAR "*)?$"},
    {"uri-template", "^(" LITERAL "|\\{[+#./;?&]?" VARIABLE "(," VARIABLE ")*\\})*$"},
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"date-time", "^" DATE "[tT]" TIME "$"},
    {"uuid", "^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$"},
    {"email", "^(" ATOM "(\\." ATOM ")*|\"([\\x20\\x21\\x23-\\x5B\\x5D-\\x7E]|\\\\[\\x20-\\x7E])*\")@(" HOST
              "|\\[" IPV4 "\\]|\\[IPv6:" IPV6 "\\])$"},
    {"hostname", "^" HOST "$"},
    {"ipv4", "^" IPV4 "$"},
    {"ipv6", "^" IPV6 "$"},
    {"uri", "^[A-Za-z][A-Za-z0-9+.-]*:(//(([A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*@)?"
            "(\\[" IPV6 "\\]|([A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)(:[0-9]*)?((/" URI_CHAR
            "*)?|(\\?" URI_CHAR "*))|(/?([A-Za-z0-9._~!$&'()*+,;=:@?-]|%[0-9A-Fa-f]{2})" URI_CHAR
            "*)?/?)(#" URI_CHAR "*)?$"},
};

bool string_format(struct salvo_text name, const char **out_regex)
{
    *out_regex = NULL;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (strlen(formats[i].name) == name.size && memcmp(formats[i].name, name.data, name.size) == 0) {
            *out_regex = formats[i].regex;
            return true;
        }
    }
    return false;
}

const struct expr *string_leap_seconds(struct expr_pool *pool, struct salvo_text format)
{
    static const unsigned minutes[] = {0, 30, 45}; /* of the offsets that exist */
    enum { DAY = 24 * 60, ENTRY = 40, ENTRIES = 2 * 24 * 3 };
    const bool with_date = texts_are_equal(format, (struct salvo_text){"date-time", 9});
    char text[ENTRIES * ENTRY + 400];
    size_t size = 0;
    if (!with_date && !texts_are_equal(format, (struct salvo_text){"time", 4}))
        return NULL;
    size += (size_t)snprintf(text, sizeof text, "^%s(", with_date ? DATE "[tT]" : "");
    for (unsigned i = 0; i < ENTRIES; i++) {
        const unsigned hours = i / 6, minute = minutes[i % 3], offset = hours * 60 + minute;
        const bool west = i / 3 % 2;
        const unsigned local = (west ? 2 * DAY - 1 - offset : DAY - 1 + offset) % DAY;
        size += (size_t)snprintf(text + size, sizeof text - size, "%s%02u:%02u:60(\\.[0-9]+)?%s%02u:%02u",
            i ? "|" : "", local / 60, local % 60, west ? "-" : "\\+", hours, minute);
    }
    size += (size_t)snprintf(text + size, sizeof text - size, ")$");
    return regex_read(pool, text, size, SPELL_UTF8);
}

/* The number of characters, if all strings of the expression have the same number; false if not, or if
 * it is unknown. */
static bool fixed_length(const struct expr *expr, uint64_t *out)
{
    uint64_t other;
    *out = expr->is_character;
    if (expr->is_character || expr->kind == EXPR_EMPTY)
        return true;
    if (expr->kind == EXPR_REPEAT) {
        if (expr->min != expr->max || !fixed_length(expr->items[0], &other))
            return false;
        *out = other * expr->min;
        return *out <= EXPR_MAX_REPEAT;
    }
    if (expr->kind != EXPR_SEQUENCE && expr->kind != EXPR_EITHER)
        return false;
    for (size_t i = 0; i < expr->count; i++) {
        if (!fixed_length(expr->items[i], &other) || (expr->kind == EXPR_EITHER && i && other != *out))
            return false;
        *out = expr->kind == EXPR_EITHER ? other : *out + other;
    }
    return *out <= EXPR_MAX_REPEAT;
}

/* The only item of a sequence whose length varies; it must repeat a character, and *out_rest is the sum
 * of the other lengths. NULL for other sequences. */
static const struct expr *varying_item(const struct expr *const *items, size_t count, uint64_t *out_rest)
{
    const struct expr *found = NULL;
    *out_rest = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t length;
        if (fixed_length(items[i], &length))
            *out_rest += length;
        else if (!found && items[i]->kind == EXPR_REPEAT && items[i]->items[0]->is_character)
            found = items[i];
        else
            return NULL;
    }
    return found;
}

/*
 * A pattern that repeats one class of characters, such as "^id-[a-z]+$": the lengths of the string are counts
 * of the repetition, so that long strings need no automaton. NULL for other patterns.
 */
static const struct expr *counted_pattern(
    struct layout *layout, const struct expr *pattern, const struct string_limits *limits)
{
    struct expr_pool *pool = layout->pool;
    const bool is_sequence = pattern->kind == EXPR_SEQUENCE;
    const struct expr *const *items = is_sequence ? pattern->items : &pattern;
    const size_t count = is_sequence ? pattern->count : 1;
    struct expr_list list = {0};
    uint64_t rest;
    const struct expr *varying = varying_item(items, count, &rest);
    if (!varying || pool->status != SALVO_OK)
        return NULL;
    if (limits->max != REPEAT_UNLIMITED && limits->max < rest)
        return expr_none();
    uint32_t min = limits->min > rest ? limits->min - (uint32_t)rest : 0;
    uint32_t max = limits->max == REPEAT_UNLIMITED ? REPEAT_UNLIMITED : limits->max - (uint32_t)rest;
    min = min > varying->min ? min : varying->min;
    max = max < varying->max ? max : varying->max;
    const struct expr *character = expr_rule(pool, rule_list_add(layout->rules, varying->items[0]));
    for (size_t i = 0; i < count; i++)
        expr_list_add(pool, &list, items[i] == varying ? expr_repeat(pool, character, min, max) : items[i]);
    const struct expr *expr = expr_sequence(pool, list.items, list.count);
    expr_list_free(&list);
    return expr;
}

static bool has_length(const struct string_limits *limits)
{
    return limits->min > 0 || limits->max != REPEAT_UNLIMITED;
}

/* Strings of any length that match all expressions. */
static const struct dfa *all_patterns(struct layout *layout, const struct string_limits *limits)
{
    const struct dfa *dfa = dfa_of(layout->pool, limits->all[0]);
    for (size_t i = 1; i < limits->count; i++)
        dfa = dfa_both(layout->pool, dfa, dfa_of(layout->pool, limits->all[i]));
    return dfa;
}

const struct dfa *string_automaton(struct layout *layout, const struct string_limits *limits)
{
    struct expr_pool *pool = layout->pool;
    const struct expr *lengths = limits->max < limits->min
                                     ? expr_none()
                                     : expr_repeat(pool, layout->character_here, limits->min, limits->max);
    if (limits->count == 0)
        return dfa_of(pool, lengths);
    const struct dfa *dfa = all_patterns(layout, limits);
    return has_length(limits) ? dfa_both(pool, dfa, dfa_of(pool, lengths)) : dfa;
}

/* Whether an automaton accepts every text of a JSON string. */
static bool accepts_all(struct layout *layout, const struct dfa *dfa)
{
    struct expr_pool *pool = layout->pool;
    const struct dfa *missing = dfa_without(pool, layout_any_text(layout), dfa);
    return missing && dfa_is_empty(missing);
}

/* Leaves out the limits that the patterns have anyway. */
static struct string_limits needed_limits(const struct string_limits *limits)
{
    struct string_limits needed = *limits;
    for (size_t i = 0; i < limits->count; i++) {
        const struct length_range range = expr_lengths(limits->all[i]);
        needed.min = range.min >= limits->min ? 0 : needed.min;
        needed.max = range.max <= limits->max ? REPEAT_UNLIMITED : needed.max;
    }
    return needed;
}

const struct expr *string_inside(struct layout *layout, const struct string_limits *all_limits)
{
    struct expr_pool *pool = layout->pool;
    const struct string_limits needed = needed_limits(all_limits), *limits = &needed;
    if (all_limits->max < all_limits->min)
        return expr_none();
    if (limits->count == 0)
        return expr_repeat(pool, layout->character, limits->min, limits->max);
    if (limits->count == 1 && !has_length(limits))
        return limits->all[0];
    const struct expr *counted = limits->count == 1 ? counted_pattern(layout, limits->all[0], limits) : NULL;
    if (counted)
        return counted;
    const struct dfa *dfa = all_patterns(layout, limits);
    if (!dfa || dfa_is_empty(dfa))
        return expr_none();
    if (!has_length(limits))
        return expr_dfa(pool, dfa);
    return accepts_all(layout, dfa) ? expr_repeat(pool, layout->character, limits->min, limits->max)
                                    : expr_counted(pool, dfa, limits->min, limits->max);
}

bool string_matches(struct layout *layout, const struct dfa *dfa, struct salvo_text text)
{
    const struct salvo_text written = layout_written(layout, text);
    return dfa && written.data && dfa_accepts(dfa, written);
}
