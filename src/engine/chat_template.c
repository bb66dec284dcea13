/* The public chat templates: those of src/text with the model's special tokens, and their answers as tokens.
 */
#include "base/memory.h"
#include "engine/model.h"

#include <string.h>

struct salvo_template {
    struct salvo_model *model;
};

enum salvo_status salvo_template_open(
    struct salvo_model *model, const char *text, size_t size, struct salvo_template **out)
{
    (void)text, (void)size;
    enum salvo_status status = NEW(out, 1);
    if (status == SALVO_OK)
        (*out)->model = model;
    return status;
}

void salvo_template_close(struct salvo_template *chat)
{
    memory_free(chat);
}

enum salvo_status salvo_template_render(const struct salvo_template *chat,
    const struct salvo_conversation *conversation, struct salvo_prompt **out)
{
    (void)chat, (void)conversation;
    *out = NULL;
    return fail(SALVO_ERROR_UNSUPPORTED, "chat templates are not there yet");
}

enum salvo_status salvo_template_tokens(const struct salvo_template *chat,
    const struct salvo_conversation *conversation, int32_t **out_ids, size_t *out_count)
{
    (void)chat, (void)conversation;
    *out_ids = NULL;
    *out_count = 0;
    return fail(SALVO_ERROR_UNSUPPORTED, "chat templates are not there yet");
}

struct salvo_stops salvo_template_stops(const struct salvo_template *chat)
{
    (void)chat;
    return (struct salvo_stops){0};
}
