#include "text/bpe.h"

#include "base/memory.h"
#include "gguf/gguf.h"
#include "text/pieces.h"
#include "text/token_list.h"
#include "text/word_encoder.h"

#include <string.h>

/* ---- The table of pairs ------------------------------------------------------------------------------ */

/*
 * Half of the slots are free and ids are spread by the hash: an honest file never comes near this many
 * steps.
 */
enum { MAX_PROBES = 1024 };

static size_t pair_slot(const struct bpe *bpe, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    key *= 0x9e3779b97f4a7c15u;
    return (size_t)(key >> 32 ^ key >> 15) & bpe->mask;
}

/* The slot of a pair, or the free one where it belongs; NULL when the neighbourhood is full. */
static struct bpe_pair *find_pair(const struct bpe *bpe, int32_t left, int32_t right)
{
    size_t slot = pair_slot(bpe, left, right);
    for (int i = 0; i < MAX_PROBES; i++) {
        struct bpe_pair *pair = &bpe->pairs[slot];
        if ((pair->left == left && pair->right == right) || pair->left < 0)
            return pair;
        slot = (slot + 1) & bpe->mask;
    }
    return NULL;
}

static enum salvo_status open_pairs(struct bpe *bpe, size_t count)
{
    enum salvo_status status = SALVO_OK;
    size_t size = 16;
    while (size / 2 < count)
        size *= 2;
    TRY(NEW(&bpe->pairs, size));
    bpe->mask = size - 1;
    for (size_t i = 0; i < size; i++)
        bpe->pairs[i].left = -1;

cleanup:
    return status;
}

/* ---- Reading the merges ------------------------------------------------------------------------------ */

/*
 * Numbers for texts: token ids, and new numbers for texts that are not tokens but appear in merges or as
 * bytes.
 */
struct symbols {
    struct vocabulary *vocabulary;
    struct string_map others;
    size_t most_others; /* how many there can be */
    int32_t next;
};

static enum salvo_status symbol_of(struct symbols *symbols, struct salvo_text piece, int32_t *out)
{
    enum salvo_status status = SALVO_OK;
    uint32_t found = string_map_find(&symbols->vocabulary->by_piece, piece.data, piece.size);
    if (found == UINT32_MAX)
        found = string_map_find(&symbols->others, piece.data, piece.size);
    if (found == UINT32_MAX) {
        char *copy;
        if (!symbols->others.slots) /* seldom needed */
            TRY(string_map_open(&symbols->others, symbols->most_others));
        TRY(arena_copy_bytes(&symbols->vocabulary->arena, piece.data, piece.size, &copy));
        TRY(string_map_add(&symbols->others, copy, piece.size, (uint32_t)symbols->next++, &found));
    }
    *out = (int32_t)found;

cleanup:
    return status;
}

/* One merge as bytes; the buffers are reused. */
struct merge_text {
    struct buffer joined, right;
    size_t left_size; /* bytes of the left part within the joined text */
};

/* "left right"; *valid is false when a character stands for no byte. */
static enum salvo_status parse_merge(
    struct salvo_text merge, size_t index, struct merge_text *out, bool *valid)
{
    enum salvo_status status = SALVO_OK;
    const char *blank = merge.size > 1 ? memchr(merge.data + 1, ' ', merge.size - 1) : NULL;
    if (!blank || blank + 1 == merge.data + merge.size) {
        TRY(fail(SALVO_ERROR_FORMAT,
            "tokenizer.ggml.merges: item %zu ('%.*s') is not two tokens separated by a space", index,
            (int)(merge.size < 64 ? merge.size : 64), merge.data));
    }
    size_t left_length = (size_t)(blank - merge.data);
    bool right_valid;
    TRY(byte_level_decode((struct salvo_text){merge.data, left_length}, &out->joined, valid));
    TRY(byte_level_decode(
        (struct salvo_text){blank + 1, merge.size - left_length - 1}, &out->right, &right_valid));
    out->left_size = out->joined.size;
    *valid = *valid && right_valid;
    TRY(buffer_append(&out->joined, out->right.data, out->right.size));

cleanup:
    return status;
}

static enum salvo_status add_merge(
    struct bpe *bpe, struct symbols *symbols, const struct merge_text *merge, uint32_t rank)
{
    enum salvo_status status = SALVO_OK;
    struct bpe_pair new = {.rank = rank};
    TRY(symbol_of(symbols, (struct salvo_text){merge->joined.data, merge->left_size}, &new.left));
    TRY(symbol_of(symbols, (struct salvo_text){merge->right.data, merge->right.size}, &new.right));
    TRY(symbol_of(symbols, (struct salvo_text){merge->joined.data, merge->joined.size}, &new.joined));
    struct bpe_pair *pair = find_pair(bpe, new.left, new.right);
    if (!pair)
        TRY(fail(SALVO_ERROR_FORMAT, "tokenizer.ggml.merges: too many hash collisions before item %u", rank));
    if (pair->left < 0) /* the first of two equal pairs counts */
        *pair = new;

cleanup:
    return status;
}

