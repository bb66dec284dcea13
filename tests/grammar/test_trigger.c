/* Grammars that begin at a trigger, against a search for the trigger; and the bytes that a grammar forces. */
#include "cmocka_test.h"
#include "grammar_sample.h"

#include "grammar/trigger.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIMIT = 32 << 20, END = 256, CONTROL = 258 };

static struct salvo_grammar *open_triggered(
    const char *gbnf, const char *const *triggers, size_t count, bool required, const struct token_trie *trie)
{
    struct rule_list rules;
    struct network network;
    struct salvo_grammar *grammar = NULL;
    struct salvo_text texts[40];
    for (size_t i = 0; i < count; i++)
        texts[i] = (struct salvo_text){triggers[i], strlen(triggers[i])};
    if (gbnf_read(gbnf, strlen(gbnf), "root", &rules) != SALVO_OK)
        return NULL;
    rules.root =
        rule_list_add(&rules, trigger_expr(&rules.pool, &(struct trigger_list){texts, count, required},
                                  expr_rule(&rules.pool, rules.root)));
    if (rules.pool.status == SALVO_OK &&
        network_build(rules.items, rules.count, rules.root, rules.character, &network) == SALVO_OK &&
        grammar_open(&network, trie, LIMIT, &grammar) != SALVO_OK)
        grammar = NULL;
    rule_list_free(&rules);
    return grammar;
}

/* The end of the first trigger in the text; NULL: there is none. */
static const char *search(const char *text, const char *const *triggers, size_t count)
{
    for (const char *end = text; *end; end++) {
        for (size_t i = 0; i < count; i++) {
            size_t size = strlen(triggers[i]);
            if ((size_t)(end + 1 - text) >= size && memcmp(end + 1 - size, triggers[i], size) == 0)
                return end + 1;
        }
    }
    return NULL;
}

/* 1: matches, 0: begins a text that does, -1: neither. `plain` is the grammar without triggers. */
static int expected_match(
    struct salvo_grammar *plain, const char *text, const char *const *triggers, size_t count, bool required)
{
    const char *rest = search(text, triggers, count);
    return rest ? sample_match(plain, rest, strlen(rest)) : !required;
}

static void random_text(uint64_t *seed, const char *letters, char *out, size_t size)
{
    size_t length = sample_random(seed, (uint32_t)size);
    for (size_t i = 0; i < length; i++)
        out[i] = letters[sample_random(seed, (uint32_t)strlen(letters))];
    out[length] = 0;
}

static void triggers_are_found_as_a_search_finds_them(void **state)
{
    (void)state;
    uint64_t seed = 7;
    static const char grammar[] = "root ::= [ab] [ab<]* \">\"";
    struct salvo_grammar *plain = sample_gbnf(grammar, NULL, LIMIT);
    for (int round = 0; round < 60; round++) {
        char memory[3][8];
        const char *triggers[3];
        size_t count = 1 + sample_random(&seed, 3);
        bool required = round % 2;
        for (size_t i = 0; i < count; i++) {
            do
                random_text(&seed, "ab<", memory[i], sizeof memory[i]);
            while (!memory[i][0]);
            triggers[i] = memory[i];
        }
        struct salvo_grammar *triggered = open_triggered(grammar, triggers, count, required, NULL);
        assert_non_null(triggered);
        for (int k = 0; k < 200; k++) {
            char text[30];
            random_text(&seed, "aab<>", text, sizeof text);
            assert_int_equal(expected_match(plain, text, triggers, count, required),
                sample_match(triggered, text, strlen(text)));
        }
        grammar_close(triggered);
    }
    grammar_close(plain);
}

/* Masks at random places of random texts: a token is allowed if the text with it is the beginning of one that
 * matches; control tokens are allowed before the trigger alone. */
static void masks_follow_the_trigger(void **state)
{
    (void)state;
    uint64_t seed = 3;
    struct token_trie *trie = sample_trie(800, 5);
    static const char *const triggers[] = {"{\"a", "b["};
    for (int required = 0; required < 2; required++) {
        struct salvo_grammar *grammar =
            open_triggered("root ::= [0-9a-c]+ \"]\" [ \\n]?", triggers, 2, required, trie);
        uint32_t mask[64];
        for (int round = 0; round < 40; round++) {
            struct salvo_grammar_matcher *matcher, *copy;
            char text[24];
            do
                random_text(&seed, "aabbc{\"[01]", text, sizeof text);
            while (sample_match(grammar, text, strlen(text)) < 0);
            bool is_free = !search(text, triggers, 2);
            assert_int_equal(matcher_open(grammar, &matcher), SALVO_OK);
            assert_int_equal(matcher_append(matcher, text, strlen(text), NULL), SALVO_OK);
            assert_int_equal(matcher_mask(matcher, mask, 64), SALVO_OK);
            for (uint32_t id = 0; id < trie->token_count; id++) {
                bool allowed = mask[id / 32] >> (id % 32) & 1;
                struct salvo_text token = token_trie_text(trie, id);
                char longer[64];
                int size = snprintf(longer, sizeof longer, "%s", text);
                memcpy(longer + size, token.data, token.size);
                bool expected =
                    trie->uses[id] == TOKEN_IS_NEVER ? is_free
                    : trie->uses[id] == TOKEN_IS_END
                        ? sample_match(grammar, text, strlen(text)) == 1
                        : token.size && sample_match(grammar, longer, (size_t)size + token.size) >= 0;
                assert_int_equal(expected, allowed);
                assert_int_equal(matcher_copy(matcher, &copy), SALVO_OK);
                assert_int_equal(matcher_accept(copy, id) == SALVO_OK, allowed);
                matcher_close(copy);
            }
            /* A rollback returns to free text. */
            assert_int_equal(matcher_rollback(matcher, 1), SALVO_OK);
            assert_int_equal(matcher_accept(matcher, CONTROL), SALVO_OK);
            matcher_close(matcher);
        }
        grammar_close(grammar);
    }
    token_trie_close(trie);
}

