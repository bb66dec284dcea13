/* The public grammar functions. */
#include <salvo/grammar.h>

#include "base/memory.h"
#include "engine/arguments.h"
#include "engine/model.h"
#include "grammar/matcher.h"
#include "grammar/readers.h"
#include "grammar/trigger.h"

#include <string.h>

enum { DEFAULT_MEMORY = 64 << 20, MOST_CONTROLS = 64, FORCED_BYTES = 512 };

static enum salvo_status read_rules(enum salvo_grammar_kind kind, const char *text, size_t size,
    const struct salvo_grammar_options *options, struct rule_list *out)
{
    switch (kind) {
    case SALVO_GRAMMAR_GBNF:
        return gbnf_read(text, size, options->root ? options->root : "root", out);
    case SALVO_GRAMMAR_REGEX:
        rule_list_add(out, regex_read(&out->pool, text, size, SPELL_UTF8));
        return out->pool.status;
    case SALVO_GRAMMAR_JSON_SCHEMA:
        return schema_read(text, size, options->any_layout != 0, out);
    default:
        return fail(SALVO_ERROR_ARGUMENT, "salvo_grammar_compile: there is no grammar kind %d", (int)kind);
    }
}

/* The control tokens of a grammar, with their names in one buffer. */
struct control_list {
    struct control_token items[MOST_CONTROLS];
    size_t offsets[MOST_CONTROLS];
    size_t count;
    struct buffer names;
};

static enum salvo_status add_control(struct control_list *list, const struct tokenizer *tokenizer, int32_t id)
{
    enum salvo_status status = SALVO_OK;
    if (id < 0 || (size_t)id >= tokenizer_vocabulary(tokenizer) || !tokenizer_is_control(tokenizer, id) ||
        tokenizer_is_end(tokenizer, id))
        TRY(fail(SALVO_ERROR_ARGUMENT, "token %d is not a control token, or it ends a text", (int)id));
    if (list->count == MOST_CONTROLS)
        TRY(fail(SALVO_ERROR_UNSUPPORTED, "more than %d control tokens in one grammar", MOST_CONTROLS));
    list->offsets[list->count] = list->names.size;
    TRY(tokenizer_piece(tokenizer, id, true, &list->names));
    list->items[list->count] = (struct control_token){
        .id = (uint32_t)id, .text.size = list->names.size - list->offsets[list->count]};
    list->count++;
cleanup:
    return status;
}

/* A trigger that is the name of one control token, as the tokenizer reads it. */
static enum salvo_status add_trigger_control(
    struct control_list *list, const struct tokenizer *tokenizer, struct salvo_text trigger)
{
    enum salvo_status status = SALVO_OK;
    struct token_list tokens = {0};
    TRY(tokenizer_encode(tokenizer, trigger.data, trigger.size, TOKENIZE_SPECIAL, &tokens));
    if (tokens.count == 1 && tokenizer_is_control(tokenizer, tokens.ids[0]) &&
        !tokenizer_is_end(tokenizer, tokens.ids[0]))
        TRY(add_control(list, tokenizer, tokens.ids[0]));
cleanup:
    token_list_free(&tokens);
    return status;
}

static enum salvo_status read_controls(
    struct salvo_model *model, const struct salvo_grammar_options *options, struct salvo_grammar *grammar)
{
    enum salvo_status status = SALVO_OK;
    const struct tokenizer *tokenizer;
    struct control_list list = {0};
    if (options->trigger_count == 0 && options->control_token_count == 0)
        return SALVO_OK;
    TRY(model_tokenizer(model, &tokenizer));
    for (size_t i = 0; i < options->control_token_count; i++)
        TRY(add_control(&list, tokenizer, options->control_tokens[i]));
    for (size_t i = 0; i < options->trigger_count; i++)
        TRY(add_trigger_control(&list, tokenizer, options->triggers[i]));
    for (size_t i = 0; i < list.count; i++)
        list.items[i].text.data = list.names.data + list.offsets[i];
    TRY(grammar_set_controls(grammar, list.items, list.count));
cleanup:
    buffer_free(&list.names);
    return status;
}

enum salvo_status salvo_grammar_compile(struct salvo_model *model, enum salvo_grammar_kind kind,
    const char *text, size_t size, const struct salvo_grammar_options *options, struct salvo_grammar **out)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_grammar_options known;
    const struct token_trie *trie = NULL;
    struct rule_list rules = {0};
    struct network network = {0};
    REQUIRE(out);
    *out = NULL;
    REQUIRE(text);
    TRY(options_read("salvo_grammar_options", options, sizeof known, &known));
    if (model)
        TRY(model_token_trie(model, &trie));
    TRY(read_rules(kind, text, size, &known, &rules));
    if (known.trigger_count) {
        const struct trigger_list triggers = {
            known.triggers, known.trigger_count, known.trigger_required != 0};
        rules.root =
            rule_list_add(&rules, trigger_expr(&rules.pool, &triggers, expr_rule(&rules.pool, rules.root)));
        TRY(rules.pool.status);
    }
    TRY(network_build(rules.items, rules.count, rules.root, rules.character, &network));
    TRY(grammar_open(&network, trie, known.memory ? (size_t)known.memory : DEFAULT_MEMORY, out));
    if (model)
        TRY(read_controls(model, &known, *out));
cleanup:
    if (status != SALVO_OK && out) {
        grammar_close(*out);
        *out = NULL;
    }
    rule_list_free(&rules);
    return status;
}

void salvo_grammar_free(struct salvo_grammar *grammar)
{
    grammar_close(grammar);
}

