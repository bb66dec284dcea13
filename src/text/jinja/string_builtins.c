/* Methods of strings that split, search or classify. */
#include "text/jinja/builtins.h"
#include "text/jinja/letters.h"

#include <string.h>

/* ---- Cutting ----------------------------------------------------------------------------------------- */

/* The parts in the order in which they are found: from the right, the last part is the first. */
struct parts {
    struct interpreter *in;
    struct value *items;
    size_t count, capacity;
};

static enum salvo_status add_part(struct parts *parts, struct string part)
{
    enum salvo_status status = SALVO_OK;
    TRY(spend(parts->in, 1));
    if (parts->count == parts->capacity) {
        struct value *larger;
        size_t capacity = parts->capacity ? 2 * parts->capacity : 8;
        TRY(HEAP_NEW(&parts->in->heap, &larger, capacity));
        if (parts->count)
            memcpy(larger, parts->items, parts->count * sizeof *larger);
        parts->items = larger;
        parts->capacity = capacity;
    }
    parts->items[parts->count++] = value_string(part);

cleanup:
    return status;
}

static enum salvo_status finish_parts(struct parts *parts, bool reversed, struct value *out)
{
    enum salvo_status status = list_new(&parts->in->heap, LIST_LIST, 0, out);
    if (status != SALVO_OK)
        return status;
    for (size_t i = 0; reversed && i < parts->count / 2; i++) {
        struct value first = parts->items[i];
        parts->items[i] = parts->items[parts->count - 1 - i];
        parts->items[parts->count - 1 - i] = first;
    }
    out->list->items = parts->items;
    out->list->count = parts->count;
    return SALVO_OK;
}

static enum salvo_status cut_at_blanks(struct parts *parts, struct string self, int64_t most)
{
    enum salvo_status status = SALVO_OK;
    size_t at = 0;
    for (;;) {
        while (at < self.size && char_is_space(self.chars[at]))
            at++;
        if (at == self.size)
            break;
        if (most >= 0 && (int64_t)parts->count == most) {
            TRY(add_part(parts, string_part(self, at, self.size)));
            break;
        }
        size_t begin = at;
        while (at < self.size && !char_is_space(self.chars[at]))
            at++;
        TRY(add_part(parts, string_part(self, begin, at)));
    }

cleanup:
    return status;
}

static enum salvo_status cut_at_blanks_from_right(struct parts *parts, struct string self, int64_t most)
{
    enum salvo_status status = SALVO_OK;
    size_t end = self.size;
    for (;;) {
        while (end > 0 && char_is_space(self.chars[end - 1]))
            end--;
        if (end == 0)
            break;
        if (most >= 0 && (int64_t)parts->count == most) {
            TRY(add_part(parts, string_part(self, 0, end)));
            break;
        }
        size_t at = end;
        while (at > 0 && !char_is_space(self.chars[at - 1]))
            at--;
        TRY(add_part(parts, string_part(self, at, end)));
        end = at;
    }

cleanup:
    return status;
}

static enum salvo_status cut_at(
    struct parts *parts, struct string self, struct string separator, int64_t most, bool from_right)
{
    enum salvo_status status = SALVO_OK;
    size_t begin = 0, end = self.size;
    while (most < 0 || (int64_t)parts->count < most) {
        size_t found =
            from_right ? string_find_last(self, separator, end) : string_find(self, separator, begin);
        if (found == SIZE_MAX)
            break;
        if (from_right) {
            TRY(add_part(parts, string_part(self, found + separator.size, end)));
            end = found;
        } else {
            TRY(add_part(parts, string_part(self, begin, found)));
            begin = found + separator.size;
        }
    }
    TRY(add_part(parts, string_part(self, begin, end)));

cleanup:
    return status;
}

static enum salvo_status split_from(
    struct interpreter *in, const struct call *call, bool from_right, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct parts parts = {.in = in};
    struct string self = call->self.string, separator;
    int64_t most = -1;
    TRY(spend(in, self.size));
    if (call->given[1].kind != VALUE_ABSENT)
        TRY(want_integer(&call->given[1], "split", &most));
    if (!is_given(&call->given[0])) {
        TRY(from_right ? cut_at_blanks_from_right(&parts, self, most) : cut_at_blanks(&parts, self, most));
    } else {
        TRY(want_string(&call->given[0], "split", &separator));
        if (!separator.size)
            TRY(fail(SALVO_ERROR_FORMAT, "split: the separator is empty"));
        TRY(spend_search(in, self, separator));
        TRY(cut_at(&parts, self, separator, most, from_right));
    }
    TRY(finish_parts(&parts, from_right, out));

cleanup:
    return status;
}

static enum salvo_status split(struct interpreter *in, const struct call *call, struct value *out)
{
    return split_from(in, call, false, out);
}

