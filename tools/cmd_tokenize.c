#include "commands.h"
#include "input.h"
#include "json_output.h"
#include "models.h"
#include "terminal.h"

#include <inttypes.h>

static struct {
    const char *model, *text, *file;
    bool ids, special, bos, json;
} options;

static const struct option option_table[] = {
    MODEL_OPTION(&options.model),
    {'p', "prompt", "TEXT", OPTION_TEXT, &options.text, "the text; no escapes"},
    {'f', "file", "FILE", OPTION_FILE, &options.file, "file with the text"},
    {0, "ids", NULL, OPTION_FLAG, &options.ids, "print one line of ids only"},
    {0, "special", NULL, OPTION_FLAG, &options.special, "parse control tokens in the text"},
    {0, "bos", NULL, OPTION_FLAG, &options.bos, "add the beginning-of-text token (BOS)"},
    {0, "json", NULL, OPTION_FLAG, &options.json, "print one JSON object"},
    {0},
};

static int write_pieces(struct salvo_model *model, const int32_t *ids, size_t count)
{
    struct json_writer json = json_output();
    if (options.json) {
        json_begin(&json, '{');
        json_key(&json, "count");
        json_unsigned(&json, count);
        json_key(&json, "ids");
        json_begin(&json, '[');
        for (size_t i = 0; i < count; i++)
            json_signed(&json, ids[i]);
        json_end(&json, ']');
        json_key(&json, "tokens");
        json_begin(&json, '[');
    }
    for (size_t i = 0; i < count; i++) {
        struct salvo_text piece;
        char *text;
        if (salvo_token_text(model, ids[i], &text, &piece.size) != SALVO_OK)
            return library_failure();
        piece.data = text;
        if (options.json) {
            json_text(&json, piece);
        } else {
            printf("%7" PRId32 "  '", ids[i]);
            print_safely(stdout, piece.data, piece.size);
            puts("'");
        }
        salvo_free(text);
    }
    if (options.json) {
        json_end(&json, ']');
        json_end(&json, '}');
        putchar('\n');
    }
    return EXIT_DONE;
}

static int run(int count, char **arguments)
{
    (void)count;
    (void)arguments;
    int32_t *ids = NULL;
    size_t id_count = 0;
    struct input input;
    struct salvo_model *model;
    int result = input_read(options.text, options.file, &input);
    if (result != EXIT_DONE)
        return result;
    result = open_model(options.model, &model);
    unsigned flags = (options.special ? SALVO_TOKENIZE_SPECIAL : 0) | (options.bos ? SALVO_TOKENIZE_BOS : 0);
    if (result == EXIT_DONE &&
        salvo_tokenize(model, input.data, input.size, flags, &ids, &id_count) != SALVO_OK)
        result = library_failure();
    if (result == EXIT_DONE && options.ids && !options.json) {
        for (size_t i = 0; i < id_count; i++)
            printf("%s%" PRId32, i ? " " : "", ids[i]);
        putchar('\n');
    } else if (result == EXIT_DONE) {
        result = write_pieces(model, ids, id_count);
    }
    salvo_free(ids);
    salvo_model_close(model);
    input_free(&input);
    return result;
}

const struct command tokenize_command = {
    .name = "tokenize",
    .summary = "convert text to token ids",
    .details = "Without -p and -f, reads the text from standard input.",
    .options = option_table,
    .run = run,
};
