#include "text/rwkv.h"

#include "base/memory.h"
#include "text/token_list.h"

enum salvo_status rwkv_open(struct rwkv *rwkv, const struct vocabulary *vocabulary)
{
    enum salvo_status status = SALVO_OK;
    struct trie_entry *entries = NULL;
    size_t count = 0;
    *rwkv = (struct rwkv){.vocabulary = vocabulary};
    TRY(NEW(&entries, vocabulary->count));
    for (size_t i = 0; i < vocabulary->count; i++) {
        if (vocabulary->tokens[i].plain)
            entries[count++] = (struct trie_entry){vocabulary->tokens[i].piece, (int32_t)i};
    }
    TRY(trie_open(&rwkv->trie, entries, count));

cleanup:
    memory_free(entries);
    return status;
}

void rwkv_close(struct rwkv *rwkv)
{
    trie_close(&rwkv->trie);
}

/* By tokens of at most `longest` bytes. */
static enum salvo_status encode_up_to(
    const struct rwkv *rwkv, struct salvo_text text, size_t longest, struct token_list *list)
{
    enum salvo_status status = SALVO_OK;
    for (size_t at = 0; at < text.size;) {
        int32_t id = rwkv->vocabulary->unknown;
        const size_t left = text.size - at;
        size_t size = trie_longest(&rwkv->trie, text.data + at, left < longest ? left : longest, &id);
        if (id >= 0)
            TRY(token_list_add(list, id));
        else
            list->lost++;
        at += size ? size : 1; /* a byte without token; "world" has all of them */
    }

cleanup:
    return status;
}

enum salvo_status rwkv_encode(const struct rwkv *rwkv, struct salvo_text text, struct token_list *list)
{
    return encode_up_to(rwkv, text, text.size, list);
}

enum salvo_status rwkv_spell(const struct rwkv *rwkv, struct salvo_text text, struct token_list *list)
{
    return encode_up_to(rwkv, text, 1, list);
}
