/* Real models on the Metal backend, from prompt to text, compared with published continuations. */
#include "metal/prompt_to_text.h"
#include "unit/text_data.h"

#include <stdio.h>
#include <unistd.h>

static void smollm2_knows_a_capital(void **state)
{
    (void)state;
    const char *path = default_model_path();
    if (!path)
        skip();
    fake_metal()->records_races = 0; /* other tests check for races, with smaller models */
    struct fixture fixture = open_on(path, "metal");
    char *text = continued(&fixture, "The capital of France is", 5);
    assert_string_equal(" Paris.\n\nThe", text);
    check_command_buffers(&fixture, 4, 1);
    free(text);
    fixture_close(&fixture);
    fake_metal()->records_races = 1;
}

/* Its weights as F16 change no id: the reference's margins are above 0.13. */
static void a_llama_of_halves_tells_its_story(void **state)
{
    (void)state;
    static const int32_t expected[] = {432, 383, 286, 261, 376, 298, 315, 421, 395, 317, 426, 338, 401, 396,
        267, 337, 410, 408, 419, 292, 411, 322, 265, 282, 295, 433, 426, 385, 328, 432};
    enum { COUNT = sizeof expected / sizeof *expected };
    const char *data = test_data_folder();
    if (!data)
        skip();
    char source[4096], halves[] = "/tmp/salvo-halves-XXXXXX";
    struct salvo_model *model;
    const int file = mkstemp(halves);
    assert_true(file >= 0);
    close(file);
    snprintf(source, sizeof source, "%s/stories260k/stories260K-f32.gguf", data);
    ASSERT_OK(salvo_model_open(source, &model));
    ASSERT_OK(salvo_quantize(model, halves,
        &(struct salvo_quantize_options){
            .size = sizeof(struct salvo_quantize_options), .type = "F16", .pure = 1, .threads = 1}));
    salvo_model_close(model);
    struct fixture fixture = open_on(halves, "metal");
    char *text = continued(&fixture, "Once upon a time", COUNT);
    const uint32_t first = salvo_session_position(fixture.session) - COUNT;
    assert_memory_equal(expected, salvo_session_tokens(fixture.session) + first, sizeof expected);
    assert_true(strncmp(text, ", there was a little girl", 25) == 0);
    free(text);
    check_command_buffers(&fixture, 24, 3);
    fixture_close(&fixture);
    unlink(halves);
}

static void an_rwkv_writes_what_the_cpu_writes(void **state)
{
    (void)state;
    const char *data = test_data_folder();
    char path[4096];
    if (!data)
        skip();
    snprintf(path, sizeof path, "%s/rwkv7-tiny/tiny-rwkv7-834k-f32.gguf", data);
    struct fixture fixture = open_on(path, "metal"), cpu = open_on(path, "cpu");
    char *ours = continued(&fixture, "\"in", 24), *theirs = continued(&cpu, "\"in", 24);
    assert_string_equal(theirs, ours);
    check_command_buffers(&fixture, 24, 3);
    free(ours);
    free(theirs);
    fixture_close(&fixture);
    fixture_close(&cpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_llama_of_halves_tells_its_story),
        cmocka_unit_test(an_rwkv_writes_what_the_cpu_writes),
        cmocka_unit_test(smollm2_knows_a_capital),
        cmocka_unit_test(nothing_is_left_and_no_rule_was_broken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
