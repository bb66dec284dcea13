/* Lists of token ids, separated by spaces, commas or line breaks. */
#ifndef TOOLS_ID_LIST_H
#define TOOLS_ID_LIST_H

#include <stddef.h>
#include <stdint.h>

struct id_list {
    int32_t *ids;
    size_t count, capacity;
};

int id_list_append(struct id_list *list, const int32_t *ids, size_t count);

/* Appends the ids in `text`. EXIT_DONE, or an exit status after an error message that names `command`. */
int id_list_add(struct id_list *list, const char *command, const char *text, size_t size);

/* "1,2,3" or "@FILE"; "@-" is standard input. */
int id_list_read(struct id_list *list, const char *command, const char *source);
void id_list_free(struct id_list *list);

#endif
