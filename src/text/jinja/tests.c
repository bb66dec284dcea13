/* The tests of "is". */
#include "text/jinja/builtins.h"
#include "text/jinja/lexer.h"

#define TEST(name, holds)                                                                             \
    static enum salvo_status name(struct interpreter *in, const struct call *call, struct value *out) \
    {                                                                                                 \
        (void)in;                                                                                     \
        const struct value *self = &call->self;                                                       \
        *out = value_bool(holds);                                                                     \
        return SALVO_OK;                                                                              \
    }

TEST(is_defined, self->kind != VALUE_UNDEFINED)
TEST(is_undefined, self->kind == VALUE_UNDEFINED)
TEST(is_none, self->kind == VALUE_NONE)
TEST(is_boolean, self->kind == VALUE_BOOL)
TEST(is_true, self->kind == VALUE_BOOL && self->boolean)
TEST(is_false, self->kind == VALUE_BOOL && !self->boolean)
TEST(is_integer, self->kind == VALUE_INT)
TEST(is_float, self->kind == VALUE_FLOAT)
TEST(is_number, value_is_number(self))
TEST(is_string, self->kind == VALUE_STRING)
TEST(is_mapping, self->kind == VALUE_DICT)
TEST(is_iterable, value_can_iterate(self))
TEST(is_sequence, self->kind == VALUE_UNDEFINED || self->kind == VALUE_STRING || self->kind == VALUE_DICT ||
                      (self->kind == VALUE_LIST && self->list->kind <= LIST_RANGE))
TEST(is_callable, self->kind == VALUE_UNDEFINED || self->kind == VALUE_FUNCTION ||
                      (self->kind == VALUE_OBJECT && self->object->type->call))
TEST(is_escaped, self->kind == VALUE_STRING && self->markup)

static enum salvo_status is_upper(struct interpreter *in, const struct call *call, struct value *out)
{
    struct string self;
    enum salvo_status status = value_to_string(in, call->self, &self);
    *out = value_bool(status == SALVO_OK && string_has_case(self, true));
    return status;
}

static enum salvo_status is_lower(struct interpreter *in, const struct call *call, struct value *out)
{
    struct string self;
    enum salvo_status status = value_to_string(in, call->self, &self);
    *out = value_bool(status == SALVO_OK && string_has_case(self, false));
    return status;
}

/* ---- Numbers ----------------------------------------------------------------------------------------- */

static enum salvo_status rest_is(
    struct interpreter *in, const struct call *call, struct value divisor, int64_t wanted, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct value rest;
    bool equal;
    if (!value_is_number(&call->self) && call->self.kind != VALUE_UNDEFINED)
        TRY(fail(SALVO_ERROR_FORMAT, "expected a number, not '%s'", value_type(&call->self)));
    TRY(value_binary(in, '%', call->self, divisor, &rest));
    TRY(value_equal(in, rest, value_int(wanted), &equal));
    *out = value_bool(equal);

cleanup:
    return status;
}

static enum salvo_status is_odd(struct interpreter *in, const struct call *call, struct value *out)
{
    return rest_is(in, call, value_int(2), 1, out);
}

static enum salvo_status is_even(struct interpreter *in, const struct call *call, struct value *out)
{
    return rest_is(in, call, value_int(2), 0, out);
}

static enum salvo_status is_divisible(struct interpreter *in, const struct call *call, struct value *out)
{
    return rest_is(in, call, call->given[0], 0, out);
}

/* ---- Comparisons ------------------------------------------------------------------------------------- */

static enum salvo_status is_equal(struct interpreter *in, const struct call *call, struct value *out)
{
    bool equal;
    enum salvo_status status = value_equal(in, call->self, call->given[0], &equal);
    *out = value_bool(equal);
    return status;
}

static enum salvo_status is_unequal(struct interpreter *in, const struct call *call, struct value *out)
{
    enum salvo_status status = is_equal(in, call, out);
    out->boolean = !out->boolean;
    return status;
}

