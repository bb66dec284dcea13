#include "base/decimal.h"
#include "commands.h"
#include "engine_flags.h"
#include "json_output.h"
#include "model_record.h"
#include "models.h"
#include "terminal.h"

#include <inttypes.h>
#include <salvo/debug.h>
#include <stdlib.h>
#include <string.h>

static struct {
    bool tensors, metadata, program, show;
} options;

static const struct option option_table[] = {
    {0, "tensors", NULL, OPTION_FLAG, &options.tensors, "list every tensor"},
    {0, "metadata", NULL, OPTION_FLAG, &options.metadata, "list every metadata key"},
    {0, "program", NULL, OPTION_FLAG, &options.program,
        "load the model; print its program (the ops) and the groups of ops that run as one phase"},
    {0},
};

/* Totals of the tensors of one type. */
struct type_total {
    const char *name; /* NULL: unknown type */
    uint32_t number;
    uint64_t tensors, elements, size;
};

enum { MAX_TYPES = 64 };

static size_t add_up_types(const struct salvo_model *model, struct type_total *totals)
{
    size_t count = 0;
    for (size_t i = 0; i < salvo_model_tensor_count(model); i++) {
        struct salvo_tensor tensor = SALVO_TENSOR_INIT;
        if (salvo_model_tensor(model, i, &tensor) != SALVO_OK)
            continue;
        size_t slot = 0;
        while (slot < count && totals[slot].number != tensor.type_number)
            slot++;
        if (slot == MAX_TYPES)
            continue;
        if (slot == count)
            totals[count++] = (struct type_total){.name = tensor.type, .number = tensor.type_number};
        totals[slot].tensors++;
        totals[slot].elements += tensor.elements;
        totals[slot].size += tensor.bytes;
    }
    return count;
}

static const char *type_name(const char *name, uint32_t number, char *text, size_t size)
{
    if (name)
        return name;
    snprintf(text, size, "unknown(%" PRIu32 ")", number);
    return text;
}

static void write_type(struct json_writer *json, const char *name, uint32_t number)
{
    char text[32];
    json_key(json, "type");
    json_string(json, type_name(name, number, text, sizeof text));
}

static void write_sampling(struct json_writer *json, struct salvo_sampler sampler)
{
    const struct {
        const char *key;
        float value;
    } settings[] = {{"temperature", sampler.temperature}, {"top_k", (float)sampler.top_k},
        {"top_p", sampler.top_p}, {"min_p", sampler.min_p}, {"repeat_penalty", sampler.repeat_penalty},
        {"presence_penalty", sampler.presence_penalty}, {"frequency_penalty", sampler.frequency_penalty},
        {"repeat_last_n", (float)sampler.repeat_last_n}};
    json_begin(json, '{');
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        json_key(json, settings[i].key);
        json_float(json, (double)settings[i].value, true);
    }
    json_end(json, '}');
}

/* The lines of the program and of the backend's plans. */
struct program_lines {
    struct json_writer *json;
    const char *backend; /* its lines begin with its name */
    bool in_plan;
};

static void write_line(void *user, const char *text)
{
    struct program_lines *lines = user;
    if (!lines->in_plan && strncmp(text, lines->backend, strlen(lines->backend)) == 0) {
        json_end(lines->json, ']');
        json_key(lines->json, "plan");
        json_begin(lines->json, '[');
        lines->in_plan = true;
    }
    json_string(lines->json, text);
}

static void write_program(struct json_writer *json, const struct salvo_engine *engine)
{
    struct program_lines lines = {.json = json, .backend = salvo_engine_info(engine)->backend};
    json_key(json, "program");
    json_begin(json, '[');
    salvo_engine_print(engine, write_line, &lines);
    json_end(json, ']');
}

