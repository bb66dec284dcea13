/* Automata as nodes of a network. */
#ifndef GRAMMAR_NETWORK_DFA_H
#define GRAMMAR_NETWORK_DFA_H

#include "grammar/dfa.h"
#include "grammar/network_nodes.h"

/* The first node of an automaton that `next` follows. `inside_json`: it reads the inside of strings. */
uint32_t writer_dfa(struct node_writer *writer, const struct dfa *dfa, uint32_t next, bool inside_json);

/* The inside of a JSON string that an automaton accepts, with a number of characters within limits. Nodes of
 * one character are shared by all places where it may be, so that long texts need few of them. */
uint32_t writer_counted(struct node_writer *writer, const struct counted_text *text, uint32_t next);

#endif
