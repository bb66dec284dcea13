/* Expressions, by the precedence that jinja2 gives them, which is not quite Python's. */
#include "text/jinja/parser.h"

#include "text/jinja/builtins.h"

#include <stdio.h>
#include <string.h>

/* ---- Words ------------------------------------------------------------------------------------------- */

enum salvo_status parser_enter(struct parser *parser)
{
    if (++parser->depth > DEEPEST_NESTING)
        return fail_at(parser->at->line, parser->at->column, "the template is nested too deeply");
    return SALVO_OK;
}

void parser_leave(struct parser *parser)
{
    parser->depth--;
}

enum salvo_status node_new(
    const struct parser *parser, enum node_kind kind, const struct lexeme *place, struct node **out)
{
    enum salvo_status status = HEAP_NEW(parser->heap, out, 1);
    if (status == SALVO_OK) {
        (*out)->kind = kind;
        (*out)->line = place->line;
        (*out)->column = place->column;
    }
    return status;
}

static const char *show_lexeme(const struct lexeme *lexeme, char *out, size_t room)
{
    char name[64];
    switch (lexeme->kind) {
    case LEX_END:
        return "end of template";
    case LEX_NAME:
        snprintf(out, room, "'%s'", string_show(lexeme->string, name, sizeof name));
        return out;
    case LEX_OPERATOR:
        snprintf(out, room, "'%c%c'", (char)(lexeme->sign & 0xff), (char)(lexeme->sign >> 8));
        if (!(lexeme->sign >> 8))
            snprintf(out, room, "'%c'", (char)lexeme->sign);
        return out;
    case LEX_PRINT_END:
    case LEX_BLOCK_END:
        return "end of the tag";
    case LEX_STRING:
        return "string";
    case LEX_INTEGER:
    case LEX_FLOAT:
        return "number";
    default:
        return "text";
    }
}

enum salvo_status unexpected(const struct parser *parser, const char *wanted)
{
    char found[80];
    return fail_at(parser->at->line, parser->at->column, "expected %s, not %s", wanted,
        show_lexeme(parser->at, found, sizeof found));
}

bool next_is(const struct parser *parser, enum lexeme_kind kind)
{
    return parser->at->kind == kind;
}

bool next_is_sign(const struct parser *parser, uint32_t sign)
{
    return parser->at->kind == LEX_OPERATOR && parser->at->sign == sign;
}

static bool is_word(const struct lexeme *lexeme, const char *word)
{
    return lexeme->kind == LEX_NAME && string_is(lexeme->string, word);
}

bool next_is_word(const struct parser *parser, const char *word)
{
    return is_word(parser->at, word);
}

bool skip_sign(struct parser *parser, uint32_t sign)
{
    bool skipped = next_is_sign(parser, sign);
    parser->at += skipped;
    return skipped;
}

bool skip_word(struct parser *parser, const char *word)
{
    bool skipped = next_is_word(parser, word);
    parser->at += skipped;
    return skipped;
}

enum salvo_status expect_sign(struct parser *parser, uint32_t sign)
{
    char wanted[8];
    snprintf(wanted, sizeof wanted, "'%c'", (char)sign);
    return skip_sign(parser, sign) ? SALVO_OK : unexpected(parser, wanted);
}

enum salvo_status expect_name(struct parser *parser, struct string *out)
{
    if (!next_is(parser, LEX_NAME))
        return unexpected(parser, "a name");
    *out = parser->at++->string;
    return SALVO_OK;
}

/* ---- Literals ---------------------------------------------------------------------------------------- */

enum salvo_status note_literal(struct parser *parser, struct string string)
{
    enum salvo_status status = SALVO_OK;
    TRY(text_string(parser->literals, string));
    TRY(text_char(parser->literals, 0));

cleanup:
    return status;
}

static enum salvo_status parse_string(struct parser *parser, struct value *out)
{
    enum salvo_status status = SALVO_OK;
    struct text text = {.heap = parser->heap};
    struct string string = parser->at->string;
    parser->at++;
    if (next_is(parser, LEX_STRING)) {
        TRY(text_string(&text, string));
        while (next_is(parser, LEX_STRING))
            TRY(text_string(&text, parser->at++->string));
        string = text_take(&text);
    }
    *out = value_string(string);
    TRY(note_literal(parser, string));

cleanup:
    return status;
}

