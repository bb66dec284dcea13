#include "token_overlap.h"

#include <stdlib.h>
#include <string.h>

/* The text of a few tokens, up to a control token, which has no text. */
struct spelling {
    const int32_t *ids;
    size_t count, taken;
    char *text;
    size_t size;
};

/* Appends the text of the next token; false after the last. */
static bool spell_next(struct salvo_model *model, struct spelling *spelling)
{
    char *text = NULL, *shown = NULL;
    size_t size = 0, shown_size = 0;
    if (spelling->taken == spelling->count)
        return false;
    const int32_t *id = &spelling->ids[spelling->taken];
    bool has_text = salvo_detokenize(model, id, 1, false, &shown, &shown_size) == SALVO_OK && shown_size &&
                    salvo_token_text(model, *id, &text, &size) == SALVO_OK && size;
    char *longer = has_text ? realloc(spelling->text, spelling->size + size) : NULL;
    if (longer) {
        memcpy(longer + spelling->size, text, size);
        spelling->text = longer;
        spelling->size += size;
        spelling->taken++;
    }
    salvo_free(shown);
    salvo_free(text);
    return longer != NULL;
}

/* Whether both begin with the same text in different tokens; `taken` is the number of tokens of each. */
static bool spell_the_same(struct salvo_model *model, struct spelling *a, struct spelling *b)
{
    for (;;) {
        struct spelling *shorter = a->size <= b->size ? a : b;
        if (!spell_next(model, shorter))
            return false;
        size_t common = a->size < b->size ? a->size : b->size;
        if (common && memcmp(a->text, b->text, common) != 0)
            return false;
        if (a->size == b->size)
            return true;
    }
}

struct token_overlap find_token_overlap(
    struct salvo_model *model, const struct salvo_session *session, const int32_t *ids, size_t count)
{
    struct token_overlap overlap = {0};
    const int32_t *held = salvo_session_tokens(session);
    const uint32_t held_count = salvo_session_position(session);
    uint32_t kept = 0;
    size_t next = 0;
    while (next < count) {
        overlap = (struct token_overlap){kept, next};
        if (kept == held_count)
            break;
        if (ids[next] == held[kept]) {
            next++;
            kept++;
            continue;
        }
        struct spelling wanted = {.ids = ids + next, .count = count - next};
        struct spelling there = {.ids = held + kept, .count = held_count - kept};
        bool same = spell_the_same(model, &wanted, &there);
        next += wanted.taken;
        kept += (uint32_t)there.taken;
        free(wanted.text);
        free(there.text);
        if (!same)
            break;
    }
    return overlap;
}
