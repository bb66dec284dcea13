#include "grammar/dfa_characters.h"

#include "base/memory.h"
#include "base/status.h"
#include "grammar/json_text.h"

#include <string.h>

enum { MOST_BETWEEN = 2000 };

unsigned json_text_bytes(const struct byte_classes *classes, unsigned char bytes[256])
{
    unsigned count = 0;
    bool known[256] = {false};
    for (unsigned byte = 0; byte < 256; byte++) {
        if (json_text_kind_begins(byte))
            memset(known, 0, sizeof known);
        if (!known[classes->of[byte]])
            bytes[count++] = (unsigned char)byte;
        known[classes->of[byte]] = true;
    }
    return count;
}

/* Finds where in a character each state is, from the first state on. */
static enum salvo_status find_places(const struct dfa *dfa, uint8_t *places, uint32_t *todo)
{
    unsigned char bytes[256];
    const unsigned byte_count = json_text_bytes(&dfa->classes, bytes);
    uint32_t count = 0;
    todo[count++] = 1;
    places[1] = TEXT_BODY;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t state = todo[i];
        for (unsigned k = 0; k < byte_count; k++) {
            const uint32_t next = dfa_step(dfa, state, bytes[k]);
            if (next == 0)
                continue;
            const uint8_t place = (uint8_t)json_text_next((enum json_text_state)places[state], bytes[k]);
            if (place == TEXT_DEAD || (places[next] && places[next] != place))
                return fail(SALVO_ERROR_UNSUPPORTED, "the expression matches parts of characters");
            if (!places[next])
                todo[count++] = next;
            places[next] = place;
        }
    }
    return SALVO_OK;
}

/* Marks the states that one character leads to. `seen` has the number + 1 of the last search. */
static void find_targets(
    const struct dfa *dfa, struct dfa_characters *out, uint32_t from, uint32_t *todo, uint32_t *seen)
{
    uint32_t count = 0;
    todo[count++] = out->states[from];
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t *row = dfa_row(dfa, todo[i]);
        for (uint32_t class = 0; class < dfa->classes.count; class ++) {
            const uint32_t next = row[class];
            if (next == 0 || seen[next] == from + 1)
                continue;
            seen[next] = from + 1;
            if (out->numbers[next]) {
                const size_t pair = (size_t)from * out->count + out->numbers[next] - 1;
                out->leads[pair / 64] |= UINT64_C(1) << (pair % 64);
            } else {
                todo[count++] = next;
            }
        }
    }
}

enum salvo_status dfa_characters_open(const struct dfa *dfa, struct dfa_characters *out)
{
    enum salvo_status status = SALVO_OK;
    uint8_t *places = NULL;
    uint32_t *todo = NULL, *seen = NULL;
    *out = (struct dfa_characters){0};
    if (dfa->states < 2)
        return fail(SALVO_ERROR_UNSUPPORTED, "the expression matches nothing");
    TRY(NEW(&places, dfa->states));
    TRY(NEW(&todo, dfa->states + 1));
    TRY(NEW(&seen, dfa->states));
    TRY(NEW(&out->numbers, dfa->states));
    TRY(NEW(&out->states, dfa->states));
    TRY(find_places(dfa, places, todo));
    for (uint32_t state = 1; state < dfa->states; state++) {
        if (places[state] != TEXT_BODY)
            continue;
        out->states[out->count++] = state;
        out->numbers[state] = out->count;
    }
    if (out->count > MOST_BETWEEN) {
        TRY(fail(SALVO_ERROR_UNSUPPORTED,
            "the expression is too large: it has more than %d states between "
            "characters",
            MOST_BETWEEN));
    }
    TRY(NEW(&out->leads, ((size_t)out->count * out->count + 63) / 64));
    for (uint32_t from = 0; from < out->count; from++)
        find_targets(dfa, out, from, todo, seen);
cleanup:
    memory_free(places);
    memory_free(todo);
    memory_free(seen);
    if (status != SALVO_OK)
        dfa_characters_close(out);
    return status;
}

void dfa_characters_close(struct dfa_characters *characters)
{
    memory_free(characters->states);
    memory_free(characters->numbers);
    memory_free(characters->leads);
    *characters = (struct dfa_characters){0};
}
