/*
 * Calls of tools and their results in the messages of a request, in each dialect. A history is written as
 * words, one for each message: u is a text of the user, a one of the assistant, c1 a call with the id 1, r1
 * its result; c and r have no id. "u c1c2 r1 r2" has two calls in one message. A mark ! is before the place
 * that the error names.
 */
#include "cmocka_test.h"
#include "server/api_dialect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct api_defaults defaults = {
    .sampler = {.size = sizeof(struct salvo_sampler), .seed = 7}, .max_tokens = -1};

struct text {
    char data[8192];
    size_t size;
};

static void add(struct text *text, const char *piece)
{
    const size_t size = strlen(piece);
    assert_true(text->size + size < sizeof text->data);
    memcpy(text->data + text->size, piece, size + 1);
    text->size += size;
}

/* The member of an id behind a comma, if there is one. */
static void add_id(struct text *text, const char *key, char id)
{
    char member[64];
    if (id < '0' || id > '9')
        return;
    snprintf(member, sizeof member, ",\"%s\":\"%c\"", key, id);
    add(text, member);
}

/* ---- Items of each dialect: kind and id, '\0' where there is none ---- */

typedef void (*item_writer)(struct text *out, char kind, char id);

static void write_call(struct text *out, char id, const char *arguments)
{
    add(out, "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":");
    add(out, arguments);
    add(out, "}");
    add_id(out, "id", id);
    add(out, "}");
}

static void write_chat(struct text *out, char kind, char id)
{
    if (kind == 'c') {
        write_call(out, id, "\"{}\"");
        return;
    }
    add(out, kind == 'u'   ? "\"role\":\"user\""
             : kind == 'a' ? "\"role\":\"assistant\""
                           : "\"role\":\"tool\"");
    add(out, ",\"content\":\"x\"");
    add_id(out, "tool_call_id", id);
}

/* n and m are results with the names of tools. */
static void write_ollama(struct text *out, char kind, char id)
{
    if (kind == 'c') {
        write_call(out, id, "{}");
        return;
    }
    const bool is_named = kind == 'n' || kind == 'm';
    write_chat(out, is_named ? 'r' : kind, id);
    if (is_named)
        add(out, kind == 'n' ? ",\"tool_name\":\"f\"" : ",\"tool_name\":\"g\"");
}

static void write_anthropic(struct text *out, char kind, char id)
{
    add(out, kind == 'c'   ? "{\"type\":\"tool_use\",\"name\":\"f\",\"input\":{}"
             : kind == 'r' ? "{\"type\":\"tool_result\",\"content\":\"x\""
                           : "{\"type\":\"text\",\"text\":\"x\"");
    add_id(out, kind == 'c' ? "id" : "tool_use_id", id);
    add(out, "}");
}

static void write_responses(struct text *out, char kind, char id)
{
    add(out, kind == 'c'   ? "{\"type\":\"function_call\",\"name\":\"f\",\"arguments\":\"{}\""
             : kind == 'r' ? "{\"type\":\"function_call_output\",\"output\":\"x\""
             : kind == 'u' ? "{\"role\":\"user\",\"content\":\"x\""
                           : "{\"role\":\"assistant\",\"content\":\"x\"");
    add_id(out, "call_id", id);
    add(out, "}");
}

/* ---- Requests ---- */

/* The items of one message, with commas between them. `*out_is_marked` is set at a mark. */
static const char *write_items(struct text *out, const char *word, item_writer write, bool *out_is_marked)
{
    for (bool first = true; *word && *word != ' '; first = false) {
        if (*word == '!') {
            *out_is_marked = true;
            word++;
        }
        const char kind = *word++;
        const bool has_id = *word >= '0' && *word <= '9';
        if (!first)
            add(out, ",");
        write(out, kind, has_id ? *word : 0);
        word += has_id;
    }
    return word + (*word == ' ');
}

/* `open` and `close` are around the items of a message. The place of the mark, "" without one, is `place`
 * with its number. */
static void write_history(struct text *out, const char *script, enum api_style style, char place[48])
{
    size_t index = 0;
    *place = 0;
    for (const char *word = script; *word; index++) {
        const char first = *word == '!' ? word[1] : *word;
        bool is_marked = false;
        if (index)
            add(out, ",");
        if (style == API_ANTHROPIC) {
            add(out, first == 'c' || first == 'a' ? "{\"role\":\"assistant\",\"content\":["
                                                  : "{\"role\":\"user\",\"content\":[");
            word = write_items(out, word, write_anthropic, &is_marked);
            add(out, "]}");
        } else {
            const item_writer write = style == API_OLLAMA_CHAT ? write_ollama : write_chat;
            add(out, first == 'c' ? "{\"role\":\"assistant\",\"tool_calls\":[" : "{");
            word = write_items(out, word, write, &is_marked);
            add(out, first == 'c' ? "]}" : "}");
        }
        if (is_marked)
            snprintf(place, 48, style == API_ANTHROPIC ? "messages.%zu.content" : "messages[%zu]", index);
    }
}

/* Items of all messages are one list here. */
static void write_input(struct text *out, const char *script, char place[48])
{
    size_t index = 0;
    *place = 0;
    for (const char *item = script; *item; index++) {
        bool is_marked = false;
        const char one[] = {item[0] == '!' ? item[1] : item[0],
            item[0] == '!'                     ? item[2]
            : item[1] >= '0' && item[1] <= '9' ? item[1]
                                               : '\0',
            '\0'};
        if (index)
            add(out, ",");
        if (*item == '!') {
            is_marked = true;
            item++;
        }
        write_items(out, one, write_responses, &(bool){false});
        item += one[1] >= '0' && one[1] <= '9' ? 2 : 1;
        item += *item == ' ';
        if (is_marked)
            snprintf(place, 48, "input[%zu]", index);
    }
}

static void check(const char *script, enum api_style style, const char *words)
{
    struct text body = {0};
    struct api_request request;
    struct api_error error = {0};
    char place[48];
    add(&body, style == API_RESPONSES ? "{\"input\":[" : "{\"max_tokens\":5,\"messages\":[");
    if (style == API_RESPONSES)
        write_input(&body, script, place);
    else
        write_history(&body, script, style, place);
    add(&body, "]}");
    const bool ok = api_dialect_parse(body.data, body.size, style, &defaults, &request, &error);
    if (ok != (*place == 0) || (!ok && (error.status != 400 || strcmp(error.param, place) != 0 ||
                                           !strstr(error.message, words) || !strstr(error.message, place))))
        fail_msg("'%s' in style %d: %s\nstatus %d, param '%s', message '%s'", script, (int)style, body.data,
            error.status, error.param, error.message);
    api_request_free(&request);
}

/* ---- Tests ---- */

static const struct {
    const char *script, *words;
} histories[] = {
    {"u", ""},
    {"u c1 r1", ""},
    {"u c1c2 r1 r2", ""},
    {"u c1c2 r2 r1", ""},
    {"u c1 r1 c2 r2 u", ""},
    {"u c1 r1 c1 r1", ""}, /* ids that are unique in one message alone */
    {"u c1c1 r1 r1", ""},
    {"u c1 u r1", ""}, /* a text before the result */
    {"u c1c2 r1 u r2 u", ""},
    {"!r1", "without an earlier call"},
    {"u !r1", "without an earlier call"},
    {"u a !r1 u", "without an earlier call"},
    {"u !r1 c1 u", "without an earlier call"},
    {"u c1 !r2", "'2', which no earlier message has"},
    {"u c1 r1 !r2", "'2', which no earlier message has"},
    {"u c1 r1 u !r2 c2 r2", "'2', which no earlier message has"},
    {"u c1 r1 !r1", "'1', which has a result already"},
    {"u c1 !c2 r1", "'2' has no result"},
    {"u !c1 u", "'1' has no result"},
    {"u c1 r1 !c1 u", "'1' has no result"},
    {"u c1!c2 r1 u", "'2' has no result"},
    {"u !c1", "'1' has no result"},
    {"u c1 !r2 r3", "'2', which no"}, /* the first wrong result is named */
    {"u c1 !r3 r2", "'3', which no"},
    {"u !c2 c1 u", "'2' has no result"},
};

static void test_results_need_calls(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof histories / sizeof *histories; i++) {
        check(histories[i].script, API_CHAT, histories[i].words);
        check(histories[i].script, API_ANTHROPIC, histories[i].words);
        check(histories[i].script, API_RESPONSES, histories[i].words);
    }
}

