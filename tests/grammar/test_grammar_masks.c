/* Masks of random places in texts of random grammars, against each token tried alone; and matching against a
 * second, slow recogniser that knows nothing of states. */
#include "cmocka_test.h"
#include "grammar_sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIMIT = 32 << 20, MAX_TEXT = 40 };

/* ---- Random grammars ---- */

static void append(char *text, const char *part)
{
    stpcpy(text + strlen(text), part);
}

static void random_expression(uint64_t *seed, unsigned rules, unsigned depth, char *text)
{
    static const char *const atoms[] = {"\"a\"", "\"b\"", "\"ab\"", "[a-c]", "[^a]", "\"{\"", "\"}\"",
        "\"\xc3\xa9\"", ".", "\"\\\"\"", "[0-9]", "\"\"", "[\xc3\xa0-\xe4\xb8\xad]"};
    char number[32];
    unsigned kind = sample_random(seed, depth ? 10 : 4);
    if (kind < 2) {
        append(text, atoms[sample_random(seed, sizeof atoms / sizeof *atoms)]);
    } else if (kind < 4) {
        snprintf(number, sizeof number, "r%u", sample_random(seed, rules));
        append(text, number);
    } else if (kind < 6) {
        static const char *const repeats[] = {"*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}"};
        append(text, "(");
        random_expression(seed, rules, depth - 1, text);
        append(text, ")");
        append(text, repeats[sample_random(seed, sizeof repeats / sizeof *repeats)]);
    } else {
        bool either = kind < 8;
        append(text, "(");
        for (unsigned i = 0, count = 1 + sample_random(seed, 3); i < count; i++) {
            if (i)
                append(text, either ? " | " : " ");
            random_expression(seed, rules, depth - 1, text);
        }
        append(text, ")");
    }
}

static void random_grammar(uint64_t *seed, char *text)
{
    char name[32];
    unsigned rules = 1 + sample_random(seed, 4);
    text[0] = 0;
    append(text, "root ::= r0 | r0 \"x\"\n");
    for (unsigned i = 0; i < rules; i++) {
        snprintf(name, sizeof name, "r%u ::= \"y\" | ", i);
        append(text, name);
        random_expression(seed, rules, 3, text);
        append(text, "\n");
    }
}

/* ---- The slow recogniser: which ends of the text can an expression reach from which begin ---- */

struct slow {
    const struct expr *const *rules;
    size_t rule_count, size;
    const char *text;
    bool *reach; /* [rules][MAX_TEXT + 1][MAX_TEXT + 1] */
};

static bool *rule_reach(const struct slow *slow, size_t rule, size_t begin)
{
    return slow->reach + (rule * (MAX_TEXT + 1) + begin) * (MAX_TEXT + 1);
}

static void slow_expr(const struct slow *slow, const struct expr *expr, const bool *from, bool *to);

static void slow_repeat(const struct slow *slow, const struct expr *expr, const bool *from, bool *to)
{
    bool now[MAX_TEXT + 1], next[MAX_TEXT + 1];
    memcpy(now, from, sizeof now);
    uint32_t most = expr->max == REPEAT_UNLIMITED ? expr->min + MAX_TEXT + 1 : expr->max;
    for (uint32_t i = 0; i <= most; i++) {
        for (size_t at = 0; i >= expr->min && at <= slow->size; at++)
            to[at] |= now[at];
        memset(next, 0, sizeof next);
        slow_expr(slow, expr->items[0], now, next);
        memcpy(now, next, sizeof now);
    }
}

/* Adds to `to` the places where the expression may end that begins at a place of `from`. */
static void slow_expr(const struct slow *slow, const struct expr *expr, const bool *from, bool *to)
{
    bool now[MAX_TEXT + 1], next[MAX_TEXT + 1];
    switch (expr->kind) {
    case EXPR_NONE:
    case EXPR_DFA:
    case EXPR_COUNTED:
        break;
    case EXPR_EMPTY:
        for (size_t at = 0; at <= slow->size; at++)
            to[at] |= from[at];
        break;
    case EXPR_LITERAL:
        for (size_t at = 0; at + expr->bytes.size <= slow->size; at++) {
            if (from[at] && memcmp(slow->text + at, expr->bytes.data, expr->bytes.size) == 0)
                to[at + expr->bytes.size] = true;
        }
        break;
    case EXPR_SET:
        for (size_t at = 0; at < slow->size; at++) {
            if (from[at] && byte_set_has(&expr->set, (unsigned char)slow->text[at]))
                to[at + 1] = true;
        }
        break;
    case EXPR_SEQUENCE:
        memcpy(now, from, sizeof now);
        for (size_t i = 0; i < expr->count; i++) {
            memset(next, 0, sizeof next);
            slow_expr(slow, expr->items[i], now, next);
            memcpy(now, next, sizeof now);
        }
        for (size_t at = 0; at <= slow->size; at++)
            to[at] |= now[at];
        break;
    case EXPR_EITHER:
        for (size_t i = 0; i < expr->count; i++)
            slow_expr(slow, expr->items[i], from, to);
        break;
    case EXPR_SHARED:
        slow_expr(slow, expr->items[0], from, to);
        break;
    case EXPR_REPEAT:
        slow_repeat(slow, expr, from, to);
        break;
    case EXPR_RULE:
        for (size_t begin = 0; begin <= slow->size; begin++) {
            for (size_t end = begin; from[begin] && end <= slow->size; end++)
                to[end] |= rule_reach(slow, expr->rule, begin)[end];
        }
        break;
    }
}

