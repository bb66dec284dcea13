#include "commands.h"
#include "input.h"
#include "models.h"

#include <inttypes.h>
#include <salvo/salvo.h>
#include <stdio.h>
#include <string.h>

static struct {
    const char *model, *template, *messages;
    bool no_generation_prompt, ids;
} options;

static const struct option option_table[] = {
    MODEL_OPTION(&options.model),
    {0, "template", "FILE", OPTION_FILE, &options.template,
        "file with a template to use instead of the model's"},
    {0, "messages", "FILE", OPTION_FILE, &options.messages,
        "JSON file: a list of messages, or an object with `messages`, `tools` and other template variables; "
        "-: standard input"},
    {0, "no-generation-prompt", NULL, OPTION_FLAG, &options.no_generation_prompt,
        "end after the last message, without the beginning of an answer"},
    {0, "ids", NULL, OPTION_FLAG, &options.ids, "print one line of token ids instead of the text"},
    {0},
};

static int write_text(const struct salvo_template *chat, const struct salvo_conversation *conversation)
{
    struct salvo_prompt *prompt;
    if (salvo_template_render(chat, conversation, &prompt) != SALVO_OK)
        return library_failure();
    fwrite(prompt->text, 1, prompt->size, stdout);
    salvo_free(prompt);
    return EXIT_DONE;
}

static int write_ids(const struct salvo_template *chat, const struct salvo_conversation *conversation)
{
    int32_t *ids;
    size_t count;
    if (salvo_template_tokens(chat, conversation, &ids, &count) != SALVO_OK)
        return library_failure();
    for (size_t i = 0; i < count; i++)
        printf("%s%" PRId32, i ? " " : "", ids[i]);
    putchar('\n');
    salvo_free(ids);
    return EXIT_DONE;
}

/* A template in a file needs a model only for its tokens, or when one is named. */
static int open_template(struct salvo_model **model, struct salvo_template **chat)
{
    struct input text = {0};
    bool needs_model = !options.template || options.model || options.ids;
    if (options.template && input_read(NULL, options.template, &text) != EXIT_DONE)
        return EXIT_FAILED;
    *model = NULL;
    int result = needs_model ? open_model(options.model, model) : EXIT_DONE;
    if (result == EXIT_DONE && salvo_template_open(*model, text.data, text.size, chat) != SALVO_OK)
        result = library_failure();
    input_free(&text);
    return result;
}

static int run(int count, char **arguments)
{
    (void)count;
    (void)arguments;
    struct salvo_model *model = NULL;
    struct salvo_template *chat = NULL;
    struct input json;
    if (!options.messages)
        return usage_error("template: --messages is required");
    if (options.template && strcmp(options.template, "-") == 0 && strcmp(options.messages, "-") == 0)
        return usage_error("template: --template and --messages cannot both be standard input");
    int result = input_read(NULL, options.messages, &json);
    if (result != EXIT_DONE)
        return result;
    if (!json.size) {
        input_free(&json);
        return failure("%s is empty: expected JSON", options.messages);
    }
    result = open_template(&model, &chat);
    const struct salvo_conversation conversation = {
        .size = sizeof(struct salvo_conversation),
        .json = {json.data, json.size},
        .no_generation_prompt = options.no_generation_prompt,
    };
    if (result == EXIT_DONE)
        result = options.ids ? write_ids(chat, &conversation) : write_text(chat, &conversation);
    salvo_template_close(chat);
    salvo_model_close(model);
    input_free(&json);
    return result;
}

const struct command template_command = {
    .name = "template",
    .summary = "render a conversation with a chat template",
    .details = "Prints the rendered text and nothing else.",
    .options = option_table,
    .run = run,
};
