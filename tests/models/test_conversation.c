/* Conversations: what is computed for an answer, which tokens stay, where an answer ends, and what happens to
 * the messages. */
#include "cmocka_test.h"
#include "engine/engine.h"
#include "engine/token_overlap.h"
#include "engine_fixture.h"
#include "text/tokenizer.h"

#include <salvo/chat.h>
#include <salvo/memory.h>
#include <salvo/scheduler.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const shapes[] = {"llama-tiny", "rwkv7-tiny"};

static const char chat_template[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

static struct fixture open_engine(const char *shape, uint32_t context, uint32_t sessions)
{
    struct salvo_engine_options options = SALVO_ENGINE_OPTIONS_INIT;
    options.context = context;
    options.sessions = sessions;
    options.prefix_cache = sessions > 1;
    struct fixture fixture = fixture_open(made_model_with_vocabulary(shape, "Q8_0"), options);
    set_greedy(fixture.session);
    for (int32_t letter = 'a'; letter <= 'z'; letter++) /* answers are words */
        ASSERT_OK(salvo_session_set_bias(fixture.session, letter, 1000));
    return fixture;
}

static struct salvo_chat *open_chat(const struct fixture *fixture, enum salvo_on_full on_full)
{
    struct salvo_chat_options options = SALVO_CHAT_OPTIONS_INIT;
    struct salvo_chat *chat;
    options.on_full = on_full;
    options.chat_template = (struct salvo_text){chat_template, strlen(chat_template)};
    ASSERT_OK(salvo_chat_open(fixture->model, &options, &chat));
    return chat;
}

static void add(struct salvo_chat *chat, const char *role, const char *text)
{
    const struct salvo_message message = {.role = role, .content = {text, strlen(text)}};
    ASSERT_OK(salvo_chat_add(chat, &message, 1, sizeof message));
}

struct said {
    char text[4096];
    size_t size;
    uint32_t tokens, most;           /* most: tokens after which the callback stops; 0: never */
    struct salvo_session *cancelled; /* with the first token */
};

static bool on_text(void *user, const char *text, size_t size)
{
    struct said *said = user;
    assert_true(size && said->size + size < sizeof said->text);
    memcpy(said->text + said->size, text, size);
    said->size += size;
    return true;
}

static bool on_token(void *user, int32_t id, const char *data, size_t size)
{
    struct said *said = user;
    (void)id;
    (void)data;
    (void)size;
    if (said->cancelled)
        salvo_session_cancel(said->cancelled);
    return ++said->tokens != said->most;
}

static struct salvo_answer_options options_of(struct said *said, uint32_t tokens)
{
    struct salvo_answer_options options = SALVO_ANSWER_OPTIONS_INIT;
    options.max_tokens = tokens;
    options.text = on_text;
    options.token = on_token;
    options.user = said;
    return options;
}

static struct salvo_answer ask(struct salvo_chat *chat, struct salvo_session *session, const char *question,
    struct said *said, uint32_t tokens)
{
    struct salvo_answer answer = SALVO_ANSWER_INIT;
    const struct salvo_answer_options options = options_of(said, tokens);
    add(chat, "user", question);
    ASSERT_OK(salvo_chat_answer(chat, session, &options, &answer));
    return answer;
}

static struct salvo_message last_message(const struct salvo_chat *chat)
{
    const struct salvo_messages messages = salvo_chat_messages(chat);
    assert_true(messages.count);
    return messages.items[messages.count - 1];
}

static void assert_content(
    const struct salvo_message message, const char *role, const char *text, size_t size)
{
    assert_string_equal(role, message.role);
    assert_int_equal(size, message.content.size);
    assert_memory_equal(text, message.content.data, size);
}

/* The session's last `count` tokens equal the tokens that a new session generates after the others. */
static void assert_same_as_alone(const struct fixture *fixture, const char *shape, uint32_t count)
{
    struct fixture alone = open_engine(shape, 1024, 1);
    const int32_t *tokens = salvo_session_tokens(fixture->session);
    const uint32_t prompt = salvo_session_position(fixture->session) - count;
    int32_t *ids = continuation(alone.session, tokens, prompt, count);
    assert_memory_equal(tokens + prompt, ids, count * sizeof *ids);
    free(ids);
    fixture_close(&alone);
}

static void only_new_tokens_are_computed(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct fixture fixture = open_engine(shapes[i], 1024, 1);
        struct salvo_chat *chat = open_chat(&fixture, SALVO_ON_FULL_STOP);
        for (uint32_t turn = 0; turn < 3; turn++) {
            struct said said = {0};
            const uint32_t before = salvo_session_position(fixture.session);
            struct salvo_answer answer = ask(chat, fixture.session, "hello there", &said, 12);
            assert_int_equal(1, answer.kept);
            assert_true(answer.tokens > 0 && answer.tokens == said.tokens);
            /* The last token of an answer is computed with the next prompt. */
            assert_int_equal(before + answer.computed + answer.tokens - (turn > 0),
                salvo_session_position(fixture.session));
            assert_true(answer.computed < 40);
            if (turn)
                assert_true(answer.reused + 1 >= before);
            assert_content(last_message(chat), "assistant", said.text, said.size);
            assert_same_as_alone(&fixture, shapes[i], answer.tokens);
        }
        assert_int_equal(6, salvo_chat_messages(chat).count);
        salvo_chat_close(chat);
        fixture_close(&fixture);
    }
}

