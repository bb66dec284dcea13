#include "commands.h"
#include "input.h"
#include "models.h"

#include <errno.h>
#include <salvo/salvo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    const char *model;
} options;

static const struct option option_table[] = {
    MODEL_OPTION(&options.model),
    {0},
};

struct id_list {
    int32_t *ids;
    size_t count, capacity;
};

static int add_id(struct id_list *list, int32_t id)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 256;
        int32_t *larger = realloc(list->ids, capacity * sizeof *larger);
        if (!larger)
            return failure("out of memory");
        list->ids = larger;
        list->capacity = capacity;
    }
    list->ids[list->count++] = id;
    return EXIT_DONE;
}

/* Ids separated by blanks, commas or lines. */
static int add_ids(struct id_list *list, const char *text, size_t size)
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
            return usage_error("detokenize: '%s' is not a token id", word);
        if (add_id(list, (int32_t)id) != EXIT_DONE)
            return EXIT_FAILED;
        text += length;
    }
    return EXIT_DONE;
}

static int collect_ids(int count, char **arguments, struct id_list *list)
{
    int result = EXIT_DONE;
    for (int i = 0; i < count && result == EXIT_DONE; i++)
        result = add_ids(list, arguments[i], strlen(arguments[i]));
    if (count == 0) {
        struct input input;
        result = input_read(NULL, NULL, &input);
        if (result == EXIT_DONE)
            result = add_ids(list, input.data, input.size);
        input_free(&input);
    }
    return result;
}

static int run(int count, char **arguments)
{
    struct id_list list = {0};
    struct salvo_model *model = NULL;
    char *text = NULL;
    size_t size = 0;
    int result = collect_ids(count, arguments, &list);
    if (result == EXIT_DONE) {
        model = open_model(options.model);
        if (!model)
            result = EXIT_FAILED;
        else if (salvo_detokenize(model, list.ids, list.count, true, &text, &size) != SALVO_OK)
            result = library_failure();
        else
            fwrite(text, 1, size, stdout);
    }
    salvo_free(text);
    salvo_model_close(model);
    free(list.ids);
    return result;
}

const struct command detokenize_command = {
    .name = "detokenize",
    .arguments = "[IDS...]",
    .summary = "turn token ids into the bytes they stand for",
    .details = "Without IDS they are read from standard input, separated by blanks, commas or lines.\n"
               "Control tokens are written by their names.",
    .options = option_table,
    .run = run,
};
