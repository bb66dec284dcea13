/* The stages that pre-tokenizers are made of. Each is described by the expression that it stands for. */
#ifndef TEXT_SPLIT_STAGES_H
#define TEXT_SPLIT_STAGES_H

#include "text/unicode.h"

/*
 * Whole patterns: words, numbers, the rest, white space. They match everywhere.
 * L, N, P, S, M are classes of characters; contractions are 's 't 're 've 'm 'll 'd.
 */
size_t stage_gpt2(const char *at, const char *end);   /* contractions| ?L+| ?N+| ?[^\sLN]+|\s+(?!\S)|\s+ */
size_t stage_llama3(const char *at, const char *end); /* numbers of up to three digits */
size_t stage_qwen2(const char *at, const char *end);  /* as llama3, numbers of one digit */
size_t stage_qwen35(const char *at, const char *end); /* as qwen2, combining marks belong to words */
size_t stage_long_numbers(const char *at, const char *end);    /* as llama3, numbers of any length */
size_t stage_no_contractions(const char *at, const char *end); /* as qwen2, without contractions */
size_t stage_seed_coder(const char *at, const char *end); /* as qwen2, line ends do not join punctuation */
size_t stage_tekken(const char *at, const char *end);     /* words also end before a capital; one digit */
size_t stage_gpt4o(const char *at, const char *end); /* as tekken; contractions end a word; three digits */
size_t stage_deepseek_v3(const char *at, const char *end); /* its third expression */

/* Single expressions, for sequences. */
size_t stage_digit(const char *at, const char *end);                /* N */
size_t stage_digits(const char *at, const char *end);               /* N+ */
size_t stage_three_digits(const char *at, const char *end);         /* N{1,3} */
size_t stage_ascii_triple(const char *at, const char *end);         /* [0-9][0-9][0-9] */
size_t stage_line_end(const char *at, const char *end);             /* [\r\n] */
size_t stage_lines(const char *at, const char *end);                /* [^\n]+|[\n]+ */
size_t stage_spaced_letters(const char *at, const char *end);       /* \s?L+ */
size_t stage_spaced_punctuation(const char *at, const char *end);   /* \s?P+ */
size_t stage_final_space(const char *at, const char *end);          /* \s+$ */
size_t stage_punctuation(const char *at, const char *end);          /* [P$+<=>^~|]+ */
size_t stage_punctuation_backtick(const char *at, const char *end); /* [P$+<=>^~|`]+ */
size_t stage_bloom(const char *at, const char *end); /* " ?" and a run without blanks, stops and brackets */
size_t stage_deepseek_letters(const char *at, const char *end);     /* \s?[letters of scripts with cases]+ */
size_t stage_deepseek_punctuation(const char *at, const char *end); /* \s?[punctuation, also full-width]+ */
size_t stage_east_asian(const char *at, const char *end);           /* [U+0800-U+9FA5 U+AC00-U+D7FF]+ */
size_t stage_han_kana(const char *at, const char *end);             /* [U+4E00-U+9FA5 U+3040-U+30FF]+ */

/* ---- Functions of all stages ------------------------------------------------------------------------- */

/* The end of the run of characters whose class is in `classes`. */
static inline const char *skip_classes(const char *at, const char *end, unsigned classes)
{
    for (;;) {
        struct character next = unicode_at(at, end);
        if (!(next.class & classes))
            return at;
        at += next.size;
    }
}

/* The size of the number at `at`, of at most `max_digits` digits, or any number if that is 0. */
static inline size_t number_size(const char *at, const char *end, unsigned max_digits)
{
    const char *stop = at;
    for (unsigned digits = 0; !max_digits || digits < max_digits; digits++) {
        struct character next = unicode_at(stop, end);
        if (next.class != CLASS_NUMBER)
            break;
        stop += next.size;
    }
    return (size_t)(stop - at);
}

static inline bool is_line_end(uint32_t code)
{
    return code == '\n' || code == '\r';
}

/*
 * \s*[\r\n]+|\s+(?!\S)|\s+ for a text that begins with white space: up to the last line end; otherwise all of
 * it, less the last one when a word follows, which that one belongs to. Without `lines`, \s+(?!\S)|\s+.
 */
size_t white_space_piece(const char *at, const char *end, bool lines);

/*
 * Makes a stage of a function that says how much matches right here, 0 for nothing. It must find out within a
 * few characters that nothing does, or long gaps would take quadratic time.
 */
static inline size_t match_or_gap(
    size_t (*match)(const char *, const char *), const char *at, const char *end)
{
    size_t size = match(at, end);
    if (size)
        return size;
    const char *gap = at;
    do {
        gap += unicode_at(gap, end).size;
    } while (gap != end && !match(gap, end));
    return (size_t)(gap - at);
}

#endif