static enum salvo_status rsplit(struct interpreter *in, const struct call *call, struct value *out)
{
    return split_from(in, call, true, out);
}

static enum salvo_status splitlines(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct parts parts = {.in = in};
    struct string self = call->self.string;
    bool keep = value_true(&call->given[0]);
    TRY(spend(in, self.size));
    for (size_t at = 0; at < self.size;) {
        size_t next, end = string_line_end(self, at, &next);
        TRY(add_part(&parts, string_part(self, at, keep ? next : end)));
        at = next;
    }
    TRY(finish_parts(&parts, false, out));

cleanup:
    return status;
}

static enum salvo_status partition_at(
    struct interpreter *in, const struct call *call, bool from_right, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct string self = call->self.string, separator;
    TRY(want_string(&call->given[0], "partition", &separator));
    if (!separator.size)
        TRY(fail(SALVO_ERROR_FORMAT, "partition: the separator is empty"));
    TRY(spend_search(in, self, separator));
    size_t found =
        from_right ? string_find_last(self, separator, self.size) : string_find(self, separator, 0);
    bool none = found == SIZE_MAX;
    size_t before = none ? (from_right ? 0 : self.size) : found;
    size_t after = none ? before : found + separator.size;
    TRY(list_new(&in->heap, LIST_TUPLE, 3, out));
    out->list->count = 3;
    out->list->items[0] = value_string(string_part(self, 0, before));
    out->list->items[1] = value_string(none ? (struct string){0} : separator);
    out->list->items[2] = value_string(string_part(self, after, self.size));

cleanup:
    return status;
}

static enum salvo_status partition(struct interpreter *in, const struct call *call, struct value *out)
{
    return partition_at(in, call, false, out);
}

static enum salvo_status rpartition(struct interpreter *in, const struct call *call, struct value *out)
{
    return partition_at(in, call, true, out);
}

/* ---- Searching --------------------------------------------------------------------------------------- */

/* The part of the string that the second and third argument choose, as a slice would. */
static enum salvo_status searched_part(const struct call *call, size_t *begin, size_t *end, bool *beyond)
{
    enum salvo_status status = SALVO_OK;
    int64_t size = (int64_t)call->self.string.size, from = 0, to = size;
    if (is_given(&call->given[1]))
        TRY(want_integer(&call->given[1], "the start", &from));
    if (is_given(&call->given[2]))
        TRY(want_integer(&call->given[2], "the end", &to));
    from += from < 0 ? size : 0;
    to += to < 0 ? size : 0;
    from = from < 0 ? 0 : from;
    to = to < 0 ? 0 : to > size ? size : to;
    *beyond = from > to;
    *begin = *beyond ? 0 : (size_t)from;
    *end = *beyond ? 0 : (size_t)to;

cleanup:
    return status;
}

static enum salvo_status find_in(struct interpreter *in, const struct call *call, bool last, int64_t *out)
{
    enum salvo_status status = SALVO_OK;
    struct string part;
    size_t begin, end;
    bool beyond;
    *out = -1;
    TRY(want_string(&call->given[0], "find", &part));
    TRY(searched_part(call, &begin, &end, &beyond));
    struct string searched = string_part(call->self.string, begin, end);
    TRY(spend_search(in, searched, part));
    size_t found = SIZE_MAX;
    if (!beyond)
        found = last ? string_find_last(searched, part, searched.size) : string_find(searched, part, 0);
    if (found != SIZE_MAX)
        *out = (int64_t)(begin + found);

cleanup:
    return status;
}

static enum salvo_status find(struct interpreter *in, const struct call *call, struct value *out)
{
    int64_t at;
    enum salvo_status status = find_in(in, call, false, &at);
    *out = value_int(at);
    return status;
}

static enum salvo_status rfind(struct interpreter *in, const struct call *call, struct value *out)
{
    int64_t at;
    enum salvo_status status = find_in(in, call, true, &at);
    *out = value_int(at);
    return status;
}

static enum salvo_status index_of(struct interpreter *in, const struct call *call, struct value *out)
{
    int64_t at;
    enum salvo_status status = find_in(in, call, false, &at);
    if (status == SALVO_OK && at < 0)
        return fail(SALVO_ERROR_FORMAT, "index: substring not found");
    *out = value_int(at);
    return status;
}

static enum salvo_status count_of(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct string part;
    size_t begin, end, count = 0;
    bool beyond;
    TRY(want_string(&call->given[0], "count", &part));
    TRY(searched_part(call, &begin, &end, &beyond));
    struct string searched = string_part(call->self.string, begin, end);
    TRY(spend_search(in, searched, part));
    if (!beyond && !part.size)
        count = searched.size + 1;
    for (size_t at = 0; part.size && (at = string_find(searched, part, at)) != SIZE_MAX; at += part.size)
        count++;
    *out = value_int((int64_t)count);

cleanup:
    return status;
}

