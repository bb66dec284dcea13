#include "base/memory.h"
#include "grammar/matcher_parts.h"
#include "grammar/string_tokens.h"

#include <string.h>

enum { MOST_WORK = 50000000 }; /* limit for one matcher, so that an ambiguous grammar cannot take minutes */

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
    memory_free(grammar->controls);
    memory_free(grammar->control_texts);
    pthread_mutex_destroy(&grammar->lock);
    memory_free(grammar);
}

enum salvo_status grammar_set_controls(
    struct salvo_grammar *grammar, const struct control_token *controls, size_t count)
{
    enum salvo_status status = SALVO_OK;
    size_t size = 0;
    for (size_t i = 0; i < count; i++)
        size += controls[i].text.size;
    TRY(NEW(&grammar->controls, count + 1));
    TRY(NEW(&grammar->control_texts, size + 1));
    char *at = grammar->control_texts;
    for (size_t i = 0; i < count; i++) {
        if (controls[i].text.size)
            memcpy(at, controls[i].text.data, controls[i].text.size);
        grammar->controls[i] =
            (struct control_token){controls[i].id, (struct salvo_text){at, controls[i].text.size}};
        at += controls[i].text.size;
    }
    grammar->control_count = count;
cleanup:
    return status;
}

static const struct control_token *find_control(const struct salvo_grammar *grammar, uint32_t id)
{
    for (size_t i = 0; i < grammar->control_count; i++) {
        if (grammar->controls[i].id == id)
            return &grammar->controls[i];
    }
    return NULL;
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
    TRY(unique_copy(&matcher->unique, &copy->unique));
    copy->grammar = matcher->grammar;
    /* The copy joins the list before its states are read: a states_collect in between would renumber
     * them. */
    enlist(copy);
    pthread_mutex_lock(&matcher->grammar->lock);
    memcpy(copy->history, matcher->history, matcher->count * sizeof *copy->history);
    copy->count = matcher->count;
    copy->work = matcher->work;
    pthread_mutex_unlock(&matcher->grammar->lock);
    *out = copy;
    copy = NULL;
cleanup:
    if (copy)
        memory_free(copy->history);
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
    if (grammar->worker == matcher)
        grammar->worker = NULL;
    states_release(&grammar->states);
    pthread_mutex_unlock(&grammar->lock);
    unique_free(&matcher->unique);
    memory_free(matcher->history);
    memory_free(matcher);
}

/* Before each use of the states: counts the work, and drops states that no matcher needs when there are many.
 * With the lock. */
static enum salvo_status begin_work(struct salvo_grammar_matcher *user)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_grammar *grammar = user->grammar;
    uint32_t *numbers = NULL;
    if (grammar->worker)
        grammar->worker->work += grammar->states.effort;
    grammar->worker = user;
    grammar->states.effort = 0;
    if (user->work > MOST_WORK) {
        return fail(SALVO_ERROR_UNSUPPORTED,
            "the grammar is too ambiguous: the text needs more than %d items", MOST_WORK);
    }
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
    if (matcher->grammar->network.unique)
        TRY(unique_keep(&matcher->unique));
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

/* The state after bytes that follow the matcher's text. Until `push`, the text can return. */
static enum salvo_status advance(
    struct salvo_grammar_matcher *matcher, struct salvo_text bytes, uint32_t *state, size_t *out_taken)
{
    return matcher->grammar->network.unique ? unique_walk(matcher, bytes, state, out_taken)
                                            : walk(matcher->grammar, bytes, state, out_taken);
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
    TRY(begin_work(matcher));
    state = current(matcher);
    TRY(advance(matcher, (struct salvo_text){data, size}, &state, &taken));
    if (taken < size)
        TRY(fail(SALVO_ERROR_ARGUMENT, "the grammar does not allow byte %zu of the text", taken + 1));
    TRY(push(matcher, state));
cleanup:
    unique_return(&matcher->unique);
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
    TRY(begin_work(matcher));
    state = current(matcher);
    if (trie->uses[token] == TOKEN_IS_END && grammar->states.list[state]->complete) {
        TRY(push(matcher, STATE_DEAD));
        goto cleanup;
    }
    struct salvo_text text = token_trie_text(trie, token);
    const struct control_token *control = find_control(grammar, token);
    if (control) {
        text = control->text;
    } else if (trie->uses[token] == TOKEN_IS_NEVER && grammar->states.list[state]->free) {
        matcher->unique.place = (struct unique_place){0};
        TRY(push(matcher, STATE_FIRST)); /* it has no text: a trigger cannot contain it */
        goto cleanup;
    }
    TRY(advance(matcher, text, &state, &taken));
    if (taken < text.size || text.size == 0)
        TRY(fail(SALVO_ERROR_ARGUMENT, "the grammar does not allow token %u here", token));
    TRY(push(matcher, state));
cleanup:
    unique_return(&matcher->unique);
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
    if (matcher->grammar->network.unique)
        unique_go_back(&matcher->unique, matcher->count - 1);
    states_release(&matcher->grammar->states);
    pthread_mutex_unlock(&matcher->grammar->lock);
    return SALVO_OK;
}

