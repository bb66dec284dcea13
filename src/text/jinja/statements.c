/* Parses statements, {% ... %}, and the text around them. */
#include "text/jinja/builtins.h"
#include "text/jinja/parser.h"

#include <stdio.h>
#include <string.h>

/* The words that may end a body; NULL after the last. */
typedef const char *const end_words[4];

static enum salvo_status parse_body(struct parser *parser, const char *const *ends, struct node **out);

static enum salvo_status expect_block_end(struct parser *parser)
{
    if (!next_is(parser, LEX_BLOCK_END))
        return unexpected(parser, "the end of the tag");
    parser->at++;
    return SALVO_OK;
}

/* Parses the rest of a tag and the body after it, up to the word that ends the body; the caller takes
 * that word. */
static enum salvo_status parse_block(struct parser *parser, const char *const *ends, struct node **out)
{
    enum salvo_status status = SALVO_OK;
    skip_sign(parser, ':');
    TRY(expect_block_end(parser));
    TRY(parse_body(parser, ends, out));

cleanup:
    return status;
}

/* The same in a frame of its own. */
static enum salvo_status parse_frame(struct parser *parser, const char *const *ends, struct node **out)
{
    enum salvo_status status = SALVO_OK;
    const struct node *outer = frame_begin(parser);
    TRY(parse_block(parser, ends, out));
    TRY(frame_end(parser, outer));

cleanup:
    return status;
}

/* The same for a body that only one word can end; takes that word, too. */
static enum salvo_status parse_block_to(struct parser *parser, const char *end, struct node **out)
{
    enum salvo_status status = parse_frame(parser, (end_words){end}, out);
    if (status == SALVO_OK)
        parser->at++;
    return status;
}

/* The body of a macro or call block: break and continue cannot leave it. */
static enum salvo_status parse_callable_block(struct parser *parser, const char *end, struct node **out)
{
    unsigned loops = parser->loops;
    parser->loops = 0;
    enum salvo_status status = parse_block_to(parser, end, out);
    parser->loops = loops;
    return status;
}

/* ---- Targets ----------------------------------------------------------------------------------------- */

static enum salvo_status check_target(const struct node *node)
{
    enum salvo_status status = SALVO_OK;
    if (node->kind == NODE_TUPLE) {
        for (const struct node *item = node->items; item; item = item->next)
            TRY(check_target(item));
    } else if (node->kind != NODE_NAME && node->kind != NODE_MEMBER) {
        TRY(fail_at(node->line, node->column, "cannot assign to this expression"));
    }

cleanup:
    return status;
}

/* "a", "a, b", "(a, b)", with `members` also "a.b"; followed by the word `end`, or by none when it is NULL.
 */
static enum salvo_status parse_target(struct parser *parser, bool members, const char *end, struct node **out)
{
    enum salvo_status status = SALVO_OK;
    struct node *first, *last, *tuple;
    const struct lexeme *place = parser->at;
    TRY(parse_primary(parser, members, &first));
    *out = last = first;
    if (next_is_sign(parser, ',')) {
        TRY(node_new(parser, NODE_TUPLE, place, &tuple));
        tuple->items = first;
        *out = tuple;
        while (skip_sign(parser, ',') && !(end && next_is_word(parser, end))) {
            TRY(parse_primary(parser, members, &last->next));
            last = last->next;
        }
    }
    TRY(check_target(*out));

cleanup:
    return status;
}

/* ---- Statements -------------------------------------------------------------------------------------- */

static enum salvo_status parse_if(struct parser *parser, struct node *node)
{
    static end_words ends = {"elif", "else", "endif"};
    enum salvo_status status = SALVO_OK;
    const struct node *unknown = parser->unknown;
    for (;;) {
        TRY(parse_row(parser, false, NULL, &node->condition));
        TRY(parse_block(parser, ends, &node->body));
        if (!next_is_word(parser, "elif"))
            break;
        TRY(node_new(parser, NODE_IF, parser->at++, &node->otherwise));
        node = node->otherwise;
    }
    if (skip_word(parser, "else"))
        TRY(parse_block(parser, (end_words){"endif"}, &node->otherwise));
    parser->at++;
    parser->unknown = unknown;

cleanup:
    return status;
}