static void an_answer_is_generated_again(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct fixture fixture = open_engine(shapes[i], 1024, 1);
        struct salvo_chat *chat = open_chat(&fixture, SALVO_ON_FULL_STOP);
        struct said said = {0}, again = {0};
        struct salvo_answer answer = SALVO_ANSWER_INIT;
        struct salvo_answer_options options = options_of(&again, 12);
        options.again = 1;
        add(chat, "user", "a");
        assert_int_equal(SALVO_ERROR_ARGUMENT, salvo_chat_answer(chat, fixture.session, &options, &answer));
        salvo_chat_cut(chat, 0);
        ask(chat, fixture.session, "hello", &said, 12);

        ASSERT_OK(salvo_chat_answer(chat, fixture.session, &options, &answer));
        assert_int_equal(1, answer.computed); /* the last token of the prompt */
        assert_int_equal(2, salvo_chat_messages(chat).count);
        assert_content(last_message(chat), "assistant", said.text, said.size);
        assert_int_equal(said.size, again.size);

        /* Cancelled before the first token: the old answer stays. */
        again = (struct said){0};
        salvo_session_cancel(fixture.session);
        ASSERT_OK(salvo_chat_answer(chat, fixture.session, &options, &answer));
        assert_int_equal(SALVO_FINISH_CANCELLED, answer.finish);
        assert_int_equal(0, answer.kept);
        assert_content(last_message(chat), "assistant", said.text, said.size);

        /* Cancelled later: the part that came is the answer. */
        ASSERT_OK(salvo_session_set_bias(fixture.session, 'x', 1e6f));
        again.cancelled = fixture.session;
        options.ahead = 1;
        ASSERT_OK(salvo_chat_answer(chat, fixture.session, &options, &answer));
        assert_int_equal(SALVO_FINISH_CANCELLED, answer.finish);
        assert_int_equal(1, answer.kept);
        assert_content(last_message(chat), "assistant", "x", 1);
        salvo_chat_close(chat);
        fixture_close(&fixture);
    }
}

static void messages_change_freely(void **state)
{
    (void)state;
    struct fixture fixture = open_engine("rwkv7-tiny", 1024, 1);
    struct salvo_chat *chat = open_chat(&fixture, SALVO_ON_FULL_STOP);
    struct said said = {0}, other = {0};
    assert_int_equal(0, salvo_chat_question(chat));
    ask(chat, fixture.session, "hello", &said, 8);
    const uint32_t before = salvo_session_position(fixture.session);
    ask(chat, fixture.session, "and more", &other, 8);
    assert_int_equal(2, salvo_chat_question(chat));
    salvo_chat_cut(chat, salvo_chat_question(chat));
    assert_int_equal(2, salvo_chat_messages(chat).count);
    struct salvo_answer answer = ask(chat, fixture.session, "something else", &other, 8);
    assert_true(answer.reused + 2 >= before);
    assert_same_as_alone(&fixture, "rwkv7-tiny", answer.tokens);

    ASSERT_OK(salvo_chat_set_system(chat, "Be kind.", 8));
    assert_content(salvo_chat_messages(chat).items[0], "system", "Be kind.", 8);
    ASSERT_OK(salvo_chat_set_system(chat, "Be", 2));
    assert_content(salvo_chat_messages(chat).items[0], "system", "Be", 2);
    assert_int_equal(5, salvo_chat_messages(chat).count);
    answer = ask(chat, fixture.session, "z", &other, 8);
    assert_same_as_alone(&fixture, "rwkv7-tiny", answer.tokens);
    ASSERT_OK(salvo_chat_set_system(chat, NULL, 0));
    assert_string_equal("user", salvo_chat_messages(chat).items[0].role);
    ASSERT_OK(salvo_chat_set_system(chat, "", 0));
    assert_int_equal(6, salvo_chat_messages(chat).count);
    salvo_chat_close(chat);
    fixture_close(&fixture);
}

