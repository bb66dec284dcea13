/* GBNF and regular expressions: texts that match and texts that do not, errors, limits, threads. */
#include "base/memory.h"
#include "base/thread.h"
#include "cmocka_test.h"
#include "grammar_sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIMIT = 64 << 20 };

struct gbnf_case {
    const char *grammar;
    const char *matches[8], *begins[6], *fails[8];
};

static const char arithmetic[] = "root ::= (expr \"=\" term \"\\n\")+\n"
                                 "expr ::= term ([-+*/] term)*\n"
                                 "term ::= num | \"(\" expr \")\"\n"
                                 "num ::= [0-9]+ # digits\n";

static const char json[] =
    "root ::= object\n"
    "value ::= object | array | string | number | (\"true\" | \"false\" | \"null\") ws\n"
    "object ::=\n"
    "  \"{\" ws (\n"
    "            string \":\" ws value\n"
    "    (\",\" ws string \":\" ws value)*\n"
    "  )? \"}\" ws\n"
    "array ::= \"[\" ws ( value (\",\" ws value)* )? \"]\" ws\n"
    "string ::=\n"
    "  \"\\\"\" (\n"
    "    [^\"\\\\\\x7F\\x00-\\x1F] |\n"
    "    \"\\\\\" ([\"\\\\bfnrt] | \"u\" [0-9a-fA-F]{4}) # escapes\n"
    "  )* \"\\\"\" ws\n"
    "number ::= (\"-\"? ([0-9] | [1-9] [0-9]{0,15})) (\".\" [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws\n"
    "# Optional space: by convention, applied in this grammar after literal chars when allowed\n"
    "ws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n";

static const struct gbnf_case cases[] = {
    {"root ::= \"a\" | \"bc\"", {"a", "bc"}, {"", "b"}, {"c", "ab", "bcd"}},
    {"root ::= left\nleft ::= left \"a\" | \"b\"", {"b", "ba", "baaaa"}, {""}, {"a", "bb", "bab"}},
    {"root ::= s\ns ::= s s | \"a\" | ", {"", "a", "aaaaaaaaaaaaaaaa"}, {NULL}, {"b", "aab"}},
    {"root ::= \"(\" root \")\" root | \"\"", {"", "()", "(())()", "((()))"}, {"(", "(()"}, {")", "())"}},
    {"root ::= a\na ::= b\nb ::= a | \"x\"", {"x"}, {""}, {"y", "xx"}},
    {"root ::= n n n\nn ::= \"a\"?", {"", "a", "aa", "aaa"}, {NULL}, {"aaaa"}},
    {"root ::= x{2,3} y{2} z{1,}\nx ::= \"x\"\ny ::= \"y\"\nz ::= \"z\"", {"xxyyz", "xxxyyzzz"},
        {"xx", "xxyy"}, {"xyyz", "xxxxyyz", "xxyz"}},
    {"root ::= [a-c] [^a-c] . [-a] [a\\-] [\\]\\[]", {"ad\xc3\xa9--]", "a\nza-["}, {"ad\xc3", "ad\xe4\xb8"},
        {"aa", "ad\xff", "ad\xc3\x28", "ad\xed\xa0\x80--]"}},
    {"root ::= \"\\x41\\u00e9\\U0001F680\\t\\n\\r\\\\\\\"\"", {"A\xc3\xa9\xf0\x9f\x9a\x80\t\n\r\\\""},
        {"A\xc3"}, {"A\xe9"}},
    {"  # first a comment\r\n\r\nroot ::= a-b # then\r\na-b ::= \"x\" (\r\n  \"y\" | # more\r\n  "
     "\"z\"\r\n)\r\n",
        {"xy", "xz"}, {"x"}, {"xyz"}},
    {"root ::= [\xc3\xa9-\xe4\xb8\xad]", {"\xc3\xa9", "\xe4\xb8\xad", "\xe0\xa0\x80"}, {"\xc3"},
        {"\xc3\xa8", "\xe4\xb8\xae", "a"}},
    {arithmetic, {"1+2=3\n", "(1+(2*3))=7\n2=2\n"}, {"(((1", "1+2="}, {"=", "1+=", "()", "1=(2+\n"}},
    {json, {"{}", "{\"a\":[1, 2.5e+1,{\"b\": null}]}", "{\"\\u00e9\\n\": \"\xc3\xa9\"}\n  "},
        {"{\"a", "{\"a\\u12", "{\"a\":[[[["}, {"[]", "{\"a\":01}", "{\"a\\x\":1}", "{,}"}},
    /* llama.cpp's empty alternatives, and a rule that only an inner group ends. */
    {"root ::= (\"a\" |) (| \"b\") (\"c\" | | \"d\")", {"", "a", "b", "abc", "ad", "c"}, {NULL},
        {"ba", "cd"}},
    {"root ::= item (\",\" root)?\nitem ::= [0-9]+", {"1", "1,2", "1,22,3,4,5"}, {"1,"}, {",", "1,,"}},
    {"root ::= a{0} \"b\"\na ::= \"a\"", {"b"}, {""}, {"ab"}},
    {"root ::= ((\"a\"?)*)* \"b\"", {"b", "aaab"}, {"aa"}, {"c"}},
};

