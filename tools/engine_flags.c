#include "engine_flags.h"

#include "measure.h"
#include "models.h"
#include "progress.h"
#include "terminal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct engine_flags engine_flags;

const struct option engine_flag_table[] = {
    MODEL_OPTION(&engine_flags.model),
    CONTEXT_OPTION(
        "context size in tokens (default: the model's, at most 8192; recurrent models: no such limit)"),
    {'b', "batch", "N", OPTION_COUNT, &engine_flags.batch, "prompt tokens per batch (default: 512)",
        .also = "--batch-size"},
    {0, "pin", NULL, OPTION_FLAG, &engine_flags.pin, "pin each thread to a core"},
    {'t', "threads", "N", OPTION_COUNT, &engine_flags.threads,
        "number of CPU threads (default: physical cores)"},
    {0, "backend", "NAME", OPTION_TEXT, &engine_flags.backend,
        "auto, cpu, cuda, metal or vulkan (default: auto)", .choices = "auto cpu cuda metal vulkan"},
    {0, "device", "N", OPTION_NUMBER, &engine_flags.device, "device number within the backend (default: 0)",
        .also = "-mg --main-gpu"},
    {0, "gpu-layers", "N", OPTION_TEXT, &engine_flags.gpu_layers,
        "99 or all: all layers on the GPU; 0: none, as --backend cpu; nothing between",
        .also = "-ngl --n-gpu-layers"},
    {0, "split-mode", "none", OPTION_ALWAYS, NULL, "only none: a model runs on one device", .also = "-sm",
        .choices = "none"},
    {0, "flash-attn", NULL, OPTION_ALWAYS, NULL, "always on", .also = "-fa", .choices = "on auto 1"},
    {0, "kv-type", "TYPE", OPTION_TEXT, &engine_flags.kv_type,
        "type of the KV cache: f16, f32 or q8_0 (default: f16, or f32 for an F32 model)",
        .choices = "auto f16 f32 q8_0"},
    {0, "cache-type-k", "TYPE", OPTION_TEXT, &engine_flags.cache_type_k, "same as --kv-type", .also = "-ctk",
        .choices = "auto f16 f32 q8_0"},
    {0, "cache-type-v", "TYPE", OPTION_TEXT, &engine_flags.cache_type_v, "same as --kv-type", .also = "-ctv",
        .choices = "auto f16 f32 q8_0"},
    {0, "kv-memory", "SIZE", OPTION_TEXT, &engine_flags.kv_memory,
        "memory for the KV cache: 512M, 8G, ... (default: enough for full contexts; `serve` with one model: "
        "90 % "
        "of the GPU's memory beside the weights, or a quarter of main memory)"},
    {0, "cpu-isa", "NAME", OPTION_TEXT, &engine_flags.isa, "CPU instruction set; `scalar` is the reference"},
    {0},
};

const struct option output_flag_table[] = {
    {0, "json", NULL, OPTION_FLAG, &output_flags.json, "print one JSON object"},
    {'v', "verbose", NULL, OPTION_FLAG, &output_flags.verbose, "print details"},
    {'q', "quiet", NULL, OPTION_FLAG, &output_flags.quiet, "print no progress and no warnings"},
    {0},
};

static int parse_kv_type(const char *flag, const char *name, enum salvo_kv_type *out)
{
    static const char *const names[] = {
        [SALVO_KV_AUTO] = "auto", [SALVO_KV_F16] = "f16", [SALVO_KV_F32] = "f32", [SALVO_KV_Q8_0] = "q8_0"};
    *out = SALVO_KV_AUTO;
    for (size_t i = 0; name && i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = (enum salvo_kv_type)i;
            return EXIT_DONE;
        }
    }
    return name ? usage_error("invalid %s '%s': expected auto, f16, f32 or q8_0", flag, name) : EXIT_DONE;
}

/* Keys and values have one type, given by any of three options. */
static int choose_kv_type(enum salvo_kv_type *out)
{
    const struct {
        const char *flag, *value;
    } given[] = {{"--kv-type", engine_flags.kv_type}, {"--cache-type-k", engine_flags.cache_type_k},
        {"--cache-type-v", engine_flags.cache_type_v}};
    enum { COUNT = sizeof given / sizeof *given };
    size_t chosen = COUNT;
    *out = SALVO_KV_AUTO;
    for (size_t i = 0; i < COUNT; i++) {
        enum salvo_kv_type type;
        int result = parse_kv_type(given[i].flag, given[i].value, &type);
        if (result != EXIT_DONE)
            return result;
        if (!given[i].value)
            continue;
        if (chosen < COUNT && type != *out)
            return usage_error("%s %s and %s %s differ: keys and values must have the same type",
                given[chosen].flag, given[chosen].value, given[i].flag, given[i].value);
        chosen = i;
        *out = type;
    }
    return EXIT_DONE;
}

