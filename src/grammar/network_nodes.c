#include "grammar/network_nodes.h"

#include "base/memory.h"

#include <string.h>

uint32_t writer_node(struct node_writer *writer, enum node_kind kind, uint32_t next, uint32_t other)
{
    struct network *network = writer->network;
    if (writer->status != SALVO_OK)
        return 0;
    if (network->node_count == network->node_capacity) {
        uint32_t capacity = network->node_capacity ? network->node_capacity * 2 : 256;
        if (network->node_count >= NETWORK_MAX_NODES) {
            writer->status = fail(SALVO_ERROR_UNSUPPORTED,
                "the grammar is too large: it needs more than %d nodes", NETWORK_MAX_NODES);
        } else {
            writer->status = RESIZE(&network->nodes, capacity);
        }
        if (writer->status != SALVO_OK)
            return 0;
        network->node_capacity = capacity;
    }
    network->nodes[network->node_count] = (struct node){.kind = (uint8_t)kind, .next = next, .other = other};
    return network->node_count++;
}

static uint32_t hash_set(const struct byte_set *set)
{
    uint64_t hash = 0;
    for (int i = 0; i < 4; i++)
        hash = (hash ^ set->words[i]) * UINT64_C(0x9E3779B97F4A7C15) + (hash >> 29);
    return (uint32_t)(hash ^ hash >> 32);
}

static void insert_set(struct network *network, uint32_t index)
{
    uint32_t slot = hash_set(&network->sets[index]) & network->set_mask;
    while (network->set_slots[slot] != 0)
        slot = (slot + 1) & network->set_mask;
    network->set_slots[slot] = index + 1;
}

static enum salvo_status grow_sets(struct network *network)
{
    enum salvo_status status = SALVO_OK;
    uint32_t capacity = network->set_capacity ? network->set_capacity * 2 : 64;
    uint32_t *slots = NULL;
    TRY(RESIZE(&network->sets, capacity));
    TRY(NEW(&slots, (size_t)capacity * 2));
    memory_free(network->set_slots);
    network->set_slots = slots;
    network->set_capacity = capacity;
    network->set_mask = capacity * 2 - 1;
    for (uint32_t i = 0; i < network->set_count; i++)
        insert_set(network, i);
cleanup:
    return status;
}

/* The number of a set, which is added unless it exists. */
static uint32_t set_number(struct node_writer *writer, const struct byte_set *set)
{
    struct network *network = writer->network;
    if (writer->status == SALVO_OK && network->set_count == network->set_capacity)
        writer->status = grow_sets(network);
    if (writer->status != SALVO_OK)
        return 0;
    for (uint32_t slot = hash_set(set) & network->set_mask; network->set_slots[slot] != 0;
         slot = (slot + 1) & network->set_mask) {
        uint32_t index = network->set_slots[slot] - 1;
        if (memcmp(&network->sets[index], set, sizeof *set) == 0)
            return index;
    }
    network->sets[network->set_count] = *set;
    insert_set(network, network->set_count);
    return network->set_count++;
}

uint32_t writer_set(struct node_writer *writer, const struct byte_set *set, uint32_t next)
{
    return writer_node(writer, NODE_SET, next, set_number(writer, set));
}

enum salvo_status network_add_rule(struct network *network, uint32_t *out)
{
    enum salvo_status status = SALVO_OK;
    if (network->rule_count == network->rule_capacity) {
        uint32_t capacity = network->rule_capacity ? network->rule_capacity * 2 : 64;
        TRY(RESIZE(&network->starts, capacity));
        network->rule_capacity = capacity;
    }
    network->starts[network->rule_count] = NOT_SET;
    *out = network->rule_count++;
cleanup:
    return status;
}
