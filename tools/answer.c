#include "answer.h"

#include "generate_flags.h"
#include "interrupt.h"
#include "measure.h"
#include "text_output.h"
#include "token_overlap.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The tokens that the session must hold before generation continues: the prompt and the tokens generated so
 * far. */
struct wanted {
    int32_t *ids;
    size_t count;
};

struct work {
    const struct loaded *loaded;
    struct conversation *conversation;
    const struct answer_settings *settings;
    struct answer *answer;
    struct text_output output;
    struct wanted wanted;
    double start;
};

static uint32_t context_of(const struct work *work)
{
    return salvo_engine_info(work->loaded->engine)->context;
}

/* The prompt without the oldest `dropped` turns, followed by `generated`. */
static int prepare_ids(struct work *work, size_t dropped, const int32_t *generated, size_t generated_count)
{
    int32_t *prompt;
    size_t count;
    int result = conversation_tokens(work->conversation, dropped, &prompt, &count);
    if (result != EXIT_DONE)
        return result;
    int32_t *ids = malloc((count + generated_count) * sizeof *ids);
    if (ids) {
        memcpy(ids, prompt, count * sizeof *ids);
        if (generated_count)
            memcpy(ids + count, generated, generated_count * sizeof *ids);
    }
    salvo_free(prompt);
    if (!ids)
        return failure("out of memory");
    free(work->wanted.ids);
    work->wanted.ids = ids;
    work->wanted.count = count + generated_count;
    return EXIT_DONE;
}

/* As prepare_ids, after dropping turns until a quarter of the context is free. With less free space nearly
 * every turn would recompute the whole prompt. If the prompt does not fit even so, no turn is dropped and
 * *out_fits is false. */
static int prepare_slid(struct work *work, const int32_t *generated, size_t generated_count, bool *out_fits)
{
    const uint32_t context = context_of(work);
    const size_t turns = conversation_turns(work->conversation);
    size_t dropped = 0;
    *out_fits = false;
    while (dropped + 1 < turns) {
        int result = prepare_ids(work, ++dropped, generated, generated_count);
        if (result != EXIT_DONE)
            return result;
        if (work->wanted.count <= context - context / 4)
            break;
    }
    if (dropped && work->wanted.count < context) {
        conversation_drop_oldest(work->conversation, dropped);
        work->answer->dropped += (uint32_t)dropped;
        *out_fits = true;
    }
    return EXIT_DONE;
}

/* Brings the session to the wanted tokens: rolls back to the common prefix and computes the rest. */
static enum salvo_status feed(struct work *work)
{
    struct salvo_session *session = work->loaded->session;
    const struct wanted *wanted = &work->wanted;
    const struct token_overlap overlap =
        find_token_overlap(work->loaded->model, session, wanted->ids, wanted->count);
    enum salvo_status status = salvo_session_rollback(session, overlap.kept);
    /* /undo and /regen return to these marks. Sampling needs the logits of the last token, so it is computed
     * again. */
    if (status == SALVO_OK)
        status = salvo_session_mark(session);
    if (status == SALVO_OK && overlap.next + 1 < wanted->count) {
        status = salvo_session_feed(session, wanted->ids + overlap.next, wanted->count - 1 - overlap.next);
        if (status == SALVO_OK)
            status = salvo_session_mark(session);
    }
    return status == SALVO_OK ? salvo_session_feed(session, wanted->ids + wanted->count - 1, 1) : status;
}

/* Feeds and counts. A Ctrl-C that arrived too late for the previous answer must not stop this one. */
static enum salvo_status feed_counted(struct work *work)
{
    struct answer_counts *counts = &work->answer->counts;
    const uint64_t before = counters_of(work->loaded->engine).tokens;
    const double start = seconds_now();
    enum salvo_status status = feed(work);
    if (status == SALVO_ERROR_CANCELLED && !interrupt_pending())
        status = feed(work);
    const uint64_t computed = counters_of(work->loaded->engine).tokens - before;
    counts->prefill += seconds_now() - start;
    counts->computed += computed;
    if (status == SALVO_OK)
        counts->reused += work->wanted.count > computed ? work->wanted.count - computed : 0;
    return status;
}