static void stop_strings_end_an_answer(void **state)
{
    (void)state;
    struct fixture fixture = open_engine("llama-tiny", 1024, 1);
    struct salvo_chat *chat = open_chat(&fixture, SALVO_ON_FULL_STOP);
    struct said said = {0};
    const char *stops[] = {"xxxxx"};
    struct salvo_answer_options options = options_of(&said, 4);
    struct salvo_answer answer = SALVO_ANSWER_INIT;
    options.stop_strings = stops;
    options.stop_count = 1;
    ASSERT_OK(salvo_session_set_bias(fixture.session, 'x', 1e6f));
    add(chat, "user", "hello");
    ASSERT_OK(salvo_chat_answer(chat, fixture.session, &options, &answer));
    assert_int_equal(SALVO_FINISH_LENGTH, answer.finish);
    assert_content(last_message(chat), "assistant", "xxxx", 4); /* held back, and not a stop string */
    assert_int_equal(4, said.size);

    said = (struct said){0};
    options.max_tokens = 9;
    options.again = 1;
    ASSERT_OK(salvo_chat_answer(chat, fixture.session, &options, &answer));
    assert_int_equal(SALVO_FINISH_STOP, answer.finish);
    assert_int_equal(5, answer.tokens);
    assert_content(last_message(chat), "assistant", "", 0);

    said = (struct said){.most = 3};
    options.stop_count = 0;
    ASSERT_OK(salvo_chat_answer(chat, fixture.session, &options, &answer));
    assert_int_equal(SALVO_FINISH_CALLBACK, answer.finish);
    assert_content(last_message(chat), "assistant", "xxx", 3);

    said = (struct said){0}; /* the beginning of a character is never shown */
    ASSERT_OK(salvo_session_set_bias(fixture.session, 'x', 0));
    ASSERT_OK(salvo_session_set_bias(fixture.session, 0xc3, 1e6f));
    options.max_tokens = 1;
    ASSERT_OK(salvo_chat_answer(chat, fixture.session, &options, &answer));
    assert_int_equal(0, said.size);
    assert_content(last_message(chat), "assistant", "", 0);
    salvo_chat_close(chat);
    fixture_close(&fixture);
}

static void a_full_context_stops_or_slides(void **state)
{
    (void)state;
    struct fixture fixture = open_engine("llama-tiny", 100, 1);
    struct salvo_chat *stop = open_chat(&fixture, SALVO_ON_FULL_STOP),
                      *slide = open_chat(&fixture, SALVO_ON_FULL_SLIDE);
    struct said said = {0};
    struct salvo_answer answer = SALVO_ANSWER_INIT;
    ASSERT_OK(salvo_session_set_bias(fixture.session, 'x', 1e6f));
    answer = ask(stop, fixture.session, "hello", &said, 0);
    assert_int_equal(SALVO_FINISH_CONTEXT, answer.finish);
    assert_int_equal(100, salvo_session_position(fixture.session));
    add(stop, "user", "more");
    assert_int_equal(SALVO_ERROR_CONTEXT, salvo_chat_answer(stop, fixture.session, NULL, &answer));
    assert_non_null(strstr(salvo_error(), "the context is full"));
    assert_int_equal(3, salvo_chat_messages(stop).count);

    ASSERT_OK(salvo_chat_set_system(slide, "S", 1));
    for (int turn = 0; turn < 3; turn++)
        ask(slide, fixture.session, "hello", &said, 5);
    assert_int_equal(7, salvo_chat_messages(slide).count);
    said = (struct said){0};
    answer = ask(slide, fixture.session, "long", &said, 50);
    assert_int_equal(SALVO_FINISH_LENGTH, answer.finish);
    assert_int_equal(50, said.size);
    assert_true(answer.dropped > 0);
    assert_int_equal(9 - 2 * answer.dropped, salvo_chat_messages(slide).count);
    assert_content(salvo_chat_messages(slide).items[0], "system", "S", 1);
    assert_string_equal("user", salvo_chat_messages(slide).items[1].role);

    char large[201];
    memset(large, 'y', 200);
    large[200] = 0;
    const size_t before = salvo_chat_messages(slide).count;
    add(slide, "user", large);
    assert_int_equal(SALVO_ERROR_CONTEXT, salvo_chat_answer(slide, fixture.session, NULL, &answer));
    assert_non_null(strstr(salvo_error(), "does not fit"));
    assert_int_equal(before + 1, salvo_chat_messages(slide).count);
    salvo_chat_close(stop);
    salvo_chat_close(slide);
    fixture_close(&fixture);
}

