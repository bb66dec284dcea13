/* Every allocation of opening and using a chat template fails once: an error, no leak, and the next attempt
 * works. */
#include "base/memory.h"
#include "cmocka_test.h"
#include "engine_fixture.h"

#include <string.h>

static const char text[] =
    "{% macro m(a, b=[1, 2.5]) %}{{ a | upper }}{{ b | tojson(indent=2) }}{{ varargs }}{% endmacro %}"
    "{% set ns = namespace(n=0) %}{% for m in messages if m.role != 'x' %}{% set ns.n = ns.n + 1 %}"
    "<|im_start|>{{ m.role ~ '\\n' ~ m.content.strip() }}<|im_end|>{% endfor %}{{ m('a', 3, 4) }}"
    "{{ messages | map(attribute='role') | sort | join(',') }}{{ '%s %5.2f' % (ns.n, 1.5) }}{{ "
    "'{:>5}'.format(1) }}"
    "{{ [messages[0].content.split('a')] | string | replace('h', 'H') | title }}{{ tools | tojson }}";

static const char json[] = "{\"messages\": [{\"role\": \"user\", \"content\": \" hello \\u00e9\"}], "
                           "\"tools\": [{\"a\": [1, null, 2e3]}]}";

static enum salvo_status use_template(struct salvo_model *model)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_template *chat = NULL;
    struct salvo_prompt *prompt = NULL;
    int32_t *ids = NULL;
    size_t count;
    const struct salvo_conversation conversation = {
        .size = sizeof(struct salvo_conversation), .json = {json, sizeof json - 1}};
    TRY(salvo_template_open(model, text, sizeof text - 1, &chat));
    TRY(salvo_template_render(chat, &conversation, &prompt));
    TRY(salvo_template_tokens(chat, &conversation, &ids, &count));

cleanup:
    salvo_free(ids);
    salvo_free(prompt);
    salvo_template_close(chat);
    return status;
}

static void templates(void **state)
{
    (void)state;
    const char *path = made_model_with_vocabulary("llama-tiny", "Q8_0");
    struct salvo_model *model;
    uint64_t nth = 1;
    for (;; nth++) {
        ASSERT_OK(salvo_model_open(path, &model)); /* anew: its tokenizer is opened on first use */
        memory_fail_at(nth);
        enum salvo_status status = use_template(model);
        memory_fail_at(0);
        salvo_model_close(model);
        if (status == SALVO_OK)
            break;
        assert_int_equal(SALVO_ERROR_MEMORY, status);
    }
    assert_true(nth > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(templates)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
