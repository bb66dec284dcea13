/* The JSON reader and writer. The cases follow the classes of JSONTestSuite: y_ must be accepted, n_ refused.
 */
#include "cmocka_test.h"
#include "json_echo.h"

#include "base/decimal.h"
#include "base/memory.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INIT(literal)                  \
    {                                  \
        (literal), sizeof(literal) - 1 \
    } /* of a struct salvo_text */
#define TEXT(literal) ((struct salvo_text)INIT(literal))

static void assert_ok(enum salvo_status status)
{
    if (status != SALVO_OK)
        fail_msg("%s", salvo_error());
}

struct pair {
    struct salvo_text json, echo;
};

#define SAME(literal)                \
    {                                \
        INIT(literal), INIT(literal) \
    }
#define GIVES(json, echo)      \
    {                          \
        INIT(json), INIT(echo) \
    }

static const struct pair accepted[] = {
    SAME("[]"),
    SAME("{}"),
    SAME("null"),
    SAME("true"),
    SAME("false"),
    SAME("0"),
    SAME("\"\""),
    SAME("[[],{}]"),
    GIVES(" [\t1 ,\r\n2 ] ", "[1,2]"),
    GIVES("{ \"a\" : 1 }", "{\"a\":1}"),
    SAME("{\"a\":1,\"a\":2,\"\":3,\"a\":1}"), /* repeated keys stay, in order */
    GIVES("-0", "0"),
    GIVES("-0.0", "-0.0"),
    GIVES("0e+1", "0"),
    GIVES("1E22", "1e+22"),
    GIVES("1.50", "1.5"),
    GIVES("123e-2", "1.23"),
    SAME("0.1"),
    SAME("1e-07"),
    GIVES("5e-324", "4.94065645841247e-324"),
    SAME("9223372036854775807"),
    SAME("-9223372036854775808"),
    GIVES("9223372036854775808", "9.223372036854776e+18"),
    GIVES("1e-9999", "0"),
    SAME("1.7976931348623157e+308"),
    SAME("2.2250738585072014e-308"),
    GIVES("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\\"\\\\/\\b\\f\\n\\r\\t\""),
    GIVES("\"\\u0041\\u00e9\"", "\"A\xc3\xa9\""),
    SAME("\"\\u0000\\u001f\x7f\""),
    GIVES("\"\\uD83D\\uDE00\\ud800\\udc00\"", "\"\xf0\x9f\x98\x80\xf0\x90\x80\x80\""),
    SAME("\"\xc2\x80\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\""),
    SAME("\"\xef\xbb\xbf\""),
    GIVES("\"\\uFFFF\\u2028\"", "\"\xef\xbf\xbf\xe2\x80\xa8\""),
};

