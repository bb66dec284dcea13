#include "constrained.h"

#include "command.h"
#include "interrupt.h"

#include <stdlib.h>

enum continuation { MAY_CONTINUE, ONLY_END, NOTHING };

struct progress {
    const struct constrained *constrained;
    struct salvo_grammar_matcher *matcher;
    uint32_t *mask;
    size_t words;
};

/* Computes one step; *out_full tells whether the context has no room for it. */
static int step(const struct progress *progress, struct salvo_run *run, int32_t *out_id, bool *out_full)
{
    const struct constrained *constrained = progress->constrained;
    struct salvo_run_result result = {0};
    uint64_t number;
    run->session = constrained->session;
    run->mask = run->want == SALVO_WANT_ID ? progress->mask : NULL;
    if (salvo_engine_submit(constrained->engine, run, 1, sizeof *run, &number) != SALVO_OK ||
        salvo_engine_wait(constrained->engine, number, &result, 1, sizeof result) != SALVO_OK)
        return library_failure();
    *out_full = result.status == SALVO_ERROR_CONTEXT;
    *out_id = result.id;
    if (result.status != SALVO_OK && !*out_full)
        return failure("%s", result.message);
    return EXIT_DONE;
}

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

/* After the first id was chosen: accepts, appends and writes it and those that follow. */
static int follow(const struct progress *progress, int32_t id, struct salvo_generate_result *result)
{
    const struct constrained *constrained = progress->constrained;
    for (;;) {
        enum continuation continuation = MAY_CONTINUE;
        int32_t next = -1;
        bool go_on = false, full = false, last;
        if (salvo_grammar_matcher_accept(progress->matcher, id) != SALVO_OK)
            return library_failure();
        result->finish = SALVO_FINISH_END;
        if (salvo_grammar_matcher_ended(progress->matcher))
            return EXIT_DONE;
        int status = make_mask(progress, &continuation);
        if (status != EXIT_DONE)
            return status;
        last = continuation == ONLY_END || result->tokens + 1 == constrained->max_tokens;
        struct salvo_run run = {.want = SALVO_WANT_ID};
        if (last)
            run = (struct salvo_run){.ids = &id, .count = 1, .want = SALVO_WANT_NOTHING};
        status = step(progress, &run, &next, &full);
        if (status != EXIT_DONE)
            return status;
        result->finish = SALVO_FINISH_CONTEXT;
        if (full)
            return EXIT_DONE;
        result->tokens++;
        status = write_token(progress, id, &go_on);
        if (status != EXIT_DONE)
            return status;
        result->finish = !go_on                     ? SALVO_FINISH_CALLBACK
                         : interrupt_pending()      ? SALVO_FINISH_CANCELLED
                         : continuation == ONLY_END ? SALVO_FINISH_END
                                                    : SALVO_FINISH_LENGTH;
        if (!go_on || last || interrupt_pending())
            return EXIT_DONE;
        id = next;
    }
}

int generate_constrained(
    const struct constrained *constrained, int32_t last, struct salvo_generate_result *result)
{
    struct progress progress = {.constrained = constrained,
        .words = ((size_t)salvo_engine_info(constrained->engine)->vocabulary + 31) / 32};
    enum continuation continuation = MAY_CONTINUE;
    struct salvo_run run = {.ids = &last, .count = 1};
    int32_t id = -1;
    bool full = false;
    int status = EXIT_DONE;
    progress.mask = calloc(progress.words, sizeof *progress.mask);
    if (!progress.mask)
        status = failure("out of memory");
    else if (salvo_grammar_matcher_new(constrained->grammar, &progress.matcher) != SALVO_OK)
        status = library_failure();
    if (status == EXIT_DONE)
        status = make_mask(&progress, &continuation);
    if (status == EXIT_DONE && continuation == ONLY_END)
        run.want = SALVO_WANT_NOTHING; /* the grammar allows the empty text only */
    if (status == EXIT_DONE)
        status = step(&progress, &run, &id, &full);
    result->finish = full ? SALVO_FINISH_CONTEXT : SALVO_FINISH_END;
    if (status == EXIT_DONE && !full && run.want == SALVO_WANT_ID)
        status = follow(&progress, id, result);
    salvo_grammar_matcher_free(progress.matcher);
    free(progress.mask);
    return status;
}
