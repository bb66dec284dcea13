/* Filters and methods of strings that give a string. */
#include "text/jinja/builtins.h"
#include "text/jinja/escape.h"
#include "text/jinja/letters.h"

#include <string.h>

/* What is filtered, as text. */
static enum salvo_status begin(
    struct interpreter *in, const struct call *call, struct text *text, struct string *self)
{
    *text = (struct text){.heap = &in->heap};
    enum salvo_status status = value_to_string(in, call->self, self);
    return status == SALVO_OK ? spend(in, self->size) : status;
}

static enum salvo_status finish(const struct call *call, const struct text *text, struct value *out)
{
    *out = value_string(text_take(text));
    out->markup = call->self.kind == VALUE_STRING && call->self.markup;
    return SALVO_OK;
}

/* ---- Case -------------------------------------------------------------------------------------------- */

static enum salvo_status in_case(
    struct interpreter *in, const struct call *call, enum letter_case wanted, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct text text;
    struct string self;
    TRY(begin(in, call, &text, &self));
    TRY(text_in_case(&text, self, wanted));
    TRY(finish(call, &text, out));

cleanup:
    return status;
}

static enum salvo_status upper(struct interpreter *in, const struct call *call, struct value *out)
{
    return in_case(in, call, CASE_UPPER, out);
}

static enum salvo_status lower(struct interpreter *in, const struct call *call, struct value *out)
{
    return in_case(in, call, CASE_LOWER, out);
}

static enum salvo_status casefold(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct text text;
    struct string self;
    TRY(begin(in, call, &text, &self));
    TRY(text_folded(&text, self));
    TRY(finish(call, &text, out));

cleanup:
    return status;
}

static enum salvo_status capitalize(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct text text;
    struct string self;
    TRY(begin(in, call, &text, &self));
    if (self.size) {
        TRY(text_letter(&text, self.chars[0], CASE_TITLE));
        TRY(text_in_case(&text, string_part(self, 1, self.size), CASE_LOWER));
    }
    TRY(finish(call, &text, out));

cleanup:
    return status;
}

static enum salvo_status swapcase(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct text text;
    struct string self;
    TRY(begin(in, call, &text, &self));
    TRY(text_in_swapped_case(&text, self));
    TRY(finish(call, &text, out));

cleanup:
    return status;
}

static enum salvo_status title_method(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct text text;
    struct string self;
    TRY(begin(in, call, &text, &self));
    TRY(text_in_titles(&text, self));
    TRY(finish(call, &text, out));

cleanup:
    return status;
}

/* The filter begins words in other places than the method. */
static enum salvo_status title_filter(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct text text;
    struct string self;
    bool first = true;
    TRY(begin(in, call, &text, &self));
    for (size_t i = 0; i < self.size; i++) {
        uint32_t code = CHAR_CODE(self.chars[i]);
        TRY(text_letter(&text, self.chars[i], first ? CASE_UPPER : CASE_LOWER));
        first = char_is_space(code) || (code < 0x80 && code && strchr("-({[<", (int)code));
    }
    TRY(finish(call, &text, out));

cleanup:
    return status;
}

/* ---- Stripping --------------------------------------------------------------------------------------- */

static bool is_stripped(uint32_t character, const struct string *among)
{
    if (!among)
        return char_is_space(character);
    for (size_t i = 0; i < among->size; i++) {
        if (CHAR_CODE(among->chars[i]) == CHAR_CODE(character))
            return true;
    }
    return false;
}

static enum salvo_status strip_sides(
    struct interpreter *in, const struct call *call, bool left, bool right, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct text text;
    struct string self, among, *chosen = NULL;
    TRY(begin(in, call, &text, &self));
    if (is_given(&call->given[0])) {
        TRY(want_string(&call->given[0], "strip", &among));
        chosen = &among;
        TRY(spend_search(in, self, among));
        TRY(spend_search(in, among, self));
    }
    size_t start = 0, end = self.size;
    while (left && start < end && is_stripped(self.chars[start], chosen))
        start++;
    while (right && end > start && is_stripped(self.chars[end - 1], chosen))
        end--;
    *out = value_string(string_part(self, start, end));
    out->markup = call->self.kind == VALUE_STRING && call->self.markup;

cleanup:
    return status;
}

static enum salvo_status strip(struct interpreter *in, const struct call *call, struct value *out)
{
    return strip_sides(in, call, true, true, out);
}

