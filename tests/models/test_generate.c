/* Generation: the reasons of its end, and the text that each callback receives. */
#include "cmocka_test.h"
#include "engine/text_filter.h"
#include "engine_fixture.h"
#include "unit/text_sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Text on its way ---- */

/* Pieces, and the text that was handed over after each of them. */
struct passage {
    const char *piece, *handed_over;
};

static void assert_passages(
    const char *const *stops, size_t stop_count, const struct passage *passages, bool stopped)
{
    struct text_filter filter = {.stop_strings = stops, .stop_count = stop_count};
    char text[256];
    size_t size = 0, ready;
    bool came = false;
    for (; passages->piece; passages++) {
        assert_false(came);
        ASSERT_OK(buffer_append(&filter.held, passages->piece, strlen(passages->piece)));
        came = text_filter_scan(&filter, &ready);
        memcpy(text + size, filter.held.data, ready);
        size += ready;
        text_filter_drop(&filter, ready);
        assert_int_equal(strlen(passages->handed_over), size);
        assert_memory_equal(passages->handed_over, text, size);
    }
    assert_int_equal(stopped, came);
    buffer_free(&filter.held);
}

#define STOPS(...) \
    (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)
#define PASSAGES(...)        \
    (const struct passage[]) \
    {                        \
        __VA_ARGS__,         \
        {                    \
            0                \
        }                    \
    }

static void stop_strings_are_held_back(void **state)
{
    (void)state;
    assert_passages(NULL, 0, PASSAGES({"ab", "ab"}, {"", "ab"}, {"c", "abc"}), false);
    assert_passages(STOPS("STOP"), PASSAGES({"a S", "a "}, {"TO", "a "}, {"P more", "a "}), true);
    assert_passages(STOPS("STOP"), PASSAGES({"xSTOPy", "x"}), true);
    assert_passages(STOPS("STOP"), PASSAGES({"ST", ""}, {"ONE", "STONE"}), false); /* it was none */
    assert_passages(STOPS("STOP"), PASSAGES({"STST", "ST"}, {"OP", "ST"}), true);
    assert_passages(STOPS("aab"), PASSAGES({"aaa", "a"}, {"a", "aa"}, {"b", "aa"}), true);
    assert_passages(
        STOPS("later", "so"), PASSAGES({"and so la", "and "}), true); /* the one that comes first */
    assert_passages(STOPS("abc", "b"), PASSAGES({"xab", "xa"}), true);
    assert_passages(
        STOPS("\n\n"), PASSAGES({"one\n", "one"}, {"two\n", "one\ntwo"}, {"\n", "one\ntwo"}), true);
}

/* The stop string that is complete first ends the text; among stop strings that end together, the longest. */
static size_t end_by_definition(const char *text, const char *const *stops, size_t stop_count, bool *stopped)
{
    const size_t size = strlen(text);
    *stopped = true;
    for (size_t end = 1; end <= size; end++) {
        size_t longest = 0;
        for (size_t i = 0; i < stop_count; i++) {
            const size_t length = strlen(stops[i]);
            if (length <= end && length > longest && memcmp(text + end - length, stops[i], length) == 0)
                longest = length;
        }
        if (longest)
            return end - longest;
    }
    *stopped = false;
    return size;
}

/* However the text is cut into pieces. Bit i of a cut: a piece ends after byte i. */
static void the_first_complete_stop_string_ends_the_text(void **state)
{
    (void)state;
    static const char *const stops[][3] = {{"abcd", "c"}, {"c", "abcd"}, {"bc", "abc"}, {"abc", "bc"},
        {"abab", "ba"}, {"bb", "b", "abb"}, {"dcb", "cab"}, {"aa", "aaa"}};
    static const char *const texts[] = {
        "xabcdx", "abababcd", "aabbccdd", "cababcab", "dcdcabaa", "xyz", "aabaac"};
    for (size_t s = 0; s < sizeof stops / sizeof *stops; s++) {
        const size_t stop_count = stops[s][2] ? 3 : 2;
        for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
            const size_t size = strlen(texts[t]);
            bool stopped;
            const size_t expected = end_by_definition(texts[t], stops[s], stop_count, &stopped);
            for (unsigned cut = 0; cut < 1u << (size - 1); cut++) {
                struct text_filter filter = {.stop_strings = stops[s], .stop_count = stop_count};
                size_t handed_over = 0, ready;
                bool came = false;
                for (size_t from = 0, to = 1; to <= size && !came; to++) {
                    if (to < size && !(cut >> (to - 1) & 1))
                        continue;
                    ASSERT_OK(buffer_append(&filter.held, texts[t] + from, to - from));
                    came = text_filter_scan(&filter, &ready);
                    assert_memory_equal(texts[t] + handed_over, filter.held.data, ready);
                    text_filter_drop(&filter, ready);
                    handed_over += ready;
                    from = to;
                }
                handed_over += came ? 0 : text_filter_end(&filter);
                buffer_free(&filter.held);
                if (came != stopped || handed_over != expected)
                    fail_msg("'%s' with stop strings %zu, cut %x: %zu bytes, not %zu", texts[t], s, cut,
                        handed_over, expected);
            }
        }
    }
}