static enum salvo_status parse_list(struct parser *parser, struct node *node)
{
    enum salvo_status status = SALVO_OK;
    struct node **last = &node->items;
    parser->at++;
    while (!next_is_sign(parser, ']')) {
        TRY(parse_expression(parser, true, last));
        last = &(*last)->next;
        if (!skip_sign(parser, ',') && !next_is_sign(parser, ']'))
            TRY(unexpected(parser, "',' or ']'"));
    }
    parser->at++;

cleanup:
    return status;
}

static enum salvo_status parse_dict(struct parser *parser, struct node *node)
{
    enum salvo_status status = SALVO_OK;
    struct node **last = &node->items;
    parser->at++;
    while (!next_is_sign(parser, '}')) {
        TRY(parse_expression(parser, true, last));
        last = &(*last)->next;
        TRY(expect_sign(parser, ':'));
        TRY(parse_expression(parser, true, last));
        last = &(*last)->next;
        if (!skip_sign(parser, ',') && !next_is_sign(parser, '}'))
            TRY(unexpected(parser, "',' or '}'"));
    }
    parser->at++;

cleanup:
    return status;
}

static enum salvo_status parse_name(struct parser *parser, bool members, struct node *node)
{
    enum salvo_status status = SALVO_OK;
    struct node *owner;
    struct lexeme *place = parser->at;
    struct string name = parser->at++->string;
    bool is_true = string_is(name, "true") || string_is(name, "True");
    parser->mentioned.values |= string_is(name, "varargs");
    parser->mentioned.named |= string_is(name, "kwargs");
    parser->mentioned.caller |= string_is(name, "caller");
    node->kind = NODE_CONSTANT;
    if (is_true || string_is(name, "false") || string_is(name, "False")) {
        node->constant = value_bool(is_true);
    } else if (string_is(name, "none") || string_is(name, "None")) {
        node->constant = value_none();
    } else if (members && skip_sign(parser, '.')) {
        TRY(node_new(parser, NODE_NAME, place, &owner));
        owner->name = name;
        node->kind = NODE_MEMBER;
        node->left = owner;
        TRY(expect_name(parser, &node->name));
    } else {
        node->kind = NODE_NAME;
        node->name = name;
    }

cleanup:
    return status;
}

/* Inside of "( )": nothing, one expression, or a tuple. */
static enum salvo_status parse_brackets(struct parser *parser, struct node **out)
{
    enum salvo_status status = SALVO_OK;
    struct lexeme *place = parser->at++;
    if (next_is_sign(parser, ')'))
        TRY(node_new(parser, NODE_TUPLE, place, out));
    else
        TRY(parse_row(parser, true, NULL, out));
    TRY(expect_sign(parser, ')'));

cleanup:
    return status;
}

enum salvo_status parse_primary(struct parser *parser, bool members, struct node **out)
{
    enum salvo_status status = SALVO_OK;
    struct node *node = NULL;
    TRY(parser_enter(parser));
    if (next_is_sign(parser, '(')) {
        TRY(parse_brackets(parser, out));
        goto cleanup;
    }
    TRY(node_new(parser, NODE_CONSTANT, parser->at, &node));
    *out = node;
    if (next_is(parser, LEX_NAME)) {
        TRY(parse_name(parser, members, node));
    } else if (next_is(parser, LEX_STRING)) {
        TRY(parse_string(parser, &node->constant));
    } else if (next_is(parser, LEX_INTEGER)) {
        node->constant = value_int(parser->at++->integer);
    } else if (next_is(parser, LEX_FLOAT)) {
        node->constant = value_float(parser->at++->number);
    } else if (next_is_sign(parser, '[')) {
        node->kind = NODE_LIST;
        TRY(parse_list(parser, node));
    } else if (next_is_sign(parser, '{')) {
        node->kind = NODE_DICT;
        TRY(parse_dict(parser, node));
    } else {
        TRY(unexpected(parser, "an expression"));
    }

cleanup:
    parser_leave(parser);
    return status;
}

/* ---- Postfix operators: slices, attributes, calls, filters, tests ------------------------------------ */

