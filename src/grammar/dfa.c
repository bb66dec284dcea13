#include "grammar/dfa.h"

#include "base/memory.h"
#include "grammar/expr_memo.h"
#include "grammar/states.h"

#include <string.h>

bool dfa_is_empty(const struct dfa *dfa)
{
    return dfa->states <= 1;
}

bool dfa_accepts(const struct dfa *dfa, struct salvo_text text)
{
    uint32_t state = dfa->states > 1;
    for (size_t i = 0; i < text.size && state; i++)
        state = dfa_step(dfa, state, (unsigned char)text.data[i]);
    return state && dfa->accepts[state];
}

struct dfa *dfa_new(struct expr_pool *pool, uint32_t count, const struct byte_classes *classes)
{
    struct dfa *dfa = expr_pool_new(pool, sizeof *dfa);
    if (!dfa)
        return NULL;
    dfa->states = count;
    dfa->classes = *classes;
    dfa->next = expr_pool_new(pool, (size_t)count * classes->count * sizeof *dfa->next);
    dfa->accepts = expr_pool_new(pool, count * sizeof *dfa->accepts);
    return dfa->next && dfa->accepts ? dfa : NULL;
}

/* ---- States that lead to an accepting one ---- */

/* The states from which each state is reached: those of state i are from[first[i]] to from[first[i + 1]]. */
struct arrivals {
    size_t *first;
    uint32_t *from;
};

static enum salvo_status find_arrivals(const struct dfa *dfa, struct arrivals *out)
{
    enum salvo_status status = SALVO_OK;
    const uint32_t count = dfa->states;
    TRY(NEW(&out->first, (size_t)count + 2));
    for (int store = 0; store < 2; store++) {
        for (uint32_t state = 1; state < count; state++) {
            const uint32_t *row = dfa_row(dfa, state);
            uint32_t before = 0;
            for (uint32_t class = 0; class < dfa->classes.count; class ++) {
                const uint32_t target = row[class];
                if (target && target != before && !store)
                    out->first[target + 1]++;
                else if (target && target != before)
                    out->from[--out->first[target + 1]] = state;
                before = target;
            }
        }
        for (uint32_t i = 1; i <= count && !store; i++)
            out->first[i + 1] += out->first[i];
        if (!store)
            TRY(NEW(&out->from, out->first[count + 1] + 1));
    }
cleanup:
    return status;
}

/* Whether a state accepts, or leads to one that is known to be alive. */
static bool is_alive(const struct dfa *dfa, uint32_t state, const bool *alive)
{
    const uint32_t *row = dfa_row(dfa, state);
    bool found = dfa->accepts[state];
    for (uint32_t class = 0; class < dfa->classes.count && !found; class ++)
        found = alive[row[class]];
    return found;
}

/* Marks the states that lead to an accepting one. */
static enum salvo_status mark_alive(const struct dfa *dfa, bool *alive)
{
    enum salvo_status status = SALVO_OK;
    enum { MOST_SWEEPS = 6 };
    bool changed = true;
    /* States lead mostly to later ones: a few sweeps from the last to the first find all. */
    for (unsigned sweep = 0; sweep < MOST_SWEEPS && changed; sweep++) {
        changed = false;
        for (uint32_t state = dfa->states; --state > 0;) {
            if (!alive[state] && is_alive(dfa, state, alive))
                alive[state] = changed = true;
        }
    }
    if (!changed)
        return SALVO_OK;
    struct arrivals arrivals = {0};
    uint32_t *todo = NULL, todo_count = 0;
    TRY(find_arrivals(dfa, &arrivals));
    TRY(NEW(&todo, dfa->states));
    for (uint32_t state = 1; state < dfa->states; state++) {
        if (alive[state])
            todo[todo_count++] = state;
    }
    while (todo_count > 0) {
        const uint32_t state = todo[--todo_count];
        for (size_t i = arrivals.first[state + 1]; i < arrivals.first[state + 2]; i++) {
            if (!alive[arrivals.from[i]]) {
                alive[arrivals.from[i]] = true;
                todo[todo_count++] = arrivals.from[i];
            }
        }
    }
cleanup:
    memory_free(arrivals.first);
    memory_free(arrivals.from);
    memory_free(todo);
    return status;
}

