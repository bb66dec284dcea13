#include "grammar/schema_number.h"

#include "grammar/dfa.h"
#include "grammar/expr_memo.h"
#include "grammar/readers.h"

#include <stdio.h>
#include <string.h>

bool number_read(struct salvo_text text, struct decimal_number *out)
{
    char digits[NUMBER_DIGITS] = {0};
    size_t count = 0, at = 0;
    long point = 0, exponent = 0; /* the value is 0.digits * 10^point */
    bool after_point = false;
    *out = (struct decimal_number){0};
    if (at < text.size && text.data[at] == '-') {
        out->negative = true;
        at++;
    }
    for (; at < text.size && text.data[at] != 'e' && text.data[at] != 'E'; at++) {
        if (text.data[at] == '.') {
            after_point = true;
            continue;
        }
        if (count == 0 && text.data[at] == '0') {
            point -= after_point;
            continue;
        }
        if (count == NUMBER_DIGITS)
            return false;
        digits[count++] = text.data[at];
        point += !after_point;
    }
    if (at < text.size) {
        bool negative = ++at < text.size && text.data[at] == '-';
        at += at < text.size && (text.data[at] == '-' || text.data[at] == '+');
        for (; at < text.size; at++)
            exponent = exponent > 100000 ? exponent : exponent * 10 + (text.data[at] - '0');
        point += negative ? -exponent : exponent;
    }
    while (count > 0 && digits[count - 1] == '0')
        count--;
    if (count == 0) {
        *out = (struct decimal_number){0};
        return true;
    }
    long places = (long)count - point;
    if (point > NUMBER_DIGITS || places > NUMBER_DIGITS)
        return false;
    for (long i = 0; i < point; i++)
        out->whole[out->whole_size++] = i < (long)count ? digits[i] : '0';
    for (long i = point; i < (long)count; i++)
        out->fraction[out->fraction_size++] = i < 0 ? '0' : digits[i];
    return true;
}

static int compare_digits(const char *left, size_t left_size, const char *right, size_t right_size)
{
    size_t size = left_size < right_size ? left_size : right_size;
    int order = size ? memcmp(left, right, size) : 0;
    return order ? order : left_size < right_size ? -1 : left_size > right_size;
}

static int compare_magnitudes(const struct decimal_number *left, const struct decimal_number *right)
{
    if (left->whole_size != right->whole_size)
        return left->whole_size < right->whole_size ? -1 : 1;
    int order = compare_digits(left->whole, left->whole_size, right->whole, right->whole_size);
    return order ? order
                 : compare_digits(left->fraction, left->fraction_size, right->fraction, right->fraction_size);
}

int numbers_compare(const struct decimal_number *left, const struct decimal_number *right)
{
    if (left->negative != right->negative)
        return left->negative ? -1 : 1;
    int order = compare_magnitudes(left, right);
    return left->negative ? -order : order;
}

bool numbers_are_equal(struct salvo_text left, struct salvo_text right)
{
    struct decimal_number a, b;
    return number_read(left, &a) && number_read(right, &b) && numbers_compare(&a, &b) == 0;
}

/* ---- Magnitudes: numbers without sign and exponent ---- */

static const struct expr *regex(struct expr_pool *pool, const char *text)
{
    return regex_read(pool, text, strlen(text), SPELL_UTF8);
}

static const struct expr *digits(struct expr_pool *pool, uint32_t min, uint32_t max)
{
    return expr_repeat(pool, expr_range(pool, '0', '9'), min, max);
}

/* Digits after the point that make a number at least, or with `above` more than, 0.`text`. */
static const struct expr *fraction_at_least(struct expr_pool *pool, const char *text, size_t size, bool above)
{
    struct expr_list list = {0};
    const struct expr *any = digits(pool, 0, REPEAT_UNLIMITED);
    const struct expr *point = expr_string(pool, ".");
    for (size_t i = 0; i < size; i++) {
        if (text[i] < '9') {
            expr_list_add(pool, &list,
                EXPR_SEQUENCE_OF(pool, point, expr_literal(pool, text, i),
                    expr_range(pool, (unsigned)text[i] + 1, '9'), any));
        }
    }
    const struct expr *same = EXPR_SEQUENCE_OF(pool, point, expr_literal(pool, text, size));
    if (above)
        expr_list_add(pool, &list, EXPR_SEQUENCE_OF(pool, same, any, expr_range(pool, '1', '9'), any));
    else if (size > 0)
        expr_list_add(pool, &list, EXPR_SEQUENCE_OF(pool, same, any));
    else
        expr_list_add(pool, &list,
            expr_optional(pool, EXPR_SEQUENCE_OF(pool, point, digits(pool, 1, REPEAT_UNLIMITED))));
    const struct expr *expr = expr_either(pool, list.items, list.count);
    expr_list_free(&list);
    return expr;
}

