#include "commands.h"
#include "engine_flags.h"
#include "id_list.h"
#include "interrupt.h"
#include "json_output.h"
#include "output_file.h"
#include "terminal.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TOP = 10 };

static struct {
    const char *tokens, *logits;
    bool all, force;
} options;

static const struct option option_table[] = {
    {0, "tokens", "IDS|@FILE", OPTION_TEXT, &options.tokens,
        "token ids separated by commas, or a file with token ids"},
    {0, "logits", "FILE", OPTION_FILE, &options.logits,
        "write the logits as float32, one row per position; -: standard output"},
    {0, "all", NULL, OPTION_FLAG, &options.all, "logits of all positions instead of the last one only"},
    FORCE_OPTION(&options.force),
    {0},
};

struct evaluation {
    struct salvo_model *model;
    uint32_t vocabulary, last;
    /* Destination of the logits; if both are NULL, the top ten are printed. */
    struct salvo_file *file;
    FILE *stream;            /* standard output, a device or a FIFO */
    struct json_writer json; /* with --json */
    uint32_t written;        /* rows in the file */
    int error;               /* of writing to `stream`; 0: none */
    bool failed;             /* writing to `file` */
    bool has_nan_row;
    uint32_t nan_row; /* the first position whose logits are all NaN */
};

struct ranked {
    int32_t id;
    float logit;
};

/* Sorted by logit, largest first; the lower id first among equals. */
static size_t rank(const float *logits, uint32_t vocabulary, struct ranked top[TOP])
{
    size_t count = 0;
    for (uint32_t i = 0; i < vocabulary; i++) {
        if (isnan(logits[i]) || (count == TOP && !(logits[i] > top[TOP - 1].logit)))
            continue;
        size_t at = count < TOP ? count++ : TOP - 1;
        for (; at > 0 && logits[i] > top[at - 1].logit; at--)
            top[at] = top[at - 1];
        top[at] = (struct ranked){(int32_t)i, logits[i]};
    }
    return count;
}

static double log_sum(const float *logits, uint32_t vocabulary, float largest)
{
    double sum = isnan(logits[0]) ? 0 : exp((double)logits[0] - (double)largest);
    for (uint32_t i = 1; i < vocabulary; i++)
        sum += isnan(logits[i]) ? 0 : exp((double)logits[i] - (double)largest);
    return (double)largest + log(sum);
}

static void show_top(struct evaluation *evaluation, uint32_t position, const float *logits)
{
    struct ranked top[TOP];
    size_t count = rank(logits, evaluation->vocabulary, top);
    double total = count ? log_sum(logits, evaluation->vocabulary, top[0].logit) : 0;
    struct json_writer *json = &evaluation->json;
    if (count == 0 && !evaluation->has_nan_row) {
        evaluation->has_nan_row = true;
        evaluation->nan_row = position;
    }
    if (output_flags.json) {
        json_begin(json, '{');
        json_key(json, "position");
        json_unsigned(json, position);
        json_key(json, "top");
        json_begin(json, '[');
    } else {
        printf("%safter position %" PRIu32 "%s\n%s", colour(stdout, COLOUR_BOLD), position,
            colour(stdout, COLOUR_OFF), count ? "" : "  all logits are NaN\n");
    }
    for (size_t i = 0; i < count; i++) {
        double probability = exp((double)top[i].logit - total);
        char *text = NULL;
        size_t size = 0;
        bool has_text = salvo_token_text(evaluation->model, top[i].id, &text, &size) == SALVO_OK;
        if (output_flags.json) {
            json_begin(json, '{');
            json_key(json, "id");
            json_signed(json, top[i].id);
            json_key(json, "logit");
            json_float(json, (double)top[i].logit, true);
            json_key(json, "probability");
            json_float(json, probability, true);
            if (has_text) {
                json_key(json, "text");
                json_text(json, (struct salvo_text){text, size});
            }
            json_end(json, '}');
        } else {
            printf("  %7" PRId32 "  %9.4f  %7.3f%%  ", top[i].id, (double)top[i].logit, 100 * probability);
            if (has_text) {
                putchar('\'');
                print_safely(stdout, text, size);
                putchar('\'');
            }
            putchar('\n');
        }
        salvo_free(text);
    }
    if (output_flags.json) {
        json_end(json, ']');
        json_end(json, '}');
    }
}

static bool take_row(void *user, uint32_t position, const float *logits)
{
    struct evaluation *evaluation = user;
    if (!options.all && position != evaluation->last)
        return true;
    if (!options.logits) {
        show_top(evaluation, position, logits);
        return true;
    }
    bool written =
        evaluation->file
            ? salvo_file_write(evaluation->file, logits, evaluation->vocabulary * sizeof *logits) == SALVO_OK
            : fwrite(logits, sizeof *logits, evaluation->vocabulary, evaluation->stream) ==
                  evaluation->vocabulary;
    evaluation->written += written;
    if (!written && evaluation->file)
        evaluation->failed = true; /* the reason is in salvo_error() */
    else if (!written)
        evaluation->error = errno ? errno : EIO;
    return written;
}

/* Without --all, the tokens before the last are computed without logits, which is faster. */
static enum salvo_status evaluate(
    struct salvo_session *session, const struct id_list *list, struct evaluation *evaluation)
{
    enum salvo_status status = SALVO_OK;
    size_t before = options.all ? 0 : list->count - 1;
    if (before)
        status = salvo_session_eval(session, list->ids, before, NULL, NULL);
    if (status == SALVO_OK)
        status = salvo_session_eval(session, list->ids + before, list->count - before, take_row, evaluation);
    return status;
}