/* Bytes, with K, M or G for their powers of 1024. */
static int parse_kv_memory(uint64_t *out)
{
    static const char units[] = "KMG";
    const char *text = engine_flags.kv_memory, *unit;
    char *end;
    *out = 0;
    if (!text)
        return EXIT_DONE;
    errno = 0;
    *out = strtoull(text, &end, 10);
    unsigned shift = 0;
    if (*end && (unit = strchr(units, *end))) {
        shift = 10 * (unsigned)(unit - units + 1);
        end++;
    }
    if (*text < '0' || *text > '9' || *end || errno || *out == 0 || *out > UINT64_MAX >> shift)
        return usage_error("invalid --kv-memory '%s': expected bytes, such as 512M or 8G", text);
    *out <<= shift;
    return EXIT_DONE;
}

/* The requested number of layers on the device; UINT64_MAX: all. */
static int parse_gpu_layers(uint64_t *out)
{
    const char *text = engine_flags.gpu_layers;
    char *end;
    *out = UINT64_MAX;
    if (!text || strcmp(text, "-1") == 0 || strcmp(text, "all") == 0 || strcmp(text, "auto") == 0)
        return EXIT_DONE;
    *out = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end)
        return usage_error("invalid --gpu-layers '%s': expected 99, all or 0", text);
    return EXIT_DONE;
}

/* --gpu-layers 0 is the CPU. */
static int choose_backend(const char **out)
{
    uint64_t layers;
    int result = parse_gpu_layers(&layers);
    *out = engine_flags.backend;
    if (result != EXIT_DONE || layers > 0)
        return result;
    if (*out && strcmp(*out, "auto") != 0 && strncmp(*out, "cpu", 3) != 0)
        return usage_error("--gpu-layers 0 and --backend %s cannot be combined", *out);
    *out = *out && strncmp(*out, "cpu", 3) == 0 ? *out : "cpu";
    return EXIT_DONE;
}

int check_gpu_layers(const struct salvo_model *model)
{
    uint64_t layers;
    int result = parse_gpu_layers(&layers);
    if (result == EXIT_DONE && layers > 0 && layers < salvo_model_info(model)->layers) {
        return usage_error("invalid --gpu-layers %" PRIu64 ": the model has %" PRIu32
                           " layers, and a device runs all of them (99) or none (0)",
            layers, salvo_model_info(model)->layers);
    }
    return result;
}

int engine_options_from_flags(struct salvo_engine_options *out)
{
    *out = (struct salvo_engine_options){
        .size = sizeof(struct salvo_engine_options),
        .device = engine_flags.device,
        .context = engine_flags.context,
        .batch = engine_flags.batch,
        .threads = engine_flags.threads,
        .pin = engine_flags.pin,
        .isa = engine_flags.isa,
    };
    int result = choose_backend(&out->backend);
    if (result == EXIT_DONE)
        result = parse_kv_memory(&out->kv_memory);
    return result == EXIT_DONE ? choose_kv_type(&out->kv_type) : result;
}

static void describe(const struct salvo_engine *engine)
{
    struct salvo_engine_info info = *salvo_engine_info(engine);
    char weights[32], state[32], scratch[32], left[32], threads[32] = "";
    if (info.threads)
        snprintf(threads, sizeof threads, ", %u threads", info.threads);
    fprintf(stderr, "%s: %s%s%s%s, context %u, batch %u; weights %s, state %s, scratch %s", info.backend,
        info.device, *info.isa ? ", " : "", info.isa, threads, info.context, info.batch,
        format_bytes(info.weight_bytes, weights), format_bytes(info.state_bytes, state),
        format_bytes(info.scratch_bytes, scratch));
    fprintf(stderr, info.memory_free ? " of %s free\n" : "\n", format_bytes(info.memory_free, left));
}

/* `user` is the start time: no progress bar for the first half second. */
static void show_loading(void *user, uint64_t done, uint64_t total)
{
    const double *start = user;
    char bar[32], size[32];
    if (total && seconds_now() - *start > 0.5)
        progress_show(
            "loading %s %s", format_bytes(total, size), progress_bar((double)done / (double)total, bar));
}

int load_engine(struct loaded *loaded, const struct salvo_engine_options *options)
{
    double start = seconds_now();
    struct salvo_engine_options shown = *options;
    shown.progress = show_loading;
    shown.user = &start;
    int result = check_gpu_layers(loaded->model);
    if (result != EXIT_DONE)
        return result;
    enum salvo_status status = salvo_engine_open(loaded->model, &shown, &loaded->engine);
    progress_clear();
    if (status == SALVO_OK)
        status = salvo_session_open(loaded->engine, &loaded->session);
    if (status != SALVO_OK)
        return library_failure_by(status);
    if (output_flags.verbose)
        describe(loaded->engine);
    return EXIT_DONE;
}

int load(struct loaded *out)
{
    struct salvo_engine_options options;
    *out = (struct loaded){0};
    int result = engine_options_from_flags(&options);
    if (result != EXIT_DONE)
        return result;
    result = open_model(engine_flags.model, &out->model);
    return result == EXIT_DONE ? load_engine(out, &options) : result;
}

void unload(struct loaded *loaded)
{
    salvo_session_close(loaded->session);
    salvo_engine_close(loaded->engine);
    salvo_model_close(loaded->model);
    *loaded = (struct loaded){0};
}
