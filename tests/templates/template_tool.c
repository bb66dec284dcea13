/*
 * Renders many templates in one run, for tests in Python. Usage: template_tool [NAME=TEXT ...] < cases >
 * answers; the arguments are words of the vocabulary. A case is a template and a request in JSON, two sized
 * texts. The answer is a byte, 0 for success, and two sized texts: the text and its marks, or the error and
 * an empty text.
 */
#include "sized_text.h"
#include "text/template.h"

#include <stdio.h>
#include <string.h>

static void answer(const struct buffer *text, const struct template_input *input)
{
    struct template *template = NULL;
    struct marked_text marked = {0};
    bool good = template_open(text->data, text->size, &template) == SALVO_OK &&
                template_render(template, input, &marked) == SALVO_OK;
    putchar(good ? 0 : 1);
    sized_text_write(
        good ? marked.text.data : salvo_error(), good ? marked.text.size : strlen(salvo_error()));
    sized_text_write(marked.marks.data, good ? marked.marks.size : 0);
    marked_text_free(&marked);
    template_close(template);
}

int main(int count, char **arguments)
{
    struct template_word words[8];
    struct buffer text = {0}, json = {0};
    size_t word_count = 0;
    for (int i = 1; i < count && word_count < sizeof words / sizeof *words; i++) {
        char *value = strchr(arguments[i], '=');
        if (!value)
            return 2;
        *value++ = 0;
        words[word_count++] = (struct template_word){arguments[i], {value, strlen(value)}};
    }
    while (sized_text_read(&text) && sized_text_read(&json)) {
        const struct salvo_conversation conversation = {
            .size = sizeof(struct salvo_conversation), .json = {json.data, json.size}};
        const struct template_input input = {
            .conversation = &conversation, .words = words, .word_count = word_count};
        answer(&text, &input);
    }
    buffer_free(&text);
    buffer_free(&json);
    return 0;
}
