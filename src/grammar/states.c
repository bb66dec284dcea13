#include "grammar/states.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_ITEMS = 1 << 17 };

static size_t state_bytes(const struct states *states, size_t kernel, size_t reads, size_t calls)
{
    return sizeof(struct parser_state) + (kernel + reads) * sizeof(struct item) +
           calls * sizeof(struct call) + states->network->class_count * sizeof(uint32_t) + sizeof(void *) +
           4 * sizeof(uint32_t);
}

static void free_state(struct parser_state *state)
{
    if (state)
        memory_free(state->mask);
    memory_free(state);
}

void states_close(struct states *states)
{
    for (uint32_t i = 1; i < states->count; i++)
        free_state(states->list[i]);
    memory_free(states->list);
    memory_free(states->slots);
    memory_free(states->items);
    memory_free(states->item_slots);
    memory_free(states->item_stamps);
    memory_free(states->node_stamps);
    memory_free(states->calls);
    memory_free(states->todo);
    *states = (struct states){0};
}

/* ---- The items of a new state ---- */

static uint32_t hash_item(struct item item)
{
    uint64_t hash = ((uint64_t)item.node << 32 | item.origin) * UINT64_C(0x9E3779B97F4A7C15);
    return (uint32_t)(hash >> 32);
}

static enum salvo_status grow_items(struct states *states)
{
    enum salvo_status status = SALVO_OK;
    size_t capacity = states->item_capacity ? states->item_capacity * 2 : 64;
    uint32_t *slots = NULL, *stamps = NULL;
    if (capacity > MAX_ITEMS) {
        TRY(fail(SALVO_ERROR_UNSUPPORTED,
            "the grammar is too ambiguous: more than %d items are possible at one place of the text",
            MAX_ITEMS));
    }
    TRY(RESIZE(&states->items, capacity));
    TRY(NEW(&slots, capacity * 2));
    TRY(NEW(&stamps, capacity * 2));
    memory_free(states->item_slots);
    memory_free(states->item_stamps);
    states->item_slots = slots;
    states->item_stamps = stamps;
    states->item_mask = capacity * 2 - 1;
    states->item_capacity = capacity;
    slots = stamps = NULL;
    for (size_t i = 0; i < states->item_count; i++) {
        size_t slot = hash_item(states->items[i]) & states->item_mask;
        while (states->item_stamps[slot] == states->stamp)
            slot = (slot + 1) & states->item_mask;
        states->item_stamps[slot] = states->stamp;
        states->item_slots[slot] = (uint32_t)i + 1;
    }
cleanup:
    memory_free(slots);
    memory_free(stamps);
    return status;
}

static enum salvo_status add_item(struct states *states, uint32_t node, uint32_t origin)
{
    states->attempts++;
    if (states->network->nodes[node].dead)
        return SALVO_OK;
    if (states->item_count == states->item_capacity) {
        enum salvo_status status = grow_items(states);
        if (status != SALVO_OK)
            return status;
    }
    struct item item = {node, origin};
    size_t slot = hash_item(item) & states->item_mask;
    for (; states->item_stamps[slot] == states->stamp; slot = (slot + 1) & states->item_mask) {
        struct item known = states->items[states->item_slots[slot] - 1];
        if (known.node == node && known.origin == origin)
            return SALVO_OK;
    }
    states->item_stamps[slot] = states->stamp;
    states->items[states->item_count++] = item;
    states->item_slots[slot] = (uint32_t)states->item_count;
    return SALVO_OK;
}

/* Adds the items that follow each call of `rule` in state `origin`. */
static enum salvo_status complete_rule(struct states *states, uint32_t rule, uint32_t origin)
{
    const struct parser_state *caller = states->list[origin];
    enum salvo_status status = SALVO_OK;
    size_t low = 0, high = caller->call_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (caller->calls[middle].rule < rule)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < caller->call_count && caller->calls[low].rule == rule; low++)
        TRY(add_item(states, caller->calls[low].item.node, caller->calls[low].item.origin));
cleanup:
    return status;
}

/* Follows splits, rules that are complete and rules that match the empty text. Leaves the items that read or
 * call, and the end of the root. */
