#include "engine/token_overlap.h"

#include "text/tokenizer.h"

#include <string.h>

/* The text of a few tokens. It ends before a control token, which has no text, and before a user-defined one,
 * which a template may use like a control token. */
struct spelling {
    const int32_t *ids;
    size_t count, taken;
    struct buffer text;
};

/* Appends the text of the next token. *out_done: there is none with a text. */
static enum salvo_status spell_next(
    const struct tokenizer *tokenizer, struct spelling *spelling, bool *out_done)
{
    const size_t before = spelling->text.size;
    *out_done = true;
    if (spelling->taken == spelling->count ||
        tokenizer_is_user_defined(tokenizer, spelling->ids[spelling->taken]))
        return SALVO_OK;
    enum salvo_status status =
        tokenizer_piece(tokenizer, spelling->ids[spelling->taken], false, &spelling->text);
    *out_done = spelling->text.size == before;
    spelling->taken += !*out_done;
    return status;
}

/* *out: both begin with the same text in different tokens; `taken` is the number of tokens of each. */
static enum salvo_status spell_the_same(
    const struct tokenizer *tokenizer, struct spelling *a, struct spelling *b, bool *out)
{
    enum salvo_status status = SALVO_OK;
    *out = false;
    for (;;) {
        bool done;
        TRY(spell_next(tokenizer, a->text.size <= b->text.size ? a : b, &done));
        const size_t common = a->text.size < b->text.size ? a->text.size : b->text.size;
        if (done || (common && memcmp(a->text.data, b->text.data, common) != 0))
            break;
        if (a->text.size == b->text.size) {
            *out = true;
            break;
        }
    }
cleanup:
    return status;
}

enum salvo_status token_overlap_find(const struct tokenizer *tokenizer, const int32_t *held,
    size_t held_count, const int32_t *ids, size_t count, struct token_overlap *out)
{
    enum salvo_status status = SALVO_OK;
    size_t kept = 0, next = 0;
    *out = (struct token_overlap){0};
    while (next < count) {
        *out = (struct token_overlap){kept, next};
        if (kept == held_count)
            break;
        if (ids[next] == held[kept]) {
            next++;
            kept++;
            continue;
        }
        bool same;
        struct spelling wanted = {.ids = ids + next, .count = count - next};
        struct spelling there = {.ids = held + kept, .count = held_count - kept};
        status = spell_the_same(tokenizer, &wanted, &there, &same);
        next += wanted.taken;
        kept += there.taken;
        buffer_free(&wanted.text);
        buffer_free(&there.text);
        if (status != SALVO_OK || !same)
            break;
    }
    return status;
}