static enum salvo_status parse_for(struct parser *parser, struct node *node)
{
    static end_words ends = {"else", "endfor"};
    enum salvo_status status = SALVO_OK;
    TRY(parse_target(parser, false, "in", &node->left));
    if (!skip_word(parser, "in"))
        TRY(unexpected(parser, "'in'"));
    TRY(parse_row(parser, false, "recursive", &node->right));
    const struct node *outer = frame_begin(parser);
    if (skip_word(parser, "if"))
        TRY(parse_expression(parser, true, &node->condition));
    TRY(frame_end(parser, outer));
    node->recursive = skip_word(parser, "recursive");
    parser->loops++;
    status = parse_frame(parser, ends, &node->body);
    parser->loops--;
    TRY(status);
    if (skip_word(parser, "else"))
        TRY(parse_frame(parser, (end_words){"endfor"}, &node->otherwise));
    parser->at++;

cleanup:
    return status;
}

/* The filters of a block belong to its frame. */
static enum salvo_status parse_frame_filters(struct parser *parser, bool inline_first, struct node **out)
{
    enum salvo_status status = SALVO_OK;
    const struct node *outer = frame_begin(parser);
    TRY(parse_filters(parser, NULL, inline_first, out));
    TRY(frame_end(parser, outer));

cleanup:
    return status;
}

static enum salvo_status parse_set(struct parser *parser, struct node *node)
{
    enum salvo_status status = SALVO_OK;
    TRY(parse_target(parser, true, NULL, &node->left));
    if (skip_sign(parser, '=')) {
        node->kind = NODE_SET;
        TRY(parse_row(parser, true, NULL, &node->right));
    } else {
        TRY(parse_frame_filters(parser, false, &node->right));
        TRY(parse_block_to(parser, "endset", &node->body));
    }

cleanup:
    return status;
}

static enum salvo_status parse_parameters(struct parser *parser, struct node *node)
{
    enum salvo_status status = SALVO_OK;
    struct node **last = &node->items, *parameter;
    bool optional = false;
    const struct node *outer = frame_begin(parser);
    TRY(expect_sign(parser, '('));
    while (!next_is_sign(parser, ')')) {
        TRY(node_new(parser, NODE_PARAMETER, parser->at, &parameter));
        TRY(expect_name(parser, &parameter->name));
        if (skip_sign(parser, '=')) {
            TRY(parse_expression(parser, true, &parameter->left));
            optional = true;
        } else if (optional) {
            TRY(fail_at(
                parameter->line, parameter->column, "parameter without a default after one with a default"));
        }
        *last = parameter;
        last = &parameter->next;
        if (!skip_sign(parser, ',') && !next_is_sign(parser, ')'))
            TRY(unexpected(parser, "',' or ')'"));
    }
    parser->at++;
    TRY(frame_end(parser, outer));

cleanup:
    return status;
}

/* The body of a macro. Nested ones count as part of it. */
static enum salvo_status parse_macro_body(struct parser *parser, const char *end, struct node *macro)
{
    const struct extras outer = parser->mentioned;
    parser->mentioned = (struct extras){0};
    enum salvo_status status = parse_callable_block(parser, end, &macro->body);
    macro->extras = parser->mentioned;
    parser->mentioned.values |= outer.values;
    parser->mentioned.named |= outer.named;
    parser->mentioned.caller |= outer.caller;
    return status;
}

static enum salvo_status parse_macro(struct parser *parser, struct node *node)
{
    enum salvo_status status = SALVO_OK;
    TRY(expect_name(parser, &node->name));
    TRY(parse_parameters(parser, node));
    TRY(parse_macro_body(parser, "endmacro", node));

cleanup:
    return status;
}

