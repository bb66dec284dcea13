#include "commands.h"
#include "engine_flags.h"
#include "id_list.h"
#include "input.h"
#include "interrupt.h"
#include "json_output.h"
#include "models.h"

#include <salvo/embed.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { USUAL_SESSIONS = 8, MOST_SESSIONS = 1024, NORM_NOT_GIVEN = 2 };

static const uint32_t no_norm = UINT32_MAX; /* --embd-normalize -1 */

static struct {
    const char *text, *file, *tokens, *separator, *pooling, *format;
    uint32_t norm, sessions;
    bool is_raw;
} options = {.norm = NORM_NOT_GIVEN};

static const struct option option_table[] = {
    {'p', "prompt", "TEXT", OPTION_TEXT, &options.text, "texts, one per line; no escapes"},
    {'f', "file", "FILE", OPTION_FILE, &options.file, "file with texts, one per line"},
    {0, "tokens", "IDS|@FILE", OPTION_TEXT, &options.tokens,
        "one text as token ids separated by commas, or a file with token ids"},
    {0, "embd-separator", "TEXT", OPTION_TEXT, &options.separator,
        "separator of the texts of -p, -f and standard input (default: a newline; '': one text)"},
    {0, "pooling", "KIND", OPTION_TEXT, &options.pooling,
        "mean or last: the mean over all tokens, or the last token (default: the model's, or mean)",
        .choices = "mean last"},
    {0, "embd-normalize", "N", OPTION_NUMBER, &options.norm,
        "divide by the norm: 2 Euclidean, 1 sum of absolute values, N the N-norm, -1 not at all (default: 2)",
        .minus_one = &no_norm},
    {0, "no-normalize", NULL, OPTION_FLAG, &options.is_raw, "same as --embd-normalize -1"},
    {0, "embd-output-format", "FORMAT", OPTION_TEXT, &options.format,
        "array: a JSON array of arrays; json: the same as --json (default: a line of numbers per text)",
        .choices = "array json"},
    {0, "parallel", "N", OPTION_COUNT, &options.sessions, "texts computed at once (default: 8)",
        .also = "-np"},
    {0},
};

/* ---- Texts ---- */

struct texts {
    struct salvo_text *items;
    int32_t **ids; /* freed by salvo_free, or by id_list_free if they come from --tokens */
    size_t *counts;
    size_t count, capacity;
    size_t tokens; /* of all */
};

static int add_text(struct texts *texts, const char *data, size_t size)
{
    if (texts->count == texts->capacity) {
        const size_t capacity = texts->capacity ? 2 * texts->capacity : 16;
        struct salvo_text *items = realloc(texts->items, capacity * sizeof *items);
        if (!items)
            return failure("out of memory");
        texts->items = items;
        texts->capacity = capacity;
    }
    texts->items[texts->count++] = (struct salvo_text){data, size};
    return size ? EXIT_DONE : usage_error("embed: text %zu is empty", texts->count);
}

/* A separator at the end of the input begins no text. */
static int split_input(struct texts *texts, const struct input *input)
{
    const char *separator = options.separator ? options.separator : "\n";
    const size_t length = strlen(separator);
    size_t size = input->size, begin = 0;
    if (length && size >= length && memcmp(input->data + size - length, separator, length) == 0)
        size -= length;
    for (;;) {
        const char *found = length ? memmem(input->data + begin, size - begin, separator, length) : NULL;
        const size_t end = found ? (size_t)(found - input->data) : size;
        const int result = add_text(texts, input->data + begin, end - begin);
        if (result != EXIT_DONE || !found)
            return result;
        begin = end + length;
    }
}

/* As other commands take their first argument; it would become a text, and the model the default one. */
static bool names_a_model(const char *argument)
{
    const size_t length = strlen(argument);
    return !engine_flags.model && length > 5 && strcasecmp(argument + length - 5, ".gguf") == 0 &&
           access(argument, F_OK) == 0;
}

