#include "chat.h"

#include "command.h"
#include "interrupt.h"
#include "measure.h"
#include "output_file.h"
#include "sampler_flags.h"
#include "terminal.h"
#include "text_output.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_counts(struct answer_counts *sum, const struct answer_counts *counts)
{
    sum->computed += counts->computed;
    sum->reused += counts->reused;
    sum->generated += counts->generated;
    sum->first_text += counts->first_text;
    sum->prefill += counts->prefill;
    sum->decode += counts->decode;
}

/* Two lines of statistics about `answers` answers; `how` is appended to the second. */
static void print_counts(
    const struct chat *chat, const struct answer_counts *counts, uint32_t answers, const char *how)
{
    fprintf(stderr,
        "%sprompt: %" PRIu64 " tokens computed, %" PRIu64 " reused, %.1f tok/s; first text after %.0f ms\n"
        "answer: %" PRIu64 " tokens, %.1f tok/s%s; context: %" PRIu32 " of %" PRIu32 "%s\n",
        colour(stderr, COLOUR_DIM), counts->computed, counts->reused,
        rate((double)counts->computed, counts->prefill), rate(counts->first_text * 1e3, answers),
        counts->generated, rate((double)counts->generated, counts->decode), how,
        salvo_session_position(chat->loaded.session), salvo_engine_info(chat->loaded.engine)->context,
        colour(stderr, COLOUR_OFF));
}

void chat_print_totals(const struct chat *chat)
{
    char memory[32];
    fprintf(stderr, "%s%" PRIu32 " answers, seed %" PRIu64 ", peak memory %s%s\n", colour(stderr, COLOUR_DIM),
        chat->answers, chat->sampler.seed, format_bytes(peak_memory(), memory), colour(stderr, COLOUR_OFF));
    print_counts(chat, &chat->totals, chat->answers, "");
}

/* Reports dropped turns and an answer that the model did not end itself. */
static void tell_about(const struct chat *chat, const struct salvo_answer *answer, uint32_t loop)
{
    if (answer->dropped)
        chat_notice(chat, "the context was full: the oldest %s no longer in it",
            answer->dropped == 1 ? "turn is" : "turns are");
    switch (answer->finish) {
    case SALVO_FINISH_CONTEXT:
        chat_notice(chat,
            "the context of %" PRIu32 " tokens is full: the answer ends here; /undo or /clear make room%s",
            salvo_engine_info(chat->loaded.engine)->context,
            chat->slides ? ", -c N enlarges the context"
                         : ", --on-full slide drops the oldest turns, -c N enlarges the context");
        break;
    case SALVO_FINISH_CANCELLED:
        chat_notice(chat, answer->kept ? "stopped" : "stopped before the first token of the answer");
        break;
    case SALVO_FINISH_LENGTH:
        chat_notice(chat, "the answer ends after %" PRIu32 " tokens (-n)", generate_flags.tokens);
        break;
    case SALVO_FINISH_CALLBACK:
        if (loop)
            chat_notice(chat, LOOP_WARNING, loop);
        break;
    default:
        break;
    }
}

/* Answers, and prints the text as it comes. */
static int answer(struct chat *chat, bool again, struct text_output *output, struct salvo_answer *out)
{
    if (chat->tools.form)
        return chat_tools_answer(chat, output, out);
    const struct salvo_answer_options options = {
        .size = sizeof options,
        .stop_strings = chat->stops.all,
        .stop_count = chat->stops.count,
        .max_tokens = generate_flags.tokens,
        .ahead = generate_flags.ahead,
        .again = again,
        .text = text_output_text,
        .token = text_output_watch,
        .user = output,
    };
    enum salvo_status status;
    interrupt_take();
    interrupt_catch_each(chat->loaded.session);
    do { /* a Ctrl-C that came too late for the last answer must not stop this one */
        status = salvo_chat_answer(chat->conversation, chat->loaded.session, &options, out);
    } while (
        status == SALVO_OK && out->finish == SALVO_FINISH_CANCELLED && !out->kept && !interrupt_pending());
    interrupt_catch_each(NULL);
    return status == SALVO_OK ? EXIT_DONE : chat_answer_failure(chat, status);
}

