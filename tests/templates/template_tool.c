/*
 * Renders many templates in one run, for tests in Python. Usage: template_tool [NAME=TEXT ...] < cases >
 * answers; the arguments are words of the vocabulary. A case is a template and a request in JSON, each as its
 * size, four bytes, little-endian, and its bytes. The answer is a byte, 0 when it worked, and in the same way
 * the text and its marks, or what went wrong and nothing.
 */
#include "text/template.h"

#include <stdio.h>
#include <string.h>

static bool read_bytes(struct buffer *out)
{
    unsigned char prefix[4];
    if (fread(prefix, 1, sizeof prefix, stdin) != sizeof prefix)
        return false;
    size_t size = prefix[0] | (size_t)prefix[1] << 8 | (size_t)prefix[2] << 16 | (size_t)prefix[3] << 24;
    out->size = 0;
    if (buffer_reserve(out, size + 1) != SALVO_OK || fread(out->data, 1, size, stdin) != size)
        return false;
    out->size = size;
    return true;
}

static void write_bytes(const char *data, size_t size)
{
    const unsigned char prefix[4] = {(unsigned char)size, (unsigned char)(size >> 8),
        (unsigned char)(size >> 16), (unsigned char)(size >> 24)};
    fwrite(prefix, 1, sizeof prefix, stdout);
    if (size)
        fwrite(data, 1, size, stdout);
}

static void answer(const struct buffer *text, const struct template_input *input)
{
    struct template *template = NULL;
    struct marked_text marked = {0};
    bool good = template_open(text->data, text->size, &template) == SALVO_OK &&
                template_render(template, input, &marked) == SALVO_OK;
    putchar(good ? 0 : 1);
    write_bytes(good ? marked.text.data : salvo_error(), good ? marked.text.size : strlen(salvo_error()));
    write_bytes(marked.marks.data, good ? marked.marks.size : 0);
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
    while (read_bytes(&text) && read_bytes(&json)) {
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
