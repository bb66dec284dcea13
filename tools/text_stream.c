#include "text_stream.h"

#include "command.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PIECE = 8 << 20 };

int text_stream_open(struct salvo_model *model, const char *path, struct text_stream *out)
{
    bool is_standard_input = !path || strcmp(path, "-") == 0;
    *out = (struct text_stream){.model = model, .name = is_standard_input ? "standard input" : path};
    out->file = is_standard_input ? stdin : fopen(path, "rb");
    if (!out->file)
        return failure("%s: %s", path, strerror(errno));
    struct stat status;
    if (fstat(fileno(out->file), &status) == 0 && S_ISREG(status.st_mode))
        out->bytes_in_all = (uint64_t)status.st_size;
    return EXIT_DONE;
}

void text_stream_close(struct text_stream *stream)
{
    if (stream->file && stream->file != stdin)
        fclose(stream->file);
    free(stream->text);
    id_list_free(&stream->list);
    *stream = (struct text_stream){0};
}

double text_stream_share(const struct text_stream *stream)
{
    double tokenized = (double)(stream->bytes_read - stream->size),
           left = (double)(stream->list.count - stream->taken);
    if (stream->bytes_in_all == 0 || stream->tokens == 0)
        return 0;
    return tokenized * (1 - left / (double)stream->tokens) / (double)stream->bytes_in_all;
}

/* Where the text can be cut: after the last line whose successor begins with something. 0: nowhere. */
static size_t find_cut(const char *text, size_t size)
{
    for (size_t i = size; i > 1; i--) {
        if (text[i - 2] == '\n' && !strchr(" \t\r\n\v\f", text[i - 1]))
            return i - 1;
    }
    return 0;
}

static int read_piece(struct text_stream *stream)
{
    size_t wanted = stream->size + PIECE;
    if (stream->capacity < wanted) {
        char *larger = realloc(stream->text, wanted);
        if (!larger)
            return failure("out of memory");
        stream->text = larger;
        stream->capacity = wanted;
    }
    size_t got = fread(stream->text + stream->size, 1, PIECE, stream->file);
    if (ferror(stream->file))
        return failure("%s: %s", stream->name, strerror(errno));
    stream->size += got;
    stream->bytes_read += got;
    stream->ended = got < PIECE;
    return EXIT_DONE;
}

static int add_tokens(struct text_stream *stream, size_t size)
{
    unsigned flags = 0;
    int32_t *ids = NULL;
    size_t count;
    if (salvo_tokenize_default_flags(stream->model, &flags) != SALVO_OK ||
        salvo_tokenize(stream->model, stream->text, size, stream->started ? 0 : flags & SALVO_TOKENIZE_BOS,
            &ids, &count) != SALVO_OK)
        return library_failure();
    stream->started = true;
    stream->tokens += count;
    int result = id_list_append(&stream->list, ids, count);
    salvo_free(ids);
    stream->size -= size;
    memmove(stream->text, stream->text + size, stream->size);
    return result;
}

/* Drops the consumed tokens, then tokenizes one more piece. */
static int refill(struct text_stream *stream)
{
    stream->list.count -= stream->taken;
    if (stream->taken)
        memmove(stream->list.ids, stream->list.ids + stream->taken,
            stream->list.count * sizeof *stream->list.ids);
    stream->taken = 0;
    int result = read_piece(stream);
    if (result != EXIT_DONE)
        return result;
    size_t cut = stream->ended ? stream->size : find_cut(stream->text, stream->size);
    return cut ? add_tokens(stream, cut) : EXIT_DONE;
}

int text_stream_next(struct text_stream *stream, uint32_t most, int32_t **out_ids, uint32_t *out_count)
{
    while (stream->list.count - stream->taken < most && !stream->ended) {
        int result = refill(stream);
        if (result != EXIT_DONE)
            return result;
    }
    size_t left = stream->list.count - stream->taken;
    *out_count = left < most ? (uint32_t)left : most;
    *out_ids = stream->list.ids + stream->taken;
    stream->taken += *out_count;
    return EXIT_DONE;
}
