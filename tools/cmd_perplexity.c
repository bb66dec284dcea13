#include "commands.h"
#include "engine_flags.h"
#include "json_output.h"
#include "measure.h"
#include "models.h"
#include "progress.h"
#include "text_stream.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static struct {
    const char *file;
    bool second_half;
} options;

static const struct option option_table[] = {
    MODEL_OPTION(&engine_flags.model),
    CONTEXT_OPTION("tokens per window; also the context size (default: 512)"),
    {'f', "file", "FILE", OPTION_FILE, &options.file, "file with the text; -: standard input (default)"},
    {0, "second-half", NULL, OPTION_FLAG, &options.second_half,
        "score only the second half of each full window, as llama.cpp does"},
    {0},
};

enum { DEFAULT_WINDOW = 512 };

struct scoring {
    const int32_t *ids;                /* of the window */
    uint32_t count, first, vocabulary; /* ids from first + 1 on are scored */
    double sum, squares;
    uint64_t scored;
};

/* -log of the probability of `id`. */
static double loss(const float *logits, uint32_t vocabulary, int32_t id)
{
    float largest = logits[0];
    for (uint32_t i = 1; i < vocabulary; i++) {
        if (logits[i] > largest)
            largest = logits[i];
    }
    double sum = (double)expf(logits[0] - largest);
    for (uint32_t i = 1; i < vocabulary; i++)
        sum += (double)expf(logits[i] - largest);
    return log(sum) - (double)(logits[id] - largest);
}

static bool score_row(void *user, uint32_t position, const float *logits)
{
    struct scoring *scoring = user;
    if (position < scoring->first || position + 1 >= scoring->count)
        return true;
    double nll = loss(logits, scoring->vocabulary, scoring->ids[position + 1]);
    scoring->sum += nll;
    scoring->squares += nll * nll;
    scoring->scored++;
    return true;
}

/* The last id of a window is scored but not fed: nothing follows it. */
static enum salvo_status score_window(struct salvo_session *session, struct scoring *scoring)
{
    uint32_t fed = scoring->count - 1;
    enum salvo_status status = salvo_session_rollback(session, 0);
    if (status == SALVO_OK && scoring->first)
        status = salvo_session_feed(session, scoring->ids, scoring->first);
    if (status == SALVO_OK)
        status = salvo_session_eval(
            session, scoring->ids + scoring->first, fed - scoring->first, score_row, scoring);
    return status;
}

struct result {
    double mean, error, seconds;
    uint64_t scored, tokens, windows;
};

static struct result summarise(const struct scoring *scoring)
{
    struct result result = {.scored = scoring->scored};
    double n = (double)scoring->scored;
    if (scoring->scored) {
        result.mean = scoring->sum / n;
        double variance = scoring->squares / n - result.mean * result.mean;
        result.error = scoring->scored > 1 && variance > 0 ? sqrt(variance / (n - 1)) : 0;
    }
    return result;
}

static void report(const struct result *result)
{
    double perplexity = exp(result->mean), speed = rate((double)result->tokens, result->seconds);
    if (!output_flags.json) {
        printf("mean NLL     %.5f ± %.5f over %" PRIu64 " tokens in %" PRIu64 " window%s\n"
               "perplexity   %.4f ± %.4f\n"
               "speed        %.1f tok/s\n",
            result->mean, result->error, result->scored, result->windows, result->windows == 1 ? "" : "s",
            perplexity, perplexity * result->error, speed);
        return;
    }
    struct json_writer json = json_output();
    json_begin(&json, '{');
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"nll", result->mean}, {"nll_error", result->error}, {"perplexity", perplexity},
        {"perplexity_error", perplexity * result->error}, {"ts", speed}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        json_key(&json, numbers[i].key);
        json_float(&json, numbers[i].value, false);
    }
    json_key(&json, "tokens");
    json_unsigned(&json, result->scored);
    json_key(&json, "windows");
    json_unsigned(&json, result->windows);
    json_end(&json, '}');
    putchar('\n');
}

/* The beginning-of-text token, or -1 when the model does not want one. */
static int32_t beginning(struct salvo_model *model)
{
    unsigned flags;
    int32_t *ids = NULL, id = -1;
    size_t count;
    if (salvo_tokenize_default_flags(model, &flags) == SALVO_OK && (flags & SALVO_TOKENIZE_BOS) &&
        salvo_tokenize(model, "", 0, SALVO_TOKENIZE_BOS, &ids, &count) == SALVO_OK && count == 1)
        id = ids[0];
    salvo_free(ids);
    return id;
}

/* With --second-half, as in llama.cpp, BOS replaces the first token of each window and an incomplete last
 * window is left out. */
static int score_stream(struct loaded *loaded, struct text_stream *stream, uint32_t window)
{
    struct scoring scoring = {.vocabulary = salvo_engine_info(loaded->engine)->vocabulary};
    int32_t first_id = options.second_half ? beginning(loaded->model) : -1, *ids;
    uint64_t windows = 0, tokens = 0;
    double start = seconds_now();
    for (;;) {
        uint32_t count;
        int result = text_stream_next(stream, window, &ids, &count);
        if (result != EXIT_DONE)
            return result;
        if (count < (options.second_half ? window : 2))
            break;
        if (first_id >= 0)
            ids[0] = first_id;
        scoring.ids = ids;
        scoring.count = count;
        scoring.first = options.second_half ? window / 2 : 0;
        if (score_window(loaded->session, &scoring) != SALVO_OK)
            return library_failure();
        windows++;
        tokens += count;
        struct result so_far = summarise(&scoring);
        char bar[32];
        progress_show("%s perplexity %.3f after %" PRIu64 " window%s",
            progress_bar(text_stream_share(stream), bar), exp(so_far.mean), windows, windows == 1 ? "" : "s");
    }
    progress_clear();
    if (scoring.scored == 0)
        return failure("the text is too short: %s",
            options.second_half ? "it has less than one window of tokens" : "it needs at least two tokens");
    struct result result = summarise(&scoring);
    result.seconds = seconds_now() - start;
    result.tokens = tokens;
    result.windows = windows;
    report(&result);
    return EXIT_DONE;
}

static int run(int count, char **arguments)
{
    (void)count;
    (void)arguments;
    struct loaded loaded = {0};
    struct text_stream stream = {0};
    struct salvo_engine_options engine_options;
    uint32_t window = engine_flags.context ? engine_flags.context : DEFAULT_WINDOW;
    int result = engine_options_from_flags(&engine_options);
    if (result == EXIT_DONE && window < (options.second_half ? 3 : 2))
        result = usage_error("perplexity: invalid -c %" PRIu32 ": a window needs %s tokens", window,
            options.second_half ? "three" : "two");
    if (result == EXIT_DONE) {
        engine_options.context = window;
        result = open_model(engine_flags.model, &loaded.model);
    }
    if (result == EXIT_DONE)
        result = text_stream_open(loaded.model, options.file, &stream);
    if (result == EXIT_DONE)
        result = load_engine(&loaded, &engine_options);
    if (result == EXIT_DONE)
        result = score_stream(&loaded, &stream, window);
    text_stream_close(&stream);
    unload(&loaded);
    return result;
}

const struct command perplexity_command = {
    .name = "perplexity",
    .summary = "measure how well a model predicts a text",
    .details = "The text is split into windows of -c tokens. All tokens of a window but the "
               "first are scored.",
    .options = option_table,
    .shared = {engine_flag_table + ENGINE_FLAGS_AFTER_CONTEXT, output_flag_table},
    .run = run,
};
