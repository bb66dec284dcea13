#include "grammar/network.h"

#include "base/memory.h"
#include "grammar/network_dfa.h"

#include <string.h>

/* The node of a shared expression that `next` follows. */
struct shared_node {
    const struct expr *expr; /* NULL: free */
    uint32_t next, node;
};

struct shared_nodes {
    struct shared_node *slots; /* hash table */
    size_t count, mask;
};

/* The rule that is being built. */
struct rule_context {
    struct node_writer writer;
    struct shared_nodes *shared;
    uint32_t rule, accept, start;
};

static uint32_t build(struct rule_context *context, const struct expr *expr, uint32_t next);

static enum salvo_status build_rule(
    struct network *network, struct shared_nodes *shared, uint32_t rule, const struct expr *expr)
{
    struct rule_context context = {.writer = {.network = network}, .shared = shared, .rule = rule};
    context.accept = writer_node(&context.writer, NODE_ACCEPT, 0, rule);
    context.start = writer_node(&context.writer, NODE_SPLIT, 0, 0);
    uint32_t first = build(&context, expr, context.accept);
    if (context.writer.status == SALVO_OK) {
        network->nodes[context.start].next = network->nodes[context.start].other = first;
        network->starts[rule] = context.start;
    }
    return context.writer.status;
}

/* Makes a rule of a large expression that is repeated, so that each repetition is one node. */
static const struct expr *shared_body(
    struct rule_context *context, const struct expr *body, uint32_t copies, struct expr *out)
{
    if (copies < 4 || body->kind == EXPR_SET || body->kind == EXPR_RULE ||
        (body->kind == EXPR_LITERAL && body->bytes.size < 4) || context->writer.status != SALVO_OK)
        return body;
    uint32_t rule = 0;
    context->writer.status = network_add_rule(context->writer.network, &rule);
    if (context->writer.status == SALVO_OK)
        context->writer.status = build_rule(context->writer.network, context->shared, rule, body);
    *out = (struct expr){.kind = EXPR_RULE, .rule = rule};
    return out;
}

/* Exactly `count` times, then `next`. */
static uint32_t build_times(
    struct rule_context *context, const struct expr *body, uint32_t count, uint32_t next)
{
    for (uint32_t i = 0; i < count && context->writer.status == SALVO_OK; i++)
        next = build(context, body, next);
    return next;
}

/* At most `count` times, then `next`. */
static uint32_t build_up_to(
    struct rule_context *context, const struct expr *body, uint32_t count, uint32_t next)
{
    uint32_t at = next;
    for (uint32_t i = 0; i < count && context->writer.status == SALVO_OK; i++) {
        uint32_t first = build(context, body, at);
        at = writer_node(&context->writer, NODE_SPLIT, first, next);
    }
    return at;
}

/*
 * A repetition of many characters is divided into blocks of BLOCK characters, each a call of one rule, and
 * a rest of single characters. The rest may be longer than a block, so that AHEAD more characters are
 * possible after each count: states.c looks that far. Other expressions are not divided, because several
 * counts of them may match one text.
 */
enum { BLOCK = 1024, AHEAD = 128, LONGEST_REST = BLOCK + AHEAD, LEAST_IN_BLOCKS = 4 * BLOCK };

static uint32_t build_blocks(
    struct rule_context *context, const struct expr *body, const struct expr *repeat, uint32_t next)
{
    const struct expr block = {.kind = EXPR_REPEAT, .min = BLOCK, .max = BLOCK, .count = 1, .items = &body};
    const uint32_t more = repeat->max - repeat->min;
    struct expr call;
    const struct expr *blocks = shared_body(context, &block, BLOCK, &call);
    /* 0 to `more` characters: fewer than `most` blocks and any rest, or `most` blocks and the remaining
     * characters. */
    const uint32_t most = more > LONGEST_REST ? (more - LONGEST_REST) / BLOCK : 0;
    uint32_t at = build_times(context, blocks, most, build_up_to(context, body, more - most * BLOCK, next));
    if (most > 0) {
        const uint32_t rest = build_up_to(context, body, LONGEST_REST, next);
        at = writer_node(&context->writer, NODE_SPLIT, build_up_to(context, blocks, most - 1, rest), at);
    }
    at = build_times(context, body, repeat->min % BLOCK, at);
    return build_times(context, blocks, repeat->min / BLOCK, at);
}

