/* Questions on the terminal. */
#ifndef TOOLS_QUESTION_H
#define TOOLS_QUESTION_H

#include <stdbool.h>

/* Whether standard input and standard error are a terminal, so that a question can be asked. */
bool question_possible(void);

/* Asks on standard error; true for an answer that begins with y or Y. */
bool question_ask(const char *question);

#endif
