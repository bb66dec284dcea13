/*
 * Tokenizes many texts in one run, for tests in Python. Usage: text_tool MODEL FLAGS < texts > lines. Without
 * arguments it writes the names of all pre-tokenizers.
 * FLAGS is a number, enum tokenize_flags. Each text is a sized text; the answer is a line with its ids. After
 * the last one comes a line with the tokens that end generation.
 */
#include "gguf/gguf.h"
#include "sized_text.h"
#include "text/split.h"
#include "text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>

static void print_ids(const struct token_list *ids)
{
    for (size_t i = 0; i < ids->count; i++)
        printf(i ? " %d" : "%d", ids->ids[i]);
    putchar('\n');
}

static enum salvo_status answer(const struct tokenizer *tokenizer, unsigned flags)
{
    enum salvo_status status = SALVO_OK;
    struct token_list ids = {0};
    struct buffer text = {0};
    while (sized_text_read(&text)) {
        ids.count = 0;
        TRY(tokenizer_encode(tokenizer, text.data, text.size, flags, &ids));
        print_ids(&ids);
    }
    for (size_t i = 0; i < tokenizer_vocabulary(tokenizer); i++) {
        if (tokenizer_is_end(tokenizer, (int32_t)i))
            printf("%zu ", i);
    }
    putchar('\n');

cleanup:
    token_list_free(&ids);
    buffer_free(&text);
    return status;
}

static void print_line(void *user, enum salvo_log_level level, const char *line)
{
    (void)user, (void)level;
    fprintf(stderr, "%s\n", line);
}

int main(int count, char **arguments)
{
    enum salvo_status status = SALVO_OK;
    struct gguf *gguf = NULL;
    struct tokenizer *tokenizer = NULL;
    salvo_log_set(print_line, NULL);
    const struct pre_tokenizer *pre;
    for (size_t i = 0; count == 1 && (pre = pre_tokenizer_at(i)); i++)
        puts(pre->name);
    if (count == 1)
        goto cleanup;
    if (count != 3)
        TRY(fail(SALVO_ERROR_ARGUMENT, "usage: text_tool MODEL FLAGS"));
    TRY(gguf_open(arguments[1], &gguf));
    TRY(tokenizer_open(gguf, &tokenizer));
    TRY(answer(tokenizer, (unsigned)strtoul(arguments[2], NULL, 10)));

cleanup:
    if (status != SALVO_OK)
        fprintf(stderr, "text_tool: %s\n", salvo_error());
    tokenizer_close(tokenizer);
    gguf_close(gguf);
    return status != SALVO_OK;
}
