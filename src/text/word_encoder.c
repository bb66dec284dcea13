#include "text/word_encoder.h"

#include "base/memory.h"
#include "text/token_list.h"

#include <string.h>

enum { SLOT_BITS = 12, WORTHWHILE_SIZE = 4096 };

enum salvo_status word_encoder_begin(struct word_encoder *encoder, size_t text_size)
{
    encoder->merger = (struct merger){0};
    encoder->slots = NULL;
    return text_size < WORTHWHILE_SIZE ? SALVO_OK : NEW(&encoder->slots, (size_t)1 << SLOT_BITS);
}

void word_encoder_end(struct word_encoder *encoder)
{
    merger_free(&encoder->merger);
    memory_free(encoder->slots);
}

static enum salvo_status encode_anew(
    struct word_encoder *encoder, struct salvo_text word, struct token_list *list)
{
    if (encoder->ignore_merges) {
        uint32_t token = string_map_find(&encoder->vocabulary->by_piece, word.data, word.size);
        if (token != UINT32_MAX)
            return token_list_add(list, (int32_t)token);
    }
    return encoder->encode(encoder, word, list);
}

enum salvo_status word_encode(struct word_encoder *encoder, struct salvo_text word, struct token_list *list)
{
    enum salvo_status status = SALVO_OK;
    unsigned char key[MEMO_LONGEST_WORD + 1] = {0};
    uint64_t parts[2];
    if (!encoder->slots || word.size > MEMO_LONGEST_WORD) {
        TRY(encode_anew(encoder, word, list));
        goto cleanup;
    }
    memcpy(key, word.data, word.size);
    key[MEMO_LONGEST_WORD] = (unsigned char)word.size;
    memcpy(parts, key, sizeof parts);
    uint64_t hash = (parts[0] ^ parts[1] * 0x9e3779b97f4a7c15u) * 0xd6e8feb86659fd93u;
    struct memo_slot *slot = &encoder->slots[hash >> (64 - SLOT_BITS)];

    if (slot->word[0] == parts[0] && slot->word[1] == parts[1]) {
        TRY(token_list_grow(list, MEMO_MOST_TOKENS));
        /* Copies always four ids, which is faster than a loop over the count; the next word overwrites the
         * rest. */
        memcpy(list->ids + list->count, slot->ids, sizeof slot->ids);
        list->count += slot->count;
        goto cleanup;
    }
    size_t before = list->count, lost = list->lost;
    TRY(encode_anew(encoder, word, list));
    size_t count = list->count - before;
    if (count && count <= MEMO_MOST_TOKENS && list->lost == lost) {
        memcpy(slot->word, parts, sizeof parts);
        memcpy(slot->ids, list->ids + before, count * sizeof *slot->ids);
        slot->count = count;
    }

cleanup:
    return status;
}