/* One string, or any of a tuple. */
static enum salvo_status has_side(
    struct interpreter *in, const struct call *call, bool start, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    size_t begin, end, count = 1;
    bool beyond, found = false;
    const struct value *items = &call->given[0];
    TRY(searched_part(call, &begin, &end, &beyond));
    struct string searched = string_part(call->self.string, begin, end);
    if (value_is_list(items, LIST_TUPLE)) {
        count = items->list->count;
        items = items->list->items;
    }
    TRY(spend(in, count));
    for (size_t i = 0; i < count && !found; i++) {
        struct string side;
        TRY(want_string(&items[i], start ? "startswith" : "endswith", &side));
        found = !beyond && (start ? string_starts(searched, side) : string_ends(searched, side));
    }
    *out = value_bool(found);

cleanup:
    return status;
}

static enum salvo_status startswith(struct interpreter *in, const struct call *call, struct value *out)
{
    return has_side(in, call, true, out);
}

static enum salvo_status endswith(struct interpreter *in, const struct call *call, struct value *out)
{
    return has_side(in, call, false, out);
}

static enum salvo_status join(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct text text = {.heap = &in->heap};
    struct value *items;
    size_t count;
    TRY(value_items(in, call->given[0], &items, &count));
    for (size_t i = 0; i < count; i++) {
        struct string item;
        TRY(want_string(&items[i], "join", &item));
        TRY(spend(in, item.size / 8));
        if (i)
            TRY(text_string(&text, call->self.string));
        TRY(text_string(&text, item));
    }
    *out = value_string(text_take(&text));

cleanup:
    return status;
}

const struct builtin split_methods[] = {
    {"split", split, "sep maxsplit", 0},
    {"rsplit", rsplit, "sep maxsplit", 0},
    {"splitlines", splitlines, "keepends", 0},
    {"partition", partition, "sep", 1},
    {"rpartition", rpartition, "sep", 1},
    {"find", find, "sub start end", 1},
    {"rfind", rfind, "sub start end", 1},
    {"index", index_of, "sub start end", 1},
    {"count", count_of, "sub start end", 1},
    {"startswith", startswith, "prefix start end", 1},
    {"endswith", endswith, "suffix start end", 1},
    {"join", join, "iterable", 1},
    {0},
};

/* ---- Tests of all characters: isdigit, isupper, ... -------------------------------------------------- */

static enum salvo_status all_are(const struct call *call, bool (*is)(uint32_t character), struct value *out)
{
    struct string self = call->self.string;
    bool all = self.size != 0;
    for (size_t i = 0; i < self.size; i++)
        all = all && is(self.chars[i]);
    *out = value_bool(all);
    return SALVO_OK;
}

static bool is_digit(uint32_t character)
{
    uint32_t code = CHAR_CODE(character);
    return char_is_decimal(character) || code == 0xb2 || code == 0xb3 || code == 0xb9 || code == 0x2070 ||
           (code >= 0x2074 && code <= 0x2079) || (code >= 0x2080 && code <= 0x2089);
}

static bool is_alphanumeric(uint32_t character)
{
    return CHAR_CODE(character) != '_' && char_is_word(character);
}

#define ALL_METHOD(name, is)                                                                          \
    static enum salvo_status name(struct interpreter *in, const struct call *call, struct value *out) \
    {                                                                                                 \
        enum salvo_status status = spend(in, call->self.string.size);                                 \
        return status == SALVO_OK ? all_are(call, is, out) : status;                                  \
    }

ALL_METHOD(isspace_method, char_is_space)
ALL_METHOD(isalpha_method, char_is_alpha)
ALL_METHOD(isalnum_method, is_alphanumeric)
ALL_METHOD(isdigit_method, is_digit)

bool string_has_case(struct string string, bool upper)
{
    bool some = false;
    for (size_t i = 0; i < string.size; i++) {
        bool is_upper = char_is_upper(string.chars[i]), is_lower = char_is_lower(string.chars[i]);
        if (char_is_title(string.chars[i]) || (upper ? is_lower : is_upper))
            return false;
        some = some || is_upper || is_lower;
    }
    return some;
}

static enum salvo_status isupper_method(struct interpreter *in, const struct call *call, struct value *out)
{
    *out = value_bool(string_has_case(call->self.string, true));
    return spend(in, call->self.string.size);
}

static enum salvo_status islower_method(struct interpreter *in, const struct call *call, struct value *out)
{
    *out = value_bool(string_has_case(call->self.string, false));
    return spend(in, call->self.string.size);
}

const struct builtin character_methods[] = {
    {"isspace", isspace_method, "", 0},
    {"isalpha", isalpha_method, "", 0},
    {"isalnum", isalnum_method, "", 0},
    {"isdigit", isdigit_method, "", 0},
    {"isupper", isupper_method, "", 0},
    {"islower", islower_method, "", 0},
    {0},
};