/* With an engine, its program too. */
static void write_json(const struct salvo_model *model, const struct salvo_engine *engine)
{
    const struct salvo_model_info *info = salvo_model_info(model);
    struct json_writer json = json_output();
    struct type_total totals[MAX_TYPES];
    size_t types = add_up_types(model, totals);

    json_begin(&json, '{');
    const struct {
        const char *key, *text;
    } texts[] = {{"path", info->path}, {"architecture", info->architecture}, {"name", info->name},
        {"license", info->license}, {"file_type", info->file_type}, {"tokenizer", info->tokenizer},
        {"pre_tokenizer", info->pre_tokenizer}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        json_key(&json, texts[i].key);
        json_string(&json, texts[i].text);
    }
    json_key(&json, "chat_template");
    json_bool(&json, info->has_chat_template);
    const struct {
        const char *key;
        uint64_t number;
    } numbers[] = {{"gguf_version", info->gguf_version}, {"files", info->files}, {"size", info->file_size},
        {"parameters", info->parameters}, {"layers", info->layers}, {"width", info->width},
        {"heads", info->heads}, {"kv_heads", info->kv_heads}, {"head_size", info->head_size},
        {"feed_forward", info->feed_forward}, {"vocabulary", info->vocabulary}, {"context", info->context},
        {"tensor_count", salvo_model_tensor_count(model)}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        json_key(&json, numbers[i].key);
        json_unsigned(&json, numbers[i].number);
    }
    json_key(&json, "sampling");
    struct salvo_sampler sampler = SALVO_SAMPLER_INIT;
    (void)salvo_sampler_default(model, &sampler);
    write_sampling(&json, sampler);
    json_key(&json, "types");
    json_begin(&json, '[');
    for (size_t i = 0; i < types; i++) {
        json_begin(&json, '{');
        write_type(&json, totals[i].name, totals[i].number);
        json_key(&json, "tensors");
        json_unsigned(&json, totals[i].tensors);
        json_key(&json, "elements");
        json_unsigned(&json, totals[i].elements);
        json_key(&json, "size");
        json_unsigned(&json, totals[i].size);
        json_end(&json, '}');
    }
    json_end(&json, ']');
    if (options.metadata) {
        json_key(&json, "metadata");
        json_begin(&json, '{');
        for (size_t i = 0; i < salvo_model_metadata_count(model); i++) {
            struct salvo_text key;
            struct salvo_value value;
            salvo_model_metadata(model, i, &key, &value);
            json_key_text(&json, key);
            json_value(&json, value);
        }
        json_end(&json, '}');
    }
    if (options.tensors) {
        json_key(&json, "tensors");
        json_begin(&json, '[');
        for (size_t i = 0; i < salvo_model_tensor_count(model); i++) {
            struct salvo_tensor tensor = SALVO_TENSOR_INIT;
            if (salvo_model_tensor(model, i, &tensor) != SALVO_OK)
                continue;
            json_begin(&json, '{');
            json_key(&json, "name");
            json_text(&json, tensor.name);
            write_type(&json, tensor.type, tensor.type_number);
            json_key(&json, "shape");
            json_begin(&json, '[');
            for (uint32_t d = 0; d < tensor.dimensions; d++)
                json_unsigned(&json, tensor.shape[d]);
            json_end(&json, ']');
            json_key(&json, "size");
            json_unsigned(&json, tensor.bytes);
            json_end(&json, '}');
        }
        json_end(&json, ']');
    }
    if (engine)
        write_program(&json, engine);
    json_end(&json, '}');
    putchar('\n');
}

static void print_row(const char *label, const char *text)
{
    printf("  %s%-14s%s", colour(stdout, COLOUR_DIM), label, colour(stdout, COLOUR_OFF));
    print_safely(stdout, text, strlen(text));
    putchar('\n');
}

/* Prints only the first items of an array, because a vocabulary would fill the screen; --json prints all. */
static void print_value(struct salvo_value value) // the depth was bounded when the file was opened
{
    enum { MOST_ITEMS = 6, MOST_TEXT = 300 };
    char text[40];
    struct salvo_value item;
    switch (value.type) {
    case SALVO_STRING: {
        bool cut = value.text.size > MOST_TEXT;
        size_t size = cut ? MOST_TEXT : value.text.size;
        size -= cut ? salvo_utf8_incomplete(value.text.data, size) : 0;
        putchar('"');
        print_safely(stdout, value.text.data, size);
        fputs(cut ? "\"..." : "\"", stdout);
        break;
    }
    case SALVO_ARRAY: {
        uint64_t count = value.array.count;
        putchar('[');
        for (int i = 0; i < MOST_ITEMS && salvo_array_next(&value, &item); i++) {
            fputs(i ? ", " : "", stdout);
            print_value(item);
        }
        if (count > MOST_ITEMS)
            printf(", ... %" PRIu64 " in all", count);
        putchar(']');
        break;
    }
    case SALVO_F32:
    case SALVO_F64:
        fputs(decimal_format(value.f, value.type == SALVO_F32, text), stdout);
        break;
    default: {
        struct json_writer json = json_output();
        json_value(&json, value);
    }
    }
}

