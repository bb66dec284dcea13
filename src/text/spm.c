#include "text/spm.h"

#include "base/buffer.h"
#include "text/pieces.h"
#include "text/token_list.h"
#include "text/unicode.h"
#include "text/word_encoder.h"

#include <string.h>

/* ---- Opening ----------------------------------------------------------------------------------------- */

static void note_followers(struct spm *spm, struct salvo_text piece)
{
    const unsigned char *bytes = (const unsigned char *)piece.data;
    for (size_t i = 1; i < piece.size; i++)
        spm->followers[bytes[i - 1]][bytes[i] / 8] |= (uint8_t)(1u << bytes[i] % 8);
}

void spm_open(struct spm *spm, const struct vocabulary *vocabulary)
{
    *spm = (struct spm){.vocabulary = vocabulary};
    for (int i = 0; i < 256; i++)
        spm->byte_tokens[i] = -1;
    for (size_t i = 0; i < vocabulary->count; i++) {
        const struct token *token = &vocabulary->tokens[i];
        int byte = byte_token_value(token->text);
        if (byte >= 0 && spm->byte_tokens[byte] < 0)
            spm->byte_tokens[byte] = (int32_t)i;
        if (!token->plain)
            continue;
        if (token->piece.size > spm->longest_piece)
            spm->longest_piece = token->piece.size;
        note_followers(spm, token->piece);
    }
}

/* ---- Normalising ------------------------------------------------------------------------------------- */

/*
 * The length of the blank that the text begins with: a space, or the mark that stands for one in the
 * vocabulary.
 */
static size_t blank_size(const char *at, const char *end)
{
    if (*at == ' ')
        return 1;
    return space_mark_size(at, end);
}

/* Replaces the marks for blanks by blanks: the vocabulary does not distinguish them. */
static enum salvo_status normalise(
    const struct vocabulary *vocabulary, struct salvo_text text, struct buffer *out)
{
    enum salvo_status status = SALVO_OK;
    const char *at = text.data, *end = text.data + text.size;
    bool squeeze = vocabulary->remove_extra_spaces;
    TRY(buffer_reserve(out, text.size + 1));
    if (vocabulary->add_space_prefix)
        out->data[out->size++] = ' ';
    bool after_blank = squeeze; /* leading blanks are extra, too */
    while (at != end) {
        size_t blank = blank_size(at, end);
        if (!blank || !after_blank)
            out->data[out->size++] = blank ? ' ' : *at;
        after_blank = squeeze && blank;
        at += blank ? blank : 1;
    }
    if (squeeze && out->size && out->data[out->size - 1] == ' ')
        out->size--;

cleanup:
    return status;
}

/* ---- Encoding ---------------------------------------------------------------------------------------- */

/* Converts a score to a rank: higher scores get lower ranks. All bit patterns, NaN included, are ordered. */
static uint32_t rank_of_score(float score)
{
    uint32_t bits;
    score += 0.0f; /* turns -0 into 0 */
    memcpy(&bits, &score, sizeof bits);
    uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    uint32_t rank = ~ascending;
    return rank == MERGE_NEVER ? rank - 1 : rank;
}

static struct merge_result merge_pair(
    const void *context, int32_t left, int32_t right, struct salvo_text joined)
{
    (void)left, (void)right;
    const struct spm *spm = context;
    uint32_t token = UINT32_MAX;
    if (joined.size <= spm->longest_piece)
        token = string_map_find(&spm->vocabulary->by_piece, joined.data, joined.size);
    if (token == UINT32_MAX)
        return (struct merge_result){MERGE_NEVER, MERGE_NONE};
    return (struct merge_result){rank_of_score(spm->vocabulary->tokens[token].score), (int32_t)token};
}

enum salvo_status spm_spell(const struct spm *spm, struct salvo_text text, struct token_list *list)
{
    enum salvo_status status = SALVO_OK;
    for (size_t i = 0; i < text.size; i++) {
        int32_t id = spm->byte_tokens[(unsigned char)text.data[i]];
        if (id < 0) {
            uint32_t token = string_map_find(&spm->vocabulary->by_piece, text.data + i, 1);
            id = token == UINT32_MAX ? spm->vocabulary->unknown : (int32_t)token;
        }
        if (id >= 0)
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
    const struct spm *spm = encoder->model;
    struct merger *merger = &encoder->merger;
    const char *end = word.data + word.size;
    struct salvo_text part;
    int32_t id;
    TRY(merger_begin(merger, word));
    for (const char *at = word.data; at != end;) {
        size_t size = unicode_at(at, end).size;
        uint32_t token = string_map_find(&spm->vocabulary->by_piece, at, size);
        merger_add(merger, token == UINT32_MAX ? MERGE_NONE : (int32_t)token, (size_t)(at - word.data));
        at += size;
    }
    merger_run(merger, merge_pair, spm);
    for (uint32_t position = 0; merger_next(merger, &position, &id, &part);) {
        if (id != MERGE_NONE)
            TRY(token_list_add(list, id));
        else
            TRY(spm_spell(spm, part, list));
    }

cleanup:
    return status;
}

/* The size of the text up to the first place that no token crosses. */
static size_t word_size(const struct spm *spm, struct salvo_text text)
{
    const unsigned char *bytes = (const unsigned char *)text.data;
    size_t size = 1;
    while (size < text.size && (spm->followers[bytes[size - 1]][bytes[size] / 8] >> bytes[size] % 8 & 1))
        size++;
    return size;
}

enum salvo_status spm_encode(const struct spm *spm, struct salvo_text text, struct token_list *list)
{
    enum salvo_status status = SALVO_OK;
    struct word_encoder encoder = {.vocabulary = spm->vocabulary, .model = spm, .encode = encode_by_merging};
    struct buffer normal = {0};
    TRY(word_encoder_begin(&encoder, text.size));
    TRY(normalise(spm->vocabulary, text, &normal));
    for (size_t at = 0; at < normal.size;) {
        struct salvo_text word = {normal.data + at, normal.size - at};
        word.size = word_size(spm, word);
        TRY(word_encode(&encoder, word, list));
        at += word.size;
    }

cleanup:
    word_encoder_end(&encoder);
    buffer_free(&normal);
    return status;
}
