#include "commands.h"
#include "constrained.h"
#include "engine_flags.h"
#include "escapes.h"
#include "generate_flags.h"
#include "grammar_flags.h"
#include "input.h"
#include "interrupt.h"
#include "json_output.h"
#include "loop_watch.h"
#include "measure.h"
#include "models.h"
#include "output_file.h"
#include "sampler_flags.h"
#include "terminal.h"
#include "text_output.h"
#include "tool_flags.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    const char *text, *file, *state_load, *state_save;
    bool chat, no_conversation, special, ignore_eos, force;
} options;

static const struct option option_table[] = {
    {'p', "prompt", "TEXT", OPTION_TEXT, &options.text,
        "the prompt; \\n"
        ", \\t, \\\", \\\\ and \\xHH are escapes"},
    {'f', "file", "FILE", OPTION_FILE, &options.file, "file with the prompt; no escapes"},
    {0, "chat", NULL, OPTION_FLAG, &options.chat,
        "format the prompt as a message with the model's chat template, and generate the answer",
        .also = "-st --single-turn"},
    {0, "no-conversation", NULL, OPTION_FLAG, &options.no_conversation, "continue the prompt (default)",
        .also = "-no-cnv"},
    {0, "special", NULL, OPTION_FLAG, &options.special,
        "parse control tokens in the prompt, and print generated ones"},
    {0, "ignore-eos", NULL, OPTION_FLAG, &options.ignore_eos, "ignore the end-of-text token and continue"},
    {0, "state-load", "FILE", OPTION_FILE, &options.state_load,
        "continue from a file of --state-save; the prompt may be empty"},
    {0, "state-save", "FILE", OPTION_FILE, &options.state_save,
        "save the tokens and the KV cache or recurrent state to FILE at the end"},
    {0, "tools", "FILE", OPTION_FILE, &tool_flags.file,
        "with --chat: tools that the answer may call, a JSON array as in OpenAI's requests; calls are "
        "printed as "
        "lines of JSON"},
    FORCE_OPTION(&options.force),
    {0},
};

struct prompt {
    int32_t *ids;
    size_t count;
    struct salvo_chat *chat; /* with --chat */
    struct salvo_stops template_stops;
    struct stop_strings stops;
    struct salvo_grammar *grammar; /* NULL: any text */
    struct tool_use tools;
};

struct statistics {
    double load, prefill, first_token, decode; /* seconds; first_token is NaN when there was none */
    uint64_t decoded, submissions;             /* after the prompt */
    struct salvo_sampler sampler;
    uint32_t prompt; /* computed tokens of the prompt: fewer than all after a cancellation */
};

/* Formats the text as a message of the user with the chat template. */
static int apply_template(struct salvo_model *model, const struct input *input, struct prompt *out)
{
    const struct salvo_message message = {.role = "user", .content = {input->data, input->size}};
    struct salvo_chat_options chat = SALVO_CHAT_OPTIONS_INIT;
    chat.json = tool_use_variables(&out->tools);
    if (salvo_chat_open(model, &chat, &out->chat) != SALVO_OK)
        return library_failure();
    int result = set_system_from_flags(out->chat);
    if (result == EXIT_DONE)
        result = tool_use_describe(&out->tools, out->chat);
    if (result != EXIT_DONE)
        return result;
    if (salvo_chat_add(out->chat, &message, 1, sizeof message) != SALVO_OK ||
        salvo_chat_prompt(out->chat, 0, &out->ids, &out->count) != SALVO_OK)
        return library_failure();
    out->template_stops = *salvo_chat_stops(out->chat);
    return EXIT_DONE;
}

static int tokenize(struct salvo_model *model, const struct input *input, struct prompt *out)
{
    unsigned flags;
    /* No BOS in a continued text, and no EOS: the model generates it. */
    const unsigned unwanted = SALVO_TOKENIZE_EOS | (options.state_load ? SALVO_TOKENIZE_BOS : 0);
    if (salvo_tokenize_default_flags(model, &flags) != SALVO_OK ||
        salvo_tokenize(model, input->data, input->size,
            (flags & ~unwanted) | (options.special ? SALVO_TOKENIZE_SPECIAL : 0), &out->ids,
            &out->count) != SALVO_OK)
        return library_failure();
    if (out->count == 0 && !options.state_load)
        return usage_error("run: the prompt has no tokens");
    return EXIT_DONE;
}

