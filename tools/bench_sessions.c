/* `salvo bench --sessions`: many sessions that decode together. */
#include "bench.h"
#include "bench_streams.h"
#include "json_output.h"
#include "measure.h"
#include "progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { WARM_UP_TOKENS = 8, LEAST_TOKENS = 4, MOST_TESTS = 1024 };
static const double warm_up_seconds = 0.4;

struct test {
    uint32_t sessions, prompt, tokens;
    char name[48];                 /* "tg128x8" */
    double average, deviation;     /* tokens a second of all sessions */
    double prompt_speed;           /* prompt tokens a second, until all have their first token */
    struct number_list first, gap; /* seconds: until the first token, and between two */
};

/* A stream's tokens from when all streams decode until the first stream ends. */
struct span {
    double begin, end;
};

static struct span span_of(const struct streams *streams)
{
    struct span span = {0, INFINITY};
    for (uint32_t i = 0; i < streams->count; i++) {
        const struct stream *stream = &streams->items[i];
        const double begin = stream->times[stream->together], end = stream->times[stream->count - 1];
        span.begin = begin > span.begin ? begin : span.begin;
        span.end = end < span.end ? end : span.end;
    }
    return span;
}

/* Tokens a second of one stream within the span; adds its times between tokens. */
static double stream_speed(const struct stream *stream, struct span span, struct number_list *gaps)
{
    double first = 0, last = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < stream->count; i++) {
        const double time = stream->times[i];
        if (time < span.begin || time > span.end)
            continue;
        if (count++)
            number_list_add(gaps, time - last);
        else
            first = time;
        last = time;
    }
    return count > 1 ? rate(count - 1, last - first) : 0;
}

/* Tokens a second of all streams. */
static double take_results(const struct streams *streams, struct test *test, double *prompt_speed)
{
    const struct span span = span_of(streams);
    double speed = 0, last = 0, begin = INFINITY;
    for (uint32_t i = 0; i < streams->count; i++) {
        const struct stream *stream = &streams->items[i];
        speed += stream_speed(stream, span, &test->gap);
        number_list_add(&test->first, stream->times[0] - stream->submitted);
        begin = stream->submitted < begin ? stream->submitted : begin;
        last = stream->times[0] > last ? stream->times[0] : last;
    }
    *prompt_speed = rate((double)test->prompt * test->sessions, last - begin);
    return speed;
}

static int warm_up(struct salvo_scheduler *scheduler, const struct test *test, const int32_t *ids)
{
    struct streams streams;
    char message[256];
    const uint32_t tokens = test->tokens < WARM_UP_TOKENS ? test->tokens : WARM_UP_TOKENS;
    int result = EXIT_DONE;
    if (!streams_open(&streams, scheduler, test->sessions, ids, test->prompt, tokens))
        result = failure("out of memory");
    const double start = seconds_now();
    while (result == EXIT_DONE && seconds_now() - start < warm_up_seconds) {
        if (!streams_run_together(&streams, message, sizeof message))
            result = failure("%s", message);
    }
    streams_close(&streams);
    return result;
}

static int measure(struct salvo_scheduler *scheduler, struct test *test, const int32_t *ids)
{
    const uint32_t repetitions = bench_options.repetitions;
    struct number_list speeds = {0}, prompt_speeds = {0};
    struct streams streams = {0};
    char message[256];
    int result = warm_up(scheduler, test, ids);
    if (result == EXIT_DONE &&
        !streams_open(&streams, scheduler, test->sessions, ids, test->prompt, test->tokens))
        result = failure("out of memory");
    for (uint32_t i = 0; i < repetitions && result == EXIT_DONE; i++) {
        progress_show("%s, %" PRIu32 " of %" PRIu32, test->name, i + 1, repetitions);
        if (!streams_run_together(&streams, message, sizeof message)) {
            result = failure("%s", message);
            break;
        }
        double prompt_speed;
        number_list_add(&speeds, take_results(&streams, test, &prompt_speed));
        number_list_add(&prompt_speeds, prompt_speed);
    }
    progress_clear();
    test->average = number_list_mean(&speeds, &test->deviation);
    test->prompt_speed = number_list_mean(&prompt_speeds, NULL);
    if (result == EXIT_DONE &&
        (speeds.has_failed || prompt_speeds.has_failed || test->first.has_failed || test->gap.has_failed))
        result = failure("out of memory");
    number_list_free(&speeds);
    number_list_free(&prompt_speeds);
    streams_close(&streams);
    return result;
}

/* ---- Output ---- */

static void print_header(const struct loaded *loaded)
{
    bench_print_model(loaded);
    printf("%-14s %22s %12s %12s %20s %22s\n", "test", "tok/s", "per session", "prompt tok/s",
        "first token (99 %)", "between tokens (99 %)");
}

static void print_test(struct test *test)
{
    char speed[48], first[48], gap[48];
    snprintf(speed, sizeof speed, "%.1f ± %.1f", test->average, test->deviation);
    snprintf(first, sizeof first, "%.1f (%.1f) ms", 1e3 * number_list_share(&test->first, 0.5),
        1e3 * number_list_share(&test->first, 0.99));
    snprintf(gap, sizeof gap, "%.3f (%.3f) ms", 1e3 * number_list_share(&test->gap, 0.5),
        1e3 * number_list_share(&test->gap, 0.99));
    /* The plus-minus sign is two bytes in one column. */
    printf("%-14s %23s %12.1f %12.1f %20s %22s\n", test->name, speed, test->average / test->sessions,
        test->prompt_speed, first, gap);
    fflush(stdout);
}