static void a_conversation_is_saved(void **state)
{
    (void)state;
    char path[] = "/tmp/salvo-conversation-XXXXXX";
    close(mkstemp(path));
    for (size_t i = 0; i < 2; i++) {
        struct fixture fixture = open_engine(shapes[i], 1024, 1), second = open_engine(shapes[i], 1024, 1);
        struct salvo_chat *chat = open_chat(&fixture, SALVO_ON_FULL_STOP),
                          *loaded = open_chat(&second, SALVO_ON_FULL_STOP);
        struct said said = {0};
        ask(chat, fixture.session, "hello", &said, 8);
        const uint32_t before = salvo_session_position(fixture.session);
        ask(chat, fixture.session, "a secret", &said, 8);
        salvo_chat_cut(chat, 2);
        assert_int_not_equal(SALVO_OK, salvo_chat_save_file(chat, fixture.session, path, false));
        ASSERT_OK(salvo_chat_save_file(chat, fixture.session, path, true));
        ASSERT_OK(salvo_chat_load_file(loaded, second.session, path));
        assert_int_equal(2, salvo_chat_messages(loaded).count);
        /* The end of the answer, and not the secret, is in the file. */
        assert_in_range(salvo_session_position(second.session), before, before + 2);
        said = (struct said){0};
        struct salvo_answer answer = ask(loaded, second.session, "more", &said, 8);
        assert_true(answer.reused + 4 >= before);
        assert_same_as_alone(&second, shapes[i], answer.tokens);

        assert_int_not_equal(SALVO_OK, salvo_chat_load_file(loaded, second.session, "/nonexistent"));
        assert_int_equal(4, salvo_chat_messages(loaded).count);
        assert_int_equal(
            SALVO_ERROR_ARGUMENT, salvo_chat_load_file(loaded, fixture.session, path)); /* another model */
        assert_int_equal(SALVO_ERROR_ARGUMENT, salvo_chat_save_file(loaded, fixture.session, path, true));
        assert_int_equal(SALVO_ERROR_ARGUMENT, salvo_chat_answer(loaded, fixture.session, NULL, NULL));
        salvo_chat_close(chat);
        salvo_chat_close(loaded);
        fixture_close(&second);
        fixture_close(&fixture);
    }
    unlink(path);
}

/* ---- With a scheduler ---- */

struct request {
    int32_t ids[64];
    uint32_t count, cached;
    sem_t ended;
};

static void on_event(void *user, const struct salvo_event *event)
{
    struct request *request = user;
    if (event->kind == SALVO_EVENT_TOKEN)
        request->ids[request->count++] = event->id;
    if (event->kind == SALVO_EVENT_END) {
        request->cached = event->cached_tokens;
        sem_post(&request->ended);
    }
}

/* The generated tokens spell "hello" by letters, where the tokenizer has one token: the next prompt keeps the
 * letters, and the prefix cache finds them. */
