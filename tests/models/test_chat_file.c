/* Conversations in files: loaded messages, tokens that need not be computed again, and refused files. */
#include "cmocka_test.h"
#include "engine_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[64];

static const struct salvo_message messages[] = {
    {.role = "system", .content = {"Be kind.", 8}},
    {.role = "user", .content = {"a\0b\n\xf0\x9f\x8c\x8a", 8}},
    {.role = "assistant", .content = {"", 0}, .json = "{\"tool_calls\": []}"},
};
enum { COUNT = sizeof messages / sizeof *messages };

static struct fixture open_shape(const char *shape)
{
    return fixture_open(made_model(shape, "Q8_0"),
        (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options)});
}

static void assert_messages(const struct salvo_messages *got)
{
    assert_non_null(got);
    assert_int_equal(COUNT, got->count);
    for (size_t i = 0; i < COUNT; i++) {
        assert_string_equal(messages[i].role, got->items[i].role);
        assert_int_equal(messages[i].content.size, got->items[i].content.size);
        assert_memory_equal(messages[i].content.data, got->items[i].content.data, messages[i].content.size);
        if (messages[i].json)
            assert_string_equal(messages[i].json, got->items[i].json);
        else
            assert_null(got->items[i].json);
    }
}

static void a_conversation_goes_on(void **state)
{
    (void)state;
    static const char *const shapes[] = {"llama-tiny", "rwkv7-tiny"};
    for (size_t i = 0; i < 2; i++) {
        struct fixture first = open_shape(shapes[i]), second = open_shape(shapes[i]);
        struct salvo_messages *got;
        int32_t *ids = some_ids(40, first.vocabulary, 3), want, id;
        ASSERT_OK(salvo_session_feed(first.session, ids, 40));
        ASSERT_OK(
            salvo_session_chat_save_file(first.session, messages, COUNT, sizeof(struct salvo_message), path));
        ASSERT_OK(salvo_session_chat_load_file(second.session, path, &got));
        assert_messages(got);
        salvo_free(got);
        assert_int_equal(40, salvo_session_position(second.session));
        for (int j = 0; j < 5; j++) {
            ASSERT_OK(salvo_session_next(first.session, &want));
            ASSERT_OK(salvo_session_next(second.session, &id));
            assert_int_equal(want, id);
        }
        assert_int_equal(4, counters_of(second.engine).tokens); /* the first one was chosen before */

        ASSERT_OK(salvo_session_rollback(second.session, 0));
        ASSERT_OK(salvo_session_state_load_file(second.session, path)); /* as a state alone */
        assert_int_equal(40, salvo_session_position(second.session));
        free(ids);
        fixture_close(&second);
        fixture_close(&first);
    }
    unlink(path);
}

static void nobody_has_said_anything_yet(void **state)
{
    (void)state;
    struct fixture fixture = open_shape("llama-tiny");
    struct salvo_messages *got;
    ASSERT_OK(salvo_session_chat_save_file(fixture.session, NULL, 0, sizeof(struct salvo_message), path));
    ASSERT_OK(salvo_session_chat_load_file(fixture.session, path, &got));
    assert_int_equal(0, got->count);
    salvo_free(got);
    fixture_close(&fixture);
    unlink(path);
}

static void assert_refused(struct fixture *fixture, const char *words)
{
    struct salvo_messages *got = (void *)path;
    assert_true(salvo_session_chat_load_file(fixture->session, path, &got) != SALVO_OK);
    assert_null(got);
    if (!strstr(salvo_error(), words) || !strstr(salvo_error(), path))
        fail_msg("'%s' does not say '%s' of %s", salvo_error(), words, path);
    assert_int_equal(20, salvo_session_position(fixture->session));
}

