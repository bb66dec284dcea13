#include "grammar/string_tokens.h"

#include "base/memory.h"
#include "grammar/json_text.h"

enum { QUOTED = TEXT_STATES }; /* behind the quote that ends the string */

/* The state of each node's bytes, and the characters that they begin. */
struct text_walk {
    uint8_t *states;
    uint16_t *counts;
    bool *leads_to_quote; /* below the node, or at it, a quote ends the string */
    uint32_t *path;       /* the node of each depth */
};

static void walk_node(const struct token_trie *trie, struct text_walk *walk, uint32_t number)
{
    const struct trie_node *node = &trie->nodes[number];
    uint8_t before = TEXT_BODY;
    uint16_t count = 0;
    if (node->depth > 1) {
        before = walk->states[walk->path[node->depth - 1]];
        count = walk->counts[walk->path[node->depth - 1]];
    }
    walk->path[node->depth] = number;
    walk->counts[number] = (uint16_t)(count + (before == TEXT_BODY));
    if (before == QUOTED || (before == TEXT_BODY && node->byte == '"')) {
        walk->states[number] = QUOTED;
        for (unsigned depth = node->depth; depth > 0 && !walk->leads_to_quote[walk->path[depth]]; depth--)
            walk->leads_to_quote[walk->path[depth]] = true;
    } else {
        walk->states[number] = (uint8_t)json_text_next((enum json_text_state)before, node->byte);
    }
}

/* The nodes that lead to a quote, with their tokens. */
static enum salvo_status copy_quoted(
    const struct token_trie *trie, const struct text_walk *walk, struct string_tokens *tokens)
{
    enum salvo_status status = SALVO_OK;
    uint32_t ids = 0;
    for (uint32_t i = 0; i < trie->node_count; i++) {
        if (!walk->leads_to_quote[i])
            continue;
        tokens->node_count++;
        ids += trie->nodes[i + 1].tokens - trie->nodes[i].tokens;
    }
    TRY(NEW(&tokens->nodes, (size_t)tokens->node_count + 1));
    TRY(NEW(&tokens->origins, (size_t)tokens->node_count + 1));
    TRY(NEW(&tokens->ids, (size_t)ids + 1));
    ids = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < trie->node_count; i++) {
        if (!walk->leads_to_quote[i])
            continue;
        struct trie_node *copy = &tokens->nodes[count];
        *copy = trie->nodes[i];
        copy->tokens = ids;
        copy->below = UINT32_MAX;
        tokens->origins[count++] = i;
        for (uint32_t k = trie->nodes[i].tokens; k < trie->nodes[i + 1].tokens; k++)
            tokens->ids[ids++] = trie->ids[k];
    }
    tokens->nodes[count] = (struct trie_node){.tokens = ids, .after = count};
    for (uint32_t i = 0; i < count; i++)
        tokens->nodes[i].after = string_tokens_find(tokens, tokens->nodes[i].after);
cleanup:
    return status;
}

static enum salvo_status list_texts(
    const struct token_trie *trie, const struct text_walk *walk, struct string_tokens *tokens)
{
    enum salvo_status status = SALVO_OK;
    uint32_t *counts = NULL, total = trie->nodes[trie->node_count].tokens;
    TRY(NEW(&counts, (size_t)trie->deepest + 2));
    TRY(NEW(&tokens->mask, ((size_t)trie->token_count + 31) / 32));
    TRY(NEW(&tokens->chars, (size_t)total + 1));
    TRY(NEW(&tokens->longest, (size_t)total + 1));
    for (uint32_t i = 0; i < trie->node_count; i++) {
        bool text = walk->states[i] != TEXT_DEAD && walk->states[i] != QUOTED;
        for (uint32_t k = trie->nodes[i].tokens; k < trie->nodes[i + 1].tokens; k++) {
            tokens->chars[k] = text ? walk->counts[i] : NOT_STRING_TEXT;
            if (text) {
                tokens->mask[trie->ids[k] / 32] |= UINT32_C(1) << (trie->ids[k] % 32);
                counts[walk->counts[i]]++;
                tokens->text_count++;
            }
        }
    }
    /* Sorted by counting: counts[n] becomes the place of the first text with n characters. */
    uint32_t place = 0;
    for (uint32_t n = trie->deepest + 1U; n-- > 0;) {
        uint32_t here = counts[n];
        counts[n] = place;
        place += here;
    }
    for (uint32_t k = 0; k < total; k++) {
        if (tokens->chars[k] != NOT_STRING_TEXT)
            tokens->longest[counts[tokens->chars[k]]++] = k;
    }
cleanup:
    memory_free(counts);
    return status;
}

enum salvo_status string_tokens_open(const struct token_trie *trie, struct string_tokens **out)
{
    enum salvo_status status = SALVO_OK;
    struct string_tokens *tokens = NULL;
    struct text_walk walk = {0};
    *out = NULL;
    TRY(NEW(&tokens, 1));
    TRY(NEW(&walk.states, (size_t)trie->node_count + 1));
    TRY(NEW(&walk.counts, (size_t)trie->node_count + 1));
    TRY(NEW(&walk.leads_to_quote, (size_t)trie->node_count + 1));
    TRY(NEW(&walk.path, (size_t)trie->deepest + 1));
    TRY(NEW(&tokens->at_body, (size_t)trie->node_count + 1));
    for (uint32_t i = 0; i < trie->node_count; i++) {
        walk_node(trie, &walk, i);
        tokens->at_body[i] = walk.states[i] == TEXT_BODY;
    }
    TRY(list_texts(trie, &walk, tokens));
    TRY(copy_quoted(trie, &walk, tokens));
    *out = tokens;
cleanup:
    memory_free(walk.states);
    memory_free(walk.counts);
    memory_free(walk.leads_to_quote);
    memory_free(walk.path);
    if (status != SALVO_OK)
        string_tokens_close(tokens);
    return status;
}

void string_tokens_close(struct string_tokens *tokens)
{
    if (!tokens)
        return;
    memory_free(tokens->mask);
    memory_free(tokens->chars);
    memory_free(tokens->longest);
    memory_free(tokens->at_body);
    memory_free(tokens->nodes);
    memory_free(tokens->ids);
    memory_free(tokens->origins);
    memory_free(tokens);
}

uint32_t string_tokens_find(const struct string_tokens *tokens, uint32_t origin)
{
    uint32_t low = 0, high = tokens->node_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (tokens->origins[middle] < origin)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
