#include "text/whole_word.h"

#include "text/token_list.h"

enum salvo_status whole_word_encode(const struct vocabulary *vocabulary, bool always, word_encoder encode,
    const void *context, struct merger *merger, struct salvo_text word, struct token_list *list)
{
    enum salvo_status status = SALVO_OK;
    uint32_t token = string_map_find(&vocabulary->by_piece, word.data, word.size);
    if (token == UINT32_MAX) {
        TRY(encode(context, merger, word, list));
        goto cleanup;
    }

    atomic_uchar *known = &vocabulary->whole_words[token];
    unsigned char is_token = always ? WORD_IS_TOKEN : atomic_load_explicit(known, memory_order_relaxed);
    if (is_token == WORD_IS_TOKEN) {
        TRY(token_list_add(list, (int32_t)token));
        goto cleanup;
    }
    size_t before = list->count;
    TRY(encode(context, merger, word, list));
    if (is_token == WORD_UNKNOWN) {
        bool same = list->count == before + 1 && list->ids[before] == (int32_t)token;
        atomic_store_explicit(known, same ? WORD_IS_TOKEN : WORD_IS_SEVERAL, memory_order_relaxed);
    }

cleanup:
    return status;
}
