/* Tool calls: forms of templates, grammars and the parser, on texts that arrive in pieces of any size. */
#include "cmocka_test.h"

#include <salvo/tools.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_TOOLS "{% if tools %}TOOLS{% for t in tools %}{{ t | tojson }}{% endfor %}{% endif %}"
#define BAR        "\xef\xbd\x9c"
#define LOW        "\xe2\x96\x81"

/* Templates with the features of each family. */
struct family {
    const char *name, *template;
    const char *marker, *before, *middle, *between, *after; /* NULL: not understood */
};

static const struct family families[] = {
    {"hermes",
        LIST_TOOLS
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}{% if m.tool_calls %}"
        "{% for c in m.tool_calls %}{{ '' if loop.first else '\\n' }}<tool_call>\n"
        "{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}"
        "{{ '\\n' }}</tool_call>{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
        "<tool_call>", "<tool_call>\n{\"name\": \"",
        "\", \"arguments\": ", "}\n</tool_call>\n<tool_call>\n{\"name\": \"", "}\n</tool_call>"},
    {"llama 3",
        LIST_TOOLS "{% for m in messages %}<|start|>{{ m.role }}<|end|>{{ '\\n\\n' }}{% if m.tool_calls %}"
                   "{% if m.tool_calls | length != 1 %}{{ raise_exception('one call') }}{% endif %}"
                   "{% set f = m.tool_calls[0].function %}{\"name\": \"{{ f.name }}\", \"parameters\": "
                   "{{ f.arguments | tojson }}}{% else %}{{ m.content }}{% endif %}<|eot_id|>{% endfor %}"
                   "{% if add_generation_prompt %}<|start|>assistant<|end|>{{ '\\n\\n' }}{% endif %}",
        "{\"name\": \"", "{\"name\": \"", "\", \"parameters\": ", "", "}"},
    {"mistral",
        "{% for m in messages %}{% if m.role == 'user' %}[AVAILABLE_TOOLS]{{ tools | tojson "
        "}}[/AVAILABLE_TOOLS]"
        "[INST]{{ m.content }}[/INST]{% elif m.tool_calls %}[TOOL_CALLS][{% for c in m.tool_calls %}"
        "{% set f = c.function %}{{ ', ' if not loop.first }}{\"name\": \"{{ f.name }}\", \"arguments\": "
        "{{ f.arguments | tojson }}, \"id\": \"{{ c.id }}\"}{% endfor %}]</s>"
        "{% else %}{{ m.content }}</s>{% endif %}{% endfor %}",
        "[TOOL_CALLS]", "[TOOL_CALLS][{\"name\": \"",
        "\", \"arguments\": ", ", \"id\": \"\x01\"}, {\"name\": \"", ", \"id\": \"\x01\"}]"},
    {"deepseek",
        LIST_TOOLS
        "{% for m in messages %}{% if m.role == 'user' %}<" BAR "User" BAR ">{{ m.content }}"
        "{% elif m.tool_calls %}<" BAR "Assistant" BAR "><" BAR "tool" LOW "calls" LOW "begin" BAR ">"
        "{% for c in m.tool_calls %}{{ '' if loop.first else '\\n' }}<" BAR "tool" LOW "call" LOW "begin" BAR
        ">{{ c.type }}<" BAR "tool" LOW "sep" BAR ">{{ c.function.name }}"
        "{{ '\\n```json\\n' }}{{ c.function.arguments }}{{ '\\n```' }}<" BAR "tool" LOW "call" LOW "end" BAR
        ">{% endfor %}<" BAR "tool" LOW "calls" LOW "end" BAR "><" BAR "end" LOW "of" LOW "sentence" BAR
        ">{% else %}<" BAR "Assistant" BAR ">{{ m.content }}<" BAR "end" LOW "of" LOW "sentence" BAR
        ">{% endif %}{% endfor %}{% if add_generation_prompt %}<" BAR "Assistant" BAR ">{% endif %}",
        "<" BAR "tool" LOW "calls" LOW "begin" BAR ">",
        "<" BAR "tool" LOW "calls" LOW "begin" BAR "><" BAR "tool" LOW "call" LOW "begin" BAR ">function<" BAR
        "tool" LOW "sep" BAR ">",
        "\n```json\n",
        "\n```<" BAR "tool" LOW "call" LOW "end" BAR ">\n<" BAR "tool" LOW "call" LOW "begin" BAR
        ">function<" BAR "tool" LOW "sep" BAR ">",
        "\n```<" BAR "tool" LOW "call" LOW "end" BAR "><" BAR "tool" LOW "calls" LOW "end" BAR ">"},
    {"functionary",
        LIST_TOOLS
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content or '' }}{% for c in m.tool_calls or [] %}"
        "<function={{ c.function.name }}>{{ c.function.arguments | tojson }}</function>{% endfor %}"
        "<|eot_id|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}",
        "<function=", "<function=", ">", "</function><function=", "</function>"},
    {"no calls", LIST_TOOLS "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}</s>{% endfor %}"},
    {"no tools",
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{{ m.tool_calls | tojson }}{% endfor %}"},
    {"an error", "{% for m in messages %}{{ m.content + 1 }}{% endfor %}"},
};