/* ---- Masks ---- */

enum {
    SMALL_PART = 8,  /* a part of the trie with fewer nodes is walked */
    LEAST_AHEAD = 4, /* with fewer characters in a string, most tokens are too long: the trie is walked */
};

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

/* A trie while a mask is filled. */
struct filling {
    struct salvo_grammar *grammar;
    const struct trie_node *nodes;
    const uint32_t *ids;
    uint32_t *mask, state; /* the state of the mask */
    struct byte_set loops;
};

static void allow(uint32_t *mask, const uint32_t *ids, uint32_t first, uint32_t last)
{
    for (uint32_t i = first; i < last; i++)
        mask[ids[i] / 32] |= UINT32_C(1) << (ids[i] % 32);
}

/* Walks nodes of a trie from `first` on; the states of the path to them are known. With `whole`, the trie is
 * the one of all tokens. */
static enum salvo_status fill_from_nodes(struct filling *filling, uint32_t first, uint32_t last, bool whole);

/* Allows the tokens at and below a trie node after which any text may follow within a string: tokens without
 * a quote at once, then tokens with a quote. */
static enum salvo_status fill_string(struct filling *filling, uint32_t number)
{
    const struct token_trie *trie = filling->grammar->trie;
    const struct string_tokens *strings = trie->strings;
    const struct trie_node *node = &trie->nodes[number];
    struct filling quoted = *filling;
    for (uint32_t i = node->tokens; i < trie->nodes[node->after].tokens; i++) {
        if (strings->chars[i] != NOT_STRING_TEXT)
            allow(filling->mask, trie->ids, i, i + 1);
    }
    quoted.nodes = strings->nodes;
    quoted.ids = strings->ids;
    return fill_from_nodes(
        &quoted, string_tokens_find(strings, number), string_tokens_find(strings, node->after), false);
}

static enum salvo_status fill_from_nodes(struct filling *filling, uint32_t first, uint32_t last, bool whole)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_grammar *grammar = filling->grammar;
    const struct token_trie *trie = grammar->trie;
    uint32_t *path = grammar->path;
    for (uint32_t i = first; i < last;) {
        const struct trie_node *node = &filling->nodes[i];
        uint32_t next;
        TRY(states_step(
            &grammar->states, path[node->depth - 1], grammar->network.class_of[node->byte], &next));
        if (next == STATE_DEAD) {
            i = node->after;
            continue;
        }
        path[node->depth] = next;
        if (whole && next == filling->state && node->below != UINT32_MAX &&
            is_subset(&trie->sets[node->below], &filling->loops)) {
            allow(filling->mask, filling->ids, node->tokens, filling->nodes[node->after].tokens);
            i = node->after;
        } else if (whole && trie->strings->at_body[i] && node->after - i > SMALL_PART &&
                   grammar->states.list[next]->ahead >= trie->deepest) {
            TRY(fill_string(filling, i));
            i = node->after;
        } else {
            allow(filling->mask, filling->ids, node->tokens, filling->nodes[i + 1].tokens);
            i++;
        }
    }
cleanup:
    return status;
}

/* Inside a JSON string where any text of `ahead` characters may follow: tokens with more are tried. */
static enum salvo_status fill_long_texts(struct filling *filling, uint32_t ahead, bool other_text)
{
    enum salvo_status status = SALVO_OK;
    const struct token_trie *trie = filling->grammar->trie;
    const struct string_tokens *strings = trie->strings;
    for (uint32_t i = 0; i < strings->text_count && strings->chars[strings->longest[i]] > ahead; i++) {
        uint32_t id = trie->ids[strings->longest[i]], state = filling->state;
        size_t taken = 0;
        struct salvo_text text = token_trie_text(trie, id);
        if (other_text)
            TRY(walk(filling->grammar, text, &state, &taken));
        if (taken < text.size)
            filling->mask[id / 32] &= ~(UINT32_C(1) << (id % 32));
    }
cleanup:
    return status;
}

