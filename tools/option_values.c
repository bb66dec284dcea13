/* Parses the values of options. */
#include "command.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where a value was given, for messages about it. */
struct place {
    const char *command, *shown;
};

static int wrong(struct place place, const char *text, const char *expected)
{
    return usage_error("%s: invalid %s '%s': %s", place.command, place.shown, text, expected);
}

/* Decimal digits and nothing else: strtoull would take "-1". */
static bool parse_unsigned(const char *text, size_t length, uint64_t limit, uint64_t *out)
{
    uint64_t value = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        uint64_t digit = (uint64_t)(text[i] - '0');
        if (value > (limit - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *out = value;
    return length > 0;
}

static int store_number(
    struct place place, const struct option *option, const char *text, uint32_t lowest, uint32_t *target)
{
    uint64_t value;
    if (option->minus_one && strcmp(text, "-1") == 0) {
        *target = *option->minus_one;
        return EXIT_DONE;
    }
    if (!parse_unsigned(text, strlen(text), UINT32_MAX, &value) || value < lowest) {
        char expected[64];
        snprintf(expected, sizeof expected, "expected a number from %" PRIu32 " to %" PRIu32 "%s", lowest,
            UINT32_MAX, option->minus_one ? " or -1" : "");
        return wrong(place, text, expected);
    }
    *target = (uint32_t)value;
    return EXIT_DONE;
}

static int store_optional(struct place place, const struct option *option, const char *text)
{
    struct optional_number *number = option->target;
    const int result = store_number(place, option, text, 0, &number->value);
    number->given |= result == EXIT_DONE;
    return result;
}

static int store_counts(struct place place, const char *text, struct count_list *list)
{
    list->count = 0;
    for (const char *item = text;; item++) {
        size_t length = strcspn(item, ",");
        uint64_t value;
        if (!parse_unsigned(item, length, UINT32_MAX, &value))
            return wrong(place, text, "expected numbers from 0 to 4294967295, separated by commas");
        if (list->count == sizeof list->items / sizeof *list->items)
            return wrong(place, text, "too many numbers");
        list->items[list->count++] = (uint32_t)value;
        item += length;
        if (!*item)
            return EXIT_DONE;
    }
}

static int store_seed(struct place place, const char *text, struct optional_seed *seed)
{
    if (strcmp(text, "-1") == 0) { /* as in llama.cpp: a random one */
        *seed = (struct optional_seed){0};
        return EXIT_DONE;
    }
    if (!parse_unsigned(text, strlen(text), SALVO_SEED_RANDOM - 1, &seed->value))
        return wrong(place, text, "expected a number from 0 to 18446744073709551614, or -1");
    seed->given = true;
    return EXIT_DONE;
}

static int store_float(struct place place, const char *text, enum option_kind kind, float *target)
{
    char *end;
    errno = 0;
    float value = strtof(text, &end);
    if (end == text || *end || !isfinite(value))
        return wrong(place, text, "expected a number");
    if (kind == OPTION_POSITIVE && value < 0)
        return wrong(place, text, "expected a number of at least 0");
    if (kind == OPTION_FACTOR && !(value >= 1e-6f && value <= 1e6f))
        return wrong(place, text, "expected a number from 1e-06 to 1e+06");
    if (kind == OPTION_SHARE && !(value >= 0 && value <= 1))
        return wrong(place, text, "expected a number from 0 to 1");
    *target = value;
    return EXIT_DONE;
}

static int store_text(struct place place, const char *text, struct text_list *list)
{
    if (list->count == sizeof list->items / sizeof *list->items)
        return usage_error("%s: %s was given more than %zu times", place.command, place.shown, list->count);
    list->items[list->count++] = text;
    return EXIT_DONE;
}

int option_store(const char *command, const struct option *option, const char *shown, const char *text)
{
    const struct place place = {command, shown};
    switch (option->kind) {
    case OPTION_FLAG:
        *(bool *)option->target = true;
        break;
    case OPTION_ALWAYS:
        if (text && !is_listed(option->choices, text, strlen(text)))
            return usage_error("%s: invalid %s '%s': only %.*s is supported", command, shown, text,
                (int)strcspn(option->choices, " "), option->choices);
        break;
    case OPTION_HUB: /* which the parser stores as another option */
        break;
    case OPTION_FILE:
        if (!*text)
            return usage_error("%s: the file name of %s is empty", command, shown);
        *(const char **)option->target = text;
        break;
    case OPTION_TEXT:
        *(const char **)option->target = text;
        break;
    case OPTION_TEXTS:
        return store_text(place, text, option->target);
    case OPTION_NUMBER:
        return store_number(place, option, text, 0, option->target);
    case OPTION_MAYBE:
        return store_optional(place, option, text);
    case OPTION_COUNT:
        return store_number(place, option, text, 1, option->target);
    case OPTION_COUNTS:
        return store_counts(place, text, option->target);
    case OPTION_SEED:
        return store_seed(place, text, option->target);
    case OPTION_FLOAT:
    case OPTION_POSITIVE:
    case OPTION_SHARE:
    case OPTION_FACTOR:
        return store_float(place, text, option->kind, option->target);
    }
    return EXIT_DONE;
}
