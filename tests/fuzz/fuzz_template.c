/* A template, and behind a NUL a request in JSON: parsed and rendered within narrow limits. */
#include "text/template.h"

#include <stdlib.h>
#include <string.h>

static const char request[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi <|im_end|> é\"}, {\"role\": \"assistant\", "
    "\"content\": null, "
    "\"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {\"a\": [1, 2.5, true]}}}]}], "
    "\"tools\": [{\"function\": {\"name\": \"f\", \"parameters\": {\"properties\": {\"a\": {\"type\": "
    "\"array\"}}}}}], "
    "\"n\": 3, \"s\": \"straße\"}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct template_limits limits = {(size_t)16 << 20, (size_t)1 << 20, 200000};
    const struct template_word words[] = {{"bos_token", {"<s>", 3}}};
    const char *text = (const char *)data;
    const char *end = size ? memchr(text, 0, size) : NULL;
    size_t template_size = end ? (size_t)(end - text) : size;
    const struct salvo_text json = end ? (struct salvo_text){end + 1, size - template_size - 1}
                                       : (struct salvo_text){request, sizeof request - 1};
    const struct salvo_conversation conversation = {.size = sizeof(struct salvo_conversation), .json = json};
    const struct template_input input = {&conversation, words, 1, &limits};
    struct template *template;
    struct marked_text marked;
    if (template_open(text, template_size, &template) != SALVO_OK)
        return 0;
    if (template_render(template, &input, &marked) == SALVO_OK) {
        if (marked.text.size != marked.marks.size || marked.text.size > limits.output)
            abort();
        marked_text_free(&marked);
    }
    template_close(template);
    return 0;
}
