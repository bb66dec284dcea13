/* JSON Schema: documents that fit and documents that do not, what is refused by name, hostile schemas. */
#include "cmocka_test.h"
#include "grammar_sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIMIT = 64 << 20 };

struct schema_case {
    const char *schema;
    const char *fits[7], *fails[7];
};

static const struct schema_case cases[] = {
    {"true", {"1", "\"a\"", "[1,{\"a\":null}]", "{}", "-0.5e3"},
        {"01", "[1,]", "{a:1}", "tru", "\"\\x\"", ""}},
    {"{\"type\":\"integer\",\"minimum\":-12,\"exclusiveMaximum\":305}", {"-12", "0", "9", "304", "99"},
        {"-13", "305", "1000", "1.5", "-100", "00"}},
    {"{\"type\":\"number\",\"exclusiveMinimum\":0.25,\"maximum\":10.5}",
        {"0.26", "0.250001", "10.5", "10.50", "3"}, {"0.25", "0.2", "10.51", "11", "-1", "0"}},
    {"{\"type\":\"number\",\"maximum\":-1.5}", {"-1.5", "-2", "-1.51", "-100.0"}, {"-1.4", "0", "1", "-1"}},
    {"{\"multipleOf\":0.05,\"type\":\"number\"}", {"0", "0.05", "1.1", "7", "-2.350"},
        {"0.01", "1.11", "0.051"}},
    {"{\"multipleOf\":7,\"type\":\"integer\"}", {"0", "7", "49", "-14", "700007"}, {"1", "8", "71"}},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
        {"\"ab\"", "\"\xc3\xa9\xe4\xb8\xad\"", "\"\\n\\u00e9x\"", "\"\\ud83d\\ude80a\""},
        {"\"a\"", "\"abcd\"", "\"\\ud83d\\ude80\"", "ab", "\"\\ud83d\""}},
    {"{\"type\":\"string\",\"pattern\":\"^a+b?$\",\"maxLength\":3}", {"\"a\"", "\"aab\"", "\"\\u0061b\""},
        {"\"b\"", "\"aaab\"", "\"aba\"", "\"\""}},
    {"{\"type\":\"string\",\"pattern\":\"^a+b?$\",\"minLength\":2}", {"\"aa\"", "\"ab\""},
        {"\"a\"", "\"b\""}},
    {"{\"type\":\"string\",\"pattern\":\"^id-[a-z]+$\",\"minLength\":3,\"maxLength\":5}",
        {"\"id-a\"", "\"id-ab\""}, {"\"id-\"", "\"id-abc\"", "\"id\""}},
    {"{\"type\":\"string\",\"pattern\":\"^[a-z]{3,}$\",\"maxLength\":5}", {"\"abc\"", "\"abcde\""},
        {"\"ab\"", "\"\"", "\"abcdef\""}},
    {"{\"type\":\"string\",\"pattern\":\"^x[a-z]{2,9}$\",\"minLength\":2,\"maxLength\":5}",
        {"\"xab\"", "\"xabcd\""}, {"\"x\"", "\"xa\"", "\"xabcde\""}},
    {"{\"type\":\"string\",\"pattern\":\"x\"}", {"\"x\"", "\"axb\"", "\"\\n\\u0078\""}, {"\"a\"", "\"\""}},
    {"{\"type\":\"string\",\"format\":\"date\"}", {"\"2024-02-29\"", "\"1999-12-31\""},
        {"\"2023-02-29\"", "\"1999-13-01\"", "\"1999-1-01\"", "\"1900-02-29\""}},
    {"{\"type\":\"string\",\"format\":\"ipv6\"}", {"\"::1\"", "\"1:2:3:4:5:6:7:8\"", "\"::ffff:1.2.3.4\""},
        {"\"1::2::3\"", "\"12345::\"", "\"1:2:3:4:5:6:7\"", "\"1.2.3.4\""}},
    {"{\"enum\":[\"a\\\"b\",1,null,[1,2],{\"x\":true}]}",
        {"\"a\\\"b\"", "1", "null", "[1,2]", "{\"x\":true}"}, {"\"a\"", "2", "[1]", "{}", "{\"x\":false}"}},
    {"{\"enum\":[\"a\",1,\"abc\"],\"type\":\"string\",\"minLength\":2}", {"\"abc\""}, {"\"a\"", "1"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1,\"maxItems\":3}",
        {"[1]", "[1,2,3]", "[1, 2]"}, {"[]", "[1,2,3,4]", "[\"a\"]", "[1,]"}},
    {"{\"prefixItems\":[{\"const\":1},{\"const\":2}],\"items\":false,\"type\":\"array\"}",
        {"[]", "[1]", "[1,2]"}, {"[2]", "[1,2,3]"}},
    {"{\"prefixItems\":[{\"const\":1}],\"items\":{\"const\":0},\"type\":\"array\",\"minItems\":2,"
     "\"maxItems\":3}",
        {"[1,0]", "[1,0,0]"}, {"[1]", "[1,0,0,0]", "[0,0]", "[]"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2},\"c\":{\"const\":3}},"
     "\"required\":[\"b\"],\"additionalProperties\":false}",
        {"{\"b\":2}", "{\"a\":1,\"b\":2}", "{\"a\":1,\"b\":2,\"c\":3}", "{\"b\":2,\"c\":3}"},
        {"{}", "{\"a\":1}", "{\"b\":2,\"d\":1}", "{\"b\":3}", "{\"b\":2,}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1}},\"additionalProperties\":{\"type\":"
     "\"boolean\"}}",
        {"{}", "{\"a\":1}", "{\"a\":1,\"aa\":true,\"\":false}", "{\"b\":true}"},
        {"{\"a\":true}", "{\"b\":1}", "{\"\\u0061\":true}"}},
    {"{\"type\":\"object\",\"patternProperties\":{\"^a\":{\"const\":1},\"^b\":{\"const\":2},\"^c\":true,\"^"
     "d\":true,"
     "\"^e\":true,\"^f\":true,\"z$\":{\"minimum\":2}},\"additionalProperties\":false}",
        {"{\"a\":1}", "{\"bz\":2}", "{\"fz\":3}", "{\"z\":null}"},
        {"{\"a\":2}", "{\"az\":1}", "{\"fz\":1}", "{\"g\":1}"}},
    {"{\"type\":\"object\",\"propertyNames\":{\"anyOf\":[{\"pattern\":\"^a\"},{\"enum\":[\"x\"]}],\"not\":{"
     "\"const\":"
     "\"ab\"}}}",
        {"{\"a\":1}", "{\"x\":1}", "{\"aab\":1}"}, {"{\"ab\":1}", "{\"a\\u0062\":1}", "{\"y\":1}"}},
    {"{\"type\":\"object\",\"propertyNames\":{\"oneOf\":[{\"maxLength\":2},{\"pattern\":\"^a\"}],\"allOf\":[{"
     "\"minLength\":1},true]}}",
        {"{\"b\":1}", "{\"abc\":1}", "{}"}, {"{\"ab\":1}", "{\"\":1}", "{\"bcd\":1}"}},
    {"{\"type\":\"object\",\"patternProperties\":{\"^x\":{\"type\":\"integer\"},\"y$\":{\"minimum\":5}},"
     "\"additionalProperties\":false}",
        {"{\"x\":1}", "{\"xy\":5}", "{\"y\":null}", "{\"ay\":5.5}"},
        {"{\"xy\":4}", "{\"x\":1.5}", "{\"z\":1}", "{\"y\":4}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":true},\"allOf\":[{\"patternProperties\":{\"^x\":true}},{\"$"
     "ref\":"
     "\"#/$defs/b\"}],\"not\":{\"properties\":{\"c\":{\"const\":1}},\"required\":[\"c\"]},\"$defs\":{\"b\":{"
     "\"properties\":{\"b\":true}}},\"unevaluatedProperties\":{\"const\":2}}",
        {"{\"a\":1,\"b\":1}", "{\"xy\":1}", "{\"c\":2}"}, {"{\"c\":1}", "{\"a\":1,\"d\":1}", "{\"c\":3}"}},
    {"{\"type\":\"object\",\"allOf\":[{\"additionalProperties\":{\"const\":1}}],\"unevaluatedProperties\":"
     "false}",
        {"{}", "{\"a\":1}"}, {"{\"a\":2}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":true},\"anyOf\":[{\"required\":[\"a\"]}],"
     "\"unevaluatedProperties\":"
     "false}",
        {"{\"a\":1}"}, {"{}", "{\"a\":1,\"b\":1}"}},
    {"{\"type\":\"array\",\"prefixItems\":[true],\"allOf\":[{\"prefixItems\":[true,true]}],"
     "\"unevaluatedItems\":"
     "false}",
        {"[]", "[1,2]"}, {"[1,2,3]"}},
    {"{\"type\":\"string\",\"pattern\":\"^a(?!.*-$)[a-z-]*(?<!b)$\"}", {"\"a\"", "\"a-c\""},
        {"\"a-\"", "\"ab\"", "\"b\""}},
    {"{\"type\":\"string\",\"pattern\":\"(^|,)on(,|$)\"}", {"\"on\"", "\"a,on\"", "\"on,b\""},
        {"\"xon\"", "\"on \""}},
    {"{\"type\":\"object\",\"minProperties\":1,\"maxProperties\":2}", {"{\"a\":1}", "{\"a\":1,\"b\":2}"},
        {"{}", "{\"a\":1,\"b\":2,\"c\":3}"}},
    {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\"}],\"maxLength\":1}", {"5", "\"a\""},
        {"\"ab\"", "null"}},
    {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":1}},\"required\":[\"k\"],"
     "\"additionalProperties\":"
     "false},{\"type\":\"object\",\"properties\":{\"k\":{\"const\":2},\"v\":true},\"required\":[\"k\"]}]}",
        {"{\"k\":1}", "{\"k\":2,\"v\":[]}"}, {"{\"k\":1,\"v\":1}", "{\"k\":3}"}},
    {"{\"allOf\":[{\"type\":[\"integer\",\"string\"]},{\"minimum\":3},{\"maximum\":4}],\"type\":[\"integer\","
     "\"null\"]}",
        {"3", "4"}, {"2", "5", "\"a\"", "null"}},
    {"{\"type\":\"string\",\"format\":\"uri-reference\"}",
        {"\"\"", "\"/a/b?c#d\"", "\"//h:1/x\"", "\"a:b\"", "\"a/b:c\"", "\"?q\"", "\"#f\""},
        {"\"1:b\"", "\"a b\"", "\"#a#b\"", "\"%4\""}},
    {"{\"type\":\"string\",\"format\":\"duration\"}", {"\"P1D\"", "\"P2Y3M\"", "\"PT5H30M1S\"", "\"P4W\""},
        {"\"P\"", "\"P1\"", "\"PT\"", "\"P1D2W\"", "\"P1YT\"", "\"P1S\""}},
    {"{\"type\":\"string\",\"format\":\"json-pointer\"}", {"\"\"", "\"/a/~0~1\"", "\"/\""},
        {"\"a\"", "\"/~2\""}},
    {"{\"format\":\"time\",\"type\":\"string\"}",
        {"\"15:59:60-08:00\"", "\"01:29:60.5+01:30\"", "\"00:29:60-23:30\"", "\"05:44:60+05:45\"",
            "\"23:59:60Z\""},
        {"\"15:59:60+08:00\"", "\"22:59:60Z\"", "\"23:59:60+01:00\"", "\"23:59:61Z\""}},
    {"{\"format\":\"date-time\",\"type\":\"string\"}", {"\"1998-12-31T15:59:60.123-08:00\""},
        {"\"1998-12-31T15:59:60.123-07:00\"", "\"1998-12-32T15:59:60-08:00\""}},
    {"{\"format\":\"iri\",\"type\":\"string\"}",
        {"\"http://\xc6\x92\xc3\xb8\xc3\xb8.b\xc3\xa5r/?q#f\"", "\"urn:a\""},
        {"\"/abc\"", "\"http://a b\"", "\"http:// \"", "\"\""}},
    {"{\"format\":\"iri-reference\",\"type\":\"string\"}", {"\"/\xc3\xa2?q\"", "\"#\xc6\x92\"", "\"\""},
        {"\"\\\\a\"", "\"#\\\\b\""}},
    {"{\"format\":\"uri-template\",\"type\":\"string\"}",
        {"\"http://a/{term:1}/{?q,l*}\"", "\"dictionary\"", "\"{+p}/x\""},
        {"\"{term\"", "\"a}\"", "\"{}\"", "\"a b\""}},
    {"{\"$defs\":{\"a\":{\"not\":{\"unknown\":{\"x\":{\"$id\":\"urn:x\",\"type\":\"null\"}}}},\"b\":{\"$id\":"
     "\"urn:x\","
     "\"type\":\"string\"}},\"$ref\":\"urn:x\"}",
        {"\"a\""}, {"null", "1"}},
    {"{\"type\":\"string\",\"format\":\"color\"}", {"\"red\"", "\"\""}, {"1"}},
    {"{\"$ref\":\"#/$defs/t\",\"$defs\":{\"t\":{\"type\":\"object\",\"properties\":{\"n\":{\"$ref\":\"#/"
     "$defs/t\"}},"
     "\"additionalProperties\":false}}}",
        {"{}", "{\"n\":{}}", "{\"n\":{\"n\":{\"n\":{}}}}"}, {"{\"n\":1}", "{\"m\":{}}"}},
    {"{\"type\":\"object\",\"properties\":{\"k\":{\"enum\":[\"a\",\"b\"]},\"v\":true},\"required\":[\"k\"],"
     "\"if\":{\"properties\":{\"k\":{\"const\":\"a\"}}},\"then\":{\"required\":[\"v\"]},\"else\":{"
     "\"properties\":{"
     "\"v\":{\"type\":\"integer\"}}}}",
        {"{\"k\":\"a\",\"v\":null}", "{\"k\":\"b\"}", "{\"k\":\"b\",\"v\":3}"},
        {"{\"k\":\"a\"}", "{\"k\":\"b\",\"v\":null}", "{\"k\":\"c\"}", "{}"}},
    {"{\"type\":\"array\",\"items\":{\"enum\":[\"a\",1,null]},\"uniqueItems\":true,\"minItems\":1}",
        {"[1]", "[null,\"a\"]", "[\"a\",null,1]"}, {"[]", "[1,1]", "[\"a\",1,\"a\"]", "[2]"}},
    {"{\"type\":\"array\",\"uniqueItems\":true}",
        {"[]", "[1,2,\"1\",[1],[1,2],{\"a\":1},{\"a\":2},true,null]", "[[1,1],[2,2,2]]",
            "[\"a\",\"A\",\"a,\"]", "[{\"a\":[1],\"b\":2},{\"a\":1,\"b\":[2]}]", "[0,1,10,0.1,-1]"},
        {"[1,2,1]", "[1,1.0]", "[\"a\",\"\\u0061\"]", "[[1,2],3,[1, 2]]",
            "[{\"a\":1,\"b\":2},{\"b\":2,\"a\":1}]"}},
    {"{\"type\":\"array\",\"uniqueItems\":true}", {"[[],{},\"\",0,false]"},
        {"[null,null]", "[\"]\",\"]\"]", "[\"\\\"\",\"\\\"\"]", "[10,1e1]", "[0,-0]"}},
    {"{\"items\":{\"type\":\"object\",\"properties\":{\"t\":{\"type\":\"array\",\"uniqueItems\":true}}},"
     "\"type\":"
     "\"array\"}",
        {"[{\"t\":[1,2]},{\"t\":[1,2]}]", "[{\"u\":[1,1]}]"}, {"[{\"t\":[1,2]},{\"t\":[1,1]}]"}},
    {"{\"anyOf\":[{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"uniqueItems\":true},{\"type\":"
     "\"array\","
     "\"items\":{\"enum\":[\"a\",\"b\"]}}]}",
        {"[\"a\",\"a\",\"b\"]", "[\"a\",\"c\"]"}, {"[\"a\",\"a\",\"c\"]", "[\"c\",\"c\"]"}},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"contains\":{\"const\":5},\"minContains\":2}", {NULL},
        {"[5,5]", "[1,5]"}},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"contains\":{\"const\":5},\"prefixItems\":[{\"type\":"
     "\"string\"}]}",
        {"[\"a\",5]", "[\"a\",5,\"b\"]"}, {"[\"a\",5,5]", "[\"a\"]", "[5]"}},
    {"{\"type\":\"object\",\"oneOf\":[{\"properties\":{\"a\":{\"type\":\"string\"}},\"additionalProperties\":"
     "false},"
     "{\"properties\":{\"b\":true,\"c\":true},\"required\":[\"c\"],\"additionalProperties\":false},{"
     "\"properties\":{"
     "\"b\":{\"type\":\"string\"}},\"additionalProperties\":false}]}",
        {"{\"a\":\"\"}", "{\"c\":1}", "{\"b\":1,\"c\":1}", "{\"b\":\"\"}"},
        {"{}", "{\"a\":1}", "{\"b\":1}", "{\"a\":\"\",\"b\":\"\"}"}},
    {"{\"oneOf\":[{\"properties\":{\"a\":true},\"required\":[\"a\"],\"additionalProperties\":false},{"
     "\"properties\":{"
     "\"b\":true},\"required\":[\"b\"],\"additionalProperties\":false,\"minLength\":2}]}",
        {"{\"a\":1}", "{\"b\":1}", "\"x\""}, {"{}", "{\"a\":1,\"b\":1}", "1", "\"xx\"", "[]"}},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"maxItems\":1}", {"[]", "[{}]"}, {"[1,2]"}},
    {"{\"type\":\"array\",\"contains\":{\"const\":5},\"minContains\":2,\"maxContains\":3}",
        {"[5,5]", "[1,5,2,5]", "[5,5,5,\"\"]"}, {"[]", "[5,1]", "[5,5,5,5]"}},
    {"{\"not\":{\"type\":[\"object\",\"integer\"]},\"type\":[\"object\",\"number\",\"null\"]}",
        {"1.5", "null", "-0.25"}, {"1", "2.0", "{}", "\"a\""}},
    {"{\"type\":\"string\",\"not\":{\"enum\":[\"ab\",\"c\"]}}", {"\"a\"", "\"abc\"", "\"\""},
        {"\"ab\"", "\"c\"", "\"\\u0063\""}},
    {"{\"oneOf\":[{\"type\":\"number\",\"minimum\":2},{\"type\":\"number\",\"maximum\":5}]}",
        {"1", "6", "5.5", "1.9"}, {"2", "5", "3.5"}},
    {"{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[ab]\",\"maxLength\":2},\"properties\":{\"abc\":"
     "true}}",
        {"{}", "{\"a\":1}", "{\"bz\":1,\"a\":2}"}, {"{\"c\":1}", "{\"abc\":1}", "{\"abd\":1}"}},
    {"{\"type\":\"object\",\"dependentSchemas\":{\"a\":{\"properties\":{\"b\":{\"const\":2}}}},"
     "\"properties\":{"
     "\"a\":true,\"b\":true}}",
        {"{\"b\":1}", "{\"a\":1}", "{\"a\":1,\"b\":2}"}, {"{\"a\":1,\"b\":1}"}},
    {"{\"allOf\":[{\"multipleOf\":0.4},{\"multipleOf\":6}],\"type\":\"integer\"}", {"0", "12", "-24", "6"},
        {"4", "2", "3"}},
    {"{\"$id\":\"http://h/a/root.json\",\"$ref\":\"b/x.json#n\",\"$defs\":{\"x\":{\"$id\":\"b/y/../x.json\","
     "\"$defs\":{\"n\":{\"$anchor\":\"n\",\"$ref\":\"../c.json\"}}},\"c\":{\"$id\":\"/a/"
     "c.json\",\"const\":7}}}",
        {"7"}, {"8", "\"7\""}},
};

