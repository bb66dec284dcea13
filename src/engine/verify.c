/* Compares two backends, or two instruction sets of one: each group with equal inputs, then the whole
 * model. */
#include "engine/verify.h"

#include "base/memory.h"
#include "engine/arguments.h"
#include "engine/session_pages.h"
#include "program/sampling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_TOKENS = 48, ROWS_AT_ONCE = 32 };

/*
 * In the whole model, differences grow from layer to layer: one activation that is rounded to another int8
 * value changes the rounding of many in later layers. Two sides with int8 activations may then differ from
 * each other as much as each differs from exact results. If the mean divergence exceeds the first limit, both
 * are compared with the CPU at its finest rounding; the verified side's divergence may exceed the other's by
 * the second limit, a factor.
 */
static const double largest_mean_divergence = 1e-3, largest_ratio = 1.25;

/* "cpu:scalar" is a backend and its instruction set. */
static enum salvo_status open_side(struct salvo_model *model, const struct salvo_verify_options *options,
    const char *name, uint32_t context, struct salvo_engine **out)
{
    char backend[32] = "auto";
    const char *colon = name ? strchr(name, ':') : NULL;
    size_t length = !name ? 0 : colon ? (size_t)(colon - name) : strlen(name);
    if (length >= sizeof backend)
        return fail(SALVO_ERROR_ARGUMENT, "backend '%s' is not known", name);
    if (name) {
        memcpy(backend, name, length);
        backend[length] = 0;
    }
    const struct salvo_engine_options engine_options = {
        .size = sizeof engine_options,
        .backend = backend,
        .isa = colon ? colon + 1 : NULL,
        .device = options->device,
        .threads = options->threads,
        .kv_type = options->kv_type,
        .context = context,
    };
    return salvo_engine_open(model, &engine_options, out);
}

/* A backend that can round activations finer than the other one rounds steps of `count` tokens as the
 * other does. */
static enum salvo_status round_alike(
    const struct salvo_engine *engine, const struct salvo_engine *other, uint32_t count)
{
    const struct backend_info info = other->backend->info(other->executor);
    const bool is_fine = count > 1 ? info.fine_batches : info.fine_singles;
    if (!engine->backend->rounds_finely || (other->backend->rounds_finely && !engine->backend->set_rounding))
        return SALVO_OK;
    if (!engine->backend->set_rounding) {
        return fail(SALVO_ERROR_ARGUMENT,
            "%s rounds activations finer than %s can: compare each of them with cpu", engine->backend->name,
            other->backend->name);
    }
    engine->backend->set_rounding(engine->executor, is_fine                         ? ACTIVATIONS_FINEST
                                                    : other->backend->rounds_finely ? ACTIVATIONS_AS_USUAL
                                                                                    : ACTIVATIONS_PLAIN);
    return SALVO_OK;
}

static enum salvo_status round_pair(const struct verify_pair *pair, uint32_t count)
{
    enum salvo_status status = SALVO_OK;
    TRY(round_alike(pair->ours, pair->theirs, count));
    TRY(round_alike(pair->theirs, pair->ours, count));
cleanup:
    return status;
}

static enum salvo_status verify_tokens(const struct verify_pair *pair, const int32_t *ids, uint32_t first,
    uint32_t count, struct verify_list *list)
{
    enum salvo_status status = SALVO_OK;
    uint32_t most = pair->ours->options.outputs;
    TRY(session_take_pages(&pair->ours->sessions[0], first, first + count));
    const struct run run = {
        .slot = 0,
        .first = first,
        .count = count,
        .source = SOURCE_IDS,
        .logits = count <= most && count > 1 ? LOGITS_ALL : LOGITS_LAST,
        .pages = pair->ours->sessions[0].pages,
        .sampler = {.top_p = 1, .repeat_penalty = 1},
        .limit = pair->ours->options.context,
    };
    TRY(verify_step(
        pair, &(struct step){.runs = &run, .run_count = 1, .token_count = count, .ids = ids + first}, list));
cleanup:
    return status;
}

/* All tokens but the last as a prompt, the last one alone: this covers both plans. */
static enum salvo_status verify_groups(
    const struct verify_pair *pair, const int32_t *ids, uint32_t count, struct verify_list *list)
{
    enum salvo_status status = SALVO_OK;
    uint32_t batch = pair->ours->options.batch;
    for (uint32_t first = 0; first + 1 < count;) {
        uint32_t left = count - 1 - first, part = left < batch ? left : batch;
        TRY(round_pair(pair, part));
        TRY(verify_tokens(pair, ids, first, part, list));
        first += part;
    }
    TRY(round_pair(pair, 1));
    TRY(verify_tokens(pair, ids, count - 1, 1, list));
cleanup:
    return status;
}

