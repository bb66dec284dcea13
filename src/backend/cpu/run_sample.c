/* Samples ids: one task per output row, as program/sampling.h defines. */
#include "backend/cpu/executor.h"

#include <string.h>

void sample_work(struct executor *executor, const struct group *group, uint32_t task, uint32_t thread)
{
    const struct op *op = &executor->program->ops[group->first_op];
    const struct row_place row = executor->rows[executor->output_rows[task]];
    const struct run *run = &executor->runs[row.run];
    const uint32_t vocabulary = executor->program->vocabulary, count = row.position + 1;
    const uint32_t logits_row = step_logits_row(executor->step, run, task);
    const float *logits = row_of(executor, op->inputs[0], logits_row, thread);
    if (run_is_scored(run)) {
        const int32_t next = run_scored_id(run, executor->step->ids, executor->output_rows[task]);
        sampling_logprobs(logits, vocabulary, next, run->top_count, executor->logprobs[logits_row]);
    }
    if (run->logits != LOGITS_LAST)
        return;

    int32_t *tokens = executor->tokens + slot_tokens_at(&executor->options, run->slot);
    struct run_result *result = &executor->results[executor->run_numbers[row.run]];
    int32_t id;
    if (sampler_is_argmax(&run->sampler)) {
        float largest;
        size_t index = executor->kernels->argmax(logits, vocabulary, &largest);
        id = index < vocabulary ? (int32_t)index : -1;
    } else {
        struct scratch *scratch = &executor->scratch[thread];
        memcpy(scratch->logits, logits, vocabulary * sizeof *logits); /* the sampler changes them */
        id = sampling_choose(&run->sampler, scratch->logits, vocabulary, tokens, count, scratch->candidates);
    }
    if (id < 0) {
        result->failed = true;
        result->failed_position = row.position;
        return;
    }
    if (run->has_logprobs)
        sampling_logprobs(logits, vocabulary, id, run->top_count, executor->logprobs[logits_row]);
    tokens[count] = id;
    result->sampled++;
}