static enum salvo_status parse_call(struct parser *parser, struct node *node)
{
    static const uint32_t caller[] = {'c', 'a', 'l', 'l', 'e', 'r'};
    enum salvo_status status = SALVO_OK;
    TRY(node_new(parser, NODE_MACRO, parser->at, &node->right));
    node->right->name = (struct string){caller, sizeof caller / sizeof *caller};
    if (next_is_sign(parser, '('))
        TRY(parse_parameters(parser, node->right));
    TRY(parse_expression(parser, true, &node->left));
    if (node->left->kind != NODE_CALL)
        TRY(fail_at(node->line, node->column, "expected a call after 'call'"));
    TRY(parse_macro_body(parser, "endcall", node->right));

cleanup:
    return status;
}

static enum salvo_status parse_filter(struct parser *parser, struct node *node)
{
    enum salvo_status status = SALVO_OK;
    TRY(parse_frame_filters(parser, true, &node->right));
    TRY(parse_block_to(parser, "endfilter", &node->body));

cleanup:
    return status;
}

static enum salvo_status parse_with(struct parser *parser, struct node *node)
{
    enum salvo_status status = SALVO_OK;
    struct node **last = &node->items, *pair;
    while (!next_is(parser, LEX_BLOCK_END)) {
        if (node->items)
            TRY(expect_sign(parser, ','));
        TRY(node_new(parser, NODE_SET, parser->at, &pair));
        TRY(parse_primary(parser, false, &pair->left));
        TRY(check_target(pair->left));
        TRY(expect_sign(parser, '='));
        TRY(parse_expression(parser, true, &pair->right));
        *last = pair;
        last = &pair->next;
    }
    TRY(parse_block_to(parser, "endwith", &node->body));

cleanup:
    return status;
}

/* "print a, b" writes one behind the other. */
static enum salvo_status parse_print(struct parser *parser, struct node *node)
{
    enum salvo_status status = SALVO_OK;
    TRY(node_new(parser, NODE_CONCAT, parser->at, &node->left));
    struct node **last = &node->left->items;
    while (!next_is(parser, LEX_BLOCK_END)) {
        if (node->left->items)
            TRY(expect_sign(parser, ','));
        TRY(parse_expression(parser, true, last));
        last = &(*last)->next; // NOLINT(clang-analyzer-core.NullDereference) ; an expression was parsed
    }

cleanup:
    return status;
}

/* Templates cannot inherit here, so a block is rendered in place. */
static enum salvo_status parse_named_block(struct parser *parser, struct node *node)
{
    enum salvo_status status = SALVO_OK;
    struct string name;
    TRY(expect_name(parser, &name));
    skip_word(parser, "scoped");
    TRY(parse_callable_block(parser, "endblock", &node->body));
    if (next_is(parser, LEX_NAME) && string_equal(parser->at->string, name))
        parser->at++;

cleanup:
    return status;
}

static enum salvo_status parse_generation(struct parser *parser, struct node *node)
{
    return parse_callable_block(parser, "endgeneration", &node->body);
}

static enum salvo_status parse_autoescape(struct parser *parser, struct node *node)
{
    enum salvo_status status = SALVO_OK;
    struct node *wanted;
    TRY(parse_expression(parser, true, &wanted));
    if (wanted->kind != NODE_CONSTANT || wanted->constant.kind != VALUE_BOOL || wanted->constant.boolean)
        TRY(fail_at(node->line, node->column, "autoescape is not supported"));
    TRY(parse_block_to(parser, "endautoescape", &node->body));

cleanup:
    return status;
}

static enum salvo_status parse_jump(struct parser *parser, struct node *node)
{
    if (!parser->loops)
        return fail_at(node->line, node->column, "break and continue are valid in a loop only");
    return SALVO_OK;
}