static enum salvo_status close_items(struct states *states)
{
    enum salvo_status status = SALVO_OK;
    const struct network *network = states->network;
    size_t kept = 0;
    for (size_t i = 0; i < states->item_count; i++) {
        struct item item = states->items[i];
        const struct node *node = &network->nodes[item.node];
        switch ((enum node_kind)node->kind) {
        case NODE_SET:
            break;
        case NODE_SPLIT:
            TRY(add_item(states, node->next, item.origin));
            TRY(add_item(states, node->other, item.origin));
            break;
        case NODE_CALL:
            if (network->nodes[network->starts[node->other]].empty)
                TRY(add_item(states, node->next, item.origin));
            break;
        case NODE_ACCEPT:
            if (item.origin != STATE_DEAD)
                TRY(complete_rule(states, node->other, item.origin));
            break;
        }
    }
    for (size_t i = 0; i < states->item_count; i++) {
        uint8_t kind = network->nodes[states->items[i].node].kind;
        if (kind == NODE_SET || kind == NODE_CALL ||
            (kind == NODE_ACCEPT && states->items[i].origin == STATE_DEAD))
            states->items[kept++] = states->items[i];
    }
    states->item_count = kept;
cleanup:
    return status;
}

static int compare_items(const void *left, const void *right)
{
    const struct item *a = left, *b = right;
    if (a->node != b->node)
        return a->node < b->node ? -1 : 1;
    return a->origin < b->origin ? -1 : a->origin > b->origin;
}

static int compare_calls(const void *left, const void *right)
{
    const struct call *a = left, *b = right;
    if (a->rule != b->rule)
        return a->rule < b->rule ? -1 : 1;
    return compare_items(&a->item, &b->item);
}

/* Most states have few items. */
static void sort_items(struct item *items, size_t count)
{
    enum { FEW = 40 };
    if (count > FEW) {
        qsort(items, count, sizeof *items, compare_items);
        return;
    }
    for (size_t i = 1; i < count; i++) {
        const struct item item = items[i];
        size_t at = i;
        for (; at > 0 && compare_items(&items[at - 1], &item) > 0; at--)
            items[at] = items[at - 1];
        items[at] = item;
    }
}

/* ---- New states ---- */

static uint32_t hash_kernel(const struct item *items, size_t count)
{
    uint64_t hash = count;
    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ ((uint64_t)items[i].node << 32 | items[i].origin)) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 31;
    }
    return (uint32_t)(hash ^ hash >> 32);
}

static void insert_state(struct states *states, uint32_t number)
{
    uint32_t slot = states->list[number]->hash & states->slot_mask;
    while (states->slots[slot] != 0)
        slot = (slot + 1) & states->slot_mask;
    states->slots[slot] = number;
}

static enum salvo_status grow_list(struct states *states)
{
    enum salvo_status status = SALVO_OK;
    uint32_t capacity = states->capacity ? states->capacity * 2 : 256;
    uint32_t *slots = NULL;
    TRY(RESIZE(&states->list, capacity));
    states->list[0] = NULL;
    TRY(NEW(&slots, (size_t)capacity * 2));
    memory_free(states->slots);
    states->slots = slots;
    states->slot_mask = capacity * 2 - 1;
    states->capacity = capacity;
    for (uint32_t i = 1; i < states->count; i++)
        insert_state(states, i);
cleanup:
    return status;
}

static void new_stamp(struct states *states)
{
    states->item_count = 0;
    states->call_count = 0;
    states->todo_count = 0;
    if (++states->stamp == 0) {
        memset(states->node_stamps, 0, states->network->node_count * sizeof *states->node_stamps);
        if (states->item_capacity)
            memset(states->item_stamps, 0, (states->item_mask + 1) * sizeof *states->item_stamps);
        states->stamp = 1;
    }
}

static enum salvo_status add_call(struct states *states, const struct node *node, uint32_t origin)
{
    enum salvo_status status = SALVO_OK;
    if (states->call_count == states->call_capacity) {
        size_t capacity = states->call_capacity ? states->call_capacity * 2 : 64;
        TRY(RESIZE(&states->calls, capacity));
        states->call_capacity = capacity;
    }
    states->calls[states->call_count++] = (struct call){node->other, {node->next, origin}};
cleanup:
    return status;
}

static void predict(struct states *states, uint32_t node)
{
    if (states->node_stamps[node] == states->stamp || states->network->nodes[node].dead)
        return;
    states->node_stamps[node] = states->stamp;
    states->todo[states->todo_count++] = node; /* each node once, so `todo` has room */
}

/* An item that is new for certain. */
static enum salvo_status append_item(struct states *states, uint32_t node, uint32_t origin)
{
    enum salvo_status status = SALVO_OK;
    if (states->item_count == states->item_capacity)
        TRY(grow_items(states));
    states->items[states->item_count++] = (struct item){node, origin};
cleanup:
    return status;
}