static void prompts_for_a_scheduler_keep_tokens(void **state)
{
    (void)state;
    static const int32_t letters[] = {'h', 'e', 'l', 'l', 'o'};
    struct fixture fixture = open_engine("llama-tiny", 1024, 2);
    struct salvo_chat *chat = open_chat(&fixture, SALVO_ON_FULL_STOP);
    struct salvo_scheduler *scheduler;
    const struct salvo_sampler greedy = SALVO_SAMPLER_INIT;
    int32_t *first, *second;
    size_t first_count, second_count;
    salvo_session_close(fixture.session);
    fixture.session = NULL;
    ASSERT_OK(salvo_scheduler_open(fixture.engine, NULL, &scheduler));
    add(chat, "user", "a question of more than sixteen tokens");
    ASSERT_OK(salvo_chat_prompt(chat, 1024, &first, &first_count));
    ASSERT_OK(salvo_chat_take(chat, letters, 5, "hello", 5));
    assert_content(last_message(chat), "assistant", "hello", 5);
    add(chat, "user", "more");
    ASSERT_OK(salvo_chat_prompt(chat, 1024, &second, &second_count));
    assert_true(second_count > first_count + 5);
    assert_memory_equal(first, second, first_count * sizeof *first);
    assert_memory_equal(letters, second + first_count, sizeof letters);

    struct request requests[2] = {0};
    for (size_t i = 0; i < 2; i++) {
        struct salvo_request request = SALVO_REQUEST_INIT;
        uint64_t handle;
        sem_init(&requests[i].ended, 0, 0);
        request.ids = second;
        request.count = i ? second_count : first_count + 5;
        request.sampler = &greedy;
        request.max_tokens = 1;
        request.event = on_event;
        request.user = &requests[i];
        ASSERT_OK(salvo_scheduler_submit(scheduler, &request, &handle));
        sem_wait(&requests[i].ended);
        sem_destroy(&requests[i].ended);
    }
    assert_int_equal(0, requests[0].cached);
    assert_int_equal(first_count + 5, requests[1].cached);
    salvo_scheduler_close(scheduler);
    salvo_free(first);

    const int32_t wrong[] = {-1};
    assert_int_equal(SALVO_ERROR_ARGUMENT, salvo_chat_take(chat, wrong, 1, "x", 1));
    assert_int_equal(SALVO_ERROR_CONTEXT, salvo_chat_prompt(chat, 20, &first, &first_count));
    assert_null(first);
    assert_int_equal(3, salvo_chat_messages(chat).count);
    salvo_free(second);
    salvo_chat_close(chat);
    fixture_close(&fixture);
}

/* Two conversations take turns in one session: the prefix cache has the tokens of the other one. */
static void the_prefix_cache_serves_sessions(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct fixture fixture = open_engine(shapes[i], 1024, 2);
        struct salvo_chat *chats[] = {
            open_chat(&fixture, SALVO_ON_FULL_STOP), open_chat(&fixture, SALVO_ON_FULL_STOP)};
        static const char *const topics[] = {
            "this is about the first of two topics", "quite another one here"};
        uint64_t held[2] = {0};
        for (uint32_t turn = 0; turn < 6; turn++) {
            struct said said = {0};
            struct salvo_answer answer = ask(chats[turn % 2], fixture.session, topics[turn % 2], &said, 8);
            assert_true(answer.reused + 2 >= held[turn % 2]);
            held[turn % 2] = salvo_session_position(fixture.session);
            assert_same_as_alone(&fixture, shapes[i], answer.tokens);
        }
        salvo_chat_close(chats[0]);
        salvo_chat_close(chats[1]);
        fixture_close(&fixture);
    }
}

/* ---- Which tokens stay ---- */

static void assert_overlap(const struct fixture *fixture, const int32_t *held, size_t held_count,
    const char *text, unsigned flags, size_t kept, size_t next)
{
    const struct tokenizer *tokenizer;
    struct token_overlap overlap;
    int32_t *ids;
    size_t count;
    ASSERT_OK(salvo_tokenize(fixture->model, text, strlen(text), flags, &ids, &count));
    ASSERT_OK(model_tokenizer(fixture->model, &tokenizer));
    ASSERT_OK(token_overlap_find(tokenizer, held, held_count, ids, count, &overlap));
    assert_int_equal(kept, overlap.kept);
    assert_int_equal(next, overlap.next);
    salvo_free(ids);
}

/* `hello` is held letter by letter; the tokenizer would have made one token of it. */
static void tokens_with_the_same_text_stay(void **state)
{
    (void)state;
    struct fixture fixture = open_engine("llama-tiny", 0, 1);
    const int32_t held[] = {'x', 'h', 'e', 'l', 'l', 'o', '!'};
    assert_overlap(&fixture, held, 7, "xhello! and more", 0, 7, 3);
    assert_overlap(&fixture, held, 7, "xhello?", 0, 6, 2);
    assert_overlap(&fixture, held, 7, "xhello", 0, 1, 1); /* the last one is always to be computed */
    assert_overlap(&fixture, held, 7, "xhelp", 0, 4, 3);  /* x, he, l, p */
    assert_overlap(&fixture, held, 7, "y", 0, 0, 0);
    assert_overlap(&fixture, NULL, 0, "y", 0, 0, 0);
    fixture_close(&fixture);
}