static enum salvo_status is_in_order(
    struct interpreter *in, const struct call *call, int first, int second, struct value *out)
{
    int order;
    enum salvo_status status = value_compare(in, call->self, call->given[0], &order);
    *out = value_bool(order == first || order == second);
    return status;
}

static enum salvo_status is_less(struct interpreter *in, const struct call *call, struct value *out)
{
    return is_in_order(in, call, -1, -1, out);
}

static enum salvo_status is_at_most(struct interpreter *in, const struct call *call, struct value *out)
{
    return is_in_order(in, call, -1, 0, out);
}

static enum salvo_status is_greater(struct interpreter *in, const struct call *call, struct value *out)
{
    return is_in_order(in, call, 1, 1, out);
}

static enum salvo_status is_at_least(struct interpreter *in, const struct call *call, struct value *out)
{
    return is_in_order(in, call, 1, 0, out);
}

static enum salvo_status is_in(struct interpreter *in, const struct call *call, struct value *out)
{
    bool contained;
    enum salvo_status status = value_contains(in, call->given[0], call->self, &contained);
    *out = value_bool(contained);
    return status;
}

/* Objects are the same if their address is; other values if they are equal. */
static enum salvo_status is_same(struct interpreter *in, const struct call *call, struct value *out)
{
    const struct value *self = &call->self, *other = &call->given[0];
    if (self->kind != other->kind) {
        *out = value_bool(false);
        return SALVO_OK;
    }
    if (self->kind < VALUE_LIST)
        return is_equal(in, call, out);
    *out = value_bool(self->list == other->list);
    return SALVO_OK;
}

/* ---- Names ------------------------------------------------------------------------------------------- */

static enum salvo_status is_filter(struct interpreter *in, const struct call *call, struct value *out)
{
    *out = value_bool(
        call->self.kind == VALUE_STRING && builtin_find(in->builtins->filters, call->self.string) != NULL);
    return SALVO_OK;
}

static enum salvo_status is_test(struct interpreter *in, const struct call *call, struct value *out)
{
    *out = value_bool(
        call->self.kind == VALUE_STRING && builtin_find(in->builtins->tests, call->self.string) != NULL);
    return SALVO_OK;
}

const struct builtin test_builtins[] = {
    {"defined", is_defined, "", 0},
    {"undefined", is_undefined, "", 0},
    {"none", is_none, "", 0},
    {"boolean", is_boolean, "", 0},
    {"true", is_true, "", 0},
    {"false", is_false, "", 0},
    {"integer", is_integer, "", 0},
    {"float", is_float, "", 0},
    {"number", is_number, "", 0},
    {"string", is_string, "", 0},
    {"mapping", is_mapping, "", 0},
    {"iterable", is_iterable, "", 0},
    {"sequence", is_sequence, "", 0},
    {"callable", is_callable, "", 0},
    {"escaped", is_escaped, "", 0},
    {"upper", is_upper, "", 0},
    {"lower", is_lower, "", 0},
    {"odd", is_odd, "", 0},
    {"even", is_even, "", 0},
    {"divisibleby", is_divisible, "num", 1},
    {"eq", is_equal, "other", 1},
    {"equalto", is_equal, "other", 1},
    {"==", is_equal, "other", 1},
    {"ne", is_unequal, "other", 1},
    {"!=", is_unequal, "other", 1},
    {"lt", is_less, "other", 1},
    {"lessthan", is_less, "other", 1},
    {"<", is_less, "other", 1},
    {"le", is_at_most, "other", 1},
    {"<=", is_at_most, "other", 1},
    {"gt", is_greater, "other", 1},
    {"greaterthan", is_greater, "other", 1},
    {">", is_greater, "other", 1},
    {"ge", is_at_least, "other", 1},
    {">=", is_at_least, "other", 1},
    {"in", is_in, "seq", 1},
    {"sameas", is_same, "other", 1},
    {"filter", is_filter, "", 0},
    {"test", is_test, "", 0},
    {0},
};