static bool is_out_of_tolerance(const struct salvo_verify_output *output)
{
    return output->not_finite > 0 || !(output->error <= output->tolerance);
}

static double times_tolerance(const struct salvo_verify_output *output)
{
    if (output->tolerance > 0)
        return output->error / output->tolerance;
    return output->error > 0 ? (double)INFINITY : 0;
}

static int worst_first(const void *left, const void *right)
{
    const struct salvo_verify_output *a = &((const struct verify_record *)left)->output;
    const struct salvo_verify_output *b = &((const struct verify_record *)right)->output;
    if (a->not_finite != b->not_finite)
        return a->not_finite > b->not_finite ? -1 : 1;
    double a_times = times_tolerance(a), b_times = times_tolerance(b);
    if (a_times != b_times)
        return a_times > b_times ? -1 : 1;
    return a->group < b->group ? -1 : a->group > b->group;
}

static void hand_over(
    struct verify_list *list, salvo_verify_function function, void *user, struct salvo_verify_result *result)
{
    if (list->count)
        qsort(list->records, list->count, sizeof *list->records, worst_first);
    for (size_t i = 0; i < list->count; i++) {
        struct salvo_verify_output *output = &list->records[i].output;
        output->operation = list->records[i].operation;
        result->outputs++;
        result->failed += is_out_of_tolerance(output);
        if (function)
            function(user, output);
    }
}

/* ---- The whole model ---- */

struct free_run {
    float *expected; /* [ROWS_AT_ONCE][vocabulary] */
    uint32_t first, vocabulary;
    struct verify_distance distance;
};

static bool keep_row(void *user, uint32_t position, const float *logits)
{
    struct free_run *run = user;
    memcpy(run->expected + (size_t)(position - run->first) * run->vocabulary, logits,
        run->vocabulary * sizeof *logits);
    return true;
}

/* Returns the logarithm of the sum of exponentials; *out_argmax is the id of the largest logit. */
static double log_sum(const float *logits, uint32_t count, uint32_t *out_argmax)
{
    uint32_t largest = 0;
    for (uint32_t i = 1; i < count; i++) {
        if (logits[i] > logits[largest])
            largest = i;
    }
    double sum = exp((double)logits[0] - (double)logits[largest]);
    for (uint32_t i = 1; i < count; i++)
        sum += exp((double)logits[i] - (double)logits[largest]);
    *out_argmax = largest;
    return (double)logits[largest] + log(sum);
}

static bool compare_row(void *user, uint32_t position, const float *logits)
{
    struct free_run *run = user;
    const float *expected = run->expected + (size_t)(position - run->first) * run->vocabulary;
    uint32_t argmax, expected_argmax;
    double total = log_sum(logits, run->vocabulary, &argmax), divergence = 0;
    double expected_total = log_sum(expected, run->vocabulary, &expected_argmax);
    for (uint32_t i = 0; i < run->vocabulary; i++) {
        double log_p = (double)expected[i] - expected_total, log_q = (double)logits[i] - total;
        double probability = exp(log_p);
        divergence += probability == 0 ? 0 : probability * (log_p - log_q);
    }
    run->distance.same_argmax += argmax == expected_argmax;
    run->distance.divergences += divergence;
    if (!(divergence <= run->distance.largest)) /* also stores NaN */
        run->distance.largest = divergence;
    return true;
}

enum salvo_status verify_run_free(
    const struct verify_pair *pair, const int32_t *ids, uint32_t count, struct verify_distance *out)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_session *ours = NULL, *theirs = NULL;
    struct free_run run = {.vocabulary = pair->ours->program->vocabulary};
    TRY(NEW(&run.expected, (size_t)ROWS_AT_ONCE * run.vocabulary));
    TRY(salvo_session_open(pair->ours, &ours));
    TRY(salvo_session_open(pair->theirs, &theirs));
    for (; run.first < count; run.first += ROWS_AT_ONCE) {
        uint32_t left = count - run.first, part = left < ROWS_AT_ONCE ? left : ROWS_AT_ONCE;
        TRY(salvo_session_eval(theirs, ids + run.first, part, keep_row, &run));
        TRY(salvo_session_eval(ours, ids + run.first, part, compare_row, &run));
    }
cleanup:
    salvo_session_close(ours);
    salvo_session_close(theirs);
    memory_free(run.expected);
    *out = run.distance;
    return status;
}