static bool is_character(const struct rule_context *context, const struct expr *expr)
{
    return expr->is_character || expr->kind == EXPR_SET ||
           (expr->kind == EXPR_RULE && expr->rule + 1 == context->writer.network->character);
}

static uint32_t build_repeat(struct rule_context *context, const struct expr *expr, uint32_t next)
{
    bool unlimited = expr->max == REPEAT_UNLIMITED;
    struct expr call;
    const struct expr *body = shared_body(context, expr->items[0], unlimited ? expr->min : expr->max, &call);
    uint32_t least = expr->min, at = next;
    if (!unlimited && expr->max >= LEAST_IN_BLOCKS && is_character(context, expr->items[0]))
        return build_blocks(context, body, expr, next);
    if (unlimited) {
        uint32_t loop = writer_node(&context->writer, NODE_SPLIT, 0, next);
        uint32_t first = build(context, body, loop);
        if (context->writer.status != SALVO_OK)
            return 0;
        context->writer.network->nodes[loop].next = first;
        at = least > 0 ? first : loop;
        least -= least > 0;
    } else {
        at = build_up_to(context, body, expr->max - expr->min, next);
    }
    return build_times(context, body, least, at);
}

/* At most two automata, in a rule of their own; no other node that reads is between their nodes. */
static uint32_t build_free_text(struct rule_context *context, const struct dfa *dfa, uint32_t next)
{
    struct network *network = context->writer.network;
    if (network->free_end == 0)
        network->free_first = network->node_count;
    uint32_t first = writer_dfa(&context->writer, dfa, next, false);
    network->free_end = network->node_count;
    return first;
}

static struct shared_node *find_shared(
    const struct shared_nodes *shared, const struct expr *expr, uint32_t next)
{
    size_t slot = (((uintptr_t)expr >> 4) * 31 + next) * UINT64_C(0x9E3779B97F4A7C15) >> 20;
    for (slot &= shared->mask; shared->slots[slot].expr; slot = (slot + 1) & shared->mask) {
        if (shared->slots[slot].expr == expr && shared->slots[slot].next == next)
            break;
    }
    return &shared->slots[slot];
}

static enum salvo_status grow_shared(struct shared_nodes *shared)
{
    enum salvo_status status = SALVO_OK;
    struct shared_nodes larger = {.mask = shared->slots ? shared->mask * 2 + 1 : 255, .count = shared->count};
    TRY(NEW(&larger.slots, larger.mask + 1));
    for (size_t i = 0; shared->slots && i <= shared->mask; i++) {
        if (shared->slots[i].expr)
            *find_shared(&larger, shared->slots[i].expr, shared->slots[i].next) = shared->slots[i];
    }
    memory_free(shared->slots);
    *shared = larger;
cleanup:
    return status;
}

static uint32_t build_shared(struct rule_context *context, const struct expr *expr, uint32_t next)
{
    struct shared_nodes *shared = context->shared;
    if (shared->slots) {
        const struct shared_node *known = find_shared(shared, expr, next);
        if (known->expr)
            return known->node;
    }
    uint32_t node = build(context, expr->items[0], next);
    if (context->writer.status == SALVO_OK && (!shared->slots || shared->count >= shared->mask / 2))
        context->writer.status = grow_shared(shared);
    if (context->writer.status != SALVO_OK)
        return 0;
    *find_shared(shared, expr, next) = (struct shared_node){expr, next, node};
    shared->count++;
    return node;
}