static void what_is_no_conversation_is_refused(void **state)
{
    (void)state;
    struct fixture fixture = open_shape("llama-tiny"), other = open_shape("rwkv7-tiny");
    int32_t *ids = some_ids(20, fixture.vocabulary, 1);
    ASSERT_OK(salvo_session_feed(fixture.session, ids, 20));
    ASSERT_OK(salvo_session_feed(other.session, ids, 20));
    ASSERT_OK(
        salvo_session_chat_save_file(fixture.session, messages, COUNT, sizeof(struct salvo_message), path));
    assert_refused(&other, "another model");

    static char bytes[1 << 20];
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    const size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    const size_t state_size = salvo_session_state_size(fixture.session);
    assert_true(size > state_size && size < sizeof bytes);

    /* Every byte counts, and so does each that is missing. */
    for (size_t i = state_size; i < size; i++) {
        bytes[i] ^= 4;
        write_file(path, bytes, size);
        assert_refused(&fixture, i < state_size + 8 ? "bytes follow" : "conversation");
        bytes[i] ^= 4;
        write_file(path, bytes, i);
        assert_refused(&fixture, i == state_size ? "without a conversation" : "");
    }
    write_file(path, bytes, state_size / 2);
    assert_refused(&fixture, "cut");
    bytes[state_size / 2] ^= 1; /* of the state, not of the messages */
    write_file(path, bytes, size);
    assert_refused(&fixture, "damaged");
    bytes[state_size / 2] ^= 1;
    write_file(path, bytes, size + 1);
    assert_refused(&fixture, "damaged");
    write_file(path, "hello", 5);
    assert_refused(&fixture, "too few");
    free(ids);
    fixture_close(&other);
    fixture_close(&fixture);
    unlink(path);
}

/* The messages of one file behind the state of another. */
static void parts_cannot_be_exchanged(void **state)
{
    (void)state;
    struct fixture fixture = open_shape("llama-tiny");
    static char first[1 << 20], second[1 << 20];
    int32_t *ids = some_ids(40, fixture.vocabulary, 1);
    size_t size = 0;
    for (int i = 0; i < 2; i++) {
        ASSERT_OK(salvo_session_rollback(fixture.session, 0));
        ASSERT_OK(salvo_session_feed(fixture.session, ids + i * 20, 20));
        ASSERT_OK(salvo_session_chat_save_file(
            fixture.session, messages, COUNT, sizeof(struct salvo_message), path));
        FILE *file = fopen(path, "rb");
        assert_non_null(file);
        size = fread(i ? second : first, 1, sizeof first, file);
        fclose(file);
    }
    const size_t state_size = salvo_session_state_size(fixture.session);
    memcpy(first + state_size, second + state_size, size - state_size);
    write_file(path, first, size);
    assert_refused(&fixture, "conversation is damaged");
    free(ids);
    fixture_close(&fixture);
    unlink(path);
}

/* A recurrent session goes back to a mark for the price of one token. */
static void marks_make_going_back_cheap(void **state)
{
    (void)state;
    struct fixture fixture = open_shape("rwkv7-tiny");
    int32_t *ids = some_ids(60, fixture.vocabulary, 5), want, got;
    ASSERT_OK(salvo_session_feed(fixture.session, ids, 40));
    ASSERT_OK(salvo_session_mark(fixture.session));
    ASSERT_OK(salvo_session_mark(fixture.session)); /* twice is once */
    ASSERT_OK(salvo_session_feed(fixture.session, ids + 40, 1));
    ASSERT_OK(salvo_session_next(fixture.session, &want));
    ASSERT_OK(salvo_session_feed(fixture.session, ids + 41, 19));
    uint64_t before = counters_of(fixture.engine).tokens;
    ASSERT_OK(salvo_session_rollback(fixture.session, 41));
    ASSERT_OK(salvo_session_next(fixture.session, &got));
    assert_int_equal(want, got);
    assert_int_equal(1, counters_of(fixture.engine).tokens - before);
    free(ids);
    fixture_close(&fixture);
}

int main(void)
{
    snprintf(path, sizeof path, "/tmp/salvo-test-chat-%ld", (long)getpid());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_conversation_goes_on),
        cmocka_unit_test(nobody_has_said_anything_yet),
        cmocka_unit_test(what_is_no_conversation_is_refused),
        cmocka_unit_test(parts_cannot_be_exchanged),
        cmocka_unit_test(marks_make_going_back_cheap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
