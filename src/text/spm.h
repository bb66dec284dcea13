/*
 * SentencePiece BPE: neighbours are merged into the token of the highest score; what is left over becomes
 * bytes.
 */
#ifndef TEXT_SPM_H
#define TEXT_SPM_H

#include "text/tokenizer.h"
#include "text/vocabulary.h"

struct spm {
    const struct vocabulary *vocabulary;
    int32_t byte_tokens[256]; /* -1 where there is none */
    size_t longest_piece;

    /*
     * A bit for each two bytes that follow each other in some token. Two bytes that follow each other in no
     * token are never merged, so the text is cut between them and each part encoded alone; in most
     * vocabularies this is before every word.
     */
    uint8_t followers[256][256 / 8];
};

void spm_open(struct spm *spm, const struct vocabulary *vocabulary);

/* Appends the token of each byte: for a byte without one the unknown token, or nothing if there is none. */
enum salvo_status spm_spell(const struct spm *spm, struct salvo_text text, struct token_list *list);

/* Appends the tokens of plain text. */
enum salvo_status spm_encode(const struct spm *spm, struct salvo_text text, struct token_list *list);

#endif
