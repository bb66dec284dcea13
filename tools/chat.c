#include "chat.h"

#include "command.h"
#include "loop_watch.h"
#include "measure.h"
#include "output_file.h"
#include "sampler_flags.h"
#include "terminal.h"
#include "token_overlap.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void chat_notice(const struct chat *chat, const char *format, ...)
{
    if (output_flags.quiet && !chat->interactive)
        return;
    char line[4096];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    fprintf(stderr, "%s(", colour(stderr, COLOUR_DIM));
    print_safely(stderr, line, strlen(line));
    fprintf(stderr, ")%s\n", colour(stderr, COLOUR_OFF));
}

static void add_counts(struct answer_counts *sum, const struct answer_counts *counts)
{
    sum->computed += counts->computed;
    sum->reused += counts->reused;
    sum->generated += counts->generated;
    sum->decoded += counts->decoded;
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
        counts->generated, rate((double)counts->decoded, counts->decode), how,
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
static void tell_about(const struct chat *chat, const struct answer *answer)
{
    if (answer->dropped)
        chat_notice(chat, "the context was full: the oldest %s no longer in it",
            answer->dropped == 1 ? "turn is" : "turns are");
    switch (answer->finish) {
    case SALVO_FINISH_CONTEXT:
        chat_notice(chat,
            "the context of %" PRIu32 " tokens is full: the answer ends here; /undo or /clear make room%s",
            salvo_engine_info(chat->loaded.engine)->context,
            chat->settings.on_full == ON_FULL_STOP
                ? ", --on-full slide drops the oldest turns, -c N enlarges the context"
                : ", -c N enlarges the context");
        break;
    case SALVO_FINISH_CANCELLED:
        chat_notice(chat, answer->is_kept ? "stopped" : "stopped before the first token of the answer");
        break;
    case SALVO_FINISH_LENGTH:
        chat_notice(chat, "the answer ends after %" PRIu32 " tokens (-n)", chat->settings.max_tokens);
        break;
    case SALVO_FINISH_CALLBACK:
        if (answer->loop)
            chat_notice(chat, LOOP_WARNING, answer->loop);
        break;
    default:
        break;
    }
    if (generate_flags.stats) {
        char how[32];
        snprintf(how, sizeof how, ", ended by: %s", finish_or_loop(answer->finish, answer->loop));
        print_counts(chat, &answer->counts, 1, how);
    }
    if (chat->interactive)
        fputc('\n', stderr);
}

/* Answers the last message. *out_kept: the answer was added. */
static int answer_last(struct chat *chat, bool *out_kept)
{
    struct answer answer = {0};
    *out_kept = false;
    chat->has_leftovers = true; /* until the answer is added */
    int result = sampler_from_flags(chat->loaded.model, chat->loaded.session, &chat->sampler);
    if (result != EXIT_DONE)
        return result;
    result = answer_question(&chat->loaded, &chat->conversation, &chat->settings, &answer);
    *out_kept = result == EXIT_DONE && answer.is_kept;
    if (result != EXIT_DONE)
        return result;
    chat->answers += answer.is_kept;
    chat->has_leftovers = !answer.is_kept;
    add_counts(&chat->totals, &answer.counts);
    tell_about(chat, &answer);
    return EXIT_DONE;
}

int chat_ask(struct chat *chat, const char *text, size_t size)
{
    struct conversation *conversation = &chat->conversation;
    bool kept = false;
    int result = conversation_add(conversation, "user", text, size);
    if (result != EXIT_DONE)
        return result;
    result = answer_last(chat, &kept);
    if (!kept) /* many templates refuse two messages of the user in a row */
        conversation_cut(conversation, conversation_last_question(conversation));
    return result;
}

int chat_answer_again(struct chat *chat)
{
    struct conversation *conversation = &chat->conversation;
    const size_t question = conversation_last_question(conversation), answers = question + 1;
    if (question == conversation->count || conversation->count <= answers)
        return usage_error("/regen: no answer yet");
    struct salvo_messages before = {
        conversation->messages, conversation->count, sizeof *conversation->messages};
    struct conversation kept_before = {0};
    int result = conversation_replace(&kept_before, &before); /* a copy */
    if (result != EXIT_DONE)
        return result;
    conversation_cut(conversation, answers);
    if (chat->sampler.temperature > 0)
        sampler_flags_next_seed();
    else
        chat_notice(chat, "at temperature 0 the answer is always the same; /set temp 0.8 samples");
    bool kept = false;
    result = answer_last(chat, &kept);
    if (!kept) {
        before =
            (struct salvo_messages){kept_before.messages, kept_before.count, sizeof *kept_before.messages};
        conversation_replace(conversation, &before);
    }
    conversation_close(&kept_before);
    return result;
}

int chat_undo(struct chat *chat)
{
    struct conversation *conversation = &chat->conversation;
    size_t question = conversation_last_question(conversation);
    if (question == conversation->count)
        return usage_error("/undo: no message yet");
    const struct salvo_text text = conversation->messages[question].content;
    fputs(colour(stderr, COLOUR_DIM), stderr);
    fputs("(removed: ", stderr);
    print_safely(stderr, text.data, text.size > 60 ? 60 - salvo_utf8_incomplete(text.data, 60) : text.size);
    fprintf(stderr, "%s)%s\n", text.size > 60 ? "..." : "", colour(stderr, COLOUR_OFF));
    conversation_cut(conversation, question);
    chat->has_leftovers = true;
    return EXIT_DONE;
}

/*
 * Removes the tokens of removed messages from the session, so that they are not written to a file. The next
 * answer would also remove them; until then they stay, because the same message may be sent again.
 */
static enum salvo_status drop_leftovers(struct chat *chat)
{
    const struct conversation *conversation = &chat->conversation;
    const struct salvo_conversation said = {
        .size = sizeof(struct salvo_conversation),
        .message_size = sizeof(struct salvo_message),
        .messages = conversation->messages,
        .message_count = conversation->count,
        .no_generation_prompt = true,
    };
    int32_t *ids = NULL;
    size_t count = 0;
    uint32_t kept = 0;
    if (!chat->has_leftovers)
        return SALVO_OK;
    /* A template may refuse a conversation without a message of the user; the session is then emptied. */
    if (conversation->count && salvo_template_tokens(conversation->template, &said, &ids, &count) == SALVO_OK)
        kept = find_token_overlap(chat->loaded.model, chat->loaded.session, ids, count).kept;
    salvo_free(ids);
    enum salvo_status status = salvo_session_rollback(chat->loaded.session, kept);
    chat->has_leftovers = status != SALVO_OK;
    return status;
}

int chat_save(struct chat *chat, const char *path, bool force)
{
    const struct conversation *conversation = &chat->conversation;
    struct salvo_file *file = NULL;
    bool replace;
    int result = output_file_check(path, chat->loaded.model, force, "/save!", &replace);
    if (result != EXIT_DONE)
        return result;
    if (drop_leftovers(chat) != SALVO_OK || salvo_file_open(path, replace, &file) != SALVO_OK ||
        salvo_session_chat_write(chat->loaded.session, conversation->messages, conversation->count,
            sizeof *conversation->messages, file) != SALVO_OK ||
        salvo_file_commit(file) != SALVO_OK)
        result = library_failure();
    salvo_file_close(file);
    if (result == EXIT_DONE)
        output_file_own(path);
    return result;
}