static const struct {
    struct salvo_text json;
    const char *error; /* with the place */
} refused[] = {
    {INIT(""), "line 1, column 1: unexpected end"},
    {INIT(" \n "), "line 2, column 2: unexpected end"},
    {INIT("[1,]"), "column 4: value expected"},
    {INIT("[,1]"), "column 2: value expected"},
    {INIT("[1 2]"), "column 4: ',' or ']' expected"},
    {INIT("[1}"), "column 3: ',' or ']' expected"},
    {INIT("[1"), "column 3: unexpected end"},
    {INIT("]"), "column 1: value expected"},
    {INIT("{\"a\":1,}"), "column 8: key in double quotes expected"},
    {INIT("{a:1}"), "column 2: key in double quotes expected"},
    {INIT("{'a':1}"), "column 2: key in double quotes expected"},
    {INIT("{\"a\" 1}"), "column 6: ':' expected"},
    {INIT("{\"a\":}"), "column 6: value expected"},
    {INIT("{\"a\":1 \"b\"}"), "column 8: ',' or '}' expected"},
    {INIT("{\"a\":1]"), "column 7: ',' or '}' expected"},
    {INIT("{\"a\""), "column 5: unexpected end"},
    {INIT("{}}"), "column 3: unexpected text after the value"},
    {INIT("1 2"), "column 3: unexpected text after the value"},
    {INIT("[] // x"), "column 4: unexpected text after the value"},
    {INIT("/* */ 1"), "column 1: value expected"},
    {INIT("nul"), "column 4: unexpected end"},
    {INIT("nulL"), "column 4: value expected"},
    {INIT("True"), "column 1: value expected"},
    {INIT("truefalse"), "column 5: unexpected text after the value"},
    {INIT("NaN"), "column 1: value expected"},
    {INIT("-Infinity"), "column 2: digit expected"},
    {INIT("\xef\xbb\xbf[]"), "column 1: value expected"},
    {INIT("01"), "column 2: unexpected text after the value"},
    {INIT("-"), "column 2: digit expected"},
    {INIT("+1"), "column 1: value expected"},
    {INIT(".5"), "column 1: value expected"},
    {INIT("1."), "column 3: digit expected"},
    {INIT("1.e1"), "column 3: digit expected"},
    {INIT("1e"), "column 3: digit expected"},
    {INIT("1e+"), "column 4: digit expected"},
    {INIT("[1e+]"), "column 5: digit expected"},
    {INIT("0x10"), "column 2: unexpected text"},
    {INIT("1e400"), "number is too large"},
    {INIT("\"a"), "column 3: unexpected end"},
    {INIT("\"\\"), "column 3: unexpected end"},
    {INIT("\"\\x41\""), "column 3: invalid escape"},
    {INIT("\"\\\0\""), "column 3: invalid escape"},
    {INIT("\"\\u12g4\""), "column 6: '\\u' needs four"},
    {INIT("\"\\u12\""), "column 6: '\\u' needs four"},
    {INIT("\"\t\""), "column 2: control character 0x09"},
    {INIT("\"\n\""), "column 2: control character 0x0a"},
    {INIT("\"\0\""), "column 2: control character 0x00"},
    {INIT("[\n \"a\",\n  x]"), "line 3, column 3: value expected"},
    {INIT("\"\\ud800\""), "unpaired surrogate"},
    {INIT("\"\\ud800x\""), "unpaired surrogate"},
    {INIT("\"\\ud800\xc3\xa9\""), "unpaired surrogate"},
    {INIT("\"\\ud800\\n\""), "unpaired surrogate"},
    {INIT("\"\\ud800\\ud800\""), "unpaired surrogate"},
    {INIT("\"\\ud800\\u0041\""), "unpaired surrogate"},
    {INIT("\"\\udc00\""), "unpaired surrogate"},
    {INIT("\"\x80\""), "column 2: invalid UTF-8"},
    {INIT("\"\xc0\x80\""), "column 2: invalid UTF-8"},
    {INIT("\"\xc3\""), "column 3: invalid UTF-8"},
    {INIT("\"\xc3(\""), "column 3: invalid UTF-8"},
    {INIT("\"\xe0\x9f\xbf\""), "column 3: invalid UTF-8"},
    {INIT("\"\xed\xa0\x80\""), "column 3: invalid UTF-8"},
    {INIT("\"\xf0\x8f\xbf\xbf\""), "column 3: invalid UTF-8"},
    {INIT("\"\xf4\x90\x80\x80\""), "column 3: invalid UTF-8"},
    {INIT("\"\xf5\x80\x80\x80\""), "column 2: invalid UTF-8"},
    {INIT("\"\xe2\x82"), "column 4: unexpected end"},
};

/* Pieces of 0 (all at once), at most 1, 2, 3 and 7 bytes. */
static const size_t pieces[] = {0, 1, 2, 3, 7};

static void accepts_json(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++) {
        for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
            struct buffer out = {0};
            struct json_writer writer = {.write = json_to_buffer, .user = &out};
            assert_ok(json_echo(accepted[i].json, pieces[p], i, 64, &writer));
            if (out.size != accepted[i].echo.size || memcmp(out.data, accepted[i].echo.data, out.size) != 0)
                fail_msg("%s gives %.*s", accepted[i].json.data, (int)out.size, out.data);
            buffer_free(&out);
        }
    }
}

static void refuses_everything_else(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
            struct buffer out = {0};
            struct json_writer writer = {.write = json_to_buffer, .user = &out};
            assert_int_equal(json_echo(refused[i].json, pieces[p], i, 64, &writer), SALVO_ERROR_ARGUMENT);
            if (!strstr(salvo_error(), refused[i].error))
                fail_msg("%s: '%s' is not in '%s'", refused[i].json.data, refused[i].error, salvo_error());
            buffer_free(&out);
        }
    }
}

static void repeats_its_error(void **state)
{
    (void)state;
    struct json_reader reader = {.longest = 9};
    struct json_event event;
    json_reader_feed(&reader, "[x", 2, false);
    assert_ok(json_reader_next(&reader, &event));
    assert_int_equal(event.kind, JSON_ARRAY_BEGIN);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(json_reader_next(&reader, &event), SALVO_ERROR_ARGUMENT);
        assert_string_equal(salvo_error(), "JSON: line 1, column 2: value expected");
    }
    json_reader_free(&reader);
}

/* `count` times `unit` with `middle` between it and `count` times `end`. */
static char *nested(const char *unit, const char *middle, const char *end, size_t count)
{
    char *text = malloc(count * (strlen(unit) + strlen(end)) + strlen(middle) + 1), *at = text;
    assert_non_null(text);
    for (size_t i = 0; i < count; i++)
        at = stpcpy(at, unit);
    at = stpcpy(at, middle);
    for (size_t i = 0; i < count; i++)
        at = stpcpy(at, end);
    return text;
}