static void check(struct salvo_grammar *grammar, const char *text, int expected, const char *source)
{
    int answer = sample_match(grammar, text, strlen(text));
    if (answer != expected)
        fail_msg("'%s' gives %d, expected %d, with\n%s", text, answer, expected, source);
}

static void test_gbnf_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct salvo_grammar *grammar = sample_gbnf(cases[i].grammar, NULL, LIMIT);
        if (!grammar)
            fail_msg("%s: %s", cases[i].grammar, salvo_error());
        for (size_t k = 0; k < 8 && cases[i].matches[k]; k++)
            check(grammar, cases[i].matches[k], 1, cases[i].grammar);
        for (size_t k = 0; k < 6 && cases[i].begins[k]; k++)
            check(grammar, cases[i].begins[k], 0, cases[i].grammar);
        for (size_t k = 0; k < 8 && cases[i].fails[k]; k++)
            check(grammar, cases[i].fails[k], -1, cases[i].grammar);
        grammar_close(grammar);
    }
}

static void test_gbnf_errors(void **state)
{
    (void)state;
    static const struct {
        const char *grammar, *message;
    } errors[] = {
        {"root ::= a", "line 1, column 10: there is no rule 'a'"},
        {"root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: there already is a rule 'root'"},
        {"start ::= \"a\"", "there is no rule 'root'"},
        {"", "there is no rule 'root'"},
        {"root = \"a\"", "line 1, column 6: '::=' is expected"},
        {"root ::= \"a\nb ::= 1", "line 1, column 10: the literal has no end"},
        {"root ::= [a", "column 10: the class has no end"},
        {"root ::= [z-a]", "column 11: the range ends before it begins"},
        {"root ::= []", "column 10: the class is empty"},
        {"root ::= (\"a\"", "the group has no ')'"},
        {"root ::= \"a\")", "line 1, column 13: unexpected character"},
        {"root ::= *", "line 1, column 10: there is nothing to repeat"},
        {"root ::= \"a\" {3,2}", "column 14: the largest number"},
        {"root ::= \"a\"{x}", "column 14: a number is expected"},
        {"root ::= \"a\"{100001}", "too many repetitions"},
        {"root ::= \"\\q\"", "column 11: unknown escape '\\q'"},
        {"root ::= \"\\x4\"", "a hexadecimal digit is expected"},
        {"root ::= \"\\ud800\"", "column 11: this number is no Unicode character"},
        {"root ::= \"\xff\"", "column 11: invalid UTF-8"},
        {"root ::= <think>", "column 10: tokens by name or number are not supported"},
        {"root ::= root", "no text can match the grammar"},
        {"root ::= \"a\" root", "no text can match the grammar"},
        {"root ::= \"a\"\n  | \"b\"", "line 2, column 3: the name of a rule is expected"},
    };
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        assert_null(sample_gbnf(errors[i].grammar, NULL, LIMIT));
        if (!strstr(salvo_error(), errors[i].message))
            fail_msg("%s\ngives: %s\nexpected: %s", errors[i].grammar, salvo_error(), errors[i].message);
    }
}

