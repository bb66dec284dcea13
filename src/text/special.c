#include "text/special.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

/* ---- The tries --------------------------------------------------------------------------------------- */

static enum salvo_status open_trie(struct trie *trie, const struct vocabulary *vocabulary, bool control)
{
    enum salvo_status status = SALVO_OK;
    struct trie_entry *entries = NULL;
    size_t count = 0;
    TRY(NEW(&entries, vocabulary->count));
    for (size_t i = 0; i < vocabulary->count; i++) {
        const struct token *token = &vocabulary->tokens[i];
        if (token->type == TOKEN_USER_DEFINED || (control && token_is_control(token)))
            entries[count++] = (struct trie_entry){token->text, (int32_t)i};
    }
    TRY(trie_open(trie, entries, count));

cleanup:
    memory_free(entries);
    return status;
}

enum salvo_status special_tokens_open(struct special_tokens *special, const struct vocabulary *vocabulary)
{
    enum salvo_status status = SALVO_OK;
    *special = (struct special_tokens){0};
    TRY(open_trie(&special->all, vocabulary, true));
    TRY(open_trie(&special->user_defined, vocabulary, false));

cleanup:
    if (status != SALVO_OK)
        special_tokens_close(special);
    return status;
}

void special_tokens_close(struct special_tokens *special)
{
    trie_close(&special->all);
    trie_close(&special->user_defined);
}

/* ---- Candidates -------------------------------------------------------------------------------------- */

struct candidate {
    size_t begin, size;
    int32_t id;
};

/* A heap of candidates, the one to decide on next first. */
struct candidates {
    struct candidate *items;
    size_t count, capacity;
};

static bool comes_before(const struct candidate *left, const struct candidate *right)
{
    return left->size != right->size ? left->size > right->size : left->begin < right->begin;
}

static enum salvo_status push_candidate(struct candidates *heap, struct candidate candidate)
{
    enum salvo_status status = SALVO_OK;
    if (heap->count == heap->capacity) {
        size_t capacity = heap->capacity ? 2 * heap->capacity : 16;
        TRY(RESIZE(&heap->items, capacity));
        heap->capacity = capacity;
    }
    size_t index = heap->count++;
    for (; index && comes_before(&candidate, &heap->items[(index - 1) / 2]); index = (index - 1) / 2)
        heap->items[index] = heap->items[(index - 1) / 2];
    heap->items[index] = candidate;

cleanup:
    return status;
}

static struct candidate pop_candidate(struct candidates *heap)
{
    struct candidate first = heap->items[0], moving = heap->items[--heap->count];
    size_t index = 0;
    for (;;) {
        size_t child = 2 * index + 1;
        if (child >= heap->count)
            break;
        if (child + 1 < heap->count && comes_before(&heap->items[child + 1], &heap->items[child]))
            child++;
        if (!comes_before(&heap->items[child], &moving))
            break;
        heap->items[index] = heap->items[child];
        index = child;
    }
    heap->items[index] = moving;
    return first;
}

/* The longest token at a position that is at most `limit` long, and free to be there, becomes a candidate. */
static enum salvo_status propose(
    struct candidates *heap, const struct special_search *search, size_t begin, size_t limit)
{
    const char *at = search->text.data + begin;
    struct candidate candidate = {.begin = begin};
    if (search->control)
        candidate.size = trie_longest(&search->special->all, at, limit, &candidate.id);
    const char *marks = search->marks ? search->marks + begin : NULL;
    const char *marked = marks && candidate.size ? memchr(marks, 1, candidate.size) : NULL;
    if (marked)
        candidate.size = trie_longest(&search->special->all, at, (size_t)(marked - marks), &candidate.id);
    if (marked || !search->control) {
        int32_t id = 0;
        size_t size = trie_longest(&search->special->user_defined, at, limit, &id);
        while (size && search->guarded && search->guarded[id] && marks && memchr(marks, 1, size))
            size = trie_longest(&search->special->user_defined, at, size - 1, &id);
        if (size > candidate.size) {
            candidate.size = size;
            candidate.id = id;
        }
    }
    return candidate.size ? push_candidate(heap, candidate) : SALVO_OK;
}

/* ---- Deciding ---------------------------------------------------------------------------------------- */

static struct special_match accept(
    const struct token *token, struct candidate candidate, struct salvo_text text, uint8_t *covered)
{
    struct special_match match = {candidate.begin, candidate.begin + candidate.size, candidate.id};
    if (token->strips_left) {
        while (match.begin > 0 && !covered[match.begin - 1] && is_blank(text.data[match.begin - 1]))
            match.begin--;
    }
    if (token->strips_right) {
        while (match.end < text.size && !covered[match.end] && is_blank(text.data[match.end]))
            match.end++;
    }
    memset(covered + match.begin, 1, match.end - match.begin);
    return match;
}

static int compare_matches(const void *left_pointer, const void *right_pointer)
{
    const struct special_match *left = left_pointer, *right = right_pointer;
    return left->begin < right->begin ? -1 : left->begin > right->begin;
}

enum salvo_status special_tokens_find(
    const struct special_search *search, struct special_match **out, size_t *out_count)
{
    enum salvo_status status = SALVO_OK;
    const struct salvo_text text = search->text;
    struct candidates heap = {0};
    uint8_t *covered = NULL; /* [text.size] 1 where a match was accepted */
    size_t capacity = 0;
    *out = NULL;
    *out_count = 0;

    if (!search->special->all.nodes)
        goto cleanup;
    for (size_t i = 0; i < text.size; i++)
        TRY(propose(&heap, search, i, text.size - i));
    if (heap.count)
        TRY(NEW(&covered, text.size));
    while (heap.count) {
        struct candidate candidate = pop_candidate(&heap);
        if (covered[candidate.begin])
            continue;
        /*
         * All accepted ones are at least as long, so none can hide between a free beginning and a free end.
         */
        if (covered[candidate.begin + candidate.size - 1]) {
            TRY(propose(&heap, search, candidate.begin, candidate.size - 1));
            continue;
        }
        if (*out_count == capacity) {
            size_t larger = capacity ? 2 * capacity : 16;
            TRY(RESIZE(out, larger));
            capacity = larger;
        }
        (*out)[(*out_count)++] = accept(&search->vocabulary->tokens[candidate.id], candidate, text, covered);
    }
    if (*out_count)
        qsort(*out, *out_count, sizeof **out, compare_matches);

cleanup:
    memory_free(heap.items);
    memory_free(covered);
    if (status != SALVO_OK) {
        memory_free(*out);
        *out = NULL;
        *out_count = 0;
    }
    return status;
}
