/* Answers with calls, and the results of these calls. */
#include "chat.h"

#include "chat_input.h"
#include "command.h"
#include "constrained.h"
#include "interrupt.h"
#include "measure.h"
#include "terminal.h"

#include <salvo/memory.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One answer while it is generated. */
struct round {
    struct chat *chat;
    struct text_output *shown;
    struct salvo_tool_parser *parser;
    struct buffer text;               /* as the model wrote it */
    struct buffer content, reasoning; /* its parts */
    struct buffer calls;              /* a JSON array for the template */
    struct json_writer out;           /* to `calls` */
    bool reasons;                     /* the last text was reasoning */
};

static enum salvo_status write_to_buffer(void *user, const char *data, size_t size)
{
    return buffer_append(user, data, size);
}

void chat_tools_forget(struct chat *chat)
{
    for (size_t i = 0; i < chat->call_count; i++)
        free(chat->calls[i].name);
    free(chat->calls);
    chat->calls = NULL;
    chat->call_count = 0;
}

/* ---- Calls ---- */

static bool keep_call(struct chat *chat, struct salvo_text name)
{
    struct chat_call *more = realloc(chat->calls, (chat->call_count + 1) * sizeof *more);
    if (!more)
        return false;
    chat->calls = more;
    struct chat_call *call = &more[chat->call_count];
    call->name = strndup(name.data, name.size);
    if (!call->name)
        return false;
    /* Nine letters and digits: some templates refuse other ids. */
    const size_t number = salvo_chat_messages(chat->conversation).count * 100 + chat->call_count;
    snprintf(call->id, sizeof call->id, "call%05zu", number % 100000);
    chat->call_count++;
    return true;
}

/* Prints a call as a line of JSON. */
static bool show_call(struct round *round, const struct salvo_tool_event *event)
{
    struct buffer line = {0};
    struct json_writer json = {
        .write = write_to_buffer, .user = &line, .item_separator = ", ", .key_separator = ": "};
    tool_write_call(&json, event->name, event->arguments);
    bool ok = json.status == SALVO_OK && buffer_append(&line, "\n", 1) == SALVO_OK;
    if (ok && round->shown->last && round->shown->last != '\n')
        ok = text_output_text(round->shown, "\n", 1);
    ok = ok && text_output_text(round->shown, line.data, line.size);
    buffer_free(&line);
    return ok;
}

/* Appends a call to the array. */
static bool add_call(struct round *round, const struct salvo_tool_event *event)
{
    struct json_writer *json = &round->out;
    const bool is_text = salvo_tool_form_info(round->chat->tools.form)->arguments_are_text;
    char *arguments = strndup(event->arguments.data, event->arguments.size);
    if (!arguments || !keep_call(round->chat, event->name)) {
        free(arguments);
        return false;
    }
    json_begin(json, '{');
    json_key(json, "id");
    json_string(json, round->chat->calls[round->chat->call_count - 1].id);
    json_key(json, "type");
    json_string(json, "function");
    json_key(json, "function");
    json_begin(json, '{');
    json_key(json, "name");
    json_text(json, event->name);
    json_key(json, "arguments");
    if (is_text)
        json_string(json, arguments);
    else
        json_raw(json, arguments);
    json_end(json, '}');
    json_end(json, '}');
    free(arguments);
    return json->status == SALVO_OK && show_call(round, event);
}

static bool take_event(struct round *round, const struct salvo_tool_event *event)
{
    const bool reasons = event->kind == SALVO_TOOL_REASONING;
    switch (event->kind) {
    case SALVO_TOOL_CALL:
    case SALVO_TOOL_ARGUMENTS:
        return true;
    case SALVO_TOOL_CALL_END:
        return add_call(round, event);
    default: /* text of any kind, also of a call that is none */
        if (round->reasons && !reasons && !text_output_text(round->shown, "\n", 1))
            return false;
        round->reasons = reasons;
        if (event->text.size && buffer_append(reasons ? &round->reasoning : &round->content, event->text.data,
                                    event->text.size) != SALVO_OK)
            return false;
        return text_output_text(round->shown, event->text.data, event->text.size);
    }
}

static bool take_text(struct round *round, const char *text, size_t size, bool last)
{
    struct salvo_tool_event event = {0};
    if (salvo_tool_parser_push(round->parser, text, size, last) != SALVO_OK)
        return false;
    for (;;) {
        if (salvo_tool_parser_next(round->parser, &event) != SALVO_OK)
            return false;
        if (event.kind == SALVO_TOOL_NOTHING)
            return true;
        if (!take_event(round, &event))
            return false;
    }
}

/* A salvo_text_function. */
static bool on_text(void *user, const char *text, size_t size)
{
    struct round *round = user;
    return buffer_append(&round->text, text, size) == SALVO_OK && take_text(round, text, size, false);
}

/* ---- Answers ---- */

static size_t count_turns(const struct chat *chat)
{
    const struct salvo_messages messages = salvo_chat_messages(chat->conversation);
    size_t turns = 0;
    for (size_t i = 0; i < messages.count; i++)
        turns += strcmp(messages.items[i].role, "user") == 0;
    return turns;
}

