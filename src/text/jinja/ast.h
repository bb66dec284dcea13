/* A template as a tree. All nodes have one type; the comments tell which members each kind uses. */
#ifndef TEXT_JINJA_AST_H
#define TEXT_JINJA_AST_H

#include "text/jinja/value.h"

struct builtin;

enum node_kind {
    /* Expressions. */
    NODE_CONSTANT,  /* constant */
    NODE_NAME,      /* name */
    NODE_LIST,      /* items */
    NODE_TUPLE,     /* items */
    NODE_DICT,      /* items: keys, each followed by its value */
    NODE_ATTRIBUTE, /* left.name */
    NODE_ITEM,      /* left[right] */
    NODE_SLICE,     /* left[items], three of them; NODE_NOTHING where none is written */
    NODE_NOTHING,   /* */
    NODE_CALL,      /* left(items) */
    NODE_FILTER,    /* left | builtin(items); left NULL: of a block; builtin NULL: unknown `name`
                     */
    NODE_TEST,      /* left is builtin(items); the same */
    NODE_NOT,       /* not left */
    NODE_NEGATIVE,  /* -left */
    NODE_POSITIVE,  /* +left */
    NODE_BINARY,    /* left sign right: + - * / // % ** */
    NODE_AND,       /* left and right */
    NODE_OR,        /* left or right */
    NODE_COMPARE,   /* left, then items, each with the sign before it */
    NODE_CONCAT,    /* items joined by ~ */
    NODE_CONDITION, /* left if condition else right; right may be NULL */

    /* Arguments of calls: left; named ones have a name. */
    NODE_ARGUMENT,
    NODE_NAMED_ARGUMENT,
    NODE_SPREAD,       /* *left */
    NODE_NAMED_SPREAD, /* **left */

    /* Statements. A body is a list of statements. */
    NODE_TEXT,         /* name: what is written */
    NODE_PRINT,        /* left */
    NODE_IF,           /* condition, body, otherwise */
    NODE_FOR,          /* for left in right if condition: body; otherwise; `recursive` */
    NODE_SET,          /* left = right */
    NODE_SET_BLOCK,    /* left = body through the filters in `right`, or NULL */
    NODE_MEMBER,       /* as a target: left.name of a namespace */
    NODE_MACRO,        /* name(items): body; items are NODE_PARAMETER */
    NODE_PARAMETER,    /* name, with left as its default or NULL */
    NODE_CALL_BLOCK,   /* call left with the macro in `right` as caller */
    NODE_FILTER_BLOCK, /* body through the filters in `right` */
    NODE_WITH,         /* items: targets, each followed by its value; body */
    NODE_SCOPE,        /* body */
    NODE_BREAK,
    NODE_CONTINUE,
};

/* Signs of comparison that are words. */
#define SIGN_IN     OPERATOR2('i', 'n')
#define SIGN_NOT_IN OPERATOR2('n', 'i')

/* Names that the body of a macro mentions, and is therefore given: varargs, kwargs, caller. */
struct extras {
    bool values, named, caller;
};

struct node {
    enum node_kind kind;
    uint32_t line, column, sign;
    bool recursive;
    struct extras extras;
    struct node *next; /* in the list that it is part of */
    struct node *left, *right, *condition;
    struct node *items, *body, *otherwise; /* the first of a list */
    struct string name;
    struct value constant;
    const struct builtin *builtin;
};

/* Deeper nesting is an error, because parsing and running are recursive. */
enum { DEEPEST_NESTING = 200 };

/* The literals are all texts and strings of the template, each ended by a NUL. */
enum salvo_status parse(
    struct heap *heap, const char *source, size_t size, struct node **out_body, struct string *out_literals);

#endif