static void characters_are_whole(void **state)
{
    (void)state;
    assert_passages(NULL, 0, PASSAGES({"a\xc3", "a"}, {"\xa4", "a\xc3\xa4"}), false);
    assert_passages(
        NULL, 0, PASSAGES({"\xf0", ""}, {"\x9f", ""}, {"\x8e", ""}, {"\x89!", "\xf0\x9f\x8e\x89!"}), false);
    assert_passages(NULL, 0, PASSAGES({"\xff\xfe", "\xff\xfe"}), false); /* never becomes a character */
    assert_passages(STOPS("\xc3\xa4!"), PASSAGES({"o\xc3", "o"}, {"\xa4", "o"}, {"?", "o\xc3\xa4?"}), false);
}

/* ---- Generation ---- */

struct collected {
    char text[4096];
    size_t size;
    unsigned calls, most_calls;
    struct salvo_session *cancel;
};

static bool collect(void *user, const char *text, size_t size)
{
    struct collected *collected = user;
    assert_true(size > 0);
    memcpy(collected->text + collected->size, text, size);
    collected->size += size;
    collected->calls++;
    if (collected->cancel && collected->calls == 3)
        salvo_session_cancel(collected->cancel);
    return collected->calls < collected->most_calls;
}

static struct collected generate(struct salvo_session *session, struct salvo_generate_options options,
    unsigned most_calls, struct salvo_generate_result *result)
{
    struct collected collected = {.most_calls = most_calls};
    options.text = collect;
    options.user = &collected;
    ASSERT_OK(salvo_session_generate(session, &options, result));
    return collected;
}

/* A session whose next ids are all `id`. */
static struct fixture open_forced(int32_t id, uint32_t context)
{
    struct fixture fixture = fixture_open(made_model_with_vocabulary("llama-tiny", "Q8_0"),
        (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options), .context = context});
    set_greedy(fixture.session);
    ASSERT_OK(salvo_session_set_bias(fixture.session, id, 1e6f));
    ASSERT_OK(salvo_session_feed(fixture.session, (const int32_t[]){'a', 'b', 'c'}, 3));
    return fixture;
}

static void ends_for_every_reason(void **state)
{
    (void)state;
    struct salvo_generate_result result = SALVO_GENERATE_RESULT_INIT;
    struct fixture fixture = open_forced(SAMPLE_HELLO, 30);
    struct collected text = generate(fixture.session,
        (struct salvo_generate_options){.size = sizeof(struct salvo_generate_options), .max_tokens = 4}, 100,
        &result);
    assert_int_equal(SALVO_FINISH_LENGTH, result.finish);
    assert_int_equal(4, result.tokens);
    assert_int_equal(4, text.calls);
    assert_memory_equal("hellohellohellohello", text.text, 20);
    assert_int_equal(7, salvo_session_position(fixture.session));

    const char *const stops[] = {"ohe"};
    text = generate(fixture.session,
        (struct salvo_generate_options){
            .size = sizeof(struct salvo_generate_options), .stop_strings = stops, .stop_count = 1},
        100, &result);
    assert_int_equal(SALVO_FINISH_STOP, result.finish);
    assert_int_equal(2, result.tokens);
    assert_int_equal(4, text.size);
    assert_memory_equal("hell", text.text, 4);

    generate(fixture.session, (struct salvo_generate_options){.size = sizeof(struct salvo_generate_options)},
        3, &result);
    assert_int_equal(SALVO_FINISH_CALLBACK, result.finish);
    assert_int_equal(3, result.tokens);

    struct collected cancelling = {.most_calls = 100, .cancel = fixture.session};
    ASSERT_OK(salvo_session_generate(fixture.session,
        &(struct salvo_generate_options){
            .size = sizeof(struct salvo_generate_options), .text = collect, .user = &cancelling},
        &result));
    assert_int_equal(SALVO_FINISH_CANCELLED, result.finish);
    assert_int_equal(3, result.tokens);

    generate(fixture.session, (struct salvo_generate_options){.size = sizeof(struct salvo_generate_options)},
        100, &result);
    assert_int_equal(SALVO_FINISH_CONTEXT, result.finish);
    assert_int_equal(30, salvo_session_position(fixture.session));
    assert_int_equal(30 - 3 - 4 - 2 - 3 - 3, result.tokens);
    generate(fixture.session, (struct salvo_generate_options){.size = sizeof(struct salvo_generate_options)},
        100, &result);
    assert_int_equal(SALVO_FINISH_CONTEXT, result.finish);
    assert_int_equal(0, result.tokens);
    fixture_close(&fixture);
    assert_string_equal("end", salvo_finish_name(SALVO_FINISH_END));
    assert_string_equal("cancelled", salvo_finish_name(SALVO_FINISH_CANCELLED));
}