/* Brings the session to the prompt, all but its last token. */
static enum salvo_status feed(struct salvo_session *session, const int32_t *ids, size_t count)
{
    uint32_t kept;
    enum salvo_status status = salvo_session_prefill_cached(session, ids, count, &kept);
    if (status == SALVO_OK)
        status = salvo_session_mark(session);
    if (status == SALVO_OK && kept + 1 < count)
        status = salvo_session_feed(session, ids + kept, count - 1 - kept);
    return status == SALVO_OK ? salvo_session_mark(session) : status;
}

/* Generates within the grammar. */
static int generate(struct round *round, const int32_t *ids, size_t count, struct salvo_answer *out)
{
    const struct loaded *loaded = &round->chat->loaded;
    struct text_output reader = {
        .sink = on_text, .sink_user = round, .watch_loops = round->shown->watch_loops};
    struct salvo_generate_result result = SALVO_GENERATE_RESULT_INIT;
    const struct constrained constrained = {.model = loaded->model,
        .engine = loaded->engine,
        .session = loaded->session,
        .grammar = round->chat->grammar,
        .max_tokens = generate_flags.tokens,
        .output = &reader};
    const uint64_t before = counters_of(loaded->engine).tokens;
    const double start = seconds_now();
    enum salvo_status status = feed(loaded->session, ids, count);
    out->prompt_seconds = seconds_now() - start;
    out->computed = counters_of(loaded->engine).tokens - before + 1;
    out->reused = count > out->computed ? count - out->computed : 0;
    out->finish = SALVO_FINISH_CANCELLED;
    if (status != SALVO_OK)
        return status == SALVO_ERROR_CANCELLED ? EXIT_DONE : chat_answer_failure(round->chat, status);
    int failed = text_output_open(&reader, &round->chat->stops);
    if (failed == EXIT_DONE)
        failed = generate_constrained(&constrained, ids[count - 1], &result);
    text_output_generated(&reader, &result);
    text_output_end(&reader);
    if (failed == EXIT_DONE && (reader.error || !take_text(round, "", 0, true)) && !round->shown->error)
        failed = failure("cannot read the answer: %s", strerror(reader.error ? reader.error : ENOMEM));
    out->decode_seconds = seconds_now() - start - out->prompt_seconds;
    out->finish = result.finish;
    out->tokens = result.tokens;
    round->shown->loop = reader.loop;
    text_output_close(&reader);
    return failed;
}

/* The members of the answer's message beside role and content, which the template may use. */
static enum salvo_status write_members(const struct round *round, struct buffer *out)
{
    struct json_writer json = {.write = write_to_buffer, .user = out};
    json_begin(&json, '{');
    if (round->reasoning.size) {
        json_key(&json, "reasoning_content");
        json_text(&json, (struct salvo_text){round->reasoning.data, round->reasoning.size});
    }
    if (round->chat->call_count) {
        json_key(&json, "tool_calls");
        json_raw(&json, round->calls.data);
        if (!round->content.size && salvo_tool_form_info(round->chat->tools.form)->content_is_null) {
            json_key(&json, "content");
            json_null(&json);
        }
    }
    json_end(&json, '}');
    return json.status == SALVO_OK ? buffer_append(out, "", 1) : json.status;
}

/* Adds the calls to the text, for a template that does not write them. */
static enum salvo_status describe_calls(struct round *round)
{
    char *text = NULL;
    size_t size = 0;
    enum salvo_status status = salvo_tool_form_calls(
        round->chat->tools.form, round->calls.data, strlen(round->calls.data), &text, &size);
    if (status == SALVO_OK && round->content.size)
        status = buffer_append(&round->content, "\n\n", 2);
    if (status == SALVO_OK)
        status = buffer_append(&round->content, text, size);
    salvo_free(text);
    return status;
}

/* Puts the parts of the answer in the place of the text that the model wrote. */
static int divide_answer(struct round *round)
{
    struct salvo_chat *conversation = round->chat->conversation;
    struct buffer members = {0};
    enum salvo_status status = SALVO_OK;
    const bool writes_calls = salvo_tool_form_info(round->chat->tools.form)->writes_calls;
    if (round->chat->call_count && !writes_calls)
        status = describe_calls(round);
    else if (round->chat->call_count || round->reasoning.size)
        status = write_members(round, &members);
    const struct salvo_message message = {.role = "assistant",
        .content = {round->content.data ? round->content.data : "", round->content.size},
        .json = members.data};
    if (status == SALVO_OK) {
        salvo_chat_cut(conversation, salvo_chat_messages(conversation).count - 1);
        status = salvo_chat_add(conversation, &message, 1, sizeof message);
    }
    buffer_free(&members);
    return status == SALVO_OK ? EXIT_DONE : library_failure();
}