/* A message that spells a control token, or one that a template may use like one, keeps no such token. */
static void control_tokens_are_no_text(void **state)
{
    (void)state;
    struct fixture fixture = open_engine("llama-tiny", 0, 1);
    int32_t *held;
    size_t count;
    ASSERT_OK(salvo_tokenize(fixture.model, "a<|im_start|>b", 14, SALVO_TOKENIZE_SPECIAL, &held, &count));
    assert_int_equal(3, count);
    assert_overlap(&fixture, held, count, "a<|im_start|>b", 0, 1, 1);
    assert_overlap(&fixture, held, count, "a<|im_start|>bc", SALVO_TOKENIZE_SPECIAL, 3, 3);
    salvo_free(held);
    const struct tokenizer *tokenizer;
    const int32_t defined[] = {'a', 265, 'b'}, spelled[] = {'a', '<', 't', 'o', 'o', 'l', '>', 'b', 'c'};
    struct token_overlap overlap;
    ASSERT_OK(model_tokenizer(fixture.model, &tokenizer));
    assert_true(tokenizer_is_user_defined(tokenizer, defined[1]));
    ASSERT_OK(token_overlap_find(tokenizer, defined, 3, spelled, 9, &overlap));
    assert_int_equal(1, overlap.kept);
    fixture_close(&fixture);
}

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    struct fixture fixture = open_engine("llama-tiny", 256, 1);
    struct salvo_chat_options options = SALVO_CHAT_OPTIONS_INIT;
    struct salvo_chat *chat;
    struct salvo_answer answer = {0};
    const struct salvo_message nothing = {.role = "user", .content = {NULL, 3}};
    options.on_full = 2;
    assert_int_equal(SALVO_ERROR_ARGUMENT, salvo_chat_open(fixture.model, &options, &chat));
    assert_null(chat);
    options = (struct salvo_chat_options){.size = sizeof options, .chat_template = {"{% if", 5}};
    assert_int_not_equal(SALVO_OK, salvo_chat_open(fixture.model, &options, &chat));
    options.chat_template = (struct salvo_text){0};
    options.json = (struct salvo_text){NULL, 4};
    assert_int_equal(SALVO_ERROR_ARGUMENT, salvo_chat_open(fixture.model, &options, &chat));
    chat = open_chat(&fixture, SALVO_ON_FULL_STOP);
    assert_int_equal(SALVO_ERROR_ARGUMENT, salvo_chat_add(chat, &nothing, 1, sizeof nothing));
    assert_int_equal(SALVO_ERROR_ARGUMENT, salvo_chat_add(chat, &nothing, 1, 0));
    assert_int_equal(
        SALVO_ERROR_ARGUMENT, salvo_chat_answer(chat, fixture.session, NULL, &answer)); /* size */
    assert_int_equal(SALVO_ERROR_ARGUMENT, salvo_chat_answer(chat, NULL, NULL, NULL));
    assert_int_equal(0, salvo_chat_messages(chat).count);
    salvo_chat_close(chat);

    options = (struct salvo_chat_options){.size = sizeof options,
        .chat_template = {"{{ raise_exception('no system') if messages[0].role == 'system' }}x", 69}};
    options.chat_template.size = strlen(options.chat_template.data);
    ASSERT_OK(salvo_chat_open(fixture.model, &options, &chat));
    assert_int_not_equal(SALVO_OK, salvo_chat_set_system(chat, "S", 1));
    assert_non_null(strstr(salvo_error(), "refuses the system message"));
    assert_int_equal(0, salvo_chat_messages(chat).count);
    salvo_chat_close(chat);
    salvo_chat_close(NULL);
    salvo_chat_cut(NULL, 0);
    assert_int_equal(0, salvo_chat_messages(NULL).count);
    fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_new_tokens_are_computed),
        cmocka_unit_test(an_answer_is_generated_again),
        cmocka_unit_test(messages_change_freely),
        cmocka_unit_test(stop_strings_end_an_answer),
        cmocka_unit_test(a_full_context_stops_or_slides),
        cmocka_unit_test(a_conversation_is_saved),
        cmocka_unit_test(prompts_for_a_scheduler_keep_tokens),
        cmocka_unit_test(the_prefix_cache_serves_sessions),
        cmocka_unit_test(tokens_with_the_same_text_stay),
        cmocka_unit_test(control_tokens_are_no_text),
        cmocka_unit_test(wrong_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