/* Answers the last message, or answers it again. *out_kept: the answer was added. */
static int answer_last(struct chat *chat, bool again, bool *out_kept)
{
    struct salvo_answer said = SALVO_ANSWER_INIT;
    *out_kept = false;
    int result = sampler_from_flags(chat->loaded.model, chat->loaded.session, &chat->sampler);
    if (result != EXIT_DONE)
        return result;
    const double start = seconds_now();
    struct text_output output = {
        .show = true, .skip_blanks = true, .wrap = true, .watch_loops = !generate_flags.allow_loops};
    result = answer(chat, again, &output, &said);
    if (output.last && output.last != '\n')
        putchar('\n');
    fflush(stdout);
    if (result != EXIT_DONE)
        return result;
    *out_kept = said.kept;
    if (output.error)
        return failure("cannot write the text: %s", strerror(output.error));
    const uint32_t loop = said.finish == SALVO_FINISH_CALLBACK ? output.loop : 0;
    const struct answer_counts counts = {
        .computed = said.computed,
        .reused = said.reused,
        .generated = said.tokens,
        .first_text = output.first > 0 ? output.first - start : 0,
        .prefill = said.prompt_seconds,
        .decode = said.decode_seconds,
    };
    chat->answers += said.kept;
    add_counts(&chat->totals, &counts);
    tell_about(chat, &said, loop);
    if (generate_flags.stats) {
        char how[32];
        snprintf(how, sizeof how, ", ended by: %s", finish_or_loop(said.finish, loop));
        print_counts(chat, &counts, 1, how);
    }
    if (chat->interactive)
        fputc('\n', stderr);
    return EXIT_DONE;
}

/* Answers the last message, and goes on after calls until an answer has none. *out_kept: all answers were
 * added. */
static int answer_turn(struct chat *chat, bool *out_kept)
{
    int result;
    do {
        result = answer_last(chat, false, out_kept);
        if (result != EXIT_DONE || !*out_kept || !chat->call_count)
            break;
        result = chat_tools_ask(chat);
        *out_kept = false;
    } while (result == EXIT_DONE);
    chat_tools_forget(chat);
    return result;
}

int chat_ask(struct chat *chat, const char *text, size_t size)
{
    const struct salvo_message message = {.role = "user", .content = {text, size}};
    bool kept = false;
    if (salvo_chat_add(chat->conversation, &message, 1, sizeof message) != SALVO_OK)
        return library_failure();
    int result = answer_turn(chat, &kept);
    if (!kept) /* many templates refuse two messages of the user in a row */
        salvo_chat_cut(chat->conversation, chat_question(chat));
    return result;
}

/* An answer with calls and their results is replaced by one that may have others. */
static int answer_turn_again(struct chat *chat)
{
    const struct salvo_messages messages = salvo_chat_messages(chat->conversation);
    const size_t first = chat_question(chat) + 1, count = messages.count - first;
    struct salvo_chat *copy = NULL; /* keeps the messages in case that there is no other answer */
    bool kept = false;
    int result = EXIT_DONE;
    if (salvo_chat_open(chat->loaded.model, NULL, &copy) != SALVO_OK ||
        salvo_chat_add(copy, messages.items + first, count, messages.item_size) != SALVO_OK) {
        result = library_failure();
    } else {
        salvo_chat_cut(chat->conversation, first);
        result = answer_turn(chat, &kept);
        if (!kept)
            salvo_chat_cut(chat->conversation, chat_question(chat) + 1);
        if (!kept && salvo_chat_add(chat->conversation, salvo_chat_messages(copy).items, count,
                         messages.item_size) != SALVO_OK)
            result = library_failure();
    }
    salvo_chat_close(copy);
    return result;
}

int chat_answer_again(struct chat *chat)
{
    if (chat_question(chat) + 1 >= salvo_chat_messages(chat->conversation).count)
        return usage_error("/regen: no answer yet");
    if (chat->sampler.temperature > 0)
        sampler_flags_next_seed();
    else
        chat_notice(chat, "at temperature 0 the answer is always the same; /set temp 0.8 samples");
    bool kept;
    return chat->tools.form ? answer_turn_again(chat) : answer_last(chat, true, &kept);
}

int chat_undo(struct chat *chat)
{
    const struct salvo_messages messages = salvo_chat_messages(chat->conversation);
    const size_t question = chat_question(chat);
    if (question == messages.count)
        return usage_error("/undo: no message yet");
    const struct salvo_text text = messages.items[question].content;
    fputs(colour(stderr, COLOUR_DIM), stderr);
    fputs("(removed: ", stderr);
    print_safely(stderr, text.data, text.size > 60 ? 60 - salvo_utf8_incomplete(text.data, 60) : text.size);
    fprintf(stderr, "%s)%s\n", text.size > 60 ? "..." : "", colour(stderr, COLOUR_OFF));
    salvo_chat_cut(chat->conversation, question);
    return EXIT_DONE;
}

int chat_save(struct chat *chat, const char *path, bool force)
{
    bool replace;
    int result = output_file_check(path, chat->loaded.model, force, "/save!", &replace);
    if (result != EXIT_DONE)
        return result;
    if (salvo_chat_save_file(chat->conversation, chat->loaded.session, path, replace) != SALVO_OK)
        return library_failure();
    output_file_own(path);
    return EXIT_DONE;
}
