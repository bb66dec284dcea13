/* Values that every backend derives from a step: places of rows, rows that get logits, KV pages of a run,
 * samplers that need no more than the largest logit. */
#ifndef COMMON_STEPS_H
#define COMMON_STEPS_H

#include "backend/backend.h"
#include "backend/common/device_sampler.h"

/* The run and the position of one of the T rows. */
struct row_place {
    uint32_t run, position;
};

/* Fills rows[first_row ..] of every run. */
void step_place_rows(const struct run *runs, uint32_t run_count, struct row_place *rows);

/* Fills the O rows that get logits, in order; returns how many there are. */
uint32_t step_output_rows(const struct run *runs, uint32_t run_count, uint32_t *output_rows);

/* The row of logits that a run's id is chosen from; `output` is the run's output row in a step that computes
 * logits. */
uint32_t step_logits_row(const struct step *step, const struct run *run, uint32_t output);

/* Whether each row of the run has log-probabilities of the id after it; that id, for one of the T rows. `ids`
 * are the ids of the step. */
bool run_is_scored(const struct run *run);
int32_t run_scored_id(const struct run *run, const int32_t *ids, uint32_t row);

/* Rows of logits that a run has. */
uint32_t run_output_count(const struct run *run);

/* A step as words that Vulkan and Metal read: rows, output rows and the pages of each run. */
struct step_words {
    struct row_place *rows;
    uint32_t *outputs, *pages;
    uint32_t pages_stride; /* distance from the pages of a run to the pages of the next */
};

/* Writes the words; returns the number of output rows. */
uint32_t step_write_words(
    const struct backend_options *options, const struct step *step, struct step_words words);

/* Copies the stop ids that a device can have, at most MAX_STOP_IDS; returns their number. */
uint32_t step_stop_ids(const struct step *step, int32_t *out);

/* The result of a run whose device wrote these words; `failed` is 0, or 1 + the position after which no id
 * could be chosen. */
struct run_result run_result_of(uint32_t sampled, uint32_t ended, uint32_t failed);

/* Tokens that a step decodes one after the other: 1 unless it repeats. */
uint32_t step_repeats(const struct step *step);

/* KV pages that a run may touch when it decodes `repeat` tokens. */
uint32_t run_page_count(const struct backend_options *options, const struct run *run, uint32_t repeat);

bool step_is_cancelled(const volatile bool *cancel);

/* Whether penalties change any logit; whether the choice is the largest of the logits as they are. */
bool sampler_penalises(const struct sampler_settings *settings);
bool sampler_is_argmax(const struct sampler_settings *settings);

/* Whether the run has a mask that is not on the device yet. */
bool sampler_brings_mask(const struct sampler_settings *settings);

struct device_sampler sampler_for_device(const struct sampler_settings *settings);

/* Words of a mask of ids, struct sampler_settings. */
size_t step_mask_words(uint32_t vocabulary);

/* Index of a slot's first id in an array [slots][context + 1]. */
size_t slot_tokens_at(const struct backend_options *options, uint32_t slot);

#endif