static const struct {
    const char *word;
    enum node_kind kind;
    enum salvo_status (*parse)(struct parser *parser, struct node *node);
} statements[] = {
    {"if", NODE_IF, parse_if},
    {"for", NODE_FOR, parse_for},
    {"set", NODE_SET_BLOCK, parse_set},
    {"macro", NODE_MACRO, parse_macro},
    {"call", NODE_CALL_BLOCK, parse_call},
    {"filter", NODE_FILTER_BLOCK, parse_filter},
    {"with", NODE_WITH, parse_with},
    {"print", NODE_PRINT, parse_print},
    {"block", NODE_SCOPE, parse_named_block},
    {"generation", NODE_SCOPE, parse_generation},
    {"autoescape", NODE_SCOPE, parse_autoescape},
    {"break", NODE_BREAK, parse_jump},
    {"continue", NODE_CONTINUE, parse_jump},
};

static enum salvo_status parse_statement(struct parser *parser, struct node **out)
{
    enum salvo_status status = SALVO_OK;
    const struct lexeme *place = parser->at;
    struct string word;
    char shown[64];
    TRY(expect_name(parser, &word));
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        if (string_is(word, statements[i].word)) {
            TRY(node_new(parser, statements[i].kind, place, out));
            TRY(statements[i].parse(parser, *out));
            TRY(expect_block_end(parser));
            goto cleanup;
        }
    }
    static const char *const others[] = {"include", "import", "from", "extends"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (string_is(word, others[i]))
            TRY(fail_at(place->line, place->column, "'%s' is not supported: no other templates can be loaded",
                others[i]));
    }
    status = fail_at(place->line, place->column, "unknown tag '%s'", string_show(word, shown, sizeof shown));

cleanup:
    return status;
}

/* ---- Bodies ------------------------------------------------------------------------------------------ */

static bool ends_body(const struct parser *parser, const char *const *ends)
{
    for (; *ends; ends++) {
        if (next_is_word(parser, *ends))
            return true;
    }
    return false;
}

static enum salvo_status parse_body(struct parser *parser, const char *const *ends, struct node **out)
{
    enum salvo_status status = SALVO_OK;
    const struct lexeme *place = parser->at;
    TRY(parser_enter(parser));
    for (*out = NULL;; out = &(*out)->next) {
        if (next_is(parser, LEX_END)) {
            const char *last = NULL; /* the word that can end it without others */
            for (; *ends; ends++)
                last = *ends;
            if (last)
                TRY(fail_at(place->line, place->column, "'%s' is missing", last));
            break;
        }
        if (next_is(parser, LEX_TEXT)) {
            TRY(node_new(parser, NODE_TEXT, parser->at, out));
            (*out)->name = parser->at++->string;
            TRY(note_literal(parser, (*out)->name));
        } else if (next_is(parser, LEX_PRINT_BEGIN)) {
            TRY(node_new(parser, NODE_PRINT, parser->at++, out));
            TRY(parse_row(parser, true, NULL, &(*out)->left));
            if (!next_is(parser, LEX_PRINT_END))
                TRY(unexpected(parser, "'}}'"));
            parser->at++;
        } else {
            parser->at++;
            if (ends_body(parser, ends))
                break;
            TRY(parse_statement(parser, out));
        }
    }

cleanup:
    parser_leave(parser);
    return status;
}

enum { MOST_CONSTANT_WORK = 1000000 };

enum salvo_status parse(
    struct heap *heap, const char *source, size_t size, struct node **out_body, struct string *out_literals)
{
    enum salvo_status status = SALVO_OK;
    struct lexemes lexemes;
    struct text literals = {.heap = heap};
    struct parser parser = {.heap = heap, .literals = &literals, .work_left = MOST_CONSTANT_WORK};
    *out_body = NULL;
    TRY(lex(heap, source, size, &lexemes));
    parser.at = lexemes.items;
    TRY(parse_body(&parser, (end_words){NULL}, out_body));
    TRY(frame_end(&parser, NULL));
    *out_literals = text_take(&literals);

cleanup:
    return status;
}
