/*
 * Bodies of requests, from the endpoint to the answer: reading, dialect, template, tokenizing, scheduler, a
 * small model with random weights, and the answer as JSON or as events. Two bytes before the body choose the
 * endpoint, and whether the client reads slowly or goes away. Each request is answered once, with well-formed
 * JSON, and leaves nothing behind; asked again, it gets the same status.
 */
#include "../../server/api_server.h"
#include "fake_http.h"
#include "model_write.h"
#include "models/vocabulary_copy.h"
#include "unit/text_sample.h"

#include <sanitizer/lsan_interface.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONTEXT = 64, SESSIONS = 2, ANSWER = 8 };

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct api_model model;
static struct api_server api;

/* The web page is not asked for. */
bool api_webui_has(const char *path)
{
    (void)path;
    return false;
}

void api_get_webui(struct api_server *server, struct http_exchange *exchange)
{
    (void)server;
    (void)exchange;
    abort();
}

static void expect(bool condition)
{
    if (!condition)
        abort();
}

static void need(enum salvo_status status)
{
    if (status != SALVO_OK) {
        fprintf(stderr, "fuzz_serve: %s\n", salvo_error());
        abort();
    }
}

static struct salvo_model *open_model(void)
{
    const struct model_shape shape = smallest_llama(SAMPLE_COUNT, CONTEXT);
    char plain[] = "/tmp/salvo-fuzz-serve-XXXXXX", path[] = "/tmp/salvo-fuzz-serve-XXXXXX";
    struct salvo_model *opened;
    expect(close(mkstemp(plain)) == 0 && close(mkstemp(path)) == 0);
    need(model_write(&shape, &model_mixes[0], plain, 1));
    unlink(path);
    need(copy_with_vocabulary(plain, path));
    need(salvo_model_open(path, &opened));
    unlink(plain);
    unlink(path);
    return opened;
}

int LLVMFuzzerInitialize(int *argc, char ***argv) // NOLINT(readability-non-const-parameter)
{
    static const char chat[] = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
                               "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    static const struct salvo_engine_options options = {
        .size = sizeof options, .backend = "cpu", .context = CONTEXT, .sessions = SESSIONS, .threads = 1};
    (void)argc;
    (void)argv;
    __lsan_disable(); /* the engine stays open; LeakSanitizer does not see all references to it */
    model = (struct api_model){.id = "fuzz", .model = open_model(), .options = &options};
    model.defaults = (struct api_defaults){.sampler = SALVO_SAMPLER_INIT, .max_tokens = ANSWER};
    model.defaults.sampler.seed = 1;
    need(salvo_template_open(model.model, chat, sizeof chat - 1, &model.chat));
    need(salvo_tool_form_open(model.chat, &model.form));
    atomic_init(&model.state, API_MODEL_LOADING);
    api_model_load(&model);
    expect(atomic_load(&model.state) == API_MODEL_READY);
    api = (struct api_server){
        .http = fake_http(), .models = &model, .model_count = 1, .metrics = true, .slots = true};
    __lsan_enable();
    return 0;
}

/* ---- Answers ---- */

static void expect_json(const char *data, size_t size)
{
    struct json_reader reader = {.longest = size};
    struct json_event event = {.kind = JSON_MORE};
    json_reader_feed(&reader, data, size, true);
    while (event.kind != JSON_DONE)
        need(json_reader_next(&reader, &event));
    json_reader_free(&reader);
}

/* Lines of JSON, as Ollama sends them, or events. */
static void expect_events(const char *data, size_t size)
{
    while (size) {
        const char *end = memchr(data, '\n', size);
        expect(end != NULL);
        const size_t line = (size_t)(end - data);
        const bool is_data = line > 6 && memcmp(data, "data: ", 6) == 0;
        if (is_data && !(line == 12 && memcmp(data, "data: [DONE]", 12) == 0))
            expect_json(data + 6, line - 6);
        else if (line && *data == '{')
            expect_json(data, line);
        else
            expect(line == 0 || is_data || *data == ':' || memcmp(data, "event: ", 7) == 0);
        size -= line + 1;
        data = end + 1;
    }
}

static void check_answer(const struct fake_answer *answer)
{
    const struct buffer *body = &answer->body;
    expect(answer->status >= 200 && answer->status < 600 && answer->status != 500 && !answer->aborted);
    if (answer->streamed)
        expect_events(body->data, body->size);
    else
        expect_json(body->data, body->size);
}

/* The status of the answer; 0 if the client goes away after `steps` of the loop. 0: it stays. */
static int ask(const char *path, const uint8_t *body, size_t size, bool slow, unsigned steps)
{
    struct http_exchange *exchange = fake_http_begin(path, body, size, slow);
    const struct fake_answer *answer = fake_http_answer();
    bool left = false;
    api_check(&api, exchange);
    if (!answer->ended)
        api_handle(&api, exchange);
    for (unsigned step = 1; api.tasks || !answer->ended; step++) {
        if (step == steps && !answer->ended) {
            left = true;
            fake_http_leave();
        }
        if (api.tasks)
            fake_http_step();
    }
    fake_http_finish();
    expect(!api.tasks);
    if (!left)
        check_answer(answer);
    return left ? 0 : answer->status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const paths[] = {"/v1/chat/completions", "/v1/completions", "/completion",
        "/v1/messages", "/v1/responses", "/api/chat", "/api/generate", "/infill", "/tokenize", "/detokenize",
        "/apply-template", "/v1/messages/count_tokens", "/v1/embeddings", "/embedding", "/api/embed",
        "/api/show", "/slots/0", "/completions"};
    enum { SLOW = 128, STEPS = 16 };
    if (size < 2)
        return 0;
    const char *path = paths[data[0] % (sizeof paths / sizeof *paths)];
    const unsigned steps = data[1] % STEPS;
    const int status = ask(path, data + 2, size - 2, data[1] & SLOW, steps);
    if (status)
        expect(ask(path, data + 2, size - 2, false, 0) == status);
    return 0;
}
