#include "grammar/network_dfa.h"

#include "base/memory.h"
#include "grammar/dfa_characters.h"
#include "grammar/json_text.h"

#include <string.h>

enum { MOST_PAIRS = 20000 };

enum text_mark { MARK_NONE, MARK_SEEN, MARK_GOES_ON, MARK_ENDS };

/* Finds out from which states of an automaton any text of a JSON string can go on. */
struct text_search {
    const struct dfa *dfa;
    uint8_t (*seen)[TEXT_STATES]; /* for each state and each state of the text: enum text_mark */
    uint32_t (*todo)[2];
    uint32_t count, effort;
    unsigned char bytes[256]; /* one of each kind */
    unsigned byte_count;
};

/* Pairs that are being visited count as continuing: if none of them ends, all of them continue. */
static bool can_go_on(struct text_search *search, uint32_t state)
{
    if (search->seen[state][TEXT_BODY] != MARK_NONE)
        return search->seen[state][TEXT_BODY] == MARK_GOES_ON;
    search->count = 0;
    search->todo[search->count][0] = state;
    search->todo[search->count++][1] = TEXT_BODY;
    search->seen[state][TEXT_BODY] = MARK_SEEN;
    bool ends = false;
    for (uint32_t i = 0; i < search->count && !ends; i++) {
        uint32_t at = search->todo[i][0], text = search->todo[i][1];
        for (unsigned k = 0; k < search->byte_count && !ends; k++) {
            const unsigned byte = search->bytes[k];
            uint32_t text_next = json_text_next((enum json_text_state)text, byte);
            uint32_t next = dfa_step(search->dfa, at, byte);
            const uint8_t mark = next ? search->seen[next][text_next] : MARK_ENDS;
            if (text_next == TEXT_DEAD || mark == MARK_SEEN || mark == MARK_GOES_ON)
                continue;
            ends = mark == MARK_ENDS || search->effort++ > MOST_PAIRS;
            if (ends)
                break;
            search->seen[next][text_next] = MARK_SEEN;
            search->todo[search->count][0] = next;
            search->todo[search->count++][1] = text_next;
        }
    }
    for (uint32_t i = 0; i < search->count; i++)
        search->seen[search->todo[i][0]][search->todo[i][1]] = ends ? MARK_NONE : MARK_GOES_ON;
    if (ends)
        search->seen[state][TEXT_BODY] = MARK_ENDS;
    return !ends;
}

static enum salvo_status text_search_open(const struct dfa *dfa, struct text_search *out)
{
    enum salvo_status status = SALVO_OK;
    const uint64_t pairs = (uint64_t)dfa->states * TEXT_STATES;
    *out = (struct text_search){.dfa = dfa};
    out->byte_count = json_text_bytes(&dfa->classes, out->bytes);
    TRY(NEW(&out->seen, dfa->states));
    TRY(NEW(&out->todo, (pairs < MOST_PAIRS ? pairs : MOST_PAIRS) + 2));
    /* States that are near the end are mostly the last ones; others lead to them. */
    for (uint32_t state = dfa->states; --state > 0;)
        can_go_on(out, state);
cleanup:
    return status;
}

/* The states that follow a state, each with all bytes that lead to it. */
struct class_reader {
    struct byte_set *sets; /* of each class */
    const uint32_t *row;
    uint32_t count, at;
    bool done[256];
    struct byte_set set; /* that lead to the last state */
};

/* The bytes of each class. The caller frees the array. */
static enum salvo_status class_sets(const struct byte_classes *classes, struct byte_set **out)
{
    enum salvo_status status = NEW(out, classes->count);
    for (unsigned byte = 0; status == SALVO_OK && byte < 256; byte++)
        byte_set_add(&(*out)[classes->of[byte]], byte, byte);
    return status;
}

static void classes_begin(struct class_reader *reader, const struct dfa *dfa, uint32_t state)
{
    reader->row = dfa_row(dfa, state);
    reader->count = dfa->classes.count;
    reader->at = 0;
    for (uint32_t i = 0; i < reader->count; i++)
        reader->done[i] = reader->row[i] == 0;
}

static bool classes_next(struct class_reader *reader, uint32_t *out_state)
{
    while (reader->at < reader->count && reader->done[reader->at])
        reader->at++;
    if (reader->at == reader->count)
        return false;
    *out_state = reader->row[reader->at];
    reader->set = (struct byte_set){{0}};
    for (uint32_t i = reader->at; i < reader->count; i++) {
        if (reader->row[i] != *out_state)
            continue;
        reader->done[i] = true;
        for (int word = 0; word < 4; word++)
            reader->set.words[word] |= reader->sets[i].words[word];
    }
    return true;
}

