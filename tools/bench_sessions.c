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
    struct number_list arriving_first,
        arriving_gap; /* seconds: first token of the arriving prompt; gaps of the others meanwhile */
};

static bool has_failed(const struct test *test)
{
    return test->first.has_failed || test->gap.has_failed || test->arriving_first.has_failed ||
           test->arriving_gap.has_failed;
}

/* ---- Results of the streams ---- */

struct span {
    double begin, end;
};

/* The time from when all streams decode until the first of them ends. */
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

/* Times between two tokens, if the second one arrived while the arriving prompt was computed. */
static void take_arriving(const struct streams *streams, struct test *test)
{
    const struct stream *arriving = &streams->arriving;
    number_list_add(&test->arriving_first, arriving->times[0] - arriving->submitted);
    for (uint32_t i = 0; i < streams->count; i++) {
        const struct stream *stream = &streams->items[i];
        for (uint32_t k = 1; k < stream->count; k++) {
            if (stream->times[k] > arriving->submitted && stream->times[k] <= arriving->times[0])
                number_list_add(&test->arriving_gap, stream->times[k] - stream->times[k - 1]);
        }
    }
}

/* Tokens a second of streams that decode together. */
static double take_together(const struct streams *streams, struct test *test)
{
    struct span span = span_of(streams);
    double speed = 0;
    if (streams->arriving.prompt) {
        span.end = streams->arriving.submitted;
        take_arriving(streams, test);
    }
    for (uint32_t i = 0; i < streams->count; i++)
        speed += stream_speed(&streams->items[i], span, &test->gap);
    return speed;
}

/* Tokens a second of streams that begin and end at different times. */
static double take_requests(const struct streams *streams, struct test *test)
{
    double tokens = 0, end = 0;
    for (uint32_t i = 0; i < streams->count; i++) {
        const struct stream *stream = &streams->items[i];
        const double last = stream->times[stream->count - 1];
        (void)stream_speed(stream, (struct span){0, INFINITY}, &test->gap);
        tokens += stream->count;
        end = last > end ? last : end;
    }
    return rate(tokens, end - streams->items->submitted);
}

/* Adds the times until first tokens; prompt tokens a second until all had theirs. */
static double take_prompts(const struct streams *streams, struct test *test)
{
    double last = 0;
    for (uint32_t i = 0; i < streams->count; i++) {
        const struct stream *stream = &streams->items[i];
        number_list_add(&test->first, stream->times[0] - stream->submitted);
        last = stream->times[0] > last ? stream->times[0] : last;
    }
    return rate((double)test->prompt * streams->count, last - streams->items->submitted);
}

/* ---- Measuring ---- */

static int warm_up(struct salvo_scheduler *scheduler, const struct test *test, const int32_t *ids)
{
    struct streams streams;
    char message[256];
    int result = EXIT_DONE;
    if (!streams_open(&streams, scheduler, test->sessions, ids, test->prompt,
            test->tokens < WARM_UP_TOKENS ? test->tokens : WARM_UP_TOKENS))
        result = failure("out of memory");
    const double start = seconds_now();
    while (result == EXIT_DONE && seconds_now() - start < warm_up_seconds) {
        if (!streams_run_together(&streams, message, sizeof message))
            result = failure("%s", message);
    }
    streams_close(&streams);
    return result;
}

/* Streams need tokens to decode until the prompt that arrives is computed, in parts of few tokens. */
static uint64_t stream_tokens(uint32_t tokens)
{
    enum { FEW_TOKENS = 16, MORE = 16 };
    return bench_options.arriving ? (uint64_t)tokens + bench_options.arriving / FEW_TOKENS + MORE : tokens;
}

static int open_streams(
    struct streams *streams, struct salvo_scheduler *scheduler, const struct test *test, const int32_t *ids)
{
    const uint32_t count = bench_options.rate > 0 ? bench_options.requests : test->sessions;
    bool is_open =
        streams_open(streams, scheduler, count, ids, test->prompt, (uint32_t)stream_tokens(test->tokens));
    if (is_open && bench_options.arriving)
        is_open = streams_set_arriving(streams, ids, bench_options.arriving, test->tokens);
    return is_open ? EXIT_DONE : failure("out of memory");
}

static int run_streams(struct streams *streams, uint32_t repetition)
{
    char message[256];
    const bool done = bench_options.rate > 0 ? streams_run_arriving(streams, bench_options.rate,
                                                   repetition + 1, message, sizeof message)
                                             : streams_run_together(streams, message, sizeof message);
    return done ? EXIT_DONE : failure("%s", message);
}

