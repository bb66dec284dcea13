#include "backend/common/steps.h"

#include <string.h>

void step_place_rows(const struct run *runs, uint32_t run_count, struct row_place *rows)
{
    for (uint32_t i = 0; i < run_count; i++) {
        for (uint32_t j = 0; j < runs[i].count; j++)
            rows[runs[i].first_row + j] = (struct row_place){.run = i, .position = runs[i].first + j};
    }
}

uint32_t step_output_rows(const struct run *runs, uint32_t run_count, uint32_t *output_rows)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < run_count; i++) {
        const struct run *run = &runs[i];
        for (uint32_t j = 0; j < run->count; j++) {
            if (run->logits == LOGITS_ALL || (run->logits == LOGITS_LAST && j + 1 == run->count))
                output_rows[count++] = run->first_row + j;
        }
    }
    return count;
}

uint32_t step_logits_row(const struct step *step, const struct run *run, uint32_t output)
{
    return step->samples_only ? run->logits_row : output;
}

bool run_is_scored(const struct run *run)
{
    return run->logits == LOGITS_ALL && run->has_logprobs;
}

int32_t run_scored_id(const struct run *run, const int32_t *ids, uint32_t row)
{
    return row + 1 < run->first_row + run->count ? ids[row + 1] : run->next_id;
}

uint32_t step_repeats(const struct step *step)
{
    return step->repeat ? step->repeat : 1;
}

uint32_t run_page_count(const struct backend_options *options, const struct run *run, uint32_t repeat)
{
    uint64_t end = (uint64_t)run->first + run->count + repeat - 1;
    if (run->limit >= (uint64_t)run->first + run->count && end > run->limit)
        end = run->limit;
    end = end < options->context ? end : options->context;
    return (uint32_t)((end + PAGE_POSITIONS - 1) / PAGE_POSITIONS);
}

uint32_t run_output_count(const struct run *run)
{
    return run->logits == LOGITS_ALL ? run->count : run->logits == LOGITS_LAST;
}

uint32_t step_write_words(
    const struct backend_options *options, const struct step *step, struct step_words words)
{
    const uint32_t repeat = step_repeats(step);
    step_place_rows(step->runs, step->run_count, words.rows);
    for (uint32_t i = 0; i < step->run_count; i++)
        memcpy(words.pages + (size_t)i * words.pages_stride, step->runs[i].pages,
            run_page_count(options, &step->runs[i], repeat) * sizeof *words.pages);
    return step_output_rows(step->runs, step->run_count, words.outputs);
}

uint32_t step_stop_ids(const struct step *step, int32_t *out)
{
    const uint32_t count = step->stop_count < MAX_STOP_IDS ? step->stop_count : MAX_STOP_IDS;
    if (count)
        memcpy(out, step->stop_ids, count * sizeof *out);
    return count;
}

struct run_result run_result_of(uint32_t sampled, uint32_t ended, uint32_t failed)
{
    return (struct run_result){.sampled = sampled,
        .ended = ended,
        .failed = failed != 0,
        .failed_position = failed ? failed - 1 : 0};
}

bool step_is_cancelled(const volatile bool *cancel)
{
    return cancel && __atomic_load_n(cancel, __ATOMIC_RELAXED);
}

bool sampler_penalises(const struct sampler_settings *settings)
{
    return settings->repeat_last_n > 0 && (settings->repeat_penalty != 1 || settings->presence_penalty != 0 ||
                                              settings->frequency_penalty != 0);
}

bool sampler_is_argmax(const struct sampler_settings *settings)
{
    return settings->temperature == 0 && !settings->mask && !settings->bias && !sampler_penalises(settings);
}

bool sampler_brings_mask(const struct sampler_settings *settings)
{
    return settings->mask && !settings->mask_number;
}

/* A fraction below 1 as a multiple of 2^-32. */
static uint64_t fixed_fraction(float fraction)
{
    return fraction > 0 ? (uint64_t)(fraction * 0x1p32f) : 0;
}

struct device_sampler sampler_for_device(const struct sampler_settings *settings)
{
    const uint64_t lowest = fixed_fraction(settings->min_p < 1 ? settings->min_p : 1);
    return (struct device_sampler){
        .is_argmax = sampler_is_argmax(settings),
        .temperature = settings->temperature,
        .inverse_temperature = 1 / settings->temperature,
        .top_k = settings->top_k,
        .top_p = (uint32_t)fixed_fraction(settings->top_p < 1 ? settings->top_p : 0),
        .top_p_off = !(settings->top_p < 1),
        .min_p_low = (uint32_t)lowest,
        .min_p_high = (uint32_t)(lowest >> 32),
        .repeat_penalty = settings->repeat_penalty,
        .inverse_repeat = 1 / settings->repeat_penalty,
        .presence_penalty = settings->presence_penalty,
        .frequency_penalty = settings->frequency_penalty,
        .recent = sampler_penalises(settings) ? settings->repeat_last_n : 0,
        .seed_low = (uint32_t)settings->seed,
        .seed_high = (uint32_t)(settings->seed >> 32),
    };
}

size_t step_mask_words(uint32_t vocabulary)
{
    return ((size_t)vocabulary + 31) / 32;
}

size_t slot_tokens_at(const struct backend_options *options, uint32_t slot)
{
    return (size_t)slot * (options->context + 1);
}
