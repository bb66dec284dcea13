/* Masks of random places in documents of random schemas, against each token tried alone: the masks inside
 * strings are prepared (string_tokens.h), so they have a path of their own. */
#include "cmocka_test.h"
#include "grammar/dfa.h"
#include "grammar/json_text.h"
#include "grammar/schema_layout.h"
#include "grammar_sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIMIT = 32 << 20, TOKENS = 600, TEXT_SIZE = 40000 };

/* ---- Random schemas ---- */

struct writer {
    uint64_t seed;
    char *text;
    size_t size;
};

static void put(struct writer *writer, const char *text)
{
    size_t size = strlen(text);
    assert_true(writer->size + size + 1 < TEXT_SIZE);
    memcpy(writer->text + writer->size, text, size + 1);
    writer->size += size;
}

static uint32_t draw(struct writer *writer, uint32_t below)
{
    return sample_random(&writer->seed, below);
}

static void put_number(struct writer *writer, const char *before, uint32_t number)
{
    char text[40];
    snprintf(text, sizeof text, "%s%u", before, number);
    put(writer, text);
}

static void put_string(struct writer *writer)
{
    static const char *const kinds[] = {"", ",\"pattern\":\"^[a-c]+$\"", ",\"pattern\":\"b\"",
        ",\"pattern\":\"^a.*c$\"", ",\"pattern\":\"^[^\\\"u]{2,5}x?\"", ",\"format\":\"date\"",
        ",\"format\":\"uuid\"", ",\"pattern\":\"\\\\u00e9|a\""};
    put(writer, "{\"type\":\"string\"");
    put(writer, kinds[draw(writer, 2) ? 0 : draw(writer, sizeof kinds / sizeof *kinds)]);
    if (draw(writer, 3) == 0)
        put_number(writer, ",\"maxLength\":", 5 + draw(writer, 20));
    if (draw(writer, 4) == 0)
        put_number(writer, ",\"minLength\":", draw(writer, 5));
    put(writer, "}");
}

static void put_schema(struct writer *writer, unsigned depth);

static void put_object(struct writer *writer, unsigned depth)
{
    static const char *const names[] = {
        "\"a\":", "\"ab\":", "\"abc\":", "\"b/\":", "\"x y\":", "\"\xc3\xa9\":", "\"\":", "\"u0\":"};
    put(writer, "{\"type\":\"object\",\"properties\":{");
    unsigned count = draw(writer, 4), first = draw(writer, 8);
    for (unsigned i = 0; i < count; i++) {
        put(writer, i ? "," : "");
        put(writer, names[(first + i * 3) % 8]);
        put_schema(writer, depth - 1);
    }
    put(writer, "}");
    if (count && draw(writer, 2))
        put(writer, ",\"required\":[\"a\"]");
    if (draw(writer, 3) == 0) {
        put(writer, ",\"additionalProperties\":");
        put_schema(writer, depth - 1);
    } else if (draw(writer, 2)) {
        put(writer, ",\"additionalProperties\":false");
    }
    if (draw(writer, 6) == 0)
        put(writer, ",\"patternProperties\":{\"^x\":{\"type\":\"integer\"}}");
    put(writer, "}");
}

static void put_schema(struct writer *writer, unsigned depth)
{
    static const char *const small[] = {"true", "{\"type\":\"integer\",\"minimum\":-5,\"maximum\":130}",
        "{\"enum\":[\"abc\",\"ab\",null,\"\\u00e9\\\"\",1.5]}",
        "{\"type\":[\"boolean\",\"null\",\"number\"]}", "{\"const\":{\"a\":[\"b\"]}}",
        "{\"$ref\":\"#/$defs/tree\"}"};
    unsigned kind = draw(writer, depth ? 10 : 5);
    if (kind < 2) {
        put(writer, small[draw(writer, sizeof small / sizeof *small)]);
    } else if (kind < 5) {
        put_string(writer);
    } else if (kind < 7) {
        put_object(writer, depth);
    } else if (kind == 7) {
        static const char *const unique[] = {"{\"type\":\"integer\",\"minimum\":8,\"maximum\":12}",
            "{\"enum\":[\"abc\",\"ab\",\"x\",null,\"b\",1.5,12,120]}", "{\"type\":[\"boolean\",\"null\"]}",
            "{\"type\":\"string\"}", "{\"type\":\"array\",\"uniqueItems\":true}", "true"};
        const unsigned chosen = draw(writer, 12);
        put(writer, "{\"type\":\"array\",\"items\":");
        if (chosen < 6)
            put(writer, unique[chosen]);
        else
            put_schema(writer, depth - 1);
        put(writer, chosen < 6 ? ",\"uniqueItems\":true}" : ",\"maxItems\":3}");
    } else {
        put(writer, "{\"anyOf\":[");
        put_schema(writer, depth - 1);
        put(writer, ",");
        put_schema(writer, depth - 1);
        put(writer, "]}");
    }
}