static void print_metadata(const struct salvo_model *model)
{
    printf("\n%smetadata%s\n", colour(stdout, COLOUR_BOLD), colour(stdout, COLOUR_OFF));
    for (size_t i = 0; i < salvo_model_metadata_count(model); i++) {
        struct salvo_text key;
        struct salvo_value value;
        salvo_model_metadata(model, i, &key, &value);
        fputs("  ", stdout);
        print_safely(stdout, key.data, key.size);
        fputs(" = ", stdout);
        print_value(value);
        putchar('\n');
    }
}

static void print_tensors(const struct salvo_model *model)
{
    printf("\n%stensors%s\n", colour(stdout, COLOUR_BOLD), colour(stdout, COLOUR_OFF));
    for (size_t i = 0; i < salvo_model_tensor_count(model); i++) {
        struct salvo_tensor tensor = SALVO_TENSOR_INIT;
        if (salvo_model_tensor(model, i, &tensor) != SALVO_OK)
            continue;
        char text[32], shape[96];
        int used = 0;
        for (uint32_t d = 0; d < tensor.dimensions; d++)
            used += snprintf(
                shape + used, sizeof shape - (size_t)used, "%s%" PRIu64, d ? " x " : "", tensor.shape[d]);
        printf("  %-8s %-20s %10s  ", type_name(tensor.type, tensor.type_number, text, sizeof text), shape,
            format_bytes(tensor.bytes, (char[32]){0}));
        print_safely(stdout, tensor.name.data, tensor.name.size);
        putchar('\n');
    }
}

/* The enabled stages of the sampler, in the order in which they run. */
static void print_sampling(const struct salvo_model *model)
{
    struct salvo_sampler sampler = SALVO_SAMPLER_INIT;
    (void)salvo_sampler_default(model, &sampler);
    const struct {
        const char *name;
        float value, off;
    } stages[] = {{"repeat penalty", sampler.repeat_penalty, 1},
        {"presence penalty", sampler.presence_penalty, 0},
        {"frequency penalty", sampler.frequency_penalty, 0}, {"top-k", (float)sampler.top_k, 0},
        {"top-p", sampler.top_p, 1}, {"min-p", sampler.min_p, 0}};
    char text[256];
    size_t used = 0;
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        if (stages[i].value != stages[i].off)
            used += (size_t)snprintf(
                text + used, sizeof text - used, "%s %g, ", stages[i].name, (double)stages[i].value);
    }
    snprintf(text + used, sizeof text - used, "temp %g", (double)sampler.temperature);
    print_row("sampling", text);
}

static void print_plain(const struct salvo_model *model)
{
    const struct salvo_model_info *info = salvo_model_info(model);
    char text[256], a[32], b[32];
    printf("%s", colour(stdout, COLOUR_BOLD));
    print_safely(stdout, info->path, strlen(info->path));
    printf("%s\n", colour(stdout, COLOUR_OFF));
    snprintf(text, sizeof text, "GGUF %" PRIu32 ", %s%s", info->gguf_version,
        format_bytes(info->file_size, a), info->files > 1 ? ", split" : "");
    print_row("file", text);
    print_row("architecture", *info->architecture ? info->architecture : "not named");
    if (*info->name)
        print_row("name", info->name);
    snprintf(text, sizeof text, "%s%s%s", format_count(info->parameters, a), *info->file_type ? " as " : "",
        info->file_type);
    print_row("parameters", text);
    snprintf(text, sizeof text,
        "%" PRIu32 " layers, width %" PRIu32 ", %" PRIu32 " heads of %" PRIu32 ", %" PRIu32
        " for KV, feed-forward %" PRIu32,
        info->layers, info->width, info->heads, info->head_size, info->kv_heads, info->feed_forward);
    print_row("shape", text);
    snprintf(text, sizeof text, "%" PRIu32 " tokens", info->context);
    print_row("context", info->context ? text : "not given");
    snprintf(text, sizeof text, "%s%s%s, %" PRIu32 " tokens", *info->tokenizer ? info->tokenizer : "none",
        *info->pre_tokenizer ? " / " : "", info->pre_tokenizer, info->vocabulary);
    print_row("tokenizer", text);
    print_sampling(model);
    print_row("chat template", info->has_chat_template ? "yes" : "no");
    print_row("licence", *info->license ? info->license : "not given");

    struct type_total totals[MAX_TYPES];
    size_t types = add_up_types(model, totals);
    for (size_t i = 0; i < types; i++) {
        char name[32];
        snprintf(text, sizeof text, "%-8s %10s in %4" PRIu64 " tensors, %s parameters",
            type_name(totals[i].name, totals[i].number, name, sizeof name), format_bytes(totals[i].size, a),
            totals[i].tensors, format_count(totals[i].elements, b));
        print_row(i ? "" : "tensor types", text);
    }
    if (options.metadata)
        print_metadata(model);
    if (options.tensors)
        print_tensors(model);
}

