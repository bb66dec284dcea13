/* Decodes the texts of tokens to bytes, for each kind of vocabulary. */
#ifndef TEXT_PIECES_H
#define TEXT_PIECES_H

#include "base/buffer.h"
#include "text/vocabulary.h"

/*
 * Sets `piece` and `plain` of every token; pieces that differ from the text are kept in the vocabulary's
 * arena.
 */
enum salvo_status pieces_decode(struct vocabulary *vocabulary);

/*
 * Byte-level BPE writes each byte as one character, printable ones as themselves. False when the text has a
 * character that stands for no byte; *out is then undefined. Overwrites *out.
 */
enum salvo_status byte_level_decode(struct salvo_text text, struct buffer *out, bool *valid);

/* The size of U+2581, which SentencePiece writes for a blank, when the text begins with it; otherwise 0. */
size_t space_mark_size(const char *at, const char *end);

#endif
