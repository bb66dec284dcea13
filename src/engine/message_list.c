#include "engine/message_list.h"

#include "base/memory.h"

#include <string.h>

/* Copies a text and a NUL to *place and advances it. Returns the copy. */
static const char *append_text(char **place, const char *text, size_t size)
{
    char *begin = *place;
    if (size)
        memcpy(begin, text, size);
    begin[size] = 0;
    *place += size + 1;
    return begin;
}

/* The texts of the copy are in one allocation. */
static enum salvo_status copy_message(
    const struct salvo_message *message, struct salvo_message *out, char **out_memory)
{
    const char *role = message->role ? message->role : "";
    const size_t role_size = strlen(role), json_size = message->json ? strlen(message->json) : 0;
    enum salvo_status status = NEW(out_memory, role_size + message->content.size + json_size + 3);
    if (status != SALVO_OK)
        return status;
    char *place = *out_memory;
    out->role = append_text(&place, role, role_size);
    out->content.data = append_text(&place, message->content.data, message->content.size);
    out->content.size = message->content.size;
    out->json = message->json ? append_text(&place, message->json, json_size) : NULL;
    return SALVO_OK;
}

enum salvo_status message_list_insert(
    struct message_list *list, size_t index, const struct salvo_message *message)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_message copy;
    char *memory;
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity * 2 + 8;
        TRY(RESIZE(&list->items, capacity));
        TRY(RESIZE(&list->memory, capacity));
        list->capacity = capacity;
    }
    TRY(copy_message(message, &copy, &memory));
    const size_t moved = list->count - index;
    memmove(&list->items[index + 1], &list->items[index], moved * sizeof copy);
    memmove(&list->memory[index + 1], &list->memory[index], moved * sizeof memory);
    list->items[index] = copy;
    list->memory[index] = memory;
    list->count++;
cleanup:
    return status;
}

enum salvo_status message_list_copy(
    const struct salvo_message *messages, size_t count, struct message_list *out)
{
    enum salvo_status status = SALVO_OK;
    *out = (struct message_list){0};
    for (size_t i = 0; i < count; i++)
        TRY(message_list_insert(out, i, &messages[i]));
cleanup:
    if (status != SALVO_OK)
        message_list_free(out);
    return status;
}

void message_list_erase(struct message_list *list, size_t first, size_t count)
{
    if (count == 0)
        return;
    for (size_t i = first; i < first + count; i++)
        memory_free(list->memory[i]);
    list->count -= count;
    const size_t moved = list->count - first;
    memmove(&list->items[first], &list->items[first + count], moved * sizeof *list->items);
    memmove(&list->memory[first], &list->memory[first + count], moved * sizeof *list->memory);
}

void message_list_free(struct message_list *list)
{
    message_list_erase(list, 0, list->count);
    memory_free(list->items);
    memory_free(list->memory);
    *list = (struct message_list){0};
}

bool message_is_from(const struct salvo_message *message, const char *role)
{
    return strcmp(message->role, role) == 0;
}

size_t message_list_question(const struct message_list *list)
{
    for (size_t i = list->count; i > 0; i--) {
        if (message_is_from(&list->items[i - 1], "user"))
            return i - 1;
    }
    return list->count;
}

bool message_list_has_system(const struct message_list *list)
{
    return list->count && message_is_from(&list->items[0], "system");
}

static bool begins_turn(const struct message_list *list, size_t index)
{
    return message_is_from(&list->items[index], "user") || index == (size_t)message_list_has_system(list);
}

size_t message_list_turns(const struct message_list *list)
{
    size_t turns = 0;
    for (size_t i = message_list_has_system(list); i < list->count; i++)
        turns += begins_turn(list, i);
    return turns;
}

size_t message_list_turn_messages(const struct message_list *list, size_t turns)
{
    const size_t first = message_list_has_system(list);
    size_t end = first;
    for (; end < list->count; end++) {
        if (begins_turn(list, end) && turns-- == 0)
            break;
    }
    return end - first;
}
