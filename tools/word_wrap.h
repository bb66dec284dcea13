/*
 * Text on a terminal, broken between words. Text is written immediately; a word that does not fit is erased
 * and written again on the next line. Needs a locale with UTF-8.
 */
#ifndef TOOLS_WORD_WRAP_H
#define TOOLS_WORD_WRAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <wchar.h>

/* Zeros are the beginning of a line. */
struct word_wrap {
    unsigned column;     /* where the cursor is */
    unsigned word_width; /* columns of the word that ends there */
    char word[128];
    size_t word_size;
    bool is_fixed; /* the word is too long, or has characters of other widths than 1: it stays where it is */
    mbstate_t state;
    char held[8]; /* the bytes of a character that is not complete */
    size_t held_size;
};

/* `width`: columns of the terminal; 0: not known, nothing is broken. */
void word_wrap_write(struct word_wrap *wrap, unsigned width, const char *text, size_t size, FILE *out);

/* ASCII text whose lines begin with `indent` blanks and break between words, the first at `column`; 0 as the
 * width: no breaks. A line break ends it. */
void print_wrapped(unsigned width, unsigned indent, unsigned column, const char *text, FILE *out);

/* Columns of the terminal on standard output; 0: unknown. */
unsigned terminal_width(void);

#endif