static void print_line(void *user, const char *text)
{
    (void)user;
    print_safely(stdout, text, strlen(text));
    putchar('\n');
}

/* The plans depend on the backend, so --program opens an engine with the usual options. */
static int print_program(void)
{
    struct loaded loaded;
    int result = load(&loaded);
    if (result == EXIT_DONE && output_flags.json)
        write_json(loaded.model, loaded.engine);
    else if (result == EXIT_DONE)
        salvo_engine_print(loaded.engine, print_line, NULL);
    unload(&loaded);
    return result;
}

/* A text of the metadata, whole; nothing if the file has none. */
static void print_text(const struct salvo_model *model, const char *key, const char *title)
{
    struct salvo_text found;
    struct salvo_value value;
    for (size_t i = 0; i < salvo_model_metadata_count(model); i++) {
        salvo_model_metadata(model, i, &found, &value);
        if (value.type != SALVO_STRING || found.size != strlen(key) ||
            memcmp(found.data, key, found.size) != 0)
            continue;
        printf("\n%s%s%s\n", colour(stdout, COLOUR_BOLD), title, colour(stdout, COLOUR_OFF));
        while (value.text.size) {
            const char *end = memchr(value.text.data, '\n', value.text.size);
            const size_t length = end ? (size_t)(end - value.text.data) : value.text.size;
            fputs("  ", stdout);
            print_safely(stdout, value.text.data, length);
            putchar('\n');
            value.text.data += length + (end != NULL);
            value.text.size -= length + (end != NULL);
        }
    }
}

/* Where the model was pulled from, its licence and its chat template. */
static void print_more(const struct salvo_model *model)
{
    const char *path = salvo_model_info(model)->path, *slash = strrchr(path, '/');
    char folder[PATH_MAX];
    struct model_record record;
    if (slash && slash - path < PATH_MAX) {
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
        if (record_read(folder, slash + 1, &record)) {
            print_row("source", record.source);
            print_row("SHA-256", record.sha256);
        }
    }
    print_text(model, "general.license.name", "licence");
    print_text(model, "general.license.link", "licence text");
    print_text(model, "tokenizer.chat_template", "chat template");
}

static int run(int count, char **arguments)
{
    (void)count;
    (void)arguments;
    if (options.program)
        return print_program();
    struct salvo_model *model;
    const int result = open_model(engine_flags.model, &model);
    if (result != EXIT_DONE)
        return result;
    if (output_flags.json)
        write_json(model, NULL);
    else
        print_plain(model);
    if (options.show && !output_flags.json)
        print_more(model);
    salvo_model_close(model);
    return EXIT_DONE;
}

const struct command info_command = {
    .name = "info",
    .model = &engine_flags.model,
    .summary = "show the contents of a model file",
    .details = "The device, thread and context options have an effect with --program only.",
    .options = option_table,
    .shared = {engine_flag_table, output_flag_table},
    .run = run,
};

static int run_show(int count, char **arguments)
{
    options.show = true;
    if (output_flags.json)
        options.metadata = true;
    return run(count, arguments);
}

const struct command show_command = {
    .name = "show",
    .model = &engine_flags.model,
    .summary = "show the contents of a model file with its source, licence and chat template",
    .details = "With --json all metadata is printed.",
    .options = option_table,
    .shared = {engine_flag_table, output_flag_table},
    .run = run_show,
};