static void end_tokens_end_and_are_not_counted(void **state)
{
    (void)state;
    struct salvo_generate_result result = SALVO_GENERATE_RESULT_INIT;
    struct fixture fixture = open_forced(SAMPLE_END, 30);
    for (int i = 0; i < 2; i++) { /* asked again, it ends again */
        struct collected text = generate(fixture.session,
            (struct salvo_generate_options){.size = sizeof(struct salvo_generate_options)}, 100, &result);
        assert_int_equal(SALVO_FINISH_END, result.finish);
        assert_int_equal(0, result.tokens + text.calls);
        assert_int_equal(3, salvo_session_position(fixture.session));
    }
    struct collected text = generate(fixture.session,
        (struct salvo_generate_options){
            .size = sizeof(struct salvo_generate_options), .ignore_end = true, .max_tokens = 2},
        100, &result);
    assert_int_equal(SALVO_FINISH_LENGTH, result.finish);
    assert_int_equal(2, result.tokens);
    assert_int_equal(0, text.calls); /* control tokens are not text */
    text = generate(fixture.session,
        (struct salvo_generate_options){.size = sizeof(struct salvo_generate_options),
            .ignore_end = true,
            .max_tokens = 1,
            .special = true},
        100, &result);
    assert_int_equal(strlen("<|im_end|>"), text.size);
    assert_memory_equal("<|im_end|>", text.text, text.size);
    fixture_close(&fixture);
}

/* The caller's own stop ids end the text even where end tokens do not, however many tokens are decoded ahead.
 */
static void stop_ids_hold_where_end_tokens_are_ignored(void **state)
{
    (void)state;
    struct salvo_generate_result result = SALVO_GENERATE_RESULT_INIT;
    struct fixture fixture = open_forced('x', 60);
    const int32_t stop_ids[] = {'y', 'x'};
    for (uint32_t ahead = 1; ahead < 10; ahead += 4) {
        generate(fixture.session,
            (struct salvo_generate_options){.size = sizeof(struct salvo_generate_options),
                .ignore_end = true,
                .stop_ids = stop_ids,
                .stop_id_count = 2,
                .ahead = ahead,
                .max_tokens = 5},
            100, &result);
        assert_int_equal(SALVO_FINISH_END, result.finish);
        assert_int_equal(0, result.tokens);
        generate(fixture.session,
            (struct salvo_generate_options){.size = sizeof(struct salvo_generate_options),
                .ignore_end = true,
                .stop_ids = stop_ids,
                .stop_id_count = 1,
                .ahead = ahead,
                .max_tokens = 5},
            100, &result);
        assert_int_equal(SALVO_FINISH_LENGTH, result.finish);
        assert_int_equal(5, result.tokens);
    }
    fixture_close(&fixture);
}

/* The beginning of a stop string that never becomes complete is passed on at the end. */
static void what_was_held_back_is_not_lost(void **state)
{
    (void)state;
    struct salvo_generate_result result = SALVO_GENERATE_RESULT_INIT;
    struct fixture fixture = open_forced('x', 30);
    const char *const stops[] = {"xxxxxxy"};
    struct collected text = generate(fixture.session,
        (struct salvo_generate_options){.size = sizeof(struct salvo_generate_options),
            .max_tokens = 5,
            .stop_strings = stops,
            .stop_count = 1},
        100, &result);
    assert_int_equal(1, text.calls);
    assert_int_equal(5, text.size);
    fixture_close(&fixture);

    fixture = open_forced(0xc3, 30);
    text = generate(fixture.session,
        (struct salvo_generate_options){.size = sizeof(struct salvo_generate_options), .max_tokens = 1}, 100,
        &result);
    assert_int_equal(0, text.size); /* half a character never comes */
    assert_int_equal(1, result.tokens);
    fixture_close(&fixture);

    fixture = open_forced(0xff, 30);
    text = generate(fixture.session,
        (struct salvo_generate_options){.size = sizeof(struct salvo_generate_options), .max_tokens = 1}, 100,
        &result);
    assert_int_equal(1, text.size); /* no beginning of one */
    assert_memory_equal("\xff", text.text, 1);
    fixture_close(&fixture);
}

struct cutting {
    const char *path;
    unsigned calls;
    bool had_zeros;
};

