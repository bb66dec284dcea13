#include "api_constraint.h"

#include <stdio.h>

static bool compile_text(struct salvo_model *model, enum salvo_grammar_kind kind, const char *field,
    struct salvo_text text, struct salvo_grammar **out, struct api_error *error)
{
    const enum salvo_status status = salvo_grammar_compile(model, kind, text.data, text.size, NULL, out);
    if (status == SALVO_OK)
        return true;
    if (status != SALVO_ERROR_ARGUMENT && status != SALVO_ERROR_UNSUPPORTED)
        return api_fail_library(error, status, salvo_error());
    return api_fail(error, 400, field, "'%s': %s", field, salvo_error());
}

bool api_constraint_compile(struct salvo_model *model, const struct api_request *request,
    struct salvo_grammar **out, struct api_error *error)
{
    static const char any_object[] = "{\"type\":\"object\"}";
    *out = NULL;
    if (request->grammar.size)
        return compile_text(
            model, SALVO_GRAMMAR_GBNF, request->constraint_field, request->grammar, out, error);
    if (request->any_object)
        return compile_text(model, SALVO_GRAMMAR_JSON_SCHEMA, request->constraint_field,
            (struct salvo_text){any_object, sizeof any_object - 1}, out, error);
    if (!request->schema)
        return true;
    struct buffer text = {0};
    struct json_writer json = api_json(&text);
    api_write_value(&json, request->schema);
    const bool ok = json.status == SALVO_OK
                        ? compile_text(model, SALVO_GRAMMAR_JSON_SCHEMA, request->constraint_field,
                              (struct salvo_text){text.data, text.size}, out, error)
                        : api_fail(error, 503, NULL, "not enough memory for the request");
    buffer_free(&text);
    return ok;
}

static bool give_up(struct api_constraint *constraint, const char *message)
{
    snprintf(constraint->message, sizeof constraint->message, "%s", message);
    return false;
}

/* Brings the matcher to the end of the answer, which may be shorter than before. */
static bool follow(struct salvo_grammar_matcher *matcher, const int32_t *tokens, size_t count)
{
    size_t steps = salvo_grammar_matcher_steps(matcher);
    if (steps > count && salvo_grammar_matcher_rollback(matcher, steps - count) != SALVO_OK)
        return false;
    for (; steps < count; steps++) {
        if (salvo_grammar_matcher_accept(matcher, tokens[steps]) != SALVO_OK)
            return false;
    }
    return true;
}

bool api_constraint_mask(
    struct api_constraint *constraint, const int32_t *tokens, size_t count, uint32_t *mask, size_t words)
{
    struct salvo_grammar_matcher *matcher = constraint->matcher;
    uint32_t bytes[8], any_byte = 0, any_token = 0;
    if (!follow(matcher, tokens, count) || salvo_grammar_matcher_bytes(matcher, bytes) != SALVO_OK)
        return give_up(constraint, salvo_error());
    for (int i = 0; i < 8; i++)
        any_byte |= bytes[i];
    if (!any_byte) /* complete: nothing else could follow but an end token */
        return false;
    if (salvo_grammar_matcher_mask(matcher, mask, words) != SALVO_OK)
        return give_up(constraint, salvo_error());
    for (size_t i = 0; i < words; i++)
        any_token |= mask[i];
    if (any_token)
        return true;
    if (salvo_grammar_matcher_complete(matcher))
        return false;
    return give_up(constraint, "no token of the vocabulary can continue the answer within the grammar");
}

size_t api_constraint_forced(struct api_constraint *constraint, struct salvo_model *model,
    const int32_t *tokens, size_t count, int32_t *ids, size_t capacity)
{
    struct salvo_grammar_matcher *matcher = constraint->matcher;
    size_t forced = 0;
    /* An error is found again, and reported, when the mask is made. */
    if (!follow(matcher, tokens, count) ||
        salvo_grammar_matcher_forced(matcher, model, ids, capacity, &forced) != SALVO_OK)
        return 0;
    return forced;
}
