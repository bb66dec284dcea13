/* Request bodies: good ones and their meaning, bad ones with the status and the field that they get. */
#include "cmocka_test.h"
#include "server/api_dialect.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct api_defaults defaults = {
    .sampler = {.size = sizeof(struct salvo_sampler),
        .seed = 7,
        .temperature = 0.5f,
        .top_k = 40,
        .repeat_last_n = 64},
    .max_tokens = -1,
};

static bool parse(const char *body, enum api_style style, struct api_request *out, struct api_error *error)
{
    *error = (struct api_error){0};
    return api_dialect_parse(body, strlen(body), style, &defaults, out, error);
}

#define HI "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

static void test_bad_bodies(void **state)
{
    static const struct {
        enum api_style style;
        int status;
        const char *param, *words, *body;
    } cases[] = {
        {API_CHAT, 400, "", "not JSON", ""},
        {API_CHAT, 400, "", "not JSON", "{\"messages\":"},
        {API_CHAT, 400, "", "not JSON", "{\"a\":1} x"},
        {API_CHAT, 400, "", "not JSON", "{\"a\":\"\xff\"}"},
        {API_CHAT, 400, "", "object", "[]"},
        {API_CHAT, 400, "", "object", "\"text\""},
        {API_CHAT, 400, "messages", "array of messages", "{}"},
        {API_CHAT, 400, "messages", "array of messages", "{\"messages\":null}"},
        {API_CHAT, 400, "messages", "array of messages", "{\"messages\":[]}"},
        {API_CHAT, 400, "messages", "array of messages", "{\"messages\":\"hi\"}"},
        {API_CHAT, 400, "messages[0]", "object", "{\"messages\":[123]}"},
        {API_CHAT, 400, "messages[0]", "role", "{\"messages\":[{}]}"},
        {API_CHAT, 400, "messages[0]", "role", "{\"messages\":[{\"role\":1,\"content\":\"x\"}]}"},
        {API_CHAT, 400, "messages[0]", "role", "{\"messages\":[{\"role\":\"a\\u0000\",\"content\":\"x\"}]}"},
        {API_CHAT, 400, "messages[0]", "role", "{\"messages\":[{\"role\":\"\",\"content\":\"x\"}]}"},
        {API_CHAT, 400, "messages[0]", "name",
            "{\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"name\":1}]}"},
        {API_CHAT, 400, "messages[0]", "reasoning_content",
            "{\"messages\":[{\"role\":\"assistant\",\"content\":\"x\",\"reasoning_content\":[]}]}"},
        {API_CHAT, 400, "messages[0]", "content", "{\"messages\":[{\"role\":\"user\"}]}"},
        {API_CHAT, 400, "messages[0].content", "string or an array",
            "{\"messages\":[{\"role\":\"user\",\"content\":1}]}"},
        {API_CHAT, 400, "messages[0].content", "'type'",
            "{\"messages\":[{\"role\":\"user\",\"content\":[\"x\"]}]}"},
        {API_CHAT, 400, "messages[0].content", "image_url",
            "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}"},
        {API_CHAT, 400, "messages[0].content", "'text'",
            "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]}"},
        {API_CHAT, 400, "messages", "assistant",
            "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":"
            "\"b\"}]}"},
        {API_CHAT, 400, "continue_final_message", "both",
            "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\"}],\"continue_final_message\":true,"
            "\"add_generation_prompt\":true}"},
        {API_CHAT, 400, "continue_final_message", "last message of the assistant",
            "{" HI ",\"continue_final_message\":true}"},
        {API_CHAT, 400, "continue_final_message", "true or false", "{" HI ",\"continue_final_message\":1}"},
        {API_CHAT, 400, "temperature", "number", "{" HI ",\"temperature\":\"hot\"}"},
        {API_CHAT, 400, "temperature", "0 to", "{" HI ",\"temperature\":-1}"},
        {API_CHAT, 400, "top_p", "0 to 1", "{" HI ",\"top_p\":1.5}"},
        {API_CHAT, 400, "top_k", "integer", "{" HI ",\"top_k\":1.5}"},
        {API_CHAT, 400, "seed", "integer", "{" HI ",\"seed\":-2}"},
        {API_CHAT, 400, "seed", "integer", "{" HI ",\"seed\":1e300}"},
        {API_CHAT, 400, "stream", "true or false", "{" HI ",\"stream\":1}"},
        {API_CHAT, 400, "stream_options", "object", "{" HI ",\"stream_options\":1}"},
        {API_CHAT, 400, "include_usage", "true or false",
            "{" HI ",\"stream_options\":{\"include_usage\":1}}"},
        {API_CHAT, 400, "stop", "string", "{" HI ",\"stop\":1}"},
        {API_CHAT, 400, "stop", "string", "{" HI ",\"stop\":[\"a\",1]}"},
        {API_CHAT, 400, "stop", "string", "{" HI ",\"stop\":\"a\\u0000b\"}"},
        {API_CHAT, 400, "max_tokens", "integer", "{" HI ",\"max_tokens\":\"5\"}"},
        {API_CHAT, 400, "max_tokens", "integer", "{" HI ",\"max_tokens\":-2}"},
        {API_CHAT, 400, "max_completion_tokens", "integer", "{" HI ",\"max_completion_tokens\":1.5}"},
        {API_CHAT, 400, "n", "from 1 to 128", "{" HI ",\"n\":0}"},
        {API_CHAT, 400, "n", "from 1 to 128", "{" HI ",\"n\":129}"},
        {API_CHAT, 400, "logprobs", "true or false", "{" HI ",\"logprobs\":3}"},
        {API_CHAT, 400, "top_logprobs", "from 0 to 20", "{" HI ",\"logprobs\":true,\"top_logprobs\":21}"},
        {API_CHAT, 400, "top_logprobs", "'logprobs'", "{" HI ",\"top_logprobs\":2}"},
        {API_CHAT, 400, "model", "string", "{" HI ",\"model\":1}"},
        {API_CHAT, 400, "logit_bias", "object", "{" HI ",\"logit_bias\":1}"},
        {API_CHAT, 400, "logit_bias", "numbers", "{" HI ",\"logit_bias\":{\"1\":\"x\"}}"},
        {API_CHAT, 400, "logit_bias", "pairs", "{" HI ",\"logit_bias\":[1]}"},
        {API_CHAT, 400, "logit_bias", "pairs", "{" HI ",\"logit_bias\":[[1,2,3]]}"},
        {API_CHAT, 400, "chat_template_kwargs", "object", "{" HI ",\"chat_template_kwargs\":[]}"},
        {API_CHAT, 400, "response_format", "'type'", "{" HI ",\"response_format\":\"json\"}"},
        {API_CHAT, 400, "response_format", "json_schema",
            "{" HI ",\"response_format\":{\"type\":\"sound\"}}"},
        {API_CHAT, 400, "response_format.json_schema.schema", "expected a JSON Schema",
            "{" HI ",\"response_format\":{\"type\":\"json_schema\"}}"},
        {API_CHAT, 400, "response_format.json_schema.schema", "expected a JSON Schema",
            "{" HI ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":[]}}}"},
        {API_CHAT, 400, "response_format.schema", "expected a JSON Schema",
            "{" HI ",\"response_format\":{\"type\":\"json_object\",\"schema\":1}}"},
        {API_CHAT, 400, "tools", "expected an array", "{" HI ",\"tools\":{}}"},
        {API_CHAT, 400, "tools", "description",
            "{" HI ",\"tools\":[{\"function\":{\"name\":\"f\",\"description\":1}}]}"},
        {API_CHAT, 400, "tools", "parameters",
            "{" HI ",\"tools\":[{\"function\":{\"name\":\"f\",\"parameters\":\"x\"}}]}"},
        {API_CHAT, 400, "strict", "true or false",
            "{" HI ",\"tools\":[{\"function\":{\"name\":\"f\",\"strict\":1}}]}"},
        {API_RESPONSES, 400, "tool_choice", "expected", "{\"input\":\"a\",\"tool_choice\":\"some\"}"},
        {API_RESPONSES, 400, "tool_choice", "expected",
            "{\"input\":\"a\",\"tool_choice\":{\"type\":\"function\"}}"},
        {API_RESPONSES, 400, "tools", "'type'", "{\"input\":\"a\",\"tools\":[1]}"},
        {API_RESPONSES, 400, "strict", "true or false",
            "{\"input\":\"a\",\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"strict\":1}]}"},
        {API_ANTHROPIC, 400, "tools", "objects", "{\"max_tokens\":1," HI ",\"tools\":[1]}"},
        {API_CHAT, 400, "tools", "cannot be combined", "{" HI ",\"tools\":[{}],\"json_schema\":true}"},
        {API_CHAT, 400, "tool_choice", "there are no tools", "{" HI ",\"tool_choice\":\"required\"}"},
        {API_CHAT, 400, "tool_choice", "expected", "{" HI ",\"tools\":[{}],\"tool_choice\":\"some\"}"},
        {API_CHAT, 400, "tool_choice", "expected", "{" HI ",\"tools\":[{}],\"tool_choice\":{}}"},
        {API_CHAT, 400, "parallel_tool_calls", "", "{" HI ",\"tools\":[{}],\"parallel_tool_calls\":1}"},
        {API_TEXT, 501, "tools", "not supported", "{\"prompt\":\"a\",\"tools\":[{}]}"},
        {API_CHAT, 400, "grammar", "a string", "{" HI ",\"grammar\":1}"},
        {API_CHAT, 400, "json_schema", "expected a JSON Schema", "{" HI ",\"json_schema\":\"x\"}"},
        {API_CHAT, 400, "grammar", "'json_schema' cannot be combined",
            "{" HI ",\"grammar\":\"root ::= \\\"a\\\"\",\"json_schema\":{}}"},
        {API_CHAT, 400, "json_schema", "'response_format' cannot be combined",
            "{" HI ",\"response_format\":{\"type\":\"json_object\"},\"json_schema\":{}}"},
        {API_LLAMA, 501, "grammar_lazy", "not supported", "{\"prompt\":\"a\",\"grammar_lazy\":true}"},
        {API_TEXT, 501, "suffix", "not supported", "{\"prompt\":\"a\",\"suffix\":\"b\"}"},
        {API_TEXT, 501, "best_of", "not supported", "{\"prompt\":\"a\",\"best_of\":3}"},
        {API_TEXT, 400, "prompt", "string", "{}"},
        {API_TEXT, 400, "logprobs", "from 0 to 20", "{\"prompt\":\"a\",\"logprobs\":100}"},
        {API_TEXT, 400, "echo", "true or false", "{\"prompt\":\"a\",\"echo\":\"yes\"}"},
        {API_LLAMA, 400, "n_probs", "from 0 to 20", "{\"prompt\":\"a\",\"n_probs\":-1}"},
        {API_LLAMA, 400, "cache_prompt", "true or false", "{\"prompt\":\"a\",\"cache_prompt\":1}"},
        {API_LLAMA, 400, "id_slot", "integer", "{\"prompt\":\"a\",\"id_slot\":\"0\"}"},
        {API_LLAMA, 400, "response_fields", "strings", "{\"prompt\":\"a\",\"response_fields\":[1]}"},
        {API_LLAMA, 501, "post_sampling_probs", "not supported",
            "{\"prompt\":\"a\",\"post_sampling_probs\":true}"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct api_request request;
        struct api_error error;
        const bool ok = parse(cases[i].body, cases[i].style, &request, &error);
        if (ok || error.status != cases[i].status || strcmp(error.param, cases[i].param) != 0 ||
            !strstr(error.message, cases[i].words))
            fail_msg("%s: status %d, param '%s', message '%s'", cases[i].body, ok ? 200 : error.status,
                error.param, error.message);
        api_request_free(&request);
    }
}

static void test_deep_and_wide_bodies(void **state)
{
    (void)state;
    const size_t size = 4000000;
    char *body = malloc(size + 1);
    struct api_request request;
    struct api_error error;
    assert_non_null(body);
    memset(body, '[', size);
    body[size] = 0;
    assert_false(parse(body, API_TEXT, &request, &error));
    assert_int_equal(error.status, 400);
    for (size_t i = 1; i < size; i++)
        body[i] = i % 2 ? '1' : ',';
    memcpy(body + size - 2, "1]", 2);
    assert_false(parse(body, API_TEXT, &request, &error));
    assert_int_equal(error.status, 400);
    assert_non_null(strstr(error.message, "more than"));
    free(body);
}

static void test_defaults_and_values(void **state)
{
    struct api_request request;
    struct api_error error;
    (void)state;
    assert_true(parse("{" HI ",\"tools\":[],\"tool_choice\":\"auto\",\"grammar\":\"\",\"unknown\":{\"a\":1},"
                      "\"temperature\":null,\"response_format\":{\"type\":\"text\"}}",
        API_CHAT, &request, &error));
    assert_int_equal(request.n, 1);
    assert_int_equal(request.max_tokens, -1);
    assert_int_equal(request.sampler.seed, 7);
    assert_true(request.sampler.temperature == 0.5f);
    assert_true(request.cache_prompt);
    assert_false(request.stream || request.logprobs || request.continue_last || request.echo);
    assert_string_equal(request.model, "");
    api_request_free(&request);

    assert_true(
        parse("{" HI ",\"model\":\"m\",\"temperature\":0,\"top_p\":0,\"top_k\":-1,\"repeat_last_n\":-1,"
              "\"seed\":12345678901,\"stop\":[\"a\",\"b\"],\"n\":3,\"max_tokens\":9,"
              "\"max_completion_tokens\":5,\"logprobs\":true,\"top_logprobs\":4,\"stream\":true,"
              "\"stream_options\":{\"include_usage\":true},\"presence_penalty\":-0.5}",
            API_CHAT, &request, &error));
    assert_string_equal(request.model, "m");
    assert_true(request.sampler.temperature == 0);
    assert_true(request.sampler.top_p == FLT_MIN);
    assert_int_equal(request.sampler.top_k, 0);
    assert_int_equal(request.sampler.repeat_last_n, UINT32_MAX);
    assert_int_equal(request.sampler.seed, 12345678901);
    assert_true(request.sampler.presence_penalty == -0.5f);
    assert_int_equal(request.stop_count, 2);
    assert_string_equal(request.stops[1], "b");
    assert_int_equal(request.n, 3);
    assert_int_equal(request.max_tokens, 5);
    assert_int_equal(request.top_count, 4);
    assert_true(request.logprobs && request.stream && request.include_usage);
    api_request_free(&request);
}

static void test_limits_and_forms(void **state)
{
    struct api_defaults limited = defaults;
    struct api_request request;
    struct api_error error;
    static const char body[] =
        "{\"prompt\":\"a\",\"n_predict\":256,\"seed\":-1,\"n_probs\":2,\"max_tokens\":4.0}";
    (void)state;
    limited.max_tokens = 3;
    assert_true(api_dialect_parse(body, strlen(body), API_LLAMA, &limited, &request, &error));
    assert_int_equal(request.max_tokens, 3);
    assert_true(request.logprobs);
    assert_int_equal(request.top_count, 2);
    assert_true(request.sampler.seed <= UINT32_MAX); /* drawn */
    api_request_free(&request);

    assert_true(parse(
        "{\"prompt\":\"a\",\"echo\":true,\"max_tokens\":0,\"logprobs\":0}", API_TEXT, &request, &error));
    assert_true(request.echo && request.logprobs);
    assert_int_equal(request.max_tokens, 0);
    assert_int_equal(request.top_count, 0);
    api_request_free(&request);

    assert_true(parse("{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\","
                      "\"content\":[{\"type\":\"text\",\"text\":\"b\"}]}]}",
        API_CHAT, &request, &error));
    assert_true(request.continue_last);
    api_request_free(&request);
}

static void test_errors_are_written(void **state)
{
    struct buffer out = {0};
    struct json_writer json = api_json(&out);
    struct api_error error;
    (void)state;
    api_fail(&error, 400, "n", "'n': expected \"%d\"", 1);
    api_write_error(&json, &error);
    assert_int_equal(buffer_append(&out, "", 1), SALVO_OK);
    assert_string_equal(out.data, "{\"error\":{\"code\":400,\"message\":\"'n': expected \\\"1\\\"\",\"type\":"
                                  "\"invalid_request_error\",\"param\":\"n\"}}");
    buffer_free(&out);

    json = api_json(&out);
    api_fail(&error, 400, NULL, "long");
    error.type = "exceed_context_size_error";
    error.n_prompt_tokens = 9;
    error.n_ctx = 8;
    api_write_error(&json, &error);
    assert_int_equal(buffer_append(&out, "", 1), SALVO_OK);
    assert_string_equal(out.data,
        "{\"error\":{\"code\":400,\"message\":\"long\",\"type\":\"exceed_context_size_"
        "error\",\"param\":null,\"n_prompt_tokens\":9,\"n_ctx\":8}}");
    buffer_free(&out);

    api_fail_library(&error, SALVO_ERROR_MEMORY, "the queue is full");
    assert_int_equal(error.status, 429);
    assert_true(error.retry_after > 0);
    assert_string_equal(api_error_type(401), "authentication_error");
    assert_string_equal(api_error_type(404), "not_found_error");
}

/* A tree writes the document that it was read from. */
static void test_documents_round_trip(void **state)
{
    static const char text[] =
        "{\"a\":[1,-2.5,\"x\\n\\u0000y\",null,true,false,{}],\"b\":{\"c\":[[]]},\"b\":2}";
    struct api_document document;
    struct api_error error;
    struct buffer out = {0};
    struct json_writer json = api_json(&out);
    (void)state;
    assert_true(api_document_parse(text, strlen(text), &document, &error));
    api_write_value(&json, document.root);
    assert_int_equal(out.size, strlen(text));
    assert_memory_equal(out.data, text, out.size);
    assert_int_equal(api_member(document.root, "b")->integer, 2); /* the last one counts */
    assert_null(api_member(document.root, "c"));
    api_document_free(&document);
    buffer_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_bodies),
        cmocka_unit_test(test_deep_and_wide_bodies),
        cmocka_unit_test(test_defaults_and_values),
        cmocka_unit_test(test_limits_and_forms),
        cmocka_unit_test(test_errors_are_written),
        cmocka_unit_test(test_documents_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
