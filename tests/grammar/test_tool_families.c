/* Tool calls of many families of models: the form of each is learned, its calls are read however they are cut
 * into pieces, and texts that fit its grammar are calls. */
#include "cmocka_test.h"
#include "test_random.h"
#include "tool_families.h"

#include <stdio.h>
#include <string.h>

enum { MOST_TEXT = 8000 };

/* The events of a parser for a text that arrives in pieces. */
struct seen {
    char text[3 * MOST_TEXT]; /* content, reasoning in (), calls in [], calls that are cut in <> */
    size_t size;
    size_t calls, arguments; /* arguments: pieces of the last call */
    char pieces[MOST_TEXT];  /* of its arguments */
    size_t pieces_size;
    uint32_t last;
    char kept[MOST_TEXT]; /* content and the texts of cut calls */
    size_t kept_size;
};

static void write_text(struct seen *seen, const char *text, size_t size)
{
    assert_true(seen->size + size < sizeof seen->text);
    if (size)
        memcpy(seen->text + seen->size, text, size);
    seen->size += size;
    seen->text[seen->size] = 0;
}

static void see(struct seen *seen, const struct salvo_tool_event *event)
{
    if (seen->last == SALVO_TOOL_REASONING && event->kind != SALVO_TOOL_REASONING)
        write_text(seen, ")", 1);
    if (event->kind == SALVO_TOOL_REASONING && seen->last != SALVO_TOOL_REASONING)
        write_text(seen, "(", 1);
    switch (event->kind) {
    case SALVO_TOOL_CALL:
        seen->pieces_size = seen->arguments = 0;
        break;
    case SALVO_TOOL_ARGUMENTS:
        assert_true(seen->pieces_size + event->text.size <= sizeof seen->pieces);
        memcpy(seen->pieces + seen->pieces_size, event->text.data, event->text.size);
        seen->pieces_size += event->text.size;
        seen->arguments++;
        break;
    case SALVO_TOOL_CALL_END:
        assert_int_equal(event->arguments.size, seen->pieces_size);
        assert_memory_equal(event->arguments.data, seen->pieces, seen->pieces_size);
        write_text(seen, "[", 1);
        write_text(seen, event->name.data, event->name.size);
        write_text(seen, " ", 1);
        write_text(seen, event->arguments.data, event->arguments.size);
        write_text(seen, "]", 1);
        seen->calls++;
        break;
    case SALVO_TOOL_CALL_CUT:
        write_text(seen, "<", 1);
        write_text(seen, event->text.data, event->text.size);
        write_text(seen, ">", 1);
        break;
    default:
        write_text(seen, event->text.data, event->text.size);
    }
    if (event->kind == SALVO_TOOL_CONTENT || event->kind == SALVO_TOOL_CALL_CUT) {
        assert_true(seen->kept_size + event->text.size < sizeof seen->kept);
        memcpy(seen->kept + seen->kept_size, event->text.data, event->text.size);
        seen->kept_size += event->text.size;
    }
    seen->last = event->kind;
}

static void parse(const struct salvo_tool_form *form, const char *text, size_t step, struct seen *seen)
{
    struct salvo_tool_parser *parser;
    struct salvo_tool_event event;
    const size_t size = strlen(text);
    *seen = (struct seen){0};
    assert_int_equal(
        salvo_tool_parser_open(form, tool_family_tools, strlen(tool_family_tools), &parser), SALVO_OK);
    for (size_t at = 0, piece; at < size; at += piece) {
        piece = size - at < step ? size - at : step;
        assert_int_equal(salvo_tool_parser_push(parser, text + at, piece, at + piece == size), SALVO_OK);
        do {
            assert_int_equal(salvo_tool_parser_next(parser, &event), SALVO_OK);
            if (event.kind != SALVO_TOOL_NOTHING)
                see(seen, &event);
        } while (event.kind != SALVO_TOOL_NOTHING);
    }
    if (seen->last == SALVO_TOOL_REASONING)
        write_text(seen, ")", 1);
    salvo_tool_parser_close(parser);
}

/* 1: the answer is complete, 0: it may go on to one, -1: it is not possible. */
static int fits(const struct salvo_tool_form *form, const struct salvo_tool_grammar_options *options,
    const char *answer, size_t size)
{
    struct salvo_grammar *grammar;
    struct salvo_grammar_matcher *matcher;
    assert_int_equal(
        salvo_tool_grammar(NULL, form, tool_family_tools, strlen(tool_family_tools), options, &grammar),
        SALVO_OK);
    assert_int_equal(salvo_grammar_matcher_new(grammar, &matcher), SALVO_OK);
    const enum salvo_status status = salvo_grammar_matcher_append(matcher, answer, size, NULL);
    const int result = status != SALVO_OK ? -1 : salvo_grammar_matcher_complete(matcher);
    salvo_grammar_matcher_free(matcher);
    salvo_grammar_free(grammar);
    return result;
}