/* Magnitudes that are at least, or with `above` more than, a number. */
static const struct expr *magnitude_at_least(
    struct expr_pool *pool, const struct decimal_number *number, bool above)
{
    struct expr_list list = {0};
    const struct expr *fraction = expr_optional(pool, regex(pool, "\\.[0-9]+"));
    const char *whole = number->whole_size ? number->whole : "0";
    uint32_t size = number->whole_size ? (uint32_t)number->whole_size : 1;
    expr_list_add(pool, &list,
        EXPR_SEQUENCE_OF(pool, expr_range(pool, '1', '9'), digits(pool, size, REPEAT_UNLIMITED), fraction));
    for (uint32_t i = 0; i < size; i++) {
        if (whole[i] < '9') {
            expr_list_add(pool, &list,
                EXPR_SEQUENCE_OF(pool, expr_literal(pool, whole, i),
                    expr_range(pool, (unsigned)whole[i] + 1, '9'), digits(pool, size - i - 1, size - i - 1),
                    fraction));
        }
    }
    expr_list_add(pool, &list,
        EXPR_SEQUENCE_OF(pool, expr_literal(pool, whole, size),
            fraction_at_least(pool, number->fraction, number->fraction_size, above)));
    const struct expr *expr = expr_either(pool, list.items, list.count);
    expr_list_free(&list);
    return expr;
}

/*
 * Multiples of factor / 10^places: the states are the remainder of the digits so far, and how many of them
 * are after the point; behind the last place only zeros may follow.
 */
static const struct dfa *multiples(struct expr_pool *pool, uint32_t factor, uint32_t places)
{
    enum { FIRST = 1, LEADING_ZERO = 2, NUMBERS = 3 };
    enum { DIGIT_0 = 1, POINT = 11 }; /* classes of bytes */
    /* After the digits before the point: a point with up to `places` digits after it. A number may
     * not end with its point, so that each point has a state of its own. */
    struct byte_classes classes = {0};
    classes.count = POINT + 1;
    classes.of['.'] = POINT;
    for (unsigned digit = 0; digit < 10; digit++)
        classes.of['0' + digit] = (uint8_t)(DIGIT_0 + digit);
    uint32_t count = NUMBERS + factor * (places + 3), point = NUMBERS + factor, first_place = point + factor;
    struct dfa *dfa = dfa_new(pool, count, &classes);
    if (!dfa)
        return NULL;
    dfa_row(dfa, FIRST)[DIGIT_0] = LEADING_ZERO;
    dfa->accepts[LEADING_ZERO] = true;
    dfa_row(dfa, LEADING_ZERO)[POINT] = point;
    for (uint32_t remainder = 0; remainder < factor; remainder++) {
        uint32_t scaled = remainder;
        for (uint32_t place = 0; place < places; place++)
            scaled = scaled * 10 % factor;
        dfa->accepts[NUMBERS + remainder] = scaled == 0;
        dfa_row(dfa, NUMBERS + remainder)[POINT] = point + remainder;
        for (uint32_t digit = 0; digit < 10; digit++) {
            uint32_t next = (remainder * 10 + digit) % factor;
            dfa_row(dfa, NUMBERS + remainder)[DIGIT_0 + digit] = NUMBERS + next;
            if (remainder == 0 && digit > 0)
                dfa_row(dfa, FIRST)[DIGIT_0 + digit] = NUMBERS + next;
            /* first_place + factor * k: k + 1 digits after the point, the last row: only zeros more */
            if (places > 0)
                dfa_row(dfa, point + remainder)[DIGIT_0 + digit] = first_place + next;
            for (uint32_t place = 1; place < places; place++)
                dfa_row(dfa, first_place + (place - 1) * factor + remainder)[DIGIT_0 + digit] =
                    first_place + place * factor + next;
        }
        if (places == 0) {
            dfa_row(dfa, point + remainder)[DIGIT_0] = first_place + remainder;
            dfa_row(dfa, first_place + remainder)[DIGIT_0] = first_place + remainder;
            dfa->accepts[first_place + remainder] = remainder == 0;
        } else {
            uint32_t last = first_place + (places - 1) * factor + remainder;
            dfa_row(dfa, last)[DIGIT_0] = last;
        }
        for (uint32_t place = 1; place <= places; place++) {
            scaled = remainder;
            for (uint32_t k = place; k < places; k++)
                scaled = scaled * 10 % factor;
            dfa->accepts[first_place + (place - 1) * factor + remainder] = scaled == 0;
        }
    }
    return dfa;
}

