/*
 * Measures the speed of a tokenizer. Usage: bench_tokenizer MODEL [TEXT-FILE]; without a file the text is one
 * repeated letter.
 */
#include "gguf/gguf.h"
#include "text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* CPU time of this process: other processes do not count. */
static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static enum salvo_status read_text(const char *path, struct buffer *text)
{
    enum salvo_status status = SALVO_OK;
    enum { LETTERS = 1 << 20 };
    FILE *stream = NULL;
    if (!path) {
        TRY(buffer_reserve(text, LETTERS));
        memset(text->data, 'a', LETTERS);
        text->size = LETTERS;
        goto cleanup;
    }
    stream = fopen(path, "rb");
    if (!stream)
        TRY(fail(SALVO_ERROR_IO, "%s cannot be read", path));
    for (size_t got = 1; got;) {
        TRY(buffer_reserve(text, 1 << 16));
        got = fread(text->data + text->size, 1, 1 << 16, stream);
        text->size += got;
    }

cleanup:
    if (stream)
        fclose(stream);
    return status;
}

int main(int count, char **arguments)
{
    enum salvo_status status = SALVO_OK;
    struct gguf *gguf = NULL;
    struct tokenizer *tokenizer = NULL;
    struct buffer text = {0}, decoded = {0};
    struct token_list ids = {0};
    if (count < 2)
        TRY(fail(SALVO_ERROR_ARGUMENT, "usage: bench_tokenizer MODEL [TEXT-FILE]"));
    TRY(read_text(count > 2 ? arguments[2] : NULL, &text));
    double start = seconds();
    TRY(gguf_open(arguments[1], &gguf));
    double opened = seconds();
    TRY(tokenizer_open(gguf, &tokenizer));
    printf("open: file %.1f ms, tokenizer %.1f ms\n", 1e3 * (opened - start), 1e3 * (seconds() - opened));
    for (int i = 0; i < 5; i++) {
        ids.count = decoded.size = 0;
        start = seconds();
        TRY(tokenizer_encode(tokenizer, text.data, text.size, 0, &ids));
        double encoded = seconds();
        TRY(tokenizer_decode(tokenizer, ids.ids, ids.count, false, &decoded));
        double done = seconds();
        printf("%.2f MB, %zu tokens: encode %.1f MB/s (%.3f s), decode %.1f MB/s\n", 1e-6 * (double)text.size,
            ids.count, 1e-6 * (double)text.size / (encoded - start), encoded - start,
            1e-6 * (double)text.size / (done - encoded));
    }

cleanup:
    if (status != SALVO_OK)
        fprintf(stderr, "bench_tokenizer: %s\n", salvo_error());
    token_list_free(&ids);
    buffer_free(&text);
    buffer_free(&decoded);
    tokenizer_close(tokenizer);
    gguf_close(gguf);
    return status != SALVO_OK;
}
