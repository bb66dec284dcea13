/* Appending to a list of tokens. */
#ifndef TEXT_TOKEN_LIST_H
#define TEXT_TOKEN_LIST_H

#include "text/tokenizer.h"

/* Makes room for `more` ids. */
enum salvo_status token_list_grow(struct token_list *list, size_t more);

static inline enum salvo_status token_list_add(struct token_list *list, int32_t id)
{
    enum salvo_status status = list->count < list->capacity ? SALVO_OK : token_list_grow(list, 1);
    if (status == SALVO_OK)
        list->ids[list->count++] = id;
    return status;
}

#endif
