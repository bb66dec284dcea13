#include "grammar/matcher.h"

#include "base/memory.h"

#include <pthread.h>
#include <string.h>

struct salvo_grammar {
    pthread_mutex_t lock;
    struct network network;
    struct states states;
    const struct token_trie *trie;
    struct salvo_grammar_matcher *matchers;
    uint32_t *path; /* states along the current branch of the trie */
};

struct salvo_grammar_matcher {
    struct salvo_grammar *grammar;
    struct salvo_grammar_matcher *previous, *next; /* of the grammar */
    uint32_t *history; /* the state after each step, first state first; STATE_DEAD: ended */
    size_t count, capacity;
};

enum salvo_status grammar_open(
    struct network *network, const struct token_trie *trie, size_t limit, struct salvo_grammar **out)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_grammar *grammar = NULL;
    *out = NULL;
    if (network_is_dead(network))
        TRY(fail(SALVO_ERROR_ARGUMENT, "no text can match the grammar"));
    TRY(NEW(&grammar, 1));
    pthread_mutex_init(&grammar->lock, NULL);
    grammar->network = *network;
    *network = (struct network){0};
    grammar->trie = trie;
    size_t words = trie ? ((size_t)trie->token_count + 31) / 32 : 0;
    TRY(states_open(&grammar->network, limit, words * sizeof(uint32_t), &grammar->states));
    TRY(NEW(&grammar->path, trie ? (size_t)trie->deepest + 1 : 1));
    *out = grammar;
cleanup:
    network_free(network);
    if (status != SALVO_OK)
        grammar_close(grammar);
    return status;
}

void grammar_close(struct salvo_grammar *grammar)
{
    if (!grammar)
        return;
    states_close(&grammar->states);
    network_free(&grammar->network);
    memory_free(grammar->path);
    pthread_mutex_destroy(&grammar->lock);
    memory_free(grammar);
}

/* ---- Matchers ---- */

static void enlist(struct salvo_grammar_matcher *matcher)
{
    struct salvo_grammar *grammar = matcher->grammar;
    pthread_mutex_lock(&grammar->lock);
    matcher->next = grammar->matchers;
    if (matcher->next)
        matcher->next->previous = matcher;
    grammar->matchers = matcher;
    pthread_mutex_unlock(&grammar->lock);
}

enum salvo_status matcher_open(struct salvo_grammar *grammar, struct salvo_grammar_matcher **out)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_grammar_matcher *matcher = NULL;
    *out = NULL;
    TRY(NEW(&matcher, 1));
    matcher->capacity = 64;
    TRY(NEW(&matcher->history, matcher->capacity));
    matcher->grammar = grammar;
    matcher->history[0] = STATE_FIRST;
    matcher->count = 1;
    enlist(matcher);
    *out = matcher;
    matcher = NULL;
cleanup:
    memory_free(matcher);
    return status;
}

enum salvo_status matcher_copy(
    const struct salvo_grammar_matcher *matcher, struct salvo_grammar_matcher **out)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_grammar_matcher *copy = NULL;
    *out = NULL;
    TRY(NEW(&copy, 1));
    copy->capacity = matcher->capacity;
    TRY(NEW(&copy->history, copy->capacity));
    copy->grammar = matcher->grammar;
    /* In the list before its states are read: a collection between the two would renumber them. */
    enlist(copy);
    pthread_mutex_lock(&matcher->grammar->lock);
    memcpy(copy->history, matcher->history, matcher->count * sizeof *copy->history);
    copy->count = matcher->count;
    pthread_mutex_unlock(&matcher->grammar->lock);
    *out = copy;
    copy = NULL;
cleanup:
    memory_free(copy);
    return status;
}

void matcher_close(struct salvo_grammar_matcher *matcher)
{
    if (!matcher)
        return;
    struct salvo_grammar *grammar = matcher->grammar;
    pthread_mutex_lock(&grammar->lock);
    if (matcher->previous)
        matcher->previous->next = matcher->next;
    else
        grammar->matchers = matcher->next;
    if (matcher->next)
        matcher->next->previous = matcher->previous;
    pthread_mutex_unlock(&grammar->lock);
    memory_free(matcher->history);
    memory_free(matcher);
}

/* Drops the states that no matcher needs when there are many. With the lock. */
static enum salvo_status collect(struct salvo_grammar *grammar)
{
    enum salvo_status status = SALVO_OK;
    uint32_t *numbers = NULL;
    if (!states_are_many(&grammar->states))
        return SALVO_OK;
    for (struct salvo_grammar_matcher *matcher = grammar->matchers; matcher; matcher = matcher->next) {
        for (size_t i = 0; i < matcher->count; i++)
            states_mark(&grammar->states, matcher->history[i]);
    }
    TRY(states_collect(&grammar->states, &numbers));
    for (struct salvo_grammar_matcher *matcher = grammar->matchers; matcher; matcher = matcher->next) {
        for (size_t i = 0; i < matcher->count; i++)
            matcher->history[i] = numbers[matcher->history[i]];
    }
cleanup:
    memory_free(numbers);
    return status;
}