static int read_texts(struct texts *texts, struct input *input, int count, char **arguments)
{
    int result = EXIT_DONE;
    if ((count > 0) + !!options.tokens + (options.text || options.file) > 1)
        return usage_error("embed: texts as arguments, --tokens, and -p or -f cannot be combined");
    if (options.tokens)
        return EXIT_DONE;
    if (count && names_a_model(arguments[0]))
        return usage_error(
            "embed: '%s' is a file: arguments are texts; give the model with -m", arguments[0]);
    for (int i = 0; i < count && result == EXIT_DONE; i++)
        result = add_text(texts, arguments[i], strlen(arguments[i]));
    if (count)
        return result;
    result = input_read(options.text, options.file, input);
    return result == EXIT_DONE ? split_input(texts, input) : result;
}

/* As llama.cpp does: with the tokens that the model's metadata asks for, and names of control tokens parsed.
 */
static int tokenize_texts(struct salvo_model *model, const struct id_list *list, struct texts *texts)
{
    unsigned flags;
    if (options.tokens)
        texts->count = 1;
    texts->ids = calloc(texts->count + 1, sizeof *texts->ids);
    texts->counts = calloc(texts->count + 1, sizeof *texts->counts);
    if (!texts->ids || !texts->counts)
        return failure("out of memory");
    if (options.tokens) {
        texts->ids[0] = list->ids;
        texts->counts[0] = texts->tokens = list->count;
        return EXIT_DONE;
    }
    if (salvo_tokenize_default_flags(model, &flags) != SALVO_OK)
        return library_failure();
    for (size_t i = 0; i < texts->count; i++) {
        if (salvo_tokenize(model, texts->items[i].data, texts->items[i].size, flags | SALVO_TOKENIZE_SPECIAL,
                &texts->ids[i], &texts->counts[i]) != SALVO_OK)
            return library_failure();
        texts->tokens += texts->counts[i];
    }
    return EXIT_DONE;
}

static void free_texts(struct texts *texts)
{
    for (size_t i = 0; texts->ids && !options.tokens && i < texts->count; i++)
        salvo_free(texts->ids[i]);
    free(texts->ids);
    free(texts->counts);
    free(texts->items);
}

/* ---- Output ---- */

static bool is_format(const char *name)
{
    return options.format && strcmp(options.format, name) == 0;
}

static void write_array(struct json_writer *json, const float *values, uint32_t width)
{
    json_begin(json, '[');
    for (uint32_t i = 0; i < width; i++)
        json_float(json, (double)values[i], true);
    json_end(json, ']');
}

/* The members of an answer of OpenAI's endpoint, which llama.cpp writes, too. */
static void write_object(
    struct json_writer *json, const struct texts *texts, const float *values, uint32_t width)
{
    json_begin(json, '{');
    json_key(json, "object");
    json_string(json, "list");
    json_key(json, "data");
    json_begin(json, '[');
    for (size_t i = 0; i < texts->count; i++) {
        json_begin(json, '{');
        json_key(json, "object");
        json_string(json, "embedding");
        json_key(json, "index");
        json_unsigned(json, i);
        json_key(json, "embedding");
        write_array(json, values + i * width, width);
        json_end(json, '}');
    }
    json_end(json, ']');
    json_key(json, "usage");
    json_begin(json, '{');
    json_key(json, "prompt_tokens");
    json_unsigned(json, texts->tokens);
    json_key(json, "total_tokens");
    json_unsigned(json, texts->tokens);
    json_end(json, '}');
    json_end(json, '}');
}

static void write_embeddings(const struct texts *texts, const float *values, uint32_t width)
{
    struct json_writer json = json_output();
    if (output_flags.json || is_format("json")) {
        write_object(&json, texts, values, width);
        putchar('\n');
        return;
    }
    if (is_format("array")) {
        json_begin(&json, '[');
        for (size_t i = 0; i < texts->count; i++)
            write_array(&json, values + i * width, width);
        json_end(&json, ']');
        putchar('\n');
        return;
    }
    for (size_t i = 0; i < texts->count; i++) {
        for (uint32_t j = 0; j < width; j++)
            printf("%s%.9g", j ? " " : "", (double)values[i * width + j]);
        putchar('\n');
    }
}

/* ---- Computing ---- */

