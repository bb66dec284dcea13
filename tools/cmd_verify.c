#include "commands.h"
#include "engine_flags.h"
#include "id_list.h"
#include "json_output.h"
#include "models.h"
#include "terminal.h"

#include <inttypes.h>
#include <salvo/debug.h>
#include <string.h>

enum { SHOWN = 10 };

static struct {
    const char *against, *tokens;
    bool all;
} options;

static const struct option option_table[] = {
    MODEL_OPTION(&engine_flags.model),
    {0, "against", "NAME", OPTION_TEXT, &options.against,
        "reference: a backend, or an instruction set as cpu:NAME (default: cpu:scalar)"},
    {0, "tokens", "IDS|@FILE", OPTION_TEXT, &options.tokens, "token ids (default: a fixed sequence)"},
    {0, "all", NULL, OPTION_FLAG, &options.all,
        "show every output instead of the worst ten and the failed ones"},
    {0},
};

struct report {
    struct json_writer json;
    bool begun; /* the JSON document is begun: not before the first result, so that an error leaves standard
                   output empty */
    unsigned shown;
};

static void begin_report(struct report *report)
{
    if (report->begun)
        return;
    report->begun = true;
    json_begin(&report->json, '{');
    json_key(&report->json, "outputs");
    json_begin(&report->json, '[');
}

static bool failed(const struct salvo_verify_output *output)
{
    return output->not_finite > 0 || !(output->error <= output->tolerance);
}

static void write_output(struct json_writer *json, const struct salvo_verify_output *output)
{
    json_begin(json, '{');
    json_key(json, "buffer");
    json_string(json, output->buffer);
    json_key(json, "operation");
    json_string(json, output->operation);
    json_key(json, "plan");
    json_string(json, output->decode ? "decode" : "prefill");
    json_key(json, "passed");
    json_bool(json, !failed(output));
    const struct {
        const char *key;
        uint64_t value;
    } numbers[] = {{"group", output->group}, {"rows", output->rows}, {"columns", output->columns},
        {"not_finite", output->not_finite}, {"row", output->row}, {"column", output->column}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        json_key(json, numbers[i].key);
        json_unsigned(json, numbers[i].value);
    }
    const struct {
        const char *key;
        double value;
    } floats[] = {{"error", output->error}, {"tolerance", output->tolerance}, {"got", (double)output->got},
        {"expected", (double)output->expected}, {"norm", output->norm},
        {"expected_norm", output->expected_norm}};
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) {
        json_key(json, floats[i].key);
        json_float(json, floats[i].value, true);
    }
    json_end(json, '}');
}

/* Outputs are sorted, the worst first. */
static void take_output(void *user, const struct salvo_verify_output *output)
{
    struct report *report = user;
    if (output_flags.json) {
        begin_report(report);
        write_output(&report->json, output);
        return;
    }
    if (!options.all && report->shown >= SHOWN && !failed(output))
        return;
    if (report->shown++ == 0)
        printf("%-4s %-7s %9s %9s  %-12s %s\n", "", "plan", "error", "allowed", "shape", "what");
    char shape[32];
    snprintf(shape, sizeof shape, "%" PRIu32 " x %" PRIu32, output->rows, output->columns);
    printf("%-4s %-7s %9.2g %9.2g  %-12s %s\n", failed(output) ? "BAD" : "ok",
        output->decode ? "decode" : "prefill", output->error, output->tolerance, shape, output->operation);
    if (output->not_finite)
        printf("     %" PRIu64 " elements are NaN, or infinite on one side only\n", output->not_finite);
    if (failed(output) || output_flags.verbose) {
        printf("     at [%" PRIu32 "][%" PRIu32 "]: %.9g, expected %.9g; norms %.6g and %.6g\n", output->row,
            output->column, (double)output->got, (double)output->expected, output->norm,
            output->expected_norm);
    }
}