/*
 * Adds what the kernel's calls may begin with. These items have the new state as their origin.
 */
static enum salvo_status predict_items(struct states *states, uint32_t self)
{
    enum salvo_status status = SALVO_OK;
    const struct network *network = states->network;
    size_t kernel = states->item_count;
    for (size_t i = 0; i < kernel; i++) {
        const struct node *node = &network->nodes[states->items[i].node];
        if (node->kind == NODE_CALL) {
            TRY(add_call(states, node, states->items[i].origin));
            predict(states, network->starts[node->other]);
        }
    }
    while (states->todo_count > 0) {
        uint32_t number = states->todo[--states->todo_count];
        const struct node *node = &network->nodes[number];
        switch ((enum node_kind)node->kind) {
        case NODE_SET:
            TRY(append_item(states, number, self));
            break;
        case NODE_SPLIT:
            predict(states, node->next);
            predict(states, node->other);
            break;
        case NODE_CALL:
            TRY(add_call(states, node, self));
            predict(states, network->starts[node->other]);
            if (network->nodes[network->starts[node->other]].empty)
                predict(states, node->next);
            break;
        case NODE_ACCEPT: /* the empty text: the items after the call were added already */
            break;
        }
    }
cleanup:
    return status;
}

static enum salvo_status check_limit(const struct states *states, size_t more)
{
    if (more <= states->limit && states->bytes <= states->limit - more)
        return SALVO_OK;
    return fail(SALVO_ERROR_MEMORY,
        "the grammar needs more than its limit of %zu MB of memory for parser states", states->limit >> 20);
}

enum { MOST_AHEAD = 128 };

/* Reads the quote that ends a string, and nothing else. */
static bool is_quote(const struct network *network, uint32_t number)
{
    static const struct byte_set quote = {{UINT64_C(1) << '"'}};
    const struct node *node = &network->nodes[number];
    return node->kind == NODE_SET && memcmp(&network->sets[node->other], &quote, sizeof quote) == 0;
}

/* The number of string characters that may follow, from a call of the rule for one character on.
 * *out_more: other texts may follow, too, because some of the characters are followed by something else
 * than the quote, or there are too many to count. */
static uint32_t characters_ahead(const struct network *network, uint32_t call, bool *out_more)
{
    uint32_t count = 0, at = call;
    while (count < MOST_AHEAD) {
        const struct node *node = &network->nodes[at];
        if (node->kind == NODE_SPLIT) {
            *out_more |= !is_quote(network, node->other);
            at = node->next;
        } else if (node->kind == NODE_CALL && node->other + 1 == network->character) {
            const struct node *next = &network->nodes[node->next];
            if (next->kind == NODE_SPLIT && next->next == at)
                return REPEAT_UNLIMITED;
            count++;
            at = node->next;
        } else {
            break;
        }
    }
    *out_more |= !is_quote(network, at);
    return count;
}

static uint32_t item_ahead(const struct network *network, uint32_t number, bool *out_more)
{
    const struct node *node = &network->nodes[number];
    if (node->any_text)
        return REPEAT_UNLIMITED;
    bool calls = node->kind == NODE_CALL && network->character && node->other + 1 == network->character;
    return calls ? characters_ahead(network, number, out_more) : 0;
}

/* Whether an item of a string goes on with a character of any kind, or ends the string. */
static bool is_any_text(const struct network *network, uint32_t number)
{
    const struct node *node = &network->nodes[number];
    return (node->kind == NODE_CALL && node->other + 1 == network->character) || is_quote(network, number);
}