/* Whether two classes lead to the same states that are kept, everywhere. */
static bool classes_are_equal(const struct dfa *dfa, const uint32_t *numbers, uint32_t left, uint32_t right)
{
    for (uint32_t state = 1; state < dfa->states; state++) {
        const uint32_t *row = dfa_row(dfa, state);
        if (numbers[state] && numbers[row[left]] != numbers[row[right]])
            return false;
    }
    return true;
}

/* Joins the classes that are treated in the same way: `kept` has one old class for each new one. */
static void join_classes(
    const struct dfa *dfa, const uint32_t *numbers, struct byte_classes *out, uint32_t kept[256])
{
    uint64_t hashes[256] = {0}, factor = 1;
    uint8_t joined[256] = {0};
    out->count = 0;
    for (uint32_t state = 1; state < dfa->states; state++) {
        const uint32_t *row = dfa_row(dfa, state);
        factor *= UINT64_C(0x9E3779B97F4A7C15);
        for (uint32_t class = 0; numbers[state] && class < dfa->classes.count; class ++)
            hashes[class] += numbers[row[class]] * factor;
    }
    for (uint32_t class = 0; class < dfa->classes.count; class ++) {
        uint32_t same = 0;
        while (same < out->count &&
               (hashes[kept[same]] != hashes[class] || !classes_are_equal(dfa, numbers, kept[same], class)))
            same++;
        if (same == out->count)
            kept[out->count++] = class;
        joined[class] = (uint8_t)same;
    }
    for (unsigned byte = 0; byte < 256; byte++)
        out->of[byte] = joined[dfa->classes.of[byte]];
}

/* Copies the states that lead to an accepting one; all others become dead. */
static const struct dfa *trimmed(struct expr_pool *pool, const struct dfa *all)
{
    uint32_t *numbers = NULL, kept = 1, classes[256];
    bool *alive = NULL;
    struct dfa *dfa = NULL;
    struct byte_classes joined;
    if (pool->status == SALVO_OK)
        pool->status = NEW(&numbers, all->states);
    if (pool->status == SALVO_OK)
        pool->status = NEW(&alive, all->states);
    if (pool->status == SALVO_OK && all->states > 1)
        pool->status = mark_alive(all, alive);
    if (pool->status != SALVO_OK || !numbers || !alive)
        goto cleanup;
    for (uint32_t state = 1; state < all->states && alive[1]; state++)
        numbers[state] = alive[state] ? kept++ : 0;
    join_classes(all, numbers, &joined, classes);
    dfa = dfa_new(pool, kept, &joined);
    for (uint32_t state = 1; dfa && state < all->states; state++) {
        if (!numbers[state])
            continue;
        const uint32_t *from = dfa_row(all, state);
        uint32_t *to = dfa_row(dfa, numbers[state]);
        dfa->accepts[numbers[state]] = all->accepts[state];
        for (uint32_t class = 0; class < joined.count; class ++)
            to[class] = numbers[from[classes[class]]];
    }
cleanup:
    memory_free(numbers);
    memory_free(alive);
    return dfa;
}

/* ---- Automata of expressions ---- */

enum { MOST_ATTEMPTS = 10000000 }; /* a tenth of a second */