static enum salvo_status parse_slice_part(struct parser *parser, struct node **out)
{
    bool nothing = next_is_sign(parser, ':') || next_is_sign(parser, ']') || next_is_sign(parser, ',');
    return nothing ? node_new(parser, NODE_NOTHING, parser->at, out) : parse_expression(parser, true, out);
}

/* Behind the "[" and, unless it is NULL, the expression `first`. */
static enum salvo_status parse_slice(struct parser *parser, struct node *node, struct node *first)
{
    enum salvo_status status = SALVO_OK;
    node->kind = NODE_SLICE;
    node->items = first;
    if (!first)
        TRY(node_new(parser, NODE_NOTHING, parser->at, &node->items));
    TRY(expect_sign(parser, ':'));
    TRY(parse_slice_part(parser, &node->items->next));
    struct node *second = node->items->next;
    if (skip_sign(parser, ':'))
        TRY(parse_slice_part(parser, &second->next));
    else
        TRY(node_new(parser, NODE_NOTHING, parser->at, &second->next));

cleanup:
    return status;
}

static enum salvo_status parse_subscript(struct parser *parser, struct node *node)
{
    enum salvo_status status = SALVO_OK;
    struct node *first = NULL;
    node->kind = NODE_ITEM;
    if (!next_is_sign(parser, ':'))
        TRY(parse_expression(parser, true, &first));
    if (next_is_sign(parser, ':')) {
        TRY(parse_slice(parser, node, first));
    } else if (first && next_is_sign(parser, ',')) {
        TRY(node_new(parser, NODE_TUPLE, parser->at, &node->right));
        node->right->items = first;
        struct node **next = &first->next;
        while (skip_sign(parser, ',') && !next_is_sign(parser, ']')) {
            TRY(parse_expression(parser, true, next));
            next = &(*next)->next;
        }
    } else {
        node->right = first;
    }
    TRY(expect_sign(parser, ']'));

cleanup:
    return status;
}

static enum salvo_status parse_dot(struct parser *parser, struct node *node)
{
    enum salvo_status status = SALVO_OK;
    if (next_is(parser, LEX_NAME)) {
        node->kind = NODE_ATTRIBUTE;
        node->name = parser->at++->string;
    } else if (next_is(parser, LEX_INTEGER)) {
        node->kind = NODE_ITEM;
        TRY(node_new(parser, NODE_CONSTANT, parser->at, &node->right));
        node->right->constant = value_int(parser->at++->integer);
    } else {
        TRY(unexpected(parser, "a name or a number"));
    }

cleanup:
    return status;
}

static enum salvo_status parse_argument(struct parser *parser, struct node **out)
{
    enum salvo_status status = SALVO_OK;
    struct node *node;
    TRY(node_new(parser, NODE_ARGUMENT, parser->at, &node));
    const struct lexeme *second = parser->at + 1;
    if (skip_sign(parser, '*')) {
        node->kind = NODE_SPREAD;
    } else if (skip_sign(parser, OPERATOR2('*', '*'))) {
        node->kind = NODE_NAMED_SPREAD;
    } else if (next_is(parser, LEX_NAME) && second->kind == LEX_OPERATOR && second->sign == '=') {
        node->kind = NODE_NAMED_ARGUMENT;
        node->name = parser->at->string;
        parser->at += 2;
    }
    TRY(parse_expression(parser, true, &node->left));
    *out = node;

cleanup:
    return status;
}

enum salvo_status parse_arguments(struct parser *parser, struct node **out)
{
    enum salvo_status status = SALVO_OK;
    const struct lexeme *place = parser->at++;
    enum node_kind latest = NODE_ARGUMENT;
    while (!next_is_sign(parser, ')')) {
        TRY(parse_argument(parser, out));
        enum node_kind kind = (*out)->kind;
        bool after_spread = latest >= NODE_SPREAD && kind != NODE_NAMED_ARGUMENT && kind <= latest;
        if ((kind == NODE_ARGUMENT && latest != NODE_ARGUMENT) || after_spread ||
            latest == NODE_NAMED_SPREAD) {
            TRY(fail_at(place->line, place->column, "positional argument after a keyword argument"));
        }
        latest = kind > latest ? kind : latest;
        out = &(*out)->next;
        if (!skip_sign(parser, ',') && !next_is_sign(parser, ')'))
            TRY(unexpected(parser, "',' or ')'"));
    }
    parser->at++;

cleanup:
    return status;
}