/* Makes a state of the kernel in `items`. */
static enum salvo_status new_state(struct states *states, uint32_t hash, uint32_t *out)
{
    enum salvo_status status = SALVO_OK;
    const struct network *network = states->network;
    struct parser_state *state = NULL;
    char *memory = NULL;
    size_t kernel = states->item_count, reads = 0;
    if (states->count == states->capacity || !states->list)
        TRY(grow_list(states));
    TRY(predict_items(states, states->count));
    for (size_t i = 0; i < states->item_count; i++)
        reads += network->nodes[states->items[i].node].kind == NODE_SET;
    size_t size = state_bytes(states, kernel, reads, states->call_count);
    TRY(check_limit(states, size));
    TRY(NEW(&memory, size));
    state = (struct parser_state *)(void *)memory;
    state->hash = hash;
    state->kernel = (struct item *)(void *)(memory + sizeof *state);
    state->reads = state->kernel + kernel;
    state->calls = (struct call *)(void *)(state->reads + reads);
    state->next = (uint32_t *)(void *)(state->calls + states->call_count);
    state->kernel_count = (uint32_t)kernel;
    state->call_count = (uint32_t)states->call_count;
    for (size_t i = 0; i < states->item_count; i++) {
        const struct item *item = &states->items[i];
        if (i < kernel) {
            uint32_t ahead = item_ahead(network, item->node, &state->other_text);
            state->kernel[i] = *item;
            state->ahead = ahead > state->ahead ? ahead : state->ahead;
            state->other_text |= !is_any_text(network, item->node);
        }
        if (network->nodes[item->node].kind == NODE_SET) {
            state->reads[state->read_count++] = *item;
            state->free |= item->node >= network->free_first && item->node < network->free_end;
        } else if (network->nodes[item->node].kind == NODE_ACCEPT) {
            state->complete = true;
        }
    }
    if (states->call_count) {
        qsort(states->calls, states->call_count, sizeof *states->calls, compare_calls);
        memcpy(state->calls, states->calls, states->call_count * sizeof *states->calls);
    }
    states->list[states->count] = state;
    insert_state(states, states->count);
    states->bytes += size;
    *out = states->count++;
cleanup:
    return status;
}

/* The state of the kernel in `items`, made unless it exists. */
static enum salvo_status find_state(struct states *states, uint32_t *out)
{
    enum salvo_status status = SALVO_OK;
    TRY(close_items(states));
    if (states->item_count == 0) {
        *out = STATE_DEAD;
        return SALVO_OK;
    }
    sort_items(states->items, states->item_count);
    uint32_t hash = hash_kernel(states->items, states->item_count);
    for (uint32_t slot = hash & states->slot_mask; states->slots && states->slots[slot];
         slot = (slot + 1) & states->slot_mask) {
        const struct parser_state *known = states->list[states->slots[slot]];
        if (known->hash == hash && known->kernel_count == states->item_count &&
            memcmp(known->kernel, states->items, states->item_count * sizeof *states->items) == 0) {
            *out = states->slots[slot];
            return SALVO_OK;
        }
    }
    TRY(new_state(states, hash, out));
cleanup:
    return status;
}

enum salvo_status states_open(
    const struct network *network, size_t limit, size_t mask_bytes, struct states *out)
{
    enum salvo_status status = SALVO_OK;
    uint32_t first;
    *out = (struct states){.network = network, .limit = limit, .mask_bytes = mask_bytes, .count = 1};
    TRY(NEW(&out->node_stamps, network->node_count));
    TRY(NEW(&out->todo, network->node_count));
    new_stamp(out);
    TRY(add_item(out, network->starts[network->root], STATE_DEAD));
    TRY(find_state(out, &first));
cleanup:
    if (status != SALVO_OK)
        states_close(out);
    return status;
}

/* With `repeated`, nodes of arrays with unique items read nothing. */
static enum salvo_status compute(
    struct states *states, uint32_t state, unsigned class, bool repeated, uint32_t *out)
{
    enum salvo_status status = SALVO_OK;
    const struct parser_state *from = states->list[state];
    new_stamp(states);
    for (uint32_t i = 0; i < from->read_count; i++) {
        const struct node *node = &states->network->nodes[from->reads[i].node];
        if (network_reads(states->network, node, class) && !(repeated && node->unique))
            TRY(add_item(states, node->next, from->reads[i].origin));
    }
    TRY(find_state(states, out));
    states->effort += from->read_count + states->item_count;
    if (states->effort > STATES_MOST_EFFORT)
        TRY(fail(SALVO_ERROR_UNSUPPORTED, "the grammar is too ambiguous: one token needs more than %d items",
            STATES_MOST_EFFORT));
cleanup:
    return status;
}

enum salvo_status states_compute(struct states *states, uint32_t state, unsigned class, uint32_t *out)
{
    enum salvo_status status = compute(states, state, class, false, out);
    if (status == SALVO_OK)
        states->list[state]->next[class] = *out + 1;
    return status;
}

enum salvo_status states_step_repeated(struct states *states, uint32_t state, unsigned class, uint32_t *out)
{
    return compute(states, state, class, true, out);
}