/* ---- A vocabulary of pieces of JSON ---- */

static enum salvo_status json_token(
    void *user, uint32_t id, enum token_use *out_use, struct salvo_text *out_bytes)
{
    static const char *const pieces[] = {"\"", "\"", "\"", "\\", "a", "b", "abc", "c", "x", " ", ",", ":",
        "{", "}", "[", "]", "\\u", "00e9", "\\n", "\\\"", "0", "12", "-", ".", "\xc3\xa9", "\xe4\xb8\xad",
        "\xf0\x9f\x9a\x80", "\xf0\x9f", "\x9a\x80", "\xc3", "\n", "null", "true", "\x01", "dead", "\\ud83d",
        "/", "2024-02-", "u", "aaaaaaaaaaaaaaaaaaaaaaaa"};
    static char text[400];
    uint64_t *seed = user;
    *out_use = id == 256 ? TOKEN_IS_END : id == 258 ? TOKEN_IS_NEVER : TOKEN_IS_TEXT;
    *out_bytes = (struct salvo_text){text, 1};
    text[0] = (char)id;
    if (id < 256)
        return SALVO_OK;
    size_t size = 0;
    for (unsigned i = 0, count = 1 + sample_random(seed, 5); i < count; i++) {
        const char *piece = pieces[sample_random(seed, sizeof pieces / sizeof *pieces)];
        size += (size_t)snprintf(text + size, sizeof text - size, "%s", piece);
    }
    out_bytes->size = size;
    return SALVO_OK;
}

static bool is_allowed(const uint32_t *mask, uint32_t id)
{
    return mask[id / 32] >> (id % 32) & 1;
}

static void compare_mask(struct salvo_grammar_matcher *matcher, const struct token_trie *trie,
    const uint32_t *mask, const char *schema, unsigned step)
{
    for (uint32_t id = 0; id < trie->token_count; id++) {
        enum salvo_status status = matcher_accept(matcher, id);
        if (status == SALVO_OK)
            assert_int_equal(matcher_rollback(matcher, 1), SALVO_OK);
        if ((status == SALVO_OK) != is_allowed(mask, id)) {
            struct salvo_text text = token_trie_text(trie, id);
            fail_msg("step %u, token %u '%.*s': the mask says %d, alone %d, with\n%s", step, id,
                (int)text.size, text.data, is_allowed(mask, id), status, schema);
        }
    }
}

/* A token that is allowed; sometimes one that closes something, so that documents end. */
static uint32_t choose(struct writer *writer, const uint32_t *mask, uint32_t count)
{
    static const char closing[] = "\"}]";
    uint32_t id = draw(writer, 4) ? draw(writer, count) : (uint32_t)(unsigned char)closing[draw(writer, 3)];
    for (uint32_t i = 0; i < count && !is_allowed(mask, id); i++)
        id = (id + 1) % count;
    return id;
}