static void check(struct salvo_grammar *grammar, const char *text, bool expected, const char *schema)
{
    if ((sample_match(grammar, text, strlen(text)) == 1) != expected)
        fail_msg("%s %s\n%s", text, expected ? "must fit" : "must not fit", schema);
}

static void test_cases(void **state)
{
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        const struct schema_case *one = &cases[i / 2];
        struct salvo_grammar *grammar = sample_schema(one->schema, NULL, i % 2, LIMIT);
        if (!grammar)
            fail_msg("%s: %s", one->schema, salvo_error());
        for (size_t k = 0; k < 7 && one->fits[k]; k++)
            check(grammar, one->fits[k], true, one->schema);
        for (size_t k = 0; k < 7 && one->fails[k]; k++)
            check(grammar, one->fails[k], false, one->schema);
        grammar_close(grammar);
    }
    (void)state;
}

static void test_layouts(void **state)
{
    (void)state;
    static const char schema[] = "{\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2}},\"required\":["
                                 "\"a\",\"b\"],\"type\":\"object\"}";
    static const char turned[] = " { \"b\" :2\t,\n\n\"a\" : 1.0 } ", in_order[] = "{\"a\":1, \"b\":2}";
    struct salvo_grammar *ordered = sample_schema(schema, NULL, false, LIMIT);
    struct salvo_grammar *any = sample_schema(schema, NULL, true, LIMIT);
    check(ordered, in_order, true, schema);
    check(any, in_order, true, schema);
    check(any, turned, true, schema);
    check(ordered, turned, false, schema);
    check(ordered, "{\"b\":2,\"a\":1}", false, schema);
    check(any, "{\"b\":2,\"c\":1}", false, schema);
    grammar_close(ordered);
    grammar_close(any);
}