static void finish_report(struct report *report, const struct salvo_verify_result *result)
{
    if (!output_flags.json) {
        printf("\ngroups       %" PRIu32 " outputs compared with equal inputs, %" PRIu32 " out of tolerance\n"
               "whole model  mean KL %.3g, largest %.3g; the most likely token agrees at %" PRIu32
               " of %" PRIu32 " positions\n",
            result->outputs, result->failed, result->mean_divergence, result->largest_divergence,
            result->same_argmax, result->positions);
        if (result->from_finest > 0)
            printf("truth        mean KL %.3g, the other side's %.3g: from the CPU with finer rounding\n",
                result->from_finest, result->against_from_finest);
        puts(result->passed ? "passed" : "FAILED");
        return;
    }
    struct json_writer *json = &report->json;
    begin_report(report);
    json_end(json, ']');
    json_key(json, "outputs_compared");
    json_unsigned(json, result->outputs);
    json_key(json, "outputs_failed");
    json_unsigned(json, result->failed);
    json_key(json, "mean_kl");
    json_float(json, result->mean_divergence, false);
    json_key(json, "largest_kl");
    json_float(json, result->largest_divergence, false);
    if (result->from_finest > 0) {
        json_key(json, "kl_from_finest");
        json_float(json, result->from_finest, false);
        json_key(json, "against_kl_from_finest");
        json_float(json, result->against_from_finest, false);
    }
    json_key(json, "positions");
    json_unsigned(json, result->positions);
    json_key(json, "same_argmax");
    json_unsigned(json, result->same_argmax);
    json_key(json, "passed");
    json_bool(json, result->passed);
    json_end(json, '}');
    putchar('\n');
}

static int verify(const struct id_list *list)
{
    struct salvo_engine_options engine_options;
    char backend[64];
    int result = engine_options_from_flags(&engine_options);
    if (result != EXIT_DONE)
        return result;
    /* --cpu-isa NAME means cpu:NAME. */
    if (engine_flags.isa && engine_flags.backend && strchr(engine_flags.backend, ':'))
        return usage_error("verify: --cpu-isa and --backend %s cannot be combined", engine_flags.backend);
    snprintf(backend, sizeof backend, "cpu:%s", engine_flags.isa ? engine_flags.isa : "");
    const struct salvo_verify_options verify_options = {
        .size = sizeof(struct salvo_verify_options),
        .backend = engine_flags.isa ? backend : engine_options.backend,
        .against = options.against,
        .ids = list->ids,
        .count = list->count,
        .device = engine_flags.device,
        .threads = engine_flags.threads,
        .kv_type = engine_options.kv_type,
    };
    struct salvo_model *model;
    result = open_model(engine_flags.model, &model);
    if (result == EXIT_DONE)
        result = check_gpu_layers(model);
    if (result != EXIT_DONE) {
        salvo_model_close(model);
        return result;
    }
    struct report report = {.json = json_output()};
    struct salvo_verify_result verified = SALVO_VERIFY_RESULT_INIT;
    enum salvo_status status = salvo_verify(model, &verify_options, take_output, &report, &verified);
    if (status != SALVO_OK) {
        result = library_failure_by(status);
    } else {
        finish_report(&report, &verified);
        result = verified.passed ? EXIT_DONE : EXIT_FAILED;
    }
    salvo_model_close(model);
    return result;
}

static int run(int count, char **arguments)
{
    (void)count;
    (void)arguments;
    struct id_list list = {0};
    int result = options.tokens ? id_list_read(&list, "verify", options.tokens) : EXIT_DONE;
    if (result == EXIT_DONE && options.tokens && list.count == 0)
        result = usage_error("verify: --tokens is empty");
    if (result == EXIT_DONE)
        result = verify(&list);
    id_list_free(&list);
    return result;
}

const struct command verify_command = {
    .name = "verify",
    .model = &engine_flags.model,
    .summary = "compare a backend or instruction set with a reference",
    .details = "Runs each group of ops on the inputs that the reference had, and compares the outputs; then "
               "runs the whole\n"
               "model on both and compares the logits. Non-finite outputs are listed first, then the largest "
               "errors. The exit\n"
               "status is 1 if anything is out of tolerance. --backend and --against take cpu:NAME for one "
               "instruction set.",
    .options = option_table,
    .shared = {engine_flag_table + ENGINE_FLAGS_AFTER_PIN, output_flag_table},
    .run = run,
};
