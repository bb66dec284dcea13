#include "tool_families.h"

#include <stdio.h>
#include <stdlib.h>

#define BAR  "\xef\xbd\x9c"
#define LOW  "\xe2\x96\x81"
#define DSML "<" BAR "DSML" BAR
#define DEND "</" BAR "DSML" BAR

const char tool_family_tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"look\",\"description\":\"looks\",\"parameters\":"
    "{\"type\":\"object\",\"properties\":{\"days\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":9},"
    "\"place\":{\"type\":\"string\"}},\"required\":[\"place\"],\"additionalProperties\":false}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"sort\",\"description\":\"sorts\",\"parameters\":"
    "{\"type\":\"object\",\"properties\":{\"order\":{\"type\":\"string\",\"enum\":[\"up\",\"down\"]}},"
    "\"additionalProperties\":false}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"stop\",\"description\":\"stops\",\"parameters\":"
    "{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false}}}]";

const struct tool_family tool_families[] = {
    {"hermes", "json", false,
        "Well. <tool_call>\n{\"name\": \"look\", \"arguments\": {\"place\": \"R}\\\"om\"}}\n</tool_call>\n"
        "<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>",
        "Well. [look {\"place\": \"R}\\\"om\"}][stop {}]", false},
    {"llama3", "json", false, "{\"name\": \"look\", \"parameters\": {\"days\": 2, \"place\": \"Rom\"}}",
        "[look {\"days\": 2, \"place\": \"Rom\"}]", true},
    {"llama3", "json", false, "<|python_tag|>{\"name\": \"sort\", \"parameters\": {\"order\": \"up\"}}",
        "[sort {\"order\": \"up\"}]", true},
    {"llama3", "json", false, "<|python_tag|>look.call(days=\"3\", place=\"A (b), c\")",
        "[look {\"days\": 3, \"place\": \"A (b), c\"}]", true},
    {"llama3", "json", false, "<|python_tag|>stop.call()", "[stop {}]", true},
    {"mistral", "json", false,
        "[TOOL_CALLS] [{\"name\": \"look\", \"arguments\": {\"place\": \"]\"}, \"id\": \"abc123xyz\"}, "
        "{\"name\": \"stop\", \"arguments\": {}, \"id\": \"012345678\"}]",
        "[look {\"place\": \"]\"}][stop {}]", false},
    {"mistral_new", "json", false,
        "I look.[TOOL_CALLS]look[ARGS]{\"place\": \"Rom\"}[TOOL_CALLS]stop[ARGS]{}",
        "I look.[look {\"place\": \"Rom\"}][stop {}]", false},
    {"deepseek", "json", true,
        "Hm.</think>\n\n<" BAR "tool" LOW "calls" LOW "begin" BAR "><" BAR "tool" LOW "call" LOW "begin" BAR
        ">function<" BAR "tool" LOW "sep" BAR ">look\n```json\n{\"place\": \"```\"}\n```<" BAR "tool" LOW
        "call" LOW "end" BAR ">\n<" BAR "tool" LOW "call" LOW "begin" BAR ">function<" BAR "tool" LOW
        "sep" BAR ">stop\n```json\n{}\n```<" BAR "tool" LOW "call" LOW "end" BAR "><" BAR "tool" LOW
        "calls" LOW "end" BAR ">",
        "(Hm.)[look {\"place\": \"```\"}][stop {}]", false},
    {"deepseek_v31", "json", true,
        "<" BAR "tool" LOW "calls" LOW "begin" BAR "><" BAR "tool" LOW "call" LOW "begin" BAR ">look<" BAR
        "tool" LOW "sep" BAR ">{\"place\": \"Rom\"}<" BAR "tool" LOW "call" LOW "end" BAR "><" BAR "tool" LOW
        "call" LOW "begin" BAR ">stop<" BAR "tool" LOW "sep" BAR ">{}<" BAR "tool" LOW "call" LOW "end" BAR
        "><" BAR "tool" LOW "calls" LOW "end" BAR ">",
        "[look {\"place\": \"Rom\"}][stop {}]", false},
    {"deepseek_v32", "parameters", false,
        "\n\n" DSML "function_calls>\n" DSML "invoke name=\"look\">\n" DSML
        "parameter name=\"days\" string=\"false\">3" DEND "parameter>\n" DSML
        "parameter name=\"place\" string=\"true\">5 < \"6\"" DEND "parameter>\n" DEND "invoke>\n" DSML
        "invoke name=\"stop\">\n" DEND "invoke>\n" DEND "function_calls>",
        "[look {\"days\": 3, \"place\": \"5 < \\\"6\\\"\"}][stop {}]", false},
    {"functionary", "json", false,
        "<function=look>{\"place\": \"</function>\"}</function><function=stop>{}</function>",
        "[look {\"place\": \"</function>\"}][stop {}]", false},
    {"functionary_v32", "recipients", false, "look\n{\"place\": \"Rom\"}>>>stop\n{}",
        "[look {\"place\": \"Rom\"}][stop {}]", false},
    {"functionary_v32", "recipients", false, "all\nI look >> there.>>>look\n{\"place\": \"Rom\"}",
        "I look >> there.[look {\"place\": \"Rom\"}]", false},
    {"functionary_v32", "recipients", false, "all\nHello.", "Hello.", false},
    {"harmony", "channels", false,
        "<|channel|>analysis<|message|>I must look.<|end|><|start|>assistant<|channel|>commentary "
        "to=functions.look <|constrain|>json<|message|>{\"place\": \"<|call|>\"}",
        "(I must look.)[look {\"place\": \"<|call|>\"}]", true},
    {"harmony", "channels", false,
        " to=functions.look<|channel|>commentary json<|message|>{\"place\": \"Rom\"}",
        "[look {\"place\": \"Rom\"}]", true},
    {"harmony", "channels", false,
        "<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant<|channel|>final<|message|>Hello <|x.",
        "(Easy.)Hello <|x.", true},
    {"harmony", "channels", false, "Hello.", "Hello.", true},
    {"granite", "json", false,
        "<|tool_call|>[{\"name\": \"look\", \"arguments\": {\"place\": \"Rom\"}}, {\"name\": \"stop\", "
        "\"arguments\": {}}]",
        "[look {\"place\": \"Rom\"}][stop {}]", false},
    {"command_r7b", "json", false,
        "<|START_THINKING|>I look.<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", "
        "\"tool_name\": \"look\", \"parameters\": {\"place\": \"Rom\"}},\n    {\"tool_call_id\": \"1\", "
        "\"tool_name\": \"sort\", \"parameters\": {\"order\": \"up\"}},\n    {\"tool_call_id\": \"12\", "
        "\"tool_name\": \"stop\", \"parameters\": {}}\n]<|END_ACTION|>",
        "(I look.)[look {\"place\": \"Rom\"}][sort {\"order\": \"up\"}][stop {}]", false},
    {"qwen3_coder", "parameters", false,
        "I look.\n<tool_call>\n<function=look>\n<parameter=days>\n3\n</parameter>\n<parameter=place>\n"
        "a\n\n <b> </p \"\\\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=stop>\n"
        "</function>\n</tool_call>",
        "I look.\n[look {\"days\": 3, \"place\": \"a\\n\\n <b> </p \\\"\\\\\"}][stop {}]", false},
    {"qwen3_coder", "parameters", false,
        "<tool_call>\n<function=look>\n<parameter=place>\n7\n</parameter>\n</function>\n</tool_call>",
        "[look {\"place\": \"7\"}]", false},
    {"glm", "parameters", false,
        "<think>Hm</think>\n<tool_call>sort\n<arg_key>order</arg_key>\n<arg_value>down</arg_value>\n"
        "</tool_call>\n<tool_call>stop\n</tool_call>",
        "(Hm)[sort {\"order\": \"down\"}][stop {}]", false},
    {"lfm2", "parameters", false, "<|tool_call_start|>[look(days=3, place=\"Rom\"), stop()]<|tool_call_end|>",
        "[look {\"days\": 3, \"place\": \"Rom\"}][stop {}]", false},
    {"gemma4", "parameters", false,
        "<|tool_call>call:look{days:3,place:<|\"|>R<o\"m<|\"|>}<tool_call|><|tool_call>call:stop{}"
        "<tool_call|>",
        "[look {\"days\": 3, \"place\": \"R<o\\\"m\"}][stop {}]", false},
    {"kimi", "json", false,
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.look:0<|tool_call_argument_begin|>"
        "{\"place\": \"Rom\"}<|tool_call_end|><|tool_call_begin|>functions.stop:12"
        "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
        "[look {\"place\": \"Rom\"}][stop {}]", false},
    {"kimi_queue", "json", false,
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.look:3<|tool_call_argument_begin|>"
        "{\"place\": \"Rom\"}<|tool_call_end|><|tool_calls_section_end|>",
        "[look {\"place\": \"Rom\"}]", false},
    {"plain", "json", true,
        "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"place\": \"Rom\"}}\n</tool_call>",
        "[look {\"place\": \"Rom\"}]", false},
};
const size_t tool_family_count = sizeof tool_families / sizeof *tool_families;

struct salvo_tool_form *tool_family_open(const char *name)
{
    static char text[20000];
    char path[1000];
    struct salvo_template *chat = NULL;
    struct salvo_tool_form *form = NULL;
    snprintf(path, sizeof path, "%s/%s.jinja", TOOL_TEMPLATES, name);
    FILE *file = fopen(path, "rb");
    const size_t size = file ? fread(text, 1, sizeof text, file) : 0;
    if (file)
        fclose(file);
    if (!size || size == sizeof text || salvo_template_open(NULL, text, size, &chat) != SALVO_OK ||
        salvo_tool_form_open(chat, &form) != SALVO_OK) {
        fprintf(stderr, "%s: %s\n", path, salvo_error());
        abort();
    }
    salvo_template_close(chat);
    return form;
}
