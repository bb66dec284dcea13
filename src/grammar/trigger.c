#include "grammar/trigger.h"

#include "grammar/dfa.h"

#include <string.h>

/* The automaton of Aho and Corasick: a state for each beginning of a trigger. Its states count from 1, as in
 * a struct dfa. */
struct search {
    uint32_t (*next)[256];
    uint32_t *longest; /* for each state the one of its longest proper ending that begins a trigger */
    bool *found;       /* a trigger ends here */
    uint32_t *order;   /* states, the short ones first */
    uint32_t count;
};

static bool new_search(struct expr_pool *pool, const struct trigger_list *triggers, struct search *search)
{
    size_t most = 2;
    for (size_t i = 0; i < triggers->count; i++)
        most += triggers->texts[i].size;
    search->next = expr_pool_new(pool, most * sizeof *search->next);
    search->longest = expr_pool_new(pool, most * sizeof *search->longest);
    search->found = expr_pool_new(pool, most * sizeof *search->found);
    search->order = expr_pool_new(pool, most * sizeof *search->order);
    search->count = 2;
    return pool->status == SALVO_OK;
}

static void add_trigger(struct search *search, struct salvo_text text)
{
    uint32_t state = 1;
    for (size_t i = 0; i < text.size; i++) {
        uint32_t *next = &search->next[state][(unsigned char)text.data[i]];
        if (!*next)
            *next = search->count++;
        state = *next;
    }
    search->found[state] = true;
}

/* Fills the transitions that leave the beginnings of triggers. */
static void complete_search(struct search *search)
{
    uint32_t known = 0;
    search->order[known++] = 1;
    for (uint32_t i = 0; i < known; i++) {
        const uint32_t state = search->order[i], shorter = search->longest[state];
        for (unsigned byte = 0; byte < 256; byte++) {
            uint32_t *next = &search->next[state][byte];
            const uint32_t other = shorter ? search->next[shorter][byte] : 1;
            if (!*next) {
                *next = other;
                continue;
            }
            search->longest[*next] = other;
            search->found[*next] |= search->found[other];
            search->order[known++] = *next;
        }
    }
}

/* Texts whose only trigger is at their end, or texts without a trigger. */
static const struct expr *free_text(struct expr_pool *pool, const struct search *search, bool with_trigger)
{
    struct byte_classes classes = {.count = 256};
    for (unsigned byte = 0; byte < 256; byte++)
        classes.of[byte] = (uint8_t)byte;
    struct dfa *dfa = dfa_new(pool, search->count, &classes);
    for (uint32_t state = 1; dfa && state < search->count; state++) {
        if (search->found[state]) {
            dfa->accepts[state] = with_trigger;
            continue;
        }
        dfa->accepts[state] = !with_trigger;
        for (unsigned byte = 0; byte < 256; byte++) {
            const uint32_t next = search->next[state][byte];
            dfa_row(dfa, state)[byte] = with_trigger || !search->found[next] ? next : 0;
        }
    }
    return dfa ? expr_free_text(pool, dfa) : expr_none();
}

static enum salvo_status check(const struct trigger_list *triggers)
{
    size_t bytes = 0;
    for (size_t i = 0; i < triggers->count; i++) {
        if (triggers->texts[i].size == 0)
            return fail(SALVO_ERROR_ARGUMENT, "trigger %zu is empty", i + 1);
        bytes += triggers->texts[i].size;
    }
    if (triggers->count > TRIGGERS_MOST || bytes > TRIGGERS_MOST_BYTES) {
        return fail(SALVO_ERROR_UNSUPPORTED,
            "%zu triggers with %zu bytes were given; at most %d with %d bytes are possible", triggers->count,
            bytes, TRIGGERS_MOST, TRIGGERS_MOST_BYTES);
    }
    return SALVO_OK;
}

const struct expr *trigger_expr(
    struct expr_pool *pool, const struct trigger_list *triggers, const struct expr *then)
{
    struct search search = {0};
    if (pool->status == SALVO_OK)
        pool->status = check(triggers);
    if (pool->status != SALVO_OK || !new_search(pool, triggers, &search))
        return expr_none();
    for (size_t i = 0; i < triggers->count; i++)
        add_trigger(&search, triggers->texts[i]);
    complete_search(&search);
    const struct expr *triggered = EXPR_SEQUENCE_OF(pool, free_text(pool, &search, true), then);
    if (triggers->required)
        return triggered;
    return EXPR_EITHER_OF(pool, triggered, free_text(pool, &search, false));
}