static uint32_t current(const struct salvo_grammar_matcher *matcher)
{
    return matcher->history[matcher->count - 1];
}

/* With the lock. */
static enum salvo_status push(struct salvo_grammar_matcher *matcher, uint32_t state)
{
    enum salvo_status status = SALVO_OK;
    if (matcher->count == matcher->capacity) {
        TRY(RESIZE(&matcher->history, matcher->capacity * 2));
        matcher->capacity *= 2;
    }
    matcher->history[matcher->count++] = state;
cleanup:
    return status;
}

/* The state after bytes; stops before the first that cannot follow. With the lock. */
static enum salvo_status walk(
    struct salvo_grammar *grammar, struct salvo_text bytes, uint32_t *state, size_t *out_taken)
{
    for (*out_taken = 0; *out_taken < bytes.size; ++*out_taken) {
        uint32_t next;
        unsigned class = grammar->network.class_of[(unsigned char)bytes.data[*out_taken]];
        enum salvo_status status = states_step(&grammar->states, *state, class, &next);
        if (status != SALVO_OK)
            return status;
        if (next == STATE_DEAD)
            return SALVO_OK;
        *state = next;
    }
    return SALVO_OK;
}

enum salvo_status matcher_append(
    struct salvo_grammar_matcher *matcher, const char *data, size_t size, size_t *out_taken)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_grammar *grammar = matcher->grammar;
    size_t taken = 0;
    pthread_mutex_lock(&grammar->lock);
    uint32_t state;
    if (current(matcher) == STATE_DEAD)
        TRY(fail(SALVO_ERROR_ARGUMENT, "the text has ended: nothing can follow"));
    TRY(collect(grammar));
    state = current(matcher);
    TRY(walk(grammar, (struct salvo_text){data, size}, &state, &taken));
    if (taken < size)
        TRY(fail(SALVO_ERROR_ARGUMENT, "the grammar does not allow byte %zu of the text", taken + 1));
    TRY(push(matcher, state));
cleanup:
    pthread_mutex_unlock(&grammar->lock);
    if (out_taken)
        *out_taken = taken;
    return status;
}

enum salvo_status matcher_accept(struct salvo_grammar_matcher *matcher, uint32_t token)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_grammar *grammar = matcher->grammar;
    const struct token_trie *trie = grammar->trie;
    size_t taken = 0;
    uint32_t state;
    pthread_mutex_lock(&grammar->lock);
    if (!trie)
        TRY(fail(SALVO_ERROR_ARGUMENT, "the grammar was compiled without a model: it has no tokens"));
    if (token >= trie->token_count)
        TRY(fail(SALVO_ERROR_ARGUMENT, "token %u is outside the vocabulary of %u", token, trie->token_count));
    if (current(matcher) == STATE_DEAD)
        TRY(fail(SALVO_ERROR_ARGUMENT, "the text has ended: token %u cannot follow", token));
    TRY(collect(grammar));
    state = current(matcher);
    if (trie->uses[token] == TOKEN_IS_END && grammar->states.list[state]->complete) {
        TRY(push(matcher, STATE_DEAD));
        goto cleanup;
    }
    struct salvo_text text = token_trie_text(trie, token);
    TRY(walk(grammar, text, &state, &taken));
    if (taken < text.size || text.size == 0)
        TRY(fail(SALVO_ERROR_ARGUMENT, "the grammar does not allow token %u here", token));
    TRY(push(matcher, state));
cleanup:
    pthread_mutex_unlock(&grammar->lock);
    return status;
}

bool matcher_is_complete(const struct salvo_grammar_matcher *matcher)
{
    pthread_mutex_lock(&matcher->grammar->lock);
    uint32_t state = current(matcher);
    bool complete = state == STATE_DEAD || matcher->grammar->states.list[state]->complete;
    pthread_mutex_unlock(&matcher->grammar->lock);
    return complete;
}

bool matcher_is_ended(const struct salvo_grammar_matcher *matcher)
{
    pthread_mutex_lock(&matcher->grammar->lock);
    bool ended = current(matcher) == STATE_DEAD;
    pthread_mutex_unlock(&matcher->grammar->lock);
    return ended;
}

size_t matcher_steps(const struct salvo_grammar_matcher *matcher)
{
    return matcher->count - 1;
}

