#include "unit/sampling_cases.h"

#include <math.h>

float sampling_case_uniform(uint64_t *counter)
{
    return (float)(sampling_random(77, (*counter)++) >> 40) * 0x1p-24f;
}

void sampling_case_logits(float *logits, uint32_t count, float spread, float step, uint64_t *counter)
{
    for (uint32_t i = 0; i < count; i++) {
        const float sum = sampling_case_uniform(counter) + sampling_case_uniform(counter) +
                          sampling_case_uniform(counter) - 1.5f;
        logits[i] = step > 0 ? step * rintf(spread * sum / step) : spread * sum;
        if (sampling_case_uniform(counter) < 0.01f)
            logits[i] = sampling_case_uniform(counter) < 0.5f ? NAN : -INFINITY;
    }
}

void sampling_case_fill(unsigned round, uint32_t count, float *logits, float *bias, uint64_t *counter)
{
    const float spread = 1 + 20 * sampling_case_uniform(counter);
    sampling_case_logits(logits, count, spread, round % 3 ? 0 : 0.5f, counter);
    if (round % 50 == 0)
        logits[count / 2] = INFINITY;
    for (uint32_t i = 0; i < count; i++) {
        bias[i] = 0;
        if (sampling_case_uniform(counter) < 0.1f)
            bias[i] = sampling_case_uniform(counter) < 0.2f ? -INFINITY : 3 * sampling_case_uniform(counter);
    }
}

struct sampler_settings sampling_case_settings(unsigned round, uint32_t most_recent, const float *bias)
{
    static const uint32_t top_ks[] = {0, 1, 2, 5, 40, 300, 5000};
    static const float top_ps[] = {1, 0.95f, 0.5f, 0.01f, 0}, min_ps[] = {0, 0.05f, 0.5f, 1};
    static const float temperatures[] = {0, 0.8f, 1, 2, 1e-3f, 1e-44f};
    return (struct sampler_settings){
        .temperature = temperatures[round / 7 % 6],
        .top_k = top_ks[round / 3 % 7],
        .top_p = top_ps[round / 11 % 5],
        .min_p = min_ps[round / 13 % 4],
        .repeat_penalty = round % 4 == 1 ? 1.3f : 1,
        .presence_penalty = round % 8 == 3 ? 0.4f : 0,
        .frequency_penalty = round % 8 == 5 ? 0.2f : 0,
        .repeat_last_n = round % 5 == 0 ? 0 : round % most_recent,
        .seed = round,
        .bias = round % 3 == 1 ? bias : NULL,
        .bias_version = round + 1,
    };
}
