/* Texts and masks of grammars with unique items. */
#include "grammar/matcher_parts.h"
#include "grammar/separator_tokens.h"

enum { MOST_AHEAD = 512 }; /* characters */

/* Partitions an array of texts: texts whose byte at `at` is `byte` come first; returns their number. */
static size_t part(struct salvo_text *texts, size_t count, size_t at, unsigned char byte)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (texts[i].size > at && (unsigned char)texts[i].data[at] == byte) {
            const struct salvo_text other = texts[kept];
            texts[kept++] = texts[i];
            texts[i] = other;
        }
    }
    return kept;
}

/* Whether a repeated item may end in a state: an ambiguous grammar may also read the array as one
 * without unique items. */
static enum salvo_status may_end_repeated(
    struct states *states, const uint8_t *classes, uint32_t state, bool *out)
{
    static const char ends[] = ",]";
    enum salvo_status status = SALVO_OK;
    *out = false;
    for (size_t i = 0; i < 2 && !*out; i++) {
        uint32_t next;
        TRY(states_step_repeated(states, state, classes[(unsigned char)ends[i]], &next));
        *out = next != STATE_DEAD;
    }
cleanup:
    return status;
}

/* A search for continuations of the current item; `used` has the rests of the items that it must not
 * equal. */
struct ahead {
    struct states *states;
    const uint8_t *classes;
    struct salvo_text *used;
};

/*
 * Whether the item can differ from the first `count` used ones, which agree in `at` bytes. `space`: the
 * item has not begun. A byte that no used item has makes it differ; a byte that ends a used item makes it
 * equal to that one.
 */
static enum salvo_status can_differ(
    const struct ahead *ahead, uint32_t state, size_t count, size_t at, bool space, bool *out)
{
    enum salvo_status status = SALVO_OK;
    bool followed[256] = {false}, ends = false, found = false;
    *out = count == 0 || at >= MOST_AHEAD;
    for (size_t i = 0; i < count; i++) {
        ends |= ahead->used[i].size == at;
        if (ahead->used[i].size > at)
            followed[(unsigned char)ahead->used[i].data[at]] = true;
    }
    for (unsigned byte = 0; byte < 256 && !*out; byte++) {
        uint32_t next;
        TRY(states_step(ahead->states, state, ahead->classes[byte], &next));
        const bool is_space = unique_is_space(byte);
        if (next == STATE_DEAD || (space && is_space))
            continue;
        found = true;
        if (followed[byte]) {
            const size_t alike = part(ahead->used, count, at, (unsigned char)byte);
            TRY(can_differ(ahead, next, alike, at + 1, false, out));
        } else if (!ends || !(is_space || byte == ',' || byte == ']')) {
            *out = true;
        } else {
            TRY(may_end_repeated(ahead->states, ahead->classes, is_space ? next : state, out));
        }
    }
    /* If white space must follow, the item begins after it. */
    for (unsigned byte = 0; byte < 256 && space && !found && !*out; byte++) {
        uint32_t next;
        TRY(states_step(ahead->states, state, ahead->classes[byte], &next));
        if (next != STATE_DEAD)
            TRY(can_differ(ahead, next, count, at, true, out));
    }
cleanup:
    return status;
}

/* Whether the current item of the matcher's text, which ends with `byte`, can become one that the array
 * does not have yet. */
static enum salvo_status can_be_unique(
    struct salvo_grammar_matcher *matcher, uint32_t state, unsigned char byte, bool *out)
{
    const struct unique_place *place = &matcher->unique.place;
    const uint8_t *classes = matcher->grammar->network.class_of;
    struct states *states = &matcher->grammar->states;
    enum salvo_status status = SALVO_OK;
    struct salvo_text used[UNIQUE_MOST_COMPARED];
    bool all = true, repeated;
    *out = true;
    if (place->kind != UNIQUE_ARRAY || !place->unique || !place->last)
        return SALVO_OK;
    if (place->in_string || !place->begun) {
        /* In a string where any text may follow, it may be longer than all items. */
        uint32_t inside = state;
        if (!place->begun)
            TRY(states_step(states, state, classes['"'], &inside));
        if (inside != STATE_DEAD && states->list[inside]->ahead == REPEAT_UNLIMITED)
            goto cleanup;
    }
    if (place->begun && !place->in_string && (byte == '"' || byte == ']' || byte == '}')) {
        TRY(unique_is_repeated(&matcher->unique, &repeated));
        if (repeated)
            TRY(may_end_repeated(states, classes, state, out));
        goto cleanup;
    }
    const size_t count = unique_begun_alike(&matcher->unique, used, &all);
    const struct ahead ahead = {states, classes, used};
    if (all)
        TRY(can_differ(&ahead, state, count, 0, !place->begun, out));
cleanup:
    return status;
}

