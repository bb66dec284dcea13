#include "scheduler_fixture.h"

#include "busy_device.h"
#include "cmocka_test.h"
#include "unit/text_data.h"

#include <stdio.h>

static const struct {
    const char *folder, *file, *shape;
} models[SCHEDULER_MODELS] = {{"stories260k", "stories260K-f32.gguf", "llama-tiny"},
    {"rwkv7-tiny", "tiny-rwkv7-834k-f32.gguf", "rwkv7-tiny"}};

const char *scheduler_model_path(size_t index)
{
    static char path[4096];
    const char *data = test_data_folder();
    if (!data)
        return made_model(models[index].shape, "Q8_0");
    snprintf(path, sizeof path, "%s/%s/%s", data, models[index].folder, models[index].file);
    return path;
}

struct fixture scheduler_open_engine(const char *path, bool is_busy, uint32_t context, size_t kv_memory)
{
    struct salvo_engine_options options = SALVO_ENGINE_OPTIONS_INIT;
    options.backend = "cpu";
    options.threads = 1;
    options.context = context;
    options.batch = BATCH;
    options.sessions = SESSIONS;
    options.kv_memory = kv_memory;
    options.prefix_cache = kv_memory != 0;
    struct fixture fixture = fixture_open(path, options);
    if (is_busy)
        busy_device_install(fixture.engine);
    salvo_session_close(fixture.session);
    fixture.session = NULL;
    return fixture;
}

struct salvo_scheduler_counters scheduler_counters_now(const struct salvo_scheduler *scheduler)
{
    struct salvo_scheduler_counters counters = SALVO_SCHEDULER_COUNTERS_INIT;
    ASSERT_OK(salvo_scheduler_counters(scheduler, &counters));
    return counters;
}
