/* Continues a prompt: simple MODEL.gguf "The capital of France is" */
#include <salvo/salvo.h>
#include <stdio.h>
#include <string.h>

static bool print_text(void *user, const char *text, size_t size)
{
    (void)user;
    return fwrite(text, 1, size, stdout) == size && fflush(stdout) == 0; /* false ends the text */
}

int main(int argc, char **argv)
{
    struct salvo_model *model = NULL;
    struct salvo_engine *engine = NULL;
    struct salvo_session *session = NULL;
    struct salvo_generate_options options = SALVO_GENERATE_OPTIONS_INIT;
    options.max_tokens = 64;
    options.text = print_text;
    int32_t *ids = NULL;
    size_t id_count;
    unsigned flags;
    if (argc != 3)
        return fprintf(stderr, "usage: simple MODEL.gguf PROMPT\n"), 2;
    bool done = salvo_model_open(argv[1], &model) == SALVO_OK &&
                salvo_tokenize_default_flags(model, &flags) == SALVO_OK &&
                salvo_tokenize(model, argv[2], strlen(argv[2]), flags & SALVO_TOKENIZE_BOS, &ids,
                    &id_count) == SALVO_OK &&
                salvo_engine_open(model, NULL, &engine) == SALVO_OK &&
                salvo_session_open(engine, &session) == SALVO_OK &&
                salvo_session_feed(session, ids, id_count) == SALVO_OK &&
                salvo_session_generate(session, &options, NULL) == SALVO_OK;
    if (!done)
        fprintf(stderr, "simple: %s\n", salvo_error());
    salvo_session_close(session);
    salvo_engine_close(engine);
    salvo_model_close(model);
    salvo_free(ids);
    return done ? 0 : 1;
}