/* A chain of splits without any way yet. */
#define NO_WAY UINT32_MAX

/* One more way before those of a chain. */
static uint32_t chain_with(struct node_writer *writer, uint32_t way, uint32_t chain)
{
    return chain == NO_WAY ? way : writer_node(writer, NODE_SPLIT, way, chain);
}

/* The first node of a chain, which reads nothing if there is no way. */
static uint32_t chain_end(struct node_writer *writer, uint32_t chain)
{
    return chain == NO_WAY ? writer_set(writer, &(struct byte_set){{0}}, 0) : chain;
}

/* Marks the states that a later state, or the same one, leads to. */
static void mark_returns(const struct dfa *dfa, uint32_t *marks)
{
    for (uint32_t state = 1; state < dfa->states; state++) {
        const uint32_t *row = dfa_row(dfa, state);
        for (uint32_t class = 0; class < dfa->classes.count; class ++) {
            if (row[class] <= state)
                marks[row[class]] = 1;
        }
    }
}

/*
 * Each state becomes a chain of splits over the bytes that lead to the same state. States are written from
 * the last to the first, since most lead to later ones; others have a node of their own in advance.
 */
uint32_t writer_dfa(struct node_writer *writer, const struct dfa *dfa, uint32_t next, bool inside_json)
{
    struct text_search search = {0};
    struct class_reader classes = {0};
    uint32_t *nodes = NULL, *splits = NULL,
             first = 0; /* of each state: where it begins; the split of its own */
    if (writer->status == SALVO_OK)
        writer->status = class_sets(&dfa->classes, &classes.sets);
    if (inside_json && writer->status == SALVO_OK)
        writer->status = text_search_open(dfa, &search);
    if (writer->status == SALVO_OK)
        writer->status = NEW(&nodes, dfa->states);
    if (writer->status == SALVO_OK)
        writer->status = NEW(&splits, dfa->states);
    if (writer->status == SALVO_OK)
        mark_returns(dfa, splits);
    for (uint32_t state = 1; state < dfa->states && writer->status == SALVO_OK; state++) {
        if (splits[state])
            nodes[state] = splits[state] = writer_node(writer, NODE_SPLIT, NOT_SET, NOT_SET);
    }
    for (uint32_t state = dfa->states; --state > 0 && writer->status == SALVO_OK;) {
        bool any_text = inside_json && can_go_on(&search, state);
        uint32_t chain = dfa->accepts[state] ? next : NO_WAY, target;
        classes_begin(&classes, dfa, state);
        while (classes_next(&classes, &target)) {
            uint32_t reads = writer_set(writer, &classes.set, nodes[target]);
            chain = chain_with(writer, reads, chain);
            if (writer->status == SALVO_OK)
                writer->network->nodes[reads].any_text = any_text;
        }
        nodes[state] = chain_end(writer, chain);
        if (splits[state] && writer->status == SALVO_OK)
            writer->network->nodes[splits[state]].next = writer->network->nodes[splits[state]].other =
                nodes[state];
    }
    if (writer->status == SALVO_OK)
        first = dfa->states > 1 ? nodes[1] : chain_end(writer, NO_WAY);
    memory_free(search.seen);
    memory_free(search.todo);
    memory_free(classes.sets);
    memory_free(nodes);
    memory_free(splits);
    return first;
}

/* ---- Texts with a number of characters ---- */

/* Rules that read one character: from one state between characters to another. */
struct step_rule {
    uint32_t from, to; /* numbers of dfa_characters */
    uint32_t rule;
};

/* The bytes that lead from a state of the automaton to another. */
struct edge {
    struct byte_set set;
    uint32_t to;
};

struct counted {
    struct node_writer *writer;
    const struct dfa *dfa;
    struct dfa_characters characters;
    struct step_rule *rules; /* sorted by `from` */
    size_t rule_count, rule_capacity;
    size_t *rules_from; /* those of a state are rules[rules_from[state]] to rules[rules_from[state + 1]] */
    uint32_t *nodes;    /* for the states within a character: node; 0: not seen */
    uint32_t *seen;     /* states within a character */
    uint32_t seen_count;
    struct edge *edges; /* those of a state are edges[edges_from[state]] to edges[edges_from[state + 1]] */
    size_t *edges_from;
};

