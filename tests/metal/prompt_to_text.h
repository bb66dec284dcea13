/* Prompts that become text, and the command buffers that it takes, for tests of the Metal backend. */
#ifndef TESTS_PROMPT_TO_TEXT_H
#define TESTS_PROMPT_TO_TEXT_H

#include "metal/find_fake_metal.h"

static inline struct fixture open_on(const char *path, const char *backend)
{
    struct salvo_engine_options options = metal_options(1);
    options.backend = backend;
    struct fixture fixture = fixture_open(path, options);
    set_greedy(fixture.session);
    return fixture;
}

static inline void feed_text(const struct fixture *fixture, const char *text)
{
    int32_t *ids;
    size_t count;
    unsigned flags;
    ASSERT_OK(salvo_tokenize_default_flags(fixture->model, &flags));
    ASSERT_OK(salvo_tokenize(fixture->model, text, strlen(text), flags, &ids, &count));
    ASSERT_OK(salvo_session_feed(fixture->session, ids, (uint32_t)count));
    salvo_free(ids);
}

static inline void generate(const struct fixture *fixture, uint32_t count)
{
    struct salvo_generate_result result = SALVO_GENERATE_RESULT_INIT;
    ASSERT_OK(salvo_session_generate(fixture->session,
        &(struct salvo_generate_options){
            .size = sizeof(struct salvo_generate_options), .max_tokens = count, .ignore_end = true},
        &result));
    assert_int_equal(count, result.tokens);
}

/* The text of a greedy continuation by `count` tokens; freed by free. */
static inline char *continued(const struct fixture *fixture, const char *prompt, uint32_t count)
{
    char *bytes;
    size_t size;
    feed_text(fixture, prompt);
    const uint32_t first = salvo_session_position(fixture->session);
    for (uint32_t i = 0; i < count; i++)
        generate(fixture, 1); /* a step each: the times of early ones are known to later ones */
    ASSERT_OK(salvo_detokenize(
        fixture->model, salvo_session_tokens(fixture->session) + first, count, true, &bytes, &size));
    char *text = strndup(bytes, size);
    assert_non_null(text);
    salvo_free(bytes);
    return text;
}

/* As many tokens as one command buffer takes, once the device's time for a token is known. */
static inline void check_command_buffers(const struct fixture *fixture, uint32_t tokens, uint32_t expected)
{
    const uint64_t before = counters_of(fixture->engine).submissions;
    generate(fixture, tokens);
    assert_int_equal(expected, counters_of(fixture->engine).submissions - before);
}

#endif