/* Adds the answer to the conversation. */
static int take_answer(struct round *round, const struct salvo_answer *answer)
{
    const struct chat *chat = round->chat;
    struct salvo_session *session = chat->loaded.session;
    const int32_t *ids = salvo_session_tokens(session) + salvo_session_position(session) - answer->tokens;
    json_end(&round->out, ']');
    if (round->out.status != SALVO_OK || buffer_append(&round->calls, "", 1) != SALVO_OK)
        return failure("out of memory");
    if (salvo_chat_take(chat->conversation, ids, answer->tokens, round->text.data ? round->text.data : "",
            round->text.size) != SALVO_OK)
        return library_failure();
    return divide_answer(round);
}

static int answer_once(struct round *round, struct salvo_answer *out)
{
    struct chat *chat = round->chat;
    const size_t turns = count_turns(chat);
    int32_t *ids = NULL;
    size_t count = 0;
    *out = (struct salvo_answer)SALVO_ANSWER_INIT;
    chat_tools_forget(chat);
    round->out = (struct json_writer){.write = write_to_buffer, .user = &round->calls};
    if (salvo_tool_parser_open(chat->tools.form, chat->tools.tools, chat->tools.size, &round->parser) !=
        SALVO_OK)
        return library_failure();
    enum salvo_status status =
        salvo_chat_prompt(chat->conversation, salvo_engine_info(chat->loaded.engine)->context, &ids, &count);
    if (status != SALVO_OK)
        return chat_answer_failure(chat, status);
    out->dropped = (uint32_t)(turns - count_turns(chat));
    json_begin(&round->out, '[');
    int result = generate(round, ids, count, out);
    salvo_free(ids);
    out->kept = result == EXIT_DONE && (round->text.size || out->finish != SALVO_FINISH_CANCELLED);
    if (out->kept)
        result = take_answer(round, out);
    if (result != EXIT_DONE)
        out->kept = 0;
    if (!out->kept)
        chat_tools_forget(chat);
    return result;
}

int chat_tools_answer(struct chat *chat, struct text_output *shown, struct salvo_answer *out)
{
    int result;
    bool again;
    interrupt_take();
    interrupt_catch_each(chat->loaded.session);
    do { /* a Ctrl-C that came too late for the last answer must not stop this one */
        struct round round = {.chat = chat, .shown = shown};
        result = answer_once(&round, out);
        again = result == EXIT_DONE && out->finish == SALVO_FINISH_CANCELLED && !out->kept &&
                !interrupt_pending();
        salvo_tool_parser_close(round.parser);
        buffer_free(&round.text);
        buffer_free(&round.content);
        buffer_free(&round.reasoning);
        buffer_free(&round.calls);
    } while (again);
    interrupt_catch_each(NULL);
    return result;
}

/* ---- Results ---- */

/* Adds the result of a call. A template that writes no calls gets it as a message of the user; the members
 * tell it from a message that the user wrote. */
static int add_result(struct chat *chat, const struct chat_call *call, const struct chat_message *given)
{
    static const char introduction[] = "Result of the call:\n\n";
    const bool is_tool = salvo_tool_form_info(chat->tools.form)->writes_calls;
    struct buffer members = {0}, content = {0};
    struct json_writer json = {.write = write_to_buffer, .user = &members};
    json_begin(&json, '{');
    json_key(&json, "tool_call_id");
    json_string(&json, call->id);
    json_key(&json, "name");
    json_string(&json, call->name);
    json_end(&json, '}');
    int result = EXIT_DONE;
    if (json.status != SALVO_OK || buffer_append(&members, "", 1) != SALVO_OK ||
        buffer_append(&content, introduction, is_tool ? 0 : sizeof introduction - 1) != SALVO_OK ||
        buffer_append(&content, given->text, given->size) != SALVO_OK) {
        result = failure("out of memory");
    } else {
        const struct salvo_message message = {.role = is_tool ? "tool" : "user",
            .content = {content.data ? content.data : "", content.size},
            .json = members.data};
        if (salvo_chat_add(chat->conversation, &message, 1, sizeof message) != SALVO_OK)
            result = library_failure();
    }
    buffer_free(&members);
    buffer_free(&content);
    return result;
}

int chat_tools_ask(struct chat *chat)
{
    for (size_t i = 0; i < chat->call_count; i++) {
        const struct chat_call *call = &chat->calls[i];
        struct chat_message given;
        char prompt[96];
        snprintf(prompt, sizeof prompt, "result of %.64s>", call->name);
        const enum line_result read = chat_input_read(chat->editor, prompt, &given);
        if (read == LINE_INTERRUPTED) {
            fputc('\n', stdout);
            chat_notice(chat, "no result of %s: the answer is not kept", call->name);
            return EXIT_FAILED;
        }
        if (read != LINE_READ) {
            chat->leaving = true;
            return failure(
                read == LINE_END ? "the input ends before the result of %s" : "cannot read the result of %s",
                call->name);
        }
        const int result = add_result(chat, call, &given);
        free(given.text);
        if (result != EXIT_DONE)
            return result;
    }
    return EXIT_DONE;
}
