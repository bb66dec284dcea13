/* Upper and lower case of marked characters, as Python maps them. */
#ifndef TEXT_JINJA_LETTERS_H
#define TEXT_JINJA_LETTERS_H

#include "text/jinja/value.h"

enum letter_case { CASE_UPPER, CASE_LOWER, CASE_TITLE };

/* Appends one character in another case, which may be up to three. */
enum salvo_status text_letter(struct text *text, uint32_t character, enum letter_case wanted);
enum salvo_status text_in_case(struct text *text, struct string string, enum letter_case wanted);

/* Where the line that begins at `at` ends; *next is where the next one begins. */
size_t string_line_end(struct string string, size_t at, size_t *next);

/* The first letter of each run of letters in title case, others in lower case. */
enum salvo_status text_in_titles(struct text *text, struct string string);

#endif
