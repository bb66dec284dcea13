#include "api_prompt.h"

#include <stdlib.h>
#include <string.h>

bool api_append_ids(struct api_prompt *prompt, const int32_t *ids, size_t count, struct api_error *error)
{
    int32_t *grown = realloc(prompt->ids, (prompt->count + count + 1) * sizeof *grown);
    if (!grown)
        return api_out_of_memory(error);
    prompt->ids = grown;
    if (count)
        memcpy(prompt->ids + prompt->count, ids, count * sizeof *ids);
    prompt->count += count;
    return true;
}

bool api_append_text(struct api_model *model, struct salvo_text text, unsigned flags,
    struct api_prompt *prompt, struct api_error *error)
{
    int32_t *ids;
    size_t count;
    enum salvo_status status = salvo_tokenize(model->model, text.data, text.size, flags, &ids, &count);
    if (status != SALVO_OK)
        return api_fail_library(error, status, salvo_error());
    const bool ok = api_append_ids(prompt, ids, count, error);
    salvo_free(ids);
    return ok;
}