static int read_options(struct salvo_embed_options *out)
{
    *out = (struct salvo_embed_options)SALVO_EMBED_OPTIONS_INIT;
    if (options.pooling && strcmp(options.pooling, "mean") == 0)
        out->pooling = SALVO_POOLING_MEAN;
    else if (options.pooling && strcmp(options.pooling, "last") == 0)
        out->pooling = SALVO_POOLING_LAST;
    else if (options.pooling)
        return usage_error("embed: invalid --pooling '%s': expected mean or last", options.pooling);
    if (options.format && *options.format && !is_format("array") && !is_format("json")) {
        return usage_error(
            "embed: invalid --embd-output-format '%s': expected array or json", options.format);
    }
    if (options.is_raw && options.norm != NORM_NOT_GIVEN && options.norm != no_norm) {
        return usage_error(
            "embed: --no-normalize and --embd-normalize %" PRIu32 " cannot be combined", options.norm);
    }
    if (options.is_raw || options.norm == no_norm) {
        out->norm = SALVO_NORM_NONE;
    } else if (options.norm == 0 || options.norm > INT32_MAX) {
        return usage_error("embed: invalid --embd-normalize %" PRIu32 ": expected -1, 1, 2 or more%s",
            options.norm, options.norm ? "" : "; 0, the largest number as 32760, is not supported");
    } else {
        out->norm = options.norm == 2 ? SALVO_NORM_EUCLIDEAN : (int32_t)options.norm;
    }
    if (options.sessions > MOST_SESSIONS) {
        return usage_error(
            "embed: invalid --parallel %" PRIu32 ": at most %d", options.sessions, MOST_SESSIONS);
    }
    return EXIT_DONE;
}

static int open_engine(struct loaded *loaded, size_t texts, struct salvo_engine_options *engine_options)
{
    const size_t most = options.sessions ? options.sessions : USUAL_SESSIONS;
    engine_options->sessions = (uint32_t)(texts < most ? texts : most);
    return load_engine(loaded, engine_options);
}

static int compute(
    struct loaded *loaded, const struct texts *texts, const struct salvo_embed_options *embed_options)
{
    struct salvo_session *sessions[MOST_SESSIONS] = {loaded->session};
    const uint32_t width = salvo_engine_width(loaded->engine);
    size_t session_count = 1;
    float *values = calloc(texts->count + 1, width * sizeof *values);
    int result = values ? EXIT_DONE : failure("out of memory");
    while (result == EXIT_DONE && session_count < salvo_engine_info(loaded->engine)->sessions) {
        if (salvo_session_open(loaded->engine, &sessions[session_count]) != SALVO_OK)
            result = library_failure();
        else
            session_count++;
    }
    interrupt_catch(loaded->session);
    if (result == EXIT_DONE && salvo_engine_embed(sessions, session_count, (const int32_t *const *)texts->ids,
                                   texts->counts, texts->count, embed_options, values) != SALVO_OK)
        result = library_failure();
    if (interrupt_status())
        result = interrupt_status();
    interrupt_release();
    if (result == EXIT_DONE && values)
        write_embeddings(texts, values, width);
    for (size_t i = 1; i < session_count; i++)
        salvo_session_close(sessions[i]);
    free(values);
    return result;
}

static int run(int count, char **arguments)
{
    struct loaded loaded = {0};
    struct texts texts = {0};
    struct input input = {0};
    struct id_list list = {0};
    struct salvo_engine_options engine_options;
    struct salvo_embed_options embed_options;
    int result = read_options(&embed_options);
    if (result == EXIT_DONE)
        result = engine_options_from_flags(&engine_options);
    if (result == EXIT_DONE)
        result = read_texts(&texts, &input, count, arguments);
    if (result == EXIT_DONE && options.tokens)
        result = id_list_read(&list, "embed", options.tokens);
    if (result == EXIT_DONE)
        result = open_model(engine_flags.model, &loaded.model);
    if (result == EXIT_DONE)
        result = tokenize_texts(loaded.model, &list, &texts);
    if (result == EXIT_DONE)
        result = open_engine(&loaded, texts.count, &engine_options);
    if (result == EXIT_DONE)
        result = compute(&loaded, &texts, &embed_options);
    unload(&loaded);
    free_texts(&texts);
    id_list_free(&list);
    input_free(&input);
    return result;
}

const struct command embed_command = {
    .name = "embed",
    .arguments = "[TEXT...]",
    .summary = "compute the embeddings of texts",
    .details =
        "Prints a line of numbers for each text. Without texts, -p and -f, reads the texts from standard "
        "input, one per line.",
    .options = option_table,
    .shared = {engine_flag_table, output_flag_table},
    .run = run,
};