static struct salvo_tool_form *open_form(const char *template)
{
    struct salvo_template *chat;
    struct salvo_tool_form *form;
    assert_int_equal(salvo_template_open(NULL, template, strlen(template), &chat), SALVO_OK);
    assert_int_equal(salvo_tool_form_open(chat, &form), SALVO_OK);
    salvo_template_close(chat);
    return form;
}

static void forms_are_learned_from_templates(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const struct family *family = &families[i];
        struct salvo_tool_form *form = open_form(family->template);
        const struct salvo_tool_form_info *info = salvo_tool_form_info(form);
        print_message("%s\n", family->name);
        assert_int_equal(info->described, !family->marker);
        assert_string_equal(info->marker, family->marker ? family->marker : "<tool_call>");
        if (family->marker) {
            assert_string_equal(info->before, family->before);
            assert_string_equal(info->middle, family->middle);
            assert_string_equal(info->between, family->between);
            assert_string_equal(info->after, family->after);
        }
        assert_int_equal(info->begins_thinking, 0);
        salvo_tool_form_close(form);
    }
}

/* ---- Parser ---- */

/* Writes the events of a text that arrives in pieces of `step` bytes: content as it is, reasoning in (),
 * calls in []. */
static void parse(const struct salvo_tool_form *form, const char *text, size_t step, char *out)
{
    struct salvo_tool_parser *parser;
    struct salvo_tool_event event;
    uint32_t last_kind = SALVO_TOOL_NOTHING;
    size_t size = strlen(text), at = 0, written = 0;
    assert_int_equal(salvo_tool_parser_open(form, "[]", 2, &parser), SALVO_OK);
    do {
        size_t piece = size - at < step ? size - at : step;
        assert_int_equal(salvo_tool_parser_push(parser, text + at, piece, at + piece == size), SALVO_OK);
        at += piece;
        for (;;) {
            assert_int_equal(salvo_tool_parser_next(parser, &event), SALVO_OK);
            if (last_kind == SALVO_TOOL_REASONING && event.kind > SALVO_TOOL_NOTHING &&
                event.kind != SALVO_TOOL_REASONING)
                out[written++] = ')';
            if (event.kind == SALVO_TOOL_NOTHING)
                break;
            if (event.kind == SALVO_TOOL_REASONING && last_kind != SALVO_TOOL_REASONING)
                out[written++] = '(';
            last_kind = event.kind;
            if (event.kind == SALVO_TOOL_CALL || event.kind == SALVO_TOOL_ARGUMENTS)
                continue;
            if (event.kind == SALVO_TOOL_CALL_END) {
                written += (size_t)sprintf(out + written, "[%.*s %.*s]", (int)event.name.size,
                    event.name.data, (int)event.arguments.size, event.arguments.data);
            } else {
                written += (size_t)sprintf(out + written, "%.*s", (int)event.text.size, event.text.data);
            }
        }
    } while (at < size);
    if (last_kind == SALVO_TOOL_REASONING)
        out[written++] = ')';
    out[written] = 0;
    salvo_tool_parser_close(parser);
}

static void check_parse(const struct salvo_tool_form *form, const char *text, const char *expected)
{
    char out[2000];
    for (size_t step = 1; step <= strlen(text) + 1; step++) {
        parse(form, text, step, out);
        assert_string_equal(out, expected);
    }
}