static int read_prompt(struct salvo_model *model, struct prompt *out)
{
    struct input input;
    int result = input_read(options.text, options.file, &input);
    if (result != EXIT_DONE)
        return result;
    if (options.text && !generate_flags.no_escape)
        input.size = unescape(input.data, input.size);
    if (options.text)
        result = input_prepend_standard_input(&input);
    if (result == EXIT_DONE && input.size == 0 && !options.state_load)
        result = usage_error("run: the prompt is empty");
    if (result == EXIT_DONE)
        result = options.chat ? apply_template(model, &input, out) : tokenize(model, &input, out);
    input_free(&input);
    return result;
}

static void print_statistics(const struct prompt *prompt, const struct salvo_generate_result *result,
    uint32_t loop, const struct statistics *statistics)
{
    char memory[32], first_token[32] = "none", whole[32] = "";
    if (statistics->prompt < prompt->count)
        snprintf(whole, sizeof whole, " of %zu", prompt->count);
    if (!isnan(statistics->first_token))
        snprintf(first_token, sizeof first_token, "%.0f ms", statistics->first_token * 1e3);
    fprintf(stderr,
        "prompt       %" PRIu32 "%s tokens, %.1f tok/s\n"
        "first token  %s, after %.0f ms to load\n"
        "generated    %" PRIu32 " tokens, %.1f tok/s, %.2f submissions per token; ended by: %s\n"
        "peak memory  %s\n"
        "seed         %" PRIu64 "\n",
        statistics->prompt, whole, rate(statistics->prompt, statistics->prefill), first_token,
        statistics->load * 1e3, result->tokens, rate((double)statistics->decoded, statistics->decode),
        rate((double)statistics->submissions, (double)statistics->decoded),
        finish_or_loop(result->finish, loop), format_bytes(peak_memory(), memory), statistics->sampler.seed);
}

/* An answer with calls: text, then a line of JSON for each call. */
static void print_text(void *user, struct salvo_text text, bool is_reasoning)
{
    struct text_output *shown = user;
    (void)is_reasoning;
    text_output_text(shown, text.data, text.size);
}

static void print_call(void *user, struct salvo_text name, struct salvo_text arguments)
{
    struct text_output *shown = user;
    struct json_writer json = json_output();
    if (shown->last && shown->last != '\n')
        putchar('\n');
    tool_write_call(&json, name, arguments);
    putchar('\n');
    shown->last = '\n';
}

static int print_answer(const struct prompt *prompt, const struct text_output *output)
{
    struct text_output shown = {.show = true, .skip_blanks = true};
    const struct tool_answer answer = {.text = print_text, .call = print_call, .user = &shown};
    return tool_use_read(&prompt->tools, (struct salvo_text){output->text, output->size}, &answer);
}

static void no_text(void *user, struct salvo_text text, bool is_reasoning)
{
    (void)user;
    (void)text;
    (void)is_reasoning;
}

static void write_call_item(void *user, struct salvo_text name, struct salvo_text arguments)
{
    tool_write_call(user, name, arguments);
}

