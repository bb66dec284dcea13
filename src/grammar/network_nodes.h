/* How a network grows: nodes, sets of bytes and rules. */
#ifndef GRAMMAR_NETWORK_NODES_H
#define GRAMMAR_NETWORK_NODES_H

#include "grammar/network.h"

enum { NOT_SET = 0 };

/* Keeps the first error; after one it adds nothing. */
struct node_writer {
    struct network *network;
    enum salvo_status status;
};

uint32_t writer_node(struct node_writer *writer, enum node_kind kind, uint32_t next, uint32_t other);

/* A node that reads a byte of the set. */
uint32_t writer_set(struct node_writer *writer, const struct byte_set *set, uint32_t next);

/* A rule without nodes. */
enum salvo_status network_add_rule(struct network *network, uint32_t *out);

#endif
