/* Logits and settings that tests of sampling go through, whoever samples: the same round gives the same. */
#ifndef SAMPLING_CASES_H
#define SAMPLING_CASES_H

#include "program/sampling.h"

/* From 0 to 1; each call takes the next of a sequence. */
float sampling_case_uniform(uint64_t *counter);

/* Steps above 0 make ties frequent; some are NaN or minus infinity. */
void sampling_case_logits(float *logits, uint32_t count, float spread, float step, uint64_t *counter);

/* The logits of a round, and the biases that may be added. */
void sampling_case_fill(unsigned round, uint32_t count, float *logits, float *bias, uint64_t *counter);

/* Every stage with every other. Penalties count at most `most_recent` tokens; every third round has the bias.
 */
struct sampler_settings sampling_case_settings(unsigned round, uint32_t most_recent, const float *bias);

#endif