/* ".name", "[...]" and "(...)" behind an expression, in any number. */
static enum salvo_status parse_postfix(struct parser *parser, struct node *left, struct node **out)
{
    enum salvo_status status = SALVO_OK;
    struct node *node;
    while (next_is_sign(parser, '.') || next_is_sign(parser, '[') || next_is_sign(parser, '(')) {
        TRY(node_new(parser, NODE_CALL, parser->at, &node));
        node->left = left;
        if (next_is_sign(parser, '('))
            TRY(parse_arguments(parser, &node->items));
        else if (skip_sign(parser, '.'))
            TRY(parse_dot(parser, node));
        else if (skip_sign(parser, '['))
            TRY(parse_subscript(parser, node));
        left = node;
    }
    *out = left;

cleanup:
    return status;
}

const struct node *frame_begin(struct parser *parser)
{
    const struct node *outer = parser->unknown;
    parser->unknown = NULL;
    return outer;
}

enum salvo_status frame_end(struct parser *parser, const struct node *outer)
{
    const struct node *unknown = parser->unknown;
    parser->unknown = outer;
    return unknown ? fail_within(fail_unknown(unknown), "chat template: line %u, column %u: ", unknown->line,
                         unknown->column)
                   : SALVO_OK;
}

/* A name, possibly with dots; no builtin has dots in its name. */
static enum salvo_status parse_builtin_name(
    struct parser *parser, const struct builtin *const *tables, struct node *node)
{
    enum salvo_status status = SALVO_OK;
    struct text name = {.heap = parser->heap};
    struct string part;
    node->line = parser->at->line;
    node->column = parser->at->column;
    TRY(expect_name(parser, &part));
    TRY(text_string(&name, part));
    while (skip_sign(parser, '.')) {
        TRY(expect_name(parser, &part));
        TRY(text_char(&name, '.'));
        TRY(text_string(&name, part));
    }
    node->name = text_take(&name);
    node->builtin = builtin_find(tables, node->name);
    if (!node->builtin && !parser->unknown)
        parser->unknown = node;

cleanup:
    return status;
}

enum salvo_status parse_filters(
    struct parser *parser, struct node *left, bool inline_first, struct node **out)
{
    enum salvo_status status = SALVO_OK;
    struct node *node;
    while (inline_first || skip_sign(parser, '|')) {
        inline_first = false;
        TRY(node_new(parser, NODE_FILTER, parser->at, &node));
        TRY(parse_builtin_name(parser, builtin_tables.filters, node));
        if (next_is_sign(parser, '('))
            TRY(parse_arguments(parser, &node->items));
        node->left = left;
        left = node;
    }
    *out = left;

cleanup:
    return status;
}

/* Whether the argument of a test follows its name without brackets. */
static bool argument_follows(const struct parser *parser)
{
    switch (parser->at->kind) {
    case LEX_NAME:
        return !next_is_word(parser, "else") && !next_is_word(parser, "or") && !next_is_word(parser, "and");
    case LEX_STRING:
    case LEX_INTEGER:
    case LEX_FLOAT:
        return true;
    default:
        return next_is_sign(parser, '[') || next_is_sign(parser, '{');
    }
}

static enum salvo_status parse_test(struct parser *parser, struct node *left, struct node **out)
{
    enum salvo_status status = SALVO_OK;
    struct node *node, *negation = NULL;
    TRY(node_new(parser, NODE_TEST, parser->at++, &node));
    if (next_is_word(parser, "not"))
        TRY(node_new(parser, NODE_NOT, parser->at++, &negation));
    TRY(parse_builtin_name(parser, builtin_tables.tests, node));
    node->left = left;
    if (next_is_sign(parser, '(')) {
        TRY(parse_arguments(parser, &node->items));
    } else if (argument_follows(parser)) {
        if (next_is_word(parser, "is"))
            TRY(fail_at(parser->at->line, parser->at->column, "tests cannot be chained"));
        TRY(node_new(parser, NODE_ARGUMENT, parser->at, &node->items));
        TRY(parse_primary(parser, false, &node->items->left));
        TRY(parse_postfix(parser, node->items->left, &node->items->left));
    }
    if (negation)
        negation->left = node;
    *out = negation ? negation : node;

cleanup:
    return status;
}

