#include "api_model.h"

#include <stdio.h>

static void note_progress(void *user, uint64_t done, uint64_t total)
{
    struct api_model *model = user;
    atomic_store(&model->loaded, done);
    atomic_store(&model->to_load, total);
}

void api_model_load(struct api_model *model, const struct salvo_engine_options *options)
{
    struct salvo_engine_options own = *options;
    own.progress = note_progress;
    own.user = model;
    enum salvo_status status = salvo_engine_open(model->model, &own, &model->engine);
    if (status == SALVO_OK)
        status = salvo_scheduler_open(model->engine, NULL, &model->scheduler);
    if (status != SALVO_OK)
        snprintf(model->message, sizeof model->message, "%s", salvo_error());
    atomic_store(&model->state, status == SALVO_OK ? API_MODEL_READY : API_MODEL_FAILED);
}

void api_model_close(struct api_model *model)
{
    salvo_scheduler_close(model->scheduler);
    salvo_engine_close(model->engine);
    model->scheduler = NULL;
    model->engine = NULL;
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