static enum salvo_status lstrip(struct interpreter *in, const struct call *call, struct value *out)
{
    return strip_sides(in, call, true, false, out);
}

static enum salvo_status rstrip(struct interpreter *in, const struct call *call, struct value *out)
{
    return strip_sides(in, call, false, true, out);
}

static enum salvo_status remove_side(const struct call *call, bool prefix, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct string self = call->self.string, part;
    TRY(want_string(&call->given[0], "removing", &part));
    if (prefix && string_starts(self, part))
        self = string_part(self, part.size, self.size);
    else if (!prefix && part.size && string_ends(self, part))
        self = string_part(self, 0, self.size - part.size);
    *out = value_string(self);

cleanup:
    return status;
}

static enum salvo_status removeprefix(struct interpreter *in, const struct call *call, struct value *out)
{
    (void)in;
    return remove_side(call, true, out);
}

static enum salvo_status removesuffix(struct interpreter *in, const struct call *call, struct value *out)
{
    (void)in;
    return remove_side(call, false, out);
}

/* ---- Replacing --------------------------------------------------------------------------------------- */

static enum salvo_status replace(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct text text;
    struct string self, older, newer;
    int64_t most = -1;
    TRY(begin(in, call, &text, &self));
    TRY(value_to_string(in, call->given[0], &older));
    TRY(value_to_string(in, call->given[1], &newer));
    if (is_given(&call->given[2]))
        TRY(want_integer(&call->given[2], "replace", &most));
    TRY(spend_search(in, self, older));
    size_t at = 0;
    for (int64_t done = 0; most < 0 || done < most; done++) {
        size_t found = string_find(self, older, at);
        if (found == SIZE_MAX)
            break;
        TRY(spend(in, newer.size + 1));
        TRY(text_string(&text, string_part(self, at, found)));
        TRY(text_string(&text, newer));
        at = found + older.size;
        if (!older.size) { /* before each character, and at the end */
            if (at == self.size) {
                at = self.size;
                break;
            }
            TRY(text_char(&text, self.chars[at++]));
        }
    }
    TRY(text_string(&text, string_part(self, at, self.size)));
    *out = value_string(text_take(&text));

cleanup:
    return status;
}

static enum salvo_status expandtabs(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct text text;
    struct string self;
    int64_t size = 8;
    size_t column = 0;
    TRY(begin(in, call, &text, &self));
    if (call->given[0].kind != VALUE_ABSENT)
        TRY(want_integer(&call->given[0], "expandtabs", &size));
    for (size_t i = 0; i < self.size; i++) {
        uint32_t code = CHAR_CODE(self.chars[i]);
        if (code == '\t') {
            size_t blanks = size > 0 ? (size_t)size - column % (size_t)size : 0;
            TRY(spend(in, blanks));
            TRY(text_repeat(&text, ' ' | (self.chars[i] & CHAR_DATA), blanks));
            column += blanks;
        } else {
            TRY(text_char(&text, self.chars[i]));
            column = code == '\n' || code == '\r' ? 0 : column + 1;
        }
    }
    TRY(finish(call, &text, out));

cleanup:
    return status;
}

/* ---- Padding ----------------------------------------------------------------------------------------- */

enum side { SIDE_LEFT, SIDE_RIGHT, SIDE_BOTH };

static enum salvo_status pad(
    struct interpreter *in, const struct call *call, enum side side, int64_t width, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct text text;
    struct string self, fill = {0};
    TRY(begin(in, call, &text, &self));
    if (call->given[0].kind != VALUE_ABSENT)
        TRY(want_integer(&call->given[0], "the width", &width));
    if (call->given[1].kind != VALUE_ABSENT)
        TRY(want_string(&call->given[1], "what is filled in", &fill));
    if (call->given[1].kind != VALUE_ABSENT && fill.size != 1)
        TRY(fail(SALVO_ERROR_FORMAT, "what is filled in has to be one character"));
    size_t missing = width > (int64_t)self.size ? (size_t)width - self.size : 0;
    size_t before = side == SIDE_LEFT ? missing : 0;
    if (side == SIDE_BOTH)
        before = missing / 2 + (missing & (size_t)width & 1);
    TRY(spend(in, missing));
    TRY(text_repeat(&text, fill.size ? fill.chars[0] : ' ', before));
    TRY(text_string(&text, self));
    TRY(text_repeat(&text, fill.size ? fill.chars[0] : ' ', missing - before));
    TRY(finish(call, &text, out));

cleanup:
    return status;
}

