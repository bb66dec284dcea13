#include "scheduler_fixture.h"

#include "busy_device.h"
#include "cmocka_test.h"
#include "unit/text_data.h"

#include <salvo/memory.h>
#include <stdio.h>
#include <stdlib.h>

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

/* The bytes of a state of two pages minus a state of one. */
size_t scheduler_page_bytes(const struct fixture *fixture)
{
    int32_t *ids = some_ids(2 * PAGE, fixture->vocabulary, 1);
    size_t sizes[2];
    ASSERT_OK(salvo_session_rollback(fixture->session, 0));
    for (int i = 0; i < 2; i++) {
        ASSERT_OK(salvo_session_eval(fixture->session, ids + i * PAGE, PAGE, NULL, NULL));
        sizes[i] = salvo_session_state_size(fixture->session);
    }
    free(ids);
    struct salvo_memory memory = SALVO_MEMORY_INIT;
    ASSERT_OK(salvo_engine_memory(fixture->engine, &memory));
    return memory.pages ? sizes[1] - sizes[0] - PAGE * sizeof(int32_t) : 1;
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
