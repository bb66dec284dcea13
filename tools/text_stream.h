/*
 * The tokens of a text of any size. It is read and tokenized in large pieces that end with a line whose
 * successor does not begin with a blank: no usual vocabulary has a token across that point. A further piece
 * is tokenized with the newline before it, whose tokens are then removed: a tokenizer that adds a blank to
 * the beginning of a text adds it there.
 */
#ifndef TOOLS_TEXT_STREAM_H
#define TOOLS_TEXT_STREAM_H

#include "id_list.h"

#include <salvo/salvo.h>
#include <stdio.h>

struct text_stream {
    struct salvo_model *model;
    FILE *file;
    const char *name;
    char *text; /* read and not tokenized */
    size_t size, capacity;
    bool started, ended;
    size_t
        overlap; /* bytes at the beginning of `text` that were tokenized with the piece before: a newline */
    uint64_t bytes_read, bytes_in_all; /* 0: not known */
    uint64_t tokens;                   /* so far */
    struct id_list list;               /* tokenized; the ids before `taken` were handed over */
    size_t taken;
};

/* `path` NULL or "-" is standard input. These return EXIT_DONE, or an exit status after an error message. */
int text_stream_open(struct salvo_model *model, const char *path, struct text_stream *out);

/* The next `most` ids, fewer at the end of the text; they may be changed, and live until the next call. */
int text_stream_next(struct text_stream *stream, uint32_t most, int32_t **out_ids, uint32_t *out_count);

double text_stream_share(const struct text_stream *stream); /* of the text that was handed over, 0 to 1 */
void text_stream_close(struct text_stream *stream);

#endif
