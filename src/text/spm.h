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
     * A bit for each two bytes that follow each other in some token. Between two that never do nothing can be
     * merged, so the text can be cut there and each part be encoded alone; in most vocabularies that is
     * before every word.
     */
    uint8_t followers[256][256 / 8];
};

void spm_open(struct spm *spm, const struct vocabulary *vocabulary);

/* Appends the tokens of single bytes, as far as there are any for these. */
enum salvo_status spm_spell(const struct spm *spm, struct salvo_text text, struct token_list *list);

/* Appends the tokens of plain text. */
enum salvo_status spm_encode(const struct spm *spm, struct salvo_text text, struct token_list *list);

#endif