static void calls_are_found_as_they_arrive(void **state)
{
    (void)state;
    struct salvo_tool_form *form = open_form(families[0].template);
    check_parse(form, "Hello.", "Hello.");
    check_parse(form, "", "");
    check_parse(form, " \n", " \n");
    check_parse(form, "Look: <tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"}\\\"\"}}\n</tool_call>",
        "Look: [f {\"a\": \"}\\\"\"}]");
    check_parse(form,
        "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n\n<tool_call>\n{\"name\": \"g.h-2\", "
        "\"arguments\": {\"x\": [1, {}]}}\n</tool_call>\n",
        "[f {}][g.h-2 {\"x\": [1, {}]}]");
    check_parse(form, "a <tool_call> b", "a <tool_call> b");
    check_parse(form, "a <tool_", "a <tool_");
    check_parse(form, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1",
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1");
    check_parse(form, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}", "[f {\"a\": 1}]");
    check_parse(form, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool", "[f {\"a\": 1}]");
    check_parse(form, "<tool_call>\n{\"name\": \"f\", \"arguments\": {]}}",
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {]}}");
    check_parse(form, "<tool_call>x<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call> more",
        "<tool_call>x[f {}]more");
    check_parse(form, "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call><tool_call>no",
        "[f {}]<tool_call>no");
    check_parse(form, "<think>\nHm <tool_call>\n</think>\n\nYes", "(Hm <tool_call>\n)Yes");
    check_parse(form, "\n<think>cut", "(cut)");
    check_parse(form, "<thin", "<thin");
    check_parse(form, "x <think>", "x <think>");
    salvo_tool_form_close(form);
    form = open_form(families[2].template);
    check_parse(form,
        "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}, \"id\": \"abc123xyz\"}, {\"name\": \"g\", "
        "\"arguments\": {\"b\": 2}, \"id\": \"a\"}]",
        "[f {}][g {\"b\": 2}]");
    salvo_tool_form_close(form);
    form = open_form("{% for m in messages %}{{ m.content }}{% endfor %}<think>\n");
    assert_int_equal(salvo_tool_form_info(form)->begins_thinking, 1);
    assert_int_equal(SALVO_TOOL_THINKING_YES, salvo_tool_form_thinking(form, "a<think>", 8));
    assert_int_equal(SALVO_TOOL_THINKING_YES, salvo_tool_form_thinking(form, "<think> \r\n\t", 11));
    assert_int_equal(SALVO_TOOL_THINKING_NO, salvo_tool_form_thinking(form, "<think>a", 8));
    assert_int_equal(SALVO_TOOL_THINKING_NO, salvo_tool_form_thinking(form, "think>", 6));
    assert_int_equal(SALVO_TOOL_THINKING_NO, salvo_tool_form_thinking(form, "", 0));
    assert_int_equal(SALVO_TOOL_THINKING_USUAL, salvo_tool_form_thinking(NULL, "<think>", 7));
    check_parse(form, "Well</think>\nSo", "(Well)So");
    salvo_tool_form_close(form);
}

/* ---- Grammars ---- */

static const char tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":"
    "{\"n\":{\"type\":\"integer\",\"minimum\":3,\"maximum\":7}},\"required\":[\"n\"],"
    "\"additionalProperties\":false}}},{\"type\":\"other\"},"
    "{\"type\":\"function\",\"function\":{\"name\":\"g\"}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"h\",\"parameters\":{\"properties\":{\"a\":{\"contains\":"
    "{}}}"
    "}}}]";

/* 1: the answer is complete, 0: it may go on to one, -1: it is not possible. */
static int fits(
    const struct salvo_tool_form *form, const struct salvo_tool_grammar_options *options, const char *answer)
{
    struct salvo_grammar *grammar;
    struct salvo_grammar_matcher *matcher;
    assert_int_equal(salvo_tool_grammar(NULL, form, tools, sizeof tools - 1, options, &grammar), SALVO_OK);
    assert_int_equal(salvo_grammar_matcher_new(grammar, &matcher), SALVO_OK);
    const enum salvo_status status = salvo_grammar_matcher_append(matcher, answer, strlen(answer), NULL);
    const int result = status != SALVO_OK ? -1 : salvo_grammar_matcher_complete(matcher);
    salvo_grammar_matcher_free(matcher);
    salvo_grammar_free(grammar);
    return result;
}

#define HERMES(name, arguments) \
    "<tool_call>\n{\"name\": \"" name "\", \"arguments\": " arguments "}\n</tool_call>"

static void grammars_allow_calls_alone(void **state)
{
    (void)state;
    struct salvo_tool_form *form = open_form(families[0].template);
    struct salvo_tool_grammar_options options = SALVO_TOOL_GRAMMAR_OPTIONS_INIT;
    assert_int_equal(fits(form, &options, "Just text <tool"), 1);
    assert_int_equal(fits(form, &options, "Text " HERMES("f", "{\"n\": 5}")), 1);
    assert_int_equal(fits(form, &options, "<tool_call>x"), -1);
    assert_int_equal(fits(form, &options, HERMES("f", "{\"n\": 8}")), -1);
    assert_int_equal(fits(form, &options, HERMES("g", "{}")), 1);
    assert_int_equal(fits(form, &options, HERMES("g", "{\"a\": 1}")), -1);
    assert_int_equal(fits(form, &options, HERMES("h", "{\"a\": 1}")), 1);
    assert_int_equal(fits(form, &options, HERMES("other", "{}")), -1);
    assert_int_equal(fits(form, &options, HERMES("g", "{}") "\n" HERMES("g", "{}")), -1);
    assert_int_equal(fits(form, &options, HERMES("g", "{}") " text"), -1);
    options.parallel = 1;
    assert_int_equal(fits(form, &options, HERMES("g", "{}") "\n" HERMES("f", "{\"n\": 3}")), 1);
    options.required = 1;
    assert_int_equal(fits(form, &options, ""), 0);
    assert_int_equal(fits(form, &options, "T"), -1);
    assert_int_equal(fits(form, &options, HERMES("g", "{}")), 1);
    options.name = "f";
    assert_int_equal(fits(form, &options, "<tool_call>\n{\"name\": \"f"), 0);
    assert_int_equal(fits(form, &options, "<tool_call>\n{\"name\": \"g"), -1);
    salvo_tool_form_close(form);
    form = open_form("{% for m in messages %}{{ m.content }}{% endfor %}<think>\n");
    assert_int_equal(fits(form, &options, "x <tool_call> y"), 0);
    assert_int_equal(fits(form, &options, "Well</think>\n" HERMES("f", "{\"n\": 3}")), 1);
    assert_int_equal(fits(form, &options, "Well</think>No"), -1);
    salvo_tool_form_close(form);
    form = open_form(families[2].template);
    options = (struct salvo_tool_grammar_options)SALVO_TOOL_GRAMMAR_OPTIONS_INIT;
    assert_int_equal(
        fits(form, &options, "[TOOL_CALLS][{\"name\": \"g\", \"arguments\": {}, \"id\": \"abc123xyz\"}]"), 1);
    salvo_tool_form_close(form);
}

static void bad_tools_are_refused(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"", "no JSON array"},
        {"{}", "no JSON array"},
        {"[", "no JSON array"},
        {"[]", "no tool"},
        {"[{\"type\":\"function\"}]", "tool 1"},
        {"[1]", "no tool"},
        {"[{\"type\":\"function\",\"function\":{\"name\":\"a b\"}}]", "tool 1"},
        {"[{\"type\":\"function\",\"function\":{\"name\":7}}]", "tool 1"},
        {"[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"strict\":true,\"parameters\":{"
         "\"divisibleBy\":2}}}]",
            "tool 'a': grammar: line 1: schema: /divisibleBy"},
    };
    struct salvo_tool_form *form = open_form(families[0].template);
    struct salvo_grammar *grammar;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_not_equal(
            salvo_tool_grammar(NULL, form, bad[i][0], strlen(bad[i][0]), NULL, &grammar), SALVO_OK);
        assert_null(grammar);
        assert_non_null(strstr(salvo_error(), bad[i][1]));
    }
    salvo_tool_form_close(form);
}

