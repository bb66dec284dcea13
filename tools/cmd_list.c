#include "commands.h"
#include "json_output.h"
#include "model_folder.h"
#include "model_record.h"
#include "terminal.h"
#include "unfinished.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct {
    bool json;
} options;

static const struct option option_table[] = {
    {0, "json", NULL, OPTION_FLAG, &options.json, "print one JSON object"},
    {0},
};

/* "2026-11-17", or "-". */
static const char *format_day(int64_t seconds, char text[16])
{
    const time_t time = (time_t)seconds;
    struct tm day;
    if (!seconds || !localtime_r(&time, &day) || !strftime(text, 16, "%Y-%m-%d", &day))
        snprintf(text, 16, "-");
    return text;
}

static void write_record(struct json_writer *json, const struct model_record *record, int64_t last_use)
{
    if (*record->source) {
        json_key(json, "source");
        json_string(json, record->source);
        json_key(json, "sha256");
        json_string(json, record->sha256);
        json_key(json, "pulled");
        json_signed(json, record->pulled);
    }
    if (last_use) {
        json_key(json, "last_use");
        json_signed(json, last_use);
    }
}

/* A file may have any name. */
static void print_name(const char *name)
{
    enum { COLUMN = 44 };
    const int length = (int)strlen(name);
    print_safely(stdout, name, (size_t)length);
    printf("%*s ", length < COLUMN ? COLUMN - length : 0, "");
}

static void show(struct json_writer *json, const char *folder, const char *name)
{
    char path[PATH_MAX + 260], size[32], parameters[32];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    struct salvo_model *model;
    bool opened = salvo_model_open(path, &model) == SALVO_OK;
    const struct salvo_model_info *info = opened ? salvo_model_info(model) : NULL;
    bool is_default = strcmp(name, default_model_name) == 0;
    struct model_record record;
    const int64_t last_use = record_last_use(folder, name);
    if (!record_read(folder, name, &record))
        record.source[0] = 0;
    if (options.json) {
        json_begin(json, '{');
        json_key(json, "name");
        json_string(json, name);
        json_key(json, "path");
        json_string(json, path);
        json_key(json, "default");
        json_bool(json, is_default);
        if (opened) {
            json_key(json, "architecture");
            json_string(json, info->architecture);
            json_key(json, "file_type");
            json_string(json, info->file_type);
            json_key(json, "size");
            json_unsigned(json, info->file_size);
            json_key(json, "parameters");
            json_unsigned(json, info->parameters);
        } else {
            json_key(json, "error");
            json_string(json, salvo_error());
        }
        write_record(json, &record, last_use);
        json_end(json, '}');
    } else if (opened) {
        char day[16];
        print_name(name);
        printf("%-8s %-8s %10s %10s  %-10s ", info->architecture, info->file_type,
            format_count(info->parameters, parameters), format_bytes(info->file_size, size),
            format_day(last_use, day));
        print_safely(stdout, record.source, strlen(record.source));
        printf("%s\n", is_default ? " (default)" : "");
    } else {
        print_name(name);
        fputs("cannot be opened: ", stdout);
        print_safely(stdout, salvo_error(), strlen(salvo_error()));
        putchar('\n');
    }
    salvo_model_close(model);
}

/* Downloads that have not ended. */
static void show_unfinished(struct json_writer *json, const struct unfinished_file *file)
{
    char size[32];
    if (options.json) {
        json_begin(json, '{');
        json_key(json, "name");
        json_string(json, file->name);
        json_key(json, "size");
        json_unsigned(json, file->size);
        json_end(json, '}');
        return;
    }
    print_name(file->name);
    printf("unfinished: %s; `salvo pull` continues, `salvo rm` removes it\n", format_bytes(file->size, size));
}

static int run(int count, char **arguments)
{
    (void)count;
    (void)arguments;
    char folder[PATH_MAX];
    if (!models_folder(folder, sizeof folder))
        return failure("no models folder: neither XDG_CACHE_HOME nor HOME is set");
    struct dirent **entries = NULL;
    int models = models_scan(folder, &entries);
    struct json_writer json = json_output();
    if (options.json) {
        json_begin(&json, '{');
        json_key(&json, "folder");
        json_string(&json, folder);
        json_key(&json, "models");
        json_begin(&json, '[');
    }
    for (int i = 0; i < models; i++) {
        show(&json, folder, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    struct unfinished_file *unfinished;
    const size_t parts = unfinished_list(folder, &unfinished);
    if (options.json) {
        json_end(&json, ']');
        json_key(&json, "unfinished");
        json_begin(&json, '[');
    }
    for (size_t i = 0; i < parts; i++)
        show_unfinished(&json, &unfinished[i]);
    free(unfinished);
    if (options.json) {
        json_end(&json, ']');
        json_end(&json, '}');
        putchar('\n');
    } else if (models <= 0 && !parts) {
        printf("no models in %s\n", folder);
    }
    return EXIT_DONE;
}

const struct command list_command = {
    .name = "list",
    .summary = "list the models in the models folder, which -m finds by name",
    .details =
        "Columns: name, architecture, quantisation, parameters, size, last use, and where the model was "
        "pulled from. Downloads that have not ended follow.\n"
        "The models folder is ${XDG_CACHE_HOME:-~/.cache}/salvo/models.",
    .options = option_table,
    .run = run,
};
