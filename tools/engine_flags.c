#include "engine_flags.h"

#include "measure.h"
#include "models.h"
#include "progress.h"
#include "terminal.h"

#include <stdio.h>
#include <string.h>

struct engine_flags engine_flags;
struct output_flags output_flags;

const struct option engine_flag_table[] = {
    MODEL_OPTION(&engine_flags.model),
    {'t', "threads", "N", OPTION_COUNT, &engine_flags.threads,
        "threads of the CPU (default: its physical cores)"},
    {'c', "context", "N", OPTION_NUMBER, &engine_flags.context,
        "positions of context (default: the model's, at most 8192 unless it is recurrent)"},
    {'b', "batch", "N", OPTION_COUNT, &engine_flags.batch,
        "tokens of a prompt computed at once (default: 512)"},
    {0, "backend", "NAME", OPTION_TEXT, &engine_flags.backend, "auto, cpu, cuda or vulkan (default: auto)"},
    {0, "device", "N", OPTION_NUMBER, &engine_flags.device, "which device of the backend (default: 0)"},
    {0, "kv-type", "TYPE", OPTION_TEXT, &engine_flags.kv_type,
        "keys and values as f16, f32 or q8_0 (default: f16, or f32 for an F32 model)"},
    {0, "pin", NULL, OPTION_FLAG, &engine_flags.pin, "keep each thread on its core"},
    {0, "cpu-isa", "NAME", OPTION_TEXT, &engine_flags.isa,
        "instruction set of the CPU; `scalar` is the reference"},
    {0},
};

const struct option output_flag_table[] = {
    {0, "json", NULL, OPTION_FLAG, &output_flags.json, "one JSON object"},
    {'v', "verbose", NULL, OPTION_FLAG, &output_flags.verbose, "say what is being done"},
    {'q', "quiet", NULL, OPTION_FLAG, &output_flags.quiet, "no progress and no warnings"},
    {0},
};

static int parse_kv_type(const char *name, enum salvo_kv_type *out)
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
    return name ? usage_error("--kv-type cannot be '%s': auto, f16, f32 or q8_0 is expected", name)
                : EXIT_DONE;
}

int engine_options_from_flags(struct salvo_engine_options *out)
{
    *out = (struct salvo_engine_options){
        .backend = engine_flags.backend,
        .device = engine_flags.device,
        .context = engine_flags.context,
        .batch = engine_flags.batch,
        .threads = engine_flags.threads,
        .pin = engine_flags.pin,
        .isa = engine_flags.isa,
    };
    return parse_kv_type(engine_flags.kv_type, &out->kv_type);
}

static void describe(const struct salvo_engine *engine)
{
    struct salvo_engine_info info = salvo_engine_info(engine);
    char weights[32], state[32], scratch[32], left[32], threads[32] = "";
    if (info.threads)
        snprintf(threads, sizeof threads, ", %u threads", info.threads);
    fprintf(stderr, "%s: %s%s%s%s, context %u, batch %u; weights %s, state %s, scratch %s", info.backend,
        info.device, *info.isa ? ", " : "", info.isa, threads, info.context, info.batch,
        format_bytes(info.weight_bytes, weights), format_bytes(info.state_bytes, state),
        format_bytes(info.scratch_bytes, scratch));
    fprintf(stderr, info.memory_free ? " of %s free\n" : "\n", format_bytes(info.memory_free, left));
}

/* `user` is when loading began: what is ready in a moment needs no bar. */
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
    bool opened = salvo_engine_open(loaded->model, &shown, &loaded->engine) == SALVO_OK;
    progress_clear();
    if (!opened || salvo_session_open(loaded->engine, &loaded->session) != SALVO_OK)
        return library_failure();
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
    out->model = open_model(engine_flags.model);
    return out->model ? load_engine(out, &options) : EXIT_FAILED;
}

void unload(struct loaded *loaded)
{
    salvo_session_close(loaded->session);
    salvo_engine_close(loaded->engine);
    salvo_model_close(loaded->model);
    *loaded = (struct loaded){0};
}