static void keeps_its_limits(void **state)
{
    (void)state;
    static const struct {
        const char *unit, *middle, *end;
        size_t fits, more;
        const char *error;
    } cases[] = {
        {"[", "", "]", JSON_MAX_DEPTH, JSON_MAX_DEPTH + 1, "column 513: nested too deeply: the limit is 512"},
        {"{\"a\":", "1", "}", JSON_MAX_DEPTH, JSON_MAX_DEPTH + 1, "nested too deeply"},
        {"[{\"a\":", "1", "}]", JSON_MAX_DEPTH / 2, JSON_MAX_DEPTH / 2 + 1, "nested too deeply"},
        {"1", "", "", DECIMAL_PARSE / 4, DECIMAL_PARSE + 1, "number is longer than 1024 bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (size_t p = 0; p < 2; p++) {
            struct buffer out = {0};
            struct json_writer writer = {.write = json_to_buffer, .user = &out};
            char *fits = nested(cases[i].unit, cases[i].middle, cases[i].end, cases[i].fits);
            char *more = nested(cases[i].unit, cases[i].middle, cases[i].end, cases[i].more);
            assert_ok(json_echo((struct salvo_text){fits, strlen(fits)}, p, 1, 8, &writer));
            assert_int_equal(
                json_echo((struct salvo_text){more, strlen(more)}, p, 1, 8, &writer), SALVO_ERROR_ARGUMENT);
            assert_non_null(strstr(salvo_error(), cases[i].error));
            assert_ok(json_echo(TEXT("[\"12345678\",\"123456\\u00e9\"]"), p, 1, 8, &writer));
            assert_int_equal(json_echo(TEXT("\"123456789\""), p, 1, 8, &writer), SALVO_ERROR_ARGUMENT);
            assert_non_null(strstr(salvo_error(), "column 10: string is longer than 8 bytes"));
            assert_int_equal(json_echo(TEXT("\"1234567\\u00e9\""), p, 1, 8, &writer), SALVO_ERROR_ARGUMENT);
            free(fits);
            free(more);
            buffer_free(&out);
        }
    }
}