/* Reports the written file. */
static void report_file(const struct evaluation *evaluation)
{
    struct json_writer json = json_output();
    json_begin(&json, '{');
    json_key(&json, "path");
    json_string(&json, options.logits);
    json_key(&json, "rows");
    json_unsigned(&json, evaluation->written);
    json_key(&json, "vocabulary");
    json_unsigned(&json, evaluation->vocabulary);
    json_key(&json, "positions");
    json_begin(&json, '[');
    for (uint32_t i = evaluation->last + 1 - evaluation->written; i <= evaluation->last; i++)
        json_unsigned(&json, i);
    json_end(&json, ']');
    json_end(&json, '}');
    putchar('\n');
}

/* Standard output, devices and FIFOs get each row at once; a regular file is created when it is complete. */
static int open_output(struct evaluation *evaluation)
{
    struct stat information, standard_output;
    bool replace;
    const bool exists = stat(options.logits, &information) == 0;
    const bool is_standard_output = exists && fstat(STDOUT_FILENO, &standard_output) == 0 &&
                                    information.st_dev == standard_output.st_dev &&
                                    information.st_ino == standard_output.st_ino;
    if (strcmp(options.logits, "-") == 0 || is_standard_output) {
        evaluation->stream = stdout;
    } else if (exists && (S_ISCHR(information.st_mode) || S_ISFIFO(information.st_mode))) {
        interrupt_release(); /* a FIFO waits for its reader, and Ctrl-C ends that */
        evaluation->stream = fopen(options.logits, "wb");
        if (!evaluation->stream)
            return failure("%s: %s", options.logits, strerror(errno));
    } else {
        int result = output_file_check(options.logits, evaluation->model, options.force, "--force", &replace);
        if (result != EXIT_DONE)
            return result;
        if (salvo_file_open(options.logits, replace, &evaluation->file) != SALVO_OK)
            return library_failure();
    }
    return EXIT_DONE;
}

static int close_stream(struct evaluation *evaluation, int result)
{
    bool is_standard_output = evaluation->stream == stdout;
    if ((is_standard_output ? fflush(stdout) : fclose(evaluation->stream)) != 0 && !evaluation->error)
        evaluation->error = errno ? errno : EIO;
    if (evaluation->error && result == EXIT_DONE)
        result = failure("cannot write %s: %s", is_standard_output ? "standard output" : options.logits,
            strerror(evaluation->error));
    return result;
}

static int close_output(struct evaluation *evaluation, int result)
{
    if (evaluation->stream)
        result = close_stream(evaluation, result);
    if (evaluation->file && result == EXIT_DONE &&
        (evaluation->failed || salvo_file_commit(evaluation->file) != SALVO_OK))
        result = library_failure();
    salvo_file_close(evaluation->file);
    if (result == EXIT_DONE && output_flags.json)
        report_file(evaluation);
    return result;
}

static int write_rows(struct loaded *loaded, const struct id_list *list)
{
    struct salvo_engine_info info = *salvo_engine_info(loaded->engine);
    struct evaluation evaluation = {
        .model = loaded->model,
        .vocabulary = info.vocabulary,
        .last = (uint32_t)list->count - 1,
        .json = json_output(),
    };
    if (list->count > info.context)
        return failure(
            "%zu tokens do not fit the context of %" PRIu32 "; -c N enlarges it", list->count, info.context);
    for (size_t i = 0; i < list->count; i++) {
        if ((uint32_t)list->ids[i] >= info.vocabulary)
            return usage_error("eval: token id %" PRId32 " is outside the vocabulary of %" PRIu32,
                list->ids[i], info.vocabulary);
    }
    interrupt_catch(loaded->session); /* so that no temporary file is left behind */
    if (options.logits) {
        int opened = open_output(&evaluation);
        interrupt_catch(loaded->session);
        if (opened != EXIT_DONE) {
            interrupt_release();
            return opened;
        }
    }
    if (!options.logits && output_flags.json) {
        json_begin(&evaluation.json, '{');
        json_key(&evaluation.json, "rows");
        json_begin(&evaluation.json, '[');
    }
    int result = evaluate(loaded->session, list, &evaluation) == SALVO_OK ? EXIT_DONE : library_failure();
    if (interrupt_status())
        result = interrupt_status();
    if (options.logits)
        result = close_output(&evaluation, result);
    interrupt_release();
    if (options.logits)
        return result;
    if (output_flags.json) {
        json_end(&evaluation.json, ']');
        json_end(&evaluation.json, '}');
        putchar('\n');
    }
    if (result == EXIT_DONE && evaluation.has_nan_row)
        result = failure("every logit after position %" PRIu32 " is NaN", evaluation.nan_row);
    return result;
}

static int run(int count, char **arguments)
{
    (void)count;
    (void)arguments;
    struct id_list list = {0};
    struct loaded loaded = {0};
    if (!options.tokens)
        return usage_error("eval: --tokens is required: ids separated by commas, or @FILE");
    if (options.logits && strcmp(options.logits, "-") == 0 && output_flags.json)
        return usage_error("eval: --logits - and --json both write to standard output");
    int result = id_list_read(&list, "eval", options.tokens);
    if (result == EXIT_DONE && list.count == 0)
        result = usage_error("eval: --tokens is empty");
    if (result == EXIT_DONE)
        result = load(&loaded);
    if (result == EXIT_DONE)
        result = write_rows(&loaded, &list);
    unload(&loaded);
    id_list_free(&list);
    return result;
}

const struct command eval_command = {
    .name = "eval",
    .summary = "compute the logits of a token sequence",
    .details = "Without --logits, prints the ten most likely next tokens and their probabilities.",
    .options = option_table,
    .shared = {engine_flag_table, output_flag_table},
    .run = run,
};
