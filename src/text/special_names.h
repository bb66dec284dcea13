/* Tokens that are known by their names where metadata does not say what they are for. */
#ifndef TEXT_SPECIAL_NAMES_H
#define TEXT_SPECIAL_NAMES_H

#include "text/vocabulary.h"

/* Sets the tokens' types, whether they end generation, and the blanks they take with them. */
enum salvo_status special_names_apply(const struct gguf *gguf, struct vocabulary *vocabulary);

#endif