static void test_errors(void **state)
{
    (void)state;
    static const struct {
        const char *schema, *message;
    } errors[] = {
        {"{\"properties\":{\"a\":{\"not\":{\"uniqueItems\":true}}}}",
            "schema: /properties/a/not/uniqueItems: this keyword cannot be enforced within not"},
        {"{\"propertyNames\":{\"$ref\":\"#/$defs/a\"},\"$defs\":{\"a\":{\"anyOf\":[{\"$ref\":\"#/$defs/"
         "a\"}]}}}",
            "more than 8 nested schemas in propertyNames"},
        {"{\"items\":{\"uniqueItems\":1}}", "/items/uniqueItems: true or false is expected"},
        {"{\"const\":[1,1],\"uniqueItems\":true}", "/uniqueItems: this keyword beside const or enum"},
        {"{\"unevaluatedProperties\":false,\"anyOf\":[{\"properties\":{\"a\":true}}]}",
            "/unevaluatedProperties: this keyword"},
        {"{\"not\":{}}", "no text can match"},
        {"{\"type\":\"text\"}", "/type: this is no type"},
        {"{\"type\":\"string\",\"format\":\"regex\"}", "/format: this format is not supported"},
        {"{\"pattern\":\"(a\"}", "/pattern: regular expression: column 1"},
        {"{\"$ref\":\"#/$defs/x\"}", "/$ref: there is no such place"},
        {"{\"$ref\":\"other.json\"}", "/$ref: references to other documents"},
        {"{\"$ref\":\"#\"}", "leads back to itself"},
        {"{\"type\":\"number\",\"oneOf\":[{\"multipleOf\":3},{\"maximum\":5}]}",
            "/oneOf/0/multipleOf: this keyword cannot be enforced within"},
        {"{\"anyOf\":[]}", "/anyOf: an array of schemas"},
        {"{\"minLength\":-1}", "/minLength: a whole number"},
        {"{\"properties\":[]}", "/properties: an object is expected"},
        {"{\"items\":5}", "/items: a schema is an object"},
        {"{\"a\":", "schema: "},
        {"false", "no text can match"},
        {"{\"type\":\"integer\",\"minimum\":5,\"maximum\":4}", "no text can match"},
        {"[]", "a schema is an object, true or false"},
    };
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        struct salvo_grammar *grammar = sample_schema(errors[i].schema, NULL, false, LIMIT);
        if (grammar || !strstr(salvo_error(), errors[i].message))
            fail_msg("%s gives: %s", errors[i].schema, grammar ? "a grammar" : salvo_error());
    }
}