static enum salvo_status read_merges(struct bpe *bpe, const struct gguf *gguf, struct symbols *symbols)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_value merges, item;
    struct merge_text merge = {0};
    bool found;
    TRY(gguf_get_array(gguf, "tokenizer.ggml.merges", SALVO_STRING, &merges, &found));
    if (!found)
        TRY(fail(SALVO_ERROR_FORMAT, "tokenizer.ggml.merges is missing: the 'gpt2' tokenizer needs it"));
    if (merges.array.count > INT32_MAX / 4 - symbols->vocabulary->count)
        TRY(fail(SALVO_ERROR_FORMAT, "tokenizer.ggml.merges has %llu items for %zu tokens",
            (unsigned long long)merges.array.count, symbols->vocabulary->count));
    symbols->most_others = 256 + 3 * (size_t)merges.array.count;
    TRY(open_pairs(bpe, (size_t)merges.array.count));
    for (uint32_t rank = 0; salvo_array_next(&merges, &item); rank++) {
        bool valid;
        TRY(parse_merge(item.text, rank, &merge, &valid));
        if (valid) /* a merge with characters that stand for no byte never applies */
            TRY(add_merge(bpe, symbols, &merge, rank));
    }

cleanup:
    buffer_free(&merge.joined);
    buffer_free(&merge.right);
    return status;
}

enum salvo_status bpe_open(struct bpe *bpe, const struct gguf *gguf, struct vocabulary *vocabulary)
{
    enum salvo_status status = SALVO_OK;
    struct symbols symbols = {.vocabulary = vocabulary, .next = (int32_t)vocabulary->count};
    *bpe = (struct bpe){.vocabulary = vocabulary};
    if (vocabulary->count > INT32_MAX / 4)
        TRY(fail(SALVO_ERROR_UNSUPPORTED, "tokenizer.ggml.tokens has %zu tokens: at most %d are supported",
            vocabulary->count, INT32_MAX / 4));
    TRY(read_merges(bpe, gguf, &symbols));
    for (int i = 0; i < 256; i++) {
        char byte = (char)i;
        TRY(symbol_of(&symbols, (struct salvo_text){&byte, 1}, &bpe->byte_symbols[i]));
    }

cleanup:
    string_map_close(&symbols.others);
    if (status != SALVO_OK)
        bpe_close(bpe);
    return status;
}

void bpe_close(struct bpe *bpe)
{
    memory_free(bpe->pairs);
    *bpe = (struct bpe){0};
}

/* ---- Encoding ---------------------------------------------------------------------------------------- */

static struct merge_result merge_pair(
    const void *context, int32_t left, int32_t right, struct salvo_text joined)
{
    (void)joined;
    const struct bpe_pair *pair = find_pair(context, left, right);
    if (!pair || pair->left < 0)
        return (struct merge_result){MERGE_NEVER, MERGE_NONE};
    return (struct merge_result){pair->rank, pair->joined};
}

enum salvo_status bpe_spell(const struct bpe *bpe, struct salvo_text text, struct token_list *list)
{
    enum salvo_status status = SALVO_OK;
    for (size_t i = 0; i < text.size; i++) {
        int32_t id = bpe->byte_symbols[(unsigned char)text.data[i]];
        if ((size_t)id < bpe->vocabulary->count)
            TRY(token_list_add(list, id));
        else
            list->lost++;
    }

cleanup:
    return status;
}

static enum salvo_status encode_by_merging(
    struct word_encoder *encoder, struct salvo_text word, struct token_list *list)
{
    enum salvo_status status = SALVO_OK;
    const struct bpe *bpe = encoder->model;
    struct merger *merger = &encoder->merger;
    struct salvo_text part;
    int32_t id;
    TRY(merger_begin(merger, word));
    for (size_t i = 0; i < word.size; i++)
        merger_add(merger, bpe->byte_symbols[(unsigned char)word.data[i]], i);
    merger_run(merger, merge_pair, bpe);
    for (uint32_t position = 0; merger_next(merger, &position, &id, &part);) {
        if ((size_t)id < bpe->vocabulary->count)
            TRY(token_list_add(list, id));
        else
            TRY(bpe_spell(bpe, part, list));
    }

cleanup:
    return status;
}

enum salvo_status bpe_encode(const struct bpe *bpe, struct salvo_text text, struct token_list *list)
{
    enum salvo_status status = SALVO_OK;
    const struct pre_tokenizer *pre = bpe->vocabulary->pre;
    struct word_encoder encoder = {.vocabulary = bpe->vocabulary,
        .model = bpe,
        .encode = encode_by_merging,
        .ignore_merges = pre->ignore_merges};
    struct splitter splitter = splitter_begin(pre, text.data, text.size);
    struct salvo_text word;
    TRY(word_encoder_begin(&encoder, text.size));
    while (splitter_next(&splitter, &word))
        TRY(word_encode(&encoder, word, list));

cleanup:
    word_encoder_end(&encoder);
    return status;
}
