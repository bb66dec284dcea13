/* Constrained texts on an asynchronous device: masks are made while it computes, and the texts equal the
 * CPU's texts. */
#include "../../tools/command.h"
#include "../../tools/constrained.h"
#include "../../tools/interrupt.h"
#include "cmocka_test.h"
#include "engine/engine.h"
#include "engine_fixture.h"
#include "models/busy_device.h"

#include <string.h>

enum { CONTEXT = 64, ROOM = 256 };

static struct salvo_engine *engine;
static unsigned masks, behind; /* made in all, and made while a step was open */

enum salvo_status __real_salvo_grammar_matcher_mask(
    struct salvo_grammar_matcher *matcher, uint32_t *mask, size_t words);
enum salvo_status __wrap_salvo_grammar_matcher_mask(
    struct salvo_grammar_matcher *matcher, uint32_t *mask, size_t words);

enum salvo_status __wrap_salvo_grammar_matcher_mask(
    struct salvo_grammar_matcher *matcher, uint32_t *mask, size_t words)
{
    masks++;
    behind += engine->batch.last_ticket > engine->batch.completed;
    return __real_salvo_grammar_matcher_mask(matcher, mask, words);
}

/* ---- Parts of the program that constrained.c calls ---- */

static char written[ROOM];
static size_t size_written;

int failure(const char *format, ...)
{
    print_error("%s\n", format);
    return EXIT_FAILED;
}

int library_failure(void)
{
    print_error("%s\n", salvo_error());
    return EXIT_FAILED;
}

bool interrupt_pending(void)
{
    return false;
}

bool text_output_token(void *user, int32_t id, const char *data, size_t size)
{
    (void)user;
    (void)id;
    assert_true(size_written + size < ROOM);
    memcpy(written + size_written, data, size);
    size_written += size;
    return true;
}

/* ---- Tests ---- */

struct made {
    char text[ROOM];
    struct salvo_generate_result result;
    uint32_t position;
};

static struct made make_text(const char *shape, const char *regex, uint32_t max_tokens, bool busy)
{
    struct made made = {.result = SALVO_GENERATE_RESULT_INIT};
    struct fixture fixture = fixture_open(made_model_with_vocabulary(shape, "F32"),
        (struct salvo_engine_options){
            .size = sizeof(struct salvo_engine_options), .backend = "cpu", .context = CONTEXT, .threads = 2});
    engine = fixture.engine;
    if (busy)
        busy_device_install(engine);
    struct constrained constrained = {
        .model = fixture.model, .engine = engine, .session = fixture.session, .max_tokens = max_tokens};
    const struct salvo_sampler sampler = {
        .size = sizeof sampler, .temperature = 1, .top_p = 1, .repeat_penalty = 1, .seed = 7};
    const int32_t first = 5;
    size_written = masks = behind = 0;
    ASSERT_OK(salvo_session_set_sampler(fixture.session, &sampler));
    ASSERT_OK(salvo_grammar_compile(
        fixture.model, SALVO_GRAMMAR_REGEX, regex, strlen(regex), NULL, &constrained.grammar));
    assert_int_equal(EXIT_DONE, generate_constrained(&constrained, first, &made.result));
    memcpy(made.text, written, size_written);
    made.position = salvo_session_position(fixture.session);
    salvo_grammar_free(constrained.grammar);
    fixture_close(&fixture);
    return made;
}

static void masks_are_made_while_the_device_computes(void **state)
{
    (void)state;
    static const char *const shapes[] = {"llama-tiny", "rwkv7-tiny"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct made made = make_text(shapes[i], "[a-z]{12}", 0, true);
        assert_int_equal(12, strlen(made.text));
        assert_int_equal(12, strspn(made.text, "abcdefghijklmnopqrstuvwxyz"));
        assert_true(masks > 4);
        assert_int_equal(masks, behind);
    }
}

/* Texts with and without forced parts; ends by the grammar, by the limit of tokens and by the context. */
static void texts_are_those_of_the_cpu(void **state)
{
    (void)state;
    static const struct {
        const char *regex;
        uint32_t max_tokens;
        uint32_t finish;
    } cases[] = {
        {"[a-z]{5}", 0, SALVO_FINISH_END},
        {"[a-c]x: always the same[0-9]{3}", 0, SALVO_FINISH_END},
        {"[a-z]{20}", 4, SALVO_FINISH_LENGTH},
        {"[a-z]{1,3}", 1, SALVO_FINISH_LENGTH},
        {"[0-9]{100}", 0, SALVO_FINISH_CONTEXT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int recurrent = 0; recurrent < 2; recurrent++) {
            const char *shape = recurrent ? "rwkv7-tiny" : "llama-tiny";
            const struct made cpu = make_text(shape, cases[i].regex, cases[i].max_tokens, false),
                              busy = make_text(shape, cases[i].regex, cases[i].max_tokens, true);
            assert_string_equal(cpu.text, busy.text);
            assert_int_equal(cpu.result.tokens, busy.result.tokens);
            assert_int_equal(cpu.position, busy.position);
            assert_int_equal(1 + cpu.result.tokens, cpu.position); /* every token of the text is computed */
            assert_int_equal(cases[i].finish, cpu.result.finish);
            assert_int_equal(cases[i].finish, busy.result.finish);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_are_made_while_the_device_computes),
        cmocka_unit_test(texts_are_those_of_the_cpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
