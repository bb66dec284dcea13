#include "text/token_list.h"

#include "base/checked.h"
#include "base/memory.h"

void token_list_free(struct token_list *list)
{
    memory_free(list->ids);
    *list = (struct token_list){0};
}

enum salvo_status token_list_grow(struct token_list *list, size_t more)
{
    size_t needed;
    if (!checked_add(list->count, more, &needed) || needed > SIZE_MAX / 2)
        return fail(SALVO_ERROR_MEMORY, "out of memory: cannot allocate %zu more tokens", more);
    if (needed <= list->capacity)
        return SALVO_OK;
    size_t capacity = list->capacity ? list->capacity : 64;
    while (capacity < needed)
        capacity *= 2;
    enum salvo_status status = RESIZE(&list->ids, capacity);
    if (status == SALVO_OK)
        list->capacity = capacity;
    return status;
}