static enum salvo_status center(struct interpreter *in, const struct call *call, struct value *out)
{
    return pad(in, call, SIDE_BOTH, 80, out);
}

static enum salvo_status ljust(struct interpreter *in, const struct call *call, struct value *out)
{
    return pad(in, call, SIDE_RIGHT, 0, out);
}

static enum salvo_status rjust(struct interpreter *in, const struct call *call, struct value *out)
{
    return pad(in, call, SIDE_LEFT, 0, out);
}

static enum salvo_status zfill(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct text text;
    struct string self;
    int64_t width;
    TRY(begin(in, call, &text, &self));
    TRY(want_integer(&call->given[0], "zfill", &width));
    size_t sign = self.size && (CHAR_CODE(self.chars[0]) == '-' || CHAR_CODE(self.chars[0]) == '+');
    size_t missing = width > (int64_t)self.size ? (size_t)width - self.size : 0;
    TRY(spend(in, missing));
    TRY(text_string(&text, string_part(self, 0, sign)));
    TRY(text_repeat(&text, '0', missing));
    TRY(text_string(&text, string_part(self, sign, self.size)));
    TRY(finish(call, &text, out));

cleanup:
    return status;
}

/* ---- Lines ------------------------------------------------------------------------------------------- */

/* Where the line that begins at `at` ends, without and with what ends it. */
static size_t line_end(struct string string, size_t at, size_t *next)
{
    size_t end = at;
    while (end < string.size && !char_is_line_end(string.chars[end]))
        end++;
    *next = end + (end < string.size);
    if (*next < string.size && CHAR_CODE(string.chars[end]) == '\r' &&
        CHAR_CODE(string.chars[end + 1]) == '\n')
        ++*next;
    return end;
}

static enum salvo_status indent(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct text text, blanks = {.heap = &in->heap};
    struct string self, width;
    int64_t count = 4;
    TRY(want_string(&call->self, "indent", &self));
    TRY(begin(in, call, &text, &self));
    bool first = value_true(&call->given[1]), blank = value_true(&call->given[2]);
    if (call->given[0].kind == VALUE_STRING) {
        width = call->given[0].string;
    } else {
        if (call->given[0].kind != VALUE_ABSENT)
            TRY(want_integer(&call->given[0], "indent", &count));
        TRY(spend(in, count > 0 ? (size_t)count : 0));
        TRY(text_repeat(&blanks, ' ', count > 0 ? (size_t)count : 0));
        width = text_take(&blanks);
    }
    size_t at = 0, next = 0;
    bool more = true;
    for (size_t line = 0; more; line++, at = next) {
        size_t end = line_end(self, at, &next);
        more = next > end;
        if (line)
            TRY(text_char(&text, '\n'));
        bool indented = line ? blank || end > at : first;
        TRY(spend(in, width.size + 1));
        if (indented)
            TRY(text_string(&text, width));
        TRY(text_string(&text, string_part(self, at, end)));
    }
    TRY(finish(call, &text, out));

cleanup:
    return status;
}

static enum salvo_status truncate_filter(struct interpreter *in, const struct call *call, struct value *out)
{
    static const uint32_t dots[] = {'.', '.', '.'}, blank[] = {' '};
    enum salvo_status status = SALVO_OK;
    struct text text;
    struct string self, end = {dots, 3};
    int64_t length = 255, leeway = 5;
    size_t size;
    TRY(value_length(in, call->self, &size));
    if (call->given[0].kind != VALUE_ABSENT)
        TRY(want_integer(&call->given[0], "truncate", &length));
    if (call->given[2].kind != VALUE_ABSENT)
        TRY(want_string(&call->given[2], "truncate", &end));
    if (is_given(&call->given[3]))
        TRY(want_integer(&call->given[3], "truncate", &leeway));
    if (length < (int64_t)end.size || leeway < 0)
        TRY(fail(SALVO_ERROR_FORMAT, "truncate: the length is too small"));
    *out = call->self;
    if (leeway > INT64_MAX - length || (int64_t)size <= length + leeway)
        goto cleanup;
    TRY(want_string(&call->self, "truncate", &self));
    TRY(begin(in, call, &text, &self));
    size_t kept = (size_t)length - end.size;
    if (!value_true(&call->given[1])) {
        size_t found = string_find_last(self, (struct string){blank, 1}, kept);
        kept = found == SIZE_MAX ? kept : found;
    }
    TRY(text_string(&text, string_part(self, 0, kept)));
    TRY(text_string(&text, end));
    TRY(finish(call, &text, out));

cleanup:
    return status;
}