/* Repeats a part; %u in it becomes a number. */
static char *repeated(const char *before, const char *part, unsigned count, const char *after)
{
    size_t size = strlen(before) + (strlen(part) + 20) * count + strlen(after) + 1;
    char *text = malloc(size), *at = text;
    assert_non_null(text);
    at = stpcpy(at, before);
    for (unsigned i = 0; i < count; i++) {
        char number[16];
        snprintf(number, sizeof number, "%u", i);
        for (const char *c = part; *c; c++) {
            if (*c == '#')
                at = stpcpy(at, number);
            else
                *at++ = *c;
        }
    }
    stpcpy(at, after);
    return text;
}

/* Each ends with a grammar or an error, within the limits of memory. */
static void test_hostile(void **state)
{
    (void)state;
    char *const schemas[] = {
        repeated("", "[", 100000, ""),
        repeated("", "{\"items\":", 600, "1"),
        repeated("", "{\"items\":", 400, "true"),
        repeated("{\"properties\":{", "\"k#\":{\"type\":\"string\"},", 20000, "\"z\":{}}}"),
        repeated("{\"enum\":[", "\"value number #\",", 20000, "0]}"),
        repeated("{\"allOf\":[", "{\"anyOf\":[{\"minLength\":#},{\"maxLength\":#}]},", 30, "true]}"),
        repeated("{\"oneOf\":[", "{\"type\":\"object\",\"required\":[\"k#\"]},", 3000, "{}]}"),
        repeated("{\"$ref\":\"#/$defs/d0\",\"$defs\":{", "\"d#\":{\"items\":{\"$ref\":\"x\"}},", 20000,
            "\"z\":1}}"),
        repeated("{\"type\":\"string\",\"pattern\":\"", "(a|b)*a[ab]{20}", 3, "\",\"maxLength\":50}"),
        repeated("{\"minimum\":1e", "9", 300, "}"),
        repeated("{\"type\":\"array\",\"prefixItems\":[", "true,", 30000, "true]}"),
    };
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
        grammar_close(sample_schema(schemas[i], NULL, i % 2, LIMIT));
        free(schemas[i]);
    }
}

/* Alternatives that need 5^36 choices before each of them fails. */
static void test_many_exclusions(void **state)
{
    (void)state;
    static char text[8000];
    size_t size = (size_t)sprintf(text, "{\"oneOf\":[");
    for (int i = 0; i < 36; i++)
        size += (size_t)sprintf(
            text + size, "{\"required\":[\"a%d\",\"b%d\",\"c%d\",\"d%d\",\"e%d\"]},", i, i, i, i, i);
    sprintf(text + size, "{\"required\":[\"z\"]},{\"required\":[\"z\"]}]}");
    assert_null(sample_schema(text, NULL, false, 32 << 20));
    assert_non_null(strstr(salvo_error(), "too many combinations"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_many_exclusions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
