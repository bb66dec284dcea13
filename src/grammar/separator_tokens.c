#include "grammar/separator_tokens.h"

#include "base/memory.h"

/* Whether the text has a comma or closing bracket, and before it a byte of each of `before`, in order. */
static bool has_separator(struct salvo_text text, const char *before)
{
    for (size_t i = 0; i < text.size; i++) {
        if (*before && text.data[i] == *before)
            before++;
        else if (!*before && (text.data[i] == ',' || text.data[i] == ']'))
            return true;
    }
    return false;
}

enum salvo_status separator_tokens_open(const struct token_trie *trie, struct separator_tokens **out)
{
    static const char *const before[SEPARATOR_CASES] = {
        [SEPARATOR_IN_ARRAY] = "", [SEPARATOR_IN_STRING] = "\"", [SEPARATOR_OUTSIDE] = "["};
    enum salvo_status status = SALVO_OK;
    struct separator_tokens *tokens = NULL;
    TRY(NEW(&tokens, 1));
    for (uint32_t id = 0; id < trie->token_count; id++) {
        const struct salvo_text text = token_trie_text(trie, id);
        for (unsigned i = 0; i < SEPARATOR_CASES && has_separator(text, ""); i++)
            tokens->counts[i] += has_separator(text, before[i]);
    }
    for (unsigned i = 0; i < SEPARATOR_CASES; i++) {
        TRY(NEW(&tokens->ids[i], tokens->counts[i]));
        tokens->counts[i] = 0;
    }
    for (uint32_t id = 0; id < trie->token_count; id++) {
        const struct salvo_text text = token_trie_text(trie, id);
        for (unsigned i = 0; i < SEPARATOR_CASES && has_separator(text, ""); i++) {
            if (has_separator(text, before[i]))
                tokens->ids[i][tokens->counts[i]++] = id;
        }
    }
    *out = tokens;
    tokens = NULL;
cleanup:
    separator_tokens_close(tokens);
    return status;
}

void separator_tokens_close(struct separator_tokens *tokens)
{
    if (!tokens)
        return;
    for (unsigned i = 0; i < SEPARATOR_CASES; i++)
        memory_free(tokens->ids[i]);
    memory_free(tokens);
}