bool states_read_unique(const struct states *states, uint32_t state, unsigned class)
{
    const struct parser_state *from = states->list[state];
    for (uint32_t i = 0; i < from->read_count; i++) {
        const struct node *node = &states->network->nodes[from->reads[i].node];
        if (node->unique && network_reads(states->network, node, class))
            return true;
    }
    return false;
}

/* For each class, the items of a state that read its bytes, a bit for each. */
static void find_readers(const struct states *states, const struct parser_state *state, uint64_t readers[256])
{
    for (uint32_t i = 0; i < state->read_count; i++) {
        const uint32_t set = states->network->nodes[state->reads[i].node].other;
        for (unsigned word = 0; word < 4; word++) {
            for (uint64_t bits = states->network->set_classes[set][word]; bits; bits &= bits - 1)
                readers[word * 64 + (unsigned)__builtin_ctzll(bits)] |= UINT64_C(1) << i;
        }
    }
}

enum salvo_status states_compute_all(struct states *states, uint32_t state)
{
    enum salvo_status status = SALVO_OK;
    const uint32_t class_count = states->network->class_count;
    const bool few = states->list[state]->read_count <= 64;
    uint64_t known[256], readers[256] = {0};
    uint32_t targets[256], count = 0, target;
    if (few)
        find_readers(states, states->list[state], readers);
    for (unsigned class = 0; class < class_count; class ++) {
        uint32_t at = few ? 0 : count;
        while (at < count && known[at] != readers[class])
            at++;
        if (at == count) {
            TRY(states_step(states, state, class, &target));
            known[count] = readers[class];
            targets[count++] = target;
        }
        states->list[state]->next[class] = targets[at] + 1;
    }
cleanup:
    return status;
}

enum salvo_status states_new_mask(struct states *states, uint32_t state)
{
    enum salvo_status status = check_limit(states, states->mask_bytes);
    if (status == SALVO_OK)
        status = NEW(&states->list[state]->mask, states->mask_bytes / sizeof(uint32_t));
    if (status == SALVO_OK)
        states->bytes += states->mask_bytes;
    return status;
}

/* ---- Collecting ---- */

void states_mark(struct states *states, uint32_t state)
{
    if (state != STATE_DEAD)
        states->list[state]->marked = true;
}

/* States refer to older ones only, so one pass from the newest to the oldest marks all that are needed. */
static void mark_origins(struct states *states)
{
    states->list[STATE_FIRST]->marked = true;
    for (uint32_t i = states->count; --i > 0;) {
        const struct parser_state *state = states->list[i];
        if (!state->marked)
            continue;
        for (uint32_t k = 0; k < state->kernel_count; k++)
            states_mark(states, state->kernel[k].origin);
    }
}

static void renumber(struct parser_state *state, const uint32_t *numbers)
{
    for (uint32_t i = 0; i < state->kernel_count; i++)
        state->kernel[i].origin = numbers[state->kernel[i].origin];
    for (uint32_t i = 0; i < state->read_count; i++)
        state->reads[i].origin = numbers[state->reads[i].origin];
    for (uint32_t i = 0; i < state->call_count; i++)
        state->calls[i].item.origin = numbers[state->calls[i].item.origin];
    state->hash = hash_kernel(state->kernel, state->kernel_count);
}

enum salvo_status states_collect(struct states *states, uint32_t **out_numbers)
{
    enum salvo_status status = SALVO_OK;
    uint32_t kept = 1;
    TRY(NEW(out_numbers, states->count));
    uint32_t *numbers = *out_numbers;
    mark_origins(states);
    for (uint32_t i = 1; i < states->count; i++)
        numbers[i] = states->list[i]->marked ? kept++ : STATE_DEAD;
    states->bytes = 0;
    for (uint32_t i = 1; i < states->count; i++) {
        struct parser_state *state = states->list[i];
        if (!state->marked) {
            free_state(state);
            continue;
        }
        state->marked = false;
        renumber(state, numbers);
        memory_free(state->mask);
        state->mask = NULL;
        memset(state->next, 0, states->network->class_count * sizeof *state->next);
        states->bytes += state_bytes(states, state->kernel_count, state->read_count, state->call_count);
        states->list[numbers[i]] = state;
    }
    states->count = kept;
    states->bytes_needed = states->bytes;
    memset(states->slots, 0, ((size_t)states->slot_mask + 1) * sizeof *states->slots);
    for (uint32_t i = 1; i < kept; i++)
        insert_state(states, i);
cleanup:
    return status;
}
