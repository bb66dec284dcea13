#include "backend/common/checks.h"

#include "backend/common/steps.h"

#include <inttypes.h>

static enum salvo_status check_run(const struct backend_options *options, uint32_t pages, uint32_t vocabulary,
    const struct step *step, uint32_t index)
{
    const struct run *run = &step->runs[index];
    if (run->slot >= options->slots || run->count == 0 || run->first > options->context ||
        run->count > options->context - run->first || run->first_row > step->token_count ||
        run->count > step->token_count - run->first_row) {
        return fail(SALVO_ERROR_ARGUMENT,
            "run %u: slot %u of %u, positions %u + %u of %u, rows %u + %u of %u", index, run->slot,
            options->slots, run->first, run->count, options->context, run->first_row, run->count,
            step->token_count);
    }
    for (uint32_t i = 0; i < index; i++) {
        if (step->runs[i].slot == run->slot)
            return fail(
                SALVO_ERROR_ARGUMENT, "slot %u is in runs %u and %u of one step", run->slot, i, index);
    }
    for (uint32_t i = 0; i <= (run->first + run->count - 1) / PAGE_POSITIONS; i++) {
        if (run->pages[i] >= pages)
            return fail(SALVO_ERROR_ARGUMENT, "run %u: page %u of %u", index, run->pages[i], pages);
    }
    for (uint32_t i = 0; run->source == SOURCE_IDS && i < run->count; i++) {
        int32_t id = step->ids[run->first_row + i];
        if (id < 0 || (uint32_t)id >= vocabulary)
            return fail(
                SALVO_ERROR_ARGUMENT, "token id %" PRId32 " is outside the vocabulary of %u", id, vocabulary);
    }
    if (run_is_scored(run) &&
        (run->source != SOURCE_IDS || run->next_id < 0 || (uint32_t)run->next_id >= vocabulary)) {
        return fail(SALVO_ERROR_ARGUMENT,
            "run %u is scored: its ids must be given, and the id after it, %" PRId32
            ", must be inside the vocabulary of %u",
            index, run->next_id, vocabulary);
    }
    return SALVO_OK;
}

enum salvo_status backend_check_step(
    const struct backend_options *options, uint32_t pages, uint32_t vocabulary, const struct step *step)
{
    enum salvo_status status = SALVO_OK;
    uint32_t tokens = 0, outputs = 0;
    if (step->run_count == 0 || step->run_count > options->slots || step->token_count > options->batch)
        TRY(fail(SALVO_ERROR_ARGUMENT, "a step of %u runs and %u tokens: at most %u and %u are possible",
            step->run_count, step->token_count, options->slots, options->batch));
    for (uint32_t i = 0; i < step->run_count; i++) {
        TRY(check_run(options, pages, vocabulary, step, i));
        tokens += step->runs[i].count;
        outputs += run_output_count(&step->runs[i]);
        if (step->samples_only && (step->runs[i].count != 1 || step->runs[i].logits != LOGITS_LAST ||
                                      step->repeat > 1 || step->runs[i].logits_row >= options->outputs)) {
            TRY(fail(SALVO_ERROR_ARGUMENT,
                "run %u of a step that only samples has %u tokens, the logits of row %u of at most %u and %u "
                "repetitions",
                i, step->runs[i].count, step->runs[i].logits_row, options->outputs, step->repeat));
        }
        if (step->repeat > 1 && (step->runs[i].count != 1 || step->runs[i].logits != LOGITS_LAST))
            TRY(fail(SALVO_ERROR_ARGUMENT, "run %u has %u tokens in a step that repeats: it must have 1", i,
                step->runs[i].count));
    }
    if (tokens != step->token_count || outputs > options->outputs) {
        TRY(fail(SALVO_ERROR_ARGUMENT,
            "a step of %u tokens whose runs have %u, with logits for %u rows of at most %u",
            step->token_count, tokens, outputs, options->outputs));
    }
cleanup:
    return status;
}

enum salvo_status backend_check_slot(const struct backend_options *options, uint32_t slot, uint32_t positions)
{
    if (slot >= options->slots + (positions ? 0 : options->states) || positions > options->context)
        return fail(SALVO_ERROR_ARGUMENT, "slot %u of %u, %u positions of %u", slot, options->slots,
            positions, options->context);
    return SALVO_OK;
}

enum salvo_status backend_check_ticket(uint64_t ticket, uint64_t last, uint32_t kept)
{
    if (ticket == 0 || ticket > last || last - ticket >= kept)
        return fail(SALVO_ERROR_ARGUMENT, "ticket %" PRIu64 " is not one of the last %u, up to %" PRIu64,
            ticket, kept, last);
    return SALVO_OK;
}