/* The first node of an expression that `next` follows. */
static uint32_t build(struct rule_context *context, const struct expr *expr, uint32_t next)
{
    uint32_t at = next;
    switch (expr->kind) {
    case EXPR_NONE:
        return writer_set(&context->writer, &(struct byte_set){{0}}, next);
    case EXPR_EMPTY:
        return next;
    case EXPR_LITERAL:
        for (size_t i = expr->bytes.size; i-- > 0 && context->writer.status == SALVO_OK;) {
            struct byte_set set = {{0}};
            byte_set_add(&set, (unsigned char)expr->bytes.data[i], (unsigned char)expr->bytes.data[i]);
            at = writer_set(&context->writer, &set, at);
        }
        return at;
    case EXPR_SET:
        at = writer_set(&context->writer, &expr->set, next);
        if (expr->unique && context->writer.status == SALVO_OK)
            context->writer.network->unique = context->writer.network->nodes[at].unique = true;
        return at;
    case EXPR_SEQUENCE:
        for (size_t i = expr->count; i-- > 0 && context->writer.status == SALVO_OK;)
            at = build(context, expr->items[i], at);
        return at;
    case EXPR_EITHER:
        at = build(context, expr->items[expr->count - 1], next);
        for (size_t i = expr->count - 1; i-- > 0 && context->writer.status == SALVO_OK;) {
            uint32_t first = build(context, expr->items[i], next);
            at = writer_node(&context->writer, NODE_SPLIT, first, at);
        }
        return at;
    case EXPR_REPEAT:
        return build_repeat(context, expr, next);
    case EXPR_RULE:
        /* A rule that ends with itself is a loop: the parser's stack does not grow. */
        if (expr->rule == context->rule && next == context->accept)
            return context->start;
        return writer_node(&context->writer, NODE_CALL, next, expr->rule);
    case EXPR_DFA:
        return expr->free
                   ? build_free_text(context, expr->dfa, next)
                   : writer_dfa(&context->writer, expr->dfa, next, context->writer.network->character != 0);
    case EXPR_COUNTED:
        return writer_counted(
            &context->writer, &(struct counted_text){expr->dfa, expr->min, expr->max}, next);
    case EXPR_SHARED:
        return build_shared(context, expr, next);
    }
    return next;
}

/* ---- Which nodes are dead, which lead to the end without reading ---- */

/* The edges that lead to a node, or to a rule, are a list. Edge 2i goes from node i to its `next`, edge 2i +
 * 1 to its `other`. */
struct arrivals {
    uint32_t *first;   /* for each node, then for each rule: edge + 1; 0: none */
    uint32_t *link;    /* for each edge: the next one of its list, + 1 */
    uint32_t *waiting; /* stack of nodes to look at */
    uint32_t wait_count;
};

static void add_arrival(struct arrivals *arrivals, uint32_t edge, uint32_t to)
{
    arrivals->link[edge] = arrivals->first[to];
    arrivals->first[to] = edge + 1;
}

static enum salvo_status arrivals_open(const struct network *network, struct arrivals *out)
{
    enum salvo_status status = SALVO_OK;
    TRY(NEW(&out->first, (size_t)network->node_count + network->rule_count));
    TRY(NEW(&out->link, 2 * (size_t)network->node_count));
    TRY(NEW(&out->waiting, network->node_count));
    for (uint32_t i = 0; i < network->node_count; i++) {
        const struct node *node = &network->nodes[i];
        if (node->kind != NODE_ACCEPT)
            add_arrival(out, 2 * i, node->next);
        if (node->kind == NODE_SPLIT && node->other != node->next)
            add_arrival(out, 2 * i + 1, node->other);
        if (node->kind == NODE_CALL)
            add_arrival(out, 2 * i + 1, network->node_count + node->other);
    }
cleanup:
    return status;
}

static void arrivals_free(struct arrivals *arrivals)
{
    memory_free(arrivals->first);
    memory_free(arrivals->link);
    memory_free(arrivals->waiting);
}

static bool *mark_of(struct node *node, bool reading)
{
    return reading ? &node->dead : &node->empty;
}

