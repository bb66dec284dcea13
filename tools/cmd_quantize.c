#include "commands.h"
#include "engine_flags.h"
#include "interrupt.h"
#include "json_output.h"
#include "measure.h"
#include "models.h"
#include "output_file.h"
#include "progress.h"
#include "terminal.h"

#include <string.h>
#include <sys/stat.h>

static struct {
    uint32_t threads;
    bool pure, force;
} options;

static const struct option option_table[] = {
    {'t', "threads", "N", OPTION_COUNT, &options.threads, "number of threads (default: physical cores)"},
    {0, "pure", NULL, OPTION_FLAG, &options.pure, "use TYPE for every matrix instead of a mix"},
    FORCE_OPTION(&options.force),
    {0},
};

static bool show_progress(void *user, const char *tensor, uint64_t done, uint64_t total)
{
    char bar[32];
    (void)user;
    progress_show("%s %s", progress_bar(total ? (double)done / (double)total : 1, bar), tensor);
    return interrupt_status() == 0;
}

static void report(const struct salvo_model *model, const char *path, const char *type, double seconds)
{
    struct stat file;
    uint64_t before = salvo_model_info(model)->file_size,
             after = stat(path, &file) == 0 ? (uint64_t)file.st_size : 0;
    if (output_flags.json) {
        struct json_writer json = json_output();
        json_begin(&json, '{');
        json_key(&json, "path");
        json_string(&json, path);
        json_key(&json, "type");
        json_string(&json, type);
        json_key(&json, "size_before");
        json_unsigned(&json, before);
        json_key(&json, "size");
        json_unsigned(&json, after);
        json_key(&json, "seconds");
        json_float(&json, seconds, true);
        json_end(&json, '}');
        putchar('\n');
    } else if (!output_flags.quiet) {
        char from[32], to[32];
        print_safely(stdout, path, strlen(path));
        printf(": %s, from %s, in %.1f s\n", format_bytes(after, to), format_bytes(before, from), seconds);
    }
}

static int run(int count, char **arguments)
{
    if (count != 3)
        return usage_error("quantize: expected IN, OUT and TYPE, for example: salvo quantize model-f16.gguf "
                           "model.gguf Q4_K_M");
    const char *in = arguments[0], *out = arguments[1], *type = arguments[2];
    if (!*in || !*out)
        return usage_error("quantize: the file name is empty");
    if (strcmp(out, "-") == 0)
        return usage_error("quantize: OUT must be a file, not standard output");
    struct salvo_model *model;
    bool replace = false;
    int result = open_model(in, &model);
    if (result == EXIT_DONE)
        result = output_file_check(out, model, options.force, "--force", &replace);
    if (result != EXIT_DONE) {
        salvo_model_close(model);
        return result;
    }
    const struct salvo_quantize_options quantize_options = {
        .size = sizeof(struct salvo_quantize_options),
        .type = type,
        .pure = options.pure,
        .keep_file = !replace,
        .threads = options.threads,
        .progress = show_progress,
    };
    double start = seconds_now();
    interrupt_catch(NULL); /* so that no temporary file is left behind */
    enum salvo_status status = salvo_quantize(model, out, &quantize_options);
    interrupt_release();
    progress_clear();
    if (status == SALVO_ERROR_CANCELLED) {
        failure("%s: not written: interrupted", out);
        result = interrupt_status();
    } else if (status == SALVO_ERROR_ARGUMENT) {
        result = usage_error("quantize: %s", salvo_error());
    } else if (status != SALVO_OK) {
        result = library_failure();
    } else {
        report(model, out, type, seconds_now() - start);
    }
    salvo_model_close(model);
    return result;
}

const struct command quantize_command = {
    .name = "quantize",
    .arguments = "IN OUT TYPE",
    .summary = "convert a model to other tensor types",
    .details = "TYPE is a tensor type (Q8_0, F16, ...) or a mix (Q4_K_M, Q3_K_S, ...), which chooses a type "
               "for each tensor as\n"
               "llama.cpp does. Q3_K, Q4_K and Q5_K mean the _M mixes, or with --pure the type itself.\n"
               "OUT is created when it is complete. --force replaces an existing file, but never IN.",
    .options = option_table,
    .shared = {output_flag_table},
    .run = run,
};