static int measure(struct salvo_scheduler *scheduler, struct test *test, const int32_t *ids)
{
    const uint32_t repetitions = bench_options.repetitions;
    struct number_list speeds = {0}, prompt_speeds = {0};
    struct streams streams = {0};
    int result = warm_up(scheduler, test, ids);
    if (result == EXIT_DONE)
        result = open_streams(&streams, scheduler, test, ids);
    for (uint32_t i = 0; i < repetitions && result == EXIT_DONE; i++) {
        progress_show("%s, %" PRIu32 " of %" PRIu32, test->name, i + 1, repetitions);
        result = run_streams(&streams, i);
        if (result != EXIT_DONE)
            break;
        number_list_add(
            &speeds, bench_options.rate > 0 ? take_requests(&streams, test) : take_together(&streams, test));
        number_list_add(&prompt_speeds, take_prompts(&streams, test));
    }
    progress_clear();
    test->average = number_list_mean(&speeds, &test->deviation);
    test->prompt_speed = number_list_mean(&prompt_speeds, NULL);
    if (result == EXIT_DONE && (speeds.has_failed || prompt_speeds.has_failed || has_failed(test)))
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
    char speed[48], first[48], gap[48], each[48] = "", prompts[48] = "";
    snprintf(speed, sizeof speed, "%.1f ± %.1f", test->average, test->deviation);
    snprintf(first, sizeof first, "%.1f (%.1f) ms", 1e3 * number_list_share(&test->first, 0.5),
        1e3 * number_list_share(&test->first, 0.99));
    snprintf(gap, sizeof gap, "%.3f (%.3f) ms", 1e3 * number_list_share(&test->gap, 0.5),
        1e3 * number_list_share(&test->gap, 0.99));
    if (!(bench_options.rate > 0)) {
        snprintf(each, sizeof each, "%.1f", test->average / test->sessions);
        snprintf(prompts, sizeof prompts, "%.1f", test->prompt_speed);
    }
    /* The plus-minus sign is two bytes in one column. */
    printf("%-14s %23s %12s %12s %20s %22s\n", test->name, speed, each, prompts, first, gap);
    if (bench_options.arriving) {
        const double rest = number_list_share(&test->gap, 0.5),
                     stretched = number_list_share(&test->arriving_gap, 0.99);
        printf("  a prompt of %" PRIu32 ": first token %.1f ms, between tokens %.3f (%.3f) ms, %.2f times "
               "the median before\n",
            bench_options.arriving, 1e3 * number_list_share(&test->arriving_first, 0.5),
            1e3 * number_list_share(&test->arriving_gap, 0.5), 1e3 * stretched, rate(stretched, rest));
    }
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
    const double rest = number_list_share(&test->gap, 0.5),
                 stretched = number_list_share(&test->arriving_gap, 0.99);
    const struct {
        const char *key;
        double value;
        bool is_left_out;
    } numbers[] = {
        {"avg_ts", test->average, false},
        {"stddev_ts", test->deviation, false},
        {"session_ts", test->average / test->sessions, bench_options.rate > 0},
        {"prompt_ts", test->prompt_speed, bench_options.rate > 0},
        {"first_token_ms", 1e3 * number_list_share(&test->first, 0.5), false},
        {"first_token_p99_ms", 1e3 * number_list_share(&test->first, 0.99), false},
        {"between_tokens_ms", 1e3 * rest, false},
        {"between_tokens_p99_ms", 1e3 * number_list_share(&test->gap, 0.99), false},
        {"rate", bench_options.rate, !(bench_options.rate > 0)},
        {"requests", bench_options.requests, !(bench_options.rate > 0)},
        {"arriving_prompt", bench_options.arriving, !bench_options.arriving},
        {"arriving_first_token_ms", 1e3 * number_list_share(&test->arriving_first, 0.5),
            !bench_options.arriving},
        {"arriving_between_tokens_ms", 1e3 * number_list_share(&test->arriving_gap, 0.5),
            !bench_options.arriving},
        {"arriving_between_tokens_p99_ms", 1e3 * stretched, !bench_options.arriving},
        {"arriving_stretch", rate(stretched, rest), !bench_options.arriving},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (numbers[i].is_left_out)
            continue;
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
    if (bench_options.rate > 0 && bench_options.rate < 1e-3f)
        return usage_error("bench: --rate is less than one request in 1000 seconds");
    if (bench_options.rate > 0 && bench_options.arriving)
        return usage_error("bench: --rate and --arriving cannot be combined");
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
        number_list_free(&tests[i].arriving_first);
        number_list_free(&tests[i].arriving_gap);
    }
    return result;
}

struct needs {
    uint32_t sessions, queue;
    uint64_t context;
    size_t ids;
};

static struct needs needs_of_tests(void)
{
    const uint32_t sessions = largest(&bench_options.sessions), arriving = bench_options.arriving,
                   prompt = largest(&bench_options.prompts),
                   requests = bench_options.rate > 0 ? bench_options.requests : 0;
    struct needs needs = {.sessions = sessions + (arriving > 0),
        .queue = (requests > sessions ? requests : sessions) + 1,
        .context = (uint64_t)prompt + stream_tokens(largest(&bench_options.tokens))};
    needs.ids = (size_t)(prompt > arriving ? prompt : arriving) + needs.queue;
    if (needs.context < (uint64_t)arriving + 1)
        needs.context = (uint64_t)arriving + 1;
    return needs;
}

int bench_run_sessions(void)
{
    struct loaded loaded = {0};
    struct salvo_scheduler *scheduler = NULL;
    int32_t *ids = NULL;
    int result = check_options();
    if (result != EXIT_DONE)
        return result;
    const struct needs needs = needs_of_tests();
    struct salvo_scheduler_options options = SALVO_SCHEDULER_OPTIONS_INIT;
    options.queue = needs.queue;
    result = bench_load(&loaded, needs.sessions, needs.context);
    if (result == EXIT_DONE) {
        salvo_session_close(loaded.session); /* the scheduler needs all of them */
        loaded.session = NULL;
        ids = calloc(needs.ids, sizeof *ids);
        if (!ids)
            result = failure("out of memory");
        else if (salvo_scheduler_open(loaded.engine, &options, &scheduler) != SALVO_OK)
            result = library_failure();
    }
    if (result == EXIT_DONE) {
        bench_fill_ids(ids, needs.ids, salvo_engine_info(loaded.engine)->vocabulary);
        result = run_tests(&loaded, scheduler, ids);
    }
    salvo_scheduler_close(scheduler);
    free(ids);
    unload(&loaded);
    return result;
}