/*
 * At the beginning of a key, most first bytes lead to where any text may follow: the mask of all texts,
 * without the parts of the trie that begin with another byte. *out_filled is false in other places.
 */
static enum salvo_status fill_mostly_string(struct filling *filling, bool *out_filled)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_grammar *grammar = filling->grammar;
    const struct token_trie *trie = grammar->trie;
    const struct string_tokens *strings = trie->strings;
    uint32_t all = trie->nodes[trie->node_count].tokens, free = 0, after;
    bool leads_to_text[256] = {false};
    for (uint32_t i = 0; i < trie->node_count; i = after) {
        const struct trie_node *node = &trie->nodes[i];
        uint32_t next;
        after = node->after;
        TRY(states_step(&grammar->states, filling->state, grammar->network.class_of[node->byte], &next));
        leads_to_text[node->byte] =
            next != STATE_DEAD && strings->at_body[i] && grammar->states.list[next]->ahead >= trie->deepest;
        free += leads_to_text[node->byte] ? trie->nodes[after].tokens - node->tokens : 0;
    }
    *out_filled = free > all / 2;
    if (!*out_filled)
        goto cleanup;
    memcpy(filling->mask, strings->mask, grammar->states.mask_bytes);
    struct filling quoted = *filling;
    quoted.nodes = strings->nodes;
    quoted.ids = strings->ids;
    for (uint32_t i = 0; i < trie->node_count; i = after) {
        const struct trie_node *node = &trie->nodes[i];
        after = node->after;
        if (leads_to_text[node->byte]) {
            TRY(fill_from_nodes(
                &quoted, string_tokens_find(strings, i), string_tokens_find(strings, after), false));
            continue;
        }
        for (uint32_t k = node->tokens; k < trie->nodes[after].tokens; k++)
            filling->mask[trie->ids[k] / 32] &= ~(UINT32_C(1) << (trie->ids[k] % 32));
        TRY(fill_from_nodes(filling, i, after, true));
    }
cleanup:
    return status;
}

/* Control tokens that count as their texts. */
static enum salvo_status fill_controls(struct salvo_grammar *grammar, uint32_t state, uint32_t *mask)
{
    enum salvo_status status = SALVO_OK;
    for (size_t i = 0; i < grammar->control_count; i++) {
        const struct control_token *control = &grammar->controls[i];
        uint32_t after = state, bit = UINT32_C(1) << (control->id % 32);
        size_t taken;
        TRY(walk(grammar, control->text, &after, &taken));
        mask[control->id / 32] &= ~bit;
        if (taken == control->text.size)
            mask[control->id / 32] |= bit;
    }
cleanup:
    return status;
}

static enum salvo_status fill_mask(struct salvo_grammar *grammar, uint32_t state, uint32_t *mask)
{
    enum salvo_status status = SALVO_OK;
    const struct token_trie *trie = grammar->trie;
    const struct string_tokens *strings = trie->strings;
    struct filling filling = {grammar, trie->nodes, trie->ids, mask, state, {{0}}};
    uint32_t ahead = grammar->states.list[state]->ahead;
    bool filled = false;
    grammar->path[0] = state;
    if (ahead >= LEAST_AHEAD) {
        memcpy(mask, strings->mask, grammar->states.mask_bytes);
        TRY(fill_long_texts(&filling, ahead, grammar->states.list[state]->other_text));
        filling.nodes = strings->nodes;
        filling.ids = strings->ids;
        TRY(fill_from_nodes(&filling, 0, strings->node_count, false));
    } else {
        TRY(find_loops(grammar, state, &filling.loops));
        TRY(fill_mostly_string(&filling, &filled));
        if (!filled)
            TRY(fill_from_nodes(&filling, 0, trie->node_count, true));
    }
    if (grammar->states.list[state]->complete)
        allow(mask, trie->ends, 0, trie->end_count);
    for (uint32_t id = 0; grammar->states.list[state]->free && id < trie->token_count; id++)
        mask[id / 32] |= (uint32_t)(trie->uses[id] == TOKEN_IS_NEVER) << (id % 32);
    TRY(fill_controls(grammar, state, mask));
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
    TRY(begin_work(matcher));
    state = grammar->states.list[current(matcher)];
    if (!state->mask) {
        TRY(fill_mask(grammar, current(matcher), out));
        TRY(states_new_mask(&grammar->states, current(matcher)));
        if (state->mask)
            memcpy(state->mask, out, grammar->states.mask_bytes);
    } else {
        memcpy(out, state->mask, grammar->states.mask_bytes);
    }
    if (grammar->network.unique)
        TRY(unique_restrict(matcher, current(matcher), out));
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
        TRY(begin_work(matcher));
        for (unsigned byte = 0; byte < 256; byte++) {
            const char text = (char)byte;
            uint32_t state = current(matcher);
            size_t taken;
            TRY(advance(matcher, (struct salvo_text){&text, 1}, &state, &taken));
            unique_return(&matcher->unique);
            if (taken)
                byte_set_add(out, byte, byte);
        }
    }
