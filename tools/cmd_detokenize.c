#include "commands.h"
#include "id_list.h"
#include "input.h"
#include "models.h"

#include <salvo/salvo.h>
#include <stdio.h>
#include <string.h>

static struct {
    const char *model;
} options;

static const struct option option_table[] = {
    MODEL_OPTION(&options.model),
    {0},
};

static int collect_ids(int count, char **arguments, struct id_list *list)
{
    int result = EXIT_DONE;
    for (int i = 0; i < count && result == EXIT_DONE; i++)
        result = id_list_add(list, "detokenize", arguments[i], strlen(arguments[i]));
    if (count == 0) {
        struct input input;
        result = input_read(NULL, NULL, &input);
        if (result == EXIT_DONE)
            result = id_list_add(list, "detokenize", input.data, input.size);
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
    if (result == EXIT_DONE)
        result = open_model(options.model, &model);
    if (result == EXIT_DONE) {
        enum salvo_status status = salvo_detokenize(model, list.ids, list.count, true, &text, &size);
        if (status == SALVO_OK)
            fwrite(text, 1, size, stdout);
        else
            result = library_failure_by(status);
    }
    salvo_free(text);
    salvo_model_close(model);
    id_list_free(&list);
    return result;
}

const struct command detokenize_command = {
    .name = "detokenize",
    .arguments = "[IDS...]",
    .summary = "convert token ids to text",
    .details = "Without IDS, reads ids from standard input, separated by spaces, commas or line breaks.\n"
               "Control tokens are written by name.",
    .options = option_table,
    .run = run,
};
