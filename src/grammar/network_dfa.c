#include "grammar/network_dfa.h"

#include "base/memory.h"
#include "grammar/dfa_characters.h"
#include "grammar/json_text.h"

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

/* Each state becomes a chain of splits over the bytes that lead to the same state. */
uint32_t writer_dfa(struct node_writer *writer, const struct dfa *dfa, uint32_t next, bool inside_json)
{
    uint32_t first_node = writer->network->node_count;
    for (uint32_t state = 1; state < dfa->states; state++)
        writer_node(writer, NODE_SPLIT, NOT_SET, NOT_SET);
    struct text_search search = {0};
    struct class_reader classes = {0};
    if (writer->status == SALVO_OK)
        writer->status = class_sets(&dfa->classes, &classes.sets);
    if (inside_json && writer->status == SALVO_OK)
        writer->status = text_search_open(dfa, &search);
    for (uint32_t state = 1; state < dfa->states && writer->status == SALVO_OK; state++) {
        bool any_text = inside_json && can_go_on(&search, state);
        uint32_t chain = dfa->accepts[state] ? next : NO_WAY, target;
        classes_begin(&classes, dfa, state);
        while (classes_next(&classes, &target)) {
            uint32_t reads = writer_set(writer, &classes.set, first_node + target - 1);
            chain = chain_with(writer, reads, chain);
            if (writer->status == SALVO_OK)
                writer->network->nodes[reads].any_text = any_text;
        }
        chain = chain_end(writer, chain);
        if (writer->status == SALVO_OK)
            writer->network->nodes[first_node + state - 1].next =
                writer->network->nodes[first_node + state - 1].other = chain;
    }
    memory_free(search.seen);
    memory_free(search.todo);
    memory_free(classes.sets);
    return dfa->states > 1 ? first_node : chain_end(writer, NO_WAY);
}

/* ---- Texts with a number of characters ---- */

/* Rules that read one character: from one state between characters to another. */
struct step_rule {
    uint32_t from, to; /* numbers of dfa_characters */
    uint32_t rule;
};

struct counted {
    struct node_writer *writer;
    const struct dfa *dfa;
    struct dfa_characters characters;
    struct step_rule *rules; /* sorted by `from` */
    size_t rule_count, rule_capacity;
    uint32_t *nodes; /* for the states within a character: node; 0: not seen */
    uint32_t *seen;  /* states within a character */
    struct class_reader classes;
};

/* The states within a character that follow a state between characters, and a node for each. */
static uint32_t states_within(struct counted *counted, uint32_t first)
{
    uint32_t count = 0;
    counted->seen[count++] = first;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t *row = dfa_row(counted->dfa, counted->seen[i]);
        for (uint32_t class = 0; class < counted->dfa->classes.count; class ++) {
            const uint32_t next = row[class];
            if (next == 0 || counted->characters.numbers[next] || counted->nodes[next])
                continue;
            counted->nodes[next] = writer_node(counted->writer, NODE_SPLIT, NOT_SET, NOT_SET);
            counted->seen[count++] = next;
        }
    }
    return count;
}

/* Nodes that read bytes from a state: to other states within the character, or to the end of it. */
static uint32_t write_reads(struct counted *counted, uint32_t state, uint32_t target, uint32_t accept)
{
    uint32_t chain = NO_WAY, next;
    classes_begin(&counted->classes, counted->dfa, state);
    while (classes_next(&counted->classes, &next)) {
        if (counted->characters.numbers[next] && next != target)
            continue;
        const uint32_t reads = writer_set(
            counted->writer, &counted->classes.set, next == target ? accept : counted->nodes[next]);
        chain = chain_with(counted->writer, reads, chain);
    }
    return chain_end(counted->writer, chain);
}