static void test_masks(void **state)
{
    (void)state;
    uint64_t token_seed = 3;
    struct token_trie *trie = NULL;
    struct writer writer = {.seed = 21, .text = malloc(TEXT_SIZE)};
    uint32_t mask[(TOKENS + 31) / 32];
    enum { FIRST = 5 };
    unsigned states = 0, schemas = 0, ended = 0;
    assert_non_null(writer.text);
    assert_int_equal(token_trie_open(TOKENS, json_token, &token_seed, &trie), SALVO_OK);
    while (states < LONG_RUN(SCHEMA_STATES)) {
        struct salvo_grammar_matcher *matcher;
        writer.size = 0;
        put(&writer, "{\"anyOf\":[");
        if (schemas < FIRST) { /* short texts of any kind beside longer ones of a certain kind */
            put(&writer, "{\"type\":\"string\",\"maxLength\":9},"
                         "{\"type\":\"string\",\"pattern\":\"b\",\"maxLength\":16}");
        } else {
            put_schema(&writer, 3);
        }
        put(&writer,
            "],\"$defs\":{\"tree\":{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#/$defs/tree\"},"
            "\"ab\":{\"type\":\"string\"}},\"additionalProperties\":{\"type\":\"string\"}}}}");
        struct salvo_grammar *grammar = sample_schema(writer.text, trie, draw(&writer, 4) == 0, LIMIT);
        if (!grammar && strstr(salvo_error(), "no text can match"))
            continue; /* a pattern and a length may exclude each other */
        if (!grammar)
            fail_msg("%s: %s", writer.text, salvo_error());
        schemas++;
        for (int run = 0; run < 3; run++) {
            assert_int_equal(matcher_open(grammar, &matcher), SALVO_OK);
            for (unsigned step = 0; step < 25 && !matcher_is_ended(matcher); step++, states++) {
                assert_int_equal(matcher_mask(matcher, mask, sizeof mask / sizeof *mask), SALVO_OK);
                compare_mask(matcher, trie, mask, writer.text, step);
                uint32_t id = choose(&writer, mask, trie->token_count);
                assert_true(is_allowed(mask, id)); /* something may always follow */
                assert_int_equal(matcher_accept(matcher, id), SALVO_OK);
            }
            ended += matcher_is_ended(matcher);
            matcher_close(matcher);
        }
        grammar_close(grammar);
    }
    print_message("%u states of %u schemas, %u documents ended\n", states, schemas, ended);
    assert_true(ended > schemas / 4);
    token_trie_close(trie);
    free(writer.text);
}

/* The mask excludes items that are in the array, and prefixes that could only become such an item. */
static void test_unique_items(void **state)
{
    (void)state;
    static const struct {
        const char *items, *text, *allowed, *refused;
    } places[] = {{"{\"type\":\"integer\",\"minimum\":8,\"maximum\":12}", "[8,", "91", "8"},
        {"{\"type\":\"integer\",\"minimum\":8,\"maximum\":12}", "[10,12,1", "1", "023"},
        {"{\"type\":\"integer\",\"minimum\":8,\"maximum\":12}", "[8,9,10,11,12", "]", ","},
        {"{\"enum\":[\"ab\",\"abc\",\"x\"]}", "[\"ab\",\"ab", "c", "\""},
        {"{\"enum\":[\"ab\",\"abc\",\"x\"]}", "[\"ab\",\"abc\",\"", "x", "a"},
        {"{\"enum\":[\"ab\",\"abc\",\"x\"]}", "[\"ab\",\"x\",\"abc\"", "]", ","},
        {"{\"type\":\"string\"}", "[\"a\",\"a", "ab\\", "\""}};
    uint64_t token_seed = 3;
    struct token_trie *trie = NULL;
    uint32_t mask[(TOKENS + 31) / 32];
    assert_int_equal(token_trie_open(TOKENS, json_token, &token_seed, &trie), SALVO_OK);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct salvo_grammar_matcher *matcher;
        char schema[200];
        size_t taken;
        snprintf(
            schema, sizeof schema, "{\"type\":\"array\",\"uniqueItems\":true,\"items\":%s}", places[i].items);
        struct salvo_grammar *grammar = sample_schema(schema, trie, false, LIMIT);
        assert_non_null(grammar);
        assert_int_equal(matcher_open(grammar, &matcher), SALVO_OK);
        assert_int_equal(matcher_append(matcher, places[i].text, strlen(places[i].text), &taken), SALVO_OK);
        assert_int_equal(matcher_mask(matcher, mask, sizeof mask / sizeof *mask), SALVO_OK);
        compare_mask(matcher, trie, mask, schema, (unsigned)i);
        for (const char *byte = places[i].allowed; *byte; byte++)
            assert_true(is_allowed(mask, (unsigned char)*byte));
        for (const char *byte = places[i].refused; *byte; byte++)
            assert_false(is_allowed(mask, (unsigned char)*byte));
        matcher_close(matcher);
        grammar_close(grammar);
    }
    token_trie_close(trie);
}

/* In an array of many items, each token alone is allowed as the mask says: all numbers from 120 to 129 are
 * used.
 */