/* Magnitudes between two limits, either of which may be NULL. */
static const struct expr *magnitudes(struct expr_pool *pool, const struct number_limits *limits,
    const struct decimal_number *least, bool above, const struct decimal_number *most, bool below)
{
    const char *all = !limits->whole         ? "(0|[1-9][0-9]*)(\\.[0-9]+)?"
                      : limits->any_spelling ? "(0|[1-9][0-9]*)(\\.0+)?"
                                             : "0|[1-9][0-9]*";
    const struct dfa *dfa = dfa_of(pool, regex(pool, all));
    if (least)
        dfa = dfa_both(pool, dfa, dfa_of(pool, magnitude_at_least(pool, least, above)));
    if (most)
        dfa = dfa_without(pool, dfa, dfa_of(pool, magnitude_at_least(pool, most, !below)));
    if (limits->factor)
        dfa = dfa_both(pool, dfa, multiples(pool, limits->factor, limits->places));
    return dfa && !dfa_is_empty(dfa) ? expr_dfa(pool, dfa) : expr_none();
}

static const struct expr *limited_number(struct expr_pool *pool, const struct number_limits *limits)
{
    static const struct decimal_number zero;
    if (!limits->has_least && !limits->has_most && !limits->factor) {
        if (!limits->whole)
            return regex(pool, limits->no_exponent ? "-?(0|[1-9][0-9]*)(\\.[0-9]+)?"
                                                   : "-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][-+]?[0-9]+)?");
        return regex(pool, limits->any_spelling ? "-?(0|[1-9][0-9]*)(\\.0+)?" : "-?(0|[1-9][0-9]*)");
    }
    struct decimal_number least = limits->least, most = limits->most;
    const struct expr *positive = expr_none(), *negative = expr_none();
    least.negative = most.negative = false;
    bool any_positive = !limits->has_most || numbers_compare(&limits->most, &zero) >= 0;
    bool any_negative = !limits->has_least || numbers_compare(&limits->least, &zero) < 0;
    if (any_positive)
        positive = magnitudes(pool, limits, limits->has_least && !limits->least.negative ? &least : NULL,
            limits->above, limits->has_most ? &most : NULL, limits->below);
    /* Below zero the limits change places. Zero is written without a sign. */
    if (any_negative) {
        bool most_is_negative = limits->has_most && limits->most.negative;
        negative = EXPR_SEQUENCE_OF(pool, expr_string(pool, "-"),
            magnitudes(pool, limits, most_is_negative ? &most : &zero,
                most_is_negative ? limits->below : true, limits->has_least ? &least : NULL, limits->above));
    }
    if (negative->kind == EXPR_NONE)
        return positive;
    return positive->kind == EXPR_NONE ? negative : EXPR_EITHER_OF(pool, positive, negative);
}

/* Appends a limit and whether it is excluded to a text. */
static size_t write_limit(char *out, bool has, const struct decimal_number *number, bool excluded)
{
    size_t size = 0;
    if (!has)
        return 0;
    out[size++] = number->negative ? '-' : '+';
    memcpy(out + size, number->whole, number->whole_size);
    size += number->whole_size;
    out[size++] = '.';
    memcpy(out + size, number->fraction, number->fraction_size);
    size += number->fraction_size;
    out[size++] = excluded ? '!' : '=';
    return size;
}

const struct expr *number_expr(struct expr_pool *pool, const struct number_limits *limits)
{
    char text[4 * NUMBER_DIGITS + 100];
    size_t size = (size_t)snprintf(text, sizeof text, "%d%d%d %u/%u ", limits->whole, limits->any_spelling,
        limits->no_exponent, limits->factor, limits->places);
    size += write_limit(text + size, limits->has_least, &limits->least, limits->above);
    text[size++] = ' ';
    size += write_limit(text + size, limits->has_most, &limits->most, limits->below);
    const struct salvo_text source = {text, size};
    const struct expr *expr = memo_find(pool, MEMO_NUMBER, source);
    if (expr)
        return expr;
    expr = limited_number(pool, limits);
    memo_keep(pool, MEMO_NUMBER, source, expr);
    return expr;
}

const struct expr *number_constant(struct expr_pool *pool, struct salvo_text text, bool any_spelling)
{
    struct decimal_number number;
    if (!any_spelling || !number_read(text, &number))
        return expr_literal(pool, text.data, text.size);
    const struct expr *zeros = regex(pool, "(\\.0+)?");
    if (number.fraction_size)
        zeros = EXPR_SEQUENCE_OF(pool, expr_string(pool, "."),
            expr_literal(pool, number.fraction, number.fraction_size), regex(pool, "0*"));
    const struct expr *sign = number.negative                                   ? expr_string(pool, "-")
                              : number.whole_size == 0 && !number.fraction_size ? regex(pool, "-?")
                                                                                : expr_empty();
    return EXPR_EITHER_OF(pool, expr_literal(pool, text.data, text.size),
        EXPR_SEQUENCE_OF(pool, sign,
            number.whole_size ? expr_literal(pool, number.whole, number.whole_size) : expr_string(pool, "0"),
            zeros));
}
