#include "grammar/token_trie.h"

#include "base/buffer.h"
#include "base/memory.h"
#include "base/text_order.h"
#include "grammar/separator_tokens.h"
#include "grammar/string_tokens.h"

#include <stdlib.h>

enum {
    LONGEST_TOKEN = UINT16_MAX - 1,
    SET_NODES = 32, /* a node with fewer nodes below it has no set of bytes */
    SET_DEPTH = 3,  /* nor has a deeper one */
};

struct sorted_token {
    struct salvo_text text;
    uint32_t id;
};

static int compare_tokens(const void *left, const void *right)
{
    const struct sorted_token *a = left, *b = right;
    const int order = text_compare(a->text, b->text);
    return order ? order : a->id < b->id ? -1 : a->id > b->id;
}

static enum salvo_status read_tokens(struct token_trie *trie, token_function token, void *user)
{
    enum salvo_status status = SALVO_OK;
    struct buffer texts = {0};
    TRY(NEW(&trie->offsets, (size_t)trie->token_count + 1));
    TRY(NEW(&trie->uses, trie->token_count));
    TRY(NEW(&trie->ends, trie->token_count));
    for (uint32_t id = 0; id < trie->token_count; id++) {
        struct salvo_text text = {0};
        enum token_use use = TOKEN_IS_NEVER;
        TRY(token(user, id, &use, &text));
        if (use == TOKEN_IS_TEXT && (text.size == 0 || text.size > LONGEST_TOKEN))
            use = TOKEN_IS_NEVER;
        if (use == TOKEN_IS_TEXT)
            TRY(buffer_append(&texts, text.data, text.size));
        if (texts.size > UINT32_MAX)
            TRY(fail(SALVO_ERROR_UNSUPPORTED, "the vocabulary's texts have more than 4 GB"));
        if (use == TOKEN_IS_END)
            trie->ends[trie->end_count++] = id;
        trie->uses[id] = (uint8_t)use;
        trie->offsets[id + 1] = (uint32_t)texts.size;
    }
    trie->texts = texts.data;
    texts.data = NULL;
cleanup:
    buffer_free(&texts);
    return status;
}

/* Each token adds the nodes of the bytes that it does not share with the token before it. */
static enum salvo_status add_nodes(struct token_trie *trie, const struct sorted_token *sorted, uint32_t count)
{
    enum salvo_status status = SALVO_OK;
    uint32_t *open = NULL, capacity = 0; /* open[d]: the last node of depth d */
    struct salvo_text before = {0};
    TRY(NEW(&open, (size_t)LONGEST_TOKEN + 1));
    for (uint32_t i = 0; i < count; i++) {
        size_t shared = text_common_prefix(before, sorted[i].text);
        for (size_t depth = shared + 1; depth <= before.size; depth++)
            trie->nodes[open[depth]].after = trie->node_count;
        for (size_t depth = shared + 1; depth <= sorted[i].text.size; depth++) {
            if (trie->node_count + 1 >= capacity) {
                capacity = capacity ? capacity * 2 : 1024;
                TRY(RESIZE(&trie->nodes, capacity));
            }
            open[depth] = trie->node_count;
            trie->nodes[trie->node_count++] = (struct trie_node){.tokens = i,
                .below = UINT32_MAX,
                .depth = (uint16_t)depth,
                .byte = (uint8_t)sorted[i].text.data[depth - 1]};
        }
        before = sorted[i].text;
        trie->deepest = before.size > trie->deepest ? (uint16_t)before.size : trie->deepest;
        trie->ids[i] = sorted[i].id;
    }
    for (size_t depth = 1; depth <= before.size; depth++)
        trie->nodes[open[depth]].after = trie->node_count;
    if (!trie->nodes)
        TRY(NEW(&trie->nodes, 1));
    trie->nodes[trie->node_count] = (struct trie_node){.after = trie->node_count, .tokens = count};
cleanup:
    memory_free(open);
    return status;
}

/* Large parts of the trie know which bytes occur in them: a state that stays the same with all of these
 * allows the whole part. */
static enum salvo_status add_sets(struct token_trie *trie)
{
    enum salvo_status status = SALVO_OK;
    uint32_t count = 0;
    for (uint32_t i = 0; i < trie->node_count; i++) {
        if (trie->nodes[i].depth <= SET_DEPTH && trie->nodes[i].after - i > SET_NODES)
            trie->nodes[i].below = count++;
    }
    TRY(NEW(&trie->sets, (size_t)count + 1));
    trie->set_count = count;
    for (uint32_t i = 0; i < trie->node_count; i++) {
        const struct trie_node *node = &trie->nodes[i];
        for (uint32_t below = i + 1; node->below != UINT32_MAX && below < node->after; below++)
            byte_set_add(&trie->sets[node->below], trie->nodes[below].byte, trie->nodes[below].byte);
    }
cleanup:
    return status;
}

enum salvo_status token_trie_open(uint32_t count, token_function token, void *user, struct token_trie **out)
{
    enum salvo_status status = SALVO_OK;
    struct token_trie *trie = NULL;
    struct sorted_token *sorted = NULL;
    uint32_t texts = 0;
    *out = NULL;
    TRY(NEW(&trie, 1));
    trie->token_count = count;
    TRY(read_tokens(trie, token, user));
    TRY(NEW(&sorted, (size_t)count + 1));
    TRY(NEW(&trie->ids, (size_t)count + 1));
    for (uint32_t id = 0; id < count; id++) {
        if (trie->uses[id] == TOKEN_IS_TEXT)
            sorted[texts++] = (struct sorted_token){token_trie_text(trie, id), id};
    }
    qsort(sorted, texts, sizeof *sorted, compare_tokens);
    TRY(add_nodes(trie, sorted, texts));
    TRY(add_sets(trie));
    TRY(string_tokens_open(trie, &trie->strings));
    TRY(separator_tokens_open(trie, &trie->separators));
    *out = trie;
cleanup:
    memory_free(sorted);
    if (status != SALVO_OK)
        token_trie_close(trie);
    return status;
}

void token_trie_close(struct token_trie *trie)
{
    if (!trie)
        return;
    memory_free(trie->nodes);
    memory_free(trie->ids);
    memory_free(trie->ends);
    memory_free(trie->sets);
    string_tokens_close(trie->strings);
    separator_tokens_close(trie->separators);
    memory_free(trie->texts);
    memory_free(trie->offsets);
    memory_free(trie->uses);
    memory_free(trie);
}
