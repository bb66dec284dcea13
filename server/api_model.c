#include "api_model.h"

#include <stdio.h>
#include <stdlib.h>

static void note_progress(void *user, uint64_t done, uint64_t total)
{
    struct api_model *model = user;
    atomic_store(&model->loaded, done);
    atomic_store(&model->to_load, total);
}

bool api_model_open(
    struct api_model *model, struct salvo_engine **out_engine, struct salvo_scheduler **out_scheduler)
{
    struct salvo_engine_options own = *model->options;
    struct salvo_scheduler_options options = SALVO_SCHEDULER_OPTIONS_INIT;
    own.progress = note_progress;
    own.user = model;
    options.halts = 1;
    *out_engine = NULL;
    *out_scheduler = NULL;
    enum salvo_status status = salvo_engine_open(model->model, &own, out_engine);
    if (status == SALVO_OK)
        status = salvo_scheduler_open(*out_engine, &options, out_scheduler);
    if (status == SALVO_OK)
        return true;
    snprintf(model->message, sizeof model->message, "%s", salvo_error());
    salvo_engine_close(*out_engine);
    *out_engine = NULL;
    return false;
}

void api_model_load(struct api_model *model)
{
    bool ok = api_model_open(model, &model->engine, &model->scheduler);
    if (ok) {
        model->slot_count = salvo_engine_info(model->engine)->sessions;
        model->slots = calloc(model->slot_count, sizeof *model->slots);
        if (!model->slots) {
            snprintf(model->message, sizeof model->message, "out of memory");
            ok = false;
        }
    }
    atomic_store(&model->state, ok ? API_MODEL_READY : API_MODEL_FAILED);
}

void api_model_close(struct api_model *model)
{
    salvo_scheduler_close(model->scheduler);
    salvo_engine_close(model->engine);
    for (uint32_t i = 0; model->slots && i < model->slot_count; i++)
        free(model->slots[i].ids);
    free(model->slots);
    model->slots = NULL;
    model->scheduler = NULL;
    model->engine = NULL;
}

void api_counters_add(struct salvo_scheduler_counters *sums, const struct salvo_scheduler_counters *more)
{
    sums->submitted += more->submitted;
    sums->refused += more->refused;
    sums->finished += more->finished;
    sums->failed += more->failed;
    sums->cancelled += more->cancelled;
    sums->steps += more->steps;
    sums->prompt_tokens += more->prompt_tokens;
    sums->cached_tokens += more->cached_tokens;
    sums->tokens += more->tokens;
}

struct salvo_scheduler_counters api_model_counters(const struct api_model *model)
{
    struct salvo_scheduler_counters counters = SALVO_SCHEDULER_COUNTERS_INIT;
    if (atomic_load(&model->state) == API_MODEL_READY)
        (void)salvo_scheduler_counters(model->scheduler, &counters);
    api_counters_add(&counters, &model->past);
    return counters;
}

/* Control tokens have names, which are not part of an answer. Detokenizing omits them; it may also omit a
 * blank at the beginning, hence the second copy. */
static bool is_control(struct salvo_model *model, int32_t id)
{
    char *text;
    size_t size;
    if (salvo_detokenize(model, (const int32_t[]){id, id}, 2, false, &text, &size) != SALVO_OK)
        return false;
    salvo_free(text);
    return size == 0;
}

bool api_token_bytes(struct salvo_model *model, int32_t id, char **out, size_t *out_size)
{
    if (salvo_token_text(model, id, out, out_size) != SALVO_OK)
        return false;
    if (*out_size && is_control(model, id)) {
        salvo_free(*out);
        *out = NULL;
        *out_size = 0;
    }
    return true;
}
