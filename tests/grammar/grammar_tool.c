/*
 * Matches many texts in one run, for tests in Python. Usage: grammar_tool < texts > answers. Each sized text
 * begins with a letter: G, R, S or J and a grammar (GBNF, regular expression, JSON Schema in any layout and
 * in the library's), or T and a text for the last grammar. The answers are sized texts: "ok" or "error: ..."
 * for a grammar; for a text "1", "0" or
 * "-": it matches, it is the beginning of one that does, or neither.
 */
#include "sized_text.h"

#include <salvo/grammar.h>

#include <stdio.h>
#include <string.h>

static void answer_string(const char *text)
{
    sized_text_write(text, strlen(text));
}

static void match(struct salvo_grammar *grammar, const char *data, size_t size)
{
    struct salvo_grammar_matcher *matcher = NULL;
    enum salvo_status status = salvo_grammar_matcher_new(grammar, &matcher);
    size_t taken = 0;
    if (status == SALVO_OK)
        status = salvo_grammar_matcher_append(matcher, data, size, &taken);
    if (status != SALVO_OK && status != SALVO_ERROR_ARGUMENT)
        answer_string("error");
    else
        answer_string(taken < size ? "-" : salvo_grammar_matcher_complete(matcher) ? "1" : "0");
    salvo_grammar_matcher_free(matcher);
}

static void compile(char letter, const char *data, size_t size, struct salvo_grammar **grammar)
{
    char message[300];
    salvo_grammar_free(*grammar);
    enum salvo_grammar_kind kind = letter == 'G'   ? SALVO_GRAMMAR_GBNF
                                   : letter == 'R' ? SALVO_GRAMMAR_REGEX
                                                   : SALVO_GRAMMAR_JSON_SCHEMA;
    struct salvo_grammar_options options = SALVO_GRAMMAR_OPTIONS_INIT;
    options.any_layout = letter == 'S';
    if (salvo_grammar_compile(NULL, kind, data, size, &options, grammar) == SALVO_OK) {
        answer_string("ok");
    } else {
        snprintf(message, sizeof message, "error: %s", salvo_error());
        answer_string(message);
    }
}

int main(void)
{
    struct buffer text = {0};
    struct salvo_grammar *grammar = NULL;
    while (sized_text_read(&text)) {
        if (text.size == 0)
            return 1;
        if (text.data[0] == 'T' && grammar)
            match(grammar, text.data + 1, text.size - 1);
        else if (text.data[0] == 'T')
            answer_string("error");
        else
            compile(text.data[0], text.data + 1, text.size - 1, &grammar);
    }
    salvo_grammar_free(grammar);
    buffer_free(&text);
    return 0;
}
