/* The states of an automaton over the inside of JSON strings that are between two characters. */
#ifndef GRAMMAR_DFA_CHARACTERS_H
#define GRAMMAR_DFA_CHARACTERS_H

#include "grammar/dfa.h"

struct dfa_characters {
    uint32_t count;
    uint32_t *states;  /* of the automaton; states[0] is the first */
    uint32_t *numbers; /* for each state of the automaton: its index in `states` + 1; 0: within a character */
    uint64_t *leads;   /* a bit for each pair: a character leads from one to the other */
};

/* One byte of each class, divided further where JSON strings treat bytes of a class differently; returns
 * their number. */
unsigned json_text_bytes(const struct byte_classes *classes, unsigned char bytes[256]);

/* Fails if a state of the automaton is both between characters and within one, or there are too many. */
enum salvo_status dfa_characters_open(const struct dfa *dfa, struct dfa_characters *out);
void dfa_characters_close(struct dfa_characters *characters);

static inline bool dfa_characters_lead(const struct dfa_characters *characters, uint32_t from, uint32_t to)
{
    const size_t pair = (size_t)from * characters->count + to;
    return characters->leads[pair / 64] >> (pair % 64) & 1;
}

#endif
