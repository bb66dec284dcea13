#include "text/merge.h"

#include "base/memory.h"

static const uint32_t no_symbol = UINT32_MAX;

void merger_free(struct merger *merger)
{
    memory_free(merger->symbols);
    memory_free(merger->heap);
    *merger = (struct merger){0};
}

enum salvo_status merger_begin(struct merger *merger, struct salvo_text word)
{
    enum salvo_status status = SALVO_OK;
    merger->count = merger->heap_count = 0;
    merger->word = word;
    if (word.size > UINT32_MAX / 2)
        TRY(fail(SALVO_ERROR_UNSUPPORTED, "a word of %zu bytes is too long: the limit is %u", word.size,
            UINT32_MAX / 2));
    if (word.size > merger->capacity) {
        size_t capacity = word.size < 64 ? 64 : word.size + word.size / 2;
        TRY(RESIZE(&merger->symbols, capacity));
        merger->capacity = capacity;
    }
    /*
     * Each merge takes a pair off the heap and puts at most two on it: n pairs and n merges need no more
     * than 2 n.
     */
    if (merger->heap_capacity < 2 * merger->capacity) {
        TRY(RESIZE(&merger->heap, 2 * merger->capacity));
        merger->heap_capacity = 2 * merger->capacity;
    }

cleanup:
    return status;
}

void merger_add(struct merger *merger, int32_t id, size_t begin)
{
    uint32_t index = (uint32_t)merger->count++;
    struct merge_symbol *symbol = &merger->symbols[index];
    *symbol = (struct merge_symbol){.id = id,
        .begin = (uint32_t)begin,
        .previous = index ? index - 1 : no_symbol,
        .next = no_symbol,
        .with_next = {.rank = MERGE_NEVER}};
    if (index)
        symbol[-1].next = index;
}

static uint32_t end_of(const struct merger *merger, const struct merge_symbol *symbol)
{
    return symbol->next == no_symbol ? (uint32_t)merger->word.size : merger->symbols[symbol->next].begin;
}

/* ---- The heap: the smallest number first ------------------------------------------------------------- */

static void sift_down(struct merger *merger, size_t index)
{
    uint64_t *heap = merger->heap, moving = heap[index];
    for (;;) {
        size_t child = 2 * index + 1;
        if (child >= merger->heap_count)
            break;
        if (child + 1 < merger->heap_count && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= moving)
            break;
        heap[index] = heap[child];
        index = child;
    }
    heap[index] = moving;
}

static void heap_push(struct merger *merger, uint64_t pair)
{
    uint64_t *heap = merger->heap;
    size_t index = merger->heap_count++;
    while (index && heap[(index - 1) / 2] > pair) {
        heap[index] = heap[(index - 1) / 2];
        index = (index - 1) / 2;
    }
    heap[index] = pair;
}

static uint64_t heap_pop(struct merger *merger)
{
    uint64_t first = merger->heap[0];
    merger->heap[0] = merger->heap[--merger->heap_count];
    if (merger->heap_count)
        sift_down(merger, 0);
    return first;
}

/* ---- Merging ----------------------------------------------------------------------------------------- */

/* Looks up the merge of a symbol and its successor; false if there is none. */
static bool rank_pair(struct merger *merger, uint32_t left_index, merge_function merge, const void *context)
{
    struct merge_symbol *left = &merger->symbols[left_index];
    left->with_next.rank = MERGE_NEVER;
    if (left->next == no_symbol)
        return false;
    const struct merge_symbol *right = &merger->symbols[left->next];
    struct salvo_text joined = {merger->word.data + left->begin, end_of(merger, right) - left->begin};
    left->with_next = merge(context, left->id, right->id, joined);
    return left->with_next.rank != MERGE_NEVER;
}

static uint64_t heap_item(const struct merger *merger, uint32_t left_index)
{
    return (uint64_t)merger->symbols[left_index].with_next.rank << 32 | left_index;
}

void merger_run(struct merger *merger, merge_function merge, const void *context)
{
    for (uint32_t i = 0; i < merger->count; i++) {
        if (rank_pair(merger, i, merge, context))
            merger->heap[merger->heap_count++] = heap_item(merger, i);
    }
    for (size_t i = merger->heap_count / 2; i-- > 0;)
        sift_down(merger, i);

    while (merger->heap_count) {
        uint64_t item = heap_pop(merger);
        uint32_t left_index = (uint32_t)item;
        struct merge_symbol *left = &merger->symbols[left_index];
        /*
         * A pair on the heap is outdated if its rank has changed, or if its left symbol was merged and has
         * no rank.
         */
        if (left->with_next.rank != item >> 32)
            continue;

        struct merge_symbol *right = &merger->symbols[left->next];
        left->id = left->with_next.symbol;
        left->next = right->next;
        right->with_next.rank = MERGE_NEVER;
        if (left->next != no_symbol)
            merger->symbols[left->next].previous = left_index;
        if (rank_pair(merger, left_index, merge, context))
            heap_push(merger, heap_item(merger, left_index));
        if (left->previous != no_symbol && rank_pair(merger, left->previous, merge, context))
            heap_push(merger, heap_item(merger, left->previous));
    }
}

bool merger_next(
    const struct merger *merger, uint32_t *position, int32_t *out_id, struct salvo_text *out_text)
{
    if (*position >= merger->count)
        return false;
    const struct merge_symbol *symbol = &merger->symbols[*position];
    *out_id = symbol->id;
    *out_text =
        (struct salvo_text){merger->word.data + symbol->begin, end_of(merger, symbol) - symbol->begin};
    *position = symbol->next; /* UINT32_MAX after the last */
    return true;
}