static enum salvo_status find_edges(struct counted *counted)
{
    enum salvo_status status = SALVO_OK;
    struct class_reader classes = {0};
    size_t count = 0, capacity = 0;
    uint32_t next;
    TRY(class_sets(&counted->dfa->classes, &classes.sets));
    TRY(NEW(&counted->edges_from, (size_t)counted->dfa->states + 1));
    for (uint32_t state = 1; state < counted->dfa->states; state++) {
        classes_begin(&classes, counted->dfa, state);
        while (classes_next(&classes, &next)) {
            TRY(GROW(&counted->edges, count, &capacity));
            counted->edges[count++] = (struct edge){classes.set, next};
        }
        counted->edges_from[state + 1] = count;
    }
cleanup:
    memory_free(classes.sets);
    return status;
}

/* Nodes that read bytes from a state: to states within the character, or to the end of it, behind which is
 * the state `target`. Within a character no state leads back to itself. */
static uint32_t write_reads(struct counted *counted, uint32_t state, uint32_t target, uint32_t accept)
{
    uint32_t chain = NO_WAY;
    for (size_t i = counted->edges_from[state]; i < counted->edges_from[state + 1]; i++) {
        const struct edge *edge = &counted->edges[i];
        uint32_t node = edge->to == target ? accept : NO_WAY;
        if (!counted->characters.numbers[edge->to]) {
            if (!counted->nodes[edge->to]) {
                counted->nodes[edge->to] = write_reads(counted, edge->to, target, accept);
                counted->seen[counted->seen_count++] = edge->to;
            }
            node = counted->nodes[edge->to];
        }
        if (node != NO_WAY)
            chain = chain_with(counted->writer, writer_set(counted->writer, &edge->set, node), chain);
    }
    return chain;
}

/* The rule of the characters that lead from one state to another. */
static void write_rule(struct counted *counted, uint32_t from, uint32_t to)
{
    struct node_writer *writer = counted->writer;
    struct network *network = writer->network;
    uint32_t rule = 0;
    if (writer->status == SALVO_OK)
        writer->status = GROW(&counted->rules, counted->rule_count, &counted->rule_capacity);
    if (writer->status == SALVO_OK)
        writer->status = network_add_rule(network, &rule);
    const uint32_t accept = writer_node(writer, NODE_ACCEPT, 0, rule);
    const uint32_t source = counted->characters.states[from], target = counted->characters.states[to];
    const uint32_t start = chain_end(writer, write_reads(counted, source, target, accept));
    while (counted->seen_count > 0)
        counted->nodes[counted->seen[--counted->seen_count]] = 0;
    if (writer->status != SALVO_OK)
        return;
    network->starts[rule] = start;
    counted->rules[counted->rule_count++] = (struct step_rule){from, to, rule};
}

static void write_rules(struct counted *counted)
{
    const struct dfa_characters *characters = &counted->characters;
    for (uint32_t from = 0; from < characters->count; from++) {
        for (uint32_t to = 0; to < characters->count; to++) {
            if (counted->writer->status == SALVO_OK && dfa_characters_lead(characters, from, to))
                write_rule(counted, from, to);
        }
        counted->rules_from[from + 1] = counted->rule_count;
    }
}

/* The states between characters that are reached after each number of characters. From `steady` on they are
 * the same. */
struct levels {
    uint32_t *states;
    size_t *first; /* those of a number are states[first[number]] to states[first[number + 1]] */
    size_t capacity;
    uint32_t count, steady;
    uint32_t *stamps; /* of the last number that has a state, + 1 */
};

static void levels_free(struct levels *levels)
{
    memory_free(levels->states);
    memory_free(levels->first);
    memory_free(levels->stamps);
}

static enum salvo_status add_level(const struct counted *counted, struct levels *levels)
{
    enum salvo_status status = SALVO_OK;
    const uint32_t level = levels->count;
    const size_t begin = levels->first[level - 1], end = levels->first[level];
    size_t count = end, known = 0;
    for (size_t i = begin; i < end; i++) {
        const uint32_t from = levels->states[i];
        for (size_t k = counted->rules_from[from]; k < counted->rules_from[from + 1]; k++) {
            const uint32_t to = counted->rules[k].to;
            if (levels->stamps[to] == level + 1)
                continue;
            known += levels->stamps[to] == level;
            levels->stamps[to] = level + 1;
            TRY(GROW(&levels->states, count, &levels->capacity));
            levels->states[count++] = to;
        }
    }
    if (count > NETWORK_MAX_NODES)
        TRY(fail(SALVO_ERROR_UNSUPPORTED, "the grammar is too large: it needs more than %d nodes",
            NETWORK_MAX_NODES));
    levels->first[level + 1] = count;
    levels->steady = known == end - begin && known == count - end ? level : 0;
    levels->count++;
cleanup:
    return status;
}