static enum salvo_status generate(struct work *work, uint32_t *out_count)
{
    const struct answer_settings *settings = work->settings;
    struct answer_counts *counts = &work->answer->counts;
    const struct salvo_stops *stops = salvo_template_stops(work->conversation->template);
    const struct salvo_generate_options options = {
        .size = sizeof(struct salvo_generate_options),
        .ahead = generate_flags.ahead,
        .max_tokens = settings->max_tokens ? settings->max_tokens - (uint32_t)counts->generated : 0,
        .stop_ids = stops->ids,
        .stop_id_count = stops->id_count,
        .token = text_output_token,
        .user = &work->output,
    };
    struct salvo_generate_result result = SALVO_GENERATE_RESULT_INIT;
    work->output.answer_begins = salvo_session_position(work->loaded->session) - (uint32_t)counts->generated;
    const uint64_t before = counters_of(work->loaded->engine).tokens;
    const double start = seconds_now();
    enum salvo_status status = salvo_session_generate(work->loaded->session, &options, &result);
    counts->decode += seconds_now() - start;
    counts->decoded += counters_of(work->loaded->engine).tokens - before;
    counts->generated += result.tokens;
    text_output_generated(&work->output, &result);
    work->answer->finish = result.finish;
    work->answer->loop = work->output.loop;
    *out_count = result.tokens;
    return status;
}

/* Drops turns after the context became full within an answer. *out_fits is false if none can be dropped. */
static int slide_on(struct work *work, bool *out_fits)
{
    const struct salvo_session *session = work->loaded->session;
    const uint32_t count = (uint32_t)work->answer->counts.generated;
    const int32_t *tokens = salvo_session_tokens(session) + salvo_session_position(session) - count;
    int32_t *generated = malloc((count + 1) * sizeof *generated);
    if (!generated)
        return failure("out of memory");
    memcpy(generated, tokens, count * sizeof *generated);
    int result = prepare_slid(work, generated, count, out_fits);
    free(generated);
    return result;
}

static int write_answer(struct work *work)
{
    for (;;) {
        uint32_t count;
        enum salvo_status status = feed_counted(work);
        if (status == SALVO_ERROR_CANCELLED) {
            work->answer->finish = SALVO_FINISH_CANCELLED;
            return EXIT_DONE;
        }
        if (status != SALVO_OK || generate(work, &count) != SALVO_OK)
            return library_failure();
        bool fits = false;
        if (work->answer->finish == SALVO_FINISH_CONTEXT && work->settings->on_full == ON_FULL_SLIDE) {
            int result = slide_on(work, &fits);
            if (result != EXIT_DONE)
                return result;
        }
        if (!fits)
            return EXIT_DONE;
    }
}

/* The error for a prompt that does not fit the context. */
static int no_room(const struct work *work)
{
    const uint32_t context = context_of(work);
    if (work->settings->on_full == ON_FULL_SLIDE || conversation_turns(work->conversation) == 1) {
        return failure("the message does not fit: it makes a prompt of %zu tokens, the context has %" PRIu32
                       "; -c N enlarges it",
            work->wanted.count, context);
    }
    return failure(
        "the context is full: with this message the prompt has %zu tokens, the context %" PRIu32
        ". /undo and /clear make room, --on-full slide drops the oldest turns, -c N enlarges the context",
        work->wanted.count, context);
}

int answer_question(const struct loaded *loaded, struct conversation *conversation,
    const struct answer_settings *settings, struct answer *out)
{
    struct work work = {
        .loaded = loaded,
        .conversation = conversation,
        .settings = settings,
        .answer = out,
        .output = {.show = true,
            .keep = true,
            .skip_blanks = true,
            .wrap = true,
            .watched = generate_flags.allow_loops ? NULL : loaded->session},
        .start = seconds_now(),
    };
    *out = (struct answer){0};
    int result = prepare_ids(&work, 0, NULL, 0);
    bool fits = work.wanted.count < context_of(&work);
    if (result == EXIT_DONE && !fits && settings->on_full == ON_FULL_SLIDE)
        result = prepare_slid(&work, NULL, 0, &fits);
    if (result == EXIT_DONE && !fits)
        result = no_room(&work);
    if (result == EXIT_DONE)
        result = text_output_open(&work.output, settings->stops);
    if (result == EXIT_DONE) {
        interrupt_take();
        interrupt_catch_each(loaded->session);
        result = write_answer(&work);
        interrupt_catch_each(NULL);
    }
    if (result == EXIT_DONE) {
        text_output_end(&work.output);
        if (work.output.error)
            result = failure("cannot write the text: %s", strerror(work.output.error));
    }
    if (work.output.first > 0)
        out->counts.first_text = work.output.first - work.start;
    if (work.output.last && work.output.last != '\n')
        putchar('\n');
    fflush(stdout);
    const size_t size = work.output.size;
    if (result == EXIT_DONE && (size || out->finish != SALVO_FINISH_CANCELLED)) {
        result = conversation_add(conversation, "assistant", size ? work.output.text : "", size);
        out->is_kept = result == EXIT_DONE;
    }
    text_output_close(&work.output);
    free(work.wanted.ids);
    return result;
}