/* The parser's states of an expression without rules are those of an automaton, if there are not too many. */
static enum salvo_status find_states(const struct expr *expr, struct network *network, struct states *states)
{
    enum salvo_status status = SALVO_OK;
    TRY(network_build(&expr, 1, 0, 0, network));
    if (network_is_dead(network))
        return SALVO_OK;
    TRY(states_open(network, DFA_MAX_BYTES, 0, states));
    for (uint32_t state = 1; state < states->count; state++) {
        if (states->count > DFA_MAX_STATES)
            TRY(fail(SALVO_ERROR_UNSUPPORTED, "the expression is too large: it has more than %d states",
                DFA_MAX_STATES));
        if (states->attempts > MOST_ATTEMPTS)
            TRY(fail(SALVO_ERROR_UNSUPPORTED, "the expression is too ambiguous for an automaton"));
        TRY(states_compute_all(states, state));
    }
cleanup:
    return status;
}

const struct dfa *dfa_of(struct expr_pool *pool, const struct expr *expr)
{
    enum salvo_status status = pool->status;
    struct network network = {0};
    struct states states = {0};
    struct dfa all = {.states = 1};
    const struct dfa *dfa =
        expr->kind == EXPR_DFA ? expr->dfa : memo_find(pool, MEMO_AUTOMATON, MEMO_SOURCE(expr));
    if (status != SALVO_OK || dfa)
        return status == SALVO_OK ? dfa : NULL;
    TRY(find_states(expr, &network, &states));
    all.states = states.count ? states.count : 1;
    all.classes.count = network.class_count;
    memcpy(all.classes.of, network.class_of, sizeof all.classes.of);
    TRY(NEW(&all.next, (size_t)all.states * all.classes.count));
    TRY(NEW(&all.accepts, all.states));
    for (uint32_t state = 1; state < all.states && states.list; state++) {
        uint32_t *row = dfa_row(&all, state);
        all.accepts[state] = states.list[state]->complete;
        for (uint32_t class = 0; class < all.classes.count; class ++)
            row[class] = states.list[state]->next[class] - 1;
    }
    dfa = trimmed(pool, &all);
    memo_keep(pool, MEMO_AUTOMATON, MEMO_SOURCE(expr), dfa);
cleanup:
    memory_free(all.next);
    memory_free(all.accepts);
    states_close(&states);
    network_free(&network);
    if (status != SALVO_OK)
        pool->status = status;
    return dfa;
}

/* ---- Products ---- */

/* Two states of a product are one number. */
struct product {
    const struct dfa *left, *right;
    bool without;
    uint32_t (*pairs)[2];
    uint32_t *slots, mask; /* hash table: number; 0: free */
    uint32_t capacity;
    uint32_t class_pairs[256][2]; /* of each class of `all`: those of the two automata */
    struct dfa all;
};

static uint32_t hash_pair(const uint32_t pair[2])
{
    uint64_t hash = ((uint64_t)pair[0] << 32 | pair[1]) * UINT64_C(0x9E3779B97F4A7C15);
    return (uint32_t)(hash >> 32);
}

static enum salvo_status grow_product(struct product *product)
{
    enum salvo_status status = SALVO_OK;
    const uint32_t capacity = product->capacity ? product->capacity * 2 : 64;
    uint32_t *slots = NULL;
    TRY(RESIZE(&product->pairs, capacity));
    TRY(RESIZE(&product->all.accepts, capacity));
    TRY(RESIZE(&product->all.next, (size_t)capacity * product->all.classes.count));
    TRY(NEW(&slots, (size_t)capacity * 2));
    memory_free(product->slots);
    product->slots = slots;
    product->mask = capacity * 2 - 1;
    product->capacity = capacity;
    for (uint32_t i = 1; i < product->all.states; i++) {
        uint32_t slot = hash_pair(product->pairs[i]) & product->mask;
        while (slots[slot])
            slot = (slot + 1) & product->mask;
        slots[slot] = i;
    }
cleanup:
    return status;
}

