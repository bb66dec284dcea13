#include "grammar_sample.h"

#include "base/memory.h"

#include <string.h>

uint32_t sample_random(uint64_t *seed, uint32_t below)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((*seed >> 33) % below);
}

struct source {
    uint64_t seed;
    char text[16];
};

static enum salvo_status random_token(
    void *user, uint32_t id, enum token_use *out_use, struct salvo_text *out_bytes)
{
    static const char letters[] = "aabbcxy01{}[]\":, \n()+*\xc3\xa9\xe4";
    struct source *source = user;
    *out_use = id == 256 || id == 257 ? TOKEN_IS_END : id == 258 ? TOKEN_IS_NEVER : TOKEN_IS_TEXT;
    size_t size = 1;
    if (id < 256) {
        source->text[0] = (char)id;
    } else {
        size = sample_random(&source->seed, 7);
        for (size_t i = 0; i < size; i++)
            source->text[i] = letters[sample_random(&source->seed, sizeof letters - 1)];
    }
    *out_bytes = (struct salvo_text){source->text, size};
    return SALVO_OK;
}

struct token_trie *sample_trie(uint32_t count, uint64_t seed)
{
    struct source source = {.seed = seed};
    struct token_trie *trie;
    return token_trie_open(259 + count, random_token, &source, &trie) == SALVO_OK ? trie : NULL;
}

static struct salvo_grammar *open_rules(struct rule_list *rules, const struct token_trie *trie, size_t limit)
{
    struct network network;
    struct salvo_grammar *grammar = NULL;
    if (rules->pool.status == SALVO_OK &&
        network_build(rules->items, rules->count, rules->root, rules->character, &network) == SALVO_OK &&
        grammar_open(&network, trie, limit, &grammar) != SALVO_OK)
        grammar = NULL;
    rule_list_free(rules);
    return grammar;
}

struct salvo_grammar *sample_gbnf(const char *text, const struct token_trie *trie, size_t limit)
{
    struct rule_list rules;
    return gbnf_read(text, strlen(text), "root", &rules) == SALVO_OK ? open_rules(&rules, trie, limit) : NULL;
}

struct salvo_grammar *sample_schema(
    const char *text, const struct token_trie *trie, bool any_layout, size_t limit)
{
    struct rule_list rules;
    return schema_read(text, strlen(text), any_layout, &rules) == SALVO_OK ? open_rules(&rules, trie, limit)
                                                                           : NULL;
}

struct salvo_grammar *sample_regex(const char *text, const struct token_trie *trie, size_t limit)
{
    struct rule_list rules = {0};
    rule_list_add(&rules, regex_read(&rules.pool, text, strlen(text), SPELL_UTF8));
    return open_rules(&rules, trie, limit);
}

int sample_match(struct salvo_grammar *grammar, const char *data, size_t size)
{
    struct salvo_grammar_matcher *matcher;
    size_t taken = 0;
    int answer = -2;
    if (!grammar || matcher_open(grammar, &matcher) != SALVO_OK)
        return answer;
    enum salvo_status status = matcher_append(matcher, data, size, &taken);
    if (status == SALVO_OK)
        answer = matcher_is_complete(matcher);
    else if (status == SALVO_ERROR_ARGUMENT)
        answer = -1;
    matcher_close(matcher);
    return answer;
}