static void gives_numbers_exactly(void **state)
{
    (void)state;
    const struct {
        struct salvo_text json;
        enum json_kind kind;
        int64_t integer;
        double number;
    } cases[] = {
        {INIT("9007199254740993"), JSON_INTEGER, 9007199254740993, 9007199254740992.0},
        {INIT("-9223372036854775808"), JSON_INTEGER, INT64_MIN, -9223372036854775808.0},
        {INIT("9223372036854775808"), JSON_NUMBER, 0, 9223372036854775808.0},
        {INIT("1.0"), JSON_NUMBER, 0, 1},
        {INIT("1e2"), JSON_NUMBER, 0, 100},
        {INIT("-0"), JSON_INTEGER, 0, 0},
        {INIT("0.1"), JSON_NUMBER, 0, 0.1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct json_reader reader = {0};
        struct json_event event;
        json_reader_feed(&reader, cases[i].json.data, cases[i].json.size, true);
        assert_ok(json_reader_next(&reader, &event));
        assert_int_equal(event.kind, cases[i].kind);
        assert_true(event.integer == cases[i].integer && event.number == cases[i].number);
        assert_int_equal(event.text.size, cases[i].json.size);
        assert_memory_equal(event.text.data, cases[i].json.data, event.text.size);
        assert_ok(json_reader_next(&reader, &event));
        assert_int_equal(event.kind, JSON_DONE);
        json_reader_free(&reader);
    }
}

/* ---- Writer ------------------------------------------------------------------------------------------ */

static void expect_written(struct buffer *out, const char *expected)
{
    assert_ok(buffer_append(out, "", 1));
    assert_string_equal(out->data, expected);
    out->size = 0;
}

static void writes_styles(void **state)
{
    (void)state;
    const struct salvo_text json = TEXT("{\"a\":[1,[],{}],\"\xc3\xa9\":\"\xf0\x9f\x98\x80\\n\"}");
    struct buffer out = {0};
    struct json_writer indented = {
        .write = json_to_buffer, .user = &out, .indent = "  ", .key_separator = ": "};
    struct json_writer ascii = {.write = json_to_buffer, .user = &out, .ascii = true, .item_separator = ", "};
    assert_ok(json_echo(json, 0, 0, 64, &indented));
    expect_written(
        &out, "{\n  \"a\": [\n    1,\n    [],\n    {}\n  ],\n  \"\xc3\xa9\": \"\xf0\x9f\x98\x80\\n\"\n}");
    assert_ok(json_echo(json, 0, 0, 64, &ascii));
    expect_written(&out, "{\"a\":[1, [], {}], \"\\u00e9\":\"\\ud83d\\ude00\\n\"}");
    buffer_free(&out);
}

static void writes_odd_bytes_and_numbers(void **state)
{
    (void)state;
    struct buffer out = {0};
    struct json_writer writer = {.write = json_to_buffer, .user = &out};
    json_begin(&writer, '[');
    json_text(&writer, TEXT("a\x80\xc3(\xed\xa0\x80\xf4\x90\x80\x80\xc3"));
    json_text(&writer, TEXT("\0\x1f\"\\/\x7f"));
    json_float(&writer, NAN, false);
    json_float(&writer, -INFINITY, true);
    json_float(&writer, (double)0.1f, true);
    json_float(&writer, (double)0.1f, false);
    json_float(&writer, -0.0, false);
    json_unsigned(&writer, UINT64_MAX);
    json_end(&writer, ']');
    assert_ok(writer.status);
    expect_written(&out, "[\"a\\ufffd\\ufffd(\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd\","
                         "\"\\u0000\\u001f\\\"\\\\/\x7f\","
                         "null,null,0.1,0.10000000149011612,-0.0,18446744073709551615]");
    buffer_free(&out);
}

static void numbers_read_back(void **state)
{
    (void)state;
    uint64_t bits = 1;
    for (int i = 0; i < 20000; i++) {
        char text[DECIMAL_TEXT];
        double number;
        float single;
        bits = bits * 6364136223846793005u + 1442695040888963407u;
        memcpy(&number, &bits, sizeof number);
        memcpy(&single, &bits, sizeof single);
        if (isfinite(number))
            assert_true(strtod(decimal_format(number, false, text), NULL) == number);
        if (isfinite(single))
            assert_true(strtof(decimal_format((double)single, true, text), NULL) == single);
    }
}

/* A program in which salvo is a library may have set a locale with another decimal point. */
static void ignores_the_locale(void **state)
{
    (void)state;
    static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "ps_AF.UTF-8", "de_DE"};
    bool set = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char text[DECIMAL_TEXT];
        if (!setlocale(LC_NUMERIC, names[i]))
            continue;
        set = true;
        assert_true(decimal_parse("-1.5e3") == -1500 && decimal_parse("0.1") == 0.1);
        assert_string_equal(decimal_format(-0.25, false, text), "-0.25");
        assert_string_equal(decimal_format(1.5e300, false, text), "1.5e+300");
    }
    setlocale(LC_NUMERIC, "C");
    if (!set)
        skip();
}

static enum salvo_status write_little(void *user, const char *data, size_t size)
{
    size_t *left = user;
    (void)data;
    if (size > *left)
        return fail(SALVO_ERROR_IO, "full");
    *left -= size;
    return SALVO_OK;
}

static void stops_at_the_first_failed_write(void **state)
{
    (void)state;
    size_t left = 4;
    struct json_writer writer = {.write = write_little, .user = &left};
    json_begin(&writer, '[');
    json_string(&writer, "a");
    json_string(&writer, "bc");
    assert_int_equal(writer.status, SALVO_ERROR_IO);
    assert_true(left < 4);
    left = 0;
    json_end(&writer, ']');
    assert_int_equal(writer.status, SALVO_ERROR_IO);
}

static void survives_failed_allocations(void **state)
{
    (void)state;
    const struct salvo_text json =
        TEXT("[\"a string that is longer than the sixty-four bytes that a buffer begins "
             "with\", 1.5, true]");
    uint64_t nth = 1;
    for (;; nth++) {
        struct buffer out = {0};
        struct json_writer writer = {.write = json_to_buffer, .user = &out};
        memory_fail_at(nth);
        enum salvo_status status = json_echo(json, 0, 0, 100, &writer);
        memory_fail_at(0);
        buffer_free(&out);
        if (status == SALVO_OK)
            break;
        assert_int_equal(status, SALVO_ERROR_MEMORY);
    }
    assert_true(nth > 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts_json),
        cmocka_unit_test(refuses_everything_else),
        cmocka_unit_test(repeats_its_error),
        cmocka_unit_test(keeps_its_limits),
        cmocka_unit_test(gives_numbers_exactly),
        cmocka_unit_test(writes_styles),
        cmocka_unit_test(writes_odd_bytes_and_numbers),
        cmocka_unit_test(numbers_read_back),
        cmocka_unit_test(ignores_the_locale),
        cmocka_unit_test(stops_at_the_first_failed_write),
        cmocka_unit_test(survives_failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