enum salvo_status unique_walk(
    struct salvo_grammar_matcher *matcher, struct salvo_text bytes, uint32_t *state, size_t *out_taken)
{
    enum salvo_status status = SALVO_OK;
    struct unique_text *unique = &matcher->unique;
    struct states *states = &matcher->grammar->states;
    for (*out_taken = 0; *out_taken < bytes.size; ++*out_taken) {
        const unsigned char byte = (unsigned char)bytes.data[*out_taken];
        const unsigned class = matcher->grammar->network.class_of[byte];
        bool repeated = false, possible;
        uint32_t next;
        if (unique_ends_item(&unique->place, byte) && states_read_unique(states, *state, class))
            TRY(unique_is_repeated(unique, &repeated));
        TRY(repeated ? states_step_repeated(states, *state, class, &next)
                     : states_step(states, *state, class, &next));
        if (next == STATE_DEAD)
            break;
        TRY(unique_push(unique, byte, byte == '[' && states_read_unique(states, *state, class)));
        TRY(can_be_unique(matcher, next, byte, &possible));
        if (!possible)
            break;
        *state = next;
    }
cleanup:
    return status;
}

/* ---- Masks ---- */

/* A mask, and the matcher whose tokens are tried. */
struct trial {
    struct salvo_grammar_matcher *matcher;
    uint32_t state, *mask;
};

static enum salvo_status try_token(const struct trial *trial, uint32_t id, struct salvo_text text)
{
    const uint32_t bit = UINT32_C(1) << (id % 32);
    uint32_t state = trial->state;
    size_t taken;
    if (!(trial->mask[id / 32] & bit))
        return SALVO_OK;
    enum salvo_status status = unique_walk(trial->matcher, text, &state, &taken);
    unique_return(&trial->matcher->unique);
    if (status == SALVO_OK && taken < text.size)
        trial->mask[id / 32] &= ~bit;
    return status;
}

/* Tries the tokens that are a beginning of one of the first `count` used texts, which agree in `at` bytes,
 * each token once, among the nodes from `first` on. `space`: behind space. */
static enum salvo_status try_beginnings(const struct trial *trial, uint32_t first, uint32_t last,
    struct salvo_text *used, size_t count, size_t at, bool space)
{
    enum salvo_status status = SALVO_OK;
    const struct token_trie *trie = trial->matcher->grammar->trie;
    bool followed[256] = {false}, any = space;
    for (size_t i = 0; i < count; i++) {
        if (used[i].size > at)
            any = followed[(unsigned char)used[i].data[at]] = true;
    }
    for (uint32_t i = first; i < last && any; i = trie->nodes[i].after) {
        const struct trie_node *node = &trie->nodes[i];
        const bool follows = followed[node->byte];
        if (!follows && !(space && unique_is_space(node->byte)))
            continue;
        for (uint32_t k = node->tokens; k < trie->nodes[i + 1].tokens; k++)
            TRY(try_token(trial, trie->ids[k], token_trie_text(trie, trie->ids[k])));
        const size_t alike = follows ? part(used, count, at, node->byte) : count;
        TRY(try_beginnings(trial, i + 1, node->after, used, alike, at + follows, space && !follows));
    }
cleanup:
    return status;
}

enum salvo_status unique_restrict(struct salvo_grammar_matcher *matcher, uint32_t state, uint32_t *mask)
{
    enum salvo_status status = SALVO_OK;
    const struct salvo_grammar *grammar = matcher->grammar;
    const struct separator_tokens *tokens = grammar->trie->separators;
    struct trial trial = {.matcher = matcher, .state = state};
    const struct unique_place place = matcher->unique.place;
    const enum separator_case which = place.kind == UNIQUE_OUTSIDE ? SEPARATOR_OUTSIDE
                                      : place.in_string            ? SEPARATOR_IN_STRING
                                                                   : SEPARATOR_IN_ARRAY;
    struct salvo_text used[UNIQUE_MOST_COMPARED];
    bool all;
    trial.mask = mask;
    for (uint32_t i = 0; i < tokens->counts[which]; i++)
        TRY(try_token(&trial, tokens->ids[which][i], token_trie_text(grammar->trie, tokens->ids[which][i])));
    for (size_t i = 0; i < grammar->control_count; i++)
        TRY(try_token(&trial, grammar->controls[i].id, grammar->controls[i].text));
    if (place.kind != UNIQUE_ARRAY)
        goto cleanup;
    /* With room for every token, the texts stay in place while tokens are tried. */
    TRY(buffer_reserve(&matcher->unique.text, grammar->trie->deepest));
    const size_t count = unique_begun_alike(&matcher->unique, used, &all);
    if (all && count)
        TRY(try_beginnings(&trial, 0, grammar->trie->node_count, used, count, 0, !place.begun));
cleanup:
    return status;
}