/* Compares both sides with the CPU at its finest rounding. */
static enum salvo_status run_against_finest(struct salvo_model *model,
    const struct salvo_verify_options *options, const struct verify_pair *pair, const int32_t *ids,
    uint32_t count, struct salvo_verify_result *result)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_engine *finest = NULL;
    struct verify_distance distance;
    TRY(open_side(model, options, "cpu", count, &finest));
    finest->backend->set_rounding(finest->executor, ACTIVATIONS_FINEST);
    TRY(verify_run_free(&(struct verify_pair){pair->ours, finest}, ids, count, &distance));
    result->from_finest = distance.divergences / count;
    TRY(verify_run_free(&(struct verify_pair){pair->theirs, finest}, ids, count, &distance));
    result->against_from_finest = distance.divergences / count;
cleanup:
    salvo_engine_close(finest);
    return status;
}

static enum salvo_status compare_models(struct salvo_model *model, const struct salvo_verify_options *options,
    const struct verify_pair *pair, const int32_t *ids, uint32_t count, struct salvo_verify_result *result)
{
    enum salvo_status status = SALVO_OK;
    struct verify_distance distance;
    TRY(round_pair(pair, count));
    TRY(verify_run_free(pair, ids, count, &distance));
    result->positions = count;
    result->same_argmax = distance.same_argmax;
    result->mean_divergence = distance.divergences / count;
    result->largest_divergence = distance.largest;
    bool near = result->mean_divergence <= largest_mean_divergence;
    if (!near && isfinite(result->mean_divergence))
        TRY(run_against_finest(model, options, pair, ids, count, result));
    result->passed = result->failed == 0 &&
                     (near || (result->from_finest > 0 &&
                                  result->from_finest <= largest_ratio * result->against_from_finest));
cleanup:
    return status;
}

/* ---- */

/* Pseudo-random ids, for models without a tokenizer. */
static enum salvo_status default_ids(const struct salvo_engine *engine, int32_t **out)
{
    enum salvo_status status = SALVO_OK;
    int32_t *ids = NULL;
    TRY(NEW(&ids, DEFAULT_TOKENS));
    for (uint32_t i = 0; i < DEFAULT_TOKENS; i++)
        ids[i] = (int32_t)(sampling_random(0, i) % engine->program->vocabulary);
cleanup:
    *out = ids;
    return status;
}

static enum salvo_status check_ids(const struct salvo_engine *engine, const int32_t *ids, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= engine->program->vocabulary)
            return fail(SALVO_ERROR_ARGUMENT, "token id %d is outside the vocabulary of %u", ids[i],
                engine->program->vocabulary);
    }
    return SALVO_OK;
}

enum salvo_status salvo_verify(struct salvo_model *model, const struct salvo_verify_options *given,
    salvo_verify_function output, void *user, struct salvo_verify_result *out)
{
    enum salvo_status status = SALVO_OK;
    struct salvo_verify_options options;
    struct salvo_verify_result result = SALVO_VERIFY_RESULT_INIT;
    REQUIRE(out);
    REQUIRE(model);
    struct verify_pair pair = {0};
    struct verify_list list = {0};
    int32_t *own_ids = NULL;
    status = result_write("salvo_verify_result", &result, sizeof result, out);
    if (status == SALVO_OK)
        status = options_read("salvo_verify_options", given, sizeof options, &options);
    if (status != SALVO_OK)
        return status;
    const int32_t *ids = options.ids;
    if (ids && (options.count == 0 || options.count > 1 << 20))
        TRY(fail(
            SALVO_ERROR_ARGUMENT, "%zu tokens were given; verify takes 1 to %d", options.count, 1 << 20));
    uint32_t count = ids ? (uint32_t)options.count : DEFAULT_TOKENS;
    TRY(open_side(model, &options, options.backend, count, &pair.ours));
    TRY(open_side(model, &options, options.against ? options.against : "cpu:scalar", count, &pair.theirs));
    TRY(round_pair(&pair, count));
    if (!ids) {
        TRY(default_ids(pair.ours, &own_ids));
        ids = own_ids;
    }
    TRY(check_ids(pair.ours, ids, count));
    TRY(verify_groups(&pair, ids, count, &list));
    TRY(gguf_check(model_gguf(model)));
    hand_over(&list, output, user, &result);
    TRY(compare_models(model, &options, &pair, ids, count, &result));
    TRY(gguf_check(model_gguf(model)));
cleanup:
    (void)result_write("salvo_verify_result", &result, sizeof result, out);
    if (status != SALVO_OK)
        status = gguf_check_after(model_gguf(model), status);
    salvo_engine_close(pair.ours);
    salvo_engine_close(pair.theirs);
    verify_list_free(&list);
    memory_free(own_ids);
    return status;
}