static void forms_are_learned(void **state)
{
    (void)state;
    for (size_t i = 0; i < tool_family_count; i++) {
        struct salvo_tool_form *form = tool_family_open(tool_families[i].name);
        const struct salvo_tool_form_info *info = salvo_tool_form_info(form);
        print_message("%s\n", tool_families[i].name);
        assert_string_equal(info->name, tool_families[i].form);
        assert_int_equal(info->described, tool_families[i].described);
        assert_int_equal(info->writes_calls, strcmp(tool_families[i].name, "plain") != 0);
        assert_int_equal(info->content_is_null, strcmp(tool_families[i].name, "deepseek") == 0);
        assert_int_equal(info->id_has_name, strcmp(tool_families[i].name, "kimi") == 0);
        salvo_tool_form_close(form);
    }
}

static void answers_are_read(void **state)
{
    (void)state;
    static struct seen seen;
    for (size_t i = 0; i < tool_family_count; i++) {
        const struct tool_family *family = &tool_families[i];
        struct salvo_tool_form *form = tool_family_open(family->name);
        print_message("%s: %s\n", family->name, family->answer);
        for (size_t step = 1; step <= strlen(family->answer); step++) {
            parse(form, family->answer, step, &seen);
            assert_string_equal(seen.text, family->expected);
        }
        salvo_tool_form_close(form);
    }
}

/* Arguments are handed over as they arrive, not at their end. */
static void arguments_come_in_pieces(void **state)
{
    (void)state;
    static struct seen seen;
    static const char *const answers[][2] = {
        {"hermes",
            "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"place\": \"a long place\"}}\n</tool_call>"},
        {"qwen3_coder",
            "<tool_call>\n<function=look>\n<parameter=place>\na long place\n</parameter>\n</function>\n"
            "</tool_call>"},
        {"harmony", " to=functions.look<|channel|>commentary json<|message|>{\"place\": \"a long place\"}"},
        {"functionary_v32", "look\n{\"place\": \"a long place\"}"},
    };
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        struct salvo_tool_form *form = tool_family_open(answers[i][0]);
        parse(form, answers[i][1], 1, &seen);
        assert_string_equal(seen.text, "[look {\"place\": \"a long place\"}]");
        assert_true(seen.arguments >= strlen("a long place"));
        salvo_tool_form_close(form);
    }
}

/* An answer that ends anywhere keeps all of its text: content, and the text of a call that is cut. */
static void cut_answers_lose_nothing(void **state)
{
    (void)state;
    static struct seen seen;
    size_t cuts = 0;
    for (size_t i = 0; i < tool_family_count; i++) {
        const struct tool_family *family = &tool_families[i];
        struct salvo_tool_form *form = tool_family_open(family->name);
        const bool has_more = strcmp(family->form, "channels") == 0 ||
                              strncmp(family->answer, "all\n", 4) == 0 ||
                              family->expected[0] == '('; /* headers and reasoning */
        for (size_t size = 1; size < strlen(family->answer) && !has_more; size++) {
            char answer[1000];
            snprintf(answer, sizeof answer, "%.*s", (int)size, family->answer);
            parse(form, answer, 1 + size % 5, &seen);
            cuts += seen.calls == 0 && seen.last == SALVO_TOOL_CALL_CUT;
            if (seen.calls == 0)
                assert_string_equal(seen.kept, answer);
        }
        salvo_tool_form_close(form);
    }
    assert_true(cuts > 100);
}

static void answers_fit_their_grammar(void **state)
{
    (void)state;
    struct salvo_tool_grammar_options options = SALVO_TOOL_GRAMMAR_OPTIONS_INIT;
    options.parallel = 1;
    for (size_t i = 0; i < tool_family_count; i++) {
        const struct tool_family *family = &tool_families[i];
        struct salvo_tool_form *form = tool_family_open(family->name);
        print_message("%s: %s\n", family->name, family->answer);
        assert_int_equal(fits(form, &options, family->answer, strlen(family->answer)), 1);
        salvo_tool_form_close(form);
    }
}

