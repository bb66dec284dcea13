/* Prompts of /infill: the text before and after a gap, with the tokens of the model that mark them. */
#include "api_prompt.h"

#include <string.h>

enum mark { PREFIX, SUFFIX, MIDDLE, REPOSITORY, FILE_END, MARKS };

/* Keys of the metadata, then names that vocabularies have. */
static const struct {
    const char *keys[2], *names[6];
} marks[MARKS] = {
    [PREFIX] = {{"tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id"},
        {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>"}},
    [SUFFIX] = {{"tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.suffix_token_id"},
        {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>"}},
    [MIDDLE] = {{"tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id"},
        {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>"}},
    [REPOSITORY] = {{"tokenizer.ggml.fim_rep_token_id", NULL},
        {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>", "<repo_name>"}},
    [FILE_END] = {{"tokenizer.ggml.fim_sep_token_id", NULL},
        {"<|file_sep|>", "<file_sep>", NULL, NULL, NULL, NULL}},
};

/* A token of that name that only a template or this file can write. */
static int32_t find_by_name(struct salvo_model *model, const char *name)
{
    int32_t *ids, id = -1;
    char *text;
    size_t count, size;
    if (!name || salvo_tokenize(model, name, strlen(name), SALVO_TOKENIZE_SPECIAL, &ids, &count) != SALVO_OK)
        return -1;
    if (count == 1 && salvo_token_text(model, ids[0], &text, &size) == SALVO_OK) {
        if (size == strlen(name) && memcmp(text, name, size) == 0)
            id = ids[0];
        salvo_free(text);
    }
    salvo_free(ids);
    return id;
}

static int32_t find_mark(struct salvo_model *model, enum mark mark)
{
    const uint32_t vocabulary = salvo_model_info(model)->vocabulary;
    struct salvo_value value;
    int32_t id = -1;
    for (size_t i = 0; i < sizeof marks->keys / sizeof *marks->keys; i++) {
        const char *key = marks[mark].keys[i];
        if (key && salvo_model_find(model, key, &value) && value.u < vocabulary)
            return (int32_t)value.u;
    }
    for (size_t i = 0; id < 0 && i < sizeof marks->names / sizeof *marks->names; i++)
        id = find_by_name(model, marks[mark].names[i]);
    return id;
}

bool api_has_infill(struct salvo_model *model)
{
    for (enum mark i = PREFIX; i <= MIDDLE; i++) {
        if (find_mark(model, i) < 0)
            return false;
    }
    return true;
}

/* Adds the files, by their marks if the vocabulary has them; otherwise as text before the gap. */
static bool add_extra(struct api_model *model, const struct api_value *extra, struct api_prompt *prompt,
    struct api_error *error)
{
    static const struct salvo_text project = {"myproject\n", 10}, snippet = {"\n\n--- snippet ---\n\n", 19},
                                   line = {"\n", 1}, gap = {"filename\n", 9}, no_name = {"tmp", 3};
    const int32_t repository = find_mark(model->model, REPOSITORY), file = find_mark(model->model, FILE_END);
    const bool marked = repository >= 0 && file >= 0;
    bool ok = true;
    if (!extra || !extra->first)
        return true;
    if (marked)
        ok = api_append_ids(prompt, &repository, 1, error) &&
             api_append_text(model, project, 0, prompt, error);
    for (const struct api_value *item = extra->first; ok && item; item = item->next) {
        const struct api_value *name = api_member(item, "filename");
        if (marked) {
            ok = api_append_ids(prompt, &file, 1, error) &&
                 api_append_text(model, name ? name->text : no_name, 0, prompt, error) &&
                 api_append_text(model, line, 0, prompt, error);
        } else {
            ok = api_append_text(model, snippet, 0, prompt, error);
        }
        ok = ok && api_append_text(model, api_member(item, "text")->text, 0, prompt, error);
    }
    if (ok && marked)
        ok = api_append_ids(prompt, &file, 1, error) && api_append_text(model, gap, 0, prompt, error);
    return ok;
}

bool api_read_infill(struct api_model *model, const struct api_request *request, struct api_prompt *prompt,
    struct api_error *error)
{
    static const char *const names[] = {[PREFIX] = "prefix", [SUFFIX] = "suffix", [MIDDLE] = "middle"};
    int32_t ids[MIDDLE + 1];
    unsigned flags;
    for (enum mark i = PREFIX; i <= MIDDLE; i++) {
        ids[i] = find_mark(model->model, i);
        if (ids[i] < 0)
            return api_fail(error, 501, NULL,
                "/infill is not supported by this model: its vocabulary has no token for the %s", names[i]);
    }
    const enum salvo_status status = salvo_tokenize_default_flags(model->model, &flags);
    if (status != SALVO_OK)
        return api_fail_library(error, status, salvo_error());
    flags &= ~(unsigned)SALVO_TOKENIZE_EOS; /* the text that begins with it is empty */
    return api_append_text(model, (struct salvo_text){"", 0}, flags, prompt, error) &&
           add_extra(model, request->extra, prompt, error) &&
           api_append_ids(prompt, &ids[PREFIX], 1, error) &&
           api_append_text(model, request->prefix->text, 0, prompt, error) &&
           api_append_ids(prompt, &ids[SUFFIX], 1, error) &&
           api_append_text(model, request->suffix->text, 0, prompt, error) &&
           api_append_ids(prompt, &ids[MIDDLE], 1, error) &&
           (!request->prompt || api_append_text(model, request->prompt->text, 0, prompt, error));
}