static void test_regex_errors(void **state)
{
    (void)state;
    static const struct {
        const char *regex, *message;
    } errors[] = {
        {"(a", "column 1: the group has no ')'"},
        {"a)", "column 2: there is no '('"},
        {"a**", "column 3: there is nothing to repeat"},
        {"a*+", "possessive"},
        {"*a", "column 1: there is nothing to repeat"},
        {"[b-a]", "column 2: the range ends"},
        {"[a", "the class has no end"},
        {"[]", "the class is empty"},
        {"a{3,2}", "column 2: the largest number"},
        {"a{200000}", "too many repetitions"},
        {"a(b(?=a))", "column 4: lookahead"},
        {"(a)\\1", "column 4: references"},
        {"\\bword", "word boundaries"},
        {"a\\p{Greek}", "column 2: this property of Unicode is not supported"},
        {"\\P{}", "this property of Unicode is not supported"},
        {"\\pL", "in braces"},
        {"[\\p{L]", "in braces"},
        {"[\\p{L}-z]", "a class cannot be the end of a range"},
        {"(?i)a", "flags"},
        {"(a|^)(?=b)", "column 6: lookaround"},
        {"[[:alpha:]]", "POSIX"},
        {"\\", "a character is expected"},
        {"\\xg0", "hexadecimal"},
    };
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        assert_null(sample_regex(errors[i].regex, NULL, LIMIT));
        if (!strstr(salvo_error(), errors[i].message))
            fail_msg("%s\ngives: %s\nexpected: %s", errors[i].regex, salvo_error(), errors[i].message);
    }
}

/* ---- Hostile grammars ---- */

static char *repeated(const char *before, const char *part, size_t count, const char *after)
{
    size_t size = strlen(before) + strlen(part) * count + strlen(after) + 1;
    char *text = malloc(size), *at;
    assert_non_null(text);
    at = text + sprintf(text, "%s", before);
    for (size_t i = 0; i < count; i++, at += strlen(part))
        memcpy(at, part, strlen(part));
    sprintf(at, "%s", after);
    return text;
}

static void test_hostile_sizes(void **state)
{
    (void)state;
    const struct {
        char *text;
        const char *message; /* NULL: it may be accepted */
    } grammars[] = {
        {repeated("root ::= ", "(", 1000, ""), "nested too deep"},
        {repeated("root ::= \"a\"", "{1000}", 50, ""), NULL},
        {repeated("root ::= \"a\"", "*", 5000, ""), "deeper than 4000"},
        {repeated("root ::= \"", "x", 10 << 20, "\""), "at most 2097152 are possible"},
        {repeated("root ::= ", "\"abc\" | ", 200000, "\"d\""), NULL},
        {repeated("root ::= ", "[a-z] ", 300000, ""), NULL},
        {repeated("root ::= ", ". ", 900000, ""), "too large"},
    };
    for (size_t i = 0; i < sizeof grammars / sizeof *grammars; i++) {
        struct salvo_grammar *grammar = sample_gbnf(grammars[i].text, NULL, LIMIT);
        if (grammars[i].message) {
            assert_null(grammar);
            if (!strstr(salvo_error(), grammars[i].message))
                fail_msg("grammar %zu gives: %s", i, salvo_error());
        }
        grammar_close(grammar);
        free(grammars[i].text);
    }
}