static void write_json(const struct loaded *loaded, const struct prompt *prompt,
    const struct text_output *output, const struct salvo_generate_result *result,
    const struct statistics *statistics)
{
    struct json_writer json = json_output();
    const int32_t *ids =
        salvo_session_tokens(loaded->session) + salvo_session_position(loaded->session) - result->tokens;
    json_begin(&json, '{');
    json_key(&json, "text");
    json_text(&json, (struct salvo_text){output->text, output->size});
    json_key(&json, "ids");
    json_begin(&json, '[');
    for (uint32_t i = 0; i < result->tokens; i++)
        json_signed(&json, ids[i]);
    json_end(&json, ']');
    if (prompt->tools.form) {
        const struct tool_answer answer = {.text = no_text, .call = write_call_item, .user = &json};
        json_key(&json, "tool_calls");
        json_begin(&json, '[');
        (void)tool_use_read(&prompt->tools, (struct salvo_text){output->text, output->size}, &answer);
        json_end(&json, ']');
    }
    json_key(&json, "finish_reason");
    json_string(&json, finish_or_loop(result->finish, output->loop));
    json_key(&json, "prompt_tokens");
    json_unsigned(&json, statistics->prompt);
    json_key(&json, "tokens");
    json_unsigned(&json, result->tokens);
    json_key(&json, "seed");
    json_unsigned(&json, statistics->sampler.seed);
    json_key(&json, "timings");
    json_begin(&json, '{');
    const struct {
        const char *key;
        double value;
    } timings[] = {{"load_ms", statistics->load * 1e3}, {"prefill_ms", statistics->prefill * 1e3},
        {"first_token_ms", statistics->first_token * 1e3}, {"decode_ms", statistics->decode * 1e3},
        {"prefill_ts", rate(statistics->prompt, statistics->prefill)},
        {"decode_ts", rate((double)statistics->decoded, statistics->decode)},
        {"submissions_per_token", rate((double)statistics->submissions, (double)statistics->decoded)}};
    for (size_t i = 0; i < sizeof timings / sizeof *timings; i++) {
        json_key(&json, timings[i].key);
        json_float(&json, timings[i].value, true);
    }
    json_end(&json, '}');
    json_key(&json, "peak_memory");
    json_unsigned(&json, peak_memory());
    json_end(&json, '}');
    putchar('\n');
}

/* The last token of the prompt, which a constrained text needs: the token after it is chosen with a mask. */
static enum salvo_status take_last_token(
    struct salvo_session *session, const struct prompt *prompt, int32_t *out_last)
{
    const uint32_t position = salvo_session_position(session);
    if (prompt->count) {
        *out_last = prompt->ids[prompt->count - 1];
        return salvo_session_feed(session, prompt->ids, prompt->count - 1);
    }
    *out_last = salvo_session_tokens(session)[position - 1];
    return salvo_session_rollback(session, position - 1);
}

/* Computes the prompt and generates; a cancelled prompt counts as generation that was cancelled at once. */
static int generate(const struct loaded *loaded, const struct prompt *prompt, struct text_output *output,
    struct salvo_generate_result *result, struct statistics *statistics)
{
    struct salvo_session *session = loaded->session;
    const struct salvo_generate_options generate_options = {
        .size = sizeof(struct salvo_generate_options),
        .ahead = generate_flags.ahead,
        .max_tokens = generate_flags.tokens,
        .stop_ids = prompt->template_stops.ids,
        .stop_id_count = options.ignore_eos ? 0 : prompt->template_stops.id_count,
        .ignore_end = options.ignore_eos,
        .special = options.special,
        .token = text_output_token,
        .user = output,
    };
    const uint32_t position = salvo_session_position(session);
    output->watch_loops = options.chat && !generate_flags.allow_loops;
    const double start = seconds_now();
    int32_t last = -1;
    enum salvo_status status = prompt->grammar ? take_last_token(session, prompt, &last)
                                               : salvo_session_feed(session, prompt->ids, prompt->count);
    statistics->prefill = seconds_now() - start;
    statistics->prompt = prompt->grammar && status == SALVO_OK ? (uint32_t)prompt->count
                                                               : salvo_session_position(session) - position;
    struct salvo_counters before = counters_of(loaded->engine);
    double begin = seconds_now();
    if (status == SALVO_ERROR_CANCELLED) {
        result->finish = SALVO_FINISH_CANCELLED;
    } else if (status == SALVO_OK && prompt->grammar) {
        const struct constrained constrained = {.model = loaded->model,
            .engine = loaded->engine,
            .session = session,
            .grammar = prompt->grammar,
            .max_tokens = generate_flags.tokens,
            .output = output};
        int failed = generate_constrained(&constrained, last, result);
        if (failed != EXIT_DONE)
            return failed;
    } else if (status != SALVO_OK || salvo_session_generate(session, &generate_options, result) != SALVO_OK) {
        return library_failure();
    }