static enum salvo_status levels_open(const struct counted *counted, uint32_t most, struct levels *out)
{
    enum salvo_status status = SALVO_OK;
    TRY(NEW(&out->first, (size_t)most + 2));
    TRY(NEW(&out->stamps, counted->characters.count));
    TRY(GROW(&out->states, 0, &out->capacity));
    out->states[0] = 0;
    out->stamps[0] = 1;
    out->first[1] = 1;
    out->count = 1;
    while (out->count <= most && !out->steady)
        TRY(add_level(counted, out));
cleanup:
    return status;
}

/* The ways on from a state: the end of the text, and one more character. */
static uint32_t write_ways(struct counted *counted, uint32_t state, uint32_t end, const uint32_t *after)
{
    struct node_writer *writer = counted->writer;
    uint32_t chain = counted->dfa->accepts[counted->characters.states[state]] ? end : NO_WAY;
    for (size_t i = counted->rules_from[state]; i < counted->rules_from[state + 1]; i++) {
        const struct step_rule *rule = &counted->rules[i];
        if (after[rule->to] != NO_WAY)
            chain = chain_with(writer, writer_node(writer, NODE_CALL, after[rule->to], rule->rule), chain);
    }
    return chain;
}

/* The nodes behind the last number that is counted: any number of characters may follow. */
static void write_loop(struct counted *counted, uint32_t end, uint32_t *nodes)
{
    struct node_writer *writer = counted->writer;
    for (uint32_t state = 0; state < counted->characters.count; state++)
        nodes[state] = writer_node(writer, NODE_SPLIT, NOT_SET, NOT_SET);
    for (uint32_t state = 0; state < counted->characters.count && writer->status == SALVO_OK; state++) {
        const uint32_t chain = chain_end(writer, write_ways(counted, state, end, nodes));
        if (writer->status == SALVO_OK)
            writer->network->nodes[nodes[state]].next = writer->network->nodes[nodes[state]].other = chain;
    }
}

/*
 * One chain for each number of characters so far and each state that is reached then, from the last number
 * to the first. States from which the text cannot end in time have no way. `here` and `after` have room for
 * a node of each state. Returns where the text begins.
 */
static uint32_t write_levels(struct counted *counted, const struct counted_text *text,
    const struct levels *levels, uint32_t next, uint32_t *here, uint32_t *after)
{
    const bool unlimited = text->max == REPEAT_UNLIMITED;
    uint32_t number = unlimited ? text->min : text->max + 1;
    for (uint32_t state = 0; state < counted->characters.count; state++)
        after[state] = NO_WAY;
    if (unlimited)
        write_loop(counted, next, after);
    while (number-- > 0 && counted->writer->status == SALVO_OK) {
        const uint32_t level = levels->steady && number > levels->steady ? levels->steady : number;
        for (size_t i = levels->first[level]; i < levels->first[level + 1]; i++) {
            const uint32_t state = levels->states[i];
            here[state] = write_ways(counted, state, number >= text->min ? next : NO_WAY, after);
        }
        uint32_t *turned = here;
        here = after;
        after = turned;
    }
    return chain_end(counted->writer, after[0]);
}

uint32_t writer_counted(struct node_writer *writer, const struct counted_text *text, uint32_t next)
{
    struct counted counted = {.writer = writer, .dfa = text->dfa};
    struct levels levels = {0};
    uint32_t *here = NULL, *after = NULL, first = 0;
    if (writer->status == SALVO_OK)
        writer->status = dfa_characters_open(text->dfa, &counted.characters);
    if (writer->status == SALVO_OK)
        writer->status = NEW(&counted.nodes, text->dfa->states);
    if (writer->status == SALVO_OK)
        writer->status = NEW(&counted.seen, text->dfa->states + 1);
    if (writer->status == SALVO_OK)
        writer->status = find_edges(&counted);
    if (writer->status == SALVO_OK)
        writer->status = NEW(&counted.rules_from, counted.characters.count + 1);
    if (writer->status == SALVO_OK)
        writer->status = NEW(&here, counted.characters.count);
    if (writer->status == SALVO_OK)
        writer->status = NEW(&after, counted.characters.count);
    if (writer->status != SALVO_OK)
        goto cleanup;
    write_rules(&counted);
    if (writer->status == SALVO_OK)
        writer->status =
            levels_open(&counted, text->max == REPEAT_UNLIMITED ? text->min : text->max, &levels);
    if (writer->status == SALVO_OK)
        first = write_levels(&counted, text, &levels, next, here, after);
cleanup:
    memory_free(here);
    memory_free(after);
    memory_free(counted.nodes);
    memory_free(counted.seen);
    memory_free(counted.rules);
    memory_free(counted.rules_from);
    memory_free(counted.edges);
    memory_free(counted.edges_from);
    levels_free(&levels);
    dfa_characters_close(&counted.characters);
    return first;
}