cleanup:
    unique_return(&matcher->unique);
    pthread_mutex_unlock(&grammar->lock);
    return status;
}

/* ---- Forced text ---- */

enum salvo_status matcher_forced(
    struct salvo_grammar_matcher *matcher, char *out, size_t size, size_t *out_size, bool *out_ends)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_grammar *grammar = matcher->grammar;
    const uint8_t *classes = grammar->network.class_of;
    *out_size = 0;
    *out_ends = false;
    pthread_mutex_lock(&grammar->lock);
    uint32_t state = STATE_DEAD;
    if (current(matcher) != STATE_DEAD)
        TRY(begin_work(matcher));
    state = current(matcher);
    while (state != STATE_DEAD) {
        uint32_t after = STATE_DEAD;
        unsigned choices = 0, only = 0;
        for (unsigned byte = 0; byte < 256 && choices < 2; byte++) {
            uint32_t next;
            TRY(states_step(&grammar->states, state, classes[byte], &next));
            if (next == STATE_DEAD)
                continue;
            choices++;
            only = byte;
            after = next;
        }
        *out_ends = choices == 0;
        if (choices != 1 || grammar->states.list[state]->complete || *out_size == size)
            break;
        out[(*out_size)++] = (char)only;
        state = after;
    }
    if (grammar->network.unique && *out_size) {
        const struct salvo_text text = {out, *out_size};
        state = current(matcher);
        TRY(unique_walk(matcher, text, &state, out_size));
        *out_ends = *out_ends && *out_size == text.size;
    }
cleanup:
    unique_return(&matcher->unique);
    pthread_mutex_unlock(&grammar->lock);
    return status;
}

/* Whether a token has the text as a proper beginning. */
static bool begins_token(const struct token_trie *trie, const char *text, size_t size)
{
    uint32_t node = 0, end = trie->node_count;
    for (size_t i = 0; i < size; i++) {
        while (node < end && trie->nodes[node].byte != (unsigned char)text[i])
            node = trie->nodes[node].after;
        if (node >= end)
            return false;
        end = trie->nodes[node].after;
        node++;
    }
    return node < end;
}

/* Whether a control token's name has the text as a proper beginning. */
static bool begins_control(const struct salvo_grammar *grammar, const char *text, size_t size)
{
    for (size_t i = 0; i < grammar->control_count; i++) {
        const struct salvo_text name = grammar->controls[i].text;
        if (name.size > size && memcmp(name.data, text, size) == 0)
            return true;
    }
    return false;
}

size_t matcher_settled(const struct salvo_grammar_matcher *matcher, const char *text, size_t size)
{
    const struct token_trie *trie = matcher->grammar->trie;
    size_t at = 0;
    while (trie && at < size && !begins_token(trie, text + at, size - at) &&
           !begins_control(matcher->grammar, text + at, size - at))
        at++;
    return at;
}

const struct control_token *matcher_control_at(
    const struct salvo_grammar_matcher *matcher, const char *text, size_t size)
{
    const struct salvo_grammar *grammar = matcher->grammar;
    for (size_t i = 0; i < grammar->control_count; i++) {
        const struct salvo_text name = grammar->controls[i].text;
        if (name.size && name.size <= size && memcmp(name.data, text, name.size) == 0)
            return &grammar->controls[i];
    }
    return NULL;
}