static void a_control_token_counts_as_its_name(void **state)
{
    (void)state;
    struct token_trie *trie = sample_trie(100, 5);
    static const char *const triggers[] = {"<|x|>"};
    const struct control_token control = {CONTROL, {"<|x|>", 5}};
    struct salvo_grammar *grammar =
        open_triggered("root ::= \"a\" \"<|x|>\" \"b\"", triggers, 1, false, trie);
    struct salvo_grammar_matcher *matcher;
    uint32_t mask[16];
    assert_int_equal(grammar_set_controls(grammar, &control, 1), SALVO_OK);
    assert_int_equal(matcher_open(grammar, &matcher), SALVO_OK);
    assert_int_equal(matcher_append(matcher, "so <|", 5, NULL), SALVO_OK);
    assert_int_equal(matcher_accept(matcher, CONTROL), SALVO_OK); /* free text, then the trigger */
    assert_int_equal(matcher_mask(matcher, mask, 16), SALVO_OK);
    assert_false(mask[CONTROL / 32] >> (CONTROL % 32) & 1);
    assert_int_equal(matcher_accept(matcher, CONTROL), SALVO_ERROR_ARGUMENT);
    assert_int_equal(matcher_accept(matcher, 'a'), SALVO_OK);
    assert_int_equal(matcher_mask(matcher, mask, 16), SALVO_OK);
    assert_true(mask[CONTROL / 32] >> (CONTROL % 32) & 1);
    assert_int_equal(matcher_accept(matcher, END), SALVO_ERROR_ARGUMENT);
    assert_int_equal(matcher_accept(matcher, CONTROL), SALVO_OK);
    assert_int_equal(matcher_accept(matcher, 'b'), SALVO_OK);
    assert_int_equal(matcher_accept(matcher, END), SALVO_OK);
    assert_true(matcher_is_ended(matcher));
    matcher_close(matcher);
    grammar_close(grammar);
    token_trie_close(trie);
}

static void bad_triggers_are_refused(void **state)
{
    (void)state;
    static const char *const empty[] = {"a", ""};
    static char longest[1002];
    memset(longest, 'a', 1001);
    const char *const too_long[] = {longest};
    const char *many[33];
    for (size_t i = 0; i < 33; i++)
        many[i] = "a";
    assert_null(open_triggered("root ::= \"a\"", empty, 2, false, NULL));
    assert_non_null(strstr(salvo_error(), "trigger 2 is empty"));
    assert_null(open_triggered("root ::= \"a\"", too_long, 1, false, NULL));
    assert_non_null(strstr(salvo_error(), "1001 bytes"));
    assert_null(open_triggered("root ::= \"a\"", many, 33, false, NULL));
    longest[1000] = 0;
    struct salvo_grammar *grammar = open_triggered("root ::= \"a\"", too_long, 1, true, NULL);
    assert_non_null(grammar);
    assert_int_equal(sample_match(grammar, longest, 1000), 0);
    grammar_close(grammar);
}

static void check_forced(const char *gbnf, const char *before, const char *expected, bool expected_ends)
{
    struct salvo_grammar *grammar = sample_gbnf(gbnf, NULL, LIMIT);
    struct salvo_grammar_matcher *matcher;
    char text[20];
    size_t size;
    bool ends;
    assert_int_equal(matcher_open(grammar, &matcher), SALVO_OK);
    assert_int_equal(matcher_append(matcher, before, strlen(before), NULL), SALVO_OK);
    assert_int_equal(matcher_forced(matcher, text, sizeof text, &size, &ends), SALVO_OK);
    assert_int_equal(size, strlen(expected));
    assert_memory_equal(text, expected, size);
    assert_int_equal(ends, expected_ends);
    assert_int_equal(matcher_steps(matcher), 1);
    matcher_close(matcher);
    grammar_close(grammar);
}

static void forced_text_is_what_must_follow(void **state)
{
    (void)state;
    check_forced("root ::= \"abc\" [xy] \"de\"", "", "abc", false);
    check_forced("root ::= \"abc\" [xy] \"de\"", "abcx", "de", true);
    check_forced("root ::= \"abc\" \"d\"?", "a", "bc", false); /* complete: the text may end */
    check_forced("root ::= \"abc\" | \"abd\"", "", "ab", false);
    check_forced("root ::= \"a\"{30}", "aaaaa", "aaaaaaaaaaaaaaaaaaaa", false);
    check_forced("root ::= \"a\"*", "aa", "", false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(triggers_are_found_as_a_search_finds_them),
        cmocka_unit_test(masks_follow_the_trigger),
        cmocka_unit_test(a_control_token_counts_as_its_name),
        cmocka_unit_test(bad_triggers_are_refused),
        cmocka_unit_test(forced_text_is_what_must_follow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