/* Repeats until no rule reaches more. */
static bool slow_match(const struct rule_list *rules, const char *text, size_t size)
{
    struct slow slow = {rules->items, rules->count, size, text, NULL};
    size_t cells = rules->count * (MAX_TEXT + 1) * (MAX_TEXT + 1);
    bool *before = calloc(cells, sizeof *before);
    slow.reach = calloc(cells, sizeof *slow.reach);
    assert_true(before && slow.reach);
    do {
        memcpy(before, slow.reach, cells);
        for (size_t rule = 0; rule < rules->count; rule++) {
            for (size_t begin = 0; begin <= size; begin++) {
                bool from[MAX_TEXT + 1] = {false};
                from[begin] = true;
                slow_expr(&slow, rules->items[rule], from, rule_reach(&slow, rule, begin));
            }
        }
    } while (memcmp(before, slow.reach, cells) != 0);
    bool matches = rule_reach(&slow, rules->root, 0)[size];
    free(before);
    free(slow.reach);
    return matches;
}

/* ---- Tests ---- */

static bool is_allowed(const uint32_t *mask, uint32_t id)
{
    return mask[id / 32] >> (id % 32) & 1;
}

/* Each token tried alone, on a copy. */
static void compare_mask(struct salvo_grammar_matcher *matcher, const struct token_trie *trie,
    const uint32_t *mask, const char *source)
{
    for (uint32_t id = 0; id < trie->token_count; id++) {
        enum salvo_status status = matcher_accept(matcher, id);
        if (status == SALVO_OK)
            assert_int_equal(matcher_rollback(matcher, 1), SALVO_OK);
        if ((status == SALVO_OK) != is_allowed(mask, id))
            fail_msg(
                "token %u: the mask says %d, alone %d, with\n%s", id, is_allowed(mask, id), status, source);
    }
    assert_false(is_allowed(mask, 258)); /* a control token */
    assert_int_equal(is_allowed(mask, 256), matcher_is_complete(matcher));
}

static uint32_t choose(uint64_t *seed, const uint32_t *mask, uint32_t count)
{
    uint32_t id = sample_random(seed, count);
    for (uint32_t i = 0; i < count && !is_allowed(mask, id); i++)
        id = (id + 1) % count;
    return id;
}

static void test_random_masks(void **state)
{
    (void)state;
    uint64_t seed = 11;
    struct token_trie *trie = sample_trie(400, 5);
    uint32_t mask[32];
    char text[20000];
    unsigned states = 0;
    for (int i = 0; i < LONG_RUN(300); i++) {
        struct salvo_grammar_matcher *matcher;
        random_grammar(&seed, text);
        struct salvo_grammar *grammar = sample_gbnf(text, trie, LIMIT);
        if (!grammar)
            fail_msg("%s: %s", text, salvo_error());
        assert_int_equal(matcher_open(grammar, &matcher), SALVO_OK);
        for (int step = 0; step < 12 && !matcher_is_ended(matcher); step++, states++) {
            assert_int_equal(matcher_mask(matcher, mask, 32), SALVO_OK);
            compare_mask(matcher, trie, mask, text);
            uint32_t id = choose(&seed, mask, trie->token_count);
            assert_true(is_allowed(mask, id)); /* something may always follow */
            assert_int_equal(matcher_accept(matcher, id), SALVO_OK);
        }
        matcher_close(matcher);
        grammar_close(grammar);
    }
    print_message("%u states\n", states);
    token_trie_close(trie);
}

static void test_slow_recogniser(void **state)
{
    (void)state;
    uint64_t seed = 12;
    char source[20000], text[MAX_TEXT];
    unsigned matched = 0, texts = 0;
    for (int i = 0; i < LONG_RUN(300); i++) {
        struct rule_list rules;
        random_grammar(&seed, source);
        struct salvo_grammar *grammar = sample_gbnf(source, NULL, LIMIT);
        assert_non_null(grammar);
        assert_int_equal(gbnf_read(source, strlen(source), "root", &rules), SALVO_OK);
        for (int k = 0; k < 8; k++) {
            /* A walk along allowed bytes, sometimes with a byte that may be wrong. */
            struct salvo_grammar_matcher *matcher;
            size_t size = 0, wanted = sample_random(&seed, 12);
            assert_int_equal(matcher_open(grammar, &matcher), SALVO_OK);
            while (size < wanted) {
                struct byte_set set;
                assert_int_equal(matcher_bytes(matcher, &set), SALVO_OK);
                unsigned byte = sample_random(&seed, 256);
                for (unsigned tries = 0; tries < 256 && !byte_set_has(&set, byte); tries++)
                    byte = (byte + 1) % 256;
                if (!byte_set_has(&set, byte))
                    break;
                text[size++] = (char)byte;
                assert_int_equal(matcher_append(matcher, text + size - 1, 1, NULL), SALVO_OK);
            }
            matcher_close(matcher);
            if (size && sample_random(&seed, 3) == 0)
                text[sample_random(&seed, (uint32_t)size)] = "abxy{}\""[sample_random(&seed, 7)];
            bool expected = slow_match(&rules, text, size);
            matched += expected;
            texts++;
            if ((sample_match(grammar, text, size) == 1) != expected)
                fail_msg("'%.*s': expected %d with\n%s", (int)size, text, expected, source);
        }
        rule_list_free(&rules);
        grammar_close(grammar);
    }
    print_message("%u texts, %u match\n", texts, matched);
    assert_true(matched > texts / 10 && matched < texts * 9 / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_masks),
        cmocka_unit_test(test_slow_recogniser),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