/* Exponentially many parses, but few states. */
static void test_ambiguity(void **state)
{
    (void)state;
    char text[400];
    memset(text, 'a', sizeof text);
    struct salvo_grammar *grammar =
        sample_gbnf("root ::= s\ns ::= s s s | s s | \"a\" | \"aa\"", NULL, LIMIT);
    assert_int_equal(sample_match(grammar, text, sizeof text), 1);
    grammar_close(grammar);
    grammar = sample_regex("(a|aa|a*)*(b|a?a?a?a?a?a?a?a?)*c", NULL, LIMIT);
    assert_int_equal(sample_match(grammar, text, sizeof text), 0);
    grammar_close(grammar);
    /* Its automaton would be found after 80 million items, most of which are there already. */
    assert_null(sample_regex("(i^\"\"${132})", NULL, LIMIT));
    assert_non_null(strstr(salvo_error(), "too ambiguous for an automaton"));
}

/* Which rules can end is known of one after the other, alternately of an early and of a late one; each has a
 * part that never ends and can be left out. */
static void test_rules_that_depend_on_each_other(void **state)
{
    (void)state;
    enum { RULES = 14 };
    char text[1024] = "", *to = text;
    char *const end = text + sizeof text;
    to += snprintf(to, (size_t)(end - to), "root ::= r%d | never", RULES); /* mentioned first: earlier */
    for (int i = 2; i < RULES; i += 2)
        to += snprintf(to, (size_t)(end - to), " r%d", i);
    for (int i = 1; i < RULES; i += 2)
        to += snprintf(to, (size_t)(end - to), " r%d", i);
    to += snprintf(to, (size_t)(end - to), "\nnever ::= \"n\" never\nr0 ::= \"y\"\n");
    for (int i = 1; i <= RULES; i++)
        to += snprintf(to, (size_t)(end - to), "r%d ::= \"x\" r%d never?\n", i, i - 1);
    struct salvo_grammar *grammar = sample_gbnf(text, NULL, LIMIT);
    if (!grammar)
        fail_msg("%s: %s", text, salvo_error());
    check(grammar, "xxxxxxxxxxxxxxy", 1, text);
    check(grammar, "xxxxxxxxxxxxxx", 0, text);
    check(grammar, "xxxxxxxxxxxxxxyn", -1, text);
    grammar_close(grammar);
}

/* Text that nests for ever reaches the limit and is refused; states that no matcher needs are dropped. */
static void test_memory_limit(void **state)
{
    (void)state;
    enum { SMALL = 1 << 20 };
    struct salvo_grammar *grammar = sample_gbnf("root ::= \"[\" (root (\",\" root)*)? \"]\"", NULL, SMALL);
    struct salvo_grammar_matcher *matcher;
    size_t depth = 0;
    enum salvo_status status = SALVO_OK;
    assert_int_equal(matcher_open(grammar, &matcher), SALVO_OK);
    while (status == SALVO_OK && depth < 10000000) {
        status = matcher_append(matcher, "[", 1, NULL);
        depth += status == SALVO_OK;
    }
    assert_int_equal(status, SALVO_ERROR_MEMORY);
    assert_true(depth > 1000);
    /* The matcher is still where it was. */
    assert_int_equal(matcher_steps(matcher), depth);
    assert_int_equal(matcher_rollback(matcher, depth - 10), SALVO_OK);
    for (int i = 0; i < 10; i++)
        assert_int_equal(matcher_append(matcher, "]", 1, NULL), SALVO_OK);
    assert_true(matcher_is_complete(matcher));
    matcher_close(matcher);

    /* Many short texts, all different, never reach it. Matchers that were opened between them keep their
     * states; of three, the one in the middle of the list is closed. */
    enum { DEEP = 20 };
    struct salvo_grammar_matcher *kept[3];
    for (unsigned i = 0; i < (unsigned)LONG_RUN(40000); i++) {
        char text[64];
        size_t size = 0;
        if (i == (unsigned)LONG_RUN(40000) / 2) {
            for (size_t j = 0; j < 3; j++) {
                assert_int_equal(matcher_open(grammar, &kept[j]), SALVO_OK);
                for (size_t k = 0; k < DEEP + j; k++)
                    assert_int_equal(matcher_append(kept[j], "[", 1, NULL), SALVO_OK);
            }
            matcher_close(kept[1]);
            matcher_close(kept[0]);
        }
        for (unsigned bits = i, k = 0; k < 14; k++, bits >>= 1) {
            text[size++] = '[';
            for (const char *c = bits & 1 ? "[]," : ""; *c; c++)
                text[size++] = *c;
        }
        assert_int_equal(sample_match(grammar, text, size), 0);
    }
    for (size_t i = 0; i < DEEP + 2; i++) {
        assert_false(matcher_is_complete(kept[2]));
        assert_int_equal(matcher_append(kept[2], "]", 1, NULL), SALVO_OK);
    }
    assert_true(matcher_is_complete(kept[2]));
    matcher_close(kept[2]);
    grammar_close(grammar);
}

