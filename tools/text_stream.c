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
    double tokenized = (double)(stream->bytes_read - stream->size + stream->overlap),
           left = (double)(stream->list.count - stream->taken);
    if (stream->bytes_in_all == 0 || stream->tokens == 0)
        return 0;
    return tokenized * (1 - left / (double)stream->tokens) / (double)stream->bytes_in_all;
}

/* The place to cut the text: after the last line break that is not followed by white space. 0: none. */
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

/* The number of tokens at the beginning of the ids that stand for the overlap. */
static int count_overlap(const struct text_stream *stream, const int32_t *ids, size_t count, size_t *out)
{
    int32_t *alone = NULL;
    size_t alone_count;
    *out = 0;
    if (stream->overlap == 0)
        return EXIT_DONE;
    if (salvo_tokenize(stream->model, stream->text, stream->overlap, 0, &alone, &alone_count) != SALVO_OK)
        return library_failure();
    bool begins = alone_count <= count && memcmp(alone, ids, alone_count * sizeof *ids) == 0;
    *out = alone_count;
    salvo_free(alone);
    return begins ? EXIT_DONE : failure("%s: the vocabulary has a token across a newline", stream->name);
}

static int add_tokens(struct text_stream *stream, size_t size)
{
    unsigned flags = 0;
    int32_t *ids = NULL;
    size_t count, skipped;
    if (salvo_tokenize_default_flags(stream->model, &flags) != SALVO_OK ||
        salvo_tokenize(stream->model, stream->text, size, stream->started ? 0 : flags & SALVO_TOKENIZE_BOS,
            &ids, &count) != SALVO_OK)
        return library_failure();
    int result = count_overlap(stream, ids, count, &skipped);
    if (result == EXIT_DONE)
        result = id_list_append(&stream->list, ids + skipped, count - skipped);
    if (result == EXIT_DONE)
        stream->tokens += count - skipped;
    salvo_free(ids);
    stream->started = true;
    stream->overlap = stream->ended ? 0 : 1;
    stream->size -= size - stream->overlap;
    memmove(stream->text, stream->text + size - stream->overlap, stream->size);
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
    return cut > stream->overlap ? add_tokens(stream, cut) : EXIT_DONE;
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