enum salvo_status salvo_grammar_matcher_new(struct salvo_grammar *grammar, struct salvo_grammar_matcher **out)
{
    REQUIRE(out);
    *out = NULL;
    REQUIRE(grammar);
    return matcher_open(grammar, out);
}

enum salvo_status salvo_grammar_matcher_copy(
    const struct salvo_grammar_matcher *matcher, struct salvo_grammar_matcher **out)
{
    REQUIRE(out);
    *out = NULL;
    REQUIRE(matcher);
    return matcher_copy(matcher, out);
}

void salvo_grammar_matcher_free(struct salvo_grammar_matcher *matcher)
{
    matcher_close(matcher);
}

enum salvo_status salvo_grammar_matcher_mask(
    struct salvo_grammar_matcher *matcher, uint32_t *mask, size_t words)
{
    REQUIRE(matcher);
    REQUIRE(mask);
    return matcher_mask(matcher, mask, words);
}

enum salvo_status salvo_grammar_matcher_bytes(struct salvo_grammar_matcher *matcher, uint32_t mask[8])
{
    struct byte_set set;
    REQUIRE(matcher);
    REQUIRE(mask);
    enum salvo_status status = matcher_bytes(matcher, &set);
    for (int i = 0; i < 8; i++)
        mask[i] = (uint32_t)(set.words[i / 2] >> (i % 2 * 32));
    return status;
}

enum salvo_status salvo_grammar_matcher_accept(struct salvo_grammar_matcher *matcher, int32_t id)
{
    REQUIRE(matcher);
    if (id < 0)
        return fail(SALVO_ERROR_ARGUMENT, "salvo_grammar_matcher_accept: there is no token %d", (int)id);
    return matcher_accept(matcher, (uint32_t)id);
}

enum salvo_status salvo_grammar_matcher_append(
    struct salvo_grammar_matcher *matcher, const char *data, size_t size, size_t *out_taken)
{
    if (out_taken)
        *out_taken = 0;
    REQUIRE(matcher);
    if (size)
        REQUIRE(data);
    return matcher_append(matcher, data, size, out_taken);
}

bool salvo_grammar_matcher_complete(const struct salvo_grammar_matcher *matcher)
{
    return matcher && matcher_is_complete(matcher);
}

bool salvo_grammar_matcher_ended(const struct salvo_grammar_matcher *matcher)
{
    return matcher && matcher_is_ended(matcher);
}

size_t salvo_grammar_matcher_steps(const struct salvo_grammar_matcher *matcher)
{
    return matcher ? matcher_steps(matcher) : 0;
}

enum salvo_status salvo_grammar_matcher_rollback(struct salvo_grammar_matcher *matcher, size_t steps)
{
    REQUIRE(matcher);
    return matcher_rollback(matcher, steps);
}

/* ---- Forced tokens ---- */

/* The tokens of a text in the middle of another: some tokenizers put a blank before the first word of a text,
 * which must not be there. *out_first is the first token of the text itself; all are left out where the
 * tokens do not have just this text. */
static enum salvo_status encode_middle(const struct tokenizer *tokenizer, const struct guarded_text *text,
    struct token_list *list, size_t *out_first)
{
    enum salvo_status status = SALVO_OK;
    struct buffer bytes = {0}, piece = {0};
    TRY(tokenizer_encode_guarded(tokenizer, text, TOKENIZE_SPECIAL, list));
    for (size_t i = 0; i < list->count; i++)
        TRY(tokenizer_piece(tokenizer, list->ids[i], true, &bytes));
    size_t extra = bytes.size - (bytes.size > text->size ? text->size : bytes.size), first = 0, skipped = 0;
    for (; skipped < extra && first < list->count; first++) {
        piece.size = 0;
        TRY(tokenizer_piece(tokenizer, list->ids[first], true, &piece));
        skipped += piece.size;
    }
    if (skipped != extra || bytes.size < text->size ||
        memcmp(bytes.data + extra, text->text, text->size) != 0)
        first = list->count;
    *out_first = first;
cleanup:
    buffer_free(&piece);
    buffer_free(&bytes);
    return status;
}

enum salvo_status salvo_grammar_matcher_forced(struct salvo_grammar_matcher *matcher,
    struct salvo_model *model, int32_t *ids, size_t capacity, size_t *out_count)
{
    enum salvo_status status = SALVO_OK;
    char text[FORCED_BYTES], marks[FORCED_BYTES];
    size_t size, first, end = 0;
    bool ends;
    const struct tokenizer *tokenizer;
    struct token_list list = {0};
    struct buffer piece = {0};
    REQUIRE(out_count);
    *out_count = 0;
    REQUIRE(matcher);
    REQUIRE(model);
    REQUIRE(ids);
    TRY(matcher_forced(matcher, text, sizeof text, &size, &ends));
    if (size == 0)
        goto cleanup;
    /* Only control tokens of the grammar may be in the text; others are plain text there. */
    memset(marks, 1, sizeof marks);
    for (size_t i = 0; i < size; i++) {
        const struct control_token *control = matcher_control_at(matcher, text + i, size - i);
        if (control)
            memset(marks + i, 0, control->text.size);
    }
    const struct guarded_text guarded = {text, marks, size, NULL};
    TRY(model_tokenizer(model, &tokenizer));
    TRY(encode_middle(tokenizer, &guarded, &list, &first));
    const size_t settled = ends ? size : matcher_settled(matcher, text, size);
    for (size_t i = first; i < list.count && *out_count < capacity; i++) {
        piece.size = 0;
        TRY(tokenizer_piece(tokenizer, list.ids[i], true, &piece));
        end += piece.size;
        if (end > settled)
            break;
        ids[(*out_count)++] = list.ids[i];
    }
cleanup:
    buffer_free(&piece);
    token_list_free(&list);
    return status;
}
