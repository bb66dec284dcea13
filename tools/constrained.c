#include "constrained.h"

#include "command.h"
#include "interrupt.h"

#include <stdlib.h>

enum { MOST_FORCED = 64 };

enum continuation { MAY_CONTINUE, ONLY_END, NOTHING };

struct progress {
    const struct constrained *constrained;
    struct salvo_grammar_matcher *matcher;
    uint32_t *mask;
    size_t words;
};

static int make_mask(const struct progress *progress, enum continuation *out)
{
    if (salvo_grammar_matcher_mask(progress->matcher, progress->mask, progress->words) != SALVO_OK)
        return library_failure();
    bool complete = salvo_grammar_matcher_complete(progress->matcher);
    uint32_t next[8] = {0};
    if (salvo_grammar_matcher_bytes(progress->matcher, next) != SALVO_OK)
        return library_failure();
    uint32_t bytes = 0, tokens = 0;
    for (int i = 0; i < 8; i++)
        bytes |= next[i];
    for (size_t i = 0; i < progress->words; i++)
        tokens |= progress->mask[i];
    *out = complete && !bytes ? ONLY_END : tokens ? MAY_CONTINUE : NOTHING;
    if (*out == NOTHING && complete)
        *out = ONLY_END;
    return *out == NOTHING ? failure("no token of the vocabulary can continue the text within the grammar")
                           : EXIT_DONE;
}

/* Writes the token's text; false when it ends the text. */
static int write_token(const struct progress *progress, int32_t id, bool *out_go_on)
{
    char *text;
    size_t size;
    if (salvo_token_text(progress->constrained->model, id, &text, &size) != SALVO_OK)
        return library_failure();
    *out_go_on = text_output_token(progress->constrained->output, id, text, size);
    salvo_free(text);
    return EXIT_DONE;
}

/* ids[0] is the last token of the prompt or, if `chosen`, a chosen token. The ids after it are forced. */
struct batch {
    int32_t ids[1 + MOST_FORCED];
    size_t count;
    bool chosen;
};

/* The tokens that still fit into the answer, the context and a step behind ids[0]. */
static size_t room_behind(
    const struct progress *progress, const struct batch *batch, const struct salvo_generate_result *result)
{
    const struct constrained *constrained = progress->constrained;
    const struct salvo_engine_info *info = salvo_engine_info(constrained->engine);
    const uint32_t used = salvo_session_position(constrained->session) + 1;
    uint32_t room = info->context > used ? info->context - used : 0;
    if (constrained->max_tokens && room > constrained->max_tokens - result->tokens - batch->chosen)
        room = constrained->max_tokens - result->tokens - batch->chosen;
    if (room > info->batch - 1)
        room = info->batch - 1;
    return room < MOST_FORCED ? room : MOST_FORCED;
}

/* Accepts the chosen token, then the tokens that the grammar forces after it. */
static int accept(const struct progress *progress, size_t room, struct batch *batch)
{
    const struct constrained *constrained = progress->constrained;
    size_t forced = 0;
    batch->count = 1;
    if (batch->chosen && salvo_grammar_matcher_accept(progress->matcher, batch->ids[0]) != SALVO_OK)
        return library_failure();
    if (room && salvo_grammar_matcher_forced(
                    progress->matcher, constrained->model, batch->ids + 1, room, &forced) != SALVO_OK)
        return library_failure();
    for (; batch->count <= forced; batch->count++) {
        if (salvo_grammar_matcher_accept(progress->matcher, batch->ids[batch->count]) != SALVO_OK)
            return library_failure();
    }
    return EXIT_DONE;
}

static int write_batch(const struct progress *progress, const struct batch *batch,
    struct salvo_generate_result *result, bool *out_go_on)
{
    int status = EXIT_DONE;
    *out_go_on = true;
    for (size_t i = batch->chosen ? 0 : 1; i < batch->count && *out_go_on && status == EXIT_DONE; i++) {
        result->tokens++;
        status = write_token(progress, batch->ids[i], out_go_on);
    }
    return status;
}

/* ---- Steps ---- */

/* Waits for the steps that were begun, 0: none. The first failure counts; *out_full tells whether the context
 * has no room. */