static bool cut_and_look(void *user, const char *text, size_t size)
{
    struct cutting *cutting = user;
    cutting->had_zeros |= memchr(text, 0, size) != NULL;
    return cutting->calls++ || truncate(cutting->path, 64) == 0;
}

/* The text of tokens is read from the mapped file: bytes that a truncated file lacks must not become
 * text. */
static void a_file_that_is_cut_gives_no_text(void **state)
{
    (void)state;
    char path[64];
    snprintf(path, sizeof path, "/tmp/salvo-generate-%ld.gguf", (long)getpid());
    write_model_with_vocabulary("llama-tiny", "Q8_0", path);
    struct fixture fixture =
        fixture_open(path, (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options)});
    struct cutting cutting = {.path = path};
    struct salvo_generate_result result = SALVO_GENERATE_RESULT_INIT;
    set_greedy(fixture.session);
    ASSERT_OK(salvo_session_set_bias(fixture.session, SAMPLE_HELLO, 1e6f));
    ASSERT_OK(salvo_session_feed(fixture.session, (const int32_t[]){'a', 'b', 'c'}, 3));
    assert_int_equal(
        SALVO_ERROR_IO, salvo_session_generate(fixture.session,
                            &(struct salvo_generate_options){.size = sizeof(struct salvo_generate_options),
                                .max_tokens = 9,
                                .text = cut_and_look,
                                .user = &cutting},
                            &result));
    assert_non_null(strstr(salvo_error(), "was cut"));
    assert_int_equal(1, cutting.calls);
    assert_false(cutting.had_zeros);
    fixture_close(&fixture);
    unlink(path);
}

/* Lists that are not there, lists of nothing, and no options at all. */
static void odd_options(void **state)
{
    (void)state;
    static const char *const nothing[] = {"x", NULL};
    static const int32_t id = 'x';
    const struct {
        struct salvo_generate_options options;
        const char *words;
    } wrong[] = {
        {{.stop_id_count = 3}, "list of 3 stop ids is NULL"},
        {{.stop_count = 2}, "list of 2 stop strings is NULL"},
        {{.stop_strings = nothing, .stop_count = 2}, "stop string 2 of 2 is NULL"},
    };
    struct fixture fixture = open_forced('x', 30);
    struct salvo_generate_result result = SALVO_GENERATE_RESULT_INIT;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct salvo_generate_options options = wrong[i].options;
        options.size = sizeof options;
        assert_int_equal(SALVO_ERROR_ARGUMENT, salvo_session_generate(fixture.session, &options, &result));
        assert_non_null(strstr(salvo_error(), wrong[i].words));
        assert_int_equal(3, salvo_session_position(fixture.session));
    }
    const struct salvo_generate_options empty = {.size = sizeof(struct salvo_generate_options),
        .stop_ids = &id,
        .stop_strings = nothing,
        .max_tokens = 2};
    ASSERT_OK(salvo_session_generate(fixture.session, &empty, &result));
    assert_int_equal(2, result.tokens);
    ASSERT_OK(salvo_session_generate(fixture.session, NULL, &result));
    assert_int_equal(SALVO_FINISH_CONTEXT, result.finish);
    assert_int_equal(30, salvo_session_position(fixture.session));
    fixture_close(&fixture);
}

static void models_without_vocabulary_say_so(void **state)
{
    (void)state;
    struct fixture fixture = fixture_open(made_model("llama-tiny", "Q8_0"),
        (struct salvo_engine_options){.size = sizeof(struct salvo_engine_options)});
    struct salvo_generate_result result = SALVO_GENERATE_RESULT_INIT;
    int32_t id;
    ASSERT_OK(salvo_session_feed(fixture.session, (const int32_t[]){1, 2, 3}, 3));
    assert_int_not_equal(SALVO_OK,
        salvo_session_generate(fixture.session,
            &(struct salvo_generate_options){.size = sizeof(struct salvo_generate_options)}, &result));
    assert_non_null(strstr(salvo_error(), "vocab"));
    ASSERT_OK(salvo_session_next(fixture.session, &id)); /* ids are to be had all the same */
    fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* First: cmocka takes the signal from all that come later. */
        cmocka_unit_test(a_file_that_is_cut_gives_no_text),
        cmocka_unit_test(stop_strings_are_held_back),
        cmocka_unit_test(the_first_complete_stop_string_ends_the_text),
        cmocka_unit_test(characters_are_whole),
        cmocka_unit_test(ends_for_every_reason),
        cmocka_unit_test(end_tokens_end_and_are_not_counted),
        cmocka_unit_test(stop_ids_hold_where_end_tokens_are_ignored),
        cmocka_unit_test(what_was_held_back_is_not_lost),
        cmocka_unit_test(odd_options),
        cmocka_unit_test(models_without_vocabulary_say_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
