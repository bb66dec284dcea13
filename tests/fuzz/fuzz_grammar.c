/*
 * Grammars: a byte that chooses the kind, a text of the kind, a 0 byte, and a document. Reading ends with a
 * grammar or an error. A byte can be appended exactly if matcher_bytes allows it, the masks say
 * the same as each token alone, and rolling back leads to the same places.
 */
#include "../grammar/grammar_sample.h"

#include <stdlib.h>
#include <string.h>

enum { LIMIT = 8 << 20, LONGEST_DOCUMENT = 60, MASKED_STEPS = 3 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool condition)
{
    if (!condition)
        abort();
}

static struct salvo_grammar *open_grammar(unsigned kind, const char *text, const struct token_trie *trie)
{
    switch (kind % 4) {
    case 0:
        return sample_gbnf(text, trie, LIMIT);
    case 1:
        return sample_regex(text, trie, LIMIT);
    default:
        return sample_schema(text, trie, kind % 4 == 3, LIMIT);
    }
}

static void compare_mask(struct salvo_grammar_matcher *matcher, const struct token_trie *trie)
{
    uint32_t mask[32];
    expect(trie->token_count <= 32 * 32);
    if (matcher_mask(matcher, mask, 32) != SALVO_OK)
        return; /* not enough memory */
    for (uint32_t id = 0; id < trie->token_count; id++) {
        const bool allowed = mask[id / 32] >> (id % 32) & 1;
        const enum salvo_status status = matcher_accept(matcher, id);
        if (status == SALVO_ERROR_MEMORY || status == SALVO_ERROR_UNSUPPORTED)
            return;
        expect((status == SALVO_OK) == allowed);
        expect(status != SALVO_OK || matcher_rollback(matcher, 1) == SALVO_OK);
    }
}

static void walk(struct salvo_grammar *grammar, const struct token_trie *trie, const char *data, size_t size)
{
    struct salvo_grammar_matcher *matcher;
    struct byte_set before;
    expect(matcher_open(grammar, &matcher) == SALVO_OK);
    for (size_t i = 0; i < size && i < LONGEST_DOCUMENT; i++) {
        if (i < MASKED_STEPS)
            compare_mask(matcher, trie);
        if (matcher_bytes(matcher, &before) != SALVO_OK)
            break;
        size_t taken;
        const enum salvo_status status = matcher_append(matcher, data + i, 1, &taken);
        if (status != SALVO_OK && status != SALVO_ERROR_ARGUMENT)
            break;
        expect((status == SALVO_OK) == byte_set_has(&before, (unsigned char)data[i]));
        if (status != SALVO_OK)
            break;
        expect(taken == 1 && matcher_steps(matcher) == i + 1);
    }
    const size_t steps = matcher_steps(matcher);
    if (steps) {
        struct byte_set again;
        expect(matcher_rollback(matcher, steps) == SALVO_OK && matcher_steps(matcher) == 0);
        if (matcher_append(matcher, data, steps - 1, NULL) == SALVO_OK &&
            matcher_bytes(matcher, &again) == SALVO_OK)
            expect(steps < size && steps < LONGEST_DOCUMENT ? true
                                                            : memcmp(&before, &again, sizeof before) == 0);
    }
    matcher_close(matcher);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct token_trie *trie;
    if (!trie)
        trie = sample_trie(300, 9);
    if (!size || !trie)
        return 0;
    const uint8_t *end = memchr(data + 1, 0, size - 1);
    const size_t text_size = end ? (size_t)(end - data) - 1 : size - 1;
    char *text = calloc(text_size + 1, 1);
    expect(text);
    memcpy(text, data + 1, text_size);
    struct salvo_grammar *grammar = open_grammar(data[0], text, trie);
    if (grammar) {
        walk(grammar, trie, (const char *)data + size - (end ? size - text_size - 2 : 0),
            end ? size - text_size - 2 : 0);
        grammar_close(grammar);
    }
    free(text);
    return 0;
}
