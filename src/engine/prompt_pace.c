#include "engine/prompt_pace.h"

enum {
    REST_STEPS = 2,  /* the default duration of a step, in steps without prompts */
    MOST_MIXED = 64, /* steps with prompts until one without is measured again */
};

static uint32_t size_of(uint32_t decodes)
{
    uint32_t size = 0;
    while (decodes > 1 && size + 1 < PROMPT_PACE_SIZES) {
        decodes /= 2;
        size++;
    }
    return size;
}

/* The duration without prompts; if it is not known, the duration for the nearest smaller size. */
static double rest_of(const struct prompt_pace *pace, uint32_t size)
{
    while (size && pace->sizes[size].ns <= 0)
        size--;
    return pace->sizes[size].ns;
}

/* The duration of a step with a prompt, but for its prompt tokens. */
static double base_of(const struct prompt_pace *pace, uint32_t size)
{
    const double rest = rest_of(pace, size);
    return rest > pace->least_ns ? rest : pace->least_ns;
}

/* Moves an estimate towards a new figure. A single step that was late, because the machine did something
 * else, moves it little. */
static double follow(double estimate, double figure)
{
    if (estimate <= 0)
        return figure;
    figure = figure > 2 * estimate ? 2 * estimate : figure;
    return estimate + (figure - estimate) / 4;
}

void prompt_pace_open(struct prompt_pace *pace, double latency_ns, uint32_t least, uint32_t most,
    double decode_ns, double least_ns, double token_ns)
{
    *pace = (struct prompt_pace){.latency_ns = latency_ns,
        .least = least < most ? least : most,
        .most = most,
        .least_ns = least_ns,
        .token_ns = token_ns};
    pace->sizes[0].ns = decode_ns;
}

double prompt_pace_rest(const struct prompt_pace *pace, uint32_t decodes)
{
    return rest_of(pace, size_of(decodes));
}

uint32_t prompt_pace_limit(const struct prompt_pace *pace, uint32_t decodes)
{
    const double base = base_of(pace, size_of(decodes)),
                 target = pace->latency_ns > 0 ? pace->latency_ns : REST_STEPS * base,
                 room = target > base ? target - base : 0;
    if (room < pace->token_ns * pace->least)
        return pace->least;
    return room < pace->token_ns * pace->most ? (uint32_t)(room / pace->token_ns) : pace->most;
}

uint32_t prompt_pace_tokens(struct prompt_pace *pace, uint32_t decodes)
{
    const uint32_t size = size_of(decodes);
    pace->has_rested =
        !pace->has_rested && (pace->sizes[size].ns <= 0 || pace->sizes[size].mixed >= MOST_MIXED);
    return pace->has_rested ? 0 : prompt_pace_limit(pace, decodes);
}

void prompt_pace_note(struct prompt_pace *pace, uint32_t decodes, uint32_t prompt_tokens, uint64_t ns)
{
    const uint32_t size = size_of(decodes);
    if (!decodes)
        return; /* a step full of prompt tokens, whose time says little about a few tokens */
    if (!prompt_tokens) {
        pace->sizes[size].ns = follow(pace->sizes[size].ns, (double)ns);
        pace->sizes[size].mixed = 0;
        return;
    }
    if (pace->least_ns > (double)ns)
        pace->least_ns = (double)ns;
    const double added = ((double)ns - base_of(pace, size)) / prompt_tokens;
    pace->sizes[size].mixed += pace->sizes[size].mixed < MOST_MIXED;
    /* The estimate stays above 0, so that later measurements can raise it. */
    pace->token_ns = follow(pace->token_ns, added > pace->token_ns / 8 ? added : pace->token_ns / 8);
}