static bool set_is_empty(const struct byte_set *set)
{
    return !(set->words[0] | set->words[1] | set->words[2] | set->words[3]);
}

/* Whether a node leads to the end, given what is known of the nodes behind it. With `reading`, dead is the
 * inverse mark. */
static bool leads_on(struct network *network, const struct node *node, bool reading)
{
    struct node *nodes = network->nodes;
    bool next = node->kind != NODE_ACCEPT && *mark_of(&nodes[node->next], reading) != reading;
    switch ((enum node_kind)node->kind) {
    case NODE_ACCEPT:
        return true;
    case NODE_SET:
        return reading && next && !set_is_empty(&network->sets[node->other]);
    case NODE_SPLIT:
        return next || *mark_of(&nodes[node->other], reading) != reading;
    case NODE_CALL:
        return next && *mark_of(&nodes[network->starts[node->other]], reading) != reading;
    }
    return false;
}

/* Marks a node that leads to the end; whether it was not known before. */
static bool mark_node(struct network *network, uint32_t number, bool reading)
{
    struct node *node = &network->nodes[number];
    bool *mark = mark_of(node, reading);
    if (*mark != reading || !leads_on(network, node, reading))
        return false;
    *mark = !reading;
    return true;
}

static void mark_arrivals(struct network *network, struct arrivals *arrivals, uint32_t target, bool reading)
{
    for (uint32_t edge = arrivals->first[target]; edge; edge = arrivals->link[edge - 1]) {
        const uint32_t from = (edge - 1) / 2;
        if (mark_node(network, from, reading))
            arrivals->waiting[arrivals->wait_count++] = from;
    }
}

/* Marks backwards from the ends of the rules. */
static void mark_nodes(
    struct network *network, struct arrivals *arrivals, const uint32_t *rule_of_start, bool reading)
{
    for (uint32_t i = 0; i < network->node_count; i++) {
        bool *mark = mark_of(&network->nodes[i], reading);
        *mark = (network->nodes[i].kind == NODE_ACCEPT) != reading;
        if (network->nodes[i].kind == NODE_ACCEPT)
            arrivals->waiting[arrivals->wait_count++] = i;
    }
    while (arrivals->wait_count > 0) {
        uint32_t node = arrivals->waiting[--arrivals->wait_count];
        mark_arrivals(network, arrivals, node, reading);
        if (rule_of_start[node] != 0)
            mark_arrivals(network, arrivals, network->node_count + rule_of_start[node] - 1, reading);
    }
}

/*
 * Marks by sweeps over all nodes until nothing changes; false if that is too slow. Nodes lead mostly to
 * earlier ones of their rule, and to rules on one side: `first` has where the nodes of each of `count` rules
 * begin.
 */
static bool sweep_nodes(struct network *network, const uint32_t *first, size_t count, bool reading)
{
    enum { MOST_SWEEPS = 6 };
    bool changed = true;
    for (uint32_t i = 0; i < network->node_count; i++)
        *mark_of(&network->nodes[i], reading) = (network->nodes[i].kind == NODE_ACCEPT) != reading;
    for (unsigned sweep = 0; sweep < MOST_SWEEPS && changed; sweep++) {
        changed = false;
        for (size_t at = 0; at < count; at++) {
            const size_t rule = sweep % 2 ? count - 1 - at : at;
            for (uint32_t i = first[rule]; i < first[rule + 1]; i++)
                changed |= mark_node(network, i, reading);
            changed |= mark_node(network, network->starts[rule], reading); /* it leads to the last node */
        }
    }
    return !changed;
}

static enum salvo_status mark_network(struct network *network, const uint32_t *first, size_t count)
{
    enum salvo_status status = SALVO_OK;
    struct arrivals arrivals = {0};
    uint32_t *rule_of_start = NULL;
    if (sweep_nodes(network, first, count, true) && sweep_nodes(network, first, count, false))
        return SALVO_OK;
    TRY(arrivals_open(network, &arrivals));
    TRY(NEW(&rule_of_start, network->node_count));
    for (uint32_t i = 0; i < network->rule_count; i++)
        rule_of_start[network->starts[i]] = i + 1;
    mark_nodes(network, &arrivals, rule_of_start, true);
    mark_nodes(network, &arrivals, rule_of_start, false);
cleanup:
    memory_free(rule_of_start);
    arrivals_free(&arrivals);
    return status;
}

