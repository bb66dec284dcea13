/*
 * serve-failing MODEL FILE [flags]: a server whose device fails once. The device of the first engine stops at
 * position 40 of a session, waits until FILE exists, and is lost. The linker puts __wrap_NAME in the place of
 * NAME. With "never" as FILE it does not fail; with "gone" it cannot be opened again.
 */
#include "busy_device.h"
#include "server/serve.h"

#include <salvo/scheduler.h>

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { FATAL_POSITION = 40 };

static const char *file;
static atomic_uint engines, schedulers; /* a scheduler that is being opened runs prompts, to measure */

enum salvo_status __real_salvo_engine_open(
    struct salvo_model *model, const struct salvo_engine_options *options, struct salvo_engine **out);
enum salvo_status __wrap_salvo_engine_open(
    struct salvo_model *model, const struct salvo_engine_options *options, struct salvo_engine **out);

enum salvo_status __real_salvo_scheduler_open(
    struct salvo_engine *engine, const struct salvo_scheduler_options *options, struct salvo_scheduler **out);
enum salvo_status __wrap_salvo_scheduler_open(
    struct salvo_engine *engine, const struct salvo_scheduler_options *options, struct salvo_scheduler **out);

static enum busy_fate lose(void *user, uint32_t position)
{
    (void)user;
    if (position < FATAL_POSITION || !atomic_load(&schedulers) || strcmp(file, "never") == 0)
        return BUSY_GOES_ON;
    while (strcmp(file, "gone") != 0 && access(file, F_OK) != 0)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return BUSY_LOST_BEFORE;
}

enum salvo_status __wrap_salvo_engine_open(
    struct salvo_model *model, const struct salvo_engine_options *options, struct salvo_engine **out)
{
    struct salvo_engine_options own = *options;
    const unsigned number = atomic_fetch_add(&engines, 1);
    if (number && strcmp(file, "gone") == 0)
        own.backend = "none";
    const enum salvo_status status = __real_salvo_engine_open(model, &own, out);
    if (status != SALVO_OK)
        return status;
    busy_device_install(*out);
    if (number == 0)
        busy_device_set_hook(*out, lose, NULL);
    return status;
}

enum salvo_status __wrap_salvo_scheduler_open(
    struct salvo_engine *engine, const struct salvo_scheduler_options *options, struct salvo_scheduler **out)
{
    const enum salvo_status status = __real_salvo_scheduler_open(engine, options, out);
    atomic_fetch_add(&schedulers, 1);
    return status;
}

int main(int count, char **arguments)
{
    struct salvo_model *model;
    char error[512] = "";
    if (count != 3 || salvo_model_open(arguments[1], &model) != SALVO_OK)
        return 2;
    file = arguments[2];
    struct serve_model own = {.model = model, .id = "failing", .sampler = SALVO_SAMPLER_INIT};
    (void)salvo_sampler_default(model, &own.sampler);
    const struct serve_options options = {
        .models = &own,
        .model_count = 1,
        .engine = {.size = sizeof(struct salvo_engine_options),
            .backend = "cpu",
            .sessions = 1,
            .prefix_cache = 1},
        .max_tokens = -1,
        .metrics = true,
        .drain = 600,
    };
    const bool ok = serve(&options, error, sizeof error);
    if (!ok)
        fprintf(stderr, "error: %s\n", error);
    salvo_model_close(model);
    return ok ? 0 : 1;
}
