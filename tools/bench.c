#include "bench.h"

#include "json_output.h"
#include "measure.h"
#include "models.h"
#include "terminal.h"

#include <inttypes.h>
#include <string.h>

struct bench_options bench_options = {
    .tokens = {{128}, 1},
    .depths = {{0}, 1},
    .repetitions = 5,
    .requests = 32,
};

void bench_fill_ids(int32_t *ids, size_t count, uint32_t vocabulary)
{
    uint64_t random = 1;
    for (size_t i = 0; i < count; i++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
        ids[i] = (int32_t)((random >> 33) % vocabulary);
    }
}

int bench_load(struct loaded *loaded, uint32_t sessions, uint64_t needed)
{
    struct salvo_engine_options engine_options;
    int result = engine_options_from_flags(&engine_options);
    if (result != EXIT_DONE)
        return result;
    if (engine_options.context && engine_options.context < needed)
        return usage_error("bench: the tests need a context of %" PRIu64 " tokens, -c is %" PRIu32, needed,
            engine_options.context);
    if (needed > UINT32_MAX)
        return usage_error("bench: a context of %" PRIu64 " tokens is too long", needed);
    engine_options.context = engine_options.context ? engine_options.context : (uint32_t)needed;
    engine_options.sessions = sessions;
    result = open_model(engine_flags.model, &loaded->model);
    return result == EXIT_DONE ? load_engine(loaded, &engine_options) : result;
}

void bench_print_model(const struct loaded *loaded)
{
    const struct salvo_model_info *model = salvo_model_info(loaded->model);
    struct salvo_engine_info info = *salvo_engine_info(loaded->engine);
    char size[32], parameters[32];
    char threads[32] = "";
    if (info.threads)
        snprintf(threads, sizeof threads, ", %" PRIu32 " threads", info.threads);
    const char *name = *model->name ? model->name : model->path;
    fputs(colour(stdout, COLOUR_BOLD), stdout);
    print_safely(stdout, name, strlen(name));
    printf("%s%s%s, %s, %s parameters; %s: %s%s%s%s\n\n", colour(stdout, COLOUR_OFF),
        *model->file_type ? " " : "", model->file_type, format_bytes(model->file_size, size),
        format_count(model->parameters, parameters), info.backend, info.device, *info.isa ? " " : "",
        info.isa, threads);
}

void bench_begin_json(struct json_writer *json, const struct loaded *loaded, const char *key)
{
    const struct salvo_model_info *model = salvo_model_info(loaded->model);
    struct salvo_engine_info info = *salvo_engine_info(loaded->engine);
    json_begin(json, '{');
    const struct {
        const char *key, *text;
    } texts[] = {{"model", model->path}, {"name", model->name}, {"file_type", model->file_type},
        {"backend", info.backend}, {"device", info.device}, {"isa", info.isa}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        json_key(json, texts[i].key);
        json_string(json, texts[i].text);
    }
    const struct {
        const char *key;
        uint64_t number;
    } numbers[] = {{"threads", info.threads}, {"batch", info.batch}, {"context", info.context},
        {"size", model->file_size}, {"parameters", model->parameters},
        {"repetitions", bench_options.repetitions}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        json_key(json, numbers[i].key);
        json_unsigned(json, numbers[i].number);
    }
    json_key(json, key);
    json_begin(json, '[');
}

void bench_end_json(struct json_writer *json)
{
    json_end(json, ']');
    json_key(json, "peak_memory");
    json_unsigned(json, peak_memory());
    json_end(json, '}');
    putchar('\n');
}

void bench_print_memory(void)
{
    char memory[32];
    printf("\npeak memory %s\n", format_bytes(peak_memory(), memory));
}
