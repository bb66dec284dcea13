/* Every allocation of opening an engine, running it, quantising and verifying fails once: an error, no leak,
 * and the next attempt works. */
#include "base/memory.h"
#include "cmocka_test.h"
#include "engine_fixture.h"

#include <salvo/chat.h>
#include <stdlib.h>
#include <unistd.h>

static const char output[] = "/tmp/salvo-faults.gguf";

static enum salvo_status run_model(struct salvo_model *model)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_engine *engine = NULL;
    struct salvo_session *session = NULL, *copy = NULL;
    struct salvo_generate_result result = SALVO_GENERATE_RESULT_INIT;
    struct salvo_messages *messages = NULL;
    const struct salvo_message said = {.role = "user", .content = {"hello", 5}};
    TRY(salvo_engine_open(model,
        &(struct salvo_engine_options){
            .size = sizeof(struct salvo_engine_options), .sessions = 2, .threads = 2, .context = 64},
        &engine));
    TRY(salvo_session_open(engine, &session));
    TRY(salvo_session_open(engine, &copy));
    TRY(salvo_session_set_bias(session, 'x', 1e6f));
    TRY(salvo_session_feed(session, (const int32_t[]){1, 2, 3}, 3));
    TRY(salvo_session_generate(session,
        &(struct salvo_generate_options){.size = sizeof(struct salvo_generate_options), .max_tokens = 5},
        &result));
    TRY(salvo_session_copy(copy, session));
    TRY(salvo_session_chat_save_file(session, &said, 1, sizeof(struct salvo_message), output));
    TRY(salvo_session_chat_load_file(copy, output, &messages));
cleanup:
    salvo_free(messages);
    salvo_session_close(copy);
    salvo_session_close(session);
    salvo_engine_close(engine);
    return status;
}

/* A question and its answer are saved and loaded; then a second prompt, whose answer is given as by a
 * scheduler. */
static enum salvo_status converse(struct salvo_model *model)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_engine *engine = NULL;
    struct salvo_session *session = NULL;
    struct salvo_chat *chat = NULL;
    const struct salvo_message question = {.role = "user", .content = {"hello", 5}};
    struct salvo_answer_options options = SALVO_ANSWER_OPTIONS_INIT;
    int32_t *ids = NULL;
    size_t count;
    options.max_tokens = 3;
    TRY(salvo_engine_open(model,
        &(struct salvo_engine_options){.size = sizeof(struct salvo_engine_options), .context = 256},
        &engine));
    TRY(salvo_session_open(engine, &session));
    TRY(salvo_chat_open(model, NULL, &chat));
    TRY(salvo_chat_set_system(chat, "Be kind.", 8));
    TRY(salvo_chat_add(chat, &question, 1, sizeof question));
    TRY(salvo_chat_answer(chat, session, &options, NULL));
    TRY(salvo_chat_save_file(chat, session, output, true));
    TRY(salvo_chat_load_file(chat, session, output));
    TRY(salvo_chat_add(chat, &question, 1, sizeof question));
    TRY(salvo_chat_prompt(chat, 256, &ids, &count));
    TRY(salvo_chat_take(chat, ids, 2, "Hello", 5));
cleanup:
    salvo_free(ids);
    salvo_chat_close(chat);
    salvo_session_close(session);
    salvo_engine_close(engine);
    return status;
}

static enum salvo_status quantize_model(struct salvo_model *model)
{
    return salvo_quantize(model, output,
        &(struct salvo_quantize_options){
            .size = sizeof(struct salvo_quantize_options), .type = "Q4_0", .threads = 2});
}

static enum salvo_status verify_model(struct salvo_model *model)
{
    struct salvo_verify_result result = SALVO_VERIFY_RESULT_INIT;
    return salvo_verify(model,
        &(struct salvo_verify_options){.size = sizeof(struct salvo_verify_options),
            .ids = (const int32_t[]){1, 2},
            .count = 2,
            .threads = 1},
        NULL, NULL, &result);
}

/* Fails the first allocation, then the second, and so on, until there are no more. `can_do_without`: some of
 * them are not required, and nothing fails. */
static void fail_everywhere(
    const char *path, enum salvo_status (*work)(struct salvo_model *model), bool can_do_without)
{
    struct salvo_model *model;
    uint64_t nth = 1;
    for (;; nth++) {
        ASSERT_OK(salvo_model_open(path, &model)); /* anew: its tokenizer is opened on first use */
        const uint64_t before = memory_count();
        memory_fail_at(nth);
        enum salvo_status status = work(model);
        memory_fail_at(0);
        const bool has_failed = memory_count() - before >= nth;
        salvo_model_close(model);
        if (status == SALVO_OK && !(has_failed && can_do_without))
            break;
        assert_true(status == SALVO_ERROR_MEMORY || (status == SALVO_OK && can_do_without));
    }
    assert_true(nth > 5);
    unlink(output);
}

static void engines(void **state)
{
    (void)state;
    fail_everywhere(made_model_with_vocabulary("llama-tiny", "Q8_0"), run_model, false);
}

static void conversations(void **state)
{
    (void)state;
    fail_everywhere(made_model_with_vocabulary("llama-tiny", "Q8_0"), converse, true);
}

static void quantising(void **state)
{
    (void)state;
    fail_everywhere(made_model("llama-tiny", "F16"), quantize_model, false);
}

static void verifying(void **state)
{
    (void)state;
    fail_everywhere(made_model("llama-tiny", "Q8_0"), verify_model, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engines),
        cmocka_unit_test(conversations),
        cmocka_unit_test(quantising),
        cmocka_unit_test(verifying),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