/* The parser reads the calls that are written for the history. */
static void calls_are_written_as_they_are_read(void **state)
{
    (void)state;
    static const char calls[] = "[{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"f\","
                                "\"arguments\":\"{\\\"a\\\": 1}\"}},"
                                "{\"function\":{\"name\":\"g\",\"arguments\":{\"b\":[2]}}}]";
    struct salvo_tool_form *form = open_form(families[5].template);
    char *text, *prompt;
    size_t size;
    assert_int_equal(salvo_tool_form_calls(form, calls, sizeof calls - 1, &text, &size), SALVO_OK);
    check_parse(form, text, "[f {\"a\": 1}][g {\"b\":[2]}]");
    salvo_free(text);
    assert_int_equal(salvo_tool_form_calls(form, "[{}]", 4, &text, &size), SALVO_ERROR_ARGUMENT);
    assert_int_equal(salvo_tool_form_prompt(form, tools, sizeof tools - 1, &prompt, &size), SALVO_OK);
    assert_non_null(strstr(prompt, "\"minimum\":3"));
    assert_non_null(strstr(prompt, "<tool_call>\n{\"name\": \"FUNCTION\""));
    salvo_free(prompt);
    salvo_tool_form_close(form);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms_are_learned_from_templates),
        cmocka_unit_test(calls_are_found_as_they_arrive),
        cmocka_unit_test(grammars_allow_calls_alone),
        cmocka_unit_test(bad_tools_are_refused),
        cmocka_unit_test(calls_are_written_as_they_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