/* The rule of the characters that lead from one state to another. */
static void write_rule(struct counted *counted, uint32_t from, uint32_t to)
{
    struct node_writer *writer = counted->writer;
    struct network *network = writer->network;
    uint32_t rule = 0;
    if (writer->status == SALVO_OK && counted->rule_count == counted->rule_capacity) {
        counted->rule_capacity = counted->rule_capacity ? counted->rule_capacity * 2 : 64;
        writer->status = RESIZE(&counted->rules, counted->rule_capacity);
    }
    if (writer->status == SALVO_OK)
        writer->status = network_add_rule(network, &rule);
    const uint32_t accept = writer_node(writer, NODE_ACCEPT, 0, rule);
    const uint32_t source = counted->characters.states[from], target = counted->characters.states[to];
    const uint32_t count = states_within(counted, source);
    for (uint32_t i = 1; i < count && writer->status == SALVO_OK; i++) {
        const uint32_t chain = write_reads(counted, counted->seen[i], target, accept);
        struct node *node = &network->nodes[counted->nodes[counted->seen[i]]];
        node->next = node->other = chain;
    }
    const uint32_t first = write_reads(counted, source, target, accept);
    const uint32_t start = writer_node(writer, NODE_SPLIT, first, first);
    for (uint32_t i = 1; i < count; i++)
        counted->nodes[counted->seen[i]] = 0;
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
    }
}

/*
 * One node for each state between characters and each number of characters so far. `here` has the nodes of
 * one number, `after` those of the next one.
 */
static void write_level(struct counted *counted, const struct counted_text *text, uint32_t length,
    const uint32_t *here, uint32_t *after, uint32_t next)
{
    struct node_writer *writer = counted->writer;
    const bool last = text->max != REPEAT_UNLIMITED && length == text->max;
    bool more = !last;
    while (more) {
        more = false;
        for (size_t i = 0; i < counted->rule_count && writer->status == SALVO_OK; i++) {
            const struct step_rule *rule = &counted->rules[i];
            if (!here[rule->from] || after[rule->to])
                continue;
            after[rule->to] = writer_node(writer, NODE_SPLIT, NOT_SET, NOT_SET);
            more = here == after; /* the new node may lead to others */
        }
    }
    size_t at = 0;
    for (uint32_t state = 0; state < counted->characters.count; state++) {
        const bool ends = counted->dfa->accepts[counted->characters.states[state]] && length >= text->min;
        uint32_t chain = ends ? next : NO_WAY;
        for (; at < counted->rule_count && counted->rules[at].from == state; at++) {
            const struct step_rule *rule = &counted->rules[at];
            if (!here[state] || last)
                continue;
            const uint32_t call = writer_node(writer, NODE_CALL, after[rule->to], rule->rule);
            chain = chain_with(writer, call, chain);
        }
        if (!here[state])
            continue;
        chain = chain_end(writer, chain);
        if (writer->status == SALVO_OK)
            writer->network->nodes[here[state]].next = writer->network->nodes[here[state]].other = chain;
    }
}

uint32_t writer_counted(struct node_writer *writer, const struct counted_text *text, uint32_t next)
{
    struct counted counted = {.writer = writer, .dfa = text->dfa};
    uint32_t *here = NULL, *after = NULL, first = 0;
    const uint32_t levels = text->max == REPEAT_UNLIMITED ? text->min : text->max;
    if (writer->status == SALVO_OK)
        writer->status = dfa_characters_open(text->dfa, &counted.characters);
    if (writer->status == SALVO_OK)
        writer->status = NEW(&counted.nodes, text->dfa->states);
    if (writer->status == SALVO_OK)
        writer->status = NEW(&counted.seen, text->dfa->states + 1);
    if (writer->status == SALVO_OK)
        writer->status = class_sets(&text->dfa->classes, &counted.classes.sets);
    if (writer->status == SALVO_OK)
        writer->status = NEW(&here, counted.characters.count);
    if (writer->status == SALVO_OK)
        writer->status = NEW(&after, counted.characters.count);
    if (writer->status != SALVO_OK)
        goto cleanup;
    write_rules(&counted);
    here[0] = first = writer_node(writer, NODE_SPLIT, NOT_SET, NOT_SET);
    for (uint32_t length = 0; length <= levels && writer->status == SALVO_OK; length++) {
        const bool loops = length == levels && text->max == REPEAT_UNLIMITED;
        write_level(&counted, text, length, here, loops ? here : after, next);
        uint32_t *turned = here;
        here = after;
        after = turned;
        for (uint32_t i = 0; i < counted.characters.count; i++)
            after[i] = 0;
    }
cleanup:
    memory_free(here);
    memory_free(after);
    memory_free(counted.nodes);
    memory_free(counted.seen);
    memory_free(counted.rules);
    memory_free(counted.classes.sets);
    dfa_characters_close(&counted.characters);
    return first;
}
