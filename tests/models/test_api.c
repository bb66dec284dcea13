/* The rules of salvo.h: required pointers, structs that carry their size, samplers of zeros, token bytes and
 * the text filter. */
#include "cmocka_test.h"

#include "engine_fixture.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct salvo_engine_options small = {
    .size = sizeof(struct salvo_engine_options), .context = 128, .sessions = 2, .threads = 1};

static struct fixture open_small(void)
{
    return fixture_open(made_model_with_vocabulary("llama-tiny", "Q8_0"), small);
}

/* ---- Structs ---- */

/* A member added at the end must not lie in what was padding before: no struct ends with any. */
#define ENDS_WITH(type, member)                                                                      \
    _Static_assert(                                                                                  \
        sizeof(struct type) == offsetof(struct type, member) + sizeof(((struct type *)0)->member) && \
            offsetof(struct type, size) == 0,                                                        \
        "struct " #type " has padding at its end, or does not begin with its size")
ENDS_WITH(salvo_model_info, parameters);
ENDS_WITH(salvo_tensor, bytes);
ENDS_WITH(salvo_conversation, json);
ENDS_WITH(salvo_stops, id_count);
ENDS_WITH(salvo_device, memory);
ENDS_WITH(salvo_backend, why);
ENDS_WITH(salvo_engine_options, prefix_states_mb);
ENDS_WITH(salvo_engine_info, bytes_per_second);
ENDS_WITH(salvo_sampler, repeat_last_n);
ENDS_WITH(salvo_generate_options, user);
ENDS_WITH(salvo_generate_result, tokens);
ENDS_WITH(salvo_quantize_options, user);
ENDS_WITH(salvo_counters, waits);
ENDS_WITH(salvo_verify_options, count);
ENDS_WITH(salvo_verify_result, against_from_finest);

static void assert_refused(enum salvo_status status, const char *words)
{
    assert_int_equal(SALVO_ERROR_ARGUMENT, status);
    if (!strstr(salvo_error(), words))
        fail_msg("'%s' does not say '%s'", salvo_error(), words);
}

static void size_zero_is_named(void **state)
{
    (void)state;
    struct fixture fixture = open_small();
    struct salvo_engine *engine;
    struct salvo_template *chat;
    struct salvo_prompt *prompt;
    int32_t *ids;
    size_t count;
    ASSERT_OK(salvo_template_open(fixture.model, NULL, 0, &chat));
    ASSERT_OK(salvo_session_feed(fixture.session, (const int32_t[]){1, 2}, 2));
    assert_refused(
        salvo_engine_open(fixture.model, &(struct salvo_engine_options){0}, &engine), "salvo_engine_options");
    assert_refused(
        salvo_session_set_sampler(fixture.session, &(struct salvo_sampler){0}), "struct salvo_sampler is 0");
    assert_refused(salvo_session_generate(fixture.session, &(struct salvo_generate_options){0}, NULL),
        "salvo_generate_options");
    assert_refused(salvo_session_generate(fixture.session, NULL, &(struct salvo_generate_result){0}),
        "salvo_generate_result");
    assert_refused(salvo_quantize(fixture.model, "/tmp/x", &(struct salvo_quantize_options){.type = "Q8_0"}),
        "salvo_quantize_options");
    assert_refused(
        salvo_template_render(chat, &(struct salvo_conversation){0}, &prompt), "salvo_conversation");
    assert_refused(
        salvo_template_tokens(chat, &(struct salvo_conversation){0}, &ids, &count), "salvo_conversation");
    const struct salvo_message message = {.role = "user"};
    const struct salvo_conversation no_size = {
        .size = sizeof(struct salvo_conversation), .messages = &message, .message_count = 1};
    assert_refused(salvo_template_render(chat, &no_size, &prompt), "size of a message is 0");
    assert_refused(salvo_session_chat_save_file(fixture.session, &message, 1, 0, "/tmp/x"), "message is 0");
    assert_refused(salvo_model_tensor(fixture.model, 0, &(struct salvo_tensor){0}), "salvo_tensor");
    assert_refused(salvo_device_at(0, &(struct salvo_device){0}), "salvo_device");
    assert_refused(salvo_backend_at(0, &(struct salvo_backend){0}), "salvo_backend");
    assert_refused(salvo_sampler_default(fixture.model, &(struct salvo_sampler){0}), "salvo_sampler");
    assert_refused(salvo_session_get_sampler(fixture.session, &(struct salvo_sampler){0}), "salvo_sampler");
    assert_refused(salvo_engine_counters(fixture.engine, &(struct salvo_counters){0}), "salvo_counters");
    assert_refused(salvo_verify(fixture.model, NULL, NULL, NULL, &(struct salvo_verify_result){0}),
        "salvo_verify_result");
    assert_refused(salvo_verify(fixture.model, &(struct salvo_verify_options){0}, NULL, NULL,
                       &(struct salvo_verify_result)SALVO_VERIFY_RESULT_INIT),
        "salvo_verify_options");
    assert_int_equal(2, salvo_session_position(fixture.session));
    salvo_template_close(chat);
    fixture_close(&fixture);
}

/* A program of a later version, whose struct has a member more, and one of an earlier, whose struct ends
 * before. */
static void sizes_of_other_versions(void **state)
{
    (void)state;
    struct fixture fixture = open_small();
    struct {
        struct salvo_sampler known;
        uint64_t later;
    } longer = {.known = {.size = sizeof longer, .seed = 7, .temperature = 0.5f, .top_k = 3}};
    ASSERT_OK(salvo_session_set_sampler(fixture.session, &longer.known));
    longer.later = 1;
    assert_refused(salvo_session_set_sampler(fixture.session, &longer.known), "does not know");

    struct salvo_sampler shorter = {
        .size = offsetof(struct salvo_sampler, top_k), .seed = 9, .temperature = 0.25f, .top_k = 5};
    ASSERT_OK(salvo_session_set_sampler(fixture.session, &shorter));
    ASSERT_OK(salvo_session_get_sampler(fixture.session, &longer.known));
    assert_int_equal(9, longer.known.seed);
    assert_int_equal(0, longer.known.top_k);
    assert_int_equal(0, longer.later);
    assert_int_equal(sizeof longer, longer.known.size);

    shorter.temperature = 0;
    ASSERT_OK(salvo_session_get_sampler(fixture.session, &shorter));
    assert_true(shorter.temperature == 0.25f);
    assert_int_equal(5, shorter.top_k); /* beyond the size: not touched */
    fixture_close(&fixture);
}

/* Messages of another version are read by their own size. */
static void messages_of_other_versions(void **state)
{
    (void)state;
    static const char text[] = "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}";
    struct {
        struct salvo_message known;
        uint64_t later;
    } messages[2] = {{.known = {"user", {"one", 3}, NULL}}, {.known = {"assistant", {"two", 3}, NULL}}};
    struct salvo_template *chat;
    struct salvo_prompt *prompt;
    struct salvo_conversation conversation = SALVO_CONVERSATION_INIT;
    ASSERT_OK(salvo_template_open(NULL, text, sizeof text - 1, &chat));
    conversation.messages = &messages[0].known;
    conversation.message_count = 2;
    conversation.message_size = sizeof messages[0];
    ASSERT_OK(salvo_template_render(chat, &conversation, &prompt));
    assert_int_equal(strlen("[user:one][assistant:two]"), prompt->size);
    assert_memory_equal("[user:one][assistant:two]", prompt->text, prompt->size);
    const struct salvo_piece *piece = SALVO_ITEM(salvo_piece, prompt->pieces, prompt->piece_size, 1);
    assert_int_equal(piece->size, piece->content ? 3 : piece->size);
    salvo_free(prompt);
    messages[1].later = 1;
    assert_refused(salvo_template_render(chat, &conversation, &prompt), "does not know");
    assert_null(prompt);
    salvo_template_close(chat);
}

/* ---- NULL ---- */

static void required_pointers_are_checked(void **state)
{
    (void)state;
    struct fixture fixture = open_small();
    struct salvo_model *model;
    struct salvo_engine *engine;
    struct salvo_session *session = fixture.session;
    struct salvo_template *chat;
    struct salvo_text_filter *filter;
    struct salvo_file *file;
    struct salvo_prompt *prompt;
    struct salvo_messages *messages;
    struct salvo_text text;
    struct salvo_value value;
    struct salvo_conversation conversation = SALVO_CONVERSATION_INIT;
    struct salvo_tensor tensor = SALVO_TENSOR_INIT;
    struct salvo_sampler sampler = SALVO_SAMPLER_INIT;
    struct salvo_counters counters = SALVO_COUNTERS_INIT;
    struct salvo_quantize_options quantize = SALVO_QUANTIZE_OPTIONS_INIT;
    struct salvo_run run = {0};
    struct salvo_run_result run_result;
    uint64_t step;
    enum salvo_status statuses[1];
    char *bytes;
    uint8_t memory[8];
    int32_t *ids, id;
    size_t size;
    unsigned flags;
    bool stopped;
    ASSERT_OK(salvo_template_open(fixture.model, NULL, 0, &chat));
    ASSERT_OK(salvo_text_filter_open(NULL, 0, &filter));
    struct salvo_template *no_chat; /* opening sets it to NULL when it fails */
    struct salvo_text_filter *no_filter;
    const struct {
        enum salvo_status status;
        const char *call;
    } calls[] = {
#define CALL(call) {call, #call}
        CALL(salvo_model_open(NULL, &model)),
        CALL(salvo_model_open("x", NULL)),
        CALL(salvo_model_tensor(NULL, 0, &tensor)),
        CALL(salvo_model_tensor(fixture.model, 0, NULL)),
        CALL(salvo_tokenize_default_flags(NULL, &flags)),
        CALL(salvo_tokenize_default_flags(fixture.model, NULL)),
        CALL(salvo_tokenize(NULL, "x", 1, 0, &ids, &size)),
        CALL(salvo_tokenize(fixture.model, NULL, 1, 0, &ids, &size)),
        CALL(salvo_tokenize(fixture.model, "x", 1, 0, NULL, &size)),
        CALL(salvo_tokenize(fixture.model, "x", 1, 0, &ids, NULL)),
        CALL(salvo_detokenize(NULL, &id, 1, false, &bytes, &size)),
        CALL(salvo_detokenize(fixture.model, NULL, 1, false, &bytes, &size)),
        CALL(salvo_detokenize(fixture.model, &id, 1, false, NULL, &size)),
        CALL(salvo_detokenize(fixture.model, &id, 1, false, &bytes, NULL)),
        CALL(salvo_token_text(NULL, 1, &bytes, &size)),
        CALL(salvo_token_text(fixture.model, 1, NULL, &size)),
        CALL(salvo_token_text(fixture.model, 1, &bytes, NULL)),
        CALL(salvo_text_filter_open(NULL, 1, &no_filter)),
        CALL(salvo_text_filter_open(NULL, 0, NULL)),
        CALL(salvo_text_filter_push(NULL, "x", 1, &text, &stopped)),
        CALL(salvo_text_filter_push(filter, NULL, 1, &text, &stopped)),
        CALL(salvo_text_filter_push(filter, "x", 1, NULL, &stopped)),
        CALL(salvo_text_filter_push(filter, "x", 1, &text, NULL)),
        CALL(salvo_text_filter_finish(NULL, &text)),
        CALL(salvo_text_filter_finish(filter, NULL)),
        CALL(salvo_template_open(NULL, NULL, 0, &no_chat)),
        CALL(salvo_template_open(fixture.model, NULL, 0, NULL)),
        CALL(salvo_template_render(NULL, &conversation, &prompt)),
        CALL(salvo_template_render(chat, &conversation, NULL)),
        CALL(salvo_template_tokens(NULL, &conversation, &ids, &size)),
        CALL(salvo_template_tokens(chat, &conversation, NULL, &size)),
        CALL(salvo_template_tokens(chat, &conversation, &ids, NULL)),
        CALL(salvo_device_at(0, NULL)),
        CALL(salvo_backend_at(0, NULL)),
        CALL(salvo_engine_open(NULL, NULL, &engine)),
        CALL(salvo_engine_open(fixture.model, NULL, NULL)),
        CALL(salvo_session_open(NULL, &session)),
        CALL(salvo_session_open(fixture.engine, NULL)),
        CALL(salvo_sampler_default(NULL, &sampler)),
        CALL(salvo_sampler_default(fixture.model, NULL)),
        CALL(salvo_session_set_sampler(NULL, &sampler)),
        CALL(salvo_session_get_sampler(NULL, &sampler)),
        CALL(salvo_session_get_sampler(fixture.session, NULL)),
        CALL(salvo_session_set_bias(NULL, 0, 1)),
        CALL(salvo_session_feed(NULL, &id, 1)),
        CALL(salvo_session_feed(fixture.session, NULL, 1)),
        CALL(salvo_session_eval(NULL, &id, 1, NULL, NULL)),
        CALL(salvo_session_eval(fixture.session, NULL, 1, NULL, NULL)),
        CALL(salvo_session_next(NULL, &id)),
        CALL(salvo_session_next(fixture.session, NULL)),
        CALL(salvo_engine_next(NULL, 1, &id, statuses)),
        CALL(salvo_engine_next((struct salvo_session *const[]){NULL}, 1, &id, statuses)),
        CALL(salvo_engine_next(&fixture.session, 1, NULL, statuses)),
        CALL(salvo_engine_next(&fixture.session, 1, &id, NULL)),
        CALL(salvo_engine_submit(NULL, &run, 1, sizeof run, &step)),
        CALL(salvo_engine_submit(fixture.engine, NULL, 1, sizeof run, &step)),
        CALL(salvo_engine_submit(fixture.engine, &run, 1, sizeof run, &step)),
        CALL(salvo_engine_submit(fixture.engine, &run, 1, sizeof run, NULL)),
        CALL(salvo_engine_wait(NULL, 1, &run_result, 1, sizeof run_result)),
        CALL(salvo_engine_wait(fixture.engine, 1, NULL, 1, sizeof run_result)),
        CALL(salvo_engine_wait(fixture.engine, 1, &run_result, 1, sizeof run_result)),
        CALL(salvo_session_generate(NULL, NULL, NULL)),
        CALL(salvo_session_rollback(NULL, 0)),
        CALL(salvo_session_mark(NULL)),
        CALL(salvo_session_state_save(NULL, memory, sizeof memory)),
        CALL(salvo_session_state_save(fixture.session, NULL, 0)),
        CALL(salvo_session_state_restore(NULL, memory, sizeof memory)),
        CALL(salvo_session_state_restore(fixture.session, NULL, 0)),
        CALL(salvo_session_copy(NULL, fixture.session)),
        CALL(salvo_session_copy(fixture.session, NULL)),
        CALL(salvo_session_state_save_file(NULL, "x")),
        CALL(salvo_session_state_save_file(fixture.session, NULL)),
        CALL(salvo_session_state_load_file(NULL, "x")),
        CALL(salvo_session_state_load_file(fixture.session, NULL)),
        CALL(salvo_session_chat_save_file(NULL, NULL, 0, sizeof(struct salvo_message), "x")),
        CALL(salvo_session_chat_save_file(fixture.session, NULL, 1, sizeof(struct salvo_message), "x")),
        CALL(salvo_session_chat_save_file(fixture.session, NULL, 0, sizeof(struct salvo_message), NULL)),
        CALL(salvo_session_chat_load_file(NULL, "x", &messages)),
        CALL(salvo_session_chat_load_file(fixture.session, NULL, &messages)),
        CALL(salvo_session_chat_load_file(fixture.session, "x", NULL)),
        CALL(salvo_file_check_writable(NULL)),
        CALL(salvo_file_open(NULL, true, &file)),
        CALL(salvo_file_open("x", true, NULL)),
        CALL(salvo_file_write(NULL, "x", 1)),
        CALL(salvo_file_commit(NULL)),
        CALL(salvo_session_state_write(NULL, NULL)),
        CALL(salvo_session_state_write(fixture.session, NULL)),
        CALL(salvo_session_chat_write(fixture.session, NULL, 0, sizeof(struct salvo_message), NULL)),
        CALL(salvo_quantize(NULL, "x", &quantize)),
        CALL(salvo_quantize(fixture.model, NULL, &quantize)),
        CALL(salvo_quantize(fixture.model, "x", NULL)),
        CALL(salvo_quantize(fixture.model, "x", &quantize)), /* without a type */
        CALL(salvo_engine_counters(NULL, &counters)),
        CALL(salvo_engine_counters(fixture.engine, NULL)),
        CALL(salvo_engine_measure_idle(NULL, true)),
        CALL(salvo_engine_print(NULL, NULL, NULL)),
        CALL(salvo_engine_print(fixture.engine, NULL, NULL)),
        CALL(salvo_session_profile(NULL, &id, 1, 1, NULL, NULL)),
        CALL(salvo_session_profile(fixture.session, NULL, 1, 1, NULL, NULL)),
        CALL(salvo_session_profile(fixture.session, &id, 1, 1, NULL, NULL)),
        CALL(salvo_verify(NULL, NULL, NULL, NULL, NULL)),
        CALL(salvo_verify(fixture.model, NULL, NULL, NULL, NULL)),
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        if (calls[i].status != SALVO_ERROR_ARGUMENT)
            fail_msg("%s gives %d", calls[i].call, (int)calls[i].status);
    }
    /* The calls above null what they were to store. */
    assert_null(no_chat);
    assert_null(no_filter);
    assert_null(session);

    assert_null(salvo_model_info(NULL));
    assert_false(salvo_model_is_at(NULL, "x") || salvo_model_is_at(fixture.model, NULL));
    assert_int_equal(0, salvo_model_metadata_count(NULL) + salvo_model_tensor_count(NULL));
    assert_false(salvo_model_metadata(NULL, 0, NULL, NULL));
    assert_true(salvo_model_metadata(fixture.model, 0, NULL, NULL));
    assert_false(salvo_model_find(NULL, "x", &value) || salvo_model_find(fixture.model, NULL, &value));
    assert_true(salvo_model_find(fixture.model, "general.architecture", NULL));
    assert_false(salvo_array_next(NULL, &value) || salvo_array_next(&value, NULL));
    assert_int_equal(0, salvo_utf8_incomplete(NULL, 3));
    assert_null(salvo_template_stops(NULL));
    assert_null(salvo_engine_info(NULL));
    assert_null(salvo_device_unusable(SIZE_MAX, NULL));
    assert_null(salvo_session_tokens(NULL));
    assert_null(salvo_session_logits(NULL));
    assert_int_equal(0, salvo_session_position(NULL) + salvo_session_state_size(NULL));
    salvo_session_cancel(NULL);
    salvo_text_filter_reset(NULL);
    salvo_text_filter_close(NULL);
    salvo_session_close(NULL);
    salvo_engine_close(NULL);
    salvo_template_close(NULL);
    salvo_file_close(NULL);
    salvo_model_close(NULL);
    salvo_free(NULL);
    salvo_text_filter_close(filter);
    salvo_template_close(chat);
    fixture_close(&fixture);
}

/* ---- Samplers ---- */

static void a_sampler_of_zeros_is_greedy(void **state)
{
    (void)state;
    struct fixture fixture = open_small();
    const struct salvo_sampler zeros = SALVO_SAMPLER_INIT;
    struct salvo_sampler used = SALVO_SAMPLER_INIT, family = default_sampler(fixture.model);
    ASSERT_OK(salvo_session_set_sampler(fixture.session, &zeros));
    ASSERT_OK(salvo_session_feed(fixture.session, (const int32_t[]){1, 2, 3}, 3));
    for (int i = 0; i < 20; i++) {
        const float *logits = salvo_session_logits(fixture.session);
        assert_non_null(logits);
        int32_t largest = 0, id;
        for (uint32_t j = 1; j < fixture.vocabulary; j++)
            largest = logits[j] > logits[largest] ? (int32_t)j : largest;
        ASSERT_OK(salvo_session_next(fixture.session, &id));
        assert_int_equal(largest, id);
        ASSERT_OK(salvo_session_rollback(fixture.session, salvo_session_position(fixture.session) - 1));
        ASSERT_OK(salvo_session_feed(fixture.session, &id, 1));
    }
    ASSERT_OK(salvo_session_set_sampler(fixture.session, NULL));
    ASSERT_OK(salvo_session_get_sampler(fixture.session, &used));
    assert_memory_equal(&family, &used, sizeof used);
    fixture_close(&fixture);
}

static void random_seeds_can_be_used_again(void **state)
{
    (void)state;
    struct fixture fixture = open_small();
    struct salvo_sampler sampler = SALVO_SAMPLER_INIT;
    sampler.temperature = 3;
    sampler.seed = SALVO_SEED_RANDOM;
    uint64_t seeds[4];
    for (int i = 0; i < 4; i++) {
        struct salvo_sampler used = SALVO_SAMPLER_INIT;
        ASSERT_OK(salvo_session_set_sampler(fixture.session, &sampler));
        ASSERT_OK(salvo_session_get_sampler(fixture.session, &used));
        seeds[i] = used.seed;
    }
    assert_true(seeds[0] != SALVO_SEED_RANDOM);
    assert_false(seeds[0] == seeds[1] && seeds[1] == seeds[2] && seeds[2] == seeds[3]);
    int32_t *first = continuation(fixture.session, (const int32_t[]){1, 2}, 2, 12);
    ASSERT_OK(salvo_session_rollback(fixture.session, 0));
    sampler.seed = seeds[3];
    ASSERT_OK(salvo_session_set_sampler(fixture.session, &sampler));
    int32_t *again = continuation(fixture.session, (const int32_t[]){1, 2}, 2, 12);
    assert_memory_equal(first, again, 12 * sizeof *first);
    free(first);
    free(again);
    fixture_close(&fixture);
}

/* ---- Tokens and text ---- */

struct received {
    int32_t ids[100];
    char bytes[1000], text[1000];
    size_t count, byte_count, text_size, most;
};

static bool hear_token(void *user, int32_t id, const char *data, size_t size)
{
    struct received *received = user;
    received->ids[received->count++] = id;
    memcpy(received->bytes + received->byte_count, data, size);
    received->byte_count += size;
    return received->count != received->most;
}

static bool hear_text(void *user, const char *text, size_t size)
{
    struct received *received = user;
    memcpy(received->text + received->text_size, text, size);
    received->text_size += size;
    return true;
}

static struct salvo_generate_result generate(
    struct fixture *fixture, const char *const *stops, size_t stop_count, struct received *received)
{
    struct salvo_generate_result result = SALVO_GENERATE_RESULT_INIT;
    struct salvo_sampler sampler = SALVO_SAMPLER_INIT;
    struct salvo_generate_options options = SALVO_GENERATE_OPTIONS_INIT;
    sampler.temperature = 5;
    sampler.seed = 3;
    options.max_tokens = 80;
    options.ignore_end = true;
    options.stop_strings = stops;
    options.stop_count = stop_count;
    options.token = hear_token;
    options.text = hear_text;
    options.user = received;
    ASSERT_OK(salvo_session_rollback(fixture->session, 0));
    ASSERT_OK(salvo_session_set_sampler(fixture->session, &sampler));
    ASSERT_OK(salvo_session_feed(fixture->session, (const int32_t[]){1, 2}, 2));
    ASSERT_OK(salvo_session_generate(fixture->session, &options, &result));
    return result;
}

static void each_token_comes_with_its_bytes(void **state)
{
    (void)state;
    struct fixture fixture = open_small();
    struct received received = {0}, few = {.most = 7};
    char *text;
    size_t size;
    const struct salvo_generate_result result = generate(&fixture, NULL, 0, &received);
    assert_int_equal(80, result.tokens);
    assert_int_equal(80, received.count);
    assert_memory_equal(salvo_session_tokens(fixture.session) + 2, received.ids, 80 * sizeof *received.ids);
    ASSERT_OK(salvo_detokenize(fixture.model, received.ids, received.count, false, &text, &size));
    assert_int_equal(size, received.byte_count);
    assert_memory_equal(text, received.bytes, size);
    salvo_free(text);

    const struct salvo_generate_result stopped = generate(&fixture, NULL, 0, &few);
    assert_int_equal(SALVO_FINISH_CALLBACK, stopped.finish);
    assert_int_equal(7, stopped.tokens);
    assert_int_equal(9, salvo_session_position(fixture.session));
    fixture_close(&fixture);
}

/* The filter makes of the tokens' bytes the text that generation writes, with the same stop strings. */
static void the_filter_does_as_generation(void **state)
{
    (void)state;
    struct fixture fixture = open_small();
    struct received all = {0};
    generate(&fixture, NULL, 0, &all);
    unsigned stops_found = 0;
    for (size_t at = 0; at + 4 < all.text_size; at += 3) {
        char stop[4] = {0};
        memcpy(stop, all.text + at, 3);
        if (strlen(stop) < 3)
            continue;
        const char *stops[] = {"", stop};
        struct received received = {0};
        struct salvo_text_filter *filter;
        struct salvo_text ready;
        char text[1000];
        size_t size = 0;
        bool stopped = false;
        const struct salvo_generate_result result = generate(&fixture, stops, 2, &received);
        ASSERT_OK(salvo_text_filter_open(stops, 2, &filter));
        for (size_t i = 0; i < received.byte_count; i++) {
            ASSERT_OK(salvo_text_filter_push(filter, received.bytes + i, 1, &ready, &stopped));
            memcpy(text + size, ready.data, ready.size);
            size += ready.size;
        }
        assert_int_equal(result.finish == SALVO_FINISH_STOP, stopped);
        stops_found += stopped;
        ASSERT_OK(salvo_text_filter_finish(filter, &ready));
        memcpy(text + size, ready.data, ready.size);
        size += ready.size;
        assert_int_equal(received.text_size, size);
        assert_memory_equal(received.text, text, size);
        salvo_text_filter_close(filter);
    }
    assert_true(stops_found > 3);
    fixture_close(&fixture);
}

static void filters_can_be_used_again(void **state)
{
    (void)state;
    struct salvo_text_filter *filter;
    struct salvo_text ready;
    bool stopped;
    ASSERT_OK(salvo_text_filter_open((const char *const[]){"end"}, 1, &filter));
    ASSERT_OK(salvo_text_filter_push(filter, "an end\n", 7, &ready, &stopped));
    assert_true(stopped && ready.size == 3);
    ASSERT_OK(salvo_text_filter_push(filter, "more", 4, &ready, &stopped));
    assert_true(stopped && ready.size == 0);
    salvo_text_filter_reset(filter);
    ASSERT_OK(salvo_text_filter_push(filter, "more en", 7, &ready, &stopped));
    assert_true(!stopped && ready.size == 5);
    ASSERT_OK(salvo_text_filter_finish(filter, &ready));
    assert_true(ready.size == 2 && memcmp(ready.data, "en", 2) == 0);
    ASSERT_OK(salvo_text_filter_push(filter, "d\xC3", 2, &ready, &stopped)); /* no "end", half a character */
    assert_true(!stopped && ready.size == 1);
    ASSERT_OK(salvo_text_filter_push(filter, "\xA4", 1, &ready, &stopped));
    assert_true(!stopped && ready.size == 2 && memcmp(ready.data, "\xC3\xA4", 2) == 0);
    ASSERT_OK(salvo_text_filter_push(filter, "\xC3", 1, &ready, &stopped));
    ASSERT_OK(salvo_text_filter_finish(filter, &ready));
    assert_int_equal(0, ready.size); /* an incomplete character is omitted */
    salvo_text_filter_close(filter);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(size_zero_is_named),
        cmocka_unit_test(sizes_of_other_versions),
        cmocka_unit_test(messages_of_other_versions),
        cmocka_unit_test(required_pointers_are_checked),
        cmocka_unit_test(a_sampler_of_zeros_is_greedy),
        cmocka_unit_test(random_seeds_can_be_used_again),
        cmocka_unit_test(each_token_comes_with_its_bytes),
        cmocka_unit_test(the_filter_does_as_generation),
        cmocka_unit_test(filters_can_be_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