static enum salvo_status pair_number(struct product *product, uint32_t left, uint32_t right, uint32_t *out)
{
    enum salvo_status status = SALVO_OK;
    uint32_t pair[2] = {left, right};
    *out = 0;
    if (left == 0 || (right == 0 && !product->without))
        return SALVO_OK;
    if (product->all.states >= product->capacity)
        TRY(grow_product(product));
    uint32_t slot = hash_pair(pair) & product->mask;
    for (; product->slots[slot]; slot = (slot + 1) & product->mask) {
        *out = product->slots[slot];
        if (memcmp(product->pairs[*out], pair, sizeof pair) == 0)
            return SALVO_OK;
    }
    if (product->all.states >= DFA_MAX_STATES)
        TRY(fail(SALVO_ERROR_UNSUPPORTED, "the expression is too large: it has more than %d states",
            DFA_MAX_STATES));
    memcpy(product->pairs[product->all.states], pair, sizeof pair);
    product->slots[slot] = product->all.states;
    *out = product->all.states++;
cleanup:
    return status;
}

/* The bytes that are in the same classes of both automata. */
static void multiply_classes(struct product *product)
{
    struct byte_classes *classes = &product->all.classes;
    for (unsigned byte = 0; byte < 256; byte++) {
        const uint32_t left = product->left->classes.of[byte], right = product->right->classes.of[byte];
        uint32_t class = 0;
        while (class < classes->count &&
               (product->class_pairs[class][0] != left || product->class_pairs[class][1] != right))
            class ++;
        if (class == classes->count) {
            product->class_pairs[class][0] = left;
            product->class_pairs[class][1] = right;
            classes->count++;
        }
        classes->of[byte] = (uint8_t) class;
    }
}

static enum salvo_status multiply_states(struct product *product)
{
    enum salvo_status status = SALVO_OK;
    const struct dfa *left = product->left, *right = product->right;
    uint32_t first;
    TRY(grow_product(product));
    TRY(pair_number(product, left->states > 1, right->states > 1, &first));
    for (uint32_t state = 1; state < product->all.states; state++) {
        const uint32_t pair[2] = {product->pairs[state][0], product->pairs[state][1]};
        const uint32_t *left_row = dfa_row(left, pair[0]), *right_row = dfa_row(right, pair[1]);
        product->all.accepts[state] = left->accepts[pair[0]] && right->accepts[pair[1]] != product->without;
        uint32_t known[2] = {0, 0}, target = 0;
        for (uint32_t class = 0; class < product->all.classes.count; class ++) {
            const uint32_t *classes = product->class_pairs[class];
            const uint32_t next[2] = {left_row[classes[0]], right_row[classes[1]]};
            /* Neighbouring classes often lead to the same states. */
            if (next[0] != known[0] || next[1] != known[1])
                TRY(pair_number(product, next[0], next[1], &target));
            memcpy(known, next, sizeof known);
            dfa_row(&product->all, state)[class] = target;
        }
    }
cleanup:
    return status;
}

static const struct dfa *multiply(
    struct expr_pool *pool, const struct dfa *left, const struct dfa *right, bool without)
{
    enum salvo_status status = pool->status;
    struct product product = {.left = left, .right = right, .without = without, .all = {.states = 1}};
    const enum memo_kind kind = without ? MEMO_WITHOUT : MEMO_BOTH;
    const struct dfa *const sources[2] = {left, right}, *dfa = memo_find(pool, kind, MEMO_SOURCE(sources));
    if (status != SALVO_OK || !left || !right || dfa)
        return status == SALVO_OK ? dfa : NULL;
    multiply_classes(&product);
    TRY(multiply_states(&product));
    dfa = trimmed(pool, &product.all);
    memo_keep(pool, kind, MEMO_SOURCE(sources), dfa);
cleanup:
    memory_free(product.pairs);
    memory_free(product.slots);
    memory_free(product.all.next);
    memory_free(product.all.accepts);
    if (status != SALVO_OK)
        pool->status = status;
    return dfa;
}

const struct dfa *dfa_both(struct expr_pool *pool, const struct dfa *left, const struct dfa *right)
{
    return multiply(pool, left, right, false);
}

const struct dfa *dfa_without(struct expr_pool *pool, const struct dfa *left, const struct dfa *right)
{
    return multiply(pool, left, right, true);
}
