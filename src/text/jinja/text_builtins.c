/* Filters and methods of strings that give a string. */
#include "text/jinja/builtins.h"
#include "text/jinja/escape.h"
#include "text/jinja/letters.h"

#include <string.h>

/* The filtered value as text. */
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

static enum salvo_status rewrite(struct interpreter *in, const struct call *call,
    enum salvo_status (*write)(struct text *text, struct string self), struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct text text;
    struct string self;
    TRY(begin(in, call, &text, &self));
    TRY(write(&text, self));
    TRY(finish(call, &text, out));

cleanup:
    return status;
}

#define REWRITING(name, write)                                                                        \
    static enum salvo_status name(struct interpreter *in, const struct call *call, struct value *out) \
    {                                                                                                 \
        return rewrite(in, call, write, out);                                                         \
    }

static enum salvo_status write_upper(struct text *text, struct string self)
{
    return text_in_case(text, self, CASE_UPPER);
}

static enum salvo_status write_lower(struct text *text, struct string self)
{
    return text_in_case(text, self, CASE_LOWER);
}

static enum salvo_status write_capitalized(struct text *text, struct string self)
{
    enum salvo_status status = SALVO_OK;
    if (self.size) {
        TRY(text_letter(text, self.chars[0], CASE_TITLE));
        TRY(text_in_case(text, string_part(self, 1, self.size), CASE_LOWER));
    }

cleanup:
    return status;
}

/* The filter and the method differ in the characters after which a word begins. */
static enum salvo_status write_filter_title(struct text *text, struct string self)
{
    enum salvo_status status = SALVO_OK;
    bool first = true;
    for (size_t i = 0; i < self.size; i++) {
        uint32_t code = CHAR_CODE(self.chars[i]);
        TRY(text_letter(text, self.chars[i], first ? CASE_UPPER : CASE_LOWER));
        first = char_is_space(code) || (code < 0x80 && code && strchr("-({[<", (int)code));
    }

cleanup:
    return status;
}

REWRITING(upper, write_upper)
REWRITING(lower, write_lower)
REWRITING(capitalize, write_capitalized)
REWRITING(title_method, text_in_titles)
REWRITING(title_filter, write_filter_title)

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

/* ---- Lines ------------------------------------------------------------------------------------------- */

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
        size_t end = string_line_end(self, at, &next);
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
        TRY(fail(SALVO_ERROR_FORMAT, "format: cannot mix positional and keyword arguments"));
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
    {"indent", indent, "width first blank", 0},
    {"escape", escape, "", 0},
    {"e", escape, "", 0},
    {"safe", safe, "", 0},
    {"string", string_filter, "", 0},
    {"format", format_filter, "*", 0},
    {0},
};

const struct builtin text_methods[] = {
    {"upper", upper, "", 0},
    {"lower", lower, "", 0},
    {"capitalize", capitalize, "", 0},
    {"title", title_method, "", 0},
    {"strip", strip, "chars", 0},
    {"lstrip", lstrip, "chars", 0},
    {"rstrip", rstrip, "chars", 0},
    {"removeprefix", removeprefix, "prefix", 1},
    {"removesuffix", removesuffix, "suffix", 1},
    {"replace", replace, "old new count", 2},
    {"format", format_method, "*", 0},
    {0},
};