/* Calls that a schema forbids do not fit, whatever the form. */
static void wrong_calls_do_not_fit(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"hermes", "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"days\": 3}}"},
        {"llama3", "<|python_tag|>look.call(days=\"3\")"},
        {"llama3", "<|python_tag|>nothing.call("},
        {"qwen3_coder", "<tool_call>\n<function=look>\n</function>"},
        {"qwen3_coder", "<tool_call>\n<function=look>\n<parameter=days>\n12\n"},
        {"qwen3_coder", "<tool_call>\n<function=sort>\n<parameter=order>\nleft"},
        {"qwen3_coder", "<tool_call>\n<function=look>\n<parameter=place>\nx</parameter>y"},
        {"gemma4", "<|tool_call>call:look{place:Rom"},
        {"deepseek_v32", "\n\n"
                         "<\xef\xbd\x9c"
                         "DSML\xef\xbd\x9c"
                         "function_calls>x"},
        {"functionary_v32", "nothing\n"},
        {"functionary_v32", "all\nx>>>nothing"},
        {"harmony", "<|channel|>commentary to=functions.nothing"},
    };
    struct salvo_tool_grammar_options options = SALVO_TOOL_GRAMMAR_OPTIONS_INIT;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct salvo_tool_form *form = tool_family_open(wrong[i][0]);
        print_message("%s: %s\n", wrong[i][0], wrong[i][1]);
        assert_int_equal(fits(form, &options, wrong[i][1], strlen(wrong[i][1])), -1);
        salvo_tool_form_close(form);
    }
}

/* ---- Random answers ---- */

static bool append(struct salvo_grammar_matcher *matcher, char *text, size_t *size, const char *more)
{
    const size_t length = strlen(more);
    if (!length || *size + length >= MOST_TEXT ||
        salvo_grammar_matcher_append(matcher, more, length, NULL) != SALVO_OK)
        return false;
    memcpy(text + *size, more, length + 1);
    *size += length;
    return true;
}

/* A random text that fits, with a bias for bytes that end values. False: it became too long. */
static bool sample(struct salvo_grammar_matcher *matcher, const struct salvo_tool_form_info *info,
    uint64_t *seed, char *text)
{
    size_t size = 0;
    while (!salvo_grammar_matcher_complete(matcher) || test_random(seed, 3)) {
        uint32_t bytes[8];
        char one[2] = {0};
        const uint32_t way = test_random(seed, 8);
        if ((way < 2 && append(matcher, text, &size, info->after)) ||
            (way == 2 && append(matcher, text, &size, "\"")) ||
            (way == 3 && append(matcher, text, &size, "}")) ||
            (way == 4 && append(matcher, text, &size, info->think_end)))
            continue;
        assert_int_equal(salvo_grammar_matcher_bytes(matcher, bytes), SALVO_OK);
        for (uint32_t tries = 0, c = test_random(seed, 95); tries < 256 && !one[0]; tries++) {
            const uint32_t byte = (32 + c + tries) % 256;
            if (byte && bytes[byte / 32] >> byte % 32 & 1)
                one[0] = (char)byte;
        }
        if (!one[0])
            break; /* the end */
        if (!append(matcher, text, &size, one))
            return false;
    }
    text[size] = 0;
    return true;
}

static void texts_of_the_grammar_are_calls(void **state)
{
    (void)state;
    static struct seen seen;
    static char text[MOST_TEXT];
    uint64_t seed = 7;
    for (size_t i = 0; i < tool_family_count; i++) {
        struct salvo_tool_form *form = tool_family_open(tool_families[i].name);
        struct salvo_tool_grammar_options options = SALVO_TOOL_GRAMMAR_OPTIONS_INIT;
        struct salvo_grammar *grammar;
        size_t good = 0;
        options.required = options.parallel = 1;
        assert_int_equal(
            salvo_tool_grammar(NULL, form, tool_family_tools, strlen(tool_family_tools), &options, &grammar),
            SALVO_OK);
        for (size_t round = 0; round < 20; round++) {
            struct salvo_grammar_matcher *matcher;
            assert_int_equal(salvo_grammar_matcher_new(grammar, &matcher), SALVO_OK);
            if (sample(matcher, salvo_tool_form_info(form), &seed, text)) {
                good++;
                parse(form, text, 1 + round, &seen);
                if (!seen.calls || seen.last != SALVO_TOOL_CALL_END || strchr(seen.text, '<') == seen.text)
                    print_message("%s: %s\n%s\n", tool_families[i].name, text, seen.text);
                assert_true(seen.calls > 0);
                assert_int_equal(seen.last, SALVO_TOOL_CALL_END);
            }
            salvo_grammar_matcher_free(matcher);
        }
        print_message("%s: %zu texts\n", tool_families[i].name, good);
        assert_true(good > 5);
        salvo_grammar_free(grammar);
        salvo_tool_form_close(form);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms_are_learned),
        cmocka_unit_test(answers_are_read),
        cmocka_unit_test(arguments_come_in_pieces),
        cmocka_unit_test(cut_answers_lose_nothing),
        cmocka_unit_test(answers_fit_their_grammar),
        cmocka_unit_test(wrong_calls_do_not_fit),
        cmocka_unit_test(texts_of_the_grammar_are_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
