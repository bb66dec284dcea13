/* Numbers of JSON Schema, exactly, by their digits. */
#ifndef GRAMMAR_SCHEMA_NUMBER_H
#define GRAMMAR_SCHEMA_NUMBER_H

#include "grammar/expr.h"

enum { NUMBER_DIGITS = 400 };

/* A number without exponent, leading and trailing zeros. Zero has no digits and is not negative. */
struct decimal_number {
    bool negative;
    char whole[NUMBER_DIGITS], fraction[NUMBER_DIGITS];
    size_t whole_size, fraction_size;
};

/* Reads a number of JSON; false if it has too many digits. */
bool number_read(struct salvo_text text, struct decimal_number *out);

bool numbers_are_equal(struct salvo_text left, struct salvo_text right);
int numbers_compare(const struct decimal_number *left, const struct decimal_number *right);

/* Whether a whole number. */
static inline bool number_is_whole(const struct decimal_number *number)
{
    return number->fraction_size == 0;
}

struct number_limits {
    bool has_least, has_most;
    bool above, below; /* the limit itself is excluded */
    struct decimal_number least, most;
    bool whole;              /* integers */
    uint32_t factor, places; /* multiples of factor / 10^places; factor 0: all */
    bool any_spelling;       /* also 1.0 for a whole number */
    bool no_exponent;        /* also without limits */
};

enum { NUMBER_MOST_FACTOR = 5000 };

/* The numbers within limits. Without limits they may have exponents. */
const struct expr *number_expr(struct expr_pool *pool, const struct number_limits *limits);

/* One number: as written, or with any_spelling also with more zeros after the point. */
const struct expr *number_constant(struct expr_pool *pool, struct salvo_text text, bool any_spelling);

#endif