/* ---- Operators --------------------------------------------------------------------------------------- */

static enum salvo_status parse_unary(struct parser *parser, bool with_filters, struct node **out)
{
    enum salvo_status status = SALVO_OK;
    struct node *node;
    TRY(parser_enter(parser));
    if (next_is_sign(parser, '-') || next_is_sign(parser, '+')) {
        TRY(node_new(parser, next_is_sign(parser, '-') ? NODE_NEGATIVE : NODE_POSITIVE, parser->at, &node));
        parser->at++;
        TRY(parse_unary(parser, false, &node->left));
    } else {
        TRY(parse_primary(parser, false, &node));
    }
    TRY(parse_postfix(parser, node, &node));
    while (with_filters) {
        if (next_is_sign(parser, '|'))
            TRY(parse_filters(parser, node, false, &node));
        else if (next_is_word(parser, "is"))
            TRY(parse_test(parser, node, &node));
        else if (next_is_sign(parser, '('))
            TRY(parse_postfix(parser, node, &node));
        else
            break;
    }
    *out = node;

cleanup:
    parser_leave(parser);
    return status;
}

/* From loosely to tightly binding; all group from the left. */
enum level {
    LEVEL_OR,
    LEVEL_AND,
    LEVEL_COMPARE,
    LEVEL_SUM,
    LEVEL_CONCAT,
    LEVEL_PRODUCT,
    LEVEL_POWER,
    LEVEL_UNARY
};

static enum salvo_status parse_level(struct parser *parser, enum level level, struct node **out);

/* The sign of a binary operator of the level, when one follows. */
static uint32_t binary_sign(const struct parser *parser, enum level level)
{
    if (!next_is(parser, LEX_OPERATOR))
        return 0;
    uint32_t sign = parser->at->sign;
    bool sum = sign == '+' || sign == '-';
    bool product = sign == '*' || sign == '/' || sign == OPERATOR2('/', '/') || sign == '%';
    bool fits = (level == LEVEL_SUM && sum) || (level == LEVEL_PRODUCT && product) ||
                (level == LEVEL_POWER && sign == OPERATOR2('*', '*'));
    return fits ? sign : 0;
}

static enum salvo_status parse_binary(struct parser *parser, enum level level, struct node **out)
{
    enum salvo_status status = SALVO_OK;
    struct node *left, *node;
    TRY(parse_level(parser, level + 1, &left));
    for (uint32_t sign; (sign = binary_sign(parser, level)) != 0; left = node) {
        TRY(node_new(parser, NODE_BINARY, parser->at++, &node));
        node->sign = sign;
        node->left = left;
        TRY(parse_level(parser, level + 1, &node->right));
    }
    *out = left;

cleanup:
    return status;
}

static enum salvo_status parse_logic(struct parser *parser, enum level level, struct node **out)
{
    enum salvo_status status = SALVO_OK;
    const char *word = level == LEVEL_OR ? "or" : "and";
    struct node *left, *node;
    TRY(parse_level(parser, level + 1, &left));
    while (next_is_word(parser, word)) {
        TRY(node_new(parser, level == LEVEL_OR ? NODE_OR : NODE_AND, parser->at++, &node));
        node->left = left;
        const struct node *unknown = parser->unknown;
        TRY(parse_level(parser, level + 1, &node->right));
        if (parser->unknown != unknown && constant_is(left, level == LEVEL_OR, &parser->work_left))
            parser->unknown = unknown;
        left = node;
    }
    *out = left;

cleanup:
    return status;
}

static uint32_t skip_comparison(struct parser *parser)
{
    static const uint32_t signs[] = {
        OPERATOR2('=', '='), OPERATOR2('!', '='), OPERATOR2('<', '='), OPERATOR2('>', '='), '<', '>'};
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        if (skip_sign(parser, signs[i]))
            return signs[i];
    }
    if (skip_word(parser, "in"))
        return SIGN_IN;
    if (next_is_word(parser, "not") && is_word(parser->at + 1, "in")) {
        parser->at += 2;
        return SIGN_NOT_IN;
    }
    return 0;
}