enum salvo_status matcher_rollback(struct salvo_grammar_matcher *matcher, size_t steps)
{
    if (steps >= matcher->count)
        return fail(
            SALVO_ERROR_ARGUMENT, "cannot roll back %zu steps: there are %zu", steps, matcher->count - 1);
    pthread_mutex_lock(&matcher->grammar->lock);
    matcher->count -= steps;
    pthread_mutex_unlock(&matcher->grammar->lock);
    return SALVO_OK;
}

/* ---- Masks ---- */

static void allow(uint32_t *mask, const struct token_trie *trie, uint32_t first, uint32_t last)
{
    for (uint32_t i = first; i < last; i++)
        mask[trie->ids[i] / 32] |= UINT32_C(1) << (trie->ids[i] % 32);
}

/* The bytes after which a state is the same as before. */
static enum salvo_status find_loops(struct salvo_grammar *grammar, uint32_t state, struct byte_set *out)
{
    enum salvo_status status = SALVO_OK;
    *out = (struct byte_set){{0}};
    for (unsigned byte = 0; byte < 256; byte++) {
        uint32_t next;
        TRY(states_step(&grammar->states, state, grammar->network.class_of[byte], &next));
        if (next == state)
            byte_set_add(out, byte, byte);
    }
cleanup:
    return status;
}

static bool is_subset(const struct byte_set *small, const struct byte_set *large)
{
    uint64_t missing = 0;
    for (int i = 0; i < 4; i++)
        missing |= small->words[i] & ~large->words[i];
    return missing == 0;
}

static enum salvo_status fill_mask(struct salvo_grammar *grammar, uint32_t state, uint32_t *mask)
{
    enum salvo_status status = SALVO_OK;
    const struct token_trie *trie = grammar->trie;
    uint32_t *path = grammar->path;
    struct byte_set loops;
    path[0] = state;
    TRY(find_loops(grammar, state, &loops));
    for (uint32_t i = 0; i < trie->node_count;) {
        const struct trie_node *node = &trie->nodes[i];
        uint32_t next;
        TRY(states_step(
            &grammar->states, path[node->depth - 1], grammar->network.class_of[node->byte], &next));
        if (next == STATE_DEAD) {
            i = node->after;
        } else if (next == state && node->below != UINT32_MAX &&
                   is_subset(&trie->sets[node->below], &loops)) {
            allow(mask, trie, node->tokens, trie->nodes[node->after].tokens);
            i = node->after;
        } else {
            path[node->depth] = next;
            allow(mask, trie, node->tokens, trie->nodes[i + 1].tokens);
            i++;
        }
    }
    if (grammar->states.list[state]->complete) {
        for (uint32_t i = 0; i < trie->end_count; i++)
            mask[trie->ends[i] / 32] |= UINT32_C(1) << (trie->ends[i] % 32);
    }
cleanup:
    return status;
}

enum salvo_status matcher_mask(struct salvo_grammar_matcher *matcher, uint32_t *out, size_t words)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_grammar *grammar = matcher->grammar;
    struct parser_state *state;
    pthread_mutex_lock(&grammar->lock);
    if (!grammar->trie)
        TRY(fail(SALVO_ERROR_ARGUMENT, "the grammar was compiled without a model: it has no tokens"));
    if (words < grammar->states.mask_bytes / sizeof *out)
        TRY(fail(SALVO_ERROR_ARGUMENT, "a mask of %zu words was given; %u tokens need %zu", words,
            grammar->trie->token_count, grammar->states.mask_bytes / sizeof *out));
    memset(out, 0, words * sizeof *out);
    if (current(matcher) == STATE_DEAD)
        goto cleanup;
    TRY(collect(grammar));
    state = grammar->states.list[current(matcher)];
    if (!state->mask) {
        TRY(fill_mask(grammar, current(matcher), out));
        TRY(states_new_mask(&grammar->states, current(matcher)));
        if (state->mask)
            memcpy(state->mask, out, grammar->states.mask_bytes);
    } else {
        memcpy(out, state->mask, grammar->states.mask_bytes);
    }
cleanup:
    pthread_mutex_unlock(&grammar->lock);
    return status;
}

enum salvo_status matcher_bytes(struct salvo_grammar_matcher *matcher, struct byte_set *out)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_grammar *grammar = matcher->grammar;
    *out = (struct byte_set){{0}};
    pthread_mutex_lock(&grammar->lock);
    if (current(matcher) != STATE_DEAD) {
        TRY(collect(grammar));
        for (unsigned byte = 0; byte < 256; byte++) {
            uint32_t next;
            TRY(states_step(&grammar->states, current(matcher), grammar->network.class_of[byte], &next));
            if (next != STATE_DEAD)
                byte_set_add(out, byte, byte);
        }
    }
cleanup:
    pthread_mutex_unlock(&grammar->lock);
    return status;
}