/* ---- Matchers ---- */

static void test_copy_and_rollback(void **state)
{
    (void)state;
    struct token_trie *trie = sample_trie(100, 1);
    struct salvo_grammar *grammar = sample_gbnf("root ::= \"ab\" [0-9]{2}", trie, LIMIT);
    struct salvo_grammar_matcher *matcher, *copy;
    assert_int_equal(matcher_open(grammar, &matcher), SALVO_OK);
    assert_int_equal(matcher_accept(matcher, 'a'), SALVO_OK);
    assert_int_equal(matcher_accept(matcher, 'a'), SALVO_ERROR_ARGUMENT);
    assert_int_equal(matcher_accept(matcher, 256), SALVO_ERROR_ARGUMENT); /* an end token too early */
    assert_int_equal(matcher_accept(matcher, 258), SALVO_ERROR_ARGUMENT); /* a control token */
    assert_int_equal(matcher_accept(matcher, 100000), SALVO_ERROR_ARGUMENT);
    assert_int_equal(matcher_accept(matcher, 'b'), SALVO_OK);
    assert_int_equal(matcher_copy(matcher, &copy), SALVO_OK);
    assert_int_equal(matcher_append(matcher, "12", 2, NULL), SALVO_OK);
    assert_true(matcher_is_complete(matcher));
    assert_false(matcher_is_complete(copy));
    assert_int_equal(matcher_accept(matcher, 257), SALVO_OK);
    assert_true(matcher_is_ended(matcher));
    assert_int_equal(matcher_accept(matcher, 257), SALVO_ERROR_ARGUMENT);
    assert_int_equal(matcher_append(matcher, "1", 1, NULL), SALVO_ERROR_ARGUMENT);
    assert_int_equal(matcher_steps(matcher), 4);
    assert_int_equal(matcher_rollback(matcher, 1), SALVO_OK);
    assert_false(matcher_is_ended(matcher));
    assert_int_equal(matcher_rollback(matcher, 1), SALVO_OK);
    assert_int_equal(matcher_append(matcher, "34", 2, NULL), SALVO_OK);
    assert_int_equal(matcher_rollback(matcher, 4), SALVO_ERROR_ARGUMENT);
    assert_int_equal(matcher_rollback(matcher, 3), SALVO_OK);
    assert_int_equal(matcher_append(matcher, "ab99", 4, NULL), SALVO_OK);
    assert_int_equal(matcher_steps(copy), 2);
    assert_int_equal(matcher_append(copy, "5", 1, NULL), SALVO_OK);
    matcher_close(matcher);
    matcher_close(copy);
    grammar_close(grammar);
    token_trie_close(trie);
}

struct worker {
    struct salvo_grammar *grammar;
    uint64_t seed;
    uint32_t tokens;
    bool failed;
};

