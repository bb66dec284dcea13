#include "grammar/dfa.h"

#include "base/memory.h"
#include "grammar/states.h"

#include <string.h>

bool dfa_is_empty(const struct dfa *dfa)
{
    return dfa->states <= 1;
}

/* Two states of a product are one number. */
struct product {
    const struct dfa *left, *right;
    bool without;
    uint32_t (*pairs)[2];
    uint32_t count, capacity;
    uint32_t *slots, mask; /* hash table: number; 0: free */
};

struct dfa *dfa_new(struct expr_pool *pool, uint32_t count)
{
    struct dfa *dfa = expr_pool_new(pool, sizeof *dfa);
    if (!dfa)
        return NULL;
    dfa->states = count;
    dfa->next = expr_pool_new(pool, count * sizeof *dfa->next);
    dfa->accepts = expr_pool_new(pool, count * sizeof *dfa->accepts);
    return dfa->next && dfa->accepts ? dfa : NULL;
}

/* The states from which each state is reached: those of state i are from[first[i]] to from[first[i + 1]]. */
struct arrivals {
    size_t *first;
    uint32_t *from;
};

static enum salvo_status find_arrivals(uint32_t count, uint32_t (*const next)[256], struct arrivals *out)
{
    enum salvo_status status = SALVO_OK;
    TRY(NEW(&out->first, (size_t)count + 2));
    for (int store = 0; store < 2; store++) {
        for (uint32_t state = 1; state < count; state++) {
            uint32_t before = 0;
            for (unsigned byte = 0; byte < 256; byte++) {
                const uint32_t target = next[state][byte];
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

/* Marks the states that lead to an accepting one. */
static enum salvo_status mark_alive(
    uint32_t count, uint32_t (*const next)[256], const bool *accepts, bool *alive)
{
    enum salvo_status status = SALVO_OK;
    struct arrivals arrivals = {0};
    uint32_t *todo = NULL, todo_count = 0;
    TRY(find_arrivals(count, next, &arrivals));
    TRY(NEW(&todo, count));
    for (uint32_t state = 1; state < count; state++) {
        alive[state] = accepts[state];
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

/* Copies the states that lead to an accepting one; all others become dead. */
static const struct dfa *trimmed(
    struct expr_pool *pool, uint32_t count, uint32_t (*const next)[256], const bool *accepts)
{
    uint32_t *numbers = NULL, kept = 1;
    bool *alive = NULL;
    struct dfa *dfa = NULL;
    if (pool->status == SALVO_OK)
        pool->status = NEW(&numbers, count);
    if (pool->status == SALVO_OK)
        pool->status = NEW(&alive, count);
    if (pool->status == SALVO_OK && count > 1)
        pool->status = mark_alive(count, next, accepts, alive);
    if (pool->status != SALVO_OK || !numbers || !alive || !next || !accepts)
        goto cleanup;
    for (uint32_t state = 1; state < count; state++)
        numbers[state] = alive[state] ? kept++ : 0;
    if (count > 1 && !alive[1])
        kept = 1;
    dfa = dfa_new(pool, kept);
    for (uint32_t state = 1; dfa && kept > 1 && state < count; state++) {
        if (!alive[state])
            continue;
        dfa->accepts[numbers[state]] = accepts[state];
        for (unsigned byte = 0; byte < 256; byte++)
            dfa->next[numbers[state]][byte] = numbers[next[state][byte]];
    }
cleanup:
    memory_free(numbers);
    memory_free(alive);
    return dfa;
}

/* The parser's states of an expression without rules are those of an automaton, if there are not too many. */
const struct dfa *dfa_of(struct expr_pool *pool, const struct expr *expr)
{
    enum salvo_status status = pool->status;
    struct network network = {0};
    struct states states = {0};
    uint32_t(*next)[256] = NULL;
    bool *accepts = NULL;
    const struct dfa *dfa = NULL;
    const struct expr *rules[] = {expr};
    if (status != SALVO_OK)
        return NULL;
    TRY(network_build(rules, 1, 0, 0, &network));
    if (network_is_dead(&network)) {
        dfa = dfa_new(pool, 1);
        goto cleanup;
    }
    TRY(states_open(&network, 64 << 20, 0, &states));
    for (uint32_t state = 1; state < states.count; state++) {
        if (states.count > DFA_MAX_STATES)
            TRY(fail(SALVO_ERROR_UNSUPPORTED, "the expression is too large: it has more than %d states",
                DFA_MAX_STATES));
        for (unsigned class = 0; class < network.class_count; class ++) {
            uint32_t target;
            TRY(states_step(&states, state, class, &target));
        }
    }
    TRY(NEW(&next, states.count));
    TRY(NEW(&accepts, states.count));
    for (uint32_t state = 1; state < states.count; state++) {
        accepts[state] = states.list[state]->complete;
        for (unsigned byte = 0; byte < 256; byte++)
            next[state][byte] = states.list[state]->next[network.class_of[byte]] - 1;
    }
    dfa = trimmed(pool, states.count, next, accepts);
cleanup:
    memory_free(next);
    memory_free(accepts);
    states_close(&states);
    network_free(&network);
    if (status != SALVO_OK)
        pool->status = status;
    return dfa;
}

static uint32_t hash_pair(const uint32_t pair[2])
{
    uint64_t hash = ((uint64_t)pair[0] << 32 | pair[1]) * UINT64_C(0x9E3779B97F4A7C15);
    return (uint32_t)(hash >> 32);
}

static enum salvo_status pair_number(struct product *product, uint32_t left, uint32_t right, uint32_t *out)
{
    enum salvo_status status = SALVO_OK;
    uint32_t pair[2] = {left, right};
    *out = 0;
    if (left == 0 || (right == 0 && !product->without))
        return SALVO_OK;
    uint32_t slot = hash_pair(pair) & product->mask;
    for (; product->slots[slot]; slot = (slot + 1) & product->mask) {
        *out = product->slots[slot];
        if (memcmp(product->pairs[*out], pair, sizeof pair) == 0)
            return SALVO_OK;
    }
    if (product->count >= DFA_MAX_STATES)
        TRY(fail(SALVO_ERROR_UNSUPPORTED, "the expression is too large: it has more than %d states",
            DFA_MAX_STATES));
    memcpy(product->pairs[product->count], pair, sizeof pair);
    product->slots[slot] = product->count;
    *out = product->count++;
cleanup:
    return status;
}

static const struct dfa *multiply(
    struct expr_pool *pool, const struct dfa *left, const struct dfa *right, bool without)
{
    enum salvo_status status = pool->status;
    struct product product = {.left = left, .right = right, .without = without, .count = 1, .mask = 65535};
    uint32_t(*next)[256] = NULL, first, capacity = 0;
    bool *accepts = NULL;
    const struct dfa *dfa = NULL;
    if (status != SALVO_OK || !left || !right)
        return NULL;
    TRY(NEW(&product.pairs, DFA_MAX_STATES + 1));
    TRY(NEW(&product.slots, (size_t)product.mask + 1));
    TRY(NEW(&accepts, DFA_MAX_STATES + 1));
    TRY(pair_number(&product, left->states > 1, right->states > 1, &first));
    for (uint32_t state = 1; state < product.count; state++) {
        const uint32_t *pair = product.pairs[state];
        if (state >= capacity) {
            capacity = capacity ? capacity * 2 : 256;
            TRY(RESIZE(&next, capacity));
        }
        accepts[state] = left->accepts[pair[0]] && right->accepts[pair[1]] != without;
        for (unsigned byte = 0; byte < 256; byte++)
            TRY(pair_number(
                &product, left->next[pair[0]][byte], right->next[pair[1]][byte], &next[state][byte]));
    }
    dfa = trimmed(pool, product.count, next, accepts);
cleanup:
    memory_free(product.pairs);
    memory_free(product.slots);
    memory_free(next);
    memory_free(accepts);
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