/* ---- Escapes ----------------------------------------------------------------------------------------- */

static enum salvo_status escape(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct text text;
    struct string self;
    TRY(begin(in, call, &text, &self));
    if (call->self.kind == VALUE_STRING && call->self.markup)
        TRY(text_string(&text, self));
    else
        TRY(text_escaped(&text, self));
    TRY(finish(call, &text, out));
    out->markup = true;

cleanup:
    return status;
}

static enum salvo_status forceescape(struct interpreter *in, const struct call *call, struct value *out)
{
    struct call plain = *call;
    plain.self.markup = false;
    return escape(in, &plain, out);
}

static enum salvo_status safe(struct interpreter *in, const struct call *call, struct value *out)
{
    struct string self;
    enum salvo_status status = value_to_string(in, call->self, &self);
    *out = value_string(self);
    out->markup = true;
    return status;
}

static enum salvo_status string_filter(struct interpreter *in, const struct call *call, struct value *out)
{
    struct string self;
    enum salvo_status status = value_to_string(in, call->self, &self);
    *out = value_string(self);
    out->markup = call->self.kind == VALUE_STRING && call->self.markup;
    return status;
}

/* ---- Formats ----------------------------------------------------------------------------------------- */

static enum salvo_status format_filter(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    const struct arguments *arguments = call->arguments;
    struct string self;
    struct value values;
    TRY(value_to_string(in, call->self, &self));
    if (arguments->count && arguments->named_count)
        TRY(fail(SALVO_ERROR_FORMAT, "format: arguments with and without names"));
    if (arguments->named_count) {
        TRY(dict_new(&in->heap, arguments->named_count, &values));
        for (size_t i = 0; i < arguments->named_count; i++)
            TRY(dict_set(in, values.dict, value_string(arguments->named[i].name), arguments->named[i].value));
    } else {
        TRY(list_new(&in->heap, LIST_TUPLE, arguments->count, &values));
        for (size_t i = 0; i < arguments->count; i++)
            values.list->items[values.list->count++] = arguments->values[i];
    }
    TRY(format_percent(in, self, values, out));

cleanup:
    return status;
}

static enum salvo_status format_method(struct interpreter *in, const struct call *call, struct value *out)
{
    return format_braces(in, call->self.string, call->arguments, out);
}

const struct builtin text_filters[] = {
    {"upper", upper, "", 0},
    {"lower", lower, "", 0},
    {"capitalize", capitalize, "", 0},
    {"title", title_filter, "", 0},
    {"trim", strip, "chars", 0},
    {"replace", replace, "old new count", 2},
    {"center", center, "width", 0},
    {"indent", indent, "width first blank", 0},
    {"truncate", truncate_filter, "length killwords end leeway", 0},
    {"escape", escape, "", 0},
    {"e", escape, "", 0},
    {"forceescape", forceescape, "", 0},
    {"safe", safe, "", 0},
    {"string", string_filter, "", 0},
    {"format", format_filter, "*", 0},
    {0},
};

const struct builtin text_methods[] = {
    {"upper", upper, "", 0},
    {"lower", lower, "", 0},
    {"casefold", casefold, "", 0},
    {"capitalize", capitalize, "", 0},
    {"title", title_method, "", 0},
    {"swapcase", swapcase, "", 0},
    {"strip", strip, "chars", 0},
    {"lstrip", lstrip, "chars", 0},
    {"rstrip", rstrip, "chars", 0},
    {"removeprefix", removeprefix, "prefix", 1},
    {"removesuffix", removesuffix, "suffix", 1},
    {"replace", replace, "old new count", 2},
    {"expandtabs", expandtabs, "tabsize", 0},
    {"center", center, "width fillchar", 1},
    {"ljust", ljust, "width fillchar", 1},
    {"rjust", rjust, "width fillchar", 1},
    {"zfill", zfill, "width", 1},
    {"format", format_method, "*", 0},
    {0},
};