/* Writes random texts; the mask must allow their tokens. */
static void *write_texts(void *argument)
{
    struct worker *worker = argument;
    uint32_t words = (worker->tokens + 31) / 32;
    uint32_t *mask = calloc(words, sizeof *mask);
    for (int text = 0; mask && text < 20; text++) {
        struct salvo_grammar_matcher *matcher;
        worker->failed |= matcher_open(worker->grammar, &matcher) != SALVO_OK;
        for (int step = 0; !worker->failed && step < 30 && !matcher_is_ended(matcher); step++) {
            worker->failed |= matcher_mask(matcher, mask, words) != SALVO_OK;
            uint32_t id = sample_random(&worker->seed, worker->tokens);
            for (uint32_t i = 0; i < worker->tokens && !(mask[id / 32] >> (id % 32) & 1); i++)
                id = (id + 1) % worker->tokens;
            worker->failed |= matcher_accept(matcher, id) != SALVO_OK;
        }
        matcher_close(matcher);
    }
    free(mask);
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    enum { WORKERS = 4 };
    struct token_trie *trie = sample_trie(500, 2);
    /* A small limit, so that states are dropped while others work. */
    struct salvo_grammar *grammar = sample_gbnf(json, trie, 1 << 18);
    struct worker workers[WORKERS];
    pthread_t threads[WORKERS];
    assert_non_null(grammar);
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = (struct worker){grammar, (uint64_t)i, trie->token_count, false};
        assert_true(thread_start(&threads[i], write_texts, &workers[i]));
    }
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(threads[i], NULL);
        assert_false(workers[i].failed);
    }
    grammar_close(grammar);
    token_trie_close(trie);
}

/* Each allocation fails once: the result is an error, and nothing leaks. */
static void test_allocations(void **state)
{
    (void)state;
    struct token_trie *trie = sample_trie(50, 3);
    bool failed = true;
    for (uint64_t nth = 1; failed && nth < 10000; nth++) {
        struct salvo_grammar_matcher *matcher = NULL;
        uint32_t mask[16];
        memory_fail_at(nth);
        struct salvo_grammar *grammar = sample_gbnf(json, trie, LIMIT);
        failed = !grammar || matcher_open(grammar, &matcher) != SALVO_OK ||
                 matcher_append(matcher, "{\"a\":[", 6, NULL) != SALVO_OK ||
                 matcher_mask(matcher, mask, 16) != SALVO_OK;
        memory_fail_at(0);
        matcher_close(matcher);
        grammar_close(grammar);
    }
    assert_false(failed);
    token_trie_close(trie);
}

static void a_schema_is_an_element_of_gbnf(void **state)
{
    (void)state;
    static const char text[] =
        "root ::= \"<\" (call \";\"){1,2} %json true \">\"\n"
        "call ::= \"f(\" %json {\"type\":\"array\",\"items\":{\"const\":\"}\\\"]\"}} \")\""
        " | %json {\"type\":\"integer\",\"minimum\":5,\"maximum\":7}\n";
    struct salvo_grammar *grammar = sample_gbnf(text, NULL, 32 << 20);
    assert_non_null(grammar);
    assert_int_equal(sample_match(grammar, "<f([]);6;{\"a\": [1]}>", 20), 1);
    assert_int_equal(sample_match(grammar, "<f([\"}\\\"]\"]);null>", 18), 1);
    assert_int_equal(sample_match(grammar, "<8", 2), -1);
    assert_int_equal(sample_match(grammar, "<f([1", 5), -1);
    grammar_close(grammar);
    assert_null(sample_gbnf("root ::= \"a\"\n  %jso {}", NULL, 32 << 20));
    assert_null(sample_gbnf("root ::= %json {\"type\":", NULL, 32 << 20));
    assert_non_null(strstr(salvo_error(), "line 1, column 10"));
    assert_null(
        sample_gbnf("root ::= \"a\" b\nb ::= %json {\"not\":{\"uniqueItems\":true}}", NULL, 32 << 20));
    assert_non_null(strstr(salvo_error(), "grammar: line 2: schema: /not/uniqueItems"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gbnf_cases),
        cmocka_unit_test(test_gbnf_errors),
        cmocka_unit_test(test_regex_errors),
        cmocka_unit_test(test_hostile_sizes),
        cmocka_unit_test(test_ambiguity),
        cmocka_unit_test(test_rules_that_depend_on_each_other),
        cmocka_unit_test(test_memory_limit),
        cmocka_unit_test(test_copy_and_rollback),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_allocations),
        cmocka_unit_test(a_schema_is_an_element_of_gbnf),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
