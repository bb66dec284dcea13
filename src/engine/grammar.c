/* The public grammar functions. */
#include <salvo/grammar.h>

#include "base/memory.h"
#include "engine/arguments.h"
#include "engine/model.h"
#include "grammar/matcher.h"
#include "grammar/readers.h"

enum { DEFAULT_MEMORY = 64 << 20 };

static enum salvo_status read_rules(enum salvo_grammar_kind kind, const char *text, size_t size,
    const struct salvo_grammar_options *options, struct rule_list *out)
{
    switch (kind) {
    case SALVO_GRAMMAR_GBNF:
        return gbnf_read(text, size, options->root ? options->root : "root", out);
    case SALVO_GRAMMAR_REGEX:
        rule_list_add(out, regex_read(&out->pool, text, size, SPELL_UTF8));
        return out->pool.status;
    case SALVO_GRAMMAR_JSON_SCHEMA:
        return schema_read(text, size, options->any_layout != 0, out);
    default:
        return fail(SALVO_ERROR_ARGUMENT, "salvo_grammar_compile: there is no grammar kind %d", (int)kind);
    }
}

enum salvo_status salvo_grammar_compile(struct salvo_model *model, enum salvo_grammar_kind kind,
    const char *text, size_t size, const struct salvo_grammar_options *options, struct salvo_grammar **out)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_grammar_options known;
    const struct token_trie *trie = NULL;
    struct rule_list rules = {0};
    struct network network = {0};
    REQUIRE(out);
    *out = NULL;
    REQUIRE(text);
    TRY(options_read("salvo_grammar_options", options, sizeof known, &known));
    if (model)
        TRY(model_token_trie(model, &trie));
    TRY(read_rules(kind, text, size, &known, &rules));
    TRY(network_build(rules.items, rules.count, rules.root, rules.character, &network));
    TRY(grammar_open(&network, trie, known.memory ? (size_t)known.memory : DEFAULT_MEMORY, out));
cleanup:
    rule_list_free(&rules);
    return status;
}

void salvo_grammar_free(struct salvo_grammar *grammar)
{
    grammar_close(grammar);
}

enum salvo_status salvo_grammar_matcher_new(struct salvo_grammar *grammar, struct salvo_grammar_matcher **out)
{
    REQUIRE(out);
    *out = NULL;
    REQUIRE(grammar);
    return matcher_open(grammar, out);
}

enum salvo_status salvo_grammar_matcher_copy(
    const struct salvo_grammar_matcher *matcher, struct salvo_grammar_matcher **out)
{
    REQUIRE(out);
    *out = NULL;
    REQUIRE(matcher);
    return matcher_copy(matcher, out);
}

void salvo_grammar_matcher_free(struct salvo_grammar_matcher *matcher)
{
    matcher_close(matcher);
}

enum salvo_status salvo_grammar_matcher_mask(
    struct salvo_grammar_matcher *matcher, uint32_t *mask, size_t words)
{
    REQUIRE(matcher);
    REQUIRE(mask);
    return matcher_mask(matcher, mask, words);
}

enum salvo_status salvo_grammar_matcher_bytes(struct salvo_grammar_matcher *matcher, uint32_t mask[8])
{
    struct byte_set set;
    REQUIRE(matcher);
    REQUIRE(mask);
    enum salvo_status status = matcher_bytes(matcher, &set);
    for (int i = 0; i < 8; i++)
        mask[i] = (uint32_t)(set.words[i / 2] >> (i % 2 * 32));
    return status;
}

enum salvo_status salvo_grammar_matcher_accept(struct salvo_grammar_matcher *matcher, int32_t id)
{
    REQUIRE(matcher);
    if (id < 0)
        return fail(SALVO_ERROR_ARGUMENT, "salvo_grammar_matcher_accept: there is no token %d", (int)id);
    return matcher_accept(matcher, (uint32_t)id);
}

enum salvo_status salvo_grammar_matcher_append(
    struct salvo_grammar_matcher *matcher, const char *data, size_t size, size_t *out_taken)
{
    if (out_taken)
        *out_taken = 0;
    REQUIRE(matcher);
    if (size)
        REQUIRE(data);
    return matcher_append(matcher, data, size, out_taken);
}

bool salvo_grammar_matcher_complete(const struct salvo_grammar_matcher *matcher)
{
    return matcher && matcher_is_complete(matcher);
}

bool salvo_grammar_matcher_ended(const struct salvo_grammar_matcher *matcher)
{
    return matcher && matcher_is_ended(matcher);
}

size_t salvo_grammar_matcher_steps(const struct salvo_grammar_matcher *matcher)
{
    return matcher ? matcher_steps(matcher) : 0;
}

enum salvo_status salvo_grammar_matcher_rollback(struct salvo_grammar_matcher *matcher, size_t steps)
{
    REQUIRE(matcher);
    return matcher_rollback(matcher, steps);
}
