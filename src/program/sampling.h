/*
 * How an id is chosen from logits, defined so that every backend picks the same one: floats only where their
 * bits are fixed, sums in integers, ties by id. Stages, in llama.cpp's order:
 *
 *   0. mask        l = -INFINITY for ids whose bit is 0
 *   1. bias        l += bias[id]
 *   2. penalties   for each of the last repeat_last_n ids of the slot, which came c times:
 *                  l = l > 0 ? l * (1 / repeat) : l * repeat;  then l = fma(-c, frequency, l) - presence
 *   3. NaN         becomes -INFINITY; when nothing but -INFINITY is left there is no id
 *   4. top-k       the k largest stay; among equal logits the lower ids
 *   5. weights     w(l) = sampling_weight(l - largest), and 2^32 for the largest, also when it is infinite
 *   6. top-p       the fewest of the largest stay whose weights reach top_p of the sum (at least one; among
 * equal logits the lower ids)
 *   7. min-p       those stay whose weight is at least min_p of the largest's
 *   8. temperature w(l) again, with (l - largest) * (1 / temperature)
 *   9. choice      r = high 64 bits of sampling_random(seed, position) * sum of weights; walking up the ids
 *                  that stayed, the first whose running sum exceeds r
 *
 * A share s of an integer sum (top_p, min_p) is floor(sum * floor(s * 2^32) / 2^32). Temperature 0 ends after
 * stage 3 with the largest logit, the lowest id on ties. 1 / repeat and 1 / temperature are computed once, in
 * float32, by the host.
 */
#ifndef PROGRAM_SAMPLING_H
#define PROGRAM_SAMPLING_H

#include "program/step.h"

/*
 * A counter hash: no state, so that a rollback replays. `position` is the position of the id to be chosen.
 * With the finaliser of splitmix64 and g = 0x9e3779b97f4a7c15: mix(mix(seed + g) + (position + 1) * g).
 */
uint64_t sampling_random(uint64_t seed, uint64_t position);

/*
 * exp(x) * 2^32 rounded down, x <= 0, by products and sums of float32, each rounded once, so that it is the
 * same everywhere; within 4e-7 of the true value. 0 for -INFINITY, for NaN and below 2^-32.
 */
uint64_t sampling_weight(float x);

/*
 * The reference, which the CPU backend runs. `logits` [vocabulary] is changed. `tokens` are the `count` ids
 * of the slot so far; the id chosen is for position `count`. `scratch` has room for `vocabulary` elements.
 * Returns -1 if no id can be chosen.
 */
struct sampling_candidate {
    float logit;
    int32_t id;
};
int32_t sampling_choose(const struct sampler_settings *settings, float *logits, uint32_t vocabulary,
    const int32_t *tokens, uint32_t count, struct sampling_candidate *scratch);

/*
 * The log-probability of id `chosen`, then of the `top_count` largest logits, larger ones and then lower ids
 * first: log-softmax of the logits as they are, in float64. NaN counts as -INFINITY. Ids that have no
 * probability are not among the largest; elements without an id have id -1 and -INFINITY. Where no logit is a
 * number above -INFINITY, neither `chosen` nor any other id has a probability.
 */
struct sampling_logprob {
    int32_t id;
    float logprob;
};
void sampling_logprobs(const float *logits, uint32_t vocabulary, int32_t chosen, uint32_t top_count,
    struct sampling_logprob *out);

#endif