static void write_test(struct json_writer *json, struct test *test)
{
    json_begin(json, '{');
    json_key(json, "test");
    json_string(json, test->name);
    const struct {
        const char *key;
        uint32_t value;
    } counts[] = {{"sessions", test->sessions}, {"prompt", test->prompt}, {"tokens", test->tokens}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        json_key(json, counts[i].key);
        json_unsigned(json, counts[i].value);
    }
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"avg_ts", test->average}, {"stddev_ts", test->deviation},
        {"session_ts", test->average / test->sessions}, {"prompt_ts", test->prompt_speed},
        {"first_token_ms", 1e3 * number_list_share(&test->first, 0.5)},
        {"first_token_p99_ms", 1e3 * number_list_share(&test->first, 0.99)},
        {"between_tokens_ms", 1e3 * number_list_share(&test->gap, 0.5)},
        {"between_tokens_p99_ms", 1e3 * number_list_share(&test->gap, 0.99)}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        json_key(json, numbers[i].key);
        json_float(json, numbers[i].value, true);
    }
    json_end(json, '}');
}

/* ---- The tests ---- */

static uint32_t largest(const struct count_list *list)
{
    uint32_t most = 0;
    for (size_t i = 0; i < list->count; i++)
        most = list->items[i] > most ? list->items[i] : most;
    return most;
}

static uint32_t least(const struct count_list *list)
{
    uint32_t least = UINT32_MAX;
    for (size_t i = 0; i < list->count; i++)
        least = list->items[i] < least ? list->items[i] : least;
    return least;
}

static size_t list_tests(struct test *tests)
{
    size_t count = 0;
    for (size_t p = 0; p < bench_options.prompts.count; p++) {
        for (size_t n = 0; n < bench_options.tokens.count; n++) {
            for (size_t s = 0; s < bench_options.sessions.count && count < MOST_TESTS; s++) {
                struct test *test = &tests[count++];
                *test = (struct test){.sessions = bench_options.sessions.items[s],
                    .prompt = bench_options.prompts.items[p],
                    .tokens = bench_options.tokens.items[n]};
                snprintf(
                    test->name, sizeof test->name, "tg%" PRIu32 "x%" PRIu32, test->tokens, test->sessions);
                if (bench_options.prompts.count > 1) {
                    snprintf(test->name, sizeof test->name, "tg%" PRIu32 "@d%" PRIu32 "x%" PRIu32,
                        test->tokens, test->prompt, test->sessions);
                }
            }
        }
    }
    return count;
}

static int check_options(void)
{
    if (!bench_options.prompts.count)
        bench_options.prompts = (struct count_list){{64}, 1};
    if (least(&bench_options.sessions) == 0)
        return usage_error("bench: --sessions 0: expected numbers from 1");
    if (least(&bench_options.prompts) == 0)
        return usage_error("bench: --sessions needs a prompt: -p is 0");
    if (least(&bench_options.tokens) < LEAST_TOKENS)
        return usage_error("bench: --sessions needs -n of at least %d", LEAST_TOKENS);
    if (largest(&bench_options.depths))
        return usage_error("bench: --sessions and -d cannot be combined: give a longer prompt with -p");
    if (bench_options.ahead)
        return usage_error("bench: --sessions and --ahead cannot be combined");
    if (bench_options.profile)
        return usage_error("bench: --sessions and --profile cannot be combined");
    return EXIT_DONE;
}

static int run_tests(struct loaded *loaded, struct salvo_scheduler *scheduler, const int32_t *ids)
{
    static struct test tests[MOST_TESTS];
    const size_t count = list_tests(tests);
    int result = EXIT_DONE;
    if (!output_flags.json)
        print_header(loaded);
    for (size_t i = 0; i < count && result == EXIT_DONE; i++) {
        result = measure(scheduler, &tests[i], ids);
        if (result == EXIT_DONE && !output_flags.json)
            print_test(&tests[i]);
    }
    if (result == EXIT_DONE && output_flags.json) {
        struct json_writer json = json_output();
        bench_begin_json(&json, loaded, "tests");
        for (size_t i = 0; i < count; i++)
            write_test(&json, &tests[i]);
        bench_end_json(&json);
    } else if (result == EXIT_DONE) {
        bench_print_memory();
    }
    for (size_t i = 0; i < count; i++) {
        number_list_free(&tests[i].first);
        number_list_free(&tests[i].gap);
    }
    return result;
}

int bench_run_sessions(void)
{
    struct loaded loaded = {0};
    struct salvo_scheduler *scheduler = NULL;
    int32_t *ids = NULL;
    int result = check_options();
    if (result != EXIT_DONE)
        return result;
    const uint32_t most = largest(&bench_options.sessions), prompt = largest(&bench_options.prompts);
    result = bench_load(&loaded, most, (uint64_t)prompt + largest(&bench_options.tokens));
    struct salvo_scheduler_options options = SALVO_SCHEDULER_OPTIONS_INIT;
    options.queue = most + 1;
    if (result == EXIT_DONE) {
        salvo_session_close(loaded.session); /* the scheduler needs all of them */
        loaded.session = NULL;
        ids = calloc((size_t)prompt + most, sizeof *ids);
        if (!ids)
            result = failure("out of memory");
        else if (salvo_scheduler_open(loaded.engine, &options, &scheduler) != SALVO_OK)
            result = library_failure();
    }
    if (result == EXIT_DONE) {
        bench_fill_ids(ids, (size_t)prompt + most, salvo_engine_info(loaded.engine)->vocabulary);
        result = run_tests(&loaded, scheduler, ids);
    }
    salvo_scheduler_close(scheduler);
    free(ids);
    unload(&loaded);
    return result;
}