static enum salvo_status parse_comparison(struct parser *parser, struct node **out)
{
    enum salvo_status status = SALVO_OK;
    struct node *left, *node = NULL, **last = NULL, *wrapper;
    if (next_is_word(parser, "not")) {
        TRY(parser_enter(parser));
        TRY(node_new(parser, NODE_NOT, parser->at++, out));
        status = parse_level(parser, LEVEL_COMPARE, &(*out)->left);
        parser_leave(parser);
        goto cleanup;
    }
    TRY(parse_level(parser, LEVEL_SUM, &left));
    for (;;) {
        const struct lexeme *place = parser->at;
        uint32_t sign = skip_comparison(parser);
        if (!sign)
            break;
        if (!node) {
            TRY(node_new(parser, NODE_COMPARE, place, &node));
            node->left = left;
            last = &node->items;
        }
        /* An operand may be part of another list, so each gets a node of its own here. */
        TRY(node_new(parser, NODE_ARGUMENT, place, &wrapper));
        wrapper->sign = sign;
        const struct node *unknown = parser->unknown;
        TRY(parse_level(parser, LEVEL_SUM, &wrapper->left));
        if (parser->unknown != unknown && constant_is(node, false, &parser->work_left))
            parser->unknown = unknown;
        *last = wrapper;
        last = &wrapper->next;
    }
    *out = node ? node : left;

cleanup:
    return status;
}

static enum salvo_status parse_concat(struct parser *parser, struct node **out)
{
    enum salvo_status status = SALVO_OK;
    struct node *node = NULL, *left, *last = NULL;
    TRY(parse_level(parser, LEVEL_PRODUCT, &left));
    while (next_is_sign(parser, '~')) {
        if (!node) {
            TRY(node_new(parser, NODE_CONCAT, parser->at, &node));
            node->items = last = left;
        }
        parser->at++;
        TRY(parse_level(parser, LEVEL_PRODUCT, &last->next));
        last = last->next;
    }
    *out = node ? node : left;

cleanup:
    return status;
}

static enum salvo_status parse_level(struct parser *parser, enum level level, struct node **out)
{
    switch (level) {
    case LEVEL_OR:
    case LEVEL_AND:
        return parse_logic(parser, level, out);
    case LEVEL_COMPARE:
        return parse_comparison(parser, out);
    case LEVEL_SUM:
    case LEVEL_PRODUCT:
    case LEVEL_POWER:
        return parse_binary(parser, level, out);
    case LEVEL_CONCAT:
        return parse_concat(parser, out);
    case LEVEL_UNARY:
        break;
    }
    return parse_unary(parser, true, out);
}

enum salvo_status parse_expression(struct parser *parser, bool conditions, struct node **out)
{
    enum salvo_status status = SALVO_OK;
    struct node *left, *node;
    const struct node *unknown = parser->unknown;
    TRY(parser_enter(parser));
    TRY(parse_level(parser, LEVEL_OR, &left));
    while (conditions && next_is_word(parser, "if")) {
        TRY(node_new(parser, NODE_CONDITION, parser->at++, &node));
        node->left = left;
        TRY(parse_level(parser, LEVEL_OR, &node->condition));
        if (skip_word(parser, "else"))
            TRY(parse_expression(parser, true, &node->right));
        left = node;
        parser->unknown = unknown;
    }
    *out = left;

cleanup:
    parser_leave(parser);
    return status;
}

enum salvo_status parse_row(struct parser *parser, bool conditions, const char *end, struct node **out)
{
    enum salvo_status status = SALVO_OK;
    struct node *first, *last, *tuple;
    const struct lexeme *place = parser->at;
    TRY(parse_expression(parser, conditions, &first));
    *out = last = first;
    if (!next_is_sign(parser, ','))
        goto cleanup;
    TRY(node_new(parser, NODE_TUPLE, place, &tuple));
    tuple->items = first;
    while (skip_sign(parser, ',')) {
        if (next_is(parser, LEX_PRINT_END) || next_is(parser, LEX_BLOCK_END) || next_is_sign(parser, ')') ||
            (end && next_is_word(parser, end)))
            break;
        TRY(parse_expression(parser, conditions, &last->next));
        last = last->next;
    }
    *out = tuple;

cleanup:
    return status;
}