/* ---- Classes of bytes ---- */

/* Stores the bytes of a set and returns their number. */
static unsigned list_bytes(const struct byte_set *set, uint8_t out[256])
{
    unsigned count = 0;
    for (unsigned word = 0; word < 4; word++) {
        for (uint64_t bits = set->words[word]; bits; bits &= bits - 1)
            out[count++] = (uint8_t)(word * 64 + (unsigned)__builtin_ctzll(bits));
    }
    return count;
}

/* A class that has bytes in the set and others is divided: its bytes in the set get a new number. `sizes` has
 * the bytes of each class, `inside` zeros. */
static void divide_classes(
    struct network *network, const struct byte_set *set, uint32_t sizes[256], uint32_t inside[256])
{
    uint8_t bytes[256];
    const unsigned count = list_bytes(set, bytes);
    uint32_t renamed[256];
    for (unsigned i = 0; i < count; i++)
        inside[network->class_of[bytes[i]]]++;
    for (unsigned i = 0; i < count; i++) {
        const uint32_t class = network->class_of[bytes[i]], size = inside[class];
        if (size > 0) { /* the first byte of its class */
            inside[class] = 0;
            renamed[class] = size < sizes[class] ? network->class_count++ : class;
            sizes[class] -= size;
            sizes[renamed[class]] = size;
        }
    }
    for (unsigned i = 0; i < count; i++)
        network->class_of[bytes[i]] = (uint8_t)renamed[network->class_of[bytes[i]]];
}

static enum salvo_status find_classes(struct network *network)
{
    enum salvo_status status = SALVO_OK;
    uint32_t sizes[256] = {256}, inside[256] = {0};
    uint8_t bytes[256];
    network->class_count = 1;
    for (uint32_t i = 0; i < network->set_count && network->class_count < 256; i++)
        divide_classes(network, &network->sets[i], sizes, inside);
    TRY(NEW(&network->set_classes, network->set_count));
    for (uint32_t i = 0; i < network->set_count; i++) {
        const unsigned count = list_bytes(&network->sets[i], bytes);
        for (unsigned k = 0; k < count; k++) {
            const unsigned class = network->class_of[bytes[k]];
            network->set_classes[i][class / 64] |= UINT64_C(1) << (class % 64);
        }
    }
cleanup:
    return status;
}

enum salvo_status network_build(
    const struct expr *const *rules, size_t count, uint32_t root, uint32_t character, struct network *out)
{
    enum salvo_status status = SALVO_OK;
    struct shared_nodes shared = {0};
    uint32_t rule, *first = NULL; /* node of each rule, and the end */
    *out = (struct network){.root = root, .character = character};
    if (count >= NETWORK_MAX_NODES)
        return fail(SALVO_ERROR_UNSUPPORTED, "the grammar has %zu rules; at most %d are possible", count,
            NETWORK_MAX_NODES - 1);
    for (size_t i = 0; i < count; i++)
        TRY(network_add_rule(out, &rule));
    TRY(NEW(&first, count + 1));
    for (size_t i = 0; i < count; i++) {
        TRY(build_rule(out, &shared, (uint32_t)i, rules[i]));
        first[i + 1] = out->node_count;
    }
    TRY(mark_network(out, first, count));
    TRY(find_classes(out));
cleanup:
    memory_free(shared.slots);
    memory_free(first);
    if (status != SALVO_OK)
        network_free(out);
    return status;
}

void network_free(struct network *network)
{
    memory_free(network->nodes);
    memory_free(network->starts);
    memory_free(network->sets);
    memory_free(network->set_slots);
    memory_free(network->set_classes);
    *network = (struct network){0};
}