    text_output_generated(output, result);
    text_output_end(output);
    struct salvo_counters after = counters_of(loaded->engine);
    statistics->decode = seconds_now() - begin;
    statistics->first_token = output->first > 0                 ? output->first - start
                              : status == SALVO_ERROR_CANCELLED ? (double)NAN
                                                                : statistics->prefill;
    statistics->decoded = after.tokens - before.tokens;
    statistics->submissions = after.submissions - before.submissions;
    return output->error ? failure("cannot write the text: %s", strerror(output->error)) : EXIT_DONE;
}

/* Warns about a text that neither the model nor an option ended. */
static void tell_about_end(const struct salvo_generate_result *result, uint32_t loop, uint32_t context)
{
    if (output_flags.quiet)
        return;
    if (result->finish == SALVO_FINISH_CONTEXT) {
        fprintf(stderr,
            "salvo: warning: the context of %" PRIu32
            " tokens is full: the text ends here; -c N enlarges it\n",
            context);
    }
    if (loop)
        fprintf(stderr, "salvo: warning: " LOOP_WARNING "\n", loop);
}

static int save_state(struct loaded *loaded)
{
    bool replace;
    struct salvo_file *file = NULL;
    int result = output_file_check(options.state_save, loaded->model, options.force, "--force", &replace);
    if (result != EXIT_DONE)
        return result;
    interrupt_catch(NULL); /* a second interrupt does not leave a temporary file behind */
    if (salvo_file_open(options.state_save, replace, &file) != SALVO_OK ||
        salvo_session_state_write(loaded->session, file) != SALVO_OK || salvo_file_commit(file) != SALVO_OK)
        result = library_failure();
    salvo_file_close(file);
    interrupt_release();
    return result;
}

static int run_prompt(struct loaded *loaded, const struct prompt *prompt, struct statistics *statistics)
{
    const bool keeps = output_flags.json || prompt->tools.form;
    struct text_output output = {.show = !keeps, .keep = keeps, .skip_blanks = options.chat};
    struct salvo_generate_result generated = SALVO_GENERATE_RESULT_INIT;
    uint32_t context = salvo_engine_info(loaded->engine)->context;
    if (prompt->count > context)
        return failure("the prompt of %zu tokens does not fit the context of %" PRIu32 "; -c N enlarges it",
            prompt->count, context);
    int result = sampler_from_flags(loaded->model, loaded->session, &statistics->sampler);
    if (result != EXIT_DONE)
        return result;
    if (options.state_load && salvo_session_state_load_file(loaded->session, options.state_load) != SALVO_OK)
        return library_failure();
    if (prompt->count == 0 && salvo_session_position(loaded->session) == 0)
        return failure("%s: the state has no tokens, and the prompt is empty", options.state_load);
    if (output_flags.verbose)
        fprintf(stderr, "prompt of %zu tokens, seed %" PRIu64 "\n", prompt->count, statistics->sampler.seed);

    result = text_output_open(&output, &prompt->stops);
    if (result != EXIT_DONE)
        return result;
    interrupt_catch(loaded->session);
    result = generate(loaded, prompt, &output, &generated, statistics);
    interrupt_release();
    if (result == EXIT_DONE && prompt->tools.form && !output_flags.json)
        result = print_answer(prompt, &output);
    if (result == EXIT_DONE && output_flags.json)
        write_json(loaded, prompt, &output, &generated, statistics);
    else if (isatty(STDOUT_FILENO))
        putchar('\n'); /* the shell prompts on a new line */
    else if (generate_flags.stats)
        fputc('\n', stderr); /* in a log of both streams the statistics begin on a new line */
    if (result == EXIT_DONE)
        tell_about_end(&generated, output.loop, context);
    errno = 0;
    if (fflush(stdout) != 0 && result == EXIT_DONE)
        result = failure("cannot write the text: %s", strerror(errno ? errno : EIO));
    if (result == EXIT_DONE && options.state_save)
        result = save_state(loaded);
    if (result == EXIT_DONE && generate_flags.stats)
        print_statistics(prompt, &generated, output.loop, statistics);
    text_output_close(&output);
    return result == EXIT_DONE ? interrupt_status() : result;
}

