/* Common prefix and order of texts. */
#ifndef BASE_TEXT_ORDER_H
#define BASE_TEXT_ORDER_H

#include <salvo/salvo.h>

#include <string.h>

/* The number of bytes that both texts begin with. */
static inline size_t text_common_prefix(struct salvo_text a, struct salvo_text b)
{
    size_t size = 0;
    while (size < a.size && size < b.size && a.data[size] == b.data[size])
        size++;
    return size;
}

/* Order by bytes, a prefix before longer texts; as memcmp. */
static inline int text_compare(struct salvo_text a, struct salvo_text b)
{
    const size_t size = a.size < b.size ? a.size : b.size;
    const int order = size ? memcmp(a.data, b.data, size) : 0; /* an empty text may be NULL */
    return order ? order : a.size < b.size ? -1 : a.size > b.size;
}

#endif
