#include "id_list.h"

#include "command.h"
#include "input.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int id_list_append(struct id_list *list, const int32_t *ids, size_t count)
{
    if (list->capacity - list->count < count) {
        size_t capacity = (list->count + count) * 2 + 256;
        int32_t *larger = realloc(list->ids, capacity * sizeof *larger);
        if (!larger)
            return failure("out of memory");
        list->ids = larger;
        list->capacity = capacity;
    }
    if (count)
        memcpy(list->ids + list->count, ids, count * sizeof *ids);
    list->count += count;
    return EXIT_DONE;
}

int id_list_add(struct id_list *list, const char *command, const char *text, size_t size)
{
    static const char separators[] = " \t\r\n,";
    const char *end = text + size;
    while (text < end) {
        if (*text && strchr(separators, *text)) {
            text++;
            continue;
        }
        size_t length = 0;
        char word[16];
        while (text + length < end && !(text[length] && strchr(separators, text[length])))
            length++;
        snprintf(word, sizeof word, "%.*s", length < sizeof word ? (int)length : (int)sizeof word - 1, text);
        char *stop;
        errno = 0;
        long id = strtol(word, &stop, 10);
        if (length >= sizeof word || *stop || stop == word || strlen(word) != length || errno || id < 0 ||
            id > INT32_MAX)
            return usage_error("%s: '%s' is not a token id", command, word);
        if (id_list_append(list, &(int32_t){(int32_t)id}, 1) != EXIT_DONE)
            return EXIT_FAILED;
        text += length;
    }
    return EXIT_DONE;
}

/* Each comma has an id on both sides. */
static int check_commas(const char *command, const char *text, size_t size)
{
    bool has_id = false, has_comma = false;
    for (size_t i = 0; i < size; i++) {
        if (text[i] == ',') {
            if (!has_id)
                return usage_error("%s: missing token id before a comma", command);
            has_comma = true;
            has_id = false;
        } else if (!text[i] || !strchr(" \t\r\n", text[i])) {
            has_id = true;
        }
    }
    if (has_comma && !has_id)
        return usage_error("%s: missing token id after the last comma", command);
    return EXIT_DONE;
}

int id_list_read(struct id_list *list, const char *command, const char *source)
{
    struct input input;
    if (source[0] != '@') {
        int result = check_commas(command, source, strlen(source));
        return result == EXIT_DONE ? id_list_add(list, command, source, strlen(source)) : result;
    }
    if (!source[1])
        return usage_error("%s: the file name after @ is empty", command);
    int result = input_read(NULL, source + 1, &input);
    if (result == EXIT_DONE)
        result = check_commas(command, input.data, input.size);
    if (result == EXIT_DONE)
        result = id_list_add(list, command, input.data, input.size);
    input_free(&input);
    return result;
}

void id_list_free(struct id_list *list)
{
    free(list->ids);
    *list = (struct id_list){0};
}