static void test_ids(void **state)
{
    (void)state;
    check("u c r", API_CHAT, ""); /* as templates write them */
    check("u cc r r u", API_CHAT, "");
    check("u c r !r", API_CHAT, "has a result already");
    check("u c1 !r", API_CHAT, "expected the id of a call");
    check("u !c u", API_CHAT, "a call has no result");
    check("u c !r1", API_CHAT, "'1', which no earlier message has");
    check("u !c r1", API_ANTHROPIC, "'id' of a call");
    check("u c1 !r", API_ANTHROPIC, "'tool_use_id'");
    check("u !c r1", API_RESPONSES, "'call_id' of a call");
    check("u c1 !r", API_RESPONSES, "'call_id'");
}

static void test_ollama(void **state)
{
    (void)state;
    static const char *const good[] = {"u c r", "u c n", "u cc n n", "u c1 n", "u c1 r", "u c1 r1", "u c r1",
        "u cc1 r2", "u c n u c n", "u c n n", "u cc n", "u c u", "u c"};
    static const char *const bad[] = {
        "!r", "u !n", "u !r1", "u a !n", "u c1 !r2", "u c !m", "u !n c", "u c1 !m"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        check(good[i], API_OLLAMA_CHAT, "");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        check(bad[i], API_OLLAMA_CHAT, "the result of");
}

/* Without an answer nothing follows the calls. */
static void test_calls_at_the_end(void **state)
{
    (void)state;
    check("u c1", API_TEMPLATE, "");
    check("u c1 r1 c1", API_TEMPLATE, "");
    check("u !c1 u", API_TEMPLATE, "has no result");
    check("u !c1 c2", API_TEMPLATE, "has no result");
}

#define CALL(more) "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\"" more
#define REST       "},{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"x\"}]}"

static void test_bad_values(void **state)
{
    (void)state;
    static const struct {
        enum api_style style;
        bool ok;
        const char *param, *body;
    } cases[] = {
        {API_CHAT, true, "", CALL(",\"arguments\":\"{}\"},\"id\":\"1\"}]") REST},
        {API_CHAT, true, "", CALL(",\"arguments\":\"\"},\"id\":\"1\"}]") REST},
        {API_CHAT, true, "", CALL(",\"arguments\":{\"a\":1}},\"id\":\"1\"}]") REST},
        {API_CHAT, false, "messages[0]", CALL(",\"arguments\":\"{\"},\"id\":\"1\"}]") REST},
        {API_CHAT, false, "messages[0]", CALL(",\"arguments\":\"[]\"},\"id\":\"1\"}]") REST},
        {API_CHAT, false, "messages[0]", CALL(",\"arguments\":\"{} {}\"},\"id\":\"1\"}]") REST},
        {API_CHAT, false, "messages[0]", CALL(",\"arguments\":[]},\"id\":\"1\"}]") REST},
        {API_CHAT, false, "messages[0]", CALL("},\"id\":\"1\"}]") REST},
        {API_CHAT, false, "messages[0]",
            CALL(",\"arguments\":\"{}\"},\"id\":\"1\",\"type\":\"custom\"}]") REST},
        {API_CHAT, false, "messages[0]", CALL(",\"arguments\":\"{}\"},\"id\":1}]") REST},
        {API_CHAT, false, "messages[1]",
            CALL(",\"arguments\":\"{}\"},\"id\":\"1\"}]") "},{\"role\":\"tool\",\"tool_call_id\":1,"
                                                          "\"content\":"
                                                          "\"x\"}]}"},
        {API_CHAT, false, "messages[0]",
            "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"\","
            "\"arguments\":"
            "\"{}\"}}]}]}"},
        {API_CHAT, false, "messages[0]", "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[1]}]}"},
        {API_CHAT, false, "messages[0]", "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":{}}]}"},
        {API_CHAT, true, "",
            "{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"tool_calls\":[]}]}"}, /* some clients do */
        {API_CHAT, false, "messages[0]",
            "{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"tool_calls\":[{\"function\":{\"name\":"
            "\"f\","
            "\"arguments\":\"{}\"}}]}]}"},
        {API_OLLAMA_CHAT, false, "messages[0]",
            "{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"tool_calls\":[{\"function\":{\"name\":"
            "\"f\","
            "\"arguments\":{}}}]}]}"},
        {API_OLLAMA_CHAT, false, "messages[0]",
            "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\"}}]}]}"},
        {API_OLLAMA_CHAT, false, "messages[1]",
            "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
            "\"arguments\":"
            "{}}}]},{\"role\":\"tool\",\"tool_name\":1,\"content\":\"x\"}]}"},
        {API_ANTHROPIC, false, "messages.0.content",
            "{\"max_tokens\":1,\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\","
            "\"id\":"
            "\"1\",\"name\":\"f\",\"input\":\"{}\"}]}]}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct api_request request;
        struct api_error error = {0};
        const char *body = cases[i].body;
        const bool ok = api_dialect_parse(body, strlen(body), cases[i].style, &defaults, &request, &error);
        if (ok != cases[i].ok || strcmp(error.param, cases[i].param) != 0 || (!ok && error.status != 400))
            fail_msg(
                "%s: status %d, param '%s', message '%s'", body, error.status, error.param, error.message);
        api_request_free(&request);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results_need_calls),
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_ollama),
        cmocka_unit_test(test_calls_at_the_end),
        cmocka_unit_test(test_bad_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