/* Checks the state file before the model is loaded. */
static int check_state_file(const struct salvo_model *model)
{
    bool replace;
    if (options.state_load)
        output_file_own(options.state_load);
    int result = output_file_check(options.state_save, model, options.force, "--force", &replace);
    if (result == EXIT_DONE && salvo_file_check_writable(options.state_save) != SALVO_OK)
        result = library_failure();
    return result;
}

/* Options that make no sense together. */
static int check_options(void)
{
    if (options.chat && options.no_conversation)
        return usage_error("run: --chat and --no-conversation cannot be combined");
    if (generate_flags.system && !options.chat)
        return usage_error("run: --system needs --chat");
    if (options.chat && options.state_load)
        return usage_error("run: --chat and --state-load cannot be combined; `salvo chat` has /load");
    if (tool_flags.file && !options.chat)
        return usage_error("run: --tools needs --chat");
    if (tool_flags.file && has_grammar())
        return usage_error("run: --tools cannot be combined with a grammar");
    if ((has_grammar() || tool_flags.file) && options.ignore_eos)
        return usage_error(
            "run: --ignore-eos cannot be combined with a grammar, which may have to end the text");
    return EXIT_DONE;
}

/* TEXT after the model is the same as -p. */
static int take_text(int count, char **arguments)
{
    if (count > 1 || (count == 1 && options.text))
        return usage_error("run: unexpected argument '%s': put quotes around a prompt that contains spaces",
            arguments[options.text ? 0 : 1]);
    if (count == 1)
        options.text = arguments[0];
    return EXIT_DONE;
}

static int run(int count, char **arguments)
{
    struct loaded loaded = {0};
    struct salvo_engine_options engine_options;
    struct prompt prompt = {0};
    struct statistics statistics = {0};
    double start = seconds_now();
    int result = take_text(count, arguments);
    if (result == EXIT_DONE)
        result = check_options();
    if (result == EXIT_DONE)
        result = engine_options_from_flags(&engine_options);
    if (result == EXIT_DONE)
        result = open_model(engine_flags.model, &loaded.model);
    if (result == EXIT_DONE && options.state_save)
        result = check_state_file(loaded.model);
    if (result == EXIT_DONE)
        result = tool_use_open(loaded.model, &prompt.tools);
    if (result == EXIT_DONE)
        result = read_prompt(loaded.model, &prompt);
    if (result == EXIT_DONE)
        result = stop_strings_open(&prompt.template_stops, &prompt.stops);
    if (result == EXIT_DONE)
        result = prompt.tools.form ? tool_use_grammar(&prompt.tools, loaded.model, &prompt.grammar)
                                   : grammar_from_flags(loaded.model, false, &prompt.grammar);
    if (result == EXIT_DONE)
        result = load_engine(&loaded, &engine_options);
    statistics.load = seconds_now() - start;
    if (result == EXIT_DONE)
        result = run_prompt(&loaded, &prompt, &statistics);
    stop_strings_close(&prompt.stops);
    salvo_chat_close(prompt.chat);
    salvo_free(prompt.ids);
    salvo_grammar_free(prompt.grammar);
    tool_use_close(&prompt.tools);
    unload(&loaded);
    return result;
}

const struct command run_command = {
    .name = "run",
    .model = &engine_flags.model,
    .arguments = "[TEXT]",
    .summary = "continue a prompt, or answer one message (--chat)",
    .details = "Without TEXT, -p and -f, the prompt is standard input. With TEXT or -p, standard input is "
               "read to its end and\n"
               "put before it, unless it is a terminal or /dev/null. Only the generated text goes to "
               "standard output. Ctrl-C\n"
               "ends the text, prints the statistics of --stats and exits with status 130. The default "
               "sampling settings\n"
               "are the model's: `salvo info` shows them. For a conversation use `salvo chat`. With --tools "
               "the answer is printed\n"
               "when it is complete: its text, then each call as a line of JSON with name and arguments.",
    .options = option_table,
    .shared = {grammar_flag_table, generate_flag_table, sampler_flag_table, engine_flag_table,
        output_flag_table},
    .run = run,
};