static int complete(const struct progress *progress, const uint64_t steps[2], int32_t *out_id, bool *out_full)
{
    struct salvo_run_result results[2] = {{.status = SALVO_OK}, {.status = SALVO_OK}};
    bool waited = true;
    for (int i = 0; i < 2; i++) {
        waited &= !steps[i] || salvo_engine_wait(progress->constrained->engine, steps[i], &results[i], 1,
                                   sizeof results[i]) == SALVO_OK;
    }
    if (!waited)
        return library_failure();
    const struct salvo_run_result *result = &results[results[0].status == SALVO_OK];
    *out_id = results[1].id;
    *out_full = result->status == SALVO_ERROR_CONTEXT;
    return result->status == SALVO_OK || *out_full ? EXIT_DONE : failure("%s", result->message);
}

static int submit(const struct progress *progress, struct salvo_run run, uint64_t *out_step)
{
    run.session = progress->constrained->session;
    return salvo_engine_submit(progress->constrained->engine, &run, 1, sizeof run, out_step) == SALVO_OK
               ? EXIT_DONE
               : library_failure();
}

/* Computes the tokens of the batch and, unless it is the last one or nothing may follow, chooses the next. A
 * single token is computed while the mask is made, and a step behind it chooses; forced tokens are computed
 * in one step with the token before them, which saves more. */
static int compute(const struct progress *progress, const struct batch *batch, bool is_last,
    enum continuation *out_continuation, int32_t *out_next, bool *out_full)
{
    const bool is_early = batch->count == 1 && !is_last;
    uint64_t steps[2] = {0};
    int status = EXIT_DONE;
    if (is_early) {
        const struct salvo_run run = {.ids = batch->ids,
            .count = !batch->chosen, /* the device has what it chose */
            .want = SALVO_WANT_LATER};
        status = submit(progress, run, &steps[0]);
    }
    if (status == EXIT_DONE)
        status = make_mask(progress, out_continuation);
    const bool chooses = !is_last && *out_continuation == MAY_CONTINUE;
    if (status == EXIT_DONE && (chooses || !is_early)) {
        const struct salvo_run run = {.ids = batch->ids,
            .count = is_early ? 0 : batch->count,
            .want = chooses ? SALVO_WANT_ID : SALVO_WANT_NOTHING,
            .mask = chooses ? progress->mask : NULL};
        status = submit(progress, run, &steps[1]);
    }
    const int completed = complete(progress, steps, out_next, out_full);
    return status == EXIT_DONE ? completed : status;
}

/* Appends and writes tokens until the text ends. */
static int follow(const struct progress *progress, int32_t first, struct salvo_generate_result *result)
{
    const struct constrained *constrained = progress->constrained;
    struct batch batch = {.ids = {first}};
    for (;; batch.chosen = true) {
        enum continuation continuation = MAY_CONTINUE;
        int32_t next = -1;
        bool go_on = true, full = false;
        int status = accept(progress, room_behind(progress, &batch, result), &batch);
        if (status != EXIT_DONE)
            return status;
        result->finish = SALVO_FINISH_END;
        if (salvo_grammar_matcher_ended(progress->matcher))
            return EXIT_DONE;
        const uint32_t tokens = result->tokens + (uint32_t)batch.count - !batch.chosen;
        const bool is_last = constrained->max_tokens && tokens == constrained->max_tokens;
        status = compute(progress, &batch, is_last, &continuation, &next, &full);
        if (status != EXIT_DONE)
            return status;
        result->finish = SALVO_FINISH_CONTEXT;
        if (full)
            return EXIT_DONE;
        status = write_batch(progress, &batch, result, &go_on);
        if (status != EXIT_DONE)
            return status;
        result->finish = !go_on                     ? SALVO_FINISH_CALLBACK
                         : interrupt_pending()      ? SALVO_FINISH_CANCELLED
                         : continuation == ONLY_END ? SALVO_FINISH_END
                                                    : SALVO_FINISH_LENGTH;
        if (!go_on || is_last || continuation == ONLY_END || interrupt_pending())
            return EXIT_DONE;
        batch.ids[0] = next;
    }
}

int generate_constrained(
    const struct constrained *constrained, int32_t last, struct salvo_generate_result *result)
{
    struct progress progress = {.constrained = constrained,
        .words = ((size_t)salvo_engine_info(constrained->engine)->vocabulary + 31) / 32};
    int status = EXIT_DONE;
    progress.mask = calloc(progress.words, sizeof *progress.mask);
    if (!progress.mask)
        status = failure("out of memory");
    else if (salvo_grammar_matcher_new(constrained->grammar, &progress.matcher) != SALVO_OK)
        status = library_failure();
    if (status == EXIT_DONE)
        status = follow(&progress, last, result);
    salvo_grammar_matcher_free(progress.matcher);
    free(progress.mask);
    return status;
}
