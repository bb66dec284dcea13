/*
 * Prompt tokens of a step that also decodes, so that the step takes about as long as chosen. The durations of
 * steps say what a step without prompts costs, for each size of it, and what a prompt token adds; both change
 * with the length of contexts. A step now and then has no prompt, so that its duration is known.
 *
 * A GPU decodes one token by other kernels than many, in a fraction of the time: a step with a prompt has a
 * shortest duration of its own, which is no cost of its tokens.
 */
#ifndef ENGINE_PROMPT_PACE_H
#define ENGINE_PROMPT_PACE_H

#include <stdbool.h>
#include <stdint.h>

enum { PROMPT_PACE_SIZES = 16 }; /* of steps that only decode: 1, 2 to 3, 4 to 7, ... sessions */

struct prompt_pace {
    double latency_ns;    /* of a step; 0: twice a step without prompts, or the shortest with one */
    uint32_t least, most; /* limits of the result */
    double least_ns;      /* the shortest step with a prompt */
    double token_ns;      /* a prompt token more */
    struct {
        double ns;      /* a step of this size without prompts; 0: not known */
        uint32_t mixed; /* steps with prompts since then */
    } sizes[PROMPT_PACE_SIZES];
    bool has_rested; /* the last result was 0 */
};

/* `decode_ns`: a step that decodes one token; `least_ns`: the shortest step with a prompt; `token_ns`: a
 * prompt token. */
void prompt_pace_open(struct prompt_pace *pace, double latency_ns, uint32_t least, uint32_t most,
    double decode_ns, double least_ns, double token_ns);

/* Prompt tokens beside `decodes` tokens, at least 1, for the next step. 0, never twice in a row: the step is
 * to be measured without prompts. */
uint32_t prompt_pace_tokens(struct prompt_pace *pace, uint32_t decodes);

/* A step took `ns`. */
void prompt_pace_note(struct prompt_pace *pace, uint32_t decodes, uint32_t prompt_tokens, uint64_t ns);

/* The duration of a step of `decodes` tokens without prompts; 0: not known. */
double prompt_pace_rest(const struct prompt_pace *pace, uint32_t decodes);

/* The result of prompt_pace_tokens without a step to be measured. */
uint32_t prompt_pace_limit(const struct prompt_pace *pace, uint32_t decodes);

#endif