static void test_many_unique_items(void **state)
{
    (void)state;
    static const char schema[] = "{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"type\":\"integer\","
                                 "\"minimum\":100,\"maximum\":999}}";
    static const unsigned counts[] = {150, 255, 256, 257, 300};
    uint64_t token_seed = 3;
    struct token_trie *trie = NULL;
    uint32_t mask[(TOKENS + 31) / 32] = {0};
    assert_int_equal(token_trie_open(TOKENS, json_token, &token_seed, &trie), SALVO_OK);
    struct salvo_grammar *grammar = sample_schema(schema, trie, false, LIMIT);
    assert_non_null(grammar);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct salvo_grammar_matcher *matcher;
        size_t taken;
        assert_int_equal(matcher_open(grammar, &matcher), SALVO_OK);
        for (unsigned item = 120; item < 120 + counts[i]; item++) {
            char text[16];
            const int size = snprintf(text, sizeof text, "%c%u", item == 120 ? '[' : ',', item);
            assert_int_equal(matcher_append(matcher, text, (size_t)size, &taken), SALVO_OK);
        }
        for (const char *next = ",1"; *next; next++) {
            assert_int_equal(matcher_append(matcher, next, 1, &taken), SALVO_OK);
            assert_int_equal(matcher_mask(matcher, mask, sizeof mask / sizeof *mask), SALVO_OK);
            compare_mask(matcher, trie, mask, schema, counts[i]);
        }
        assert_int_equal(is_allowed(mask, '2'), counts[i] > 256);
        matcher_close(matcher);
    }
    grammar_close(grammar);
    token_trie_close(trie);
}

/* Long strings are counted in blocks: masks where blocks end, and where the string must. */
static void test_long_strings(void **state)
{
    (void)state;
    static const char schema[] = "{\"type\":\"string\",\"minLength\":1030,\"maxLength\":7300}";
    static const size_t places[] = {0, 890, 1020, 1023, 1024, 1029, 1030, 1031, 1150, 2048, 2180, 2182, 7170,
        7290, 7297, 7298, 7299, 7300};
    uint64_t token_seed = 3;
    struct token_trie *trie = NULL;
    struct salvo_grammar_matcher *matcher;
    uint32_t mask[(TOKENS + 31) / 32];
    size_t length = 0, taken;
    assert_int_equal(token_trie_open(TOKENS, json_token, &token_seed, &trie), SALVO_OK);
    struct salvo_grammar *grammar = sample_schema(schema, trie, false, LIMIT);
    assert_non_null(grammar);
    assert_int_equal(matcher_open(grammar, &matcher), SALVO_OK);
    assert_int_equal(matcher_append(matcher, "\"", 1, &taken), SALVO_OK);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        for (; length < places[i]; length++)
            assert_int_equal(matcher_append(matcher, "a", 1, &taken), SALVO_OK);
        assert_int_equal(matcher_mask(matcher, mask, sizeof mask / sizeof *mask), SALVO_OK);
        assert_int_equal(is_allowed(mask, '"'), length >= 1030);
        assert_int_equal(is_allowed(mask, 'a'), length < 7300);
        compare_mask(matcher, trie, mask, schema, (unsigned)length);
    }
    matcher_close(matcher);
    grammar_close(grammar);
    token_trie_close(trie);
}

/* The table of states for the inside of strings, against the automaton of the expression for a character. */
static void test_json_text(void **state)
{
    (void)state;
    struct rule_list rules = {0};
    struct layout layout;
    uint32_t same[TEXT_STATES] = {0}, todo[TEXT_STATES], count = 0;
    layout_open(&rules, false, &layout);
    const struct dfa *dfa =
        dfa_of(&rules.pool, expr_repeat(&rules.pool, layout.character_here, 0, REPEAT_UNLIMITED));
    assert_non_null(dfa);
    same[TEXT_BODY] = 1;
    todo[count++] = TEXT_BODY;
    for (uint32_t i = 0; i < count; i++) {
        enum json_text_state from = (enum json_text_state)todo[i];
        assert_int_equal(dfa->accepts[same[from]], from == TEXT_BODY);
        for (unsigned byte = 0; byte < 256; byte++) {
            enum json_text_state to = json_text_next(from, byte);
            uint32_t expected = dfa_step(dfa, same[from], byte);
            assert_true(json_text_kind_begins(byte) || to == json_text_next(from, byte - 1));
            assert_int_equal(to == TEXT_DEAD, expected == 0);
            if (to != TEXT_DEAD && !same[to]) {
                same[to] = expected;
                todo[count++] = to;
            }
        }
    }
    assert_int_equal(count, TEXT_STATES - 1); /* each one is reached */
    rule_list_free(&rules);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_unique_items),
        cmocka_unit_test(test_many_unique_items),
        cmocka_unit_test(test_long_strings),
        cmocka_unit_test(test_json_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
